"""What kind of sync a site is, and what to write instead: the rules are asked, and what they rest on is said."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from nsys_sync.analysis.catalogue import surroundings, syntax
from nsys_sync.analysis.catalogue.consumer import End, Flow, worst
from nsys_sync.analysis.catalogue.evidence import Evidence
from nsys_sync.analysis.catalogue.operations import (
    Candidate,
    Operations,
    frame_matches,
    native_matches,
    signals_of,
)
from nsys_sync.analysis.catalogue.rules import Free, Match, Rule, read_rules, text_of
from nsys_sync.analysis.catalogue.surroundings import Near, Operand
from nsys_sync.analysis.catalogue.syntax import Source
from nsys_sync.analysis.catalogue.words import Words
from nsys_sync.analysis.findings import Fix, Frame, SiteClass
from nsys_sync.errors import UsageError

Sureness = Literal["sure", "likely", "weak"]

_ARRAYS = frozenset({"download", "tolist", "cupy_read", "jax_read"})
_RARE = 0.1


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalogue makes of a site. ``class_basis`` begins with how sure it is and says what it rests on."""

    rule: str
    title: str
    class_: SiteClass = msgspec.field(name="class")
    class_basis: str
    fix: Fix | None
    blocks_graph_capture: bool
    sureness: Sureness
    operation: str | None
    use: str | None


@dataclass(frozen=True)
class _Facts:
    """What is known about a site before the rules are asked.

    operation: its name, from: where that is known from (``native``, ``frames``, ``syntax``, ``signals``).
    """

    operation: str | None = None
    origin: str = ""
    end: End | None = None
    operand: Operand | None = None
    near: frozenset[Near] = frozenset()
    others: tuple[str, ...] = ()
    guess: bool = False
    whole: bool = True


