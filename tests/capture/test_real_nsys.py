"""The whole path with a real Nsight Systems, as far as it goes without a GPU."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsys_sync import analyze
from scripts import mask_report
from tests.capture.conftest import Sandbox
from tests.capture.test_launch import PATIENT

pytestmark = pytest.mark.needs_nsys

SAMPLES = Path(__file__).parent.parent.parent / "sample_traces"

BUSY = """
import sys, time
import nsys_sync

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))

def main():
    burn(0.2)
    with nsys_sync.region("work"):
        for _ in range(4):
            burn(0.1)
            nsys_sync.step()
    burn(0.2)
    print("ended", *sys.argv[1:])

main()
"""


@pytest.fixture
def real(sandbox: Sandbox) -> Sandbox:
    """A sandbox with the real nsys in place of the stand-in."""
    del sandbox.environment["NSYS_SYNC_NSYS"]
    sandbox.environment["PATH"] = os.environ["PATH"]
    return sandbox


def rows(database: Path, sql: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(database) as connection:
        return connection.execute(sql).fetchall()


def texts(database: Path) -> list[str]:
    return [text for (text,) in rows(database, "SELECT text FROM NVTX_EVENTS WHERE text IS NOT NULL ORDER BY start")]


def sampled_functions(database: Path) -> set[str]:
    """Functions in the Python stacks of an export."""
    names = dict(rows(database, "SELECT id, value FROM StringIds"))
    stacks = rows(database, "SELECT jsonText FROM NVTX_EVENTS WHERE jsonText LIKE '{\"Python Periodic Sampling\":%'")
    frames = (json.loads(text)["Python Periodic Sampling"]["Frames"] for (text,) in stacks)
    return {f"{names[frame['Function']]}:{frame['Line']}" for stack in frames for frame in stack}


def test_everything_is_recorded_and_exported_with_frames(real: Sandbox) -> None:
    done = real.run("profile", "--capture", "all", "-o", "pü t/100% {script}", str(real.script(BUSY)), "--epochs", "1")
    database = real.folder / "pü t/100% train.sqlite"
    assert done.stdout == "ended --epochs 1\n"
    assert "No CUDA activity was recorded" in done.stderr
    assert done.returncode == 4
    assert (real.folder / "pü t/100% train.nsys-rep").stat().st_size
    assert [text for text in texts(database) if "step" in text] == [f"nsys-sync:step {k}" for k in (1, 2, 3, 4)]
    assert "nsys-sync:region work" in texts(database)
    functions = sampled_functions(database)
    assert {"burn:8", "main:14"} <= functions
    assert rows(
        database, "SELECT text FROM NVTX_EVENTS WHERE eventType = 75 AND text LIKE 'Python%' ORDER BY domainId"
    ) == [
        ("Python Backtrace",),
        ("Python Periodic Sampling",),
    ]
    (note,) = rows(database, "SELECT value FROM NSYS_SYNC_CAPTURE")[0]
    assert json.loads(note)["range"] == "all"
    output = rows(database, "SELECT value FROM ProcessStreams JOIN StringIds ON contentId = id")
    assert not any("ended" in text for (text,) in output)


def test_an_nvtx_range_is_captured_and_nothing_around_it(real: Sandbox) -> None:
    done = real.run("profile", "--capture", "nvtx:nsys-sync:region work", "-o", "run", str(real.script(BUSY)))
    assert "Capturing." in done.stderr
    assert done.stdout == "ended\n"
    database = real.folder / "run.sqlite"
    assert "nsys-sync:region work" in texts(database)
    assert (real.folder / "run.nsys-rep").exists()


@pytest.mark.parametrize("capture", ["auto", "script", "steps:1:1", "nvtx:never", "time:0:1"])
def test_a_range_that_never_starts_is_an_error_and_the_program_is_unharmed(real: Sandbox, capture: str) -> None:
    script = real.script(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'], check=True)\nprint('fine')\n"
    )
    done = real.run("profile", "--capture", capture, "-o", "run", str(script))
    assert (done.stdout, done.returncode) == ("fine\n", 4), done.stderr
    assert "The capture range never started" in done.stderr
    assert "--capture" in done.stderr
    assert not list(real.folder.glob("run*"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import os; os.kill(os.getpid(), 11)", 139),
        ("raise SystemExit('no')", 1),
    ],
)
def test_the_programs_exit_code_is_passed_on(real: Sandbox, text: str, code: int) -> None:
    done = real.run("profile", "--capture", "all", "-o", "run", str(real.script(text)))
    assert done.returncode == code
    assert (real.folder / "run.sqlite").exists()


@pytest.mark.parametrize(("times", "code"), [(1, 5), (2, 143)])
def test_ctrl_c(real: Sandbox, times: int, code: int) -> None:
    awaited = ["interrupted"] * (times - 1)
    found, out, err = real.interrupt(PATIENT.format(cleanup=1 if times == 1 else 600), *awaited)
    assert (found, out) == (code, "interrupted\n"), err
    assert (real.folder / "run.nsys-rep").exists()
    assert (real.folder / "run.sqlite").exists() == (times == 1)


def test_what_this_nsys_refuses_is_shown(real: Sandbox) -> None:
    done = real.run("profile", "--nsys-arg=--no-such-option=1", "-o", "run", str(real.script(BUSY)))
    assert (done.returncode, "--no-such-option=1" in done.stderr) == (1, True)
    assert "ended" not in done.stdout


# Exporting


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A report with Python samples."""
    folder = tmp_path_factory.mktemp("report")
    script = folder / "busy.py"
    script.write_text(
        "from time import thread_time\nend = thread_time() + 0.3\nwhile thread_time() < end:\n    sum(range(1000))\n"
    )
    command = ["nsys", "profile", "--trace=nvtx", "--python-sampling=true", f"--output={folder / 'made.nsys-rep'}"]
    subprocess.run([*command, sys.executable, str(script)], check=True, capture_output=True)
    yield folder / "made.nsys-rep"
    shutil.rmtree(folder)


