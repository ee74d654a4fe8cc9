"""The launcher against a stand-in for nsys: what nsys is told, and what becomes of report, output and signals."""

from __future__ import annotations

import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import pytest

from nsys_sync.capture import launch
from nsys_sync.capture.plan import parse_range
from nsys_sync.capture.prepare import Launch, Request, prepare
from nsys_sync.capture.target import Session
from nsys_sync.profile import profile
from tests.capture.conftest import Sandbox
from tests.waiting import PATIENCE_S

HELLO = "import sys\nprint('hello', *sys.argv[1:])\n"


def test_the_command_line_of_nsys(sandbox: Sandbox) -> None:
    script = sandbox.script(HELLO)
    done = sandbox.run("profile", "-o", "run", str(script), "--epochs", "1", "-o", "x")
    (arguments,) = sandbox.commands("profile")
    program = arguments.index("sh")
    assert arguments[:program] == [
        "--trace=cuda,nvtx",
        "--sample=process-tree",
        "--python-backtrace=cuda",
        "--cudabacktrace=sync:0",
        "--python-sampling=true",
        "--cpuctxsw=none",
        "--cuda-event-trace=false",
        "--cuda-graph-trace=graph",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        f"--output={sandbox.folder}/run.nsys-rep",
        "--force-overwrite=true",
    ]
    assert arguments[-5:] == [str(script), "--epochs", "1", "-o", "x"]
    assert done.stdout.startswith("hello --epochs 1 -o x\n")


@pytest.mark.parametrize(
    ("options", "there", "missing"),
    [
        (["--light"], {"--sample=none"}, {"--python-backtrace", "--cudabacktrace", "--python-sampling"}),
        (["--backtrace", "all"], {"--cudabacktrace=all:0"}, set()),
        (["--gil"], {"--trace=cuda,nvtx,python-gil"}, set()),
        (["--capture", "all"], {"--trace=cuda,nvtx"}, {"--capture-range", "--capture-range-end"}),
        (
            ["--capture", "nvtx:train"],
            {"--capture-range=nvtx", "--nvtx-capture=train@*", "--capture-range-end=stop"},
            set(),
        ),
        (["--capture", "nvtx:train@mine"], {"--nvtx-capture=train@mine"}, set()),
        (["--nsys-arg=-t", "--nsys-arg=cuda,osrt"], {"-t", "cuda,osrt"}, {"--trace"}),
        (["--nsys-arg=--cuda-graph-trace=node"], {"--cuda-graph-trace=node"}, {"--cuda-graph-trace=graph"}),
        (["--nsys-arg=--bogus"], {"--bogus"}, set()),
    ],
)
def test_options_change_what_nsys_is_told(
    sandbox: Sandbox, options: list[str], there: set[str], missing: set[str]
) -> None:
    done = sandbox.run("profile", "--dry-run", *options, str(sandbox.script(HELLO)))
    words = shlex.split(done.stdout)
    assert there <= set(words)
    assert not {word for word in words if word in missing or word.partition("=")[0] in missing}
    assert sandbox.commands("profile") == []


def test_an_option_that_this_nsys_does_not_know_is_not_passed(sandbox: Sandbox) -> None:
    text = "\t--capture-range=\n\t--capture-range-end=\n\t-s, --sample=\n\t   cpu\n\t-t, --trace=\n\t   cuda, nvtx\n"
    sandbox.behaviour["help"] = str(sandbox.script(text, "old-help"))
    done = sandbox.run("profile", "--dry-run", str(sandbox.script(HELLO)))
    told = [word for word in done.stdout.split() if word.startswith("--")]
    assert [word for word in told if word.partition("=")[0] not in ("--output", "--force-overwrite")] == [
        "--trace=cuda,nvtx",
        "--sample=cpu",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
    ]
    refused = sandbox.run("profile", "--gil", str(sandbox.script(HELLO)))
    assert (refused.returncode, "cannot trace the GIL" in refused.stderr) == (2, True)


def test_what_nsys_refuses_is_shown_in_its_own_words(sandbox: Sandbox) -> None:
    sandbox.behaviour["refuses"] = "--bogus"
    done = sandbox.run("profile", "--nsys-arg=--bogus", str(sandbox.script(HELLO)))
    assert done.returncode == 1
    assert "unrecognised option '--bogus'" in done.stderr
    assert "hello" not in done.stdout


