"""A check as workflow commands of GitHub Actions, which show it at the lines of a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsys_sync.report import gate_words as words
from nsys_sync.report.words import harmless

if TYPE_CHECKING:
    from nsys_sync.analysis.findings import Site
    from nsys_sync.gate import Gate
    from nsys_sync.report.locate import Project


def commands(gate: Gate, sites: dict[str, Site], project: Project) -> list[str]:
    """One line for each failing site, for each limit without one, and for each entry of the allow-list gone wrong.

    A site outside the project is shown at the nearest caller inside it, else without a line.
    """
    return [
        *[_failing(gate, site, project) for site in words.failing(gate, sites)],
        *[
            _command("error", words.limit_line(r), title="GPU syncs not measured")
            for r in gate.limits
            if r.status == "not_measured"
        ],
        *[
            _command("error", f"--baseline: {harmless(reason)}", title="GPU syncs not measured")
            for reason in (gate.baseline.not_measured if gate.baseline else [])
        ],
        *[_command("warning", t, title="Accepted GPU syncs") for use in gate.allow if (t := words.entry_line(use))],
    ]


def _failing(gate: Gate, site: Site, project: Project) -> str:
    file, line = project.place(site)
    message = "\n".join([words.code(site), *words.why_it_fails(gate, site.id), words.site_sentence(site)]).strip()
    return _command("error", message, title=f"GPU sync: {harmless(site.title, 120)}", file=file, line=line)


def _command(kind: str, message: str, *, title: str, file: str | None = None, line: int | None = None) -> str:
    values = {"file": file, "line": line, "title": title}
    properties = ",".join(f"{name}={_escaped(str(v), ':,')}" for name, v in values.items() if v is not None)
    return f"::{kind} {properties}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    """Percent escapes as the runner undoes them."""
    for char in "%\r\n" + more:
        text = text.replace(char, f"%{ord(char):02X}")
    return text
