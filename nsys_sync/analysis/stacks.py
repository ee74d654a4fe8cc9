"""The stack of each sync event: who called it, as exactly as the trace can tell."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from nsys_sync.analysis.calls import Activity, Blocking, Events
from nsys_sync.analysis.findings import StackOrigin
from nsys_sync.trace.columns import lookup, pack
from nsys_sync.trace.reader import Trace
from nsys_sync.trace.tables import Column, Marks, NativeFrame, StackFrame

T = TypeVar("T", bound=Hashable)

#: How a call came by its stack, from sure to vague; the position is the code in columns.
ORIGINS: tuple[StackOrigin, ...] = ("exact", "neighbour", "sampled", "native", "none")
EXACT, NEIGHBOUR, SAMPLED, NATIVE, NONE = range(len(ORIGINS))

#: Modules of the CUDA stack and of the profiler: their frames do not tell what the program did.
_PLUMBING = re.compile(r"lib(?:cuda|cudart|cupti|ToolsInjection|nvrtc|c10_cuda)[^/]*\.so", re.IGNORECASE)
_ADDRESS = re.compile(r"0x[0-9a-f]+$")


@dataclass(frozen=True)
class Stacks:
    """Stacks of the sync events, interned.

    python: distinct Python stacks, innermost frame first; of_event: index into them for each event, -1 = none.
    native: distinct native stacks without CUDA's own frames; native_of_event: index for each event, -1 = none.
    origin: for each blocking call a position in ORIGINS.
    """

    python: list[tuple[StackFrame, ...]]
    of_event: Column
    native: list[tuple[str, ...]]
    native_of_event: Column
    origin: Column


def find_stacks(trace: Trace, activity: Activity, blocking: Blocking, events: Events) -> Stacks:
    """Python and native stacks of all sync events.

    A call has its own stack (exact) through nsys's bracketing row, else that of the other call of its event
    (neighbour), else a periodic sample taken while it blocked (sampled), else its native chain.
    """
    bracket = _bracket_of(trace, activity, blocking)
    mark = _mark_at(trace, bracket)
    sample = _sample_in(trace.samples, activity, blocking)
    chain = np.where(bracket >= 0, trace.brackets.chain[bracket], -1) if len(trace.brackets.start) else bracket

    used = np.unique(np.concatenate((mark, sample)))
    used = used[used >= 0]
    decoded = trace.python_stacks(used)
    filled = np.array([bool(frames) for frames in decoded], dtype=bool)
    python, code = _intern([frames for frames in decoded if frames])
    used = used[filled]
    mark, sample = _only(mark, used), _only(sample, used)
    own = np.where(mark >= 0, mark, sample)
    event_row = _of_calls(events, mark)
    event_row = np.where(event_row >= 0, event_row, _of_calls(events, sample))
    at = lookup(used, event_row)
    of_event = np.where(at >= 0, code[at], -1) if len(code) else at

    event_chain = _of_calls(events, chain)
    chains = trace.native_chains(_needed(events, of_event, event_chain))
    native, native_code = _intern([meaningful(frames) for frames in chains.values()])
    at = lookup(np.array(list(chains), dtype=np.int64), event_chain)
    native_of_event = np.where(at >= 0, native_code[at], -1) if len(native_code) else at

    found = of_event[blocking.event] >= 0
    origin = np.select(
        [
            found & (mark >= 0),
            found & (own < 0),
            found & (_of_calls(events, mark)[blocking.event] >= 0),
            found,
            native_of_event[blocking.event] >= 0,
        ],
        [EXACT, NEIGHBOUR, NEIGHBOUR, SAMPLED, NATIVE],
        NONE,
    )
    return Stacks(python, of_event, native, native_of_event, origin)


def meaningful(frames: tuple[NativeFrame, ...]) -> tuple[str, ...]:
    """Symbols of a native chain, innermost first, without CUDA's and the profiler's own and without bare addresses."""
    return tuple(f.symbol for f in frames if not _PLUMBING.match(f.module) and not _ADDRESS.match(f.symbol))


def _bracket_of(trace: Trace, activity: Activity, blocking: Blocking) -> Column:
    calls, brackets = activity.calls, trace.brackets
    code = {name: i for i, name in enumerate(calls.names)}
    translated = np.array([code.get(name, -1) for name in brackets.names] or [-1], dtype=np.int64)
    name = translated[brackets.name] if len(brackets.name) else brackets.name
    row = blocking.row
    return lookup(
        *pack((brackets.tid, calls.tid[row]), (brackets.correlation, calls.correlation[row]), (name, calls.name[row]))
    )


def _mark_at(trace: Trace, bracket: Column) -> Column:
    """Row id of the mark at each bracket's start, -1 = none."""
    marks, brackets = trace.at_call, trace.brackets
    if not len(brackets.start) or not len(marks.start):
        return np.full(len(bracket), -1, dtype=np.int64)
    at = lookup(*pack((marks.tid, brackets.tid[bracket]), (marks.start, brackets.start[bracket])))
    return np.where((bracket >= 0) & (at >= 0), marks.row[at], -1)


def _sample_in(samples: Marks, activity: Activity, blocking: Blocking) -> Column:
    """Row id of the first periodic sample inside each blocking call, -1 = none."""
    calls, row = activity.calls, blocking.row
    result = np.full(len(row), -1, dtype=np.int64)
    for tid in np.unique(samples.tid):
        low, high = np.searchsorted(samples.tid, [tid, tid + 1])
        mine = np.flatnonzero(calls.tid[row] == tid)
        at = low + np.searchsorted(samples.start[low:high], calls.start[row[mine]])
        inside = at < high
        mine, at = mine[inside], at[inside]
        hit = samples.start[at] < calls.end[row[mine]]
        result[mine[hit]] = samples.row[at[hit]]
    return result


def _only(rows: Column, known: Column) -> Column:
    """Rows that are among the known ones, -1 for the others."""
    return np.where(np.isin(rows, known), rows, -1)


def _of_calls(events: Events, value: Column) -> Column:
    """By event the value (>= 0) of its copy, else of its sync, else -1."""
    if not len(value):
        return np.full(len(events), -1, dtype=np.int64)
    copy = np.where(events.copy >= 0, value[events.copy], -1)
    sync = np.where(events.sync >= 0, value[events.sync], -1)
    return np.where(copy >= 0, copy, sync)


def _needed(events: Events, of_event: Column, chain: Column) -> Column:
    """Chains worth reading: of every event without a Python stack, and of the costliest event of each Python stack."""
    by = np.lexsort((events.wait, of_event))
    last = np.concatenate((of_event[by][1:] != of_event[by][:-1], [True])) if len(by) else by.astype(bool)
    chosen = np.union1d(by[last], np.flatnonzero(of_event < 0))
    return chain[chosen][chain[chosen] >= 0]


def _intern(values: Sequence[T]) -> tuple[list[T], Column]:
    """The distinct values in order of appearance, and for each value its position."""
    index: dict[T, int] = {}
    codes = [index.setdefault(value, len(index)) for value in values]
    return list(index), np.array(codes, dtype=np.int64)
