"""Where a process ends, and where it begins: forked children begin anew, and those of multiprocessing leave quietly."""

from __future__ import annotations

import atexit
import os
import sys

from .imports import when_imported

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from typing import Any, Callable


def at_ends(finish: Callable[[], None], after_fork: Callable[[], None]) -> None:
    """Call ``finish`` when this process ends, or a child that it forks; ``after_fork`` when such a child begins."""
    atexit.register(finish)
    os.register_at_fork(after_in_child=after_fork)
    when_imported("multiprocessing.util", lambda: _finish_in_children(finish))


def _finish_in_children(finish: Callable[[], None]) -> None:
    """Children of multiprocessing leave without atexit; they run finalizers of their own instead."""
    util: Any = sys.modules["multiprocessing.util"]

    def register(finish: Callable[[], None]) -> None:
        util.Finalize(None, finish, exitpriority=0)

    # A weak table; atexit keeps this very object alive.
    util.register_after_fork(finish, register)
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        register(finish)
