"""The entry point through which each of vLLM's processes takes railopt's policy for its own.

vLLM loads the plugins of all installed packages.  To install railopt must not change how a server
balances its experts, so this one acts only where VLLM_PLUGINS names it.
"""

from __future__ import annotations

import os


def register() -> None:
    """Put `RailoptEplbPolicy` in the place of vLLM's default policy where VLLM_PLUGINS asks so."""
    if "railopt" not in os.environ.get("VLLM_PLUGINS", "").split(","):
        return
    from vllm.distributed.eplb.policy import EPLB_POLICIES

    from railopt.moe.placement.vllm import RailoptEplbPolicy, few_asked

    few_asked()  # a setting that is none ends the server before it starts

    EPLB_POLICIES["default"] = RailoptEplbPolicy
