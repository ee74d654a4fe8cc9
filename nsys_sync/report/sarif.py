"""Findings as SARIF 2.1.0, the format in which code hosts take the results of analysers.

Paths are relative to the project (``%SRCROOT%``) and a file outside it is named by its function only, so that no path
of the captured machine is in the file. A site's fingerprint is its id, which survives moved lines.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nsys_sync._version import __version__
from nsys_sync.report import gate_words as words
from nsys_sync.report.words import count, harmless

if TYPE_CHECKING:
    from nsys_sync.analysis.findings import Frame, Site
    from nsys_sync.gate import Gate, JudgedSite
    from nsys_sync.report.locate import Project

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "%SRCROOT%"
_LEVELS = {"avoidable": "warning", "deferrable": "warning", "needed": "note", "intentional": "note", "unknown": "note"}
_STATES = {"new": "new", "changed": "updated", "same": "unchanged"}

_Json = dict[str, Any]


def dumps(sites: dict[str, Site], project: Project, gate: Gate | None = None) -> bytes:
    """One SARIF run: a result for each site, in the order given.

    sites: by id (``gate.sites_by_id``). gate: the check that judged them; failing sites are then errors, accepted ones
    suppressed, and what was not measured a notification of a run without success.
    """
    rules = sorted({(s.rule, s.title) for s in sites.values()})
    numbers: dict[str, int] = {}
    for rule, _ in rules:
        numbers.setdefault(rule, len(numbers))
    judged = {s.id: s for s in gate.sites} if gate else {}
    run: _Json = {
        "tool": {
            "driver": {
                "name": "nsys-sync",
                "version": __version__,
                "rules": [_rule(rule, sites) for rule in numbers],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The root of the project."}}},
        "invocations": [_invocation(gate)],
        "results": [_result(s, numbers[s.rule], project, gate, judged.get(s.id)) for s in sites.values()],
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _rule(rule: str, sites: dict[str, Site]) -> _Json:
    site = next(s for s in sites.values() if s.rule == rule)
    text = f"{harmless(site.title, 200).rstrip('.')}."
    described: _Json = {
        "id": harmless(rule, 120),
        "name": _friendly(site.title),
        "shortDescription": {"text": text},
        "fullDescription": {"text": text},
        "help": {
            "text": f"{harmless(site.fix.text, 400) if site.fix else text} More: nsys-sync rules {harmless(rule)}"
        },
    }
    if site.fix and site.fix.docs.startswith("https://"):
        described["helpUri"] = quote(site.fix.docs, safe=":/?#[]@!$&'()*+,;=%~", errors="replace")
    return described


def _friendly(title: str) -> str:
    """A title as ``OneWord``, which is how SARIF wants a rule's name."""
    return "".join(word.capitalize() for word in re.findall(r"[A-Za-z][A-Za-z0-9]+", title)) or "Sync"


def _invocation(gate: Gate | None) -> _Json:
    reasons = [words.limit_line(r) for r in gate.limits if r.status == "not_measured"] if gate else []
    reasons += [f"--baseline: {harmless(r)}" for r in (gate.baseline.not_measured if gate and gate.baseline else [])]
    found: _Json = {"executionSuccessful": not reasons}
    if reasons:
        found["toolExecutionNotifications"] = [{"level": "error", "message": {"text": r}} for r in reasons]
    return found


def _result(site: Site, number: int, project: Project, gate: Gate | None, judged: JudgedSite | None) -> _Json:
    reasons = words.why_it_fails(gate, site.id) if gate else []
    result: _Json = {
        "ruleId": harmless(site.rule, 120),
        "ruleIndex": number,
        "level": "error" if judged and judged.outcome == "fails" else _LEVELS[site.class_],
        "message": {"text": " ".join([*reasons, words.site_sentence(site)])},
        "locations": [_location(site, project)],
        "partialFingerprints": {"nsysSyncSite/v1": site.id},
        "properties": {
            "class": site.class_,
            "calls": site.calls,
            "events": site.events,
            "callsPerStep": site.calls_per_step,
            "waitNs": site.wait_ns.total,
            "recoverableNs": site.recoverable_ns,
        },
    }
    if len(site.stack) > 1:
        frames = [_frame(f, project) for f in site.stack]
        result["stacks"] = [{"message": {"text": f"Python stack, {count(len(frames), 'frame')}."}, "frames": frames}]
    if judged and judged.state in _STATES:
        result["baselineState"] = _STATES[judged.state]
    if judged and judged.outcome == "accepted":
        reason = harmless(judged.accepted_because or "", 400)
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": reason}]
    return result


def _location(site: Site, project: Project) -> _Json:
    location: _Json = {"logicalLocations": [{"name": harmless(site.function or "unknown", 200), "kind": "function"}]}
    file, line = project.place(site)
    if file is not None and line is not None:
        own = project.relative(site.file) == file and site.line == line
        location["physicalLocation"] = _physical(file, line) | (_code(site, line) if own else {})
    return location


def _physical(file: str, line: int) -> _Json:
    uri = quote(file, errors="replace")
    return {"artifactLocation": {"uri": uri, "uriBaseId": _ROOT}, "region": {"startLine": line}}


def _code(site: Site, line: int) -> _Json:
    """The regions of a place with their text: the line, and the unbroken run of lines around it that is known."""
    known = site.source.lines if site.source else {}
    if line not in known:
        return {}
    first, last = line, line
    while first - 1 in known:
        first -= 1
    while last + 1 in known:
        last += 1
    found: _Json = {"region": {"startLine": line, "snippet": {"text": harmless(known[line])}}}
    if (first, last) != (line, line):
        text = "\n".join(harmless(known[n]) for n in range(first, last + 1))
        found["contextRegion"] = {"startLine": first, "endLine": last, "snippet": {"text": text}}
    return found


def _frame(frame: Frame, project: Project) -> _Json:
    location: _Json = {"logicalLocations": [{"name": harmless(frame.function or "unknown", 200), "kind": "function"}]}
    file = project.relative(frame.file)
    if file is not None and frame.line > 0:
        location["physicalLocation"] = _physical(file, frame.line)
    return {"location": location}
