"""``diff`` and ``check`` on the recorded traces, as commands: what they say, write and exit with."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builder import TraceBuilder
from tests.program import run

Sample = Callable[[str], Path]

#: The lines of the loop that the sync-free variant of each program does not have any more.
REMOVED = {
    "graph": ["178"],
    "gpt_train": ["64", "72", "74", "75"],
    "prefetch": ["154", "158", "161"],
}


def compared(folder: Path, *arguments: object) -> dict[str, Any]:
    done = run(folder, "diff", *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", REMOVED)
def test_the_removed_sites_are_gone(name: str, sample: Sample, tmp_path: Path) -> None:
    found = compared(tmp_path, sample(f"{name}-fix0"), sample(f"{name}-fix1"))
    gone = sorted(str(s["before"]["line"]) for s in found["sites"] if s["state"] == "gone")
    assert gone == REMOVED[name]
    assert {q["name"]: q["after"]["median"] for q in found["quantities"]}["syncs"] == 0
    assert found["outcome"] == "noise_unknown"


@pytest.mark.parametrize("name", ["graph-fix0", "gpt_train-fix0", "ddp-fix0", "prefetch-default", "probe-2023.4"])
def test_a_trace_against_itself_has_not_changed(name: str, sample: Sample, tmp_path: Path) -> None:
    found = compared(tmp_path, sample(name), sample(name))
    assert found["outcome"] == "same"
    assert {s["state"] for s in found["sites"]} == {"same"}
    assert {q["verdict"] for q in found["quantities"]} == {"equal"}
    assert [w["slug"] for w in found["warnings"] if w["slug"] != "unnamed-calls"] == ["same-capture"]


def test_the_prediction_stands_beside_what_came(sample: Sample, tmp_path: Path) -> None:
    prediction = compared(tmp_path, sample("graph-fix0"), sample("graph-fix1"))["prediction"]
    assert prediction["scope"] == "all"
    assert prediction["step_ns_low"] <= prediction["measured"]["median"] <= prediction["step_ns_high"]
    assert prediction["holds"] is True


def test_saved_reports_compare_like_their_traces(sample: Sample, tmp_path: Path) -> None:
    for side in ("fix0", "fix1"):
        assert run(tmp_path, "report", sample(f"graph-{side}"), "--json", f"{side}.json").returncode == 0
    assert compared(tmp_path, "fix0.json", "fix1.json") == compared(
        tmp_path, sample("graph-fix0"), sample("graph-fix1")
    )


def test_other_capture_options_are_pointed_out(sample: Sample, tmp_path: Path) -> None:
    found = compared(tmp_path, sample("prefetch-fix0"), sample("prefetch-default"))
    assert [w["text"].split(":")[0] for w in found["warnings"]] == ["Different capture options"]
    assert {s["state"] for s in found["sites"]} <= {"same", "changed"}


def test_without_stacks_sites_are_not_compared(sample: Sample, tmp_path: Path) -> None:
    found = compared(tmp_path, sample("probe-sync"), sample("probe-seedflags-nojson"))
    assert found["sites"] is None
    assert "missing after" in found["sites_reason"]


@pytest.mark.parametrize(
    ("limit", "code", "says"),
    [
        (["--max-syncs-per-step", "5"], 0, "Passed"),
        (["--max-syncs-per-step", "4"], 3, "5 syncs a step, 1 too many"),
        (["--max-wait", "3ms"], 0, "Passed"),
        (["--max-wait", "2ms"], 3, "ms of waiting a step"),
        (["--max-wait", "20ms/capture"], 3, "ms of waiting in the capture"),
        (["--max-idle-from-syncs", "20%"], 0, "Passed"),
        (["--max-idle-from-syncs", "10%"], 3, "% of the GPUs' time idle from syncs"),
        (["--max-idle-from-syncs", "500us"], 3, "of GPU idle from syncs a step"),
        (["--max-wait", "1ms", "--within", "step 3"], 3, "2.24 ms of waiting a step"),
        (["--max-wait", "2"], 2, "has no unit"),
        ([], 2, "no limit and no baseline"),
    ],
)
def test_each_limit(limit: list[str], code: int, says: str, sample: Sample, tmp_path: Path) -> None:
    done = run(tmp_path, "check", sample("graph-fix0"), *limit)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in done.stderr


def test_one_rank_that_syncs_more_is_judged_by_itself(sample: Sample, tmp_path: Path) -> None:
    """Rank 0 has three syncs a step and rank 1 one; their mean is two."""
    assert run(tmp_path, "check", sample("ddp-fix0"), "--max-syncs-per-step", "3").returncode == 0
    done = run(tmp_path, "check", sample("ddp-fix0"), "--max-syncs-per-step", "2")
    assert done.returncode == 3
    assert "3 syncs a step, 1 too many" in done.stdout


def test_a_baseline_lets_a_fix_pass_and_stops_its_return(sample: Sample, tmp_path: Path) -> None:
    fixed = run(tmp_path, "check", sample("gpt_train-fix1"), "--baseline", sample("gpt_train-fix0"))
    assert fixed.returncode == 0, fixed.stdout
    assert "New outside the loop" in fixed.stdout
    back = run(tmp_path, "check", sample("gpt_train-fix0"), "--baseline", sample("gpt_train-fix1"))
    assert back.returncode == 3
    assert back.stdout.startswith("Failed: 4 new sites.")


def test_a_saved_baseline_cannot_be_narrowed(sample: Sample, tmp_path: Path) -> None:
    run(tmp_path, "report", sample("graph-fix0"), "--json", "base.json")
    done = run(tmp_path, "check", sample("graph-fix0"), "--baseline", "base.json", "--project", "/workspace/examples")
    assert done.returncode in (0, 3)
    done = run(tmp_path, "check", sample("graph-fix0"), "--baseline", "base.json", "--within", "step 3")
    assert done.returncode == 2
    assert "saved report" in done.stderr


def test_accepted_sites_in_the_roots_pyproject(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.nsys-sync.allow]]\nfile = "examples/workloads.py"\nfunction = "step"\nreason = "replayed graphs"\n'
        '[[tool.nsys-sync.allow]]\nsite = "gone"\nreason = "was here"\n'
    )
    (tmp_path / "deeper").mkdir()
    done = run(tmp_path / "deeper", "check", sample("graph-fix0"), "--max-syncs-per-step", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 accepted site, not counted:\n  workloads.py:178: replayed graphs" in done.stdout
    assert "Stale, no such site: site gone (was here)." in done.stdout


def test_an_allow_list_that_is_not_understood_stops_the_check(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "accepted.toml").write_text("[[allow]]\nsite = 'x'\n")
    done = run(tmp_path, "check", sample("graph-fix0"), "--max-wait", "9ms", "--allow", "accepted.toml")
    assert done.returncode == 1
    assert "reason" in done.stderr


def test_nothing_is_overwritten_and_stdout_is_whole(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "x.sarif").write_text("mine")
    arguments = ["check", sample("graph-fix0"), "--max-syncs-per-step", "0", "--sarif"]
    assert run(tmp_path, *arguments, "x.sarif").returncode == 1
    assert (tmp_path / "x.sarif").read_text() == "mine"
    done = run(tmp_path, *arguments, "-", "--github", "--json", "result.json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["version"] == "2.1.0"
    assert "::error " in done.stderr
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "failed"


def test_withheld_idle_is_no_pass(sample: Sample, tmp_path: Path) -> None:
    """An export by 2023.4 cannot hold the work of CUDA graphs."""
    path = tmp_path / "graphs.sqlite"
    path.write_bytes(sample("graph-fix0").read_bytes())
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    done = run(tmp_path, "check", path, "--max-wait", "1s", "--max-idle-from-syncs", "99%")
    assert done.returncode == 4, done.stdout + done.stderr
    assert done.stdout.count("not measured") == 3


def test_a_trace_without_cuda_is_no_pass(sample: Sample, tmp_path: Path) -> None:
    built = TraceBuilder()
    built.process().thread().osrt("poll", 0, 10)
    built.write(tmp_path / "cpu.sqlite")
    done = run(tmp_path, "check", "cpu.sqlite", "--max-syncs-per-step", "0")
    assert done.returncode == 4
    assert "No CUDA activity" in done.stderr


def test_an_edit_that_moves_lines_leaves_the_same_sites(sample: Sample, tmp_path: Path) -> None:
    """The program after twelve lines were added at its top."""
    path = tmp_path / "moved.sqlite"
    path.write_bytes(sample("gpt_train-fix0").read_bytes())
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT rowid, jsonText FROM NVTX_EVENTS WHERE jsonText LIKE '%\"Line\"%'").fetchall()
        moved = [(re.sub(r'"Line":(\d+)', lambda m: f'"Line":{int(m[1]) + 12}', text), row) for row, text in rows]
        database.executemany("UPDATE NVTX_EVENTS SET jsonText = ? WHERE rowid = ?", moved)
    found = compared(tmp_path, sample("gpt_train-fix0"), path)
    assert {(s["state"], s["moved"]) for s in found["sites"]} == {("same", True)}
    assert {s["after"]["line"] - s["before"]["line"] for s in found["sites"]} == {12}
    assert "workloads.py:64 → 76  step" in run(tmp_path, "diff", sample("gpt_train-fix0"), path).stdout
    assert run(tmp_path, "check", path, "--baseline", sample("gpt_train-fix0")).returncode == 0
