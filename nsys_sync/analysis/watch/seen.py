"""What the processes of a watched program tell of their syncs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from nsys_sync.trace.tables import StackFrame


class SeenStack(msgspec.Struct, frozen=True):
    """Syncs of one process with one Python stack, as the program's process tells them.

    frames: positions in the process's frames, innermost first. allowed: calls within ``allow_syncs``. in_loop: calls
    between the first and the last step boundary. waits: calls by their time (ns, three digits), of those whose time is
    known; total_ns, max_ns: of the same calls, exact. copy: direction of a copy as in COPY_KINDS; max_bytes: of the
    largest one.
    """

    seen_by: str
    api: str | None
    frames: list[int]
    calls: int
    allowed: int
    in_loop: int
    waits: dict[int, int]
    total_ns: int | None
    max_ns: int | None
    copy: str | None
    max_bytes: int | None
    threads: list[int]


class SeenProcess(msgspec.Struct, frozen=True):
    """What one process of the program tells.

    steps: boundaries seen; steps_counted: steps between those that count. left_out: calls before the steps that count.
    frames: (function, file, line). sources: texts that no file holds. cuda: whether CUDA was in use. debug_mode:
    whether its PyTorch has the sync debug mode. final: false if the process could not tell its last words.
    """

    pid: int
    name: str
    rank: int | None
    steps: int
    steps_counted: int
    steps_from: Literal["optimizer", "user"] | None
    left_out: int
    stopped_at: str | None
    frames: list[StackFrame]
    stacks: list[SeenStack]
    sources: dict[str, str]
    torch: str | None
    debug_mode: bool
    frameworks: list[str]
    cuda: bool
    final: bool = True


@dataclass(frozen=True)
class Seen:
    """A finished watch.

    program: its name. told: what the processes told. exit_code: the program's, None for a part of this process.
    started: ns since the epoch. after_steps: steps that were to be left out.
    """

    program: str
    told: Sequence[SeenProcess]
    started: int
    exit_code: int | None = None
    after_steps: int = 0


def decode(told: Sequence[dict[str, Any]]) -> list[SeenProcess]:
    """The processes' own words, checked."""
    return [msgspec.convert(words, SeenProcess, str_keys=True) for words in told]
