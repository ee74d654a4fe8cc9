"""What all pages are made with: one template, one style, scripts that a policy names, data that cannot break out."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import Any

import jinja2

from nsys_sync.report import words

#: Characters of a name from a trace that a page shows; longer ones lose their middle.
NAME = 300

_SCRIPTS = ("words.js", "sites.js", "timeline.js", "page.js")


def fill(template: str, data: dict[str, Any], values: dict[str, Any], *, plotly: bool) -> str:
    """A page from a template of the assets. data: what the scripts read; values: what the template names.

    plotly: whether the page has a figure.
    """
    assets = resources.files("nsys_sync.report") / "assets"
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (assets / name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    scripts = ["\n".join((assets / name).read_text("utf-8") for name in _SCRIPTS)]
    if plotly:
        scripts += [_plotly(), (assets / "start.js").read_text("utf-8")]
    return environment.get_template(template).render(
        style=(assets / "page.css").read_text("utf-8"),
        scripts=scripts,
        policy=_policy(scripts),
        data=embedded(data),
        causes=words.CAUSES,
        **values,
    )


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _policy(scripts: list[str]) -> str:
    """A content security policy: nothing from anywhere, and only these scripts run."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def embedded(data: dict[str, Any]) -> str:
    """JSON that may stand inside a script element: pure ASCII, without <, > and &."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
