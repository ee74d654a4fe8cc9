"""Marks that a program sets itself: ``step()`` and ``region(name)``. Without a profiler they do nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from nsys_sync.capture.here import PACKAGES
from nsys_sync.capture.target.nvtx import Nvtx


class _OwnSteps:
    """Steps in a program that was started under nsys without the launcher: ranges only."""

    def __init__(self, nvtx: Nvtx) -> None:
        self._nvtx = nvtx
        self._number = 0
        self._range = 0

    def boundary(self, _source: str) -> None:
        """A step has ended and the next begins."""
        self._nvtx.end(self._range)
        self._number += 1
        self._range = self._nvtx.start(f"nsys-sync:step {self._number}")


def step() -> None:
    """Say that one step of the program has ended and the next begins.

    Call it once in each iteration, always at the same place. Steps marked so are counted in place of optimizer steps:
    ``nsys-sync profile`` opens and closes its capture there, and reports show what happens in a step. Does nothing
    where no profiler is attached.
    """
    _steps().boundary("user")
    for package in PACKAGES:
        steps: Any = sys.modules.get(f"{package}.steps")
        if steps is not None:
            steps.tell("user")


@contextmanager
def region(name: str) -> Iterator[None]:
    """Name a part of the program, as a ``with`` block or a decorator, so that reports and limits can refer to it."""
    nvtx = _nvtx()
    handle = nvtx.start(f"nsys-sync:region {name}")
    try:
        yield
    finally:
        nvtx.end(handle)


@cache
def _nvtx() -> Nvtx:
    return Nvtx()


@cache
def _steps() -> Any:
    """This process's capture if the launcher started one, else steps of our own."""
    target: Any = sys.modules.get("_nsys_sync_target.capture")
    capture = None if target is None else target.current()
    return _OwnSteps(_nvtx()) if capture is None else capture
