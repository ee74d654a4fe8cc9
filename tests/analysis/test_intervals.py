"""Interval arithmetic on columns against sets of nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_sync.analysis import intervals

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda s: (s[0], s[0] + s[1])), max_size=12)
Spans = list[tuple[int, int]]


def cover(rows: Spans) -> tuple[np.ndarray, np.ndarray]:
    """The union of rows in any order."""
    ordered = np.array(sorted(rows), dtype=np.int64).reshape(-1, 2)
    return intervals.union(ordered[:, 0], ordered[:, 1])


def nanoseconds(start: np.ndarray, end: np.ndarray) -> set[int]:
    return {ns for a, b in zip(start, end, strict=True) for ns in range(a, b)}


def pairs(rows: tuple[np.ndarray, np.ndarray]) -> Spans:
    return list(zip(rows[0].tolist(), rows[1].tolist(), strict=True))


@given(spans, st.permutations(range(12)))
def test_union(rows: Spans, order: list[int]) -> None:
    start, end = cover(rows)
    assert nanoseconds(start, end) == {ns for a, b in rows for ns in range(a, b)}
    assert intervals.total(start, end) == len(nanoseconds(start, end))
    # Disjoint, ascending, and with room between them: no two could be one.
    assert (start < end).all()
    assert (end[:-1] < start[1:]).all()
    assert pairs(intervals.union(start, end)) == pairs((start, end))
    mixed = [rows[i] for i in order if i < len(rows)]
    assert pairs(cover(mixed)) == pairs((start, end))


@given(spans, st.integers(-2, 52), st.integers(0, 30))
def test_clip_and_gaps_share_the_window(rows: Spans, low: int, length: int) -> None:
    inside = intervals.clip(*cover(rows), low, low + length)
    free = intervals.gaps(*inside, low, low + length)
    window = set(range(low, low + length))
    assert nanoseconds(*inside) == nanoseconds(*cover(rows)) & window
    assert nanoseconds(*free) == window - nanoseconds(*inside)


@given(spans, st.lists(st.tuples(st.integers(-3, 55), st.integers(0, 20)), max_size=5))
def test_measure(rows: Spans, windows: list[tuple[int, int]]) -> None:
    busy = cover(rows)
    low = np.array([at for at, _ in windows], dtype=np.int64)
    high = low + np.array([length for _, length in windows], dtype=np.int64)
    wanted = [len(nanoseconds(*busy) & set(range(a, b))) for a, b in zip(low, high, strict=True)]
    assert intervals.measure(*busy, low, high).tolist() == wanted


@pytest.mark.parametrize(
    ("rows", "union"),
    [
        ([(0, 10), (5, 15)], [(0, 15)]),  # overlap
        ([(0, 10), (10, 15)], [(0, 15)]),  # touch: half-open intervals leave nothing between them
        ([(0, 10), (11, 15)], [(0, 10), (11, 15)]),  # one nanosecond apart
        ([(0, 20), (5, 6), (19, 21)], [(0, 21)]),  # one inside another
        ([(3, 3), (7, 7)], []),  # empty
        ([], []),
    ],
)
def test_union_by_hand(rows: Spans, union: Spans) -> None:
    assert pairs(cover(rows)) == union