@pytest.mark.parametrize("argument", ["-o", "--output=x", "--force-overwrite=true", "-c", "--capture-range=none"])
def test_what_the_launcher_decides_cannot_be_passed_through(sandbox: Sandbox, argument: str) -> None:
    done = sandbox.run("profile", f"--nsys-arg={argument}", str(sandbox.script(HELLO)))
    assert (done.returncode, "cannot be passed through" in done.stderr) == (2, True)


# The report


def test_all_that_was_written_is_named_with_its_whole_path(sandbox: Sandbox) -> None:
    done = sandbox.run("profile", "--capture", "all", "-o", "out/{script}-{rank}", str(sandbox.script(HELLO)))
    assert done.returncode == 0, done.stderr
    for suffix in (".nsys-rep", ".sqlite", ".json", ".html"):
        assert f"Written: {sandbox.folder}/out/train-0{suffix}\n" in done.stderr
        assert Path(sandbox.folder, f"out/train-0{suffix}").stat().st_size


def test_the_report_says_how_it_was_captured(sandbox: Sandbox) -> None:
    sandbox.run("profile", "--capture", "all", "--no-html", "-o", "run", str(sandbox.script(HELLO)))
    trace = json.loads((sandbox.folder / "run.json").read_text())["trace"]
    assert trace["nsys_version"] == "2025.3.2.0"
    assert trace["capture"]["range"] == "all"
    assert "--cudabacktrace=sync:0" in trace["capture"]["flags"]
    assert (trace["capture"]["target_exit"], trace["warnings"]) == (0, [])


def test_names_are_new_for_every_run(sandbox: Sandbox) -> None:
    script = str(sandbox.script(HELLO, "my train.py"))
    for _ in range(2):
        assert sandbox.run("profile", "--no-html", "--capture", "all", script).returncode == 0
    assert len(list(sandbox.folder.glob("my-train-20*.nsys-rep"))) == 2


def test_nothing_is_overwritten_unless_told(sandbox: Sandbox) -> None:
    sandbox.script("old", "run.html")
    refused = sandbox.run("profile", "-o", "run", str(sandbox.script(HELLO)))
    assert (refused.returncode, "run.html exists already" in refused.stderr) == (1, True)
    assert sandbox.commands("profile") == []
    forced = sandbox.run("profile", "--capture", "all", "--force", "-o", "run", str(sandbox.script(HELLO)))
    assert forced.returncode == 0, forced.stderr
    assert (sandbox.folder / "run.html").read_text() != "old"


def test_an_old_report_is_never_taken_for_the_new_one(sandbox: Sandbox) -> None:
    sandbox.script("old", "run.nsys-rep")
    os.utime(sandbox.folder / "run.nsys-rep", (1, 1))
    sandbox.behaviour["report"] = False
    done = sandbox.run("profile", "--capture", "script", "--force", "-o", "run", str(sandbox.script(HELLO)))
    assert done.returncode == 4
    assert "The capture range never started: the program never called cudaProfilerStart" in done.stderr
    assert sandbox.commands("export") == []


def test_a_report_that_nsys_put_elsewhere_is_fetched(sandbox: Sandbox, tmp_path: Path) -> None:
    elsewhere = tmp_path / "a folder/nsys-report-ab12.nsys-rep"
    elsewhere.parent.mkdir()
    sandbox.behaviour["elsewhere"] = str(elsewhere)
    done = sandbox.run("profile", "--capture", "all", "--no-html", "-o", "run", str(sandbox.script(HELLO)))
    assert done.returncode == 0, done.stderr
    assert (sandbox.folder / "run.nsys-rep").exists()
    assert not elsewhere.exists()


