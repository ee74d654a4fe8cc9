"""What ``watch`` prints."""

from __future__ import annotations

import io
from typing import Any

import pytest

from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.analysis.sites import Users
from nsys_sync.analysis.watch.assemble import report
from nsys_sync.analysis.watch.findings import WatchReport
from nsys_sync.analysis.watch.seen import Seen, decode
from nsys_sync.report import watch_text


def stack(line: int, calls: int, **more: Any) -> dict[str, Any]:
    return {
        "seen_by": "pytorch",
        "api": "cudaStreamSynchronize",
        "frames": [line],
        "calls": calls,
        "allowed": 0,
        "in_loop": 0,
        "waits": {},
        "total_ns": None,
        "max_ns": None,
        "copy": None,
        "max_bytes": None,
        "threads": [1],
        **more,
    }


def process(*stacks: dict[str, Any], file: str = "/home/me/train.py", **more: Any) -> dict[str, Any]:
    return {
        "pid": 10,
        "name": "train.py",
        "rank": None,
        "steps": 0,
        "steps_counted": 0,
        "steps_from": None,
        "left_out": 0,
        "stopped_at": None,
        "frames": [("step", file, line) for line in range(200)],
        "stacks": list(stacks),
        "sources": {},
        "torch": "2.13.0",
        "debug_mode": True,
        "frameworks": ["torch"],
        "cuda": True,
        "final": True,
        **more,
    }


def made(*processes: dict[str, Any], after_steps: int = 0) -> WatchReport:
    return report(Seen("train.py", decode(processes), 0, 0, after_steps), Users(), Catalogue.load())


def shown(found: WatchReport, width: int = 80, **options: Any) -> str:
    out = io.StringIO()
    watch_text.render(found, file=out, width=width, **options)
    return out.getvalue()


@pytest.mark.parametrize("width", [24, 40, 80, 140, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = shown(made(process(*[stack(line, 10**6 + line) for line in range(1, 30)])), width)
    assert [line for line in text.splitlines() if len(line) > width and "nsys-sync rules" not in line] == []
    assert "train.py:29" in text.replace("\n", "").replace(" ", "")


def test_a_shortened_list_says_so() -> None:
    found = made(process(*[stack(line, line) for line in range(1, 31)]))
    assert "20 of 30 sites, 465 calls" in shown(found)
    assert ": 30 sites, 465 calls" in shown(found, limit=None)


def test_no_syncs_is_said_with_what_was_not_seen() -> None:
    text = shown(made(process()))
    assert "No wait for the GPU was seen." in text
    assert "Not seen: waits inside C++ code" in text


def test_times_are_of_timed_calls_only() -> None:
    timed = stack(5, 4, seen_by="torch.cuda.synchronize", api="cudaDeviceSynchronize")
    timed |= {"waits": {1_000_000: 1, 2_000_000: 2, 9_000_000: 1}, "total_ns": 14_000_000, "max_ns": 9_000_000}
    found = made(process(timed, stack(6, 2)))
    assert found.sites[0].wait_ns is not None
    assert (found.sites[0].wait_ns.median, found.sites[0].wait_ns.max) == (2_000_000, 9_000_000)
    text = shown(found)
    assert "2.00 ms" in text
    assert "–" in text
    assert "time: only of calls that Python can time" in text


def test_hostile_names_do_nothing() -> None:
    found = made(process(stack(1, 1), file="/tmp/\x1b[31m[bold]<b>\n.py"))
    text = shown(found, color=True, width=140)
    assert "\x1b[31m[bold]" not in text
    assert "\\x1b[31m[bold]<b>\\x0a.py:1" in text


def test_lines_of_one_place_are_one_site_and_leaves_are_told_apart() -> None:
    frames = [("item", "/lib/site-packages/torch/_tensor.py", 9), ("to", "/lib/site-packages/torch/_tensor.py", 5)]
    words = process(
        stack(0, 3, frames=[0, 2]), stack(0, 2, frames=[0, 2, 3]), stack(0, 1, frames=[1, 2]), stack(0, 4, frames=[2])
    )
    words["frames"] = [*frames, ("step", "/home/me/train.py", 7), ("main", "/home/me/train.py", 9)]
    found = made(words)
    assert [(site.line, site.calls, site.leaf.function if site.leaf else None) for site in found.sites] == [
        (7, 5, "item"),
        (7, 4, "step"),
        (7, 1, "to"),
    ]
    assert len({site.id for site in found.sites}) == 3
    assert "in _tensor.py:9 item" in shown(found)


def test_generated_code_is_not_the_users() -> None:
    words = process(stack(0, 1, frames=[0, 1, 2, 3, 4]))
    words["frames"] = [
        ("call", "/tmp/torchinductor_me/wg/cwg5.py", 90),
        ("_runtime_wrapper", "subclass_codegen.py:codegen(runtime_wrapper_orchestration)", 8),
        ("forward", "proxy_tensor.py:1738 in wrapped", 12),
        ("forward", "<eval_with_key>.1", 11),
        ("step", "/home/me/train.py", 7),
    ]
    (site,) = made(words).sites
    assert (site.file, site.line) == ("/home/me/train.py", 7)


def test_processes_are_added_up_and_steps_are_those_of_all() -> None:
    first = process(stack(5, 8, in_loop=6), steps=4, steps_counted=3, steps_from="optimizer")
    second = {**process(stack(5, 6, in_loop=3), steps=4, steps_counted=3, steps_from="optimizer"), "pid": 11}
    worker = {**process(stack(9, 2)), "pid": 12}
    found = made(first, second, worker)
    assert [(site.calls, site.calls_per_step) for site in found.sites] == [(14, 1.5), (2, 0.0)]
    assert [(p.pid, p.calls, p.in_loop.events if p.in_loop else None) for p in found.sites[0].by_process] == [
        (10, 8, 6),
        (11, 6, 3),
    ]
    assert found.sites[1].by_process[0].in_loop is None
    assert "16 times at 2 sites, 1.5 times a step" in shown(found).replace("\n", " ")


def test_one_is_said_as_one() -> None:
    text = shown(made(process(stack(5, 1), left_out=1), after_steps=0))
    assert "once at 1 site" in text
    assert "1 site, 1 call" in text


def test_json_is_stable_and_complete() -> None:
    found = made(process(stack(5, 1)))
    assert found.to_json() == made(process(stack(5, 1))).to_json()


def test_the_lines_of_a_cell_are_counted_as_python_counts_them() -> None:
    cell = "/tmp/ipykernel_7/8.py"
    source = made(process(stack(2, 1), file=cell, sources={cell: "x = ones(3)  # \f\nx.item()\n"})).sites[0].source
    assert source is not None
    assert source.lines == {1: "x = ones(3)  # \f", 2: "x.item()"}
