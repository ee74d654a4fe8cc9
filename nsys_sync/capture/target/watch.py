"""Watches this process's syncs for ``nsys-sync watch``, and tells the launcher in ``watch-PID.json``.

The launcher's ``watch.json`` says ``after_steps`` and ``stop_at_first``. A process that ends without its last words
(killed, or ``os._exit``) has told what it knew a second before.
"""

from __future__ import annotations

import sys
import time

from . import Session, complain, is_ours
from .ends import at_ends

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from .recorder import Recorder

_EVERY_S = 1.0


class _Process:
    """The watch of this process."""

    session: Session | None = None
    recorder: Recorder | None = None
    next_report = 0.0


def start(session: Session) -> None:
    """Begin to watch."""
    from .recorder import Recorder

    config = session.config("watch")
    _Process.session = session
    recorder = _Process.recorder = Recorder(
        int(config.get("after_steps", 0)), stop_at_first=bool(config.get("stop_at_first")), changed=_changed
    )
    recorder.start()
    at_ends(finish, after_fork)


def after_fork() -> None:
    """A forked child has told nothing yet."""
    _Process.next_report = 0.0


def finish() -> None:
    """The process ends: tell everything."""
    if "torch" in sys.modules or "cupy" in sys.modules or "jax" in sys.modules:
        _report(final=True)


def _changed() -> None:
    now = time.monotonic()
    if now >= _Process.next_report:
        _Process.next_report = now + _EVERY_S
        _report(final=False)


def _report(*, final: bool) -> None:
    session, recorder = _Process.session, _Process.recorder
    if session is None or recorder is None:
        return
    try:
        session.report("watch", {**recorder.values(), "final": final})
    except Exception as error:
        if not is_ours(error):
            raise
        complain(f"what was seen cannot be told: {error!r}")
