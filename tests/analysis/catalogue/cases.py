"""The examples of the catalogue as evidence."""

from __future__ import annotations

from pathlib import Path

from nsys_sync.analysis.catalogue.evidence import Evidence
from nsys_sync.analysis.catalogue.rules import Example
from nsys_sync.analysis.findings import Frame

MARK = "# <-"


def marked_line(code: str) -> int:
    """The line of a program that ends in the mark."""
    return next(i for i, text in enumerate(code.splitlines(), 1) if text.endswith(MARK))


def frames_of(texts: list[str]) -> tuple[Frame, ...]:
    """Frames from ``file:function``, innermost first."""
    return tuple(Frame(function=t.rpartition(":")[2], file="/x/" + t.rpartition(":")[0], line=1) for t in texts)


def evidence_of(example: Example, folder: Path) -> Evidence:
    """What an example shows; a program is written into ``folder``."""
    stack = frames_of(example.frames)
    source = None
    if example.code:
        source = folder / "program.py"
        source.write_text(example.code)
        stack = (*stack, Frame(function="", file=str(source), line=marked_line(example.code)))
    return Evidence(
        apis=frozenset(example.apis),
        copies=frozenset(example.copies),
        max_bytes=4 if example.copies else 0,
        native=tuple(example.native),
        stack=stack,
        user=stack[-1] if stack else None,
        leaf=stack[0] if stack else None,
        source=source,
        redundant=1 if example.redundant else 0,
        calls_per_step=example.calls_per_step,
        seen=bool(example.apis),
    )