def test_another_runs_report_elsewhere_is_left_alone(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.behaviour |= {"elsewhere": str(tmp_path / "nsys-report-ab12.nsys-rep"), "age_s": 3600}
    done = sandbox.run("profile", "--capture", "all", "-o", "run", str(sandbox.script(HELLO)))
    assert done.returncode == 1
    assert "nsys wrote no report" in done.stderr


def test_a_stream_without_importer_is_explained(sandbox: Sandbox, tmp_path: Path) -> None:
    stream = tmp_path / "nsys-report-ab12.qdstrm"
    sandbox.behaviour["stream"] = str(stream)
    done = sandbox.run("profile", "--capture", "all", "-o", "run", str(sandbox.script(HELLO)))
    assert done.returncode == 1
    assert f"nsys left {stream}" in done.stderr
    assert f"QdstrmImporter -i {shlex.quote(str(stream))}" in done.stderr


def test_a_stream_is_imported_where_there_is_an_importer(sandbox: Sandbox, tmp_path: Path) -> None:
    folder = tmp_path / "nsight/target-linux-x64"
    folder.mkdir(parents=True)
    shutil.copy(sandbox.environment["NSYS_SYNC_NSYS"], folder / "nsys")
    importer = tmp_path / "nsight/host-linux-x64/QdstrmImporter"
    importer.parent.mkdir()
    importer.write_text('#!/bin/sh\ncp "$2" "$4"\n')
    importer.chmod(0o755)
    sandbox.behaviour["stream"] = str(tmp_path / "nsys-report-ab12.qdstrm")
    done = sandbox.run(
        "profile",
        "--nsys",
        str(tmp_path / "nsight"),
        "--capture",
        "all",
        "--no-html",
        "-o",
        "run",
        str(sandbox.script(HELLO)),
    )
    assert done.returncode == 0, done.stderr
    assert (sandbox.folder / "run.nsys-rep").read_bytes() == b"stream"
    assert not (tmp_path / "nsys-report-ab12.qdstrm").exists()


def test_a_full_disk_is_named(sandbox: Sandbox) -> None:
    sandbox.behaviour |= {"report": False, "says": "Failed to write: No space left on device"}
    done = sandbox.run("profile", "--capture", "all", "-o", "run", str(sandbox.script(HELLO)))
    assert (done.returncode, "There is no space left" in done.stderr) == (1, True)


def test_a_report_that_cannot_be_exported_names_both_versions(sandbox: Sandbox) -> None:
    sandbox.behaviour["export_fails"] = True
    report = sandbox.script("NVIDIA Tegra Profiler Report 2026@2@1@7-1v0", "new.nsys-rep")
    done = sandbox.run("export", str(report))
    assert done.returncode == 1
    assert "nsys 2025.3.2 cannot export new.nsys-rep, which nsys 2026.2.1 wrote" in done.stderr


def test_the_range_never_started(sandbox: Sandbox) -> None:
    sandbox.behaviour["report"] = False
    for capture, cause in [
        ("auto", "the program did not use CUDA through Python"),
        ("steps:1:1", "the program did not use CUDA through Python"),
        ("script", "the program never called cudaProfilerStart"),
        ("nvtx:epoch", "no NVTX range “epoch” was opened"),
    ]:
        done = sandbox.run("profile", "--capture", capture, "-o", "run", str(sandbox.script(HELLO)))
        assert done.returncode == 4
        assert f"The capture range never started: {cause}." in done.stderr
        assert "--capture" in done.stderr


def test_a_program_that_did_not_load_the_step_module_is_said(sandbox: Sandbox) -> None:
    sandbox.behaviour["report"] = False
    done = sandbox.run("profile", "-o", "run", "--", sys.executable, "-I", str(sandbox.script(HELLO)))
    assert "no Python of the program loaded the step module" in done.stderr
    sandbox.behaviour["report"] = True
    done = sandbox.run(
        "profile", "--capture", "all", "--no-html", "-o", "run", "--", sys.executable, "-I", str(sandbox.script(HELLO))
    )
    assert done.returncode == 0


# The program


def test_the_programs_failure_is_passed_on_and_its_capture_shown(sandbox: Sandbox) -> None:
    script = sandbox.script("import sys; sys.exit(7)")
    done = sandbox.run("profile", "--capture", "all", "--no-html", "-o", "run", str(script))
    assert done.returncode == 7
    assert (sandbox.folder / "run.json").exists()
    sandbox.behaviour["report"] = False
    nothing = sandbox.run("profile", "--force", "-o", "run", str(script))
    assert (nothing.returncode, "never started" in nothing.stderr) == (7, True)


@pytest.mark.parametrize("arguments", [["-m", "package.tool", "-m", "x"], ["--", sys.executable, "-m", "package.tool"]])
def test_modules_and_command_lines(sandbox: Sandbox, arguments: list[str]) -> None:
    (sandbox.folder / "package").mkdir()
    sandbox.script("import sys\nprint('tool', *sys.argv[1:])\n", "package/tool.py")
    done = sandbox.run("profile", "--capture", "all", "--no-html", "-o", "run", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["tool", *(["-m", "x"] if arguments[0] == "-m" else [])]


def test_the_program_sees_its_own_world(sandbox: Sandbox) -> None:
    """Its search path, its sitecustomize, its arguments and its input are what they would be without a profiler."""
    own = sandbox.folder / "own"
    own.mkdir()
    sandbox.script("import builtins; builtins.customised = True", "own/sitecustomize.py")
    sandbox.environment["PYTHONPATH"] = f"{own}:{sandbox.environment['PYTHONPATH']}"
    text = """
import json, sitecustomize, sys
print(json.dumps([sys.path, sitecustomize.__file__, customised, sys.argv, sys.stdin.read()]))
"""
    script = sandbox.script(text)
    process = sandbox.start(
        "profile", "--capture", "all", "--no-html", "-o", "run", str(script), "a b", "--", "-x", stdin=-1
    )
    out, err = process.communicate("typed", timeout=PATIENCE_S)
    path, customisation, customised, arguments, typed = json.loads(out.splitlines()[0])
    assert not any("inject" in entry for entry in path)
    assert str(own) in path
    assert (customisation, customised) == (str(own / "sitecustomize.py"), True)
    assert (arguments, typed) == ([str(script), "a b", "--", "-x"], "typed"), err


@pytest.mark.parametrize("keeps", [False, True])
def test_the_program_keeps_its_terminal(sandbox: Sandbox, keeps: bool) -> None:
    """Whether or not nsys hands the descriptors down."""
    sandbox.behaviour["keeps_output"] = keeps
    script = sandbox.script("import sys\nprint('terminal:', sys.stdout.isatty(), sys.stderr.isatty(), flush=True)\n")
    mine, theirs = pty.openpty()
    process = sandbox.start(
        "profile", "--capture", "all", "--no-html", "-o", "run", str(script), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while part := read(mine):
        said += part
    os.close(mine)
    assert process.wait() == 0
    assert b"terminal: True True" in said


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


PATIENT = """
import pathlib, sys, time
try:
    pathlib.Path("started").touch()
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    time.sleep({cleanup})
    sys.exit(5)
"""
PASSED_ON, STOPPING = "Passed on to the program", "Stopping at once"


def test_ctrl_c_goes_to_the_program_once_and_the_report_is_kept(sandbox: Sandbox) -> None:
    code, out, err = sandbox.interrupt(PATIENT.format(cleanup=0))
    assert code == 5
    assert out.count("interrupted") == 1
    assert "waiting for the report" in err
    assert f"Written: {sandbox.folder}/run.json" in err


def test_ctrl_c_twice_stops_and_names_what_is_left(sandbox: Sandbox) -> None:
    code, _, err = sandbox.interrupt(PATIENT.format(cleanup=600), PASSED_ON)
    assert code == 143
    assert f"Stopped. The partial report is {sandbox.folder}/run.nsys-rep." in err
    assert sandbox.commands("export") == []


def test_ctrl_c_three_times_kills(sandbox: Sandbox) -> None:
    text = """
import pathlib, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("started").touch()
time.sleep(600)
"""
    code, _, err = sandbox.interrupt(text, PASSED_ON, STOPPING)
    assert code == 137
    assert "Traceback" not in err


def test_ctrl_c_while_nsys_is_being_started_ends_the_run(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    started = launch._start

    def interrupted(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        os.kill(os.getpid(), signal.SIGINT)
        process = started(command, environment)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(launch, "_start", interrupted)
    monkeypatch.chdir(sandbox.folder)
    environment = {**sandbox.environment, "FAKE_NSYS": json.dumps(sandbox.behaviour)}
    words = [str(sandbox.script("import time; time.sleep(600)"))]
    prepared = prepare(Request(words=words, capture="all", output="run"), environment)
    assert isinstance(prepared, Launch)
    done = profile(prepared, lambda _: None, environment)
    assert done.exit_code != 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_lives_whatever_its_name_is(tmp_path: Path) -> None:
    # The kernel keeps fifteen bytes of it.
    named = tmp_path / "fourteen-bytesé"
    named.symlink_to(shutil.which("sleep") or "sleep")
    with subprocess.Popen([named, "600"]) as process:
        (tmp_path / "pid").write_text(f"{process.pid}\n")
        watched = launch._Watched(process, Session(str(tmp_path)), parse_range("all"), deque(), print)
        try:
            assert watched._program() == process.pid
        finally:
            process.kill()


def test_a_program_whose_pid_is_being_written_has_not_ended(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "pid").touch()
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        watched = launch._Watched(process, Session(str(tmp_path)), parse_range("all"), deque(), said.append)
        watched._tell_progress()
        assert said == []
        (tmp_path / "pid").write_text("0\n")
        watched._tell_progress()
        assert len(said) == 1


# Ranks


def test_other_ranks_run_plainly(sandbox: Sandbox) -> None:
    sandbox.environment |= {"RANK": "1", "WORLD_SIZE": "4"}
    done = sandbox.run("profile", "--only-ranks", "0,3", "-o", "run", str(sandbox.script(HELLO)), "x")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello x\n", "")
    assert sandbox.commands("profile") == []


def test_each_rank_has_files_of_its_own_and_one_speaks(sandbox: Sandbox) -> None:
    said = []
    for rank in (0, 3):
        sandbox.environment |= {"RANK": str(rank), "WORLD_SIZE": "4"}
        done = sandbox.run(
            "profile", "--capture", "all", "--no-html", "--only-ranks", "0,3", str(sandbox.script("pass"))
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0]
    assert not said[1]
    assert (
        len(list(sandbox.folder.glob("train-*-rank0.json")))
        == len(list(sandbox.folder.glob("train-*-rank3.json")))
        == 1
    )


def test_only_ranks_needs_ranks(sandbox: Sandbox) -> None:
    done = sandbox.run("profile", "--only-ranks", "0", str(sandbox.script(HELLO)))
    assert (done.returncode, "numbers its processes" in done.stderr) == (2, True)


# What cannot be


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "no program to run"),
        (["missing.py"], "missing.py does not exist"),
        (["no-such-command-here"], "neither a Python script nor a program on PATH"),
        (["--capture", "steps:5", "train.py"], "lacks its two numbers"),
        (["--capture", "steps:5:0", "train.py"], "captures no step"),
        (["--capture", "time:1:0", "train.py"], "captures no time"),
        (["--capture", "nvtx:", "train.py"], "is not a range"),
        (["--capture", "sometimes", "train.py"], "is not a range"),
        (["--capture", f"steps:1:{'9' * 400}", "train.py"], "lacks its two numbers"),
        (["--capture", "time:²:1", "train.py"], "lacks its two numbers"),
        (["--only-ranks", "0,x", "train.py"], "no list of ranks"),
        (["--only-ranks", "²", "train.py"], "no list of ranks"),
        (["--only-ranks", "9" * 5000, "train.py"], "no list of ranks"),
        (["-o", "{who}", "train.py"], "{who} is unknown"),
        (["-o", ".", "train.py"], "names no file"),
        (["-o", "", "train.py"], "For example: -o run"),
        ([""], "no program to run"),
        (["--nsys-arg=", "train.py"], "is no option of nsys"),
        (["--nsys-arg=--", "train.py"], "is no option of nsys"),
        (["--nsys-arg=--wait=all", "--nsys-arg=primary", "train.py"], "is no option of nsys"),
    ],
)
def test_usage_errors_run_nothing(sandbox: Sandbox, arguments: list[str], text: str) -> None:
    sandbox.script(HELLO)
    done = sandbox.run("profile", *arguments)
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
    assert sandbox.commands("profile") == []


def test_no_nsys_names_what_was_looked_at(sandbox: Sandbox) -> None:
    done = sandbox.run("profile", "--nsys", "/no/nsys", str(sandbox.script(HELLO)))
    assert (done.returncode, "looked at --nsys /no/nsys" in done.stderr) == (1, True)
    sandbox.environment["NSYS_SYNC_NSYS"] = "/no/nsys"
    done = sandbox.run("profile", str(sandbox.script(HELLO)))
    assert (done.returncode, "looked at NSYS_SYNC_NSYS=/no/nsys" in done.stderr) == (1, True)


def test_a_machine_that_forbids_sampling_is_named_before_the_run(sandbox: Sandbox) -> None:
    sandbox.behaviour["sampling"] = "Fail"
    done = sandbox.run("profile", "--capture", "all", "--no-html", "-o", "run", str(sandbox.script(HELLO)))
    assert "does not let nsys sample the CPU" in done.stderr.partition("Running")[0]


def test_a_profile_inside_a_profile_is_refused(sandbox: Sandbox) -> None:
    sandbox.environment["NSYS_SYNC_SESSION"] = "/tmp"
    done = sandbox.run("profile", str(sandbox.script(HELLO)))
    assert (done.returncode, "is being profiled by nsys-sync already" in done.stderr) == (2, True)


# What else can be asked for


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_harm_nobody(sandbox: Sandbox, closed: str) -> None:
    script = sandbox.script("import sys\nprint('out')\nprint('err', file=sys.stderr)\n")
    words = [sys.executable, "-m", "nsys_sync.cli", "profile", "--capture", "all", "-o", "run", str(script)]
    environment = {**sandbox.environment, "FAKE_NSYS": json.dumps(sandbox.behaviour)}
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *words], cwd=sandbox.folder, env=environment, check=False
    )
    assert done.returncode == 0
    assert (sandbox.folder / "run.html").exists()


