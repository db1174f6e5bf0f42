"""Lines as NCCL Inspector writes them, in files of a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

NODES, GPUS = 2, 2
START = 1_748_030_377_748_202


def record(rank: int, kind: str, peer: int, number: int, size: int, **other: Any) -> dict[str, Any]:
    """A line as the plugin's README shows it."""
    ranks = other.get("ranks", NODES * GPUS)
    world = other.get("world", rank)
    return {
        "header": {
            "id": other.get("id", "0x7f"),
            "comm_name": other.get("name", "EP Group 0"),
            "rank": rank,
            "n_ranks": ranks,
            "nnodes": NODES,
        },
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "9019a1912-dirty",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": START + other.get("time", 0),
            "hostname": other.get("host", f"gpu{world // GPUS}"),
            "pid": 1000 + world,
        },
        "p2p_perf": {
            "p2p": kind,
            "p2p_sn": number,
            "p2p_peer": peer,
            "p2p_msg_size_bytes": size,
            "p2p_exec_time_us": 50,
            "p2p_timing_source": "kernel_gpu",
            "p2p_algobw_gbs": 19.065018,
            "p2p_busbw_gbs": 18.5,
        },
    }


def exchange(matrix: Any, first: int = 1, **other: Any) -> Iterator[dict[str, Any]]:
    """One all-to-all: what each rank sends, then what it receives."""
    ranks = len(matrix)
    for rank in range(ranks):
        for peer in range(ranks):
            yield record(rank, "Send", peer, first + peer, int(matrix[rank][peer]), **other)
        for peer in range(ranks):
            number = first + ranks + peer
            yield record(rank, "Recv", peer, number, int(matrix[peer][rank]), **other)


def write(folder: Path, records: Any, *, spaced: bool = True) -> str:
    """One file per process."""
    folder.mkdir(exist_ok=True)
    for one in records:
        meta = one["metadata"]
        separators = None if spaced else (",", ":")
        with (folder / f"{meta['hostname']}-{meta['pid']}.log").open("a") as file:
            file.write(json.dumps(one, separators=separators) + "\n")
    return f"inspector:{folder}"


def drawn(seed: int) -> Any:
    return np.random.default_rng(seed).integers(8192, 1 << 20, (NODES * GPUS,) * 2)
