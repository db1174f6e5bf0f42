"""Decompositions of server matrices: every byte once, one peer a stage, totals and stage counts as
promised.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from railopt.base.arrays import Array
from railopt.base.kernels import kernel
from railopt.schedule.compact import PARTS, GoOn, compact, compact_asking, finishing_slots
from railopt.schedule.decompose import birkhoff, fill, longest_line, shifted
from railopt.schedule.matching import BITS, MATE, extend, matching, release, words
from railopt.schedule.order import by_length, taper

INT64_MAX = np.iinfo(np.int64).max


def matrices(n: int, seed: int) -> dict[str, np.ndarray]:
    """Server matrices of very different structure."""
    rng = np.random.default_rng(seed)
    hot = (
        rng.permutation(np.arange(1, n + 1) ** -0.9) * rng.uniform(0.5, 1.5, (n, n)) * 1e8
    ).astype(np.int64)
    permutations = np.zeros((n, n), np.int64)
    for t in range(5 * n):
        permutations[np.arange(n), rng.permutation(n)] += int(1e9 * 0.97**t) + 1
    found = {
        "flat": rng.integers(0, 10**8, (n, n)),
        "near constant": rng.integers(90, 110, (n, n)) * 10**6,
        "constant": np.full((n, n), 12_345),
        "heavy tail": (rng.pareto(1.2, (n, n)) * 1e8).astype(np.int64),
        "powers of two": 2 ** rng.integers(0, 30, (n, n)),
        "sparse": np.where(rng.random((n, n)) < 0.3, rng.integers(1, 10**8, (n, n)), 0),
        "triangle": np.triu(rng.integers(1, 10**8, (n, n))),
        "hot columns": hot,
        "hot rows": hot.T,
        "outer product": (np.outer(rng.pareto(1, n) + 0.1, rng.pareto(1, n) + 0.1) * 1e7).astype(
            np.int64
        ),
        "sum of permutations": permutations,
        "tiny": rng.integers(0, 4, (n, n)),
    }
    for matrix in found.values():
        np.fill_diagonal(matrix, 0)
    return {name: np.ascontiguousarray(matrix, np.int64) for name, matrix in found.items()}


def check(matrix: np.ndarray, peer: np.ndarray, sent: np.ndarray) -> int:
    """The total, after an independent check: every byte is sent once, no stage has two senders for
    one server.
    """
    moved = np.zeros(matrix.shape, object)
    for stage in range(len(peer)):
        busy = np.flatnonzero(peer[stage] >= 0)
        assert len(busy), "an empty stage"
        assert len(set(peer[stage, busy].tolist())) == len(busy)
        assert np.array_equal(sent[stage] > 0, peer[stage] >= 0)
        for i in busy.tolist():
            moved[i, peer[stage, i]] += int(sent[stage, i])
    assert np.array_equal(moved, matrix.astype(object))
    return sum(int(row.max()) for row in sent)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 5, 8, 16, 33])
def test_birkhoff_is_exact_within_its_stages(n: int) -> None:
    for name, matrix in matrices(n, n).items():
        peer, sent = birkhoff(matrix)
        assert check(matrix, peer, sent) <= longest_line(matrix), name
        assert len(peer) <= n * n - 2 * n + 2, name


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 4, 8, 16, 32, 70])
def test_compact_total_and_stages(n: int) -> None:
    for name, matrix in matrices(n, n).items():
        line = longest_line(matrix)
        peer, sent = compact(matrix, line // 50)
        assert check(matrix, peer, sent) <= line + line // 50, name
        tapered = taper(peer, sent, 1, 1, 1)
        assert check(matrix, *tapered) == check(matrix, peer, sent), name
        assert len(tapered[0]) <= 4 * n, f"{name}: {len(tapered[0])} stages for {n} servers"


@pytest.mark.parametrize("n", [3, 8, 16])
def test_compact_without_spare_is_exact(n: int) -> None:
    for name, matrix in matrices(n, 1).items():
        peer, sent = compact(matrix, 0)
        assert check(matrix, peer, sent) <= longest_line(matrix), name
        assert len(peer) <= n * n + n, name


def test_compact_keeps_its_proved_bound_on_a_hard_matrix() -> None:
    """Two blocks joined by tiny entries: perfect matchings are short, so slots have to end it."""
    n = 24
    rng = np.random.default_rng(0)
    matrix = np.where(
        np.add.outer(np.arange(n) // 12, np.arange(n) // 12) % 2,
        rng.integers(1, 10**4, (n, n)),
        rng.integers(1, 10**9, (n, n)),
    )
    np.fill_diagonal(matrix, 0)
    line = longest_line(matrix)
    for part in (20, 50, 400):
        spare = line // part
        peer, sent = compact(matrix, spare)
        assert check(matrix, peer, sent) <= line + spare
        assert len(peer) <= 3 * n + n // 8 + max(3 * n, (n - 1) * (1 + line / spare))


def asked(shares: list[float], most: int = 1 << 62) -> GoOn:
    """Whom a search asks whether to go on, up to `most` times."""

    def go_on(share: float) -> bool:
        shares.append(share)
        return len(shares) < most

    return go_on


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 5, 17])
def test_a_search_in_parts_finds_the_same_stages(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that is ended anywhere sends every byte."""
    monkeypatch.setattr("railopt.schedule.compact.ENTRIES", 1)
    for matrix in matrices(n, seed=n + 400).values():
        for spare in (0, int(longest_line(matrix)) // 50):
            shares: list[float] = []
            found = compact_asking(matrix.copy(), spare, asked(shares))
            for mine, theirs in zip(found, compact(matrix, spare), strict=True):
                assert np.array_equal(mine, theirs)
            assert shares == sorted(shares)
            assert not matrix.any() or shares[-1] == 1
            for most in {1, len(shares) // 2, len(shares) - 1} - {0, -1}:
                check(matrix, *compact_asking(matrix.copy(), spare, asked([], most)))


def test_constant_matrices_need_a_stage_a_peer() -> None:
    matrix = np.full((9, 9), 7)
    np.fill_diagonal(matrix, 0)
    for peer, sent in (birkhoff(matrix), compact(matrix, 0), shifted(matrix)):
        assert check(matrix, peer, sent) == 56
        assert len(peer) == 8


def test_shifted_sums_the_largest_of_each_diagonal() -> None:
    matrix = np.array([[0, 9, 1], [2, 0, 3], [5, 4, 0]])
    peer, sent = shifted(matrix)
    assert check(matrix, peer, sent) == max(9, 3, 5) + max(1, 2, 4)
    assert peer.tolist() == [[1, 2, 0], [2, 0, 1]]


def test_a_skewed_matrix_where_shifts_lose() -> None:
    matrix = np.array([[0, 8, 1, 1], [1, 0, 1, 8], [8, 1, 0, 1], [1, 1, 8, 0]])
    assert check(matrix, *shifted(matrix)) > longest_line(matrix) == 10
    assert check(matrix, *birkhoff(matrix)) == check(matrix, *compact(matrix, 0)) == 10


@pytest.mark.parametrize("decompose", [birkhoff, shifted, lambda m: compact(m, 10)])
@pytest.mark.parametrize("n", [1, 4])
def test_nothing_to_send_is_no_stage(decompose, n: int) -> None:
    peer, sent = decompose(np.zeros((n, n), np.int64))
    assert peer.shape == sent.shape == (0, n)


def test_sums_at_the_edge_of_int64() -> None:
    half = INT64_MAX // 2
    matrix = np.array([[0, half, half + 1], [0, 0, 0], [0, 0, 0]])
    one = np.zeros((3, 3), np.int64)
    one[2, 0] = INT64_MAX
    even = np.full((3, 3), INT64_MAX // 6 - 1)
    np.fill_diagonal(even, 0)
    for edge in (matrix, one, even):
        for peer, sent in (
            birkhoff(edge),
            compact(edge, INT64_MAX // 50),
            compact(edge, 0),
            shifted(edge),
        ):
            assert check(edge, peer, sent) >= longest_line(edge)
        assert check(edge, *compact(edge, 0)) == longest_line(edge)


def test_fill_equalises_every_line_and_leaves_full_ones() -> None:
    matrix = matrices(7, 3)["flat"]
    full, line = fill(matrix)
    assert np.all(full.sum(0) == line)
    assert np.all(full.sum(1) == line)
    assert np.all(full >= matrix)
    row = matrix.sum(1).argmax()
    if matrix[row].sum() == line:
        assert np.array_equal(full[row], matrix[row])


def test_order_by_length_is_stable_and_taper_keeps_the_bytes() -> None:
    matrix = matrices(8, 5)["flat"]
    peer, sent = compact(matrix, longest_line(matrix) // 50)
    for descending in (False, True):
        ordered, bytes_ = by_length(peer, sent, descending)
        lengths = bytes_.max(axis=1)
        assert np.all(np.diff(lengths) <= 0 if descending else np.diff(lengths) >= 0)
        assert check(matrix, ordered, bytes_) == sent.max(axis=1).sum()
    tapered = taper(peer, sent, 1, 1, 1)
    assert check(matrix, *tapered) == sent.max(axis=1).sum()
    assert tapered[1][-1].max() == sent.max() // 16


def test_taper_splits_long_first_and_last_stages() -> None:
    peer, sent = np.array([[1, 0], [1, 0]], np.int32), np.array([[90, 160], [160, 320]])
    peers, bytes_ = taper(peer, sent, 1, 1, 1)
    falling = [[80, 160], [40, 80], [20, 40], [10, 20], [10, 20]]
    assert bytes_.tolist() == [[5, 10], [17, 30], [68, 120], *falling]
    assert np.all(peers == [1, 0])
    assert taper(peer, np.array([[9, 16], [160, 320]]), 1, 1, 1)[1].tolist() == [[9, 16], *falling]
    assert taper(peer, sent, 50, 1, 1)[1].tolist() == [[90, 160], [80, 160], [40, 80], [40, 80]]
    assert taper(peer[:1], np.array([[0, 3]]), 1, 1, 1)[1].tolist() == [[0, 2], [0, 1]]


def graph_of(table: np.ndarray) -> np.ndarray:
    n = len(table)
    graph = np.zeros((n, words(n)), np.int64)
    for i, j in np.argwhere(table):
        graph[i, j // BITS] |= np.int64(1) << int(j % BITS)
    return graph


@pytest.mark.parametrize("n", [1, 2, 7, 63, 64, 130])
def test_matchings_are_as_large_as_scipys(n: int) -> None:
    rng = np.random.default_rng(n)
    for density in (0.5 / n, 1 / n, 2 / n, 0.3, 1.0):
        table = rng.random((n, n)) < density
        state = matching(n)
        release(state)
        whole = extend(graph_of(table), state, False)
        mate = state[MATE, :n]
        rows = np.flatnonzero(mate >= 0)
        assert np.all(table[rows, mate[rows]])
        assert len(set(mate[rows].tolist())) == len(rows)
        assert len(rows) == np.count_nonzero(
            maximum_bipartite_matching(csr_matrix(table), perm_type="column") >= 0
        )
        assert whole == (len(rows) == n)


@kernel
def finished(left: Array, line: int, end: int, spare: int, patient: bool) -> tuple[int, int]:
    return finishing_slots(left, line, end, spare, patient, np.zeros(len(left), np.int64))


def fewest_slots(left: Array, end: int, spare: int, patient: bool) -> tuple[int, int]:
    """The same with every slot counted out."""

    def needed(slot: int) -> int:
        slots = -(-left // slot)
        return int(max(slots.sum(axis=0).max(), slots.sum(axis=1).max()))

    slot, count = 0, 3 * len(left)
    for part in PARTS.tolist():
        tried = (int(left.max()) - 1) // part + 1
        if needed(tried) <= min(count, end // tried):
            slot, count = tried, needed(tried)
    if slot == 0 and not patient:
        slot = spare // (len(left) - 1) + 1
        count = needed(slot)
    return slot, count


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 8, 17])
def test_slots_that_a_line_forbids_change_nothing(n: int) -> None:
    found = set()
    for matrix in matrices(n, seed=n).values():
        line = longest_line(matrix)
        for part in (2, 8, 50, 1000):
            spare = line // part
            for patient in (True, False):
                made = finished(matrix, line, line + spare, spare, patient)
                assert made == fewest_slots(matrix, line + spare, spare, patient)
                found.add(made[0] > 0)
    assert found == {True, False}
