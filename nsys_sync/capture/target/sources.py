"""What the program's own source files say about profiling: calls that open a capture, and other users of CUPTI."""

from __future__ import annotations

import ast
import os
import re
import sys
import sysconfig
from typing import Iterator

#: Functions that open the profiler's capture range, under whatever module they are reached.
_OPENING_NAMES = frozenset(["cudaProfilerStart", "cuProfilerStart", "profilerStart"])
_OPENING_CALLS = frozenset(
    [
        "torch.cuda.profiler.start",
        "torch.cuda.profiler.profile",
        "cupy.cuda.profiler.start",
        "cupy.cuda.profile",
        "cupyx.profiler.profile",
        "numba.cuda.profile_start",
        "numba.cuda.profiling",
    ]
)
#: Only one tool at a time gets CUPTI's activity records: these take them from Nsight Systems.
_CUPTI_CALLS = frozenset(
    [
        "torch.profiler.profile",
        "torch.autograd.profiler.profile",
        "jax.profiler.start_trace",
        "jax.profiler.trace",
        "tensorflow.profiler.experimental.start",
    ]
)
_WORTH_PARSING = re.compile(rb"rofilerStart|profil(?:er|ing|e_start)")
_LARGEST = 1 << 20


def profiler_calls() -> tuple[str | None, str | None]:
    """``FILE:LINE`` of the first call that opens a capture and of the first other user of CUPTI; None where none is.

    The files are those of the modules imported so far that are neither installed packages nor the standard library.
    """
    opening = other = None
    for path in own_files():
        found = in_file(path)
        opening = opening or found[0]
        other = other or found[1]
        if opening and other:
            break
    return opening, other


def own_files() -> Iterator[str]:
    """Source files of the program's own modules, the script first."""
    library = {os.path.realpath(path) for key, path in sysconfig.get_paths().items() if key.endswith(("lib", "stdlib"))}
    seen = set()
    modules = [sys.modules.get("__main__"), *list(sys.modules.values())]
    for module in modules:
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py") or path in seen:
            continue
        seen.add(path)
        folders = path.replace(os.sep, "/")
        if "/site-packages/" in folders or "/dist-packages/" in folders or _OWN_FOLDER in path:
            continue
        if not any(os.path.realpath(path).startswith(folder + os.sep) for folder in library):
            yield path


_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep


def in_file(path: str) -> tuple[str | None, str | None]:
    """The same of one file; a file that cannot be read or parsed has none."""
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST)
        if not _WORTH_PARSING.search(text):
            return None, None
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None, None
    opening = other = None
    names = _imported_names(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if opening is None and _opens(node, names):
            opening = f"{path}:{line}"
        if other is None and isinstance(node, ast.Call) and _dotted(node.func, names) in _CUPTI_CALLS:
            other = f"{path}:{line}"
    return opening, other


def _opens(node: ast.AST, names: dict[str, str]) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _OPENING_NAMES
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value in _OPENING_NAMES
    return isinstance(node, ast.Call) and _dotted(node.func, names) in _OPENING_CALLS


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """What the file's imports bind each name to, dotted."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(names.get(node.id, node.id))
    return ".".join(reversed(parts))
