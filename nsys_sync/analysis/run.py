"""The whole analysis in one function: read ``_found`` from top to bottom to know what the tool does."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nsys_sync.analysis.assemble.found import Findings
from nsys_sync.analysis.assemble.report import make_report
from nsys_sync.analysis.assemble.timeline import make_timeline
from nsys_sync.analysis.calls import connect, find_blocking
from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.analysis.findings import Report
from nsys_sync.analysis.gil import held_while_others_waited
from nsys_sync.analysis.idle import blame
from nsys_sync.analysis.options import Options
from nsys_sync.analysis.sites import Users, find_sites
from nsys_sync.analysis.source import Sources
from nsys_sync.analysis.stacks import find_stacks
from nsys_sync.analysis.steps import find_steps
from nsys_sync.analysis.timeline import Timeline
from nsys_sync.analysis.whatif.predictor import Predictor
from nsys_sync.analysis.window import choose_window
from nsys_sync.errors import NothingToAnalyze
from nsys_sync.trace.reader import Trace, open_trace


def analyze(path: str | Path, options: Options | None = None) -> Report:
    """Find every place where the host waits for the GPU in one export, and what it costs.

    Raises InputError when the file is not a readable export, NothingToAnalyze when it holds no CUDA activity,
    UsageError when the options ask for a window that is not there.
    """
    with _found(path, options or Options()) as (_, report):
        return report


def analyze_and_draw(path: str | Path, options: Options | None = None) -> tuple[Report, Timeline]:
    """The same, and the timeline behind it for what draws one."""
    with _found(path, options or Options()) as (findings, report):
        return report, make_timeline(findings, report)


@contextmanager
def _found(path: str | Path, options: Options) -> Iterator[tuple[Findings, Report]]:
    """What there is in a trace, and the report of it, while the trace is open."""
    catalogue = Catalogue.load(options.rules)
    with _no_cycles(), open_trace(path) as trace:
        _refuse_nothing(trace)
        activity = connect(trace)
        blocking, events = find_blocking(trace, activity)
        steps = find_steps(trace.ranges, activity, options.step)
        window = choose_window(options, trace.ranges, steps)
        steps = [s for s in (s.within(window.low, window.high) for s in steps) if len(s.row)]
        stacks = find_stacks(trace, activity, blocking, events)
        users = Users(options.project, options.library)
        places, site = find_sites(stacks, blocking, events, activity.names_of(blocking.row), users)
        charged = blame(activity, blocking, events, window)
        gil_held = None if trace.gil is None else held_while_others_waited(trace.gil, activity, blocking, events)
        predictor = Predictor.build(trace, activity, blocking, events, steps, charged, options)
        findings = Findings(
            trace=trace,
            activity=activity,
            blocking=blocking,
            events=events,
            steps=steps,
            window=window,
            stacks=stacks,
            users=users,
            places=places,
            site=site,
            charged=charged,
            gil_held=gil_held,
            predictor=predictor,
        )
        sources = Sources(trace.capture.sources if trace.capture else {}, options.maps)
        yield findings, make_report(findings, sources, catalogue)


def _refuse_nothing(trace: Trace) -> None:
    """Without calls there is nothing that could have waited."""
    if not len(trace.calls) and not len(trace.ops):
        raise NothingToAnalyze(
            "no-cuda-activity",
            f"No CUDA activity was recorded in {trace.path}.",
            "Likely causes, most frequent first: the capture range never reached the GPU work; CUDA tracing was "
            "off (-t cuda); the work ran in a process that nsys did not follow; another profiler "
            "(torch.profiler) held CUPTI.",
        )
    if not len(trace.calls):
        raise NothingToAnalyze(
            "no-api-calls",
            f"No CUDA API calls are in {trace.path}, only GPU work, so nothing tells where the CPU waited.",
            "Export the report again with all its tables, or profile again: nsys-sync profile SCRIPT",
        )


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Keep the collector of reference cycles from looking again and again at a million small tuples that have none: it
    takes a tenth of the time for a large trace.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
