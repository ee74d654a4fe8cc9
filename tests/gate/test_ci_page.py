"""docs/ci.md: its loop of profile, fix, diff and check is run as written, and its numbers are the program's."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nsys_sync.compare.noise import FACTORS
from nsys_sync.gate import load_allow
from tests.capture.conftest import Sandbox, sandbox

__all__ = ["sandbox"]

PAGE = Path(__file__).parents[2] / "docs" / "ci.md"


def section(title: str) -> str:
    return PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def run(sandbox: Sandbox, command: str) -> subprocess.CompletedProcess[str]:
    """A line of the page, in the sandbox."""
    program, *arguments = shlex.split(command)
    if program == "nsys-sync":
        return sandbox.run(*arguments)
    return subprocess.run([program, *arguments], cwd=sandbox.folder, capture_output=True, text=True, check=True)


def test_the_loop_runs_as_written(sandbox: Sandbox, sample: Callable[[str], Path]) -> None:
    sandbox.script("print('training')\n")
    (sandbox.folder / ".git").mkdir()
    lines = [line for block in blocks("sh", section("The loop")) for line in block.splitlines()]
    assert [line.split()[1] for line in lines] == ["profile", "profile", "diff", "after.json", "check"]
    answers = []
    for number, line in enumerate(lines):
        sandbox.behaviour["export"] = str(sample("graph-fix0" if number == 0 else "graph-fix1"))
        done = run(sandbox, line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        answers.append(done.stdout)
    assert "workloads.py:178" in answers[0]
    assert "1 site gone, 0 new, 0 changed" in answers[2]
    assert "Different" not in answers[2]
    assert answers[4].startswith("Passed: 1 limit held; no new site and no clear growth")


def test_the_loop_fails_when_the_sync_comes_back(sandbox: Sandbox, sample: Callable[[str], Path]) -> None:
    last = blocks("sh", section("The loop"))[-1].splitlines()[-1]
    for name, trace in (("after", "graph-fix0"), ("base", "graph-fix1")):
        (sandbox.folder / f"{name}.sqlite").write_bytes(sample(trace).read_bytes())
    baseline = sandbox.run("report", "base.sqlite", "--json", "syncs-baseline.json")
    assert baseline.returncode == 0
    done = run(sandbox, last)
    assert done.returncode == 3
    assert done.stdout.startswith("Failed: 1 limit exceeded, 1 new site.")


def test_several_captures_a_side_run_as_written(sandbox: Sandbox, sample: Callable[[str], Path]) -> None:
    [line] = blocks("sh", section("Noise"))[0].splitlines()
    for side, trace in (("before", "graph-fix0"), ("after", "graph-fix1")):
        for number in (1, 2, 3):
            path = sandbox.folder / f"{side}-{number}.sqlite"
            path.write_bytes(sample(trace).read_bytes())
    done = run(sandbox, line)
    assert done.returncode == 0
    assert "a capture was given more than once; it counts once" in done.stdout


def test_the_pull_requests_command_runs_as_written(sandbox: Sandbox, sample: Callable[[str], Path]) -> None:
    [workflow] = blocks("yaml", section("On a pull request"))
    profile, check = re.findall(r"- run: (nsys-sync .*)", workflow)
    sandbox.script("print('training')\n")
    (sandbox.folder / "examples").mkdir()
    (sandbox.folder / "examples" / "workloads.py").write_text("\n" * 300)
    (sandbox.folder / ".git").mkdir()
    sandbox.behaviour["export"] = str(sample("gpt_train-fix0"))
    assert run(sandbox, profile).returncode == 0
    baseline = sandbox.run("report", str(sample("gpt_train-fix1")), "--json", "syncs-baseline.json")
    assert baseline.returncode == 0
    done = run(sandbox, check)
    assert done.returncode == 3
    commands = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert [re.findall(r"file=([^,]*),line=(\d+)", line)[0] for line in commands] == [
        ("examples/workloads.py", number) for number in ("74", "64", "72", "75")
    ]
    log = json.loads((sandbox.folder / "syncs.sarif").read_text())
    levels = [(r["level"], r["baselineState"]) for r in log["runs"][0]["results"]]
    assert levels.count(("error", "new")) == 4


def test_the_python_runs_as_written(sample: Callable[[str], Path], tmp_path: Path) -> None:
    for side, trace in (("before", "graph-fix0"), ("after", "graph-fix1")):
        (tmp_path / f"{side}.sqlite").write_bytes(sample(trace).read_bytes())
    [program] = blocks("python", section("From Python"))
    environment = os.environ | {"PYTHONPATH": str(PAGE.parents[1])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    outcome, gone, status = done.stdout.splitlines()
    assert outcome.startswith("noise_unknown -5")
    assert len(gone.split(",")) == 1
    assert status == "passed [0.0]"


def test_the_entries_are_understood(tmp_path: Path) -> None:
    first, second = blocks("toml", section("Accepted sites"))
    for name, text, number in (("pyproject.toml", first, 2), ("accepted.toml", second, 1)):
        (tmp_path / name).write_text(text)
        assert len(load_allow(tmp_path / name)) == number


def test_the_factors_are_the_programs() -> None:
    rows = dict(re.findall(r"^\| (\d+)[^|]* \| ([\d.]+) \|$", section("Noise"), flags=re.MULTILINE))
    assert {int(captures): float(value) for captures, value in rows.items()} == FACTORS


@pytest.mark.parametrize("command", ["diff", "check"])
def test_every_option_on_the_page_exists(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nsys_sync.cli", command, "--help"], capture_output=True, text=True, check=True
    )
    known = set(re.findall(r"--[a-z-]+", done.stdout))
    used = {
        option
        for line in re.findall(rf"^.*nsys-sync {command} .*$", PAGE.read_text(), flags=re.MULTILINE)
        for option in re.findall(r"(?<= )--[a-z][a-z-]+", line)
    }
    assert used
    assert used <= known
