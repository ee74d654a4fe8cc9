"""The command line without a process of its own, for tests of what a command answers."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from nsys_sync import cli


def run(folder: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """``nsys-sync ARGUMENTS`` in that folder, as a pipe of 100 columns."""
    command = ["nsys-sync", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    code = 0
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, {"COLUMNS": "100", **environment}),
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
    return subprocess.CompletedProcess(command, code, said(out), said(err))


def said(stream: io.TextIOWrapper) -> str:
    """What was written."""
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8")
