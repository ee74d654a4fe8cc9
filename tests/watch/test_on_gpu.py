"""What is watched of a real PyTorch on a real GPU."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.watch.conftest import ROOT, Workplace
from tests.watch.gpu_programs import PROGRAMS, wrong_counts


def has_gpu() -> bool:
    """Whether PyTorch is here and can use a GPU; asked in another process, so that this one does not start CUDA."""
    if importlib.util.find_spec("torch") is None:
        return False
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


@pytest.mark.skipif(not has_gpu(), reason="PyTorch with a GPU is not here")
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_marked_line_is_counted(workplace: Workplace, name: str) -> None:
    workplace.environment["PYTHONPATH"] = str(ROOT)
    assert wrong_counts(PROGRAMS[name], workplace.watch(PROGRAMS[name])) == []


def test_marks_are_compared() -> None:
    text = "a\nb  # 2\nc  # 1+\nd\n"
    sites = [{"line": 2, "calls": 1}, {"line": 2, "calls": 1}, {"line": 3, "calls": 5}]
    assert wrong_counts(text, {"sites": sites}) == []
    assert len(wrong_counts(text, {"sites": [*sites, {"line": 4, "calls": 1}]})) == 1
    assert len(wrong_counts(text, {"sites": sites[1:]})) == 1
    assert len(wrong_counts(text, {"sites": [*sites, {"line": 2, "calls": 1}]})) == 1
    assert len(wrong_counts("# any other line\n" + text, {"sites": [{"line": 9, "calls": 1}]})) == 2
    everything = "# any other line, 9+ in all\n"
    assert wrong_counts(everything, {"sites": [{"line": 9, "calls": 9}]}) == []
    assert wrong_counts(everything, {"sites": [{"line": 9, "calls": 8}]}) == ["8 in all, not 9+"]
