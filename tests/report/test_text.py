from __future__ import annotations

import io
import re
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from nsys_sync.analysis import findings as f
from nsys_sync.report import text, words
from nsys_sync.report.html import page as html_page
from tests.report.factory import HOSTILE, MS, make_report, make_site, reports


def shown(report: f.Report, **options: Any) -> str:
    page = io.StringIO()
    text.render(report, file=page, **({"width": 80} | options))
    return page.getvalue()


def test_one_screen_answers_where_how_much_how_often() -> None:
    page = shown(make_report())
    row = next(line for line in page.splitlines() if "train.py:14" in line)
    assert re.search(r"1 +20\.00 +2\.00 +10\.00 +2 +train\.py:14 +step", row)
    for part in (
        "Syncs cost 40 ms",
        "h = out.cpu()",
        "avoidable",
        "Tensor copied to the CPU",
        "(copy-to-cpu)",
        "GPU 0",
        "200.0",
        "50 %",
    ):
        assert part in page


def test_no_line_is_wider_than_the_terminal_but_commands() -> None:
    for width in (30, 50, 80, 140):
        page = shown(make_report([make_site(n) for n in range(30)]), width=width)
        assert all(len(line) <= width for line in page.splitlines() if not line.startswith("  nsys-sync"))


def test_a_number_stays_with_what_it_counts() -> None:
    report = make_report(headline=f.Headline(slug="mixed", text="GPU idle 40 % of 5.82 ms (2.31 ms), 1.20 × of 3 GiB."))
    for width in range(30, 100):
        page = shown(report, width=width)
        assert not re.search(r"\d\n\s*(?:ms|%|×|GiB|\()", page)
        assert "\ue000" not in page


@pytest.mark.parametrize("width", [30, 50, 80, 140])
def test_place_survives_every_width(width: int) -> None:
    name = "/home/me/" + "a_rather_long_module_name_" * 4 + ".py"
    page = shown(make_report([make_site(file=name)]), width=width)
    joined = re.sub(r"\s+", "", page)
    assert name.removeprefix("/home/me/") + ":14" in joined


def test_truncated_list_says_so() -> None:
    page = shown(make_report([make_site(n) for n in range(56)]))
    assert "10 of 56 sites" in page
    assert "56 sites" in shown(make_report([make_site(n) for n in range(56)]), limit=None)
    assert "of 56" not in shown(make_report([make_site(n) for n in range(56)]), limit=None)


def test_a_pipe_has_no_escapes_and_colour_can_be_forced() -> None:
    assert "\x1b" not in shown(make_report(), color=None)
    assert "\x1b" not in shown(make_report(), color=False)
    assert "\x1b[" in shown(make_report(), color=True)


def test_every_colour_is_seen_on_a_light_and_on_a_dark_ground() -> None:
    report = make_report([make_site(n, class_=name) for n, name in enumerate(words.CLASSES)])
    idle = f.IdleByCause(**dict.fromkeys(words.CAUSES, MS))
    devices = [msgspec.structs.replace(d, idle_by_cause_ns=idle, idle_ns=idle.total) for d in report.devices]
    page = shown(msgspec.structs.replace(report, devices=devices), color=True, width=140)
    colours = {int(code) for codes in re.findall(r"\x1b\[([0-9;]+)m", page) for code in codes.split(";")}
    black, white, bright_yellow, bright_white = 30, 37, 93, 97
    assert len(colours & {*range(30, 38), *range(90, 98)}) >= 7
    assert not colours & {black, white, bright_yellow, bright_white}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8", "no-such-encoding"])
def test_any_encoding_can_show_it(encoding: str) -> None:
    class Named(io.StringIO):
        @property
        def encoding(self) -> str:  # type: ignore[override]
            return encoding

    page = Named()
    text.render(make_report([make_site(file="/tmp/größe_模型.py")]), width=80, file=page)
    shape = page.getvalue().encode("ascii" if encoding == "no-such-encoding" else encoding)
    assert b"Tensor copied" in shape
    if encoding == "ascii":
        assert b"gr\\xf6\\xdfe" in shape


def test_unmeasured_is_not_zero() -> None:
    site = make_site(recoverable_ns=None, calls_per_step=None, idle_ns=None)
    device = f.DeviceTime.withheld(0, MS, "graph replays are not in the trace")
    page = shown(make_report([site], devices=[device], steps=[]))
    assert "–" in next(line for line in page.splitlines() if "GPU 0" in line)
    assert "graph replays are not in the trace" in page
    assert "--step" in page


def test_small_times_are_not_zero() -> None:
    sites = [make_site(0), make_site(1, wait_ns=f.Spread(total=3, median=3, max=3))]
    assert "<0.01" in shown(make_report(sites))


