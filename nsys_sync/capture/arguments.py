"""The command line of ``nsys profile``: only what this nsys knows, and the user's own arguments have the last word."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from nsys_sync.capture.nsys import Nsys, Options
from nsys_sync.capture.plan import CaptureRange, Detail
from nsys_sync.errors import UsageError

#: Before this version graph replays recorded as a whole are missing from the export: their kernels are traced instead.
_EXPORTS_GRAPHS = (2025, 1, 0)
#: Before this version every Python that ends before the range has begun aborts (exit 134) if it is sampled.
_SAMPLES_SAFELY = (2025, 1, 0)
#: What the launcher decides itself, by the option of ours that decides it.
_OURS = {
    "--output": "-o",
    "--force-overwrite": "--force",
    "--capture-range": "--capture",
    "--nvtx-capture": "--capture",
}


def tracing_arguments(nsys: Nsys, captured: CaptureRange, detail: Detail) -> list[str]:
    """Arguments that say what to record, without output and program. Raises UsageError, CaptureError."""
    known = nsys.profile_options
    for before, argument in zip(["", *detail.extra], detail.extra, strict=False):
        value = not argument.startswith("-") and before.startswith("-") and "=" not in before
        if not value and (not argument.startswith("-") or not argument.strip("-")):
            raise UsageError(
                "bad-nsys-arg",
                f"--nsys-arg {shlex.quote(argument)} is no option of nsys, nor the value of the one before it.",
                "For example: --nsys-arg=--gpu-metrics-devices=all",
            )
    replaced = {known.name_of(argument) for argument in detail.extra if argument.startswith("-")}
    for name in sorted(replaced & _OURS.keys()):
        raise UsageError(
            "nsys-arg-taken", f"nsys's {name} is set by nsys-sync and cannot be passed through.", f"Use {_OURS[name]}."
        )
    chosen = [*_chosen(nsys, known, captured, detail), *captured.arguments]
    kept = [argument for argument in chosen if known.name_of(argument) in known]
    return [argument for argument in kept if known.name_of(argument) not in replaced] + list(detail.extra)


def _chosen(nsys: Nsys, known: Options, captured: CaptureRange, detail: Detail) -> Iterator[str]:
    traced = ["cuda", "nvtx"]
    if detail.gil:
        if not known.allows("--trace", "python-gil"):
            raise UsageError(
                "no-gil-trace",
                f"nsys {nsys.version_name} cannot trace the GIL.",
                "Leave --gil out, or use a newer nsys.",
            )
        traced.append("python-gil")
    yield f"--trace={','.join(traced)}"
    if detail.light:
        yield "--sample=none"
    else:
        # Backtraces need CPU sampling; older versions call the program's own processes `cpu`.
        yield "--sample=process-tree" if known.allows("--sample", "process-tree") else "--sample=cpu"
        yield "--python-backtrace=cuda"
        yield f"--cudabacktrace={detail.backtrace}:0"
        if nsys.version >= _SAMPLES_SAFELY or not captured.waits:
            yield "--python-sampling=true"
    yield "--cpuctxsw=none"
    # Timing events on the device makes streams wait for one another.
    yield "--cuda-event-trace=false"
    yield f"--cuda-graph-trace={'graph' if nsys.version >= _EXPORTS_GRAPHS else 'node'}"


def profile_command(nsys: Nsys, arguments: list[str], report: Path, program: list[str]) -> list[str]:
    """The whole command line. The report's name is taken literally: nsys would fill in what follows a ``%``."""
    output = str(report).replace("%", "%%")
    return [str(nsys.path), "profile", *arguments, f"--output={output}", "--force-overwrite=true", *program]
