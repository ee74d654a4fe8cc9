"""Which operation of a line makes the host wait: by native frames where there are any, by the syntax tree otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec

from nsys_sync.analysis.evidence import Evidence
from nsys_sync.analysis.findings import Frame
from nsys_sync.analysis.syntax import Source, last_name, own_nodes

#: How an operation shows in a trace: a scalar or small result read back, a larger download, an upload, an explicit wait
#: for the device, a stream or an event, an allocation.
Signal = Literal["scalar", "download", "upload", "device", "stream", "event", "alloc"]

#: Forms of code that are no plain call; FORMS says what each one is.
Form = Literal[
    "upload",
    "download",
    "type_cast",
    "truth",
    "contains",
    "format",
    "print",
    "python_max",
    "mask_read",
    "mask_write",
    "list_index",
    "number_write",
    "slice_bound",
    "sequence_index",
    "tensor_fill",
    "where_one",
    "construct",
    "distribution",
    "scaler_step",
    "clip_nonfinite",
    "sync_device",
    "sync_stream",
    "sync_event",
]

_SMALL = 64
_HOST_MODULES = ("numpy", "math", "scipy", "pandas", "statistics", "random", "os", "sys", "re", "json", "cv2")
_TENSOR_METHODS = re.compile(
    r"any|all|isnan|isinf|isfinite|sum|max|min|mean|abs|argmax|argmin|amax|amin|norm|eq|ne|gt|ge|lt|le|bool|detach|clone"
    r"|float|squeeze|logical_(and|or|not)"
)
_PLAIN_METHODS = re.compile(
    r"size|dim|numel|get|keys|values|items|startswith|endswith|is_\w+|isdigit|exists|query|tolist|item|count|index|next"
)
_PLAIN_ATTRIBUTES = re.compile(r"shape|ndim|dtype|device|is_\w+|requires_grad|training|size|itemsize|rank|use_\w+")
_PLAIN_TORCH = re.compile(
    r"torch\.(is_tensor|is_grad_enabled|equal|allclose|numel|cuda|distributed|backends|jit|version|compiler|_C)\b"
)
_PLAIN_FUNCTIONS = re.compile(r"len|isinstance|hasattr|callable|any|all|int|float|bool|str|type|id")
_MASK_METHODS = re.compile(r"isnan|isinf|isfinite|logical_(and|or|not|xor)|bool|eq|ne|gt|ge|lt|le|isin|isclose")
_DTYPES = re.compile(
    r"b?float(16|32|64|8_\w+)?|half|double|long|short|bool|u?int(8|16|32|64)?|complex(64|128)?|\w*dtype"
)
_FACTORIES = re.compile(
    r"torch\.(tensor|as_tensor|asarray|from_numpy|Tensor|randn|rand|randint|zeros|ones|empty|full|arange|linspace|eye)"
)
_CPU_TYPES = re.compile(r"torch\.(Float|Double|Half|Long|Int|Short|Byte|Bool|Char|BFloat16)Tensor$")


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


@lru_cache(maxsize=1024)
def _word(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9_]){re.escape(pattern)}(?![A-Za-z0-9_])")


def native_matches(pattern: str, symbols: tuple[str, ...]) -> bool:
    """Whether the symbols, innermost first, hold the pattern's words in its order (``inner < outer``)."""
    rest = iter(symbols)
    return all(any(_word(word.strip()).search(s) for s in rest) for word in pattern.split(" < "))


def frame_matches(pattern: str, frame: Frame) -> bool:
    """Whether a frame is in the file ``suffix`` and, where one is given, the function of ``suffix:function``."""
    suffix, _, function = pattern.partition(":")
    path = frame.file.replace("\\", "/")
    in_file = f"/{suffix}" in path if suffix.endswith("/") else path.endswith(f"/{suffix}") or path == suffix
    return in_file and (not function or re.fullmatch(function.replace("*", ".*"), frame.function) is not None)


def _height(node: ast.expr) -> int:
    return (node.end_lineno or node.lineno) - node.lineno


