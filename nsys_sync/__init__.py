"""nsys-sync: where a GPU program's CPU waits for the GPU, at which Python line, and what that costs.

``analyze(path)`` gives a ``Report``; ``Report.load(path)`` reads a saved one. ``step()`` and ``region(name)`` are for
programs that mark their own steps and parts, ``watch()`` for those that look at themselves, ``forbid_syncs()`` and
``allow_syncs()`` for tests. Everything heavy is imported when used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nsys_sync._version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from nsys_sync.capture.marks import region, step
    from nsys_sync.capture.target.syncs import SyncError
    from nsys_sync.guard import allow_syncs, forbid_syncs
    from nsys_sync.report.interactive import Report
    from nsys_sync.watching import watch

__all__ = [
    "Report",
    "SyncError",
    "__version__",
    "allow_syncs",
    "analyze",
    "forbid_syncs",
    "region",
    "step",
    "watch",
]


def analyze(path: str | Path, **options: Any) -> Report:
    """Analyse an export (.sqlite, .sqlite.xz) and return the report.

    options: the fields of ``analysis.options.Options`` (step, project, library, maps, skip_first, within, …).
    Raises the errors of ``analysis.run.analyze``.
    """
    from nsys_sync.analysis.options import Options
    from nsys_sync.analysis.run import analyze as run
    from nsys_sync.report.interactive import Report

    return Report.of(run(path, Options(**options)))


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext nsys_sync``: the magic ``%%watch``."""
    from nsys_sync.notebook import load

    load(shell)


def __getattr__(name: str) -> Any:
    import importlib

    if name == "SyncError":
        from nsys_sync.capture.here import target

        return target("syncs").SyncError
    if name in _LATE:
        return getattr(importlib.import_module(f"nsys_sync.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_LATE = {
    "Report": "report.interactive",
    "allow_syncs": "guard",
    "forbid_syncs": "guard",
    "region": "capture.marks",
    "step": "capture.marks",
    "watch": "watching",
}
