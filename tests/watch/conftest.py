"""Programs to watch, and a package called torch whose operations warn as PyTorch's do, without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE_S

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass
class Workplace:
    """A folder with programs, and the command line to run on them."""

    folder: Path
    environment: dict[str, str]

    def script(self, text: str, name: str = "train.py") -> Path:
        """Write a program."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start ``nsys-sync`` with these arguments."""
        given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        command = [sys.executable, "-m", "nsys_sync.cli", *arguments]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **given)

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run ``nsys-sync`` with these arguments to its end."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def watch(self, text: str, *options: str) -> dict[str, Any]:
        """What ``nsys-sync watch`` finds in a program that ends well, as its JSON says."""
        done = self.run("watch", "--json", "seen.json", "--force", *options, str(self.script(text)))
        assert done.returncode == 0, done.stderr
        return self.seen()

    def seen(self) -> dict[str, Any]:
        """The JSON of the last watch."""
        found: dict[str, Any] = json.loads((self.folder / "seen.json").read_text())
        return found

    def python(self, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program by itself."""
        command = [sys.executable, str(self.script(text, "alone.py")), *arguments]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )


def calls_by_line(report: dict[str, Any]) -> dict[int, int]:
    """Calls at each line of the program."""
    found: dict[int, int] = {}
    for site in report["sites"]:
        found[site["line"]] = found.get(site["line"], 0) + site["calls"]
    return found


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    """Programs here find the package called torch."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE / 'site-packages'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return Workplace(tmp_path, environment)
