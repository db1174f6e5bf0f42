"""Routing traces: files, readers of foreign records, and what they refuse."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import numpy as np
import pytest

from railopt.base.errors import FormatError, InputError
from railopt.moe.routing.files import from_load, read_trace
from railopt.moe.routing.trace import Trace

SHIPPED = Path(__file__).resolve().parents[4] / "experiments" / "traces"

# Three files of torch.save (torch 2.13), compressed: recorder statistics, per-token records, and
# one that would run a command.
STAT = (
    "eNqllD9v00AYxs92aqdOm7RlqOjQOUgldf44cUClyEKWkAfSIKSoi+U612DVtXv2JQgkJCSEKkY6MPIxYGdhrNjZmJgQ34A7O7j2hQYoZ51Otu"
    "9539/7+jn3TKEAQLEIZsYKWAN26Dx2J3B7aGO7dnLkGXoZ7OfGC/45AtXBMhF4wch1bM9ygrGPEefggKhr1hi7XiRbITwYu97QwtCPgtCaNGTE"
    "V6sDiQgjstMeQSQkEvm+jx8mj2RUGHBkh4IWBgJZnZMxEs0ljKQ9E5g8uYRTVDRFUzC5U7T42nECz4MOdgM/kh+EQxjC4T3XwTKSb/RRCaOlPl"
    "oekIJBaPtHqGyCca1nSsX9851PH8lTOnuXdmQddNOO1A6D8NjG1gSGEclm6CrTmL8cdZr+w/cvL2mZ3Nz0G6BzkX7aM8v23JF/DH1s6M2rELRb"
    "FGD3CfrGkxT8XIBVsJsCHDzFMKANNvTbV6s8GZ6LsQcpw6udr9dFkkWcy1AGd3Ku3FYM/dZ/AIBp22nl1GHUGwtTCupNirBIpkxmKSaTinul/n"
    "uFunIuaQVcS0lTl1RY1KZMI35+N3r05/5vgsaFAeLiIxi6xAHPbOp4yx0aeu0fe1FXOw2t3u2q9bqmttqtptJoK+0OuVU1RetqLaXbUduN2CX8"
    "1tmPKuGoxpQchU05sydoZYac/Y+w6uwBWM8p1zhw2Zljg2RNvJEL8iYbZObksHGyRlzNw/Bg9gCw8qw7yjn5Wx4w3mW1WR9Uctq7AmDdxIqzn2"
    "czJz7LiH9vnJ4pilu/bCbcTJUSs55zyaoVkpXo4leSmNwnf7AFMdFI8f5k708e+Vl3"
)
TOKENS = (
    "eNqlVV1r01AYPkm7NMtm1266uSrDywraNf3KquhGlKJEsE6EMhghS8/a2DTpSU4nGw4EGWM3XnghXvk3/AXe6+VAUPDKK3/CPCf9WJK5js0XDq"
    "c9fZ/3fQ7v85xWlUgUAJ4HJyIBpoHm6E1jCy7WNaxlOi2zIsfBWiDesLsI1GIk34G67dRdxKwjchZJ15LkENudlmrUXdXeVE1tGzooqmObVM2o"
    "XWyYrqA6cKNrmHUVQ8u1HXUrJ6CxdNqr6JJMrQER14MIjy38vHckoFiNIRlZxNciZNc7XTSuJDASnilAYZWowu6jCYUnH5l9NHmg67ZpQh0btu"
    "UKT506dGD9oaFjAV26uYriGE2tokRtklRqG66u2hsvSbKLkutoehfN1GbID1a3rWK7RViqHeiojma10OUmodoc0HtiW40hvysePxHNNscVFqM5"
    "j9ceuqowe2j+oEnbpjC6toquu1pXczNVJcYvHX758IjA6KqeOpc5kB/OJbNpO20Nq1vQccndKvJiaDxnhkgbf/7z/S2lS9fpjVNAOm7cn42qmU"
    "bDakMLV+T8eXvTKBUogeVX6DdLWrAjCSTB8pDAxjaGNh1kRb57kb6DMA2MTUg57N37Nc+RLtxIDnFwP+CKxWxFvvMfBED/1kx/P+oH8J0x/d6D"
    "78CXR5n/fL32boWcrZzBPBpkLlZkACK+2sDDx/jy0eF4wnsBRtWb8unw4vrLC7Tjt0+NF2fPfwHkjgXoXcGFjkEUuKNRZ5N3piJnzkkgWyyJYn"
    "apmMuXxHJJyhZz5YIoFaVCriRJUr4gZsnK5cuUJbvzI5UmPNIeS8YbxYCn37uJE8zD72gY7TfgXAD5kQGnuT1cxG+iVNA4LBjh3HAdvxGSgTrv"
    "fXWGBgzD/WqMB+CzERDyThjrV14Q+zWMFcNYv4amAtgbURBWahjsH+1C8M4+8L9FV1U47tZAopHbQyQf2if63l0aG1iNo/9y4EHs2IJVZYzrYX"
    "gvv5f7F1uKrNQ="
)
EVIL = (
    "eNoL8GZmYWDg4GDAAAIMQgyJRckZmWWp+imJJYl6Bdk5bk58DFEooIGptpAhgheoPic/PTM5MSc+Ob80r6SQMbkgvzizgqu4srgkNZerkClCHK"
    "gmNTkjXyG/PC81RcFOQb8kt0AfzClkbi1kCSpkLdYL8Gbn+Pq8L9QfqBiEA3A6T5xBB+48vbT8otzEkviy1KLizPw8NycNNFfiBoYgG7e/v9PM"
    "CDSTEa+NUgzmCBuLS/KLEtNT4xNzMtPzclPzStycjIm2FAmYmYAcYF9e+JIJaAUTXgcIMtjDHZBUWZKaX5SSWuTmZE2OvTCQk1lSkpMKckOr7W"
    "NJNqAtbHjdwM9gC3cDPLgtyXeBMRfI7ovz0kMJ+1+OwQgRAaAkqV+cWpQJjIGqxBKgO+IzU9yc9Eh0ioGRpYGFiZmFmbm5uZmRpZGxoYGJgYGB"
    "maWlsbGpkYmZgaWpMRCZglypuVRwmQbQHRpgVzKCHAt3J3KiFcBwOXo+QteNnADFUXTOR9KNlszRDUFORFKoCYeRAU/KRTcHOSEIopgzCckceA"
    "JE144cl/wo2sWYGNDTDrpm5CCWQ7UbSTP2yA/wZmPTgSUVZl24TjY0ejIjhLZghtBAfewg+jQLhA8pBVjZIHrYwOohagH49hz4"
)


def unpack(text: str, path: Path) -> Path:
    path.write_bytes(zlib.decompress(base64.b64decode(text)))
    return path


def small(**changes: object) -> Trace:
    counts = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    return Trace(
        **{"counts": counts, "top_k": 2, "model_dim": 16, "iterations": np.array([7, 9]), **changes}
    )


def test_a_trace_survives_its_file(tmp_path: Path) -> None:
    choices = np.random.default_rng(0).integers(0, 5, (1, 1, 4, 6, 2)).astype(np.int16)
    trace = small(
        choices=choices,
        choice_iterations=np.array([9]),
        choice_layers=np.array([1]),
        meta={"seed": 3},
    )
    trace.save(tmp_path / "t.npz")
    again = Trace.read(tmp_path / "t.npz")
    for name in ("counts", "iterations", "layers", "choices", "choice_iterations", "choice_layers"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))
    assert (again.top_k, again.model_dim, again.meta) == (2, 16, {"seed": 3})
    assert again.counts.dtype == np.int32
    assert not again.counts.flags.writeable


def test_a_trace_saved_twice_is_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, files = small(), []
    for year in (1990, 2030):
        now = (year, 1, 1, 0, 0, 0, 0, 1, 0)
        monkeypatch.setattr("time.localtime", lambda *_, now=now: now)
        files.append(tmp_path / f"{year}.npz")
        trace.save(files[-1])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_changed_or_cut_file_is_refused(tmp_path: Path) -> None:
    small().save(tmp_path / "t.npz")
    data = (tmp_path / "t.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match=r"damaged|truncated"):
        Trace.read(tmp_path / "cut.npz")
    middle = data.index(b"counts.npy") + 60
    (tmp_path / "bad.npz").write_bytes(
        data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]
    )
    with pytest.raises(FormatError):
        Trace.read(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"counts": -np.ones((1, 1, 2, 2), np.int32), "top_k": 1, "iterations": np.array([0])},
            "negative",
        ),
        ({"top_k": 6}, "top_k = 6: expected 1 to 5"),
        ({"top_k": 0}, "top_k = 0"),
        ({"tokens_per_rank": 3}, "more than tokens_per_rank"),
        ({"iterations": np.array([1])}, "iterations has 1 entries"),
        (
            {"counts": np.zeros((0, 1, 2, 2), np.int32), "iterations": np.zeros(0, np.int64)},
            "at least one iteration",
        ),
        ({"counts": np.zeros((2, 3), np.int32)}, "dimensions"),
        (
            {
                "choices": np.full((1, 1, 4, 6, 2), 9),
                "choice_iterations": [7],
                "choice_layers": [0],
            },
            "experts 0 to 4",
        ),
        (
            {
                "choices": np.zeros((1, 1, 3, 6, 2), np.int16),
                "choice_iterations": [7],
                "choice_layers": [0],
            },
            "choices has shape",
        ),
    ],
)
def test_bad_traces_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**change)


def test_wrong_number_of_ranks_or_experts_says_what_to_do() -> None:
    with pytest.raises(InputError, match=r"for 4 source ranks, expected 2.*merge"):
        small().expect(ranks=2)
    with pytest.raises(InputError, match="use a fabric of 4 GPUs"):
        small().expect(ranks=3)
    with pytest.raises(InputError, match="for 5 experts, expected 8"):
        small().expect(experts=8)
    with pytest.raises(InputError, match="iteration 8 was not recorded"):
        small().row(8)
    with pytest.raises(InputError, match="divisor of 4"):
        small().merged(3)


def test_merging_ranks_keeps_every_token() -> None:
    choices = np.random.default_rng(1).integers(0, 5, (2, 3, 4, 6, 2))
    trace = Trace.from_choices(choices, 5)
    merged = trace.merged(2)
    np.testing.assert_array_equal(merged.load, trace.load)
    np.testing.assert_array_equal(merged.counts[:, :, 0], trace.counts[:, :, :2].sum(axis=2))
    np.testing.assert_array_equal(merged.chosen(0, 1)[1], choices[0, 1, 2:].reshape(-1, 2))
    assert merged.tokens_per_rank == 12


def test_counts_from_choices_match_a_loop() -> None:
    choices = np.random.default_rng(2).integers(0, 7, (2, 2, 3, 5, 2))
    trace = Trace.from_choices(choices, 7)
    for i, layer, rank in np.ndindex(2, 2, 3):
        expected = np.bincount(choices[i, layer, rank].reshape(-1), minlength=7)
        np.testing.assert_array_equal(trace.counts[i, layer, rank], expected)
    with pytest.raises(InputError, match="expected experts 0 to 3"):
        Trace.from_choices(choices, 4)


def test_load_tensors(tmp_path: Path) -> None:
    np.save(tmp_path / "load.npy", np.array([[5, 2, 0], [1, 1, 9]]))
    trace = read_trace(tmp_path / "load.npy", ranks=2)
    np.testing.assert_array_equal(trace.load[0], [[5, 2, 0], [1, 1, 9]])
    with pytest.raises(InputError, match="can't be negative"):
        from_load([[-1, 2]], ranks=2)
    with pytest.raises(InputError, match="NaN"):
        from_load([[np.nan, 2.0]], ranks=2)
    with pytest.raises(InputError, match=r"expected numbers \[layers, experts\]"):
        from_load([1, 2], ranks=2)
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match="not a plain array"):
        read_trace(tmp_path / "pickled.npy", ranks=2)
    with pytest.raises(InputError, match="unknown kind of trace"):
        read_trace(tmp_path / "x.csv", ranks=2)


@pytest.mark.slow
def test_the_shipped_traces_are_whole_and_small() -> None:
    files = sorted(SHIPPED.glob("*.npz"))
    assert len(files) == 12
    assert sum(f.stat().st_size for f in files) <= 4_000_000
    for file in files:
        trace = Trace.read(file)
        assert (trace.counts.sum(axis=3) == trace.tokens_per_rank * trace.top_k).all(), file.name
        assert {"command", "seed", "hardware", "text"} <= set(trace.meta)
        assert len(trace.iterations) >= 30