@dataclass(frozen=True)
class Catalogue:
    """Rules in the order in which they are tried. Made by ``load``; ``judge`` is called once a site."""

    rules: tuple[Rule, ...]
    operations: Operations
    words: Words
    wrappers: tuple[str, ...]
    free: tuple[Free, ...] = ()
    retired: tuple[str, ...] = ()

    @classmethod
    def load(cls, own: Path | None = None) -> Catalogue:
        """The built-in catalogue, behind the rules of a team's own file if there is one. Raises InputError."""
        file = read_rules(own)
        return cls(
            rules=tuple(file.rule),
            operations=Operations(file.operation),
            words=file.words,
            wrappers=tuple(file.wrappers),
            free=tuple(file.free),
            retired=tuple(file.retired),
        )

    @cached_property
    def _by_id(self) -> dict[str, Rule]:
        return {r.id: r for r in self.rules}

    def rule(self, rule_id: str) -> Rule:
        """The rule with an id. Raises UsageError."""
        if rule_id not in self._by_id:
            raise UsageError("no-such-rule", f"There is no rule {rule_id!r}.", "All of them: nsys-sync rules")
        return self._by_id[rule_id]

    def judge(self, evidence: Evidence) -> Verdict:
        """Which rule a site falls under, what it rests on, and what to write instead."""
        facts = self._facts(evidence)
        rule = next(r for r in self.rules if any(_holds(m, evidence, facts) for m in r.match))
        unseen = not evidence.seen and rule.run is not None and not rule.run.blocks
        sureness = "weak" if unseen else _sureness(rule, evidence, facts)
        basis = self._basis(rule, evidence, facts)
        if unseen:
            basis = f"{basis.removesuffix('.')}; no trace shows a wait here, and current versions need not wait."
        return Verdict(
            rule=rule.id,
            title=rule.title,
            class_="unknown" if unseen else rule.class_,
            class_basis=f"{sureness}: {basis}",
            fix=rule.as_fix(),
            blocks_graph_capture=_blocks_capture(evidence),
            sureness=sureness,
            operation=facts.operation,
            use=facts.end.use if facts.end is not None else None,
        )

    def judge_line(self, path: Path, line: int) -> Verdict:
        """What a sync on a source line would be, from its syntax tree alone. Raises InputError, UsageError."""
        text = text_of(path)
        if not 1 <= line <= len(text.splitlines()):
            raise UsageError("no-such-line", f"{path} has no line {line}.", "Give a line as FILE:LINE.")
        user = Frame(function="", file=str(path), line=line)
        return self.judge(Evidence(apis=frozenset(), user=user, leaf=user, stack=(user,), source=path, seen=False))

    # --- facts -------------------------------------------------------------------------------------------------------

    def _facts(self, evidence: Evidence) -> _Facts:
        possible = self.operations.of_signals(signals_of(evidence))
        shown = self.operations.of_native(evidence.native)
        native = [o for o in shown if o in possible] or shown
        leaf = [o for o in self.operations.of_leaf(evidence.leaf) if o in possible]
        named = leaf or native
        inside = self._inside_library(evidence, leaf)
        source = None
        if evidence.source is not None and evidence.user is not None and not inside:
            source = syntax.read(evidence.source, evidence.user.line)
        origin = "frames" if leaf else "native" if native else ""
        near: frozenset[Near] = frozenset({"library"}) if inside else frozenset()
        facts = _Facts(operation=named[0] if named else None, origin=origin, near=near)
        if source is None or evidence.user is None:
            return facts
        try:
            return self._read_line(source, evidence, named or possible, facts)
        except RecursionError:
            return facts

    def _inside_library(self, evidence: Evidence, leaf: list[str]) -> bool:
        """Whether the sync happens in a library's own code below the user's line."""
        if evidence.leaf is None or evidence.user is None or evidence.leaf == evidence.user or leaf:
            return False
        return not any(frame_matches(w, evidence.leaf) for w in self.wrappers)

    def _read_line(self, source: Source, evidence: Evidence, possible: list[str], facts: _Facts) -> _Facts:
        assert evidence.user is not None
        found = self.operations.candidates(source, evidence.user.line, possible, told=bool(facts.origin))
        if not found:
            return replace(facts, whole=source.whole)
        first = found[0]
        same = [c for c in found if c.operation == first.operation and c.sure == first.sure]
        callers = _callers(source, evidence)
        others = tuple(dict.fromkeys(c.operation for c in found if c.operation != first.operation and c.sure))
        return _Facts(
            operation=first.operation,
            origin=facts.origin or "syntax",
            end=worst(self._end(source, c, callers) for c in same),
            operand=surroundings.operand(source, first),
            near=facts.near | surroundings.near_all(source, same, self.words, callers),
            others=() if facts.origin else others,
            guess=not first.sure and not facts.origin,
            whole=source.whole,
        )

    def _end(self, source: Source, candidate: Candidate, callers: tuple[ast.Call, ...]) -> End:
        flow = Flow(source, self.words, array=candidate.operation in _ARRAYS, callers=callers)
        try:
            return flow.end(candidate.node)
        except RecursionError:
            return End("unknown", "the value is handed on too often to be followed")

    # --- words -------------------------------------------------------------------------------------------------------

    def _basis(self, rule: Rule, evidence: Evidence, facts: _Facts) -> str:
        """What the class rests on, in one sentence."""
        parts = []
        if frames := [f for m in rule.match for f in (*m.leaf, *m.frames) if _any_frame(f, evidence)]:
            parts.append(f"the Python stack goes through {frames[0].partition(':')[0]}")
        if facts.operation is not None:
            says = self.operations.by_name[facts.operation].says
            parts.append(f"{_ORIGINS[facts.origin]} {says}")
        if facts.end is not None and any(m.use for m in rule.match):
            parts.append(facts.end.text)
        parts += [_NEAR_WORDS[n] for m in rule.match for n in m.near if n in facts.near]
        if facts.operand is not None and any(facts.operand in m.operand for m in rule.match):
            parts.append(_OPERAND_WORDS[facts.operand])
        if facts.others:
            others = ", ".join(self.operations.by_name[o].says for o in facts.others[:3])
            parts.append(f"the line could also wait in {others}")
        if copied := sorted({c for m in rule.match for c in m.copies} & evidence.copies):
            parts.append(f"the copies go {' and '.join(_COPY_WORDS[c] for c in copied)}")
        if not parts:
            known = f"only the calls are known: {', '.join(sorted(evidence.apis))}" if evidence.apis else ""
            parts.append(known or "nothing on the line is known to wait")
        if not facts.whole:
            parts.append("only part of the file could be parsed")
        return "; ".join(dict.fromkeys(parts)) + "."


