"""The alpha-beta model in which FAST is evaluated: a step that moves w bytes over a link lasts
alpha + w beta.

    stage between servers   alpha + beta w / m          w the stage's length, split over m rails; m
                            is what the NICs of the fastest pair are worth where NICs differ
    step inside a server    SpreadOut over scale-up: for d = 1 .. m - 1, alpha + beta (largest
                            transfer g -> g + d)
    bound                   beta L / m                  NICs alone, no start-up

How the steps overlap depends on the kind:

    fast, spreadout   all balance, one tile after the other; stage 0 beside the traffic that stays
                      inside servers; stage k beside the redistribution of k - 1; the last
                      redistribution
    compact           balance of stage 0; stage k beside balance of k + 1 and redistribution of k -
                      1 (one after the other on the same links); the traffic that stays inside
                      servers beside the longest stage; the last redistribution
    fast-nostage      all balance; all transfers at once (one start-up a peer); all redistribution
    pipelined         balance of the first chunk; all transfers at once; redistribution of the last
                      chunk; at least as long as everything that scale-up has to move

Times are microseconds as floats: a model, not a proof.  FAST's constants (its simulator,
MangoBoost/FAST 0712d29): 400 Gb/s 0.7 us + 22 us/MB, 100 Gb/s 0.7 + 84, H100 scale-up 0.1 + 2.3,
MI300X 0.1 + 5.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.schedule.kinds import KINDS
from railopt.schedule.pieces import Pieces
from railopt.schedule.rates import pair_rates
from railopt.schedule.value import DEFAULT_CHUNK, Schedule

MB = 1e6
PIECES = 1 << 24  # about as many of a schedule's are there at a time


@dataclass(frozen=True)
class LinkTimes:
    """Start-up in microseconds and microseconds per MB (1e6 bytes), between servers and inside
    one.
    """

    alpha_out: float = 0.7
    beta_out: float = 22.0
    alpha_in: float = 0.1
    beta_in: float = 2.3

    @classmethod
    def of(cls, fabric: Fabric, startup_us: float = 0.7) -> LinkTimes:
        """The times at the rates of a fabric: its fastest NIC and its scale-up."""
        return cls(startup_us, 1e12 / fabric.living_rates[-1], beta_in=1e12 / fabric.scaleup)


LINKS = {"h100-400g": LinkTimes(), "mi300x-100g": LinkTimes(0.7, 84.0, 0.1, 5.0)}


@dataclass(frozen=True)
class Breakdown:
    """Where the modelled time goes, microseconds; the parts add up to `total`.

    bound            what the busiest server's NICs need at least
    wire             beta part of the stages: bytes on the rails
    startup          alpha part of the stages
    balance          balance that nothing hides
    redistribution   redistribution and traffic inside servers that nothing hides
    """

    bound: float
    wire: float
    startup: float
    balance: float
    redistribution: float

    @property
    def total(self) -> float:
        """Modelled time."""
        return self.wire + self.startup + self.balance + self.redistribution

    @property
    def ratio(self) -> float:
        """Modelled time over the bound; 1 where there is nothing to send."""
        return self.total / self.bound if self.bound else 1.0

    def as_dict(self) -> dict[str, float]:
        """The parts, the total and the ratio, for JSON."""
        return {**asdict(self), "total": self.total, "ratio": self.ratio}


@kernel
def spread(moves: Array, alpha: float, beta: float) -> float:
    """SpreadOut inside a server: [m, m] bytes from GPU to GPU; shifts without bytes cost
    nothing.
    """
    m = len(moves)
    time = 0.0
    for d in range(1, m):
        most = np.int64(0)
        for g in range(m):
            most = max(most, moves[g, (g + d) % m])
        if most:
            time += alpha + beta * most / MB
    return time


class InsideTimes(NamedTuple):
    """Time inside servers, microseconds.

    balance          float64 [stages], on the slowest server
    redistribution   float64 [stages], on the slowest server
    all_balance      float64 [nodes]: every tile of the server, one after the other
    all_at_once      float64 [nodes]: redistribution of all that arrived, at once
    """

    balance: Array
    redistribution: Array
    all_balance: Array
    all_at_once: Array


@part
def _transfer(pieces: Pieces, p: int, m: int, given: Array, passed: Array) -> int:
    """Sum up the transfer (a tile in a stage) that begins at row p, bytes between GPUs of a server:
    `given` [source, rail] before the wire, `passed` [rail, target] after it.  The row behind it.
    """
    given[:], passed[:] = 0, 0
    stage = pieces.stage[p]
    first, to = pieces.source[p] // m * m, pieces.target[p] // m * m
    while p < len(pieces.size) and pieces.stage[p] == stage:
        g, rail, h = pieces.source[p] - first, pieces.rail[p], pieces.target[p] - to
        if not (0 <= g < m and 0 <= h < m):
            break
        given[g, rail] += pieces.size[p]
        passed[rail, h] += pieces.size[p]
        p += 1
    return p


@part
def _add(sums: Array, moves: Array) -> None:
    """Add `moves` to `sums`, both [m, m]."""
    for g in range(len(sums)):
        for h in range(len(sums)):
            sums[g, h] += moves[g, h]


@kernel
def _add_inside(pieces: Pieces, times: InsideTimes, arrived: Array, link: Array) -> None:
    """Add what the pieces of some servers (see `cut`: tile by tile, stage by stage) cost inside
    servers to `times` but for `all_at_once`, and what arrives to `arrived` int64 [nodes, m, m].
    `link`: alpha and beta inside a server.
    """
    m, alpha, beta = arrived.shape[1], link[0], link[1]
    balance, after, whole = times.balance, times.redistribution, times.all_balance
    given, passed = np.empty((m, m), np.int64), np.empty((m, m), np.int64)
    tile = np.zeros((m, m), np.int64)
    p = np.int64(0)
    while p < len(pieces.size):
        s, i, j = pieces.stage[p], pieces.source[p] // m, pieces.target[p] // m
        p = _transfer(pieces, p, m, given, passed)
        balance[s] = max(balance[s], spread(given, alpha, beta))
        after[s] = max(after[s], spread(passed, alpha, beta))
        _add(arrived[j], passed)
        _add(tile, given)
        last = p == len(pieces.size)
        if last or pieces.source[p] // m != i or pieces.target[p] // m != j:
            whole[i] += spread(tile, alpha, beta)
            tile[:] = 0


@kernel
def _spread_each(arrived: Array, link: Array, late: Array) -> None:
    """`spread` of each server's [m, m]."""
    for j in range(len(arrived)):
        late[j] = spread(arrived[j], link[0], link[1])


