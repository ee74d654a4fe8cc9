"""Waiting for what another process does, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Ends what hangs; nothing that works takes as long, even beside much else.
PATIENCE_S = 300


def wait_until(holds: Callable[[], object]) -> None:
    """Return as soon as it holds."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)
