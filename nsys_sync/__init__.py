"""nsys-sync: where a GPU program's CPU waits for the GPU, at which Python line, and what that costs.

``analyze(path)`` gives a ``Report``; ``Report.load(path)`` reads a saved one. ``step()`` and ``region(name)`` are for
programs that mark their own steps and parts. Everything heavy is imported when used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nsys_sync._version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from nsys_sync.analysis.findings import Report
    from nsys_sync.capture.marks import region, step

__all__ = ["Report", "__version__", "analyze", "region", "step"]


def analyze(path: str | Path, **options: Any) -> Report:
    """Analyse an export (.sqlite, .sqlite.xz) and return the report.

    options: the fields of ``analysis.options.Options`` (step, project, library, maps, skip_first, within, …).
    Raises the errors of ``analysis.run.analyze``.
    """
    from nsys_sync.analysis.options import Options
    from nsys_sync.analysis.run import analyze as run

    return run(path, Options(**options))[0]


def __getattr__(name: str) -> Any:
    if name == "Report":
        from nsys_sync.analysis.findings import Report

        return Report
    if name in ("step", "region"):
        from nsys_sync.capture import marks

        return getattr(marks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
