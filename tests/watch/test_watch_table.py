"""The comparison of a watch with the recorded captures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts import watch_table

if TYPE_CHECKING:
    import pytest


def site(line: int, **more: Any) -> dict[str, Any]:
    return {
        "file": "/workspace/plain_loop.py",
        "line": line,
        "leaf": {"file": "/workspace/plain_loop.py", "function": "<module>", "line": line},
        "calls": 60,
        "calls_per_step": 1.0,
        "by_process": [{"in_loop": {"events": 50}}],
        "seen_by": {"pytorch": 60},
        **more,
    }


def test_the_table_names_what_each_side_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_table, "TABLE", tmp_path / "watch.json")
    monkeypatch.setattr(watch_table, "ROOT", tmp_path)
    library = {"file": "/env/torch/_tensor.py", "function": "__format__", "line": 9}
    sites = [site(12), site(19), site(21, leaf=library, by_process=[{"in_loop": {"events": 0}}]), site(20)]
    programs = [
        {"name": "plain_loop", "exit": 0, "sites": watch_table.sites_of({"sites": sites}, "plain_loop.py")},
        {"name": "no_such_capture", "exit": 0, "sites": []},
    ]
    (tmp_path / "watch.json").write_text(json.dumps({"programs": programs, "checks": []}))
    watch_table.add(tmp_path)
    rows = watch_table.table().splitlines()[2:]
    assert rows == [
        "| `plain_loop` | 3 | 2 | line 18 (cudaStreamSynchronize) | line 20; 1 outside the steps |",
        "| `no_such_capture` | – | – | – | – |",
    ]
