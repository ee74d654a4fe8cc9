"""Names that commands are given: what is no file, what cannot be a name, numbers that cannot be."""

from __future__ import annotations

import errno
import io
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nsys_sync.cli import main
from nsys_sync.errors import ExitCode
from tests.builder import TraceBuilder

LONG = "x" * 300

#: Each command with a name to read in the place of ``{}``.
READING = [
    "report {}",
    "report {}.json",
    "diff {} {}",
    "check {} --max-wait 1s",
    "check trace.sqlite --max-wait 1s --baseline {}",
    "check trace.sqlite --max-wait 1s --allow {}",
    "export {}",
    "scrub {} new.sqlite",
    "rules --rules {}",
    "rules {}:1",
]
#: Each command with a name to write in the place of ``{}``.
WRITING = [
    "report trace.sqlite --json {}",
    "report trace.sqlite --save {}",
    "diff trace.sqlite trace.sqlite --html {}",
    "check trace.sqlite --max-wait 1s --sarif {}",
    "scrub trace.sqlite {}",
    "export report.nsys-rep -o {}",
    "rules --json {}",
    "doctor --json {}",
]


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    def said(self, code: int = ExitCode.ERROR) -> str:
        """The one sentence that it ended with, and no more than a next step after it."""
        sentence, *step = self.err.splitlines()
        assert self.code == code, self.err
        assert sentence.startswith("nsys-sync: ")
        assert "internal" not in sentence
        assert len(step) == 1, self.err
        return sentence


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command, a name filled in, in a folder with a trace and what is called a report."""
    monkeypatch.chdir(tmp_path)
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(10_000, 20_000, (30_000, 400_000))
    th.sync("cudaStreamSynchronize_v3020", 50_000, 410_000)
    t.write(tmp_path / "trace.sqlite")
    Path("report.nsys-rep").write_bytes(b"a report")

    def run(command: str, name: str = "") -> Done:
        monkeypatch.setattr(sys, "argv", ["nsys-sync", *(word.format(name) for word in command.split(" "))])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return Done(end.value.code if isinstance(end.value.code, int) else 0, out, err)

    return run


@pytest.mark.parametrize("command", READING)
def test_what_is_no_file_is_named_and_not_waited_for(command: str, run: Run) -> None:
    for suffix in ("", ".json"):
        os.mkfifo(f"pipe{suffix}")
        Path(f"folder{suffix}").mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"socket{suffix}")
    for kind in ("pipe", "folder", "socket"):
        assert f"is a {kind}, not a file" in run(command, kind).said()


@pytest.mark.parametrize("command", READING)
def test_what_is_not_there_is_said_the_same_way(command: str, run: Run) -> None:
    assert "nowhere" in run(command, "nowhere").said()
    assert "does not exist." in run(command, "nowhere").said()
    assert "cannot be read: File name too long." in run(command, LONG).said()


@pytest.mark.parametrize("command", WRITING)
def test_names_that_nothing_can_be_written_to(command: str, run: Run) -> None:
    assert "cannot be written: File name too long." in run(command, LONG).said()
    assert "is a file, not a folder." in run(command, "trace.sqlite/inside").said()
    assert "does not exist." in run(command, "nowhere/inside").said()
    assert "is a folder." in run(command, ".").said()
    assert sorted(path.name for path in Path().iterdir()) == ["report.nsys-rep", "trace.sqlite"]


@pytest.mark.parametrize("name", ["perfetto", "save"])
def test_what_is_no_text_is_refused_before_anything_is_said(name: str, run: Run) -> None:
    done = run(f"report trace.sqlite --{name} -")
    assert "needs a file" in done.said(ExitCode.USAGE)
    assert not done.out


def test_the_usual_name_of_an_empty_file_is_a_list_of_nothing(run: Run) -> None:
    assert run("check trace.sqlite --max-wait 1s/capture --allow /dev/null").code == 0


@pytest.mark.parametrize("command", ["profile --dry-run {}.py", "watch {}.py", "watch {}", "profile --nsys {} -- true"])
def test_programs_whose_names_cannot_be(command: str, run: Run) -> None:
    assert run(command, LONG).said(ExitCode.ERROR if "--nsys" in command else ExitCode.USAGE)


@pytest.mark.parametrize("name", ["-x.py", "./-x.py"])
def test_a_script_that_is_named_like_an_option(name: str, run: Run) -> None:
    Path("-x.py").write_text("open('ran', 'w').close()")
    run("watch -- {}", name)
    assert Path("ran").exists()


@pytest.mark.parametrize(
    "command", ["profile --dry-run ~nobody/train.py", "profile --dry-run --nsys ~nobody/nsys true"]
)
def test_a_folder_of_nobody(command: str, run: Run) -> None:
    assert "nobody" in run(command).err


@pytest.mark.parametrize("command", ["report trace.sqlite", "rules", "profile --dry-run true", "doctor", "watch true"])
def test_a_current_folder_that_is_gone(command: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("gone").mkdir()
    monkeypatch.chdir("gone")
    Path("../gone").rmdir()
    assert "The current folder is gone" in run(command).said()


def test_where_nothing_can_be_written_a_command_is_named_that_writes_elsewhere(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    monkeypatch.setattr("nsys_sync.capture.nsys.find_nsys", lambda *_: None)
    done = run("report report.nsys-rep")
    assert "cannot be written: Read-only file system." in done.said()
    assert "nsys-sync export report.nsys-rep -o PATH" in done.err


@pytest.mark.parametrize("line", ["²", "1.5", "-1", "9" * 5000])
def test_lines_that_cannot_be(line: str, run: Run) -> None:
    assert "names no source line" in run("rules {}", f"train.py:{line}").said(ExitCode.USAGE)


@pytest.mark.parametrize(
    "option", ["report trace.sqlite --from {}", "report trace.sqlite --to {}", "check trace.sqlite --max-wait {}"]
)
def test_times_that_cannot_be(option: str, run: Run) -> None:
    for text in (f"{'9' * 400}s", "nan", "1e3ms", "²ms", "-1ms"):
        assert "is not a time" in run(option, text).said(ExitCode.USAGE)
    for text in ("1500us", "1500µs", "1500μs", "1.5ms", ".0015s"):
        assert "time" not in run(option, text).err


def test_what_a_terminal_cannot_spell_is_escaped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for errors in ("strict", "replace"):
        screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors=errors)
        monkeypatch.setattr(sys, "stdout", screen)
        assert run("check trace.sqlite --max-wait 1ns/capture --github").code == ExitCode.GATE_FAILED
        assert rb"\xb5s" in screen.buffer.getvalue()


@pytest.mark.parametrize("command", ["rules --rules {}", "check trace.sqlite --max-wait 1s --allow {}"])
def test_toml_without_a_bottom(command: str, run: Run) -> None:
    Path("deep.toml").write_text("x = " + "[" * 100_000)
    assert "is not TOML" in run(command, "deep.toml").said()


def test_json_without_a_bottom(run: Run) -> None:
    run("report trace.sqlite --json saved.json")
    whole = Path("saved.json").read_text().rstrip().removesuffix("}")
    Path("deep.json").write_text(f'{whole}, "x": {"[" * 100_000}{"]" * 100_000}}}')
    assert "not a report" in run("report deep.json").said()
