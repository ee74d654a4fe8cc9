"""Whether a failure is that of a full disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from nsys_sync.errors import CaptureError

_FULL_BYTES = 16 << 20
_SAID = re.compile(r"no space left|disk (?:is )?full|not enough (?:disk )?space", re.IGNORECASE)


def full_disk(folders: Iterable[Path], said: str = "") -> CaptureError | None:
    """The error, if one of the folders is (nearly) full or the words of the program that failed say so."""
    places = list(folders)
    full = next((folder for folder in places if shutil.disk_usage(folder).free < _FULL_BYTES), None)
    if full is None and not _SAID.search(said):
        return None
    return CaptureError(
        "disk-full",
        f"There is no space left on {full or ' or '.join(map(str, places))}.",
        "Make room, write elsewhere with -o, or move the temporary files with TMPDIR.",
    )
