"""Captures this process's steps as soon as it imports a framework that can use CUDA; until then it costs nothing."""

from __future__ import annotations

import atexit
import os
import sys

from . import Session
from .frameworks import follow_frameworks
from .imports import when_imported

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from typing import Any

    from .range import Capture


class _Process:
    """The one session and the one capture of this process."""

    session: Session | None = None
    capture: Capture | None = None


def current() -> Capture | None:
    """This process's capture, made when it is first asked for; None where no launcher started this module."""
    if _Process.capture is None and _Process.session is not None:
        from .range import Capture, Plan

        capture = _Process.capture = Capture(_Process.session, Plan.of(_Process.session.config("capture")))
        atexit.register(capture.finish)
        os.register_at_fork(after_in_child=capture.after_fork)
        when_imported("multiprocessing.util", lambda: _finish_in_children(capture))
    return _Process.capture


def start(session: Session) -> None:
    """Begin to follow this process's steps."""
    _Process.session = session
    follow_frameworks(current)


def _finish_in_children(capture: Capture) -> None:
    """Children of multiprocessing leave without atexit; they run finalizers of their own instead."""
    util: Any = sys.modules["multiprocessing.util"]

    def register(capture: Capture) -> None:
        util.Finalize(None, capture.finish, exitpriority=0)

    util.register_after_fork(capture, register)
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        register(capture)
