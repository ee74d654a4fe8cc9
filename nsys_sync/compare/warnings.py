"""What makes two sides less comparable than they seem."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING

from nsys_sync.analysis.findings import Note
from nsys_sync.compare.measures import step_count
from nsys_sync.compare.sides import Sides, once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nsys_sync.analysis.findings import Report
    from nsys_sync.compare.comparison import SideName


def find_warnings(sides: Sides, before: Sequence[Report], after: Sequence[Report]) -> list[Note]:
    """Why the two sides may not be comparable, or less than it seems."""
    return [
        *_repeated(before, "before"),
        *_repeated(after, "after"),
        *_same_captures(sides),
        *_strangers(sides),
        *_different_conditions(sides),
        *_different_steps(sides),
        *_unnamed(sides),
    ]


def _repeated(reports: Sequence[Report], side: SideName) -> list[Note]:
    extra = len(reports) - len(once(reports))
    text = f"{side}: a capture was given more than once; it counts once."
    return [Note(slug="capture-repeated", text=text)] if extra else []


def _same_captures(sides: Sides) -> list[Note]:
    shared = {r.trace.sha256 for r in sides.before} & {r.trace.sha256 for r in sides.after} - {""}
    text = "The same capture is on both sides."
    return [Note(slug="same-capture", text=text)] if shared else []


def _strangers(sides: Sides) -> list[Note]:
    """Captures of one program have sites in the same files; folders may differ between machines."""
    before, after = (
        {PurePath(s.file.replace("\\", "/")).name for r in reports for s in r.sites if s.file}
        for _, reports in sides.named
    )
    text = "No source file has sites on both sides: these may be captures of different programs."
    return [Note(slug="no-common-file", text=text)] if before and after and not before & after else []


def _conditions(report: Report) -> dict[str, str]:
    """What must be alike for two captures to be comparable: description and value of each condition."""
    trace, capture = report.trace, report.trace.capture
    names = Counter(d.name for d in trace.devices)
    return {
        "GPUs": ", ".join(f"{n} × {name}" for name, n in sorted(names.items())),
        "driver": trace.driver or "unknown",
        "CUDA version": trace.cuda or "unknown",
        "nsys version": trace.nsys_version or "unknown",
        "capture options": " ".join(sorted(capture.flags)) or "unknown",
        "backtraces": capture.backtrace or "unknown",
        "CUDA graph tracing": capture.graphs or "unknown",
        "processes": str(len(trace.processes)),
    }


def _different_conditions(sides: Sides) -> list[Note]:
    """One note for each condition that is not the same in all captures."""
    notes = []
    for name in _conditions(sides.both[0]):
        first, second = ([_conditions(r)[name] for r in reports] for _, reports in sides.named)
        if len({*first, *second}) > 1:
            values = f"{' / '.join(sorted(set(first)))} before, {' / '.join(sorted(set(second)))} after"
            notes.append(Note(slug="different-conditions", text=f"Different {name}: {values}."))
    return notes


def _different_steps(sides: Sides) -> list[Note]:
    notes = []
    sources = [{(s.source, s.name) for r in reports for s in r.steps} for _, reports in sides.named]
    with_steps = [[bool(step_count(r)) for r in reports] for _, reports in sides.named]
    if sides.basis == "capture" and any(any(flags) for flags in with_steps):
        missing = [side for (side, _), flags in zip(sides.named, with_steps, strict=True) if not all(flags)]
        text = f"No steps are known {' and '.join(missing)}: totals are of whole captures, whose length may differ."
        notes.append(Note(slug="different-steps", text=text))
    elif sides.basis == "step" and sources[0] != sources[1]:
        named = [", ".join(sorted({f"{name} ({source})" for source, name in s})) for s in sources]
        text = f"Steps come from different marks: {named[0]} before, {named[1]} after. A step may not be the same work."
        notes.append(Note(slug="different-steps", text=text))
    counts = [{step_count(r) for r in reports} for _, reports in sides.named]
    if sides.basis == "step" and counts[0] != counts[1]:
        shown = [" / ".join(str(c) for c in sorted(found)) for found in counts]
        text = f"{shown[0]} steps before, {shown[1]} after: totals are divided by the steps."
        notes.append(Note(slug="normalised-by-steps", text=text))
    return notes


def _unnamed(sides: Sides) -> list[Note]:
    """Calls without a Python line can hide a site that seems gone."""
    notes = []
    for side, reports in sides.named:
        unnamed = sum(s.calls for r in reports for s in r.sites if s.file is None)
        calls = sum(s.calls for r in reports for s in r.sites)
        if unnamed and any(s.file for r in reports for s in r.sites):
            text = f"{side}: {unnamed} of {calls} blocking calls have no Python line; a site may hide among them."
            notes.append(Note(slug="unnamed-calls", text=text))
    return notes
