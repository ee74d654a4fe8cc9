"""Stands in for nsys: answers --version and --help like a 2025 release, runs the program, leaves what it is told to.

FAKE_NSYS is JSON: report (default true), elsewhere, stream, refuses, exit, age_s (of the report), keeps_output (closes
the descriptors that the launcher passes down), hangs (once the program has ended, until it is told to stop), says
(printed at the end), export (a file to copy as the export), export_fails, help (a file with another help).
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HELP = """
usage: nsys profile [<args>] [application] [<application args>]

\t-b, --backtrace=

\t   Possible values are 'lbr', 'fp', 'dwarf', or 'none'.

\t-c, --capture-range=

\t   Possible values are none, cudaProfilerApi, nvtx, hotkey.

\t--capture-range-end=

\t--cpuctxsw=

\t   Possible values are 'process-tree', 'system-wide', or 'none'.

\t--cuda-event-trace=

\t--cuda-graph-trace=<granularity>[:<launch origin>]

\t--cudabacktrace=

\t-f, --force-overwrite=

\t-o, --output=

\t-p, --nvtx-capture=

\t--python-backtrace=

\t--python-sampling=

\t-s, --sample=

\t   Possible values are 'process-tree', 'system-wide' or 'none'.

\t-t, --trace=

\t   Possible values are 'cuda', 'nvtx', 'osrt', 'python-gil' or 'none'.
"""
EXPORT_HELP = """
\t-f, --force-overwrite=

\t--include-blobs=

\t--include-json=

\t-l, --lazy=

\t-o, --output=

\t-q, --quiet=

\t-t, --type=
"""


def value(arguments: list[str], name: str) -> str:
    return next(argument.partition("=")[2] for argument in arguments if argument.startswith(f"{name}="))


def run(command: list[str], environment: dict[str, str], *, hangs: bool) -> int:
    """The program's exit code, when it has ended or nsys is told to stop."""
    program: subprocess.Popen[bytes] | None = None
    stops: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stops.append(number)
        if program is not None:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, number)

    signal.signal(signal.SIGTERM, stop)
    program = subprocess.Popen(command, start_new_session=True, close_fds=False, env=environment)
    if stops:
        os.killpg(program.pid, signal.SIGTERM)
    code = program.wait()
    while hangs and not stops:
        time.sleep(0.02)
    return code


def profile(arguments: list[str], behaviour: dict[str, Any]) -> int:
    if behaviour.get("refuses"):
        print(f"unrecognised option '{behaviour['refuses']}'")
        return 1
    report = Path(value(arguments, "--output").replace("%%", "%"))
    environment = dict(os.environ)
    if "FAKE_GPU" in environment:
        environment["NVTX_INJECTION64_PATH"] = environment["FAKE_GPU"]
    if behaviour.get("keeps_output"):
        os.closerange(3, 64)
    code = run(arguments[arguments.index("sh") :], environment, hangs=bool(behaviour.get("hangs")))
    if (name := behaviour.get("elsewhere")) is not None:
        report = Path(name)
        print(
            f"Failed to create '{value(arguments, '--output')}': No such file or directory.\nGenerated:\n    {report}"
        )
    if (stream := behaviour.get("stream")) is not None:
        Path(stream).write_bytes(b"stream")
        print(f"Generating '{stream}'")
    elif behaviour.get("report", True):
        report.write_bytes(b"NVIDIA Tegra Profiler Report 2025@3@2@1 and what follows")
        if age := behaviour.get("age_s"):
            os.utime(report, (time.time() - age, time.time() - age))
    print(behaviour.get("says", ""))
    return int(behaviour.get("exit", code if code >= 0 else 128 - code))


def export(arguments: list[str], behaviour: dict[str, Any]) -> int:
    if behaviour.get("export_fails"):
        print("Exportation error: it is a fake.")
        return 1
    Path(value(arguments, "--output")).write_bytes(Path(behaviour["export"]).read_bytes())
    return 0


def main() -> int:
    arguments = sys.argv[1:]
    behaviour = json.loads(os.environ.get("FAKE_NSYS", "{}"))
    if record := os.environ.get("FAKE_NSYS_RECORD"):
        with Path(record).open("a") as file:
            file.write(json.dumps(arguments) + "\n")
    if arguments == ["--version"]:
        print("NVIDIA Nsight Systems version 2025.3.2.0-253236389321v0")
    elif arguments[1:] == ["--help"]:
        print(
            Path(behaviour["help"]).read_text()
            if "help" in behaviour
            else HELP
            if arguments[0] == "profile"
            else EXPORT_HELP
        )
    elif arguments[0] == "status":
        print(f"CPU Profiling Environment (process-tree): {behaviour.get('sampling', 'OK')}")
    else:
        return {"profile": profile, "export": export}[arguments[0]](arguments[1:], behaviour)
    return 0


if __name__ == "__main__":
    sys.exit(main())