def test_names_of_files_begin_with_no_dash_or_dot(sandbox: Sandbox) -> None:
    for name in ("-dash.py", ".hidden.py", "%s {time}.py"):
        sandbox.run("profile", "--capture", "all", "--no-html", f"./{sandbox.script(HELLO, name).name}")
    made = sorted(path.name.partition("-2")[0] for path in sandbox.folder.glob("*.nsys-rep"))
    assert made == ["dash", "hidden", "s-time"]


def test_a_program_that_fails_before_the_range_is_named_as_the_cause(sandbox: Sandbox) -> None:
    sandbox.behaviour["report"] = False
    done = sandbox.run("profile", str(sandbox.script("import sys; sys.exit(3)")))
    assert done.returncode == 3
    assert "never started: the program ended with exit code 3 before that" in done.stderr


def test_what_is_not_nsys_is_said_before_the_run(sandbox: Sandbox) -> None:
    done = sandbox.run("profile", "--nsys", "true", str(sandbox.script(HELLO)))
    assert (done.returncode, done.stdout) == (1, "")
    assert "does not list the options of nsys profile" in done.stderr


# A profiler that does not stop

STUCK = """
import os, pathlib
pathlib.Path(os.environ["NSYS_SYNC_SESSION"], "stuck").touch()
"""


@pytest.mark.parametrize("report", [True, False])
def test_an_nsys_that_never_finishes_is_stopped_and_its_report_kept(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, report: bool
) -> None:
    monkeypatch.setattr("nsys_sync.capture.launch._SILENCE_S", 0.5)
    monkeypatch.chdir(sandbox.folder)
    behaviour = {**sandbox.behaviour, "hangs": True, "report": report}
    environment = {**sandbox.environment, "FAKE_NSYS": json.dumps(behaviour)}
    request = Request(words=[str(sandbox.script(STUCK))], capture="all", output="run")
    prepared = prepare(request, environment)
    assert isinstance(prepared, Launch)
    said: list[str] = []
    began = time.monotonic()
    done = profile(prepared, said.append, environment)
    assert time.monotonic() - began < 60
    assert sum("nsys does not finish" in line for line in said) == 1
    assert (done.report is not None) == report
    if done.report is not None:
        assert "range-stuck" in [warning.slug for warning in done.report.trace.warnings]
    else:
        assert done.error is not None
        assert (done.error.slug, done.exit_code) == ("range-stuck", 1)
        assert "--light" in (done.error.hint or "")
