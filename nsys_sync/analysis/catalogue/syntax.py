"""Source files as syntax trees: read once, never executed or imported, with whatever can be parsed of them."""

from __future__ import annotations

import ast
import itertools
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeVar

from nsys_sync.analysis.source import decoded

#: What scripts call these modules when the import is not in sight (a fragment, a star import).
_CUSTOMARY = {
    "np": "numpy",
    "cp": "cupy",
    "jnp": "jax.numpy",
    "F": "torch.nn.functional",
    "nn": "torch.nn",
    "dist": "torch.distributed",
    "plt": "matplotlib.pyplot",
    "pd": "pandas",
}

_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")
_MAX_BYTES = 8 << 20
_WINDOW = 12

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope = Function | ast.Module
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
T = TypeVar("T", bound=ast.AST)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True)
class Binding:
    """One way a name got its value.

    kind: ``value`` (assigned), ``part`` (unpacked from value), ``element`` (of the iterable value), ``parameter``,
    ``other``.
    """

    kind: str
    value: ast.expr | None


class Source:
    """One parsed file, or the part of it that could be parsed.

    whole: False when only the block around the line asked for could be parsed.
    """

    def __init__(self, tree: ast.Module, *, whole: bool) -> None:
        self.tree = tree
        self.whole = whole

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes."""
        return list(ast.walk(self.tree))

    @cached_property
    def reads(self) -> dict[str, list[ast.Attribute]]:
        """Where attributes are read, by their name."""
        read = (n for n in self.nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
        return _grouped(read, lambda node: node.attr)

    @cached_property
    def names(self) -> dict[str, list[ast.Name]]:
        """Where names are read, by name."""
        read = (n for n in self.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        return _grouped(read, lambda node: node.id)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Each node's parent."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Full dotted names by the names that the file's imports give them."""
        names = dict(_CUSTOMARY)
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names |= {a.asname: a.name for a in node.names if a.asname}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        return names

    @cached_property
    def modules(self) -> frozenset[str]:
        """The top-level modules that the file imports."""
        found = set()
        for node in self.statements:
            if isinstance(node, ast.Import):
                found |= {a.name.partition(".")[0] for a in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
        return frozenset(found)

    @cached_property
    def functions(self) -> dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
        """The file's functions and methods by name."""
        functions = (n for n in self.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        return _grouped(functions, lambda node: node.name)

    @cached_property
    def calls(self) -> dict[str, list[ast.Call]]:
        """The file's calls by the last part of the called name."""
        return _grouped((n for n in self.nodes if isinstance(n, ast.Call)), lambda node: last_name(node.func))

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """All statements."""
        return [node for node in self.nodes if isinstance(node, ast.stmt)]

    @cached_property
    def _bindings(self) -> dict[tuple[ast.AST, str], list[Binding]]:
        found: dict[tuple[ast.AST, str], list[Binding]] = {}
        for node in self.nodes:
            for name, binding in _bound(node):
                scope = node if isinstance(node, _FUNCTIONS) else self.scope(node)
                found.setdefault((scope, name), []).append(binding)
        return found

    @cached_property
    def _shared(self) -> set[tuple[ast.AST, str]]:
        found: set[tuple[ast.AST, str]] = set()
        for node in self.nodes:
            if isinstance(node, ast.Global | ast.Nonlocal):
                for up in (u for u in self.ancestors(node) if isinstance(u, _FUNCTIONS)):
                    found |= {(up, name) for name in node.names}
        return found

    def is_shared(self, name: str, scope: ast.AST) -> bool:
        """Whether a function, or one inside of it, declares a name ``global`` or ``nonlocal``."""
        return (scope, name) in self._shared

    def bindings(self, name: str, node: ast.AST) -> list[Binding]:
        """What a name can stand for at a node: the bindings of the nearest scope outwards that has any."""
        scope: ast.AST = self.scope(node)
        while True:
            if found := self._bindings.get((scope, name)):
                return found
            if scope is self.tree:
                return []
            scope = self.scope(scope)

    def dotted(self, node: ast.AST) -> str:
        """``a.b.c`` with the first part resolved through the file's imports; "" for anything but names."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.aliases.get(node.id, node.id))
        return ".".join(reversed(parts))

    def called(self, call: ast.Call) -> str:
        """The dotted name of what is called, ``?.name`` for a method of an expression."""
        return self.dotted(call.func) or f"?.{last_name(call.func)}"

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around one, innermost first."""
        while (up := self.parents.get(node)) is not None:
            yield up
            node = up

    def scope(self, node: ast.AST) -> Scope:
        """The function whose body holds the node, else the module."""
        for up in self.ancestors(node):
            if isinstance(up, _FUNCTIONS):
                return up
        return self.tree

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose body holds the node."""
        return next((up for up in self.ancestors(node) if isinstance(up, ast.ClassDef)), None)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement that holds the node, or the node if it is one."""
        return next((n for n in itertools.chain((node,), self.ancestors(node)) if isinstance(n, ast.stmt)), None)

    def loop(self, node: ast.AST) -> ast.For | ast.AsyncFor | ast.While | None:
        """The innermost loop around the node within its function."""
        for up in self.ancestors(node):
            if isinstance(up, _FUNCTIONS):
                return None
            if isinstance(up, _LOOPS):
                return up
        return None

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that a statement stands in; just itself where there is none."""
        up = self.parents.get(statement)
        for name in _BODIES:
            body = getattr(up, name, None)
            if isinstance(body, list) and statement in body:
                return body
        return [statement]

    def statements_at(self, line: int) -> list[ast.stmt]:
        """The innermost statements that a line belongs to: one, or several written on it."""
        return [node for node in self.statements if node.lineno <= line <= _header_end(node)]


def _grouped(nodes: Iterable[T], name: Callable[[T], str]) -> dict[str, list[T]]:
    """Nodes by a name."""
    found: dict[str, list[T]] = {}
    for node in nodes:
        found.setdefault(name(node), []).append(node)
    return found


def _bound(node: ast.AST) -> Iterator[tuple[str, Binding]]:
    """The names that a node binds."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _targets(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield from _targets(node.target, node.value)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from ((name, Binding("element", node.iter)) for name, _ in _targets(node.target, node.iter))
    elif isinstance(node, ast.With | ast.AsyncWith):
        for item in node.items:
            for name, _ in _targets(item.optional_vars, item.context_expr) if item.optional_vars else ():
                yield name, Binding("other", None)
    elif isinstance(node, _FUNCTIONS):
        yield from ((a.arg, Binding("parameter", None)) for a in arguments(node))


def _targets(target: ast.AST, value: ast.expr) -> Iterator[tuple[str, Binding]]:
    if isinstance(target, ast.Name):
        yield target.id, Binding("value", value)
    elif isinstance(target, ast.Starred):
        yield from _targets(target.value, value)
    elif isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        paired = len(parts) == len(target.elts) and not any(isinstance(p, ast.Starred) for p in (*parts, *target.elts))
        for index, part in enumerate(target.elts):
            if paired:
                yield from _targets(part, parts[index])
            else:
                yield from ((name, Binding("part", value)) for name, _ in _targets(part, value))


def arguments(function: Function) -> list[ast.arg]:
    """A function's parameters in order: positional, then keyword-only."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _header_end(statement: ast.stmt) -> int:
    """Last line of a statement without the blocks that it holds."""
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if not body:
        return statement.end_lineno or statement.lineno
    first = body[0]
    start = int(first.pattern.lineno if isinstance(first, ast.match_case) else first.lineno)
    return statement.lineno if start <= statement.lineno else start - 1


def own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """A statement's expressions, without the statements inside it."""
    for name, value in ast.iter_fields(statement):
        if name in _BODIES and isinstance(statement, ast.stmt):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.stmt):
                yield from ast.walk(child)


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c`` or of ``c``; "" for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def parse(text: str | bytes, line: int = 1) -> Source | None:
    """Parse a source text; where it cannot be parsed as a whole, the function or the lines around ``line``."""
    if (tree := _parsed(text)) is not None:
        return Source(tree, whole=True)
    lines = decoded(text).splitlines()
    if not 1 <= line <= len(lines):
        return None
    tree = _around(lines, line)
    return None if tree is None else Source(tree, whole=False)


def read(path: Path | str, line: int) -> Source | None:
    """The tree of a file or of a text, or None when it cannot be read or nothing around ``line`` can be parsed."""
    if isinstance(path, str):
        return _whole_text(path) or parse(path, line)
    try:
        state = path.stat()
    except (OSError, ValueError):
        return None
    if state.st_size > _MAX_BYTES:
        return None
    whole = _read_whole(path, state.st_mtime_ns, state.st_size)
    return whole if isinstance(whole, Source) else (None if whole is None else parse(whole, line))


@lru_cache(maxsize=64)
def _whole_text(text: str) -> Source | None:
    tree = _parsed(text)
    return None if tree is None else Source(tree, whole=True)


@lru_cache(maxsize=64)
def _read_whole(path: Path, _mtime_ns: int, _size: int) -> Source | bytes | None:
    """The whole file's tree, else its bytes, else None; read again when time or size have changed."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    tree = _parsed(data)
    return data if tree is None else Source(tree, whole=True)


def _parsed(text: str | bytes) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _around(lines: list[str], line: int) -> ast.Module | None:
    """The enclosing function if it can be parsed, else the smallest run of lines around ``line`` that can."""
    for start in _headers_above(lines, line):
        end = start + 1
        while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > _indent(lines[start])):
            end += 1
        if end >= line and (tree := _parse_lines(lines, start, end)) is not None:
            return tree
    for height in range(_WINDOW):
        for start in range(line - 1, max(-1, line - 1 - _WINDOW), -1):
            end = start + height + 1
            if end >= line and (tree := _parse_lines(lines, start, min(end, len(lines)))) is not None:
                return tree
    return None


def _headers_above(lines: list[str], line: int) -> Iterator[int]:
    """Indices of the ``def`` lines that can enclose a line, innermost first."""
    depth = _indent(lines[line - 1])
    for index in range(line - 1, -1, -1):
        text = lines[index]
        if text.lstrip().startswith(("def ", "async def ")) and (_indent(text) < depth or index == line - 1):
            depth = _indent(text)
            yield index


def _parse_lines(lines: list[str], start: int, end: int) -> ast.Module | None:
    """Parse some lines in their place: the tree's line numbers are the file's."""
    text = textwrap.dedent("\n".join(lines[start:end]))
    for tail in ("", " pass", "\n pass"):
        if (tree := _parsed("\n" * start + text + tail)) is not None and tree.body:
            return tree
    return None
