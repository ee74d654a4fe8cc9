"""The scripts that a newcomer runs say what is wrong and what to type."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import struct
import subprocess
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from nsys_sync.analysis.run import analyze
from scripts import bench, dead_code, mask_report

INSTALL_NSYS = shlex.quote(str(bench.ROOT / "scripts/install_nsys.sh"))


def bash(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        cwd=bench.ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "script", ["scripts/demo", "scripts/test", "scripts/test_lowest", "scripts/test_wheel", "scripts/bench", ".ci/run"]
)
def test_scripts_are_executable_bash(script: str) -> None:
    assert os.access(bench.ROOT / script, os.X_OK)
    assert bash(f"bash -n {script}").returncode == 0


def test_asking_what_the_checks_are_runs_none() -> None:
    done = bash("scripts/test --help")
    assert (done.returncode, "scripts/test --system" in done.stdout, "==" in done.stdout) == (0, True, False)


def test_an_old_python_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.12 && exit\nexit 1\n')
    old.chmod(0o755)
    bash_path = shutil.which("bash") or "/bin/bash"
    done = subprocess.run(
        [bash_path, "-c", ". scripts/venv.sh; find_python"],
        cwd=bench.ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "3.11 or newer is needed; python3 here is Python 3.10.12" in done.stderr
    assert "apt-get install python3.11 python3.11-venv" in done.stderr


def test_a_wrong_interpreter_is_refused() -> None:
    done = bash(". scripts/venv.sh; find_python", PYTHON="/bin/false")
    assert done.returncode == 1
    assert "PYTHON=/bin/false is not a Python of at least 3.11" in done.stderr


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    done = bash(f"{INSTALL_NSYS} {shlex.quote(str(tmp_path))}")
    assert done.returncode == 1
    assert "exists and is no Nsight Systems" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not here")
def test_a_mirror_without_the_suite_is_named(tmp_path: Path) -> None:
    if not Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists():
        pytest.skip("Debian's keyring is not here")
    done = bash(f"{INSTALL_NSYS} {shlex.quote(str(tmp_path / 'nsys'))}", DEBIAN_MIRROR=f"file://{tmp_path}/none")
    assert done.returncode == 1
    assert "DEBIAN_MIRROR does not give Debian's trixie" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs_nsys
def test_an_installed_nsys_is_recognised() -> None:
    nsys = Path(shutil.which("nsys") or "")
    if "2023.4.4" not in bash(f"{nsys} --version").stdout:
        pytest.skip("another version of Nsight Systems is on PATH")
    done = bash(f"{INSTALL_NSYS} {shlex.quote(str(nsys.parent.parent))}")
    assert (done.returncode, done.stdout.strip()) == (0, str(nsys.parent.parent / "bin/nsys"))


def test_copies_of_a_trace_follow_each_other(sample: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "three.sqlite"
    shutil.copy(sample("probe-sync"), path)
    path.chmod(0o644)
    before = bench.sizes(path)
    with closing(sqlite3.connect(path)) as connection:
        bench.multiply(connection, 3)
        runtime = "SELECT {} FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass IN (0, 1)"
        ids = connection.execute(runtime.format("count(*), count(DISTINCT correlationId)")).fetchone()
        launches = connection.execute(
            "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
            "USING (correlationId) WHERE r.eventClass IN (0, 1) AND r.start <= k.start"
        ).fetchone()
        starts = [row[0] for row in connection.execute(runtime.format("start") + " ORDER BY start")]
        marks = connection.execute(
            "SELECT count(*) FROM NVTX_EVENTS n JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (globalTid, start) "
            "WHERE n.eventType = 34 AND r.eventClass = 67"
        ).fetchone()
    after = bench.sizes(path)
    assert after["CUPTI_ACTIVITY_KIND_KERNEL"] == 3 * before["CUPTI_ACTIVITY_KIND_KERNEL"] == launches[0]
    assert after["CUPTI_ACTIVITY_KIND_RUNTIME"] == 3 * before["CUPTI_ACTIVITY_KIND_RUNTIME"]
    assert ids[0] == ids[1]
    pauses = sum(later - earlier >= bench.PAUSE for earlier, later in pairwise(starts))
    assert pauses >= 2
    assert marks[0] % 3 == 0
    assert marks[0] > 0


def test_three_copies_cost_three_times_as_much(sample: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "three.sqlite"
    shutil.copy(sample("probe-sync"), path)
    path.chmod(0o644)
    with closing(sqlite3.connect(path)) as connection:
        bench.multiply(connection, 3)
    once = analyze(sample("probe-sync")).totals
    thrice = analyze(path).totals
    for name in ("host_blocking_calls", "sync_events", "wait_ns", "recoverable_ns"):
        assert getattr(thrice, name) == 3 * getattr(once, name), name


def test_a_failing_contender_is_not_measured() -> None:
    with pytest.raises(RuntimeError, match="exits with 3: oh no"):
        bench.measured(["bash", "-c", "echo oh no >&2; exit 3"])


def test_ratios_are_of_the_same_round() -> None:
    first = [bench.Run(1, 1, 10), bench.Run(4, 1, 10), bench.Run(2, 1, 30)]
    other = [bench.Run(2, 3, 20), bench.Run(8, 2, 50), bench.Run(4, 4, 40)]
    result = bench.summary("other", other, first)
    assert (result.wall, result.wall_least, result.wall_most, result.wall_ratio) == (4, 2, 8, 2)
    assert (result.cpu, result.cpu_ratio, result.peak_mib) == (3, 3, 50)


def test_memory_is_the_process_s_own() -> None:
    # In a small process of its own: a child is charged with what its parent held when it started.
    code = (
        "from scripts.bench import measured; "
        "print(measured(['true']).peak_mib, measured(['python3', '-c', 'x = bytearray(200 << 20)']).peak_mib)"
    )
    small, large = map(float, bash(f'python3 -c "{code}"').stdout.split())
    assert small < 100
    assert 200 <= large < 300


def test_dead_code_is_found_and_fields_are_not(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "class Row:\n    read_by_name: int\n\n\ndef forgotten() -> None: ...\n\n\nRow()\n"
    )
    assert [(name, line) for name, _, line, _ in dead_code.unused(tmp_path)] == [("forgotten", 5)]


@pytest.mark.parametrize("size", [0, 14, 15, 269, 270, 5000])
def test_blocks_are_unpacked(size: int) -> None:
    content = bytes(k % 251 for k in range(size))
    stored = mask_report.stored(content)
    packed_size, at = mask_report.varint(stored, 0)
    assert mask_report.varint(stored, at)[0] == size
    assert mask_report.unpack(stored[-packed_size:]) == content


def test_copies_in_a_block_may_reach_into_themselves() -> None:
    # Two literal bytes, a copy of 4 + 15 + 1 bytes from two bytes before, a literal byte.
    assert mask_report.unpack(b"\x2fab\x02\x00\x01\x10c") == b"ab" * 11 + b"c"


def test_memory_between_the_numbers_of_a_stack_is_masked() -> None:
    stack = struct.pack("<III4sQQi4s", 1, 2, 1, b"secr", 29, 36, 12, b"et!!")
    masked = mask_report.masked_message(b"\x0a" + bytes([len(stack)]) + stack, str.upper)
    assert masked[2:] == struct.pack("<III4xQQi4x", 1, 2, 1, 29, 36, 12)


@pytest.mark.parametrize("report", [b"", b"NVIDIA Tegra Profiler Report 2031@1\n[END]", bytes(40) + mask_report.END])
def test_what_is_no_known_report_is_not_masked(report: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        mask_report.masked(report, str.upper)
