"""``%load_ext nsys_sync`` and ``%%watch``."""

from __future__ import annotations

import re

import pytest

from tests.watch.conftest import Workplace

pytest.importorskip("IPython", reason="IPython is not installed (pip install -e '.[dev]')")

NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def cell(text):
    return shell.run_cell(text, store_history=True)
cell("%load_ext nsys_sync")
cell("import torch\\nx = torch.Tensor('cuda')")
cell("def step():\\n    return x.item()")
cell("%%watch\\nfor _ in range(3):\\n    print('cell', step())\\nlast = x.to('cpu')")
assert shell.user_ns["last"] is not None
cell("%watch x.item()")
cell("%%watch --error\\nstep()\\nprint('went on')")
cell("%%watch --nonsense\\nstep()")
cell("%%watch\\n1/0")
cell("x.item()")
cell("with __import__('nsys_sync').watch() as seen:\\n    x.item()")
cell("seen")
"""


def test_the_magic(workplace: Workplace) -> None:
    workplace.environment["IPYTHONDIR"] = str(workplace.folder / "ipython")
    done = workplace.python(NOTEBOOK)
    assert done.returncode == 0, done.stderr
    out = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert out.count("cell 0") == 3
    assert "The CPU waited for the GPU 4 times at 2 sites." in out
    assert "return x.item()" in out
    assert "last = x.to('cpu')" in out
    assert out.count("cell · watched without nsys") == 3
    assert re.search(r"SyncError: <ipython-input-3-\w+>:2 in step: a synchronizing PyTorch operation", out)
    assert "\nwent on\n" not in out
    assert "%%watch does not know --nonsense" in out
    assert "ZeroDivisionError" in out
    assert "watched without nsys" in out.rpartition("ZeroDivisionError")[2]
