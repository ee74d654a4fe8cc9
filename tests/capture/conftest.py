"""Stand-ins for what a machine without a GPU lacks: nsys, the driver, PyTorch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE_S, wait_until

HERE = Path(__file__).parent


@dataclass
class Sandbox:
    """A folder to run the command line in, with stand-ins for nsys and, through ``gpu``, for driver and PyTorch."""

    folder: Path
    environment: dict[str, str]
    behaviour: dict[str, Any] = field(default_factory=dict)

    def script(self, text: str, name: str = "train.py") -> Path:
        """Write a program."""
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start ``nsys-sync`` with these arguments."""
        given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen(
            [sys.executable, "-m", "nsys_sync.cli", *arguments],
            cwd=self.folder,
            env={**self.environment, "FAKE_NSYS": json.dumps(self.behaviour)},
            **given,
        )

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run ``nsys-sync`` with these arguments to its end."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def interrupt(self, text: str, *awaited: str) -> tuple[int, str, str]:
        """Profile a program with a Ctrl-C as soon as it makes the file ``started``, and one as each of ``awaited`` is
        said by it or by ``nsys-sync``: exit code, output, errors.
        """
        out, err = self.folder / "out", self.folder / "err"
        with out.open("w") as stdout, err.open("w") as stderr:
            command = ("profile", "--capture", "all", "--no-html", "-o", "run", str(self.script(text)))
            process = self.start(*command, stdout=stdout, stderr=stderr)

        def is_said(words: str) -> bool:
            return words in out.read_text() + err.read_text()

        wait_until((self.folder / "started").exists)
        process.send_signal(signal.SIGINT)
        for words in awaited:
            wait_until(partial(is_said, words))
            process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE_S)
        return code, out.read_text(), err.read_text()

    def commands(self, name: str) -> list[list[str]]:
        """Arguments of every ``nsys NAME`` so far, without those that ask for help."""
        record = self.folder / "nsys-commands"
        lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
        return [line[1:] for line in lines if line[0] == name and line[1:] != ["--help"]]

    def calls(self) -> list[str]:
        """What reached driver and profiler, in order, without pids."""
        log = self.folder / "gpu-log"
        return [line.partition(" ")[2] for line in log.read_text().splitlines()] if log.exists() else []

    def calls_by_process(self) -> dict[str, list[str]]:
        """The same by process."""
        found: dict[str, list[str]] = {}
        for line in (self.folder / "gpu-log").read_text().splitlines():
            pid, _, call = line.partition(" ")
            found.setdefault(pid, []).append(call)
        return found


@pytest.fixture
def sandbox(tmp_path: Path, sample: Callable[[str], Path]) -> Sandbox:
    """An nsys that leaves a report, and exports a recorded trace for it."""
    folder = tmp_path / "work"
    folder.mkdir()
    nsys = tmp_path / "nsys"
    nsys.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{HERE / "fake_nsys.py"}" "$@"\n')
    nsys.chmod(0o755)
    kept = ("PATH", "HOME", "LANG", "TMPDIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {
        "PYTHONPATH": str(HERE.parent.parent),
        "NSYS_SYNC_NSYS": str(nsys),
        "FAKE_NSYS_RECORD": str(folder / "nsys-commands"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return Sandbox(folder, environment, {"export": str(sample("probe-sync"))})


@pytest.fixture(scope="session")
def gpu_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for libcuda and the NVTX library, built with the C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler for the stand-in of the CUDA driver")
    library = tmp_path_factory.mktemp("gpu") / "libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(HERE / "fake_gpu.c")]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def gpu(sandbox: Sandbox, gpu_library: Path) -> Sandbox:
    """A sandbox whose programs find a driver, a profiler that listens, and a package called torch."""
    sandbox.environment |= {
        "FAKE_GPU": str(gpu_library),
        "FAKE_GPU_LOG": str(sandbox.folder / "gpu-log"),
        "PYTHONPATH": f"{sandbox.environment['PYTHONPATH']}:{HERE / 'site-packages'}",
    }
    return sandbox