def _is_call(source: Source, node: ast.expr, pattern: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = pattern.removesuffix("()")
    dotted = source.dotted(node.func)
    if not name.startswith("."):
        return dotted == name
    of_host = dotted.partition(".")[0] in _HOST_MODULES
    return isinstance(node.func, ast.Attribute) and node.func.attr == name[1:] and not of_host


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a call's keyword argument."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def is_true(node: ast.expr | None) -> bool:
    """Whether a node is the constant True."""
    return isinstance(node, ast.Constant) and node.value is True


def is_cpu(source: Source, node: ast.expr | None) -> bool:
    """Whether an expression names the CPU as a device."""
    if isinstance(node, ast.Call) and source.dotted(node.func) == "torch.device" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Constant):
        return node.value == "cpu"
    return node is not None and last_name(node).lower() in {"cpu", "cpu_device", "device_cpu"}


def _device_argument(call: ast.Call) -> ast.expr | None:
    """What ``.to(...)`` names as its device, None if it names none (a dtype, a memory format)."""
    if (device := keyword(call, "device")) is not None:
        return device
    if not call.args:
        return None
    first = call.args[0]
    return None if _DTYPES.fullmatch(last_name(first)) else first


def is_upload(source: Source, call: ast.Call) -> bool:
    """Whether a ``.to(...)`` names a device other than the CPU."""
    device = _device_argument(call)
    return device is not None and not is_cpu(source, device)


def is_on_host(source: Source, node: ast.expr) -> bool:
    """Whether an expression makes a tensor on the CPU: a factory of PyTorch's without a device."""
    if not isinstance(node, ast.Call) or not _FACTORIES.fullmatch(source.dotted(node.func)):
        return False
    device = keyword(node, "device")
    return device is None or is_cpu(source, device)


def _upload(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr == "cuda":
        return None if source.dotted(node.func) == "torch.cuda" else True
    if node.func.attr != "to":
        return None
    device = _device_argument(node)
    return None if device is None or is_cpu(source, device) else True


def _download(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr == "cpu" and not node.args:
        return True
    if node.func.attr == "to":
        return True if is_cpu(source, _device_argument(node)) else None
    if node.func.attr == "get" and not node.args and "cupy" in source.aliases.values():
        return True
    return None


def _type_cast(source: Source, node: ast.expr) -> bool | None:
    named = isinstance(node, ast.Call) and last_name(node.func) == "type" and len(node.args) == 1
    return True if named and isinstance(node, ast.Call) and _CPU_TYPES.match(source.dotted(node.args[0])) else None


def tensor_like(source: Source, node: ast.expr, depth: int = 3) -> bool | None:
    """True: certainly a tensor; None: may be one; False: certainly not."""
    if isinstance(node, ast.Constant | ast.JoinedStr | ast.List | ast.Tuple | ast.Dict | ast.Lambda):
        return False
    if isinstance(node, ast.Call):
        return _call_gives_tensor(source, node)
    if isinstance(node, ast.Compare):
        if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops):
            return False
        return _any_tensor(source, [node.left, *node.comparators], depth)
    if isinstance(node, ast.BinOp):
        return _any_tensor(source, [node.left, node.right], depth)
    if isinstance(node, ast.UnaryOp):
        return False if isinstance(node.op, ast.Not) else tensor_like(source, node.operand, depth)
    if isinstance(node, ast.Name):
        return _name_is_tensor(source, node, depth)
    return False if isinstance(node, ast.Attribute) and _PLAIN_ATTRIBUTES.fullmatch(node.attr) else None


def _any_tensor(source: Source, nodes: list[ast.expr], depth: int) -> bool | None:
    kinds = [tensor_like(source, n, depth) for n in nodes]
    if any(isinstance(n, ast.Constant) and isinstance(n.value, str | type(None)) for n in nodes):
        return False
    if True in kinds:
        return True
    return None if None in kinds else False


def _call_gives_tensor(source: Source, node: ast.Call) -> bool | None:
    dotted, name = source.dotted(node.func), last_name(node.func)
    if dotted.startswith("torch."):
        return _PLAIN_TORCH.match(dotted) is None
    if isinstance(node.func, ast.Name):
        return False if _PLAIN_FUNCTIONS.fullmatch(name) else None
    if dotted.partition(".")[0] in _HOST_MODULES or _PLAIN_METHODS.fullmatch(name):
        return False
    return True if _TENSOR_METHODS.fullmatch(name) else None


def _name_is_tensor(source: Source, node: ast.Name, depth: int) -> bool | None:
    if node.id.isupper() or depth == 0:
        return None if depth == 0 else False
    kinds = [
        tensor_like(source, b.value, depth - 1) if b.kind == "value" and b.value is not None else None
        for b in source.bindings(node.id, node)
    ]
    if True in kinds:
        return True
    return None if not kinds or None in kinds else False


def _truth(source: Source, node: ast.expr) -> bool | None:
    if isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return None
    if not _is_condition(source, node):
        return None
    kind = tensor_like(source, node)
    if kind is False or isinstance(node, ast.Constant):
        return None
    return kind is True


def _is_condition(source: Source, node: ast.expr) -> bool:
    """Whether Python asks for the truth of an expression."""
    up = source.parents.get(node)
    if isinstance(up, ast.If | ast.While | ast.Assert | ast.IfExp):
        return node is up.test
    if isinstance(up, ast.comprehension):
        return node in up.ifs
    if isinstance(up, ast.BoolOp):
        return True
    if isinstance(up, ast.Call):
        return source.dotted(up.func) == "bool" and node in up.args
    return isinstance(up, ast.UnaryOp) and isinstance(up.op, ast.Not)


def _contains(source: Source, node: ast.expr) -> bool | None:  # noqa: ARG001 the shape of all forms
    return False if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn) else None


