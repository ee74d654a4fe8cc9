"""One analysis of each recorded trace a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from nsys_sync.analysis.findings import Report
from nsys_sync.analysis.run import analyze

Analyzed = Callable[[str], Report]


@pytest.fixture(scope="session")
def analyzed(sample: Callable[[str], Path]) -> Analyzed:
    """``analyzed("probe-sync")`` is the report of that trace with default options."""
    return cache(lambda name: analyze(sample(name)))
