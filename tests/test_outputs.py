"""What every command does with the names that it is given for its output, and with an output that takes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nsys_sync.errors import ExitCode
from tests.builder import TraceBuilder

PROGRAM = Path(sys.executable).parent / "nsys-sync"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    t = TraceBuilder()
    th = t.process().thread()
    th.range("epoch \x1b[2J", 0, 900)
    th.launch(10, 20, (30, 400))
    th.sync("cudaStreamSynchronize_v3020", 50, 410)
    return t.write(tmp_path / "run.sqlite")


def run(*arguments: str | Path, pass_fds: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], check=False, capture_output=True, text=True, pass_fds=pass_fds)


@pytest.mark.parametrize(
    "command",
    [
        ("report", "{trace}", "--html", "{out}"),
        ("report", "{trace}", "--save", "{out}"),
        ("diff", "{trace}", "{trace}", "--json", "{out}"),
        ("check", "{trace}", "--max-wait", "1s", "--sarif", "{out}"),
        ("check", "{trace}", "--baseline", "{trace}", "--json", "{out}"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["run.sqlite", "link"])
def test_an_input_is_never_written_over(command: tuple[str, ...], name: str, trace: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(trace)
    before = trace.read_bytes()
    done = run(*[word.format(trace=trace, out=tmp_path / name) for word in command], "--force")
    assert done.returncode == ExitCode.ERROR
    assert "is an input, which is never changed" in done.stderr
    assert trace.read_bytes() == before


def test_two_names_of_one_file_are_one_output(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    done = run("report", trace, "--json", tmp_path / "a", "--csv", tmp_path / "sub/../a")
    assert "same file" in done.stderr
    assert done.returncode == ExitCode.USAGE


def test_pipes_and_devices_are_written_without_being_replaced(trace: Path) -> None:
    read_end, write_end = os.pipe()
    done = run("report", trace, "--csv", "/dev/null", "--json", f"/dev/fd/{write_end}", pass_fds=[write_end])
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        assert json.loads(pipe.read())["format"] == 1
    assert done.returncode == 0
    assert Path("/dev/null").is_char_device()


def test_a_full_standard_output_is_said_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([PROGRAM, "rules"], check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == ExitCode.ERROR
    assert done.stderr.splitlines() == ["nsys-sync: Standard output cannot be written: No space left on device."]


@pytest.mark.parametrize(("arguments", "code"), [("rules", 0), ("rules --json -", ExitCode.ERROR)])
def test_a_closed_standard_output(arguments: str, code: int) -> None:
    done = subprocess.run(["sh", "-c", f'"{PROGRAM}" {arguments} >&-'], check=False, stderr=subprocess.PIPE, text=True)
    assert done.returncode == code
    assert "internal" not in done.stderr
    assert bool(done.stderr) == bool(code)


def test_names_from_a_trace_do_not_steer_the_terminal(trace: Path) -> None:
    done = run("report", trace, "--within", "nothing")
    assert "epoch \\x1b[2J" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_file_name_that_is_no_text(trace: Path, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff\n.sqlite"))
    trace.rename(odd)
    outputs = [f"--{kind}" for kind in ("html", "json", "csv", "perfetto", "sarif", "save")]
    names = [part for kind in outputs for part in (kind, str(tmp_path / kind[2:]))]
    done = subprocess.run([PROGRAM, "report", odd, *names], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "json").read_bytes())["trace"]["file"]
