"""Which operation of a line makes the host wait: by native frames where there are any, by the syntax tree otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec

from nsys_sync.analysis.catalogue.evidence import Evidence
from nsys_sync.analysis.catalogue.forms import FORMS, Form
from nsys_sync.analysis.catalogue.syntax import Source, own_nodes
from nsys_sync.analysis.catalogue.tensors import HOST_MODULES, tensor_like
from nsys_sync.analysis.findings import Frame

#: How an operation shows in a trace: a scalar or small result read back, a larger download, an upload, an explicit wait
#: for the device, a stream or an event, an allocation.
Signal = Literal["scalar", "download", "upload", "device", "stream", "event", "alloc"]

_SMALL = 64


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One operation that waits.

    calls: ``.name()`` for a method of anything, ``a.b()`` or ``name()`` for a function by its full name.
    forms: kinds of code in FORMS. native: symbols of a native stack; ``inner < outer`` asks for both, in this order.
    frames: ``file suffix:function`` of the innermost Python frame. signals: how it shows in a trace.
    says: the operation in words. module: only in files that import it and not PyTorch.
    """

    name: str
    says: str
    signals: list[Signal]
    module: str | None = None
    calls: list[str] = []
    forms: list[Form] = []
    native: list[str] = []
    frames: list[str] = []


@dataclass(frozen=True)
class Candidate:
    """A place in the syntax tree that can be the sync: ``node`` is what the host gets, ``sure`` False for a guess."""

    node: ast.expr
    operation: str
    sure: bool


class Operations:
    """The catalogue's operations, in the order in which they are tried."""

    def __init__(self, operations: list[Operation]) -> None:
        self.all = operations
        self.by_name = {o.name: o for o in operations}

    def of_native(self, symbols: tuple[str, ...]) -> list[str]:
        """The operations that the native symbols (innermost first) can belong to."""
        return [o.name for o in self.all if symbols and any(native_matches(p, symbols) for p in o.native)]

    def of_leaf(self, leaf: Frame | None) -> list[str]:
        """The operations that the innermost Python frame can stand for."""
        return [o.name for o in self.all if leaf is not None and any(frame_matches(p, leaf) for p in o.frames)]

    def of_signals(self, signals: frozenset[str]) -> list[str]:
        """The operations that can show in this way; all of them where nothing is known."""
        return [o.name for o in self.all if not signals or signals.intersection(o.signals)]

    def candidates(self, source: Source, line: int, only: Collection[str], *, told: bool) -> list[Candidate]:
        """The places on a line that can be one of the operations ``only``, the narrowest first.

        told: a stack names the operations, so that what the file imports does not matter.
        """
        wanted = [o for o in self.all if o.name in only and (told or _imported(source, o.module))]
        nodes = [n for s in source.statements_at(line) for n in own_nodes(s) if isinstance(n, ast.expr)]
        found = [c for n in nodes for c in _at(source, n, wanted)]
        within = [c for c in found if c.node.lineno <= line <= (c.node.end_lineno or c.node.lineno)]
        order = {o.name: i for i, o in enumerate(self.all)}
        return sorted(
            within or found,
            key=lambda c: (not c.sure, _height(c.node), order[c.operation], c.node.lineno, c.node.col_offset),
        )


def _at(source: Source, node: ast.expr, operations: list[Operation]) -> Iterator[Candidate]:
    """The operations that an expression can be."""
    for operation in operations:
        if any(_is_call(source, node, pattern) for pattern in operation.calls):
            kind = _converts(source, node)
            if kind is not False:
                yield Candidate(node, operation.name, sure=kind is True)
            continue
        verdicts = [v for form in operation.forms if (v := FORMS[form](source, node)) is not None]
        if verdicts:
            yield Candidate(node, operation.name, sure=any(verdicts))


def _converts(source: Source, node: ast.expr) -> bool | None:
    """Of ``float(x)`` and its like, whether x is a tensor: of a mere name nobody knows. True for any other call."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
        return True
    kind = tensor_like(source, node.args[0])
    return True if kind is None and isinstance(node.args[0], ast.Call | ast.Subscript) else kind


def _imported(source: Source, module: str | None) -> bool:
    return module is None or (module in source.modules and "torch" not in source.modules)


def _is_call(source: Source, node: ast.expr, pattern: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = pattern.removesuffix("()")
    dotted = source.dotted(node.func)
    if not name.startswith("."):
        return dotted == name
    of_host = dotted.partition(".")[0] in HOST_MODULES
    return isinstance(node.func, ast.Attribute) and node.func.attr == name[1:] and not of_host


def _height(node: ast.expr) -> int:
    return (node.end_lineno or node.lineno) - node.lineno


def signals_of(evidence: Evidence) -> frozenset[str]:
    """How the events of a site show in the trace; empty when there is none (a line judged without a trace)."""
    found = {s for api in evidence.apis for s in _signals_of_api(api)}
    copies, stream = evidence.copies, any("StreamSynchronize" in api for api in evidence.apis)
    if "device->pageable" in copies:
        found |= {"download", "scalar"} if evidence.max_bytes <= _SMALL else {"download"}
    if "pageable->device" in copies:
        found.add("upload")
    if stream and "device->pinned" in copies:
        found |= {"scalar", "download"}
    if stream and "pinned->device" in copies:
        found.add("upload")
    if stream and not copies:
        found |= {"stream", "scalar", "download", "upload"}
    return frozenset(found)


def _signals_of_api(api: str) -> tuple[str, ...]:
    if api in {"cudaDeviceSynchronize", "cuCtxSynchronize", "cudaThreadSynchronize"}:
        return ("device",)
    if "EventSynchronize" in api:
        return ("event",)
    if re.match(r"cu(da)?(Malloc|Free|HostAlloc|HostRegister|MemAlloc|MemFree|MemHostAlloc|HostUnregister)", api):
        return ("alloc",)
    return ("stream",) if "StreamSynchronize" in api else ()


def native_matches(pattern: str, symbols: tuple[str, ...]) -> bool:
    """Whether the symbols, innermost first, hold the pattern's words in its order (``inner < outer``)."""
    rest = iter(symbols)
    return all(any(_word(word.strip()).search(s) for s in rest) for word in pattern.split(" < "))


@lru_cache(maxsize=1024)
def _word(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9_]){re.escape(pattern)}(?![A-Za-z0-9_])")


def frame_matches(pattern: str, frame: Frame) -> bool:
    """Whether a frame is in the file ``suffix`` and, where one is given, the function of ``suffix:function``."""
    suffix, _, function = pattern.partition(":")
    path = frame.file.replace("\\", "/")
    in_file = f"/{suffix}" in path if suffix.endswith("/") else path.endswith(f"/{suffix}") or path == suffix
    return in_file and (not function or re.fullmatch(function.replace("*", ".*"), frame.function) is not None)
