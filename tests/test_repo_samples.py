"""The recorded traces are whole, and what is said about them is about them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_every_trace_opens_and_has_expected_numbers(
    sample: Callable[[str], Path], sample_names: list[str], expected: dict[str, Any]
) -> None:
    assert sample_names == sorted(expected)
    for name in sample_names:
        connection = sqlite3.connect(f"file:{sample(name)}?mode=ro", uri=True)
        try:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",), name
            (calls,) = connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
            assert calls > expected[name]["host_blocking_calls"], name
        finally:
            connection.close()
