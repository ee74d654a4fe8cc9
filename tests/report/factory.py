"""Reports and timelines for tests: a small valid one to change, and Hypothesis strategies for any."""

from __future__ import annotations

import types
import typing
from typing import Any

import hypothesis.strategies as st
import msgspec
import numpy as np

from nsys_sync.analysis import findings as f
from nsys_sync.analysis.timeline import CallColumns, GapColumns, OpColumns, RangeColumns, Timeline

MS = 1_000_000


def make_site(number: int = 0, **changes: Any) -> f.Site:
    """An avoidable ``.cpu()`` in train.py; number moves its line and shortens its wait."""
    wait = (20 - number % 20) * MS
    line = 14 + number
    values: dict[str, Any] = {
        "id": f"site{number:04d}",
        "rule": "copy-to-cpu",
        "title": "Tensor copied to the CPU",
        "class_": "avoidable",
        "class_basis": "the value is only printed",
        "fix": f.Fix(text="Copy into pinned memory.", before="x.cpu()", after="y.copy_(x)", effort=2, docs="https://x"),
        "file": "/home/me/project/train.py",
        "line": line,
        "function": "step",
        "source": f.SourceLine(lines={line - 1: "    y = 1", line: "    h = out.cpu()", line + 1: ""}, sha256="0" * 64),
        "source_status": "captured",
        "leaf": f.Frame(function="cpu", file="/usr/lib/python3.12/site-packages/torch/_tensor.py", line=7),
        "stack": [
            f.Frame(function="cpu", file="/usr/lib/python3.12/site-packages/torch/_tensor.py", line=7),
            f.Frame(function="step", file="/home/me/project/train.py", line=line),
            f.Frame(function="<module>", file="/home/me/project/train.py", line=99),
        ],
        "stack_origin": "exact",
        "apis": {"cudaMemcpyAsync": 10, "cudaStreamSynchronize": 10},
        "calls": 20,
        "events": 10,
        "calls_per_step": 2.0,
        "wait_ns": f.Spread(total=wait, median=wait // 10, max=wait // 5),
        "idle_ns": f.SiteIdle(sync_wait=wait // 4, sync_refill=wait // 4, sync_overhead=1000),
        "copy_in_call_ns": 1000,
        "recoverable_ns": wait // 2,
        "bytes": 4096,
        "by_process": [
            f.SiteProcess(
                pid=41,
                calls=20,
                events=10,
                wait_ns=wait,
                recoverable_ns=wait // 2,
                in_loop=f.InLoop(events=10, wait_ns=wait),
            )
        ],
        "by_device": [f.SiteDevice(device=0, sync_wait=wait // 4, sync_refill=wait // 4, sync_overhead=1000)],
        "threads": 1,
        "what_if": None,
    }
    return f.Site(**(values | changes))


def make_report(sites: list[f.Site] | None = None, **changes: Any) -> f.Report:
    """One process on one GPU, 200 ms, half of it idle."""
    sites = [make_site(n) for n in range(3)] if sites is None else sites
    wait = sum(s.wait_ns.total for s in sites)
    causes = f.IdleByCause(
        sync_wait=10 * MS,
        sync_refill=30 * MS,
        sync_overhead=MS,
        host=50 * MS,
        device=8 * MS,
        alloc=0,
        tail=MS,
        unknown=0,
    )
    values: dict[str, Any] = {
        "format": f.FORMAT,
        "tool": f.Tool(name="nsys-sync", version="0.0"),
        "trace": f.TraceInfo(
            file="run.sqlite",
            sha256="0" * 64,
            nsys_version="2025.3.2",
            schema_version="3.20.3",
            driver="580.1",
            cuda="13.0",
            captured_utc="2025-11-01T10:00:00Z",
            python_frames="recorded",
            capture=f.Capture(
                flags=["--python-backtrace=cuda"],
                backtrace="cuda",
                sampling=True,
                graphs=None,
                slowdown=f.Slowdown(step_ns_before=9 * MS, step_ns_inside=10 * MS, ratio=10 / 9),
                target_exit=0,
            ),
            devices=[f.DeviceName(id=0, name="NVIDIA H200")],
            processes=[f.ProcessName(pid=41, name="python", rank=None)],
            warnings=[],
        ),
        "headline": f.Headline(slug="sync_bound", text="Syncs cost 40 ms of the GPU's 100 ms idle time."),
        "devices": [
            f.DeviceTime(
                device=0,
                window_ns=200 * MS,
                busy_ns=100 * MS,
                compute_busy_ns=99 * MS,
                copy_only_ns=f.CopyOnly(blocking=MS, async_=0),
                idle_ns=100 * MS,
                idle_by_cause_ns=causes,
                idle_status="measured",
                idle_reason=None,
                gaps=12,
            )
        ],
        "totals": f.Totals(
            host_blocking_calls=sum(s.calls for s in sites),
            sync_events=sum(s.events for s in sites),
            device_waits=3,
            wait_ns=wait,
            host_blocked_ns=wait,
            thread_blocked_ns=wait,
            idle_ns=100 * MS,
            idle_from_syncs_ns=40 * MS,
            recoverable_ns=wait // 2,
            recoverable_all_ns=wait // 2,
        ),
        "sites": sites,
        "steps": [f.Steps(pid=41, count=10, source="nvtx", mean_ns=20 * MS, median_ns=20 * MS, name="step *")],
        "gaps": f.Gaps(
            total=12, shown=1, items=[f.Gap(device=0, start_ns=0, end_ns=MS, cause="sync_refill", site="site0000")]
        ),
        "what_if": f.WhatIfs(
            all=f.WhatIf(
                step_ns_now=20 * MS,
                step_ns_low=15 * MS,
                step_ns_high=17 * MS,
                gpu_bound_ns=10 * MS,
                confidence="medium",
                reasons=["one thread launches"],
            ),
            by_class={},
        ),
    }
    return f.Report(**(values | changes))


#: Strings as a trace may hold them: markup, escapes, marks of direction, separators, what ends a script element.
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202egnp.exe\u2066",
    "[bold]not bold[/bold] [/]",
    "line\nbreak\r\ttab",
    "\u2028\u2029",
    "\"'`${x}&amp;",
    '=HYPERLINK("http://x")',
    "\ud800",
    "",
    "x" * 10_000,
]


def text() -> st.SearchStrategy[str]:
    """Any text, surrogates included, and often hostile text."""
    return st.one_of(st.sampled_from([h[:200] for h in HOSTILE]), st.text(max_size=40), st.just("/home/me/train.py"))


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that findings uses."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([values_of(a) for a in args])
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is list:
        return st.lists(values_of(args[0]), max_size=4)
    if origin is dict:
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=4)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.builds(kind, **{field.name: values_of(field.type) for field in msgspec.structs.fields(kind)})
    return {
        str: text(),
        int: st.integers(-9, 2**70),
        float: st.floats(0, 1e6),
        bool: st.booleans(),
        type(None): st.none(),
    }[kind]


def reports() -> st.SearchStrategy[f.Report]:
    """Any report, consistent or not."""
    return values_of(f.Report).map(lambda r: msgspec.structs.replace(r, format=f.FORMAT))


def make_timeline(
    steps: int = 10, kernels: int = 20, processes: int = 1, sites: int = 3, names: int = 5, hostile: str = ""
) -> Timeline:
    """A loop: each step launches kernels on one stream, copies on another, then blocks once; a gap follows.

    Process p runs on device p. Sites take turns. hostile is added to every name.
    """
    step_ns = kernels * 10_000 + 200_000
    count = steps * processes
    process = np.repeat(np.arange(processes), steps)
    begin = np.tile(np.arange(steps) * step_ns, processes) + process * 1_000
    pid = 41 + process << 24
    tid = pid | (process + 1041)

    launches = np.arange(kernels) * 4_000
    launch_start = (begin[:, None] + launches).ravel()
    sync_start = begin + kernels * 4_000
    sync_end = begin + kernels * 10_000 + 60_000
    start = np.concatenate((launch_start, sync_start))
    end = np.concatenate((launch_start + 3_000, sync_end))
    order = np.lexsort((-end, start))
    none = np.full(count * kernels, -1)
    event = np.arange(count)

    def calls(of_launches: Any, of_syncs: Any) -> Any:
        return np.concatenate((np.broadcast_to(of_launches, count * kernels), of_syncs))[order].astype(np.int64)

    call_columns = CallColumns(
        start=start[order].astype(np.int64),
        end=end[order].astype(np.int64),
        tid=calls(np.repeat(tid, kernels), tid),
        pid=calls(np.repeat(pid, kernels), pid),
        name=calls(0, np.full(count, 1)),
        category=calls(1, np.full(count, 2)),
        site=calls(none, event % sites),
        event=calls(none, event),
    )
    row_of = np.empty(len(order), dtype=np.int64)
    row_of[order] = np.arange(len(order))

    op_start = (begin[:, None] + 20_000 + np.arange(kernels) * 10_000).ravel()
    op_order = np.lexsort((op_start + 9_000, op_start))
    op_pid = np.repeat(pid, kernels)
    copies = np.tile(np.arange(kernels) % 7 == 6, count)

    def ops(values: Any) -> Any:
        return np.broadcast_to(values, count * kernels)[op_order].astype(np.int64)

    op_columns = OpColumns(
        start=ops(op_start),
        end=ops(op_start + 9_000),
        device=ops((op_pid >> 24) - 41),
        context=ops(1),
        stream=ops(np.where(copies, 14, 7)),
        pid=ops(op_pid),
        kind=ops(np.where(copies, 1, 0)),
        name=ops(np.where(copies, -1, np.tile(np.arange(kernels) % names, count))),
        call=ops(row_of[: count * kernels]),
    )
    op_row = np.empty(len(op_order), dtype=np.int64)
    op_row[op_order] = np.arange(len(op_order))

    inner = np.flatnonzero(np.arange(count) % steps != steps - 1)
    gap_start, gap_end = begin[inner] + 20_000 + kernels * 10_000 - 1_000, begin[inner] + step_ns + 20_000
    length = gap_end - gap_start
    causes = np.zeros((len(inner), 8), dtype=np.int64)
    causes[:, 0] = length // 3
    causes[:, 1] = length // 2
    causes[:, 3] = length - causes.sum(axis=1)
    gap_columns = GapColumns(
        device=process[inner],
        start=gap_start,
        end=gap_end,
        next_op=op_row[(inner + 1) * kernels],
        site=inner % sites,
        causes=causes,
    )
    range_order = np.argsort(begin, kind="stable")
    ranges = RangeColumns(
        start=begin[range_order],
        end=(begin + step_ns - 5_000)[range_order],
        tid=tid[range_order],
        pid=pid[range_order],
        name=np.zeros(count, dtype=np.int64),
        step=np.tile(np.arange(steps), processes)[range_order],
    )
    return Timeline(
        calls=call_columns,
        ops=op_columns,
        gaps=gap_columns,
        ranges=ranges,
        call_names=["cudaLaunchKernel" + hostile, "cudaStreamSynchronize" + hostile],
        op_names=[f"void at::native::vectorized_elementwise_kernel<{n}>(int, float*){hostile}" for n in range(names)],
        range_names=["step" + hostile],
        thread_names={int(t): "python" + hostile for t in np.unique(tid)},
        start_ns=0,
        end_ns=int(steps * step_ns + 30_000),
    )


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Any timeline that keeps the door's promises: sorted columns, indices in range or -1, times in any order else."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_calls, n_ops, n_gaps, n_ranges = (draw(st.integers(0, 60)) for _ in range(4))
    processes = draw(st.integers(1, 4))
    end = draw(st.sampled_from([1, 50, 10_000, 10**9, 10**14]))
    names = draw(st.lists(text(), min_size=1, max_size=4))
    sites = draw(st.integers(0, 5))

    def extents(number: int) -> tuple[Any, Any]:
        start = np.sort(rng.integers(-5, end, number))
        length = rng.integers(0, max(2, end // draw(st.sampled_from([1, 10, 1000]))), number)
        length[rng.random(number) < 0.1] = 0
        return start, start + length

    def any_of(low: int, high: int, number: int) -> Any:
        return rng.integers(low, max(low + 1, high), number)

    call_start, call_end = extents(n_calls)
    op_start, op_end = extents(n_ops)
    range_start, range_end = extents(n_ranges)
    gap_start, gap_end = extents(n_gaps)
    category = any_of(0, 5, n_calls)
    blocking = category == 2
    tid = (any_of(41, 41 + processes, n_calls) << 24) | any_of(1, 40, n_calls)
    device = np.sort(any_of(0, 3, n_gaps))
    causes = any_of(0, 10, 8 * n_gaps).reshape(n_gaps, 8)
    return Timeline(
        calls=CallColumns(
            start=call_start,
            end=call_end,
            tid=tid,
            pid=tid >> 24 << 24,
            name=any_of(0, len(names), n_calls),
            category=category,
            site=np.where(blocking, any_of(-1, sites, n_calls), -1),
            event=np.where(blocking, np.cumsum(blocking) // 2, -1),
        ),
        ops=OpColumns(
            start=op_start,
            end=op_end,
            device=any_of(0, 3, n_ops),
            context=any_of(1, 3, n_ops),
            stream=any_of(1, 30, n_ops),
            pid=any_of(41, 41 + processes, n_ops) << 24,
            kind=any_of(0, 4, n_ops),
            name=any_of(-1, len(names), n_ops),
            call=any_of(-1, n_calls, n_ops),
        ),
        gaps=GapColumns(
            device=device,
            start=gap_start,
            end=gap_end,
            next_op=any_of(-1, n_ops, n_gaps),
            site=any_of(-1, sites, n_gaps),
            causes=causes,
        ),
        ranges=RangeColumns(
            start=range_start,
            end=range_end,
            tid=(any_of(41, 41 + processes, n_ranges) << 24) | 7,
            pid=any_of(41, 41 + processes, n_ranges) << 24,
            name=any_of(0, len(names), n_ranges),
            step=any_of(-1, 5, n_ranges),
        ),
        call_names=names,
        op_names=names,
        range_names=names,
        thread_names={int(t): names[0] for t in tid[:3]},
        start_ns=0,
        end_ns=end,
    )
