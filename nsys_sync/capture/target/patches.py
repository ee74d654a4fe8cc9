"""Replaces functions and methods of the program's libraries for a while, so that only the watcher notices.

A replaced method is still itself on the class: ``torch.Tensor.to`` stays what it was, for all code that compares it or
keeps it in a table, and only a call through an instance is watched.
"""

from __future__ import annotations

from types import MethodType

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from typing import Any, Callable

    #: Makes the function to call in place of an original, which it is given.
    Around = Callable[[Any], Callable[..., Any]]


class _Method:
    """In a class's namespace for a method: the method itself when asked through the class, watched on instances."""

    def __init__(self, original: Any, function: Callable[..., Any]) -> None:
        self._original = original
        self._function = function

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self._original.__get__(None, owner)
        return MethodType(self._function, instance)


def _named_like(original: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the original's names, as far as those are texts (a function written in C may have others)."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(original, name, None)
        if isinstance(value, str):
            setattr(function, name, value)
    return function


class Patches:
    """What has been replaced, and how to undo it."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def attribute(self, owner: Any, name: str, value: Any) -> bool:
        """Set an attribute; False where the owner does not allow it (a class written in C)."""
        own = vars(owner)
        before = own.get(name)
        had = name in own
        try:
            setattr(owner, name, value)
        except (AttributeError, TypeError):
            return False

        def undo() -> None:
            # Whoever has replaced it after us keeps what they put there; ours does nothing once nobody listens.
            if vars(owner).get(name) is not value:
                return
            if had:
                setattr(owner, name, before)
            else:
                delattr(owner, name)

        self._undo.append(undo)
        return True

    def function(self, owner: Any, name: str, around: Around) -> bool:
        """Replace a function of a module by what ``around`` makes of it; False if there is none."""
        original = getattr(owner, name, None)
        return original is not None and self.attribute(owner, name, _named_like(original, around(original)))

    def method(self, owner: Any, name: str, around: Around) -> bool:
        """The same for a method, as it is on the class."""
        original = getattr(owner, name, None)
        if original is None:
            return False
        return self.attribute(owner, name, _Method(original, _named_like(original, around(original))))

    def at_undo(self, action: Callable[[], None]) -> None:
        """Do something more when everything is undone."""
        self._undo.append(action)

    def undo(self) -> None:
        """Put everything back, last first."""
        while self._undo:
            self._undo.pop()()
