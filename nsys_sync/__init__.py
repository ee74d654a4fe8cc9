"""nsys-sync: where a GPU program's CPU waits for the GPU, at which Python line, and what that costs.

``analyze(path)`` gives a ``Report``; ``Report.load(path)`` reads a saved one. Everything heavy is imported when used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nsys_sync._version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from nsys_sync.analysis.findings import Report

__all__ = ["Report", "__version__", "analyze"]


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
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
