"""Tells whoever wants to know that a step of the program has ended: an optimizer's, or one that the program marks."""

from __future__ import annotations

from . import complain, is_ours
from .frameworks import follow_optimizers

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from typing import Callable

    Boundary = Callable[[str], None]


class _State:
    listeners: tuple[Boundary, ...] = ()
    following = False


def listen(boundary: Boundary) -> None:
    """Call ``boundary(source)`` at the end of each step; source is ``optimizer`` or ``user``."""
    _State.listeners = (*_State.listeners, boundary)
    if not _State.following:
        _State.following = True
        follow_optimizers(tell)


def unlisten(boundary: Boundary) -> None:
    """Stop calling it."""
    _State.listeners = tuple(other for other in _State.listeners if other != boundary)


def tell(source: str) -> None:
    """A step has ended."""
    for boundary in _State.listeners:
        try:
            boundary(source)
        except Exception as error:
            if not is_ours(error):
                raise
            complain(f"a step was not counted: {error!r}")
