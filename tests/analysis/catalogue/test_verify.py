"""Claims tried on a GPU: what the script makes of a capture, and of its own pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nsys_sync.analysis.catalogue import verified
from nsys_sync.analysis.catalogue.judge import Catalogue
from scripts import verify_rules as script
from tests.builder import TraceBuilder


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Ranges of one pair: two waits in the before, none in the after, one between them that counts for neither."""
    trace = TraceBuilder()
    process = trace.process()
    thread = process.thread()
    thread.range("nsys-sync:region device-sync/before", 0, 100)
    thread.sync("cudaDeviceSynchronize_v3020", 10, 20)
    thread.sync("cudaDeviceSynchronize_v3020", 30, 90)
    thread.sync("cudaDeviceSynchronize_v3020", 110, 120)
    thread.range("nsys-sync:region device-sync/after", 200, 300)
    thread.call("cudaLaunchKernel_v7000", 210, 215, corr=9)
    trace.kernel(process, 220, 230, corr=9)
    path = tmp_path / "rules.sqlite"
    trace.write(path)
    return path


def test_events_are_counted_by_range(capture: Path) -> None:
    assert script.count(capture, frozenset()) == {
        "nsys-sync:region device-sync/before": {"events": 2, "calls": {"cudaDeviceSynchronize": 2}},
        "nsys-sync:region device-sync/after": {"events": 0, "calls": {}},
    }


def test_allocations_count_only_for_rules_about_allocating(tmp_path: Path) -> None:
    """A pool that grows on the way says nothing about a rule on waits."""
    trace = TraceBuilder()
    thread = trace.process().thread()
    for rule, start in (("stream-sync", 0), ("empty-cache", 200)):
        thread.range(f"nsys-sync:region {rule}/after", start, start + 100)
        thread.call("cudaMalloc_v3020", start + 10, start + 20)
    path = tmp_path / "rules.sqlite"
    trace.write(path)
    assert script.count(path, script.about_allocating()) == {
        "nsys-sync:region stream-sync/after": {"events": 0, "calls": {}},
        "nsys-sync:region empty-cache/after": {"events": 1, "calls": {"cudaMalloc": 1}},
    }


@pytest.mark.parametrize(
    ("same", "error", "before", "after", "remaining", "expected"),
    [
        (True, None, 3, 0, 0, "verified"),
        (True, None, 3, 1, 1, "verified"),
        (True, None, 3, 1, 0, "refuted"),
        (True, None, 1, 1, 1, "refuted"),
        (True, None, 0, 0, 0, "no_wait"),
        (None, None, 2, None, 0, "waits"),
        (None, None, 0, None, 0, "no_wait"),
        (False, None, 3, 0, 0, "failed"),
        (False, "ImportError: no", 3, 0, 0, "failed"),
        (True, None, None, 0, 0, "failed"),
        (True, None, 2, None, 0, "failed"),
    ],
)
def test_verdicts(
    same: bool | None, error: str | None, before: int | None, after: int | None, remaining: int, expected: str
) -> None:
    def side(events: int | None) -> dict[str, Any] | None:
        return None if events is None else {"events": events, "calls": {}}

    assert script.verdict({"same": same, "error": error}, side(before), side(after), remaining) == expected


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (1.0, 1.0 + 1e-9, True),
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0], [1.0, 2.0], False),
        (np.ones(3), np.ones(4), False),
        (np.ones(3), np.ones(3) * 1.1, False),
        ((np.ones(3), [2]), (np.ones(3), [2]), True),
    ],
)
def test_results_agree_up_to_rounding(first: object, second: object, same: bool) -> None:
    assert script.agree(first, second) == same


def test_what_was_tried_is_of_this_catalogue() -> None:
    found = verified.trials()
    known = {r["id"] for r in script.rules_to_run()} | {f["id"] for f in script.free_to_run()}
    assert found is None or set(found.rules) <= known
    assert verified.in_words("no such rule") == "unverified"
    assert found is not None
    assert f"PyTorch {found.versions['torch']}" in verified.in_words("device-sync")
    assert f"CuPy {found.versions['cupy']}" in verified.in_words("cupy-value-kept")


def test_the_catalogue_claims_what_was_seen() -> None:
    """No claim is refuted; what was seen not to wait is marked so; what is said not to wait was not seen to."""
    found = verified.trials()
    assert found is not None
    verdicts = {rule: trial.verdict for rule, trial in found.rules.items()}
    assert "refuted" not in verdicts.values()
    assert "failed" not in verdicts.values()
    tried = [r for r in Catalogue.load().rules if r.run is not None and r.id in verdicts]
    assert len(tried) > 40
    assert {r.id for r in tried if verdicts[r.id] == "no_wait"} == {r.id for r in tried if r.run and not r.run.blocks}
    assert {verdicts.get(f.id, "no_wait") for f in Catalogue.load().free} == {"no_wait"}
