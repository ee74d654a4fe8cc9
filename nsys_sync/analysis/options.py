"""What a user may choose about an analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """step: NVTX ranges that are the steps. project, library: folders (as in the trace) that are or are not the user's.

    maps: (old, new) path prefixes for source files. skip_first: steps to leave out at the beginning. low, high: bounds
    in ns of the trace's clock. within: only the steps or regions with this name. rules: a file of rules that go first.
    copy_gbps: speed of pinned copies for predictions (None: from the trace). predict: whether to predict at all.
    """

    step: str | None = None
    project: Sequence[str] = ()
    library: Sequence[str] = ()
    maps: Sequence[tuple[str, str]] = ()
    skip_first: int = 0
    low: int | None = None
    high: int | None = None
    within: str | None = None
    rules: Path | None = None
    copy_gbps: float | None = None
    predict: bool = True

    @property
    def changes_findings(self) -> bool:
        """Whether anything but the place of source files was chosen."""
        return replace(self, maps=()) != Options()
