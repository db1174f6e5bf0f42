"""Public dimensions of MoE models, from their published configurations and papers."""

from __future__ import annotations

from dataclasses import dataclass

from railopt.base.errors import InputError
from railopt.base.units import PS_PER_S, quoted
from railopt.model.fabric import Fabric
from railopt.moe.iteration.timemodel import TimeModel


@dataclass(frozen=True)
class Preset:
    """One model.

    layers        MoE layers (DeepSeek's first dense layers are left out)
    experts       routed experts per layer; top_k of them serve a token
    hidden, ffn   width of a token and of one expert
    matrices      weight matrices per expert: 3 where it is gated (SwiGLU), 2 otherwise
    dense_params  other parameters of such a layer that every token passes: attention and shared
                  experts
    """

    name: str
    layers: int
    experts: int
    top_k: int
    hidden: int
    ffn: int
    dense_params: int
    matrices: int = 3

    @property
    def expert_params(self) -> int:
        """Parameters of one expert."""
        return self.matrices * self.hidden * self.ffn

    def expert_bytes(self, width: int = 2) -> int:
        """Bytes of one expert's parameters at `width` bytes each (2 is bf16, 1 fp8, 4 fp32)."""
        return self.expert_params * width

    def token_bytes(self, width: int = 2) -> int:
        """Bytes of one token's hidden vector."""
        return self.hidden * width

    @property
    def expert_flops(self) -> int:
        """Forward FLOPs of one token in one expert; backward takes twice as many."""
        return 2 * self.expert_params

    @property
    def dense_flops(self) -> int:
        """Forward FLOPs of one token in the rest of the layer, attention scores left out."""
        return 2 * self.dense_params

    def model(
        self,
        fabric: Fabric,
        tokens_per_rank: int,
        *,
        gpu_flops: float = 400e12,
        overlap: bool = True,
    ) -> TimeModel:
        """The time model of one layer: GPUs that reach `gpu_flops`, values in bf16, rails used
        evenly.
        """
        if not 1e6 <= gpu_flops <= 1e21:
            raise InputError(f"{gpu_flops:g} FLOP/s per GPU: expected 1e6 to 1e21")
        return TimeModel.rails(
            fabric,
            token_bytes=self.token_bytes(),
            expert_bytes=self.expert_bytes(),
            tokens_per_s=gpu_flops / self.expert_flops,
            fnec_ps=round(tokens_per_rank * self.dense_flops * PS_PER_S / gpu_flops),
            overlap=overlap,
        )


PRESETS = {
    "mixtral-8x7b": Preset("Mixtral 8x7B", 32, 8, 2, 4096, 14336, 41_943_040),
    "mixtral-8x22b": Preset("Mixtral 8x22B", 56, 8, 2, 6144, 16384, 88_080_384),
    "deepseek-v2-lite": Preset("DeepSeek-V2-Lite", 26, 64, 6, 2048, 1408, 31_064_064),
    "deepseek-v3": Preset("DeepSeek-V3", 58, 256, 8, 7168, 2048, 231_145_472),
    "olmoe-1b-7b": Preset("OLMoE-1B-7B", 16, 64, 8, 2048, 1024, 16_777_216),
    "qwen3-235b-a22b": Preset("Qwen3-235B-A22B", 94, 128, 8, 4096, 1536, 71_303_168),
}


def preset(name: str) -> Preset:
    """A preset by name."""
    if not isinstance(name, str) or name not in PRESETS:
        raise InputError(f"unknown model {quoted(name)}; known models: {', '.join(PRESETS)}")
    return PRESETS[name]