_ORIGINS = {
    "native": "the native stack shows",
    "frames": "the innermost Python frame is",
    "syntax": "the line has",
    "": "the calls look like",
}
_NEAR_WORDS: dict[Near, str] = {
    "timing": "a clock is read beside it",
    "profiler": "a profiler is started or stopped beside it",
    "async_copy": "a copy to the host is under way that it waits for",
    "streams": "the function works with streams of its own",
    "queue": "the event comes out of a queue or ring",
    "error_check": "it stands in a try block that catches errors",
    "foreign": "the function hands memory to another library",
    "collective": "the function exchanges data between ranks",
    "alone": "the function does nothing else, and its callers are not seen",
    "in_loop": "it is in a loop",
    "outside_loop": "it is outside of any loop that this file shows",
    "every_n": "it is in a branch that is taken every so many steps",
    "recorded_here": "the same function records the event",
    "reduced": "the result is reduced at once",
    "several_reads": "another value is read beside it",
    "read_loop": "it is read once for each value of a loop",
    "library": "it happens inside a library",
    "non_blocking": "non_blocking=True is set",
}
_COPY_WORDS = {
    "pageable->device": "from pageable memory to the GPU",
    "device->pageable": "from the GPU into pageable memory",
    "pinned->device": "from pinned memory to the GPU",
    "device->pinned": "from the GPU into pinned memory",
}
_OPERAND_WORDS: dict[Operand, str] = {
    "fresh": "the tensor was just made on the CPU",
    "number": "it copies one number",
    "list": "it copies Python numbers",
    "array": "it copies an array that is on the host",
    "pinned": "the source is pinned",
    "batch": "it copies a batch",
    "module": "it moves a module",
}


def _callers(source: Source, evidence: Evidence) -> tuple[ast.Call, ...]:
    """The calls in the user's file that the stack goes through above the user's frame, innermost first."""
    user = evidence.user
    if user is None or user not in evidence.stack:
        return ()
    above = evidence.stack[evidence.stack.index(user) + 1 :]
    names = [user.function, *(f.function for f in above)]
    found = []
    for frame, called in zip(above, names, strict=False):
        if frame.file != user.file:
            break
        found += [c for c in source.calls.get(called, []) if c.lineno <= frame.line <= (c.end_lineno or c.lineno)][:1]
    return tuple(found)


def _inner_frames(evidence: Evidence) -> Iterator[Frame]:
    """The frames from the innermost up to the user's; all where none is the user's."""
    for frame in evidence.stack:
        yield frame
        if frame == evidence.user:
            return


def _any_frame(pattern: str, evidence: Evidence) -> bool:
    return any(frame_matches(pattern, f) for f in _inner_frames(evidence))


def _fits(wanted: list[str], have: str | None) -> bool:
    return not wanted or have in wanted


def _holds(match: Match, evidence: Evidence, facts: _Facts) -> bool:
    use = facts.end.use if facts.end is not None else None
    return (
        _fits(match.operation, facts.operation)
        and _fits(list(match.use), use)
        and _fits(list(match.operand), facts.operand)
        and (not match.near or not facts.near.isdisjoint(match.near))
        and facts.near.isdisjoint(match.not_near)
        and _holds_in_trace(match, evidence)
    )


def _holds_in_trace(match: Match, evidence: Evidence) -> bool:
    often = None if evidence.calls_per_step is None else evidence.calls_per_step > _RARE
    return (
        (not match.apis or not evidence.apis.isdisjoint(match.apis))
        and (not match.copies or not evidence.copies.isdisjoint(match.copies))
        and (match.bytes_from is None or evidence.max_bytes >= match.bytes_from)
        and (match.bytes_to is None or evidence.max_bytes <= match.bytes_to)
        and (not match.native or any(native_matches(p, evidence.native) for p in match.native))
        and (not match.leaf or (evidence.leaf is not None and any(frame_matches(p, evidence.leaf) for p in match.leaf)))
        and (not match.frames or any(_any_frame(p, evidence) for p in match.frames))
        and match.every_step in (None, often)
        and match.redundant in (None, evidence.redundant >= evidence.events)
    )


def _sureness(rule: Rule, evidence: Evidence, facts: _Facts) -> Sureness:
    if rule.class_ == "unknown" or facts.guess or not facts.whole:
        return "weak"
    by_frames = any(_any_frame(f, evidence) for m in rule.match for f in (*m.leaf, *m.frames))
    if by_frames or (facts.origin in {"native", "frames"} and not any(m.near for m in rule.match)):
        return "sure"
    return "weak" if facts.operation is None and not rule.match[0].apis else "likely"


def _blocks_capture(evidence: Evidence) -> bool:
    """Whether the site is in the step: any host-blocking call there makes a CUDA-graph capture fail."""
    if evidence.calls_per_step is not None:
        return evidence.calls_per_step > _RARE
    return evidence.events > 1 or not evidence.apis


def line_of(text: str) -> tuple[Path, int] | None:
    """The file and line of ``FILE:LINE``; None where the text is no such thing but can be a rule's id.

    Raises UsageError for a file without a line.
    """
    file, _, line = text.rpartition(":")
    if file and line.isdecimal() and len(line) < 10:
        return Path(file), int(line)
    if "/" in text or text.endswith(".py") or ":" in text:
        raise UsageError("no-such-line", f"{text} names no source line.", "Give it as FILE:LINE, such as train.py:42.")
    return None
