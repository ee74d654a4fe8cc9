"""The program as it is installed: quick to ask, and described as it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from nsys_sync._version import __version__
from nsys_sync.cli import app
from nsys_sync.errors import ExitCode
from scripts import readme

COMMANDS = sorted(typer.main.get_group(app).commands)
PROGRAM = Path(sys.executable).parent / "nsys-sync"


@pytest.mark.parametrize("arguments", [[], *([command] for command in COMMANDS)], ids=lambda a: " ".join(a) or "itself")
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from nsys_sync.cli import main\n"
        f"sys.argv = ['nsys-sync', *{arguments}, '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(*sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage: nsys-sync" in done.stdout
    assert not {"numpy", "pandas", "plotly", "msgspec", "sqlite_utils"} & set(done.stderr.split())


def test_help_says_of_each_command_what_it_does_in_one_line() -> None:
    done = subprocess.run([PROGRAM, "-h"], capture_output=True, text=True, check=True, env={"COLUMNS": "80"})
    lines = done.stdout.partition("Commands:\n")[2].splitlines()
    assert sorted(line.split()[0] for line in lines) == COMMANDS
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)


def test_version_has_one_source() -> None:
    done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"nsys-sync {__version__}\n"


def test_readme_lists_the_commands_that_there_are() -> None:
    text = (readme.ROOT / "README.md").read_text()
    assert sorted(set(re.findall(r"^\| `nsys-sync (\w+)", text, flags=re.MULTILINE))) == COMMANDS


@pytest.mark.parametrize("page", ["README.md", "docs/errors.md"])
def test_documents_list_the_exit_codes_that_there_are(page: str) -> None:
    text = (readme.ROOT / page).read_text()
    assert [int(code) for code in re.findall(r"^\| (\d) \|", text, flags=re.MULTILINE)] == list(map(int, ExitCode))
