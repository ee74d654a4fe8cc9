"""SARIF and workflow commands: accepted by those who read them, at the project's own paths, harmless."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_sync.analysis import findings as f
from nsys_sync.errors import UsageError
from nsys_sync.gate import AllowEntry, Gate, check, parse_limit, sites_by_id
from nsys_sync.report import github, sarif
from nsys_sync.report.locate import Project
from tests.compare.captures import MS, capture, make_site, wait
from tests.report.factory import HOSTILE, reports
from tests.waiting import PATIENCE_S

INNER = f.Frame(function="cpu", file="/opt/env/lib/python3.12/site-packages/torch/_tensor.py", line=7)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A checkout of the program whose captures come from /home/me/project."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text("\n" * 99)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net work.py").write_text("\n" * 9)
    return Project(tmp_path)


def judged(*sites: f.Site, limit: str = "0", **rest: Any) -> tuple[Gate, dict[str, f.Site]]:
    report = capture(1, list(sites))
    gate = check([report], [parse_limit("syncs", limit)], **{"today": dt.date(2025, 6, 1)} | rest)
    return gate, sites_by_id([report])


def run_of(data: bytes) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(data)
    assert log["version"] == "2.1.0"
    [run] = log["runs"]
    return dict(run)


def results(*sites: f.Site, project: Project, **rest: Any) -> list[dict[str, Any]]:
    gate, found = judged(*sites, **rest)
    return list(run_of(sarif.dumps(found, project, gate))["results"])


# Paths


@pytest.mark.parametrize(
    ("file", "relative"),
    [
        ("/home/me/project/train.py", "train.py"),
        ("/elsewhere/models/net work.py", "models/net work.py"),
        ("train.py", "train.py"),
        ("C:\\work\\models\\net work.py", "models/net work.py"),
        ("/home/me/other.py", None),
        ("/home/me/../train.py", None),
        ("/home/me/models", None),
        ("x" * 5000, None),
        ("bad\0name/train.py", None),
        ("", None),
        (None, None),
    ],
)
def test_paths_of_the_trace_become_paths_of_the_project(
    project: Project, file: str | None, relative: str | None
) -> None:
    assert project.relative(file) == relative


def test_a_file_in_the_project_need_not_exist_any_more(project: Project) -> None:
    assert project.relative(str(project.root / "gone" / "old.py")) == "gone/old.py"


def test_the_project_is_the_git_tree_around(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root / "models")
    assert Project.find() == project
    assert Project.find(Path()).root == project.root / "models"
    with pytest.raises(UsageError):
        Project.find(project.root / "nowhere")


# SARIF


def test_a_failing_site_is_an_error_at_its_line(project: Project) -> None:
    [result] = results(make_site(0), project=project)
    assert result["level"] == "error"
    assert "--max-syncs-per-step 0: 1 sync a step, 1 too many." in result["message"]["text"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "train.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 14, "snippet": {"text": "    h = out.cpu()"}}
    assert place["contextRegion"]["startLine"] == 13
    assert result["partialFingerprints"] == {"nsysSyncSite/v1": "site0000"}


@pytest.mark.parametrize(("class_", "level"), [("avoidable", "warning"), ("needed", "note"), ("unknown", "note")])
def test_a_site_that_holds_the_limits_is_as_bad_as_its_class(project: Project, class_: str, level: str) -> None:
    [result] = results(make_site(0, class_=class_), project=project, limit="9")
    assert result["level"] == level


def test_accepted_sites_are_suppressed_with_the_reason(project: Project) -> None:
    [result] = results(make_site(0), project=project, allow=[AllowEntry(site="site0000", reason="needed for logging")])
    assert result["suppressions"] == [{"kind": "external", "status": "accepted", "justification": "needed for logging"}]


def test_the_baseline_says_what_is_new(project: Project) -> None:
    found = results(make_site(0), make_site(1), project=project, limit="9", baseline=[capture(2, [make_site(0)])])
    assert [r["baselineState"] for r in found] == ["unchanged", "new"]


def test_a_library_site_is_shown_at_the_callers_line(project: Project) -> None:
    caller = f.Frame(function="main", file="/home/me/project/train.py", line=30)
    site = make_site(0, file=INNER.file, line=7, stack=[INNER, caller])
    [result] = results(site, project=project)
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == ("train.py", {"startLine": 30})


def test_no_path_of_the_captured_machine_is_in_the_file(project: Project) -> None:
    gate, found = judged(make_site(0), make_site(1, file="/home/me/secret/x.py", stack=[INNER], leaf=INNER))
    data = sarif.dumps(found, project, gate).decode()
    assert "/home/me" not in data
    assert "/opt/env" not in data


def test_what_was_not_measured_is_a_run_without_success(project: Project) -> None:
    report = capture(1, [], devices=[])
    gate = check([report], [parse_limit("syncs", "0")], today=dt.date(2025, 6, 1))
    [invocation] = run_of(sarif.dumps({}, project, gate))["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "not measured" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_a_report_alone_is_sarif_too(project: Project) -> None:
    run = run_of(sarif.dumps(sites_by_id([capture(1)]), project))
    assert [r["level"] for r in run["results"]] == ["warning"] * 3
    assert run["invocations"] == [{"executionSuccessful": True}]


@settings(max_examples=60, deadline=None)
@given(reports())
def test_any_report_makes_json(report: f.Report) -> None:
    gate = check([report], [parse_limit("syncs", "0")], baseline=[report], today=dt.date(2025, 6, 1))
    run = run_of(sarif.dumps(sites_by_id([report]), Project(Path("/nowhere")), gate))
    assert len(run["results"]) == len(sites_by_id([report]))
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def hostile_sites() -> list[f.Site]:
    return [
        make_site(n, title=text, function=text, file=f"/home/me/project/{text}", rule=text or "empty")
        for n, text in enumerate(HOSTILE)
    ]


@pytest.fixture(scope="session")
def multitool(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], list[dict[str, Any]]]:
    """Microsoft's validator from npm: what it finds in a file, apart from what needs the network."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed: the SARIF validator comes from there")
    folder = tmp_path_factory.mktemp("npm")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), "@microsoft/sarif-multitool@5.7.0"]
    try:
        installed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not answer: the SARIF validator comes from there")
    tools = [p for p in folder.rglob("Sarif.Multitool") if p.is_file()]
    if installed.returncode or not tools:
        pytest.skip(f"the SARIF validator cannot be installed from npm: {installed.stderr.strip()[-200:]}")
    tools[0].chmod(0o755)

    def validate(path: Path) -> list[dict[str, Any]]:
        found = path.with_suffix(".validation.sarif")
        environment = os.environ | {"DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}
        choice = ["--log", "ForceOverwrite", "--rule-kind", "Sarif;Ghas", "--level", "Error;Warning;Note"]
        command = [str(tools[0]), "validate", str(path), "-o", str(found), *choice]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=PATIENCE_S)
        [run] = json.loads(found.read_text(encoding="utf-8-sig"))["runs"]
        assert run["results"], "the validator skipped the file, as it does where it cannot make sense of it"
        return [r for r in run["results"] if r["ruleId"] not in ADVICE]

    return validate


