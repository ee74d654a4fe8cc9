"""Hears warnings by their text, every one of them, whatever the program does with its warning filters.

CPython decides about a warning in C: it looks the warning up in the registry of those shown before, then walks the
list ``warnings.filters`` from its first item and asks each item's pattern to ``match`` the text. So the first item of
that list, with a pattern of our own, hears everything; and as it lets no warning that it takes reach a registry, none
of them is ever forgotten as shown before. It must stay the first: the list is one that keeps it there and that Python
code sees without it, and a list that the program puts in its place is turned into such a one.
"""

from __future__ import annotations

import sys
import warnings
from types import ModuleType

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from typing import Any, Callable

    Hear = Callable[[str], bool]
    _List = list[Any]
else:
    _List = list


class _Hearing:
    """The pattern of our item. Whoever hears a warning answers whether it is taken; else the program's own filters
    decide about it.
    """

    hear: Hear | None = None
    class_before: type[ModuleType] | None = None

    def match(self, text: str) -> bool:
        __tracebackhide__ = True
        hear = _Hearing.hear
        try:
            return hear is not None and hear(text)
        except RecursionError:
            return True  # a program that is this deep may still come out of it: rather count one too few


_ITEM: Any = ("ignore", _Hearing(), Warning, None, 0)


class _Filters(_List):
    """``warnings.filters`` with our item first, for C code; Python code sees the list without it."""

    __hash__ = None

    def __init__(self, items: Any = ()) -> None:
        list.__init__(self, [_ITEM, *(item for item in items if item is not _ITEM)])

    def rest(self) -> list[Any]:
        """The program's own items, as a plain list."""
        return list.__getitem__(self, slice(1, None))

    def copy(self) -> Any:
        return _Filters(self.rest())

    def __getitem__(self, index: Any) -> Any:
        found = self.rest()[index]
        return _Filters(found) if isinstance(index, slice) else found

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return (list, (self.rest(),))


def _reader(name: str) -> Any:
    method = getattr(list, name)

    def read(self: _Filters, *arguments: Any) -> Any:
        return method(self.rest(), *arguments)

    return read


def _writer(name: str) -> Any:
    method = getattr(list, name)

    def write(self: _Filters, *arguments: Any, **options: Any) -> Any:
        rest = self.rest()
        result = method(rest, *arguments, **options)
        # In one step: another thread's warning meets the list before or after.
        list.__setitem__(self, slice(None), [_ITEM, *rest])
        return self if result is rest else result

    return write


for _name in ("__len__", "__iter__", "__reversed__", "__contains__", "__eq__", "__ne__", "__repr__", "__add__"):
    setattr(_Filters, _name, _reader(_name))
for _name in ("__mul__", "__rmul__", "index", "count"):
    setattr(_Filters, _name, _reader(_name))
for _name in ("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "extend", "insert", "remove", "pop"):
    setattr(_Filters, _name, _writer(_name))
for _name in ("clear", "sort", "reverse"):
    setattr(_Filters, _name, _writer(_name))


def start_hearing(hear: Hear) -> None:
    """Call ``hear(text)`` for every warning that Python code or C code issues, in the thread and at the place of it.

    Where it returns True the warning goes no further; an exception that it raises is raised there. One at a time.
    """
    _Hearing.hear = hear
    before = type(warnings)

    class Warnings(before):  # type: ignore[misc, valid-type]
        """The module ``warnings``, whose ``filters`` are always ours."""

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "filters" and isinstance(value, list) and not isinstance(value, _Filters):
                value = _Filters(value)
            super().__setattr__(name, value)

    Warnings.__name__, Warnings.__qualname__, Warnings.__module__ = "module", "module", "builtins"
    warnings.__class__ = Warnings
    _Hearing.class_before = before
    warnings.filters = _Filters(warnings.filters)
    _hear_in_this_context()
    _forget_what_was_shown()


def stop_hearing() -> None:
    """Leave the filters to the program as it has set them by now."""
    _Hearing.hear = None
    if _Hearing.class_before is not None:
        warnings.__class__ = _Hearing.class_before
        _Hearing.class_before = None
    if isinstance(warnings.filters, _Filters):
        warnings.filters = warnings.filters.rest()
    _forget_what_was_shown()


def _hear_in_this_context() -> None:
    """Where filters belong to a context (Python 3.14, on request), the one in force has a list of its own."""
    find = getattr(warnings, "_get_filters", None)
    found = None if find is None else find()
    if found is not None and not isinstance(found, _Filters):
        list.insert(found, 0, _ITEM)


def _forget_what_was_shown() -> None:
    """Outdate the registries of warnings shown before: they are asked ahead of any filter."""
    module: Any = sys.modules["warnings"]
    if hasattr(module, "_filters_mutated"):
        module._filters_mutated()
    else:
        with module._lock:
            module._filters_mutated_lock_held()
