"""The target package in this very process, for programs that watch or guard parts of themselves."""

from __future__ import annotations

import importlib
import sys
from typing import Any

#: Names of the target package: as the launcher loads it, and as a part of this one.
PACKAGES = ("_nsys_sync_target", "nsys_sync.capture.target")


def target(name: str) -> Any:
    """A module of the target package: the launcher's copy, where it has loaded one, so that there is one of them."""
    package = next(package for package in PACKAGES if package in sys.modules or package == PACKAGES[-1])
    return importlib.import_module(f"{package}.{name}")
