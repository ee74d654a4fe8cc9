"""What an expression stands for: a tensor, a mask, a number, the CPU or a GPU, as far as the file shows."""

from __future__ import annotations

import ast
import re

from nsys_sync.analysis.catalogue.syntax import Source, last_name

HOST_MODULES = ("numpy", "math", "scipy", "pandas", "statistics", "random", "os", "sys", "re", "json", "cv2")
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
    if dotted.partition(".")[0] in HOST_MODULES or _PLAIN_METHODS.fullmatch(name):
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


def is_number(node: ast.expr) -> bool:
    """Whether a node is a number, bool or None written out."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and not isinstance(node.value, str)


def is_true(node: ast.expr | None) -> bool:
    """Whether a node is the constant True."""
    return isinstance(node, ast.Constant) and node.value is True


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a call's keyword argument."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def is_on_host(source: Source, node: ast.expr) -> bool:
    """Whether an expression makes a tensor on the CPU: a factory of PyTorch's without a device."""
    if not isinstance(node, ast.Call) or not _FACTORIES.fullmatch(source.dotted(node.func)):
        return False
    device = keyword(node, "device")
    return device is None or is_cpu(source, device)


def is_cpu(source: Source, node: ast.expr | None) -> bool:
    """Whether an expression names the CPU as a device."""
    if isinstance(node, ast.Call) and source.dotted(node.func) == "torch.device" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Constant):
        return node.value == "cpu"
    return node is not None and last_name(node).lower() in {"cpu", "cpu_device", "device_cpu"}


def device_argument(call: ast.Call) -> ast.expr | None:
    """What ``.to(...)`` names as its device, None if it names none (a dtype, a memory format)."""
    if (device := keyword(call, "device")) is not None:
        return device
    if not call.args:
        return None
    first = call.args[0]
    return None if _DTYPES.fullmatch(last_name(first)) else first


def is_upload(source: Source, call: ast.Call) -> bool:
    """Whether a ``.to(...)`` names a device other than the CPU."""
    device = device_argument(call)
    return device is not None and not is_cpu(source, device)
