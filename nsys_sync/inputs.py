"""What a command was given, whatever its kind, as a report: an export, an nsys report, or a saved report."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nsys_sync.analysis.findings import Report
from nsys_sync.analysis.options import Options
from nsys_sync.errors import UsageError

if TYPE_CHECKING:
    from nsys_sync.analysis.collectives import Collectives
    from nsys_sync.analysis.timeline import Timeline

NSYS_REPORTS = (".nsys-rep", ".qdrep")

Say = Callable[[str], None]

#: Units of time, as people write them; Unicode has two letters for micro.
NS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
#: More digits than any time has, and few enough for every number made of them.
NUMBER = r"\d{1,18}(?:\.\d*)?|\.\d+"
_DURATION = re.compile(rf"({NUMBER})\s*({'|'.join(NS)})")


def read(path: Path, options: Options | None = None, say: Say = lambda _: None) -> Report:
    """Analyse an export (.sqlite, .sqlite.xz), export and analyse an nsys report, or read a saved report (.json).

    say: told what takes a while. A saved report's options were chosen when it was made: options are then refused
    (UsageError). Raises the errors of ``analysis.run.analyze``, ``ensure_export`` and ``Report.load``.
    """
    if path.suffix == ".json":
        return _saved(path, options)
    from nsys_sync.analysis.run import analyze

    return analyze(_export(path, say), options)


def read_and_draw(
    path: Path, options: Options | None = None, say: Say = lambda _: None
) -> tuple[Report, Timeline | None]:
    """The same with the timeline behind it, which a saved report does not have."""
    if path.suffix == ".json":
        return _saved(path, options), None
    from nsys_sync.analysis.run import analyze_and_draw

    return analyze_and_draw(_export(path, say), options)


def _saved(path: Path, options: Options | None) -> Report:
    report = Report.load(path)
    if options is not None and options.changes_findings:
        raise UsageError(
            "saved-report",
            f"{path} is a saved report: what it counts was chosen when it was made.",
            "Give the trace itself to choose steps, windows or folders.",
        )
    return report


def _export(path: Path, say: Say) -> Path:
    if path.suffix not in NSYS_REPORTS:
        return path
    from nsys_sync.capture.export import ensure_export
    from nsys_sync.capture.nsys import find_nsys

    return ensure_export(path, find_nsys, say)


def read_all(paths: Sequence[Path], options: Options | None = None, say: Say = lambda _: None) -> list[Report]:
    """The reports of several inputs, as ``read`` makes them. Raises what ``read`` raises."""
    return [read(path, options, say) for path in paths]


def read_baseline(paths: Sequence[Path], options: Options, say: Say = lambda _: None) -> list[Report]:
    """The reports of a baseline: a saved one as it was made, but it cannot be narrowed (UsageError)."""
    narrowed = Options(skip_first=options.skip_first, low=options.low, high=options.high, within=options.within)
    return [read(path, narrowed if path.suffix == ".json" else options, say) for path in paths]


def read_ranks(
    paths: Sequence[Path], options: Options | None = None, say: Say = lambda _: None
) -> list[tuple[Report, list[Collectives]]]:
    """The report of each input and the collectives in it. Raises what ``read`` raises."""
    from nsys_sync.analysis.collectives import find_collectives

    found = []
    for path in paths:
        report, timeline = read_and_draw(path, options, say)
        # What is kept of a timeline is small.
        found.append((report, find_collectives(report, timeline) if timeline is not None else []))
    return found


def two_sides(
    pair: Sequence[Path], before: Sequence[Path], after: Sequence[Path]
) -> tuple[Sequence[Path], Sequence[Path]]:
    """The captures of both sides, from two arguments or from repeated options. Raises UsageError."""
    if len(pair) == 2 and not before and not after:
        return pair[:1], pair[1:]
    if not pair and before and after:
        return before, after
    raise UsageError(
        "two-sides",
        "A comparison takes two traces, or --before and --after.",
        "For example: nsys-sync diff before.sqlite after.sqlite",
    )


def duration_ns(option: str, text: str) -> int:
    """A time with its unit (``12ms``, ``1.5s``, ``300us``) in ns. Raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError("bad-time", f"{option} {text!r} is not a time with a unit.", f"For example: {option} 12ms")
    return round(float(match[1]) * NS[match[2]])


def path_maps(given: list[str]) -> list[tuple[str, str]]:
    """``OLD=NEW`` pairs. Raises UsageError."""
    pairs = [text.partition("=") for text in given]
    for text, (old, equal, _) in zip(given, pairs, strict=True):
        if not equal or not old:
            raise UsageError("path-map", f"--map-path {text!r} is not OLD=NEW.", "For example: --map-path /workspace=.")
    return [(old, new) for old, _, new in pairs]