def test_two_processes_are_listed_with_their_total() -> None:
    shares = [
        f.SiteProcess(pid=41, calls=12, events=6, wait_ns=5 * MS, recoverable_ns=MS, in_loop=None),
        f.SiteProcess(pid=42, calls=8, events=4, wait_ns=15 * MS, recoverable_ns=MS, in_loop=None),
    ]
    report = make_report([make_site(by_process=shares)])
    names = [f.ProcessName(pid=41, name="python", rank=0), f.ProcessName(pid=42, name="python", rank=1)]
    report = msgspec.structs.replace(report, trace=msgspec.structs.replace(report.trace, processes=names))
    page = shown(report)
    assert re.search(r"rank 0 +python +12 +5\.00", page)
    assert re.search(r"all +20 +20\.00", page)
    assert "rank 1 15.00 … rank 0 5.00 ms" in page


def test_lines_shared_by_sites_show_their_leaves() -> None:
    leaves = [f.Frame(function="item", file="/x/loss.py", line=3), f.Frame(function="cpu", file="/x/log.py", line=8)]
    page = shown(make_report([make_site(0, leaf=leaf) for leaf in leaves]))
    assert "loss.py:3 item" in page
    assert "log.py:8 cpu" in page


@pytest.mark.parametrize("width", [80, 140])
def test_what_a_stack_rests_on_is_explained_where_it_is_not_the_call(width: int) -> None:
    page = shown(make_report([make_site(0), make_site(1, stack_origin="neighbour")]), width=width)
    assert "\nneighbour: Python stack of the sync that directly follows the copy.\n" in page
    assert "exact:" not in page


def test_the_commands_shown_read_the_trace_as_it_was_read() -> None:
    site = make_site(source_status="missing", source=None)
    report = make_report([site], steps=[])
    page = shown(report, path="a b.sqlite", options="--skip-first 2")
    folder = "/home/me/project"
    for more in ("--html report.html", "--step RANGE_NAME", f"--map-path {folder}=FOLDER"):
        assert f"\n  nsys-sync report 'a b.sqlite' --skip-first 2 {more}\n" in page
    # A saved report can be shown again; only its trace can be read in another way.
    saved = shown(report, path="saved.json")
    assert "\n  nsys-sync report saved.json --html report.html\n" in saved
    assert f"\n  nsys-sync report {report.trace.file} --map-path {folder}=FOLDER\n" in saved


def test_the_next_command_is_for_the_site_that_gives_back_most() -> None:
    waits = make_site(0, wait_ns=f.Spread(total=90 * MS, median=MS, max=MS), recoverable_ns=MS, rule="waits-longest")
    page = shown(make_report([waits, make_site(1, recoverable_ns=9 * MS, rule="gives-back-most")]))
    assert "\nNext:\n  nsys-sync rules gives-back-most\n" in page


def test_a_prediction_that_promises_nothing_says_so() -> None:
    report = make_report()
    guess = f.WhatIf(
        step_ns_now=10 * MS,
        step_ns_low=9 * MS,
        step_ns_high=10 * MS,
        gpu_bound_ns=MS,
        confidence="low",
        reasons=[],
    )
    report = msgspec.structs.replace(report, what_if=f.WhatIfs(all=guess, by_class={}))
    assert "about as long, 9.0–10.0 ms where it takes 10.0 ms" in " ".join(shown(report).split())


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_do_nothing(hostile: str) -> None:
    site = make_site(function=hostile, file="/x/" + hostile, source=f.SourceLine(lines={14: hostile}, sha256=""))
    for color in (False, True):
        page = shown(make_report([site], headline=f.Headline(slug="mixed", text=hostile)), color=color)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", page)
        assert not [c for c in plain if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]
        page.encode("utf-8")
    assert "\\x1b[31mred" in shown(make_report([make_site(function="\x1b[31mred")]))
    assert "[bold]x[/bold]" in shown(make_report([make_site(function="[bold]x[/bold]")]))


@settings(max_examples=80, deadline=None)
@given(reports())
def test_any_report_can_be_shown(report: f.Report) -> None:
    for width in (24, 80, 160):
        page = shown(report, width=width, color=False)
        assert "\x1b" not in page
        page.encode("utf-8")


@pytest.mark.parametrize("ratio", [0.96, 1.03])
def test_step_times_before_and_in_the_capture_are_not_judged(ratio: float) -> None:
    report = make_report()
    slowdown = f.Slowdown(step_ns_before=10 * MS, step_ns_inside=int(10 * MS * ratio), ratio=ratio)
    capture = msgspec.structs.replace(report.trace.capture, slowdown=slowdown)
    trace = msgspec.structs.replace(report.trace, capture=capture)
    page = shown(msgspec.structs.replace(report, trace=trace))
    assert (
        f"A step took 10.0 ms before the capture, {10 * ratio:.{2 if ratio < 1 else 1}f} ms in it ({ratio} ×)." in page
    )


@pytest.mark.parametrize(
    ("slug", "sentence"),
    [("no_syncs", "No call blocked the CPU."), ("nothing_measured", "No call that blocks was recorded.")],
)
def test_what_was_not_recorded_is_not_called_absent(slug: str, sentence: str) -> None:
    report = make_report([], headline=f.Headline(slug=slug, text="As it was."))
    assert sentence in shown(report)
    assert sentence in html_page(report, None)
