"""Watches the clock from the start of every process, for captures by time alone."""

from __future__ import annotations

from . import Session, capture


def start(_session: Session) -> None:
    """Begin to watch; ``capture`` must have been started before."""
    found = capture.current()
    if found is not None:
        found.watch()