#: What the validator would also like, and why it is not there.
ADVICE = {
    "SARIF2002",  # messages by id: each site's message is its own
    "SARIF2003",  # version control provenance: only the CI job knows it
    "SARIF2005",  # a home page of the tool
    "SARIF2006",  # reachable addresses: needs the network
    "SARIF2009",  # rule ids as a prefix and a number: ours are words
    "SARIF2010",  # a snippet for every line: where the source is known, it is there
    "SARIF2011",  # and its neighbours
}


@pytest.mark.slow
def test_microsofts_validator_accepts_it(
    project: Project, multitool: Callable[[Path], list[dict[str, Any]]], tmp_path: Path
) -> None:
    report = capture(1, [make_site(0), make_site(1), make_site(2), *hostile_sites()])
    gate = check(
        [report],
        [parse_limit("syncs", "0"), parse_limit("wait", "1ms")],
        baseline=[capture(2, [make_site(0, **wait(MS))])],
        allow=[AllowEntry(site="site0002", reason="accepted")],
        today=dt.date(2025, 6, 1),
    )
    path = tmp_path / "result.sarif"
    for data in (sarif.dumps(sites_by_id([report]), project, gate), sarif.dumps(sites_by_id([report]), project)):
        path.write_bytes(data)
        assert multitool(path) == []
    path.write_bytes(sarif.dumps({}, project))
    assert {r["level"] for r in multitool(path)} == {"note"}, "a run without sites has no rules, which is only noted"


