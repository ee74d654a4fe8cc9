"""The labelled set, and which half of it the catalogue may be fitted to."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import msgspec

from nsys_sync.analysis.catalogue.judge import Catalogue, Verdict
from nsys_sync.analysis.catalogue.rules import Example
from nsys_sync.analysis.findings import SiteClass
from tests.analysis.catalogue.cases import evidence_of

FILE = Path(__file__).with_name("snippets.toml")
CLASSES: tuple[SiteClass, ...] = ("avoidable", "deferrable", "needed", "intentional", "unknown")


class Snippet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One program or stack with the answer that an engineer would give, and the public report behind it."""

    id: str
    source: str
    class_: SiteClass = msgspec.field(name="class")
    rule: str
    code: str = ""
    frames: list[str] = []
    apis: list[str] = []
    copies: list[str] = []
    native: list[str] = []

    @property
    def half(self) -> Literal["built", "measured"]:
        """``built``: looked at while the catalogue was written; ``measured``: only ever counted. Decided by the id."""
        return "built" if hashlib.sha256(self.id.encode()).digest()[0] % 2 == 0 else "measured"

    def judged(self, catalogue: Catalogue, folder: Path) -> Verdict:
        """What the catalogue makes of it."""
        shown = Example(code=self.code, frames=self.frames, apis=self.apis, copies=self.copies, native=self.native)
        return catalogue.judge(evidence_of(shown, folder))


def snippets() -> list[Snippet]:
    """All of them."""
    return msgspec.toml.decode(FILE.read_bytes(), type=dict[str, list[Snippet]])["snippet"]
