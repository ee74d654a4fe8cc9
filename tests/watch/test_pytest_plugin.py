"""The fixtures, in a test run of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.watch.conftest import HERE

pytest_plugins = ["pytester"]

TESTS = """
import pytest
import nsys_sync
import torch

def test_clean(forbid_syncs):
    torch.Tensor("cpu", pinned=True).to("cuda", non_blocking=True)

def test_syncs(forbid_syncs):
    torch.Tensor("cuda").item()

def test_accepted(forbid_syncs):
    with nsys_sync.allow_syncs():
        torch.Tensor("cuda").item()

def test_watched(watch_syncs):
    for _ in range(3):
        torch.Tensor("cuda").item()
    assert watch_syncs.report.totals.host_blocking_calls == 3

def test_after_all():
    assert torch._C._mode == 0
    torch.Tensor("cuda").item()
"""


@pytest.mark.parametrize("warnings", ["error", "ignore", "default"])
def test_fixtures(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, warnings: str) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{HERE.parent.parent}:{HERE / 'site-packages'}")
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_subprocess("-W", warnings, "-p", "no:cacheprovider")
    done.assert_outcomes(passed=4, failed=1)
    done.stdout.fnmatch_lines(["*SyncError: *test_fixtures.py:9 in test_syncs: a synchronizing PyTorch operation*"])


def test_the_plugin_costs_nothing() -> None:
    import subprocess

    code = "import sys; import nsys_sync.pytest_plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "pandas", "msgspec", "rich"} & set(done.stdout.split())


def test_the_plugin_is_declared() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parent.parent.parent / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"nsys_sync": "nsys_sync.pytest_plugin"}
