"""What is known about one site when the catalogue of rules is asked about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nsys_sync.analysis.findings import Frame

#: Names of copy directions by (srcKind, dstKind) of CUPTI: 0 pageable, 1 pinned, 2 device.
COPY_KINDS = {
    (0, 2): "pageable->device",
    (2, 0): "device->pageable",
    (1, 2): "pinned->device",
    (2, 1): "device->pinned",
    (2, 2): "device->device",
}


@dataclass(frozen=True)
class Evidence:
    """One site, as the rules see it.

    apis: bare names of its host-blocking calls (``cudaStreamSynchronize``, ``cudaMemcpyAsync``).
    copies: names from COPY_KINDS of the copies that belong to its events, including the non-blocking 4-byte copy into
    pinned memory that stands directly before the sync of an ``.item()``.
    max_bytes: the largest of those copies. native: symbols of a typical event, innermost first.
    stack: Python frames, innermost first. user: the user's frame, leaf: the innermost frame.
    source: the file with the user's line, or its text, if it is known here and not known to have changed.
    events: how many sync events; redundant: how many of them had nothing launched since the sync before on their
    thread; calls_per_step: None where there are no steps. seen: whether a wait was recorded here, not only a line read.
    """

    apis: frozenset[str]
    copies: frozenset[str] = frozenset()
    max_bytes: int = 0
    native: tuple[str, ...] = ()
    stack: tuple[Frame, ...] = ()
    user: Frame | None = None
    leaf: Frame | None = None
    source: Path | str | None = None
    events: int = 1
    redundant: int = 0
    calls_per_step: float | None = None
    seen: bool = True
