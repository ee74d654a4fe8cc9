"""Fixtures for pytest, there wherever nsys-sync is installed: ``forbid_syncs`` and ``watch_syncs``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from nsys_sync import guard

if TYPE_CHECKING:
    from nsys_sync.watching import watch


@pytest.fixture(name="forbid_syncs")
def _forbid_syncs() -> Iterator[None]:
    """Let the test fail at its first sync, unless that is in ``nsys_sync.allow_syncs()``."""
    with guard.forbid_syncs():
        yield


@pytest.fixture(name="watch_syncs")
def _watch_syncs() -> Iterator[watch]:
    """Watch the test's syncs: ``watch_syncs.report`` holds those seen so far."""
    from nsys_sync.watching import watch

    with watch() as seen:
        yield seen
