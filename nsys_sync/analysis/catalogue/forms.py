"""Forms of code that can wait and are no plain call: a truth test, an index, a copy by ``.to(...)``."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Literal

from nsys_sync.analysis.catalogue.syntax import Source, last_name
from nsys_sync.analysis.catalogue.tensors import (
    device_argument,
    is_cpu,
    is_mask,
    is_number,
    is_true,
    keyword,
    tensor_like,
)

#: Their names, in rules.toml too; FORMS says what each one is.
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

_CPU_TYPES = re.compile(r"torch\.(Float|Double|Half|Long|Int|Short|Byte|Bool|Char|BFloat16)Tensor$")


def _upload(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr == "cuda":
        return None if source.dotted(node.func) == "torch.cuda" else True
    if node.func.attr != "to":
        return None
    device = device_argument(node)
    return None if device is None or is_cpu(source, device) else True


def _download(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr == "cpu" and not node.args:
        return True
    if node.func.attr == "to":
        return True if is_cpu(source, device_argument(node)) else None
    if node.func.attr == "get" and not node.args and "cupy" in source.aliases.values():
        return True
    return None


def _type_cast(source: Source, node: ast.expr) -> bool | None:
    named = isinstance(node, ast.Call) and last_name(node.func) == "type" and len(node.args) == 1
    return True if named and isinstance(node, ast.Call) and _CPU_TYPES.match(source.dotted(node.args[0])) else None


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


def _mask_read(source: Source, node: ast.expr) -> bool | None:
    reads = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
    return True if reads and isinstance(node, ast.Subscript) and is_mask(source, node.slice) else None


def _mask_write(source: Source, node: ast.expr) -> bool | None:
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Store) or not is_mask(source, node.slice):
        return None
    up = source.parents.get(node)
    plain = isinstance(up, ast.Assign) and is_number(up.value)
    return None if plain else True


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
