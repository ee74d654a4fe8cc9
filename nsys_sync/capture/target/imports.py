"""Call back when the program has imported a module, without importing it ourselves."""

from __future__ import annotations

import sys

from . import complain

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Callable, Sequence

    Callback = Callable[[], None]


class _Finder:
    """First on ``sys.meta_path``: lets the others find the module, and calls back when its body has run.

    Of the loader only the method ``exec_module`` of that one instance is replaced, and only until it has run, so that
    whoever looks at the module's loader later sees the real one.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.waiting:
            return None
        spec = self._found_by_others(fullname, path, target)
        if spec is not None:
            callbacks = self.waiting.pop(fullname, [])
            loader: Any = spec.loader
            if hasattr(loader, "exec_module") and hasattr(loader, "__dict__") and not isinstance(loader, type):
                _call_after(loader, callbacks)
            else:
                _call(callbacks)
        return spec

    def _found_by_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None


def _call_after(loader: Any, callbacks: list[Callback]) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        execute(module)
        _call(callbacks)

    loader.exec_module = exec_module


def _call(callbacks: list[Callback]) -> None:
    for callback in callbacks:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - whatever it is, the program's import must succeed
            complain(f"a hook failed: {error!r}")


_FINDER = _Finder()


def when_imported(name: str, callback: Callback) -> None:
    """Call back once, when the module NAME has been imported: now, if it has been.

    A module whose import fails calls back nothing. An error of the callback becomes one line on stderr.
    """
    if name in sys.modules:
        _call([callback])
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.waiting.setdefault(name, []).append(callback)
