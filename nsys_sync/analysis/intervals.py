"""Arithmetic of half-open intervals [start, end) in integer ns, on whole columns."""

from __future__ import annotations

import numpy as np

from nsys_sync.trace.columns import expand
from nsys_sync.trace.tables import Column


def union(start: Column, end: Column) -> tuple[Column, Column]:
    """The disjoint, ascending intervals that cover the same instants. Input sorted by start; empty ones are ignored."""
    real = end > start
    start, end = start[real], end[real]
    if not len(start):
        return start, end
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    return start[first], reach[np.concatenate((first[1:] - 1, [len(end) - 1]))]


def clip(start: Column, end: Column, low: int, high: int) -> tuple[Column, Column]:
    """The part of a disjoint ascending cover that lies in [low, high)."""
    start, end = np.maximum(start, low), np.minimum(end, high)
    real = end > start
    return start[real], end[real]


def common(first: tuple[Column, Column], second: tuple[Column, Column]) -> tuple[Column, Column]:
    """The disjoint ascending cover of the instants that lie in both of two such covers."""
    low = np.searchsorted(second[1], first[0], side="right")
    high = np.searchsorted(second[0], first[1], side="left")
    row, at = expand(low, high)
    return np.maximum(first[0][row], second[0][at]), np.minimum(first[1][row], second[1][at])


def gaps(start: Column, end: Column, low: int, high: int) -> tuple[Column, Column]:
    """What a disjoint ascending cover leaves free of [low, high), which contains it."""
    left = np.concatenate(([low], end))
    right = np.concatenate((start, [high]))
    free = right > left
    return left[free], right[free]


def covered(start: Column, end: Column, at: Column) -> Column:
    """How many ns of a disjoint ascending cover lie before each instant."""
    if not len(start):
        return np.zeros(len(at), dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(end - start)))
    i = np.searchsorted(start, at, side="right") - 1
    inside = np.minimum(at - start[i], end[i] - start[i])
    result: Column = np.where(i < 0, 0, before[i] + inside)
    return result


def measure(start: Column, end: Column, low: Column, high: Column) -> Column:
    """How many ns of a disjoint ascending cover lie in each [low, high)."""
    length: Column = np.maximum(covered(start, end, high) - covered(start, end, low), 0)
    return length


def total(start: Column, end: Column) -> int:
    """Length of a disjoint cover in ns."""
    return int((end - start).sum())
