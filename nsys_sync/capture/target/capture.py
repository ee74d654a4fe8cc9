"""Captures this process's steps as soon as it imports a framework that can use CUDA; until then it costs nothing."""

from __future__ import annotations

from . import Session
from .ends import at_ends
from .frameworks import follow_frameworks

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
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
        at_ends(capture.finish, capture.after_fork)
    return _Process.capture


def start(session: Session) -> None:
    """Begin to follow this process's steps."""
    _Process.session = session
    follow_frameworks(current)