def _format(source: Source, node: ast.expr) -> bool | None:
    up = source.parents.get(node)
    if isinstance(up, ast.FormattedValue) and node is up.value:
        kind = tensor_like(source, node)
        return None if kind is False else kind is True
    return None


def _print(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Call) or source.dotted(node.func) not in {"print", "str", "repr"}:
        return None
    kinds = [tensor_like(source, a) for a in node.args]
    return True if True in kinds else (False if None in kinds else None)


def _python_max(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Call) or source.dotted(node.func) not in {"max", "min", "sorted"}:
        return None
    kinds = [tensor_like(source, a) for a in node.args]
    return True if True in kinds else (False if None in kinds else None)


def is_mask(source: Source, node: ast.expr, depth: int = 3) -> bool:
    """Whether an index is a boolean mask, as far as the file shows."""
    if isinstance(node, ast.Tuple):
        return any(is_mask(source, e, depth) for e in node.elts)
    if isinstance(node, ast.Compare):
        return not isinstance(node.ops[0], ast.Is | ast.IsNot | ast.In | ast.NotIn)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Invert)
    if isinstance(node, ast.BinOp):
        is_logic = isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor)
        return is_logic and (is_mask(source, node.left, depth) or is_mask(source, node.right, depth))
    if isinstance(node, ast.Call):
        return _MASK_METHODS.fullmatch(last_name(node.func)) is not None
    if isinstance(node, ast.Subscript):
        return is_mask(source, node.value, depth)
    return _named_mask(source, node, depth)


def _named_mask(source: Source, node: ast.expr, depth: int) -> bool:
    if "mask" in last_name(node).lower():
        return True
    if not isinstance(node, ast.Name) or depth == 0:
        return False
    values = [b.value for b in source.bindings(node.id, node) if b.kind == "value" and b.value is not None]
    return any(is_mask(source, v, depth - 1) for v in values)


def _mask_read(source: Source, node: ast.expr) -> bool | None:
    reads = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
    return True if reads and isinstance(node, ast.Subscript) and is_mask(source, node.slice) else None


def _mask_write(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Store) or not is_mask(source, node.slice):
        return None
    up = source.parents.get(node)
    plain = isinstance(up, ast.Assign) and is_number(up.value)
    return None if plain else True


def is_number(node: ast.expr) -> bool:
    """Whether a node is a number, bool or None written out."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and not isinstance(node.value, str)


def _list_index(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Subscript):
        return None
    index = node.slice
    if isinstance(index, ast.Tuple):
        index = next((e for e in index.elts if isinstance(e, ast.List | ast.ListComp)), index)
    if isinstance(index, ast.List | ast.ListComp):
        return True
    if isinstance(index, ast.Name):
        values = [b.value for b in source.bindings(index.id, index) if b.kind == "value"]
        return True if values and all(isinstance(v, ast.List | ast.ListComp) for v in values) else None
    return None


def _number_write(source: Source, node: ast.expr) -> bool | None:
    """A value that is no tensor, written to one place or through an index: not a slice, which a kernel fills."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Store) or is_mask(source, node.slice):
        return None
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if any(isinstance(p, ast.Slice) or (isinstance(p, ast.Constant) and not isinstance(p.value, int)) for p in parts):
        return None
    up = source.parents.get(node)
    if not isinstance(up, ast.Assign) or tensor_like(source, up.value) is True:
        return None
    return tensor_like(source, node.value) is True and is_number(up.value)


