"""What becomes of a value that the host waited for: followed through the syntax tree to where it has its effect."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from nsys_sync.analysis.catalogue.reads import is_local, only_counted, reads_after, reads_any, sees_all_reads
from nsys_sync.analysis.catalogue.syntax import Function, Source, arguments, last_name, own_nodes
from nsys_sync.analysis.catalogue.tensors import is_number, is_on_host, is_upload, tensor_like
from nsys_sync.analysis.catalogue.words import Words, named

#: Where a value ends, the most binding first. The host cannot go on without it: it decides a branch, whether the
#: optimizer steps, whether a loop goes on, a shape, a position, or is computed with on the host. Not known: it goes to
#: a function that is not read here, to a caller, or nobody knows. It can wait: it stops a loop or raises, is put into
#: an error's text, logged, kept, or computed with on the host only after more work. It need not come to the host: it
#: goes straight back to the GPU, or nobody reads it.
Use = Literal[
    "gate",
    "branch",
    "loop",
    "shape",
    "index",
    "host",
    "argument",
    "returned",
    "unknown",
    "stop",
    "check",
    "later",
    "error",
    "log",
    "stored",
    "device",
    "discarded",
]

_RANK = {use: rank for rank, use in enumerate(get_args(Use))}
_MAX_STEPS = 400
_MAX_CALLS = 3
_MAX_PLACES = 12

_MUTATORS = frozenset({"append", "extend", "appendleft", "insert", "add", "update", "setdefault", "clear"})
_RECORDS = re.compile(
    r"loss|metric|log|hist|stat|record|score|acc\w*|reward|meter|total|count|sum|avg|mean|running|epoch|best|bad|num_|n_",
    re.IGNORECASE,
)
_MATHEMATICS = frozenset({"numpy", "math", "torch", "cupy", "jax", "scipy", "cmath"})
_HOST_TENSORS = frozenset({"torch.tensor", "torch.as_tensor", "torch.asarray", "torch.from_numpy", "torch.Tensor"})
_CHECKS = frozenset({"isfinite", "isnan", "isinf"})


@dataclass(frozen=True)
class End:
    """One place where a value has its effect: what kind, in words, and the line (0 where there is none)."""

    use: Use
    text: str
    line: int = 0


@dataclass(frozen=True)
class _At:
    """One step up the tree: the node that holds the value, the node above, whether the host computed on the way."""

    up: ast.AST
    node: ast.AST
    computed: bool


def worst(ends: Iterable[End]) -> End:
    """The most binding of the ends; with none, nobody reads the value."""
    return min(ends, key=lambda e: _RANK[e.use], default=End("discarded", "nothing reads the value"))


class Flow:
    """Follows one value.

    array: the value is more than a number. callers: the calls that led to the function, innermost first, where a
    stack tells them.
    """

    def __init__(
        self, source: Source, words: Words, *, array: bool = False, callers: tuple[ast.Call, ...] = ()
    ) -> None:
        self.source = source
        self.words = words
        self._array = array
        self._start: ast.AST = source.tree
        self._callers = callers
        self._entered: list[tuple[Function, ast.Call]] = []
        self._seen: set[tuple[ast.AST, bool]] = set()
        self._climb: dict[type[ast.AST], Callable[[_At], list[End]]] = {
            ast.Attribute: self._attribute,
            ast.Call: self._argument,
            ast.keyword: self._keyword,
            ast.Subscript: self._subscript,
            ast.Slice: self._slice,
            ast.BinOp: self._arithmetic,
            ast.Tuple: self._tuple,
            ast.IfExp: self._choice,
            ast.If: self._condition,
            ast.While: self._loop_test,
            ast.Assert: self._assert,
            ast.For: self._elements,
            ast.AsyncFor: self._elements,
            ast.comprehension: self._comprehension,
            ast.Assign: self._assign,
            ast.AnnAssign: self._assign,
            ast.NamedExpr: self._walrus,
            ast.AugAssign: self._accumulate,
            ast.Return: self._return,
            ast.Lambda: self._return,
            ast.Expr: lambda _: [],
            ast.Delete: lambda _: [],
            ast.Raise: self._raise,
            ast.Match: self._condition,
        }

    def end(self, node: ast.expr) -> End:
        """Where the value of an expression ends: of several places the most binding one."""
        self._start = node
        ends = self._follow(node, computed=False)
        if not ends and not sees_all_reads(self.source, node):
            return End("unknown", "nothing here reads the value, but other code can")
        end = worst(ends)
        if end.use in {"host", "argument", "returned", "unknown"} and (between := self._launched_before_use(node)):
            return End("later", f"line {between} launches work before the value is used", between)
        return end

    def _is_after_loop(self, node: ast.AST) -> bool:
        """Whether a place is behind the loop in which the value is read."""
        loop = self.source.loop(self._start)
        same = self.source.scope(node) is self.source.scope(self._start)
        return loop is not None and same and loop not in self.source.ancestors(node)

    def _launched_before_use(self, node: ast.expr) -> int:
        """The line of a call between a value's assignment to a name and its first use in the same block, else 0."""
        statement = self.source.statement(node)
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            return 0
        block = self.source.block(statement)
        work = 0
        for after in block[block.index(statement) + 1 :]:
            if any(reads_any(n, {statement.targets[0].id}) for n in ast.walk(after)):
                return work
            calls = [n for n in own_nodes(after) if isinstance(n, ast.Call) and self._launches_work(n)]
            work = work or (calls[0].lineno if calls else 0)
        return 0

    def _launches_work(self, call: ast.Call) -> bool:
        name = self.source.called(call)
        quiet = [*self.words.log, *self.words.keep, *self.words.compute, *self.words.time, *self.words.exit]
        return not named(quiet, name) and last_name(call.func) not in _MUTATORS | {"len", "print", "range"}

    def is_log(self, call: ast.Call) -> bool:
        """Whether a call shows or writes its arguments."""
        name = self.source.called(call)
        logarithm = name.partition(".")[0] in _MATHEMATICS and last_name(call.func).startswith("log")
        return bool(call.args or call.keywords) and not logarithm and named(self.words.log, name)

    def _computes(self, call: ast.Call) -> bool:
        return named(self.words.compute, self.source.called(call))

    def _follow(self, node: ast.AST, *, computed: bool) -> list[End]:
        if (node, computed) in self._seen:
            return []
        self._seen.add((node, computed))
        up = self.source.parents.get(node)
        if up is None or len(self._seen) > _MAX_STEPS:
            return [End("unknown", "the value is used in ways not followed here", _line(node))]
        handler = self._climb.get(type(up))
        if handler is not None:
            return handler(_At(up, node, computed))
        if isinstance(up, ast.expr | ast.FormattedValue | ast.JoinedStr):
            return self._follow(up, computed=computed)
        return [End("unknown", f"line {_line(up)} uses the value in a way not followed here", _line(up))]

    # --- expressions -------------------------------------------------------------------------------------------------

    def _attribute(self, at: _At) -> list[End]:
        assert isinstance(at.up, ast.Attribute)
        call = self.source.parents.get(at.up)
        if not isinstance(call, ast.Call) or call.func is not at.up:
            return self._follow(at.up, computed=at.computed)
        if at.up.attr in _MUTATORS:
            return []
        if at.up.attr == "cuda" or (at.up.attr == "to" and is_upload(self.source, call)):
            return self._back_to_device(call, at)
        keeps = named(self.words.keep, f"?.{at.up.attr}")
        if not keeps and isinstance(self.source.parents.get(call), ast.Expr):
            return [End("unknown", f"line {call.lineno} calls its {at.up.attr}() for what that does", call.lineno)]
        return self._follow(call, computed=at.computed or not keeps)

    def _keyword(self, at: _At) -> list[End]:
        call = self.source.parents.get(at.up)
        if isinstance(call, ast.Call):
            return self._argument(_At(call, at.node, at.computed))
        return [End("unknown", "the value is used in ways not followed here", _line(at.node))]

    def _argument(self, at: _At) -> list[End]:
        assert isinstance(at.up, ast.Call)
        name, line = self.source.called(at.up), at.up.lineno
        if at.node is at.up.func:
            return [End("unknown", f"line {line} calls the value", line)]
        if self.is_log(at.up):
            late = self._is_after_loop(at.up)
            shown = f"{_short(name)}() on line {line} shows it{' after the loop' if late else ''}"
            return [End("stored" if late else "log", shown, line)]
        if named(self.words.exit, name):
            return [End("check", f"line {line} ends the program with it", line)]
        if named(self.words.shape, name) and not self._is_fill(at.up, at.node):
            return [End("shape", f"{_short(name)}() on line {line} needs it as a size", line)]
        if name in _HOST_TENSORS and is_on_host(self.source, at.up):
            return self._follow(at.up, computed=at.computed)
        if named(self.words.device, name) or (self._takes_tensor(at.up) and not self._computes(at.up)):
            return self._back_to_device(at.up, at)
        if isinstance(at.up.func, ast.Attribute) and at.up.func.attr in _MUTATORS:
            return self._kept(at.up.func.value, at.up)
        return self._called(at.up, at)

    def _called(self, call: ast.Call, at: _At) -> list[End]:
        name, line = self.source.called(call), call.lineno
        if name == "len":
            return [End("unknown", f"line {line} counts it", line)]
        for_effect = isinstance(self.source.parents.get(call), ast.Expr)
        if named(self.words.keep, name) and not for_effect:
            return self._follow(call, computed=at.computed)
        if self._computes(call) and not for_effect:
            return self._follow(call, computed=True)
        if named(self.words.host, name):
            return [End("host", f"{_short(name)}() on line {line} works with it on the host", line)]
        raised = isinstance(self.source.parents.get(call), ast.Raise)
        if raised or name.endswith(("Error", "Exception", "Warning")):
            return [End("error", f"it goes into the text of an error on line {line}", line)]
        return self._enter(call, at.node) or [End("argument", f"line {line} hands it to {_short(name)}()", line)]

    def _is_fill(self, call: ast.Call, node: ast.AST) -> bool:
        """Whether a value fills a new tensor (``torch.full``'s second argument) instead of shaping it."""
        filling = len(call.args) > 1 and node is call.args[1]
        named_so = any(k.value is node and k.arg == "fill_value" for k in call.keywords)
        return last_name(call.func) in {"full", "new_full"} and (filling or named_so)

    def _takes_tensor(self, call: ast.Call) -> bool:
        """Whether a call is ``torch.full`` and its like, or a method that works in place on a tensor."""
        name = last_name(call.func)
        if name in {"full", "new_full"}:
            return True
        return isinstance(call.func, ast.Attribute) and name.endswith("_") and not name.endswith("__")

    def _back_to_device(self, call: ast.Call, at: _At) -> list[End]:
        line = call.lineno
        if at.computed:
            use: Use = "host" if self._array else "unknown"
            return [End(use, f"the host computes with it before line {line} sends it back to the GPU", line)]
        return [End("device", f"line {line} sends it straight back to the GPU", line)]

    def _subscript(self, at: _At) -> list[End]:
        assert isinstance(at.up, ast.Subscript)
        if at.node is not at.up.value:
            return [End("index", f"line {_line(at.up)} uses it as a position", _line(at.up))]
        # x[i] = other: the container is written to, not read
        return self._follow(at.up, computed=at.computed) if isinstance(at.up.ctx, ast.Load) else []

    def _slice(self, at: _At) -> list[End]:
        return [End("shape", f"line {_line(at.node)} slices with it", _line(at.node))]

    def _arithmetic(self, at: _At) -> list[End]:
        assert isinstance(at.up, ast.BinOp)
        other = at.up.right if at.node is at.up.left else at.up.left
        on_gpu = tensor_like(self.source, other) is True and not is_on_host(self.source, other)
        if on_gpu and not at.computed and not self._array:
            return [End("device", f"line {_line(at.up)} computes with it on the GPU again", _line(at.up))]
        return self._follow(at.up, computed=at.computed or not (is_number(other) or isinstance(other, ast.Constant)))

    def _tuple(self, at: _At) -> list[End]:
        assert isinstance(at.up, ast.Tuple)
        assign = self.source.parents.get(at.up)
        if isinstance(assign, ast.Assign) and isinstance(assign.targets[0], ast.Tuple):
            targets = assign.targets[0].elts
            if len(targets) == len(at.up.elts) and isinstance(at.node, ast.expr):
                return self._bind(targets[at.up.elts.index(at.node)], assign, computed=at.computed)
        return self._follow(at.up, computed=at.computed)

    def _choice(self, at: _At) -> list[End]:
        assert isinstance(at.up, ast.IfExp)
        ends = self._follow(at.up, computed=at.computed)
        if at.node is not at.up.test:
            return ends
        chosen = f"it chooses a value on line {_line(at.up)}"
        return [End("branch", chosen, _line(at.up)) if e.use in {"device", "discarded"} else e for e in ends]

    # --- control -----------------------------------------------------------------------------------------------------

    def _condition(self, at: _At) -> list[End]:
        line = _line(at.up)
        if not isinstance(at.up, ast.If):
            return [End("branch", f"it decides the branch on line {line}", line)]
        body = [*at.up.body, *at.up.orelse]
        if self._gates(at.up, at.node):
            return [End("gate", f"it decides on line {line} whether the step is taken", line)]
        ends = [e for s in body for e in self._effect(s, line)]
        return ends or [End("check", f"line {line} only checks it", line)]

    def _gates(self, up: ast.If, node: ast.AST) -> bool:
        """Whether a check for finite numbers decides if an optimizer steps."""
        checked = any(last_name(n.func) in _CHECKS for n in ast.walk(node) if isinstance(n, ast.Call))
        body = [n for s in (*up.body, *up.orelse) for n in ast.walk(s)]
        steps = any(
            isinstance(n, ast.Call) and last_name(n.func) == "step" and "opt" in self.source.called(n).lower()
            for n in body
        )
        return steps or (checked and any(isinstance(n, ast.Continue) for n in body))

    def _effect(self, statement: ast.stmt, line: int) -> list[End]:
        """What a branch that the value decides does: what can come late, or the branch itself."""
        if isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
            return []
        if isinstance(statement, ast.Raise | ast.Assert):
            return [End("check", f"line {line} only checks it", line)]
        if isinstance(statement, ast.Break):
            return [End("stop", f"it ends the loop on line {_line(statement)}", _line(statement))]
        if isinstance(statement, ast.If):
            return [e for s in (*statement.body, *statement.orelse) for e in self._effect(s, line)]
        if isinstance(statement, ast.Assign | ast.AugAssign):
            return self._effect_of_assignment(statement, line)
        if isinstance(statement, ast.Expr) and self._reports(statement.value):
            return [End("check", f"line {line} only checks and reports it", line)]
        return [End("branch", f"it decides the branch on line {line}", line)]

    def _reports(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Constant):
            return True
        if not isinstance(value, ast.Call):
            return False
        keeps = isinstance(value.func, ast.Attribute) and value.func.attr in _MUTATORS
        return self.is_log(value) or keeps or named(self.words.exit, self.source.called(value))

    def _effect_of_assignment(self, statement: ast.Assign | ast.AugAssign, line: int) -> list[End]:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if not all(isinstance(t, ast.Name | ast.Attribute) for t in targets) or _launches(statement.value):
            return [End("branch", f"it decides the branch on line {line}", line)]
        ends = [e for t in targets for e in self._kept(t, statement)]
        if any(_RANK[e.use] <= _RANK["unknown"] or e.use == "device" for e in ends):
            return [End("branch", f"it decides on line {line} what later lines do", line)]
        return [End("check", f"line {line} only checks and counts it", line)]

    def _loop_test(self, at: _At) -> list[End]:
        return [End("loop", f"it decides whether the loop on line {_line(at.up)} goes on", _line(at.up))]

    def _assert(self, at: _At) -> list[End]:
        return [End("check", f"line {_line(at.up)} asserts it", _line(at.up))]

    def _raise(self, at: _At) -> list[End]:
        return [End("error", f"it goes into the error raised on line {_line(at.up)}", _line(at.up))]

    # --- loops over the value ----------------------------------------------------------------------------------------

    def _elements(self, at: _At) -> list[End]:
        assert isinstance(at.up, ast.For | ast.AsyncFor)
        if at.node is not at.up.iter:
            return []
        names = {n.id for n in ast.walk(at.up.target) if isinstance(n, ast.Name)}
        loads = [n for s in at.up.body for n in ast.walk(s) if reads_any(n, names)]
        return [e for n in loads for e in self._follow(n, computed=at.computed)]

    def _comprehension(self, at: _At) -> list[End]:
        assert isinstance(at.up, ast.comprehension)
        whole = self.source.parents[at.up]
        if at.node is not at.up.iter:
            return [End("branch", f"line {_line(whole)} filters by it", _line(whole))]
        names = {n.id for n in ast.walk(at.up.target) if isinstance(n, ast.Name)}
        loads = [n for n in ast.walk(whole) if reads_any(n, names)]
        return [e for n in loads for e in self._follow(n, computed=at.computed)]

    # --- names and places --------------------------------------------------------------------------------------------

    def _assign(self, at: _At) -> list[End]:
        if not isinstance(at.up, ast.Assign | ast.AnnAssign) or at.node is not at.up.value:
            return []
        targets = at.up.targets if isinstance(at.up, ast.Assign) else [at.up.target]
        return [e for t in targets for e in self._bind(t, at.up, computed=at.computed)]

    def _walrus(self, at: _At) -> list[End]:
        assert isinstance(at.up, ast.NamedExpr)
        statement = self.source.statement(at.up)
        bound = self._bind(at.up.target, statement, computed=at.computed) if statement is not None else []
        return [*self._follow(at.up, computed=at.computed), *bound]

    def _bind(self, target: ast.expr, statement: ast.stmt, *, computed: bool) -> list[End]:
        if isinstance(target, ast.Tuple | ast.List):
            return [e for t in target.elts for e in self._bind(t, statement, computed=computed)]
        if isinstance(target, ast.Starred):
            return self._bind(target.value, statement, computed=computed)
        if not isinstance(target, ast.Name):
            return self._kept(target, statement)
        loads = reads_after(self.source, target.id, statement)
        return [e for n in loads for e in self._follow(n, computed=computed)]

    def _accumulate(self, at: _At) -> list[End]:
        assert isinstance(at.up, ast.AugAssign)
        if tensor_like(self.source, at.up.target) is True and not at.computed:
            return [End("device", f"line {_line(at.up)} adds it to a tensor", _line(at.up))]
        return self._kept(at.up.target, at.up)

    def _kept(self, place: ast.expr, statement: ast.AST) -> list[End]:
        """A value put into something that lives on: followed where it is read in the same pass of the loop.

        It can wait if it is collected by a loop and read after it, or goes by the name of a record that people read.
        """
        while isinstance(place, ast.Subscript):
            place = place.value
        name, line = ast.unparse(place)[:40], _line(statement)
        kept = End("stored", f"line {line} keeps it in {name}", line)
        elsewhere = End("unknown", f"line {line} keeps it in {name}, which is read elsewhere", line)
        record = _RECORDS.search(last_name(place)) is not None
        if isinstance(place, ast.Attribute):
            ends = self._kept_in_attribute(place)
            summed = isinstance(statement, ast.AugAssign)
            return [kept, *ends] if record or ends or summed else [elsewhere]
        if not isinstance(place, ast.Name):
            return [kept if record else elsewhere]
        scope, loop = self.source.scope(statement), self.source.loop(statement)
        near = ast.walk(scope if loop is None else loop)
        loads = [
            n
            for n in near
            if reads_any(n, {place.id})
            and (loop is not None or _line(n) > _line(statement))
            and not only_counted(self.source, n)
        ]
        ends = [e for n in loads for e in self._follow(n, computed=True) if e.use != "discarded"]
        seen = record or loop is not None or ends or is_local(self.source, place)
        return [kept, *ends] if seen else [elsewhere]

    def _kept_in_attribute(self, place: ast.Attribute) -> list[End]:
        owner = self.source.class_of(place)
        loads = [
            n
            for n in self.source.reads.get(place.attr, [])
            if n is not place and (owner is None or owner is self.source.class_of(n))
        ]
        if len(loads) > _MAX_PLACES:
            return [End("unknown", f".{place.attr} is read in {len(loads)} places", _line(place))]
        return [e for n in loads for e in self._follow(n, computed=True) if e.use != "discarded"]

    # --- functions ---------------------------------------------------------------------------------------------------

    def _enter(self, call: ast.Call, node: ast.AST) -> list[End]:
        """Follow an argument into a function of the same file; [] where that is not possible."""
        functions = self.source.functions.get(last_name(call.func), [])
        of_self = isinstance(call.func, ast.Attribute) and last_name(call.func.value) in {"self", "cls"}
        if len(functions) != 1 or len(self._entered) >= _MAX_CALLS or not (isinstance(call.func, ast.Name) or of_self):
            return []
        function = functions[0]
        parameters = [a.arg for a in arguments(function)][1 if of_self else 0 :]
        name = next((k.arg for k in call.keywords if k.value is node), None)
        if name is None and node in call.args and call.args.index(node) < len(parameters):
            name = parameters[call.args.index(node)]
        if name is None or name not in parameters:
            return []
        self._entered.append((function, call))
        loads = [n for s in function.body for n in ast.walk(s) if reads_any(n, {name})]
        ends = [e for n in loads for e in self._follow(n, computed=False)]
        self._entered.pop()
        if not loads:
            return [End("discarded", f"{function.name}() does not read it", call.lineno)]
        return ends

    def _return(self, at: _At) -> list[End]:
        function = self.source.scope(at.node if isinstance(at.up, ast.Lambda) else at.up)
        if isinstance(at.up, ast.Lambda) and at.node is not at.up.body:
            return [End("unknown", "the value is a default of a lambda", _line(at.up))]
        name = getattr(function, "name", "a lambda")
        known = [c for f, c in self._entered if f is function] or [
            c for c in self._callers if last_name(c.func) == name
        ]
        if known:
            return self._follow(known[0], computed=at.computed)
        returned = End("returned", f"{name}() returns it on line {_line(at.up)}", _line(at.up))
        calls = self.source.calls.get(name, [])
        if not calls or len(calls) > _MAX_PLACES:
            return [returned]
        # Other files may call it too, so that these calls show what the value is needed for, but not that it is not.
        ends = [e for c in calls for e in self._follow(c, computed=at.computed)]
        return [returned if e.use in {"device", "discarded"} else e for e in ends] or [returned]


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _short(name: str) -> str:
    return name.removeprefix("?.").removeprefix("self.")


def _launches(value: ast.expr) -> bool:
    """Whether an expression calls anything but plain conversions."""
    plain = {"int", "float", "bool", "str", "item", "min", "max", "len"}
    return any(isinstance(n, ast.Call) and last_name(n.func) not in plain for n in ast.walk(value))