def test_a_recorded_cuda_report_is_exported_with_its_frames(real: Sandbox) -> None:
    recorded = SAMPLES / "captures/plain_loop-2023.4"
    made = real.folder / "cuda.nsys-rep"
    made.write_bytes(lzma.decompress(recorded.with_name(f"{recorded.name}.nsys-rep.xz").read_bytes()))
    assert real.run("export", str(made)).returncode == 0
    found = analyze(made.with_suffix(".sqlite"))
    assert found.totals == analyze(recorded.with_name(f"{recorded.name}.sqlite.xz")).totals
    program = (SAMPLES / "programs/plain_loop.py").read_text().splitlines()
    waits = {number for number, line in enumerate(program, 1) if line.endswith("# sync")}
    assert waits <= {site.line for site in found.sites if site.file and site.file.endswith("/plain_loop.py")}
    assert [steps.source for steps in found.steps] == ["marks"]


def test_a_report_can_be_masked_and_holds_the_same_events(real: Sandbox, report: Path) -> None:
    made = real.folder / "made.nsys-rep"
    made.write_bytes(mask_report.masked(report.read_bytes(), mask_report.mask_of(frozenset())))
    assert os.environ["PATH"].encode() not in made.read_bytes()
    assert b"busy.py" not in made.read_bytes()
    kinds = "SELECT start, eventType, globalTid, domainId FROM NVTX_EVENTS ORDER BY 1, 2, 3, 4"
    found = []
    for path in (report, made):
        database = real.folder / f"{path.parent.name}.sqlite"
        command = ["nsys", "export", "--type=sqlite", f"--output={database}", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        found.append(rows(database, kinds))
    assert found[0] == found[1] != []


@pytest.mark.parametrize("name", ["réport one.nsys-rep", "old.qdrep"])
def test_reports_are_exported_beside_themselves(real: Sandbox, report: Path, name: str) -> None:
    shutil.copy(report, real.folder / name)
    done = real.run("export", name)
    database = (real.folder / name).with_suffix(".sqlite")
    assert (done.returncode, done.stdout) == (0, f"{database}\n"), done.stderr
    assert "<module>:4" in {name.replace("&lt;", "<").replace("&gt;", ">") for name in sampled_functions(database)}
    assert sorted(path.name for path in real.folder.iterdir()) == sorted([name, database.name])


def test_an_export_is_used_again_only_while_it_is_newer_and_whole(real: Sandbox, report: Path) -> None:
    made = Path(shutil.copy(report, real.folder / "made.nsys-rep"))
    database = real.folder / "made.sqlite"
    assert real.run("export", str(made)).returncode == 0
    first = database.stat().st_mtime_ns
    again = real.run("export", str(made))
    assert (again.returncode, database.stat().st_mtime_ns) == (0, first)
    assert "nothing to do" in again.stderr
    os.utime(database, (1, 1))
    stale = real.run("export", str(made))
    assert (stale.returncode, "exists already" in stale.stderr) == (1, True)
    # What only derives from the report is made anew beside the stale file, which is left alone.
    used = real.run("report", str(made))
    assert "Exporting made.nsys-rep" in used.stderr
    assert database.stat().st_mtime == 1
    assert "Exporting" not in real.run("report", str(made)).stderr


def test_an_export_without_frames_is_not_used(real: Sandbox, report: Path) -> None:
    made = Path(shutil.copy(report, real.folder / "made.nsys-rep"))
    bare = ["nsys", "export", "--type=sqlite", f"--output={real.folder / 'made.sqlite'}", str(made)]
    subprocess.run(bare, check=True, capture_output=True)
    assert "Exporting made.nsys-rep" in real.run("report", str(made)).stderr


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b"hello", "cannot export"),
        (b"NVIDIA Tegra Profiler Report 2031@1@1@1-1v0.\n", "which nsys 2031.1.1 wrote"),
        (None, "does not exist"),
    ],
)
def test_what_is_no_report_is_said_in_one_line(real: Sandbox, content: bytes | None, text: str) -> None:
    path = real.folder / "odd.nsys-rep"
    if content is not None:
        path.write_bytes(content)
    before = real.folder / "odd.sqlite"
    before.write_bytes(b"mine")
    done = real.run("export", str(path), "--force")
    assert done.returncode == 1
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert before.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("made.nsys-rep", "is an input, which is never changed"),
        ("link.nsys-rep", "is an input, which is never changed"),
        ("-", "no text for stdout"),
        ("/dev/null", "is not a file"),
        (".", "is a folder"),
        ("nowhere/x.sqlite", "does not exist"),
    ],
)
def test_an_export_replaces_nothing_but_an_export(real: Sandbox, report: Path, output: str, text: str) -> None:
    made = Path(shutil.copy(report, real.folder / "made.nsys-rep"))
    (real.folder / "link.nsys-rep").symlink_to(made)
    done = real.run("export", str(made), "-o", output, "--force")
    assert (done.returncode, done.stdout) == (1, "")
    assert text in done.stderr
    assert made.read_bytes() == report.read_bytes()
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("name", [".", "", "folder.nsys-rep", "pipe.nsys-rep", "loop.nsys-rep"])
def test_what_is_no_file_is_no_report(real: Sandbox, name: str) -> None:
    (real.folder / "folder.nsys-rep").mkdir()
    os.mkfifo(real.folder / "pipe.nsys-rep")
    (real.folder / "loop.nsys-rep").symlink_to("loop.nsys-rep")
    done = real.run("export", name)
    assert (done.returncode, done.stderr.count("\n")) == (1, 2), done.stderr
    assert "internal" not in done.stderr


def test_a_report_cut_in_half(real: Sandbox, report: Path) -> None:
    whole = report.read_bytes()
    (real.folder / "half.nsys-rep").write_bytes(whole[: len(whole) // 2])
    done = real.run("report", "half.nsys-rep")
    assert (done.returncode, "cannot export" in done.stderr) == (1, True)
    assert [path.name for path in real.folder.iterdir()] == ["half.nsys-rep"]
