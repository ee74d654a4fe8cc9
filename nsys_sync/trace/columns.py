"""Sorting and joining of columns, without copies that are not needed."""

from __future__ import annotations

import numpy as np

from nsys_sync.trace.tables import Column


def order(*keys: Column) -> Column:
    """The permutation that sorts rows by ``keys``, most significant first; rows equal in all keys keep their order.

    Tables come almost sorted by their first key, so that one is sorted alone and only its ties by the others.
    """
    first = keys[0]
    perm = np.argsort(first, kind="stable")
    if len(keys) == 1 or len(first) < 2:
        return perm
    ordered = first[perm]
    equal = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(equal):
        tied = np.union1d(equal, equal + 1)
        rows = perm[tied]
        perm[tied] = rows[np.lexsort([key[rows] for key in reversed(keys)])]
    return perm


def distinct(values: Column) -> Column:
    """The different values in ascending order, by marking them where they lie close together, else by sorting."""
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    if low == high:
        return values[:1]
    if high - low <= 2 * len(values):
        seen = np.zeros(high - low + 1, dtype=bool)
        seen[values - low] = True
        return np.flatnonzero(seen) + low
    ordered = np.sort(values, kind="stable")
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def positions(ascending: Column, values: Column) -> Column:
    """The position of each value in ``ascending``, which holds them all; by a table where they lie close together."""
    if not len(ascending):
        return values
    low, high = int(ascending[0]), int(ascending[-1])
    if high - low > 2 * len(values):
        return np.searchsorted(ascending, values)
    table = np.zeros(high - low + 1, dtype=np.int64)
    table[ascending - low] = np.arange(len(ascending))
    return table[values - low]


def lookup(table: Column, keys: Column) -> Column:
    """For each key the first row of ``table`` that equals it, -1 where there is none."""
    if not len(table) or not len(keys):
        return np.full(len(keys), -1, dtype=np.int64)
    perm = np.argsort(table, kind="stable")
    ordered = table[perm]
    at = np.searchsorted(ordered, keys)
    at[at == len(ordered)] = 0
    return np.where(ordered[at] == keys, perm[at], -1)


def pack(*parts: tuple[Column, Column]) -> tuple[Column, Column]:
    """Join keys of several columns into one: ``parts`` are (left, right) pairs; equal tuples get equal numbers."""
    left = np.zeros(len(parts[0][0]), dtype=np.int64)
    right = np.zeros(len(parts[0][1]), dtype=np.int64)
    for a, b in parts:
        filled = [column for column in (a, b) if len(column)]
        if not filled:
            continue
        low, high = min(int(c.min()) for c in filled), max(int(c.max()) for c in filled)
        if low == high:
            continue
        if high - low < 1 << 32:
            a_code, b_code, size = a - low, b - low, high - low + 1
        else:
            codes = distinct(np.concatenate((a, b)))
            a_code, b_code, size = np.searchsorted(codes, a), np.searchsorted(codes, b), len(codes)
        used = int(max(left.max(initial=0), right.max(initial=0))) + 1
        if used * size >= 1 << 62:
            dense = distinct(np.concatenate((left, right)))
            left, right = np.searchsorted(dense, left), np.searchsorted(dense, right)
        left, right = left * size + a_code, right * size + b_code
    return left, right


def expand(first: Column, stop: Column) -> tuple[Column, Column]:
    """All (row, index) pairs with first[row] <= index < stop[row], ordered by row, then index."""
    counts = np.maximum(stop - first, 0)
    rows = np.repeat(np.arange(len(first)), counts)
    offsets = np.cumsum(counts) - counts
    return rows, np.arange(len(rows)) - offsets[rows] + first[rows]
