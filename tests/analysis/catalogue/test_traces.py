"""The class at each line of the recorded programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.analysis.findings import Site
from nsys_sync.analysis.options import Options
from nsys_sync.analysis.run import analyze

PROGRAMS = Path(__file__).parents[3] / "sample_traces/programs"
HERE = Options(maps=(("/workspace/examples", str(PROGRAMS)),), predict=False)

#: (class, rule) of the sites of each line, by trace and line; a line can hold several.
EXPECTED = {
    "gpt_train-fix0": {
        64: {("avoidable", "upload-pageable")},
        72: {("needed", "value-gates-step")},
        74: {("deferrable", "check-can-wait")},
        75: {("deferrable", "reads-side-by-side")},
        26: {("intentional", "wait-for-profiler")},
    },
    "gpt_train-fix1": {26: {("intentional", "wait-for-profiler")}, 76: {("needed", "read-rarely")}},
    "moe-fix0": {
        124: {("needed", "nonzero")},
        126: {("avoidable", "bincount")},
        26: {("intentional", "wait-for-profiler")},
    },
    "rl_loop-fix0": {
        137: {("avoidable", "array-to-gpu")},
        138: {("avoidable", "distribution-validation")},
        139: {("needed", "value-on-host")},
        26: {("intentional", "wait-for-profiler")},
    },
    "prefetch-fix0": {
        154: {("avoidable", "upload-pageable")},
        158: {("avoidable", "wait-to-order-streams")},
        161: {("avoidable", "wait-to-order-streams")},
        26: {("intentional", "wait-for-profiler")},
    },
    "cupy_loop-fix0": {
        222: {("deferrable", "cupy-value-kept")},
        223: {("avoidable", "value-unused"), ("avoidable", "redundant-wait")},
        26: {("intentional", "wait-for-profiler")},
    },
    "ddp-fix0": {
        237: {("avoidable", "value-unused")},
        238: {("avoidable", "constant-on-gpu"), ("avoidable", "redundant-wait")},
        26: {("intentional", "wait-for-profiler")},
    },
    "graph-fix0": {
        178: {("avoidable", "value-unused")},
        179: {("needed", "read-rarely")},
        26: {("intentional", "wait-for-profiler")},
    },
    "probe-sync": {
        6: {("avoidable", "value-unused")},
        11: {("needed", "mask-select")},
        14: {("avoidable", "value-unused")},
        15: {("deferrable", "check-can-wait")},
        17: {("avoidable", "constant-on-gpu")},
        18: {("avoidable", "redundant-wait")},
        19: {("avoidable", "redundant-wait")},
        20: {("avoidable", "redundant-wait")},
        34: {("intentional", "wait-for-profiler")},
    },
}


#: The same of the captures of unedited programs. None is the line of copies that no stack was kept of.
UNEDITED: dict[str, dict[int | None, set[tuple[str, str]]]] = {
    "plain_loop": {
        12: {("avoidable", "upload-batch")},
        18: {("deferrable", "check-can-wait")},
        19: {("deferrable", "scalar-accumulated")},
    },
    "resnet_amp": {
        15: {("avoidable", "upload-batch")},
        16: {("avoidable", "upload-batch")},
        23: {("avoidable", "gradscaler-found-inf")},
        25: {("deferrable", "scalar-accumulated")},
    },
    "compiled": {17: {("deferrable", "scalar-accumulated")}},
    "hf_trainer": {
        30: {
            ("deferrable", "trainer-log"),
            ("avoidable", "library-upload-pinned"),
            ("avoidable", "trainer-nan-filter"),
            ("needed", "packed-sequence-check"),
        },
    },
    "lightning_fit": {
        20: {("deferrable", "scalar-accumulated")},
        21: {("deferrable", "check-can-wait")},
        41: {("deferrable", "lightning-log"), ("avoidable", "accelerate-upload")},
        None: {("avoidable", "upload-pageable")},
    },
    "cupy_loop": {
        17: {("deferrable", "cupy-value-kept")},
        18: {("deferrable", "cupy-value-kept")},
        19: {("avoidable", "device-sync")},
    },
    "ddp-both": {
        19: {("intentional", "ddp-logger")},
        25: {("deferrable", "scalar-accumulated")},
        27: {("avoidable", "constant-on-gpu")},
        28: {("avoidable", "redundant-wait")},
    },
    "ddp-rank1": {19: {("intentional", "ddp-logger")}, 25: {("deferrable", "scalar-accumulated")}},
}
UNEDITED |= {"ddp-rank0": UNEDITED["ddp-both"], "plain_loop-2023.4": UNEDITED["plain_loop"]}


def sites(path: Path, options: Options) -> list[Site]:
    return analyze(path, options).sites


@pytest.mark.parametrize("name", EXPECTED)
def test_classes_of_a_recorded_program(name: str, sample: Callable[[str], Path]) -> None:
    found: dict[int, set[tuple[str, str]]] = {}
    for site in sites(sample(name), HERE):
        assert site.line is not None
        found.setdefault(site.line, set()).add((site.class_, site.rule))
    assert found == EXPECTED[name]


@pytest.mark.parametrize("name", UNEDITED)
def test_classes_of_an_unedited_program(name: str, sample: Callable[[str], Path]) -> None:
    options = Options(maps=(("/workspace/sample_traces", str(PROGRAMS.parent)),), predict=False)
    found: dict[int | None, set[tuple[str, str]]] = {}
    for site in sites(sample(f"captures/{name}"), options):
        found.setdefault(site.line, set()).add((site.class_, site.rule))
    assert found == UNEDITED[name]


@pytest.mark.parametrize("name", ["hf_trainer", "lightning_fit"])
def test_a_site_in_a_library_says_what_the_user_can_set(name: str, sample: Callable[[str], Path]) -> None:
    for site in sites(sample(f"captures/{name}"), Options(predict=False)):
        if site.leaf is not None and "site-packages" in site.leaf.file:
            assert site.fix is not None
            assert re.search(r"TrainingArguments|DataLoader|Trainer\(|log\(|torch_compile|prog_bar", site.fix.text), (
                site
            )


@pytest.mark.parametrize("name", EXPECTED)
def test_without_the_source_nothing_is_claimed_that_the_stacks_do_not_show(
    name: str, sample: Callable[[str], Path]
) -> None:
    """The operation is known from the stacks, what becomes of its value is not."""
    read = {"value-read", "read-rarely"}
    for site in sites(sample(name), Options(predict=False)):
        with_source = EXPECTED[name][site.line or 0]
        if site.class_ == "avoidable":
            assert "avoidable" in {c for c, _ in with_source}, site
        if any(
            rule.startswith(("scalar-", "reads-", "check-", "value-unused", "value-gates")) for _, rule in with_source
        ):
            assert site.rule in read | {"redundant-wait"}, site


def test_sites_outside_of_the_steps_do_not_hinder_a_capture(sample: Callable[[str], Path]) -> None:
    for site in sites(sample("gpt_train-fix0"), HERE):
        assert site.blocks_graph_capture == (site.line != 26)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (64, "avoidable"),
        (72, "needed"),
        (74, "deferrable"),
        (75, "deferrable"),
        (124, "needed"),
        (126, "avoidable"),
        (137, "avoidable"),
        (138, "avoidable"),
        (139, "needed"),
        (154, "avoidable"),
        (158, "avoidable"),
        (161, "avoidable"),
        (178, "avoidable"),
        (223, "avoidable"),
        (237, "avoidable"),
        (238, "avoidable"),
    ],
)
def test_the_same_lines_without_a_trace(line: int, expected: str) -> None:
    verdict = Catalogue.load().judge_line(PROGRAMS / "workloads.py", line)
    assert verdict.class_ == expected, (verdict.rule, verdict.class_basis)
    assert not verdict.class_basis.startswith("sure")
