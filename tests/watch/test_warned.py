"""Every warning is heard, whatever the program does with its filters, and the program sees nothing of that."""

from __future__ import annotations

import copy
import ctypes
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nsys_sync.capture.target import warned

TEXT = "called a synchronizing CUDA operation"

_warn: Any = ctypes.pythonapi.PyErr_WarnEx
_warn.argtypes = [ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t]
_warn.restype = ctypes.c_int


def sync() -> None:
    """Warn as C++ code does, always from this line."""
    _warn(UserWarning, TEXT.encode(), 1)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    texts: list[str] = []

    def hear(text: str) -> bool:
        taken = text.startswith(TEXT)
        if taken:
            texts.append(text)
        return taken

    with warnings.catch_warnings():
        warnings.resetwarnings()
        warned.start_hearing(hear)
        yield texts
        warned.stop_hearing()


def set_filters(filters: list[Any]) -> None:
    warnings.filters = filters


ERROR: Any = ("error", None, UserWarning, None, 0)


def filters() -> Any:
    return warnings.filters


CHANGES: dict[str, Callable[[], object]] = {
    "ignore": lambda: warnings.simplefilter("ignore"),
    "error": lambda: warnings.simplefilter("error"),
    "by message": lambda: warnings.filterwarnings("error", message="called"),
    "by module": lambda: warnings.filterwarnings("ignore", module=".*"),
    "appended": lambda: warnings.filterwarnings("once", append=True),
    "reset": warnings.resetwarnings,
    "assigned": lambda: set_filters([ERROR]),
    "assigned a copy": lambda: set_filters(list(filters())),
    "assigned a slice": lambda: set_filters(filters()[:]),
    "assigned a sum": lambda: set_filters([ERROR] + filters()),  # noqa: RUF005 - what C code copies
    "insert": lambda: filters().insert(0, ERROR),
    "slice in front": lambda: filters().__setitem__(slice(0, 0), [ERROR]),
    "slice of all": lambda: filters().__setitem__(slice(None), [ERROR]),
    "deleted": lambda: filters().__delitem__(slice(None)),
    "extended": lambda: filters().extend([ERROR]),
    "added in place": lambda: set_filters(filters().__iadd__([ERROR])),
    "reversed": lambda: filters().reverse(),
    "sorted": lambda: filters().sort(key=str),
    "cleared": lambda: filters().clear(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_change_of_the_filters_hides_a_warning(heard: list[str], change: Callable[[], object]) -> None:
    sync()
    change()
    sync()
    sync()
    assert heard == [TEXT] * 3


def test_contexts_hide_no_warning(heard: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sync()
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            sync()
            warnings.warn("the program's own", stacklevel=1)
    sync()
    assert len(heard) == 3
    assert [str(warning.message) for warning in recorded] == ["the program's own"]


def test_a_warning_shown_before_is_heard() -> None:
    texts: list[str] = []

    def hear(text: str) -> bool:
        texts.append(text)
        return True

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("default")
        sync()
        warned.start_hearing(hear)
        try:
            sync()
        finally:
            warned.stop_hearing()
    assert texts == [TEXT]


def test_threads_are_heard(heard: list[str]) -> None:
    threads = [threading.Thread(target=sync) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 4


def test_the_program_sees_its_own_filters_only(heard: list[str]) -> None:
    assert filters() == []
    assert len(filters()) == 0
    assert not filters()
    warnings.simplefilter("error")
    own = ("error", None, Warning, None, 0)
    assert filters() == [own] == list(filters()) == [*filters()]
    assert (filters()[0], filters()[-1], own in filters(), filters().index(own)) == (own, own, True, 0)
    assert repr(filters()) == repr([own])
    assert filters().pop(0) == own
    assert list(filters()) == []
    with pytest.raises(IndexError):
        filters()[0]
    with pytest.raises(IndexError):
        filters().pop()


def test_filters_can_be_copied_and_sent_to_another_process(heard: list[str]) -> None:
    warnings.simplefilter("error")
    for copied in (pickle.loads(pickle.dumps(filters())), copy.deepcopy(filters())):
        assert type(copied) is list
        assert copied == [("error", None, Warning, None, 0)]


def test_other_warnings_go_the_programs_way(heard: list[str]) -> None:
    warnings.simplefilter("error")
    with pytest.raises(UserWarning, match="other"):
        warnings.warn("other", stacklevel=1)
    assert heard == []


def test_the_end_leaves_the_filters_as_the_program_set_them() -> None:
    with warnings.catch_warnings():
        warnings.resetwarnings()
        kind = type(warnings)
        warned.start_hearing(lambda _: True)
        warnings.simplefilter("error")
        warned.stop_hearing()
        assert type(filters()) is list
        assert type(warnings) is kind
        assert filters() == [("error", None, Warning, None, 0)]
        with pytest.raises(UserWarning):
            sync()


def test_a_context_that_outlives_the_hearing_is_harmless() -> None:
    warned.start_hearing(lambda _: True)
    context = warnings.catch_warnings()
    context.__enter__()
    warned.stop_hearing()
    context.__exit__(None, None, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            sync()


def test_what_hearing_raises_is_raised_at_the_operation() -> None:
    def refuse(_text: str) -> bool:
        raise RuntimeError("not here")

    warned.start_hearing(refuse)
    try:
        with pytest.raises(RuntimeError, match="not here"):
            sync()
    finally:
        warned.stop_hearing()