def inside(schedule: Schedule, links: LinkTimes) -> InsideTimes:
    """What a schedule costs inside servers; the pieces of some servers are there at a time."""
    n, m, stages = schedule.fabric.nodes, schedule.fabric.gpus, schedule.stages
    times = InsideTimes(np.zeros(stages), np.zeros(stages), np.zeros(n), np.zeros(n))
    if m == 1:
        return times
    arrived, link = np.zeros((n, m, m), np.int64), np.array([links.alpha_in, links.beta_in])
    transfers = int(np.count_nonzero(schedule.sent))
    step = max(1, n * PIECES // (1 + transfers * m * (m + 3)))
    for first in range(0, n, step):
        servers = slice(first, first + step) if step < n else slice(None)
        pieces = schedule.pieces(sources=servers)
        if schedule.fabric.rails != m:  # given to the GPU that owns the NIC
            owner = pieces.rail.astype(np.int64) * m // schedule.fabric.rails
            pieces = pieces._replace(rail=owner.astype(np.int16))
        _add_inside(pieces, times, arrived, link)
    _spread_each(arrived, link, times.all_at_once)
    return times


def least(schedule: Schedule, links: LinkTimes = LINKS["h100-400g"]) -> float:
    """What no schedule of this kind's rule beats in the model, microseconds.  It is the start-ups
    of the server with the most peers, one in a stage or one per GPU, beside what NICs need, or what
    a GPU's own NICs and its scale-up port need for what it sends or receives.
    """
    fabric, matrix = schedule.fabric, schedule.traffic.node_matrix
    per_us = float(pair_rates(fabric).width) / links.beta_out  # MB between the fastest servers
    peers = max((matrix > 0).sum(axis=0).max(), (matrix > 0).sum(axis=1).max())
    if not KINDS[schedule.kind].barriers:
        peers = 1 if peers else 0
    elif schedule.stage is not None:
        peers = -(-int(peers) // fabric.gpus)
    wire = links.alpha_out * int(peers) + schedule.line_sum / MB / per_us
    sides = (schedule.traffic.bytes.sum(axis=1), schedule.traffic.bytes.sum(axis=0))
    own = schedule.traffic.bytes.diagonal()
    nic = fabric.rails / fabric.gpus / links.beta_out
    port = max(float((side - own).max()) for side in sides) / MB / (nic + 1 / links.beta_in)
    return max(wire, port)


def local_time(traffic: Traffic, links: LinkTimes) -> float:
    """The traffic that stays inside servers, by SpreadOut, on the slowest server."""
    m = traffic.gpus
    tiles = (traffic.bytes[i * m : (i + 1) * m, i * m : (i + 1) * m] for i in range(traffic.nodes))
    return max(float(spread(tile, links.alpha_in, links.beta_in)) for tile in tiles)


def modelled(schedule: Schedule, links: LinkTimes = LINKS["h100-400g"]) -> Breakdown:
    """The modelled time of a schedule, in parts."""
    kind, width = KINDS[schedule.kind], float(pair_rates(schedule.fabric).width)
    bound = links.beta_out * schedule.line_sum / width / MB
    stay = local_time(schedule.traffic, links)
    if not schedule.stages:
        return Breakdown(bound, 0.0, 0.0, 0.0, stay)
    found = inside(schedule, links)
    if not kind.barriers:
        return _at_once(schedule, links, bound, stay, found)
    balance, after = found.balance, found.redistribution
    wire = links.beta_out * schedule.lengths / width / MB
    stage = links.alpha_out + wire
    beside = np.concatenate([[0.0], after[:-1]])
    if kind.overlap == "both":
        exposed = float(balance[0])
        beside[:-1] += balance[1:]
        beside[int(stage.argmax())] += stay
    else:
        exposed = float(found.all_balance.max())
        beside[0] += stay
    late = float(np.maximum(beside - stage, 0.0).sum() + after[-1])
    return Breakdown(bound, float(wire.sum()), links.alpha_out * schedule.stages, exposed, late)


def _at_once(
    schedule: Schedule, links: LinkTimes, bound: float, stay: float, found: InsideTimes
) -> Breakdown:
    """Without barriers the NICs run as long as the busiest of them; a start-up per peer."""
    balance, after = float(found.all_balance.max()), float(found.all_at_once.max())
    startup = links.alpha_out * int((schedule.sent > 0).sum(axis=0).max())
    wire = links.beta_out * schedule.total / float(pair_rates(schedule.fabric).width) / MB
    if KINDS[schedule.kind].overlap == "nothing":
        return Breakdown(bound, wire, startup, balance, after + max(0.0, stay - wire))
    chunk = (schedule.fabric.gpus - 1) * (links.alpha_in + links.beta_in * DEFAULT_CHUNK / MB)
    first, last = min(balance, chunk), min(after, chunk)
    beyond = max(0.0, balance + after + stay - wire - startup - first - last)
    return Breakdown(bound, wire, startup, first, last + beyond)
