"""Where a name is read: what a value that it is given can reach, and whether all of its reads are in sight."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from nsys_sync.analysis.catalogue.syntax import Function, Source, arguments, last_name

_REFLECTION = frozenset({"locals", "vars", "globals", "eval", "exec"})


def reads_any(node: ast.AST, names: set[str]) -> bool:
    """Whether a node is one of these names, being read."""
    return isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load)


def reads_after(source: Source, name: str, statement: ast.stmt) -> list[ast.Name]:
    """Where a name is read after a statement gave it its value: to the end of the function or the next value."""
    scope, reads = source.scope(statement), source.names.get(name, [])
    if source.is_shared(name, scope):
        return reads
    inner = [n for n in reads if _is_captured(source, n, scope)]
    under: dict[ast.AST, list[ast.Name]] = {}
    for read in reads:
        for up in (read, *source.ancestors(read)):
            under.setdefault(up, []).append(read)
            if up is scope:
                break
    return list(dict.fromkeys([*_reached(source, name, statement, under), *inner]))


def _is_captured(source: Source, read: ast.Name, scope: ast.AST) -> bool:
    """Whether a read is in a function inside of ``scope`` that does not bind the name itself."""
    inner: ast.AST = source.scope(read)
    if inner is scope:
        return False
    while inner is not scope:
        if not isinstance(inner, Function) or any(a.arg == read.id for a in arguments(inner)):
            return False
        inner = source.scope(inner)
    return True


def _reached(
    source: Source, name: str, statement: ast.stmt, under: dict[ast.AST, list[ast.Name]]
) -> Iterator[ast.Name]:
    """The reads that a value given by a statement can reach; under: the reads inside each node."""
    at: ast.stmt = statement
    while True:
        block = source.block(at)
        index = block.index(at)
        reads, ended = _scan(block[index + 1 :], name, under)
        yield from reads
        up = source.parents.get(at)
        if isinstance(up, ast.For | ast.AsyncFor | ast.While) and not ended:
            again, _ = _scan([*block[:index], at], name, under)
            yield from again
        if isinstance(up, ast.While):
            yield from under.get(up.test, [])
        if ended and not isinstance(up, ast.If):
            return
        above = next((a for a in source.ancestors(at) if isinstance(a, ast.stmt)), None)
        if above is None or isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return
        at = above


def _scan(statements: list[ast.stmt], name: str, under: dict[ast.AST, list[ast.Name]]) -> tuple[list[ast.Name], bool]:
    """The reads of a name in statements up to one that gives it a new value, and whether there is one."""
    found: list[ast.Name] = []
    for statement in statements:
        found += under.get(statement, [])
        if isinstance(statement, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in statement.targets
        ):
            return found, True
    return found, False


def is_local(source: Source, name: ast.Name) -> bool:
    """Whether a name is the function's own: every read of it is in sight."""
    scope = source.scope(name)
    if isinstance(scope, ast.Module | ast.Lambda):
        return False
    outer = source.is_shared(name.id, scope)
    given = any(a.arg == name.id for a in arguments(scope))
    assigned = any(
        isinstance(n, ast.Name) and n.id == name.id and isinstance(n.ctx, ast.Store) and source.scope(n) is scope
        for n in ast.walk(scope)
    )
    return assigned and not outer and not given


def sees_all_reads(source: Source, node: ast.expr) -> bool:
    """Whether a name that is never read is really never read: not a module's, no ``locals()`` or ``eval``."""
    if isinstance(source.parents.get(node), ast.Expr):
        return True
    scope = source.scope(node)
    reflects = any(isinstance(n, ast.Call) and last_name(n.func) in _REFLECTION for n in ast.walk(scope))
    return not isinstance(scope, ast.Module) and not reflects


def only_counted(source: Source, node: ast.AST) -> bool:
    """Whether a container stands in ``len(...)``, which does not look at what it holds."""
    up = source.parents.get(node)
    return isinstance(up, ast.Call) and last_name(up.func) == "len"
