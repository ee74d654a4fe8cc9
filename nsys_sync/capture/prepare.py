"""What a person asked for becomes a run that can be started: everything that can be known before is checked here."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nsys_sync.capture.arguments import profile_command, tracing_arguments
from nsys_sync.capture.naming import Program, find_program, make_folder, output_base, own_rank, with_suffix
from nsys_sync.capture.nsys import Nsys, find_nsys
from nsys_sync.capture.plan import CaptureRange, Detail, parse_range
from nsys_sync.capture.target import SESSION_VARIABLE
from nsys_sync.errors import UsageError

_LITTLE_SPACE = 2 << 30


@dataclass(frozen=True)
class Request:
    """What a person asked for. words: the program and its arguments; output: of ``-o``; source: keep source files."""

    words: Sequence[str]
    capture: str = "auto"
    detail: Detail = field(default_factory=Detail)
    nsys: str | None = None
    output: str | None = None
    force: bool = False
    source: bool = True
    only_ranks: frozenset[int] | None = None


@dataclass(frozen=True)
class Launch:
    """A run that can be started: everything about it was checked.

    base: absolute path of its files without their endings. speaks: whether it prints its report; of several ranks one
    does. source: whether source code may be written into the run's files.
    """

    nsys: Nsys
    program: Program
    captured: CaptureRange
    arguments: list[str]
    base: Path
    warnings: list[tuple[str, str]]
    speaks: bool
    source: bool = True

    @property
    def report(self) -> Path:
        """Where nsys is told to write."""
        return with_suffix(self.base, ".nsys-rep")

    def command(self, program: Sequence[str]) -> list[str]:
        """The nsys command line that runs the program."""
        return profile_command(self.nsys, self.arguments, self.report, list(program))

    @property
    def shown(self) -> str:
        """The whole command line, as a shell takes it."""
        return shlex.join(self.command(self.program.command))


def prepare(request: Request, environment: Mapping[str, str] | None = None) -> Launch | Program:
    """Check everything that can be checked before the program runs.

    A Program alone means that this rank is not to be profiled. Raises UsageError, OutputError, CaptureError.
    """
    environment = dict(os.environ) if environment is None else environment
    program = find_program(request.words, environment)
    captured = parse_range(request.capture)
    rank = own_rank(environment)
    if request.only_ranks is not None:
        if rank is None:
            raise UsageError(
                "no-rank",
                "--only-ranks needs a launcher that numbers its processes (torchrun, mpirun, srun).",
                "For example: torchrun --nproc-per-node 4 --no-python nsys-sync profile --only-ranks 0 train.py",
            )
        if rank not in request.only_ranks:
            return program
    if SESSION_VARIABLE in environment:
        raise UsageError(
            "profiled-already",
            "This program is being profiled by nsys-sync already.",
            "Profile only the outermost one.",
        )
    nsys = find_nsys(request.nsys, environment)
    arguments = tracing_arguments(nsys, captured, request.detail)
    base = output_base(request.output, program, environment, force=request.force)
    warnings = [] if request.detail.light else list(_sampling_refused(nsys))
    speaks = rank is None or rank == min(request.only_ranks or {0})
    return Launch(nsys, program, captured, arguments, base, warnings, speaks, request.source)


def check_place(base: Path) -> Iterator[tuple[str, str]]:
    """Make the folder that the run writes into; warnings if there is little space. Raises OutputError."""
    make_folder(base)
    for folder in dict.fromkeys((base.parent, Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(folder).free
        if free < _LITTLE_SPACE:
            yield "little-space", f"Only {free >> 20} MiB are free on {folder}; a capture may need more."


def _sampling_refused(nsys: Nsys) -> Iterator[tuple[str, str]]:
    if nsys.sampling_refusal is not None:
        text = (
            f"This machine does not let nsys sample the CPU{_paranoid()}: backtraces will be missing, and syncs are "
            "named by their API alone. As root: sysctl kernel.perf_event_paranoid=2; in a container allow "
            "perf_event_open (--cap-add SYS_ADMIN, or a seccomp profile with it)."
        )
        yield "no-cpu-sampling", text


def _paranoid() -> str:
    try:
        level = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
    except OSError:
        return ""
    return f" (perf_event_paranoid is {level})"
