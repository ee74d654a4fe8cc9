"""Which of the catalogue's claims were tried on a GPU, and how that went: rules_verified.json, made by a script."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Literal

import msgspec

_LIBRARIES = {"torch": "PyTorch", "cupy": "CuPy", "jax": "JAX"}


class Side(msgspec.Struct, frozen=True):
    """What blocked in one run: sync events (allocations among them) and the calls they consist of."""

    events: int
    calls: dict[str, int]


class Trial(msgspec.Struct, frozen=True):
    """One claim, tried.

    library: whose version counts.
    verdict: ``verified`` or ``refuted`` of a pair, ``waits`` or ``no_wait`` of a before alone, ``failed``.
    """

    verdict: Literal["verified", "refuted", "waits", "no_wait", "failed"]
    library: str
    same_result: bool | None
    error: str | None
    before: Side | None
    after: Side | None


class Trials(msgspec.Struct, frozen=True):
    """All claims that were tried on one machine."""

    gpu: str
    python: str
    versions: dict[str, str | None]
    rules: dict[str, Trial]

    @property
    def where(self) -> str:
        """The machine and the versions, in words."""
        return ", ".join([self.gpu, *(self.version(name) for name, number in self.versions.items() if number)])

    def version(self, library: str) -> str:
        """A library and its version, in words."""
        return f"{_LIBRARIES.get(library, library)} {self.versions.get(library) or '(version unknown)'}"


@cache
def trials() -> Trials | None:
    """What was tried, None where nothing was."""
    file = resources.files("nsys_sync.analysis.catalogue").joinpath("rules_verified.json")
    return msgspec.json.decode(file.read_bytes(), type=Trials) if file.is_file() else None


def in_words(rule: str) -> str:
    """How the claim of a rule fared, in a few words."""
    found = trials()
    trial = found.rules.get(rule) if found is not None else None
    if found is None or trial is None or trial.verdict == "failed":
        return "unverified"
    before, after = (s.events if s is not None else 0 for s in (trial.before, trial.after))
    on = f"{found.gpu}, {found.version(trial.library)}"
    return {
        "verified": f"verified on {on}: {_waits(before)} before, {_waits(after)} after",
        "refuted": f"refuted on {on}: {_waits(before)} before, {_waits(after)} after",
        "waits": f"waits on {on}: {_waits(before)}",
        "no_wait": f"no wait on {on}",
    }[trial.verdict]


def _waits(events: int) -> str:
    return {0: "none", 1: "1 wait"}.get(events, f"{events} waits")