@pytest.mark.slow
def test_the_validator_finds_what_is_wrong(
    project: Project, multitool: Callable[[Path], list[dict[str, Any]]], tmp_path: Path
) -> None:
    data = json.loads(sarif.dumps(sites_by_id([capture(1)]), project))
    data["runs"][0]["results"][0]["colour"] = "red"
    del data["runs"][0]["results"][1]["message"]
    path = tmp_path / "bad.sarif"
    path.write_text(json.dumps(data))
    assert {r["ruleId"] for r in multitool(path)} == {"JSON1005", "JSON1002"}


# GitHub


COMMAND = re.compile(r"::(error|warning) (?:file=([^,]*),line=(\d+),)?title=([^,:]*)::([^\r\n]*)")


def test_a_failing_site_is_annotated_at_its_line(project: Project) -> None:
    gate, sites = judged(make_site(0))
    [line] = github.commands(gate, sites, project)
    match = COMMAND.fullmatch(line)
    assert match is not None
    assert match.groups()[:3] == ("error", "train.py", "14")
    assert match[5].startswith("h = out.cpu()%0A--max-syncs-per-step 0: 1 sync a step, 1 too many.%0A")


def test_nothing_is_annotated_where_nothing_fails(project: Project) -> None:
    gate, sites = judged(make_site(0), limit="9")
    assert github.commands(gate, sites, project) == []


def test_entries_gone_wrong_are_warnings(project: Project) -> None:
    allow = [
        AllowEntry(site="nowhere", reason="old"),
        AllowEntry(site="site0000", reason="x", until=dt.date(2025, 1, 1)),
    ]
    gate, sites = judged(make_site(0), limit="9", allow=allow)
    lines = github.commands(gate, sites, project)
    assert [line.split("::")[1].split(" ")[0] for line in lines] == ["warning", "warning"]
    assert "Stale" in lines[0]
    assert "Expired on 2025-01-01" in lines[1]


def test_what_was_not_measured_is_an_error(project: Project) -> None:
    report = capture(1, [], devices=[])
    gate = check([report], [parse_limit("syncs", "0")], baseline=[capture(2)], today=dt.date(2025, 6, 1))
    lines = github.commands(gate, {}, project)
    assert len(lines) == 2
    assert all(line.startswith("::error title=GPU syncs not measured::") for line in lines)


def test_names_cannot_end_a_command_or_begin_another(project: Project) -> None:
    evil = "x,line=1::\n::stop-commands::x\r\n%0A"
    site = make_site(0, title=evil, function=evil, source=f.SourceLine(lines={14: evil}, sha256=""))
    gate, sites = judged(site, *hostile_sites())
    for line in github.commands(gate, sites, project):
        assert COMMAND.fullmatch(line), line


@settings(max_examples=60, deadline=None)
@given(reports(), st.sampled_from(["0", "5"]))
def test_any_report_makes_whole_commands(report: f.Report, limit: str) -> None:
    report = msgspec.structs.replace(report, trace=msgspec.structs.replace(report.trace, python_frames="recorded"))
    gate = check([report], [parse_limit("syncs", limit)], baseline=[capture(2)], today=dt.date(2025, 6, 1))
    for line in github.commands(gate, sites_by_id([report]), Project(Path("/nowhere"))):
        assert COMMAND.fullmatch(line), line
