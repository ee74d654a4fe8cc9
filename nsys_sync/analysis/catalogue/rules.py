"""The form of rules.toml, and of a team's own rules: what a rule matches, says and shows, and how it is tried."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from nsys_sync.analysis.catalogue.consumer import Use
from nsys_sync.analysis.catalogue.operations import Operation
from nsys_sync.analysis.catalogue.surroundings import Near, Operand
from nsys_sync.analysis.catalogue.words import Words
from nsys_sync.analysis.findings import Fix, SiteClass
from nsys_sync.errors import InputError
from nsys_sync.paths import read_bytes


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One set of conditions; all that are given must hold, and of the values in a list one must fit.

    operation, use, operand, near: what operations.py, consumer.py and surroundings.py find; not_near: none of these.
    apis: names of driver or runtime calls. copies: directions. bytes_from, bytes_to: the largest copy, inclusive.
    native: symbols of the native stack, as in an operation. leaf: ``file suffix:function`` of the innermost Python
    frame. frames: the same of the user's frame or any that it called. every_step: more than once in ten steps, or not.
    redundant: nothing was launched since the sync before, for every event.
    """

    operation: list[str] = []
    use: list[Use] = []
    operand: list[Operand] = []
    near: list[Near] = []
    not_near: list[Near] = []
    apis: list[str] = []
    copies: list[Literal["pageable->device", "device->pageable", "pinned->device", "device->pinned"]] = []
    bytes_from: int | None = None
    bytes_to: int | None = None
    native: list[str] = []
    leaf: list[str] = []
    frames: list[str] = []
    every_step: bool | None = None
    redundant: bool | None = None


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case of a rule: a program whose judged line ends in ``# <-``, or what a trace shows, or both.

    rule: for an example that must not match, the rule that it does match, where that matters.
    """

    code: str = ""
    apis: list[str] = []
    copies: list[str] = []
    native: list[str] = []
    frames: list[str] = []
    calls_per_step: float | None = None
    redundant: bool = False
    rule: str | None = None


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a rule's ``before`` and ``after`` are run on a GPU.

    setup: comes first, once for each. result: expressions whose values must agree, of the two or one for both; none
    where there is only a ``before``. needs: a module besides PyTorch. remaining: sync events that the ``after`` may
    keep. blocks: False where the ``before`` waits in older versions or under circumstances only; without a trace the
    class of such a line is unknown. allocations: the rule is about allocating, so that its calls count like waits.
    """

    setup: str = ""
    result: list[str] = []
    needs: str | None = None
    remaining: int = 0
    blocks: bool = True
    allocations: bool = False


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule. fix: what to do, easiest first; effort: the first one's, 1 (remove a line) … 7 (keep it, outside)."""

    id: str
    title: str
    class_: SiteClass = msgspec.field(name="class")
    why: str
    match: list[Match]
    blocks: str = ""
    fix: list[str] = []
    effort: int = 7
    before: str = ""
    after: str = ""
    docs: str = ""
    examples: list[Example] = []
    counterexamples: list[Example] = []
    run: Run | None = None

    def as_fix(self) -> Fix | None:
        """The advice as a report shows it, None where there is nothing to do."""
        if not self.fix:
            return None
        text = self.fix[0] if len(self.fix) == 1 else " ".join(f"({i}) {t}" for i, t in enumerate(self.fix, 1))
        return Fix(text=text, before=self.before, after=self.after, effort=self.effort, docs=self.docs)


class Free(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operation that does not wait, with code that shows it."""

    id: str
    title: str
    code: str
    setup: str = ""


class RuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of rules.

    free: what does not wait. retired: ids that were used once and never will be again. wrappers: library files whose
    functions only pass a call on, so that the line that called them is the operation.
    """

    rule: list[Rule] = []
    operation: list[Operation] = []
    words: Words = msgspec.field(default_factory=Words)
    wrappers: list[str] = []
    retired: list[str] = []
    free: list[Free] = []

    def __add__(self, other: RuleFile) -> RuleFile:
        """Both files in one, this one's rules first."""
        return RuleFile(**{f: getattr(self, f) + getattr(other, f) for f in self.__struct_fields__})


def read_rules(own: Path | None = None) -> RuleFile:
    """The built-in rules, behind those of a team's own file if there is one. Raises InputError."""
    text = resources.files("nsys_sync.analysis.catalogue").joinpath("rules.toml").read_text(encoding="utf-8")
    rules, name = _decoded(text, "rules.toml"), "rules.toml"
    if own is not None:
        rules, name = _decoded(text_of(own), str(own)) + rules, str(own)
    _check(rules, name)
    return rules


def text_of(path: Path) -> str:
    """A file's text. Raises InputError."""
    return read_bytes(path).decode("utf-8", errors="replace")


def _decoded(text: str, name: str) -> RuleFile:
    """A file of rules, or InputError with the key and the file."""
    try:
        return msgspec.convert(tomllib.loads(text), RuleFile)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError("rules-file", f"{name} is not TOML: {error}.", "docs/rules.md shows a rule.") from None
    except msgspec.ValidationError as error:
        raise InputError(
            "rules-file", f"{name}: {_located(str(error), text)}.", "docs/rules.md lists the keys and their values."
        ) from None


def _located(message: str, text: str) -> str:
    """A message of msgspec with the id of the rule that it is about in place of its number."""
    head, _, place = message.partition(" - at `$.rule[")
    number = place.partition("]")[0]
    if not number.isdigit():
        return message
    rule = tomllib.loads(text)["rule"][int(number)]
    name = rule.get("id") if isinstance(rule, dict) else None
    return f"rule {name or f'number {int(number) + 1}'}: {head}"


def _check(rules: RuleFile, name: str) -> None:
    """What types cannot say: ids once, known operations, a last rule for everything. Raises InputError."""
    ids = [rule.id for rule in rules.rule]
    operations = {operation.name for operation in rules.operation}
    for rule in rules.rule:
        unknown = {o for m in rule.match for o in m.operation} - operations
        problem = (
            f"the id {rule.id} is used twice"
            if ids.count(rule.id) > 1
            else f"the id {rule.id} was used for another rule before"
            if rule.id in rules.retired
            else f"rule {rule.id} names an unknown operation {min(unknown)!r}"
            if unknown
            else f"rule {rule.id} matches everything"
            if rule.id != "unknown" and Match() in rule.match
            else f"rule {rule.id} has no match"
            if not rule.match
            else ""
        )
        if problem:
            raise InputError("rules-file", f"{name}: {problem}.", "Every rule needs an id of its own and a condition.")
