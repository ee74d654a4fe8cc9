"""What is known of functions by their names: which ones log a value, hand it on, or take it as a size."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What functions do with a value, as patterns over their dotted names (``*`` matches anything).

    log: show or write it. keep: hand it on unchanged. compute: give a result computed from it on the host.
    host: act on it on the host. shape: need it as a size. device: take a tensor just as well. exit: end the program.
    time: read a clock.
    """

    log: list[str] = []
    keep: list[str] = []
    compute: list[str] = []
    host: list[str] = []
    shape: list[str] = []
    device: list[str] = []
    exit: list[str] = []
    time: list[str] = []

    def __add__(self, other: Words) -> Words:
        return Words(**{f: getattr(self, f) + getattr(other, f) for f in self.__struct_fields__})


def named(patterns: list[str], name: str) -> bool:
    """Whether a dotted name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