def _slice_bound(source: Source, node: ast.expr) -> bool | None:
    up = source.parents.get(node)
    if not isinstance(up, ast.Slice) or isinstance(node, ast.Constant):
        return None
    kind = tensor_like(source, node)
    return None if kind is False else kind is True


def _sequence_index(source: Source, node: ast.expr) -> bool | None:
    up = source.parents.get(node)
    if not isinstance(up, ast.Subscript) or isinstance(node, ast.Slice | ast.Tuple | ast.Constant):
        return None
    if node is not up.slice:
        return None
    return None if tensor_like(source, node) is False or is_mask(source, node) else False


def _tensor_fill(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Call) or last_name(node.func) not in {"masked_fill", "masked_fill_", "index_fill_"}:
        return None
    if not node.args or is_number(node.args[-1]):
        return None
    return tensor_like(source, node.args[-1]) is True


def _where_one(source: Source, node: ast.expr) -> bool | None:
    called = isinstance(node, ast.Call) and source.dotted(node.func) in {"torch.where", "cupy.where"}
    return True if called and isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords else None


def _construct(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Call):
        return None
    dotted = source.dotted(node.func)
    if re.match(r"torch\.cuda\.\w+Tensor$", dotted) or last_name(node.func) == "new_tensor":
        return True
    if dotted not in {"torch.tensor", "torch.as_tensor", "torch.asarray"}:
        return None
    device = keyword(node, "device")
    return None if device is None or is_cpu(source, device) else True


def _distribution(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Call) or not re.match(r"torch\.distributions\.(\w+\.)*[A-Z]", source.dotted(node.func)):
        return None
    checked = keyword(node, "validate_args")
    return None if isinstance(checked, ast.Constant) and checked.value is False else True


def _scaler_step(source: Source, node: ast.expr) -> bool | None:
    stepped = isinstance(node, ast.Call) and re.search(r"scaler\.step$", source.dotted(node.func)) is not None
    return True if stepped else None


def _clip_nonfinite(source: Source, node: ast.expr) -> bool | None:  # noqa: ARG001 the shape of all forms
    clips = isinstance(node, ast.Call) and last_name(node.func) == "clip_grad_norm_"
    return True if clips and isinstance(node, ast.Call) and is_true(keyword(node, "error_if_nonfinite")) else None


def _waits_for(source: Source, node: ast.expr) -> str | None:
    """``device``, ``stream`` or ``event`` of an explicit ``synchronize``, ``?`` where its object does not tell."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "synchronize":
        return None
    assert isinstance(node.func, ast.Attribute | ast.Name)
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    dotted = source.dotted(node.func)
    if owner is None or re.fullmatch(r"(torch\.)?(cuda|accelerator)\.synchronize|numba\.cuda\.synchronize", dotted):
        return "device"
    texts = [ast.unparse(owner)]
    if isinstance(owner, ast.Name):
        texts += [ast.unparse(b.value) for b in source.bindings(owner.id, owner) if b.value is not None]
    text = " ".join(texts).lower()
    return next((kind for kind in ("event", "stream", "device") if kind in text), "?")


def _sync_device(source: Source, node: ast.expr) -> bool | None:
    kind = _waits_for(source, node)
    return None if kind not in {"device", "?"} else kind == "device"


def _sync_stream(source: Source, node: ast.expr) -> bool | None:
    kind = _waits_for(source, node)
    return None if kind not in {"stream", "?"} else kind == "stream"


def _sync_event(source: Source, node: ast.expr) -> bool | None:
    kind = _waits_for(source, node)
    return None if kind not in {"event", "?"} else kind == "event"


#: What each form looks for: True surely, False perhaps, None not there.
FORMS: dict[str, Callable[[Source, ast.expr], bool | None]] = {
    "upload": _upload,
    "download": _download,
    "type_cast": _type_cast,
    "truth": _truth,
    "contains": _contains,
    "format": _format,
    "print": _print,
    "python_max": _python_max,
    "mask_read": _mask_read,
    "mask_write": _mask_write,
    "list_index": _list_index,
    "number_write": _number_write,
    "slice_bound": _slice_bound,
    "sequence_index": _sequence_index,
    "tensor_fill": _tensor_fill,
    "where_one": _where_one,
    "construct": _construct,
    "distribution": _distribution,
    "scaler_step": _scaler_step,
    "clip_nonfinite": _clip_nonfinite,
    "sync_device": _sync_device,
    "sync_stream": _sync_stream,
    "sync_event": _sync_event,
}
