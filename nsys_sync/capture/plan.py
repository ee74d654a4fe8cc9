"""What to capture: the range, in the words of ``--capture``, and what it means for nsys and for the target."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from nsys_sync.errors import UsageError

Mode = Literal["auto", "steps", "time", "nvtx", "script", "all"]

_FORMS = "auto, steps:SKIP:COUNT, time:DELAY:SECONDS, nvtx:NAME, script or all"
#: No number here needs more digits, and every number of these can be taken.
_WHOLE = r"[0-9]{1,9}"
_PROFILER_API = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")


@dataclass(frozen=True)
class CaptureRange:
    """A parsed ``--capture``.

    spec: as people write it. arguments: what nsys is told. target: the plan for the module in the target.
    modules: the target's modules to start. environment: what else the target's environment needs.
    """

    spec: str
    mode: Mode
    arguments: tuple[str, ...]
    target: dict[str, object]
    modules: tuple[str, ...] = ("capture",)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether nsys collects nothing until the range begins."""
        return self.mode != "all"


def parse_range(spec: str) -> CaptureRange:
    """Read ``--capture``. Raises UsageError."""
    mode, _, rest = spec.partition(":")
    if spec == "auto":
        return CaptureRange(spec, "auto", _PROFILER_API, {"mode": "auto"})
    if spec == "script":
        return CaptureRange(spec, "script", _PROFILER_API, {"mode": "marks"})
    if spec == "all":
        return CaptureRange(spec, "all", (), {"mode": "marks"})
    if mode == "steps":
        skip, count = _numbers(spec, rest, rf"({_WHOLE}):({_WHOLE})")
        if count < 1:
            raise UsageError("bad-capture-range", f"--capture {spec} captures no step.", "For example: steps:10:20")
        return CaptureRange(
            spec, "steps", _PROFILER_API, {"mode": "steps", "skip": max(1, int(skip)), "steps": int(count)}
        )
    if mode == "time":
        delay, seconds = _numbers(spec, rest, rf"({_WHOLE}(?:\.\d+)?):({_WHOLE}(?:\.\d+)?)")
        if seconds <= 0:
            raise UsageError("bad-capture-range", f"--capture {spec} captures no time.", "For example: time:30:5")
        plan: dict[str, object] = {"mode": "time", "delay_s": delay, "duration_s": seconds}
        return CaptureRange(spec, "time", _PROFILER_API, plan, modules=("capture", "clock"))
    if mode == "nvtx" and rest:
        # Without a domain: the range in any of them, whether its text is registered or not.
        where = rest if "@" in rest else f"{rest}@*"
        arguments = ("--capture-range=nvtx", f"--nvtx-capture={where}", "--capture-range-end=stop")
        environment = {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}
        return CaptureRange(spec, "nvtx", arguments, {"mode": "marks"}, environment=environment)
    raise UsageError("bad-capture-range", f"--capture {spec!r} is not a range that can be captured.", f"Use {_FORMS}.")


def _numbers(spec: str, text: str, pattern: str) -> tuple[float, float]:
    found = re.fullmatch(pattern, text)
    if found is None:
        raise UsageError("bad-capture-range", f"--capture {spec} lacks its two numbers.", f"Use {_FORMS}.")
    return float(found[1]), float(found[2])


def parse_ranks(text: str) -> frozenset[int]:
    """Read ``--only-ranks 0,3``. Raises UsageError."""
    numbers = text.replace(" ", "").split(",")
    if not all(re.fullmatch(_WHOLE, number) for number in numbers):
        raise UsageError("bad-ranks", f"--only-ranks {text} is no list of ranks.", "For example: --only-ranks 0,3")
    return frozenset(map(int, numbers))


@dataclass(frozen=True)
class Detail:
    """How much to record: which CUDA calls get a backtrace, none at all, the GIL too; further arguments for nsys."""

    backtrace: Literal["sync", "all"] = "sync"
    light: bool = False
    gil: bool = False
    extra: tuple[str, ...] = ()
