"""Sites: sync events that come from one place in the program."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from nsys_sync.analysis.calls import COPY, KIND_NAMES, Blocking, Events
from nsys_sync.analysis.findings import Frame
from nsys_sync.analysis.stacks import Stacks
from nsys_sync.trace.tables import Column, StackFrame

_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d+\.\d+/|^<|torchinductor_|/nsys_sync/capture/target/|\.zip/"
    r"|^[^/\\]+\.py:"  # what PyTorch calls code that it has generated
)


@dataclass(frozen=True)
class Place:
    """Where a site is: the user's frame and the leaf below it, or a native symbol, or only the API.

    kind: position in KIND_NAMES. stack: Python frames, innermost first. native: symbols, innermost first.
    """

    user: Frame | None
    leaf: Frame | None
    kind: int
    stack: tuple[Frame, ...]
    native: tuple[str, ...]
    api: str


@dataclass(frozen=True)
class Users:
    """Tells the user's frames from libraries'. project: folders that are the user's, library: folders that are not."""

    project: Sequence[str] = ()
    library: Sequence[str] = ()

    def is_user(self, file: str) -> bool:
        """Whether a frame of this file is the user's; --project wins over --library, and both over the rule."""
        if any(_within(file, folder) for folder in self.project):
            return True
        if any(_within(file, folder) for folder in self.library):
            return False
        return not _LIBRARY.search(file)

    def frame(self, stack: Sequence[StackFrame]) -> int:
        """Position of the innermost user frame; else of the launched module's, else of the leaf."""
        for i, frame in enumerate(stack):
            if self.is_user(frame.file):
                return i
        for i in range(len(stack) - 1, -1, -1):
            if stack[i].function == "<module>" and not stack[i].file.startswith("<"):
                return i
        return 0

    def relative(self, file: str) -> str:
        """The file relative to the project, if it is in one; else from below site-packages; else its last two parts."""
        for folder in self.project:
            if _within(file, folder):
                return file[len(folder.rstrip("/")) + 1 :]
        for marker in ("/site-packages/", "/dist-packages/"):
            if marker in file:
                return file.rpartition(marker)[2]
        return "/".join(PurePosixPath(file).parts[-2:])


def _within(file: str, folder: str) -> bool:
    prefix = folder.rstrip("/")
    return file == prefix or file.startswith(prefix + "/")


def find_sites(
    stacks: Stacks, blocking: Blocking, events: Events, apis: Sequence[str], users: Users
) -> tuple[list[Place], Column]:
    """The places that events come from, and for each event the position of its place.

    Events belong together when the user's frame (file, function, line), the leaf function and the kind of call agree.
    apis: bare API name of each blocking call.
    """
    kind = np.where(events.copy >= 0, COPY, blocking.kind[events.first]) if len(events) else events.copy
    native = np.where(stacks.of_event >= 0, -1, stacks.native_of_event)
    frames = [_frames(users, stack) for stack in stacks.python]
    keys: dict[tuple[object, ...], int] = {}
    places: list[Place] = []
    combos: dict[tuple[int, int, int, str], int] = {}
    site = np.empty(len(events), dtype=np.int64)
    first = events.first
    costliest = np.lexsort((events.start, -events.wait))
    chain_of = _chain_of_stack(stacks)
    for event in costliest:
        python, chain, code = int(stacks.of_event[event]), int(native[event]), int(kind[event])
        api = apis[first[event]] if python < 0 and chain < 0 else ""
        combo = (python, chain, code, api)
        if combo not in combos:
            place = _place(frames, stacks, python, chain if chain >= 0 else chain_of.get(python, -1), code, api)
            key = _key(place)
            if key not in keys:
                keys[key] = len(places)
                places.append(place)
            combos[combo] = keys[key]
        site[event] = combos[combo]
    return places, site


def _frames(users: Users, stack: tuple[StackFrame, ...]) -> tuple[int, tuple[Frame, ...]]:
    shown = tuple(Frame(function=f.function, file=f.file, line=f.line) for f in stack)
    return users.frame(stack), shown


def _chain_of_stack(stacks: Stacks) -> dict[int, int]:
    """The native chain of a costly event of each Python stack."""
    chain: dict[int, int] = {}
    for event in np.flatnonzero((stacks.of_event >= 0) & (stacks.native_of_event >= 0)):
        chain[int(stacks.of_event[event])] = int(stacks.native_of_event[event])
    return chain


def _place(
    frames: list[tuple[int, tuple[Frame, ...]]], stacks: Stacks, python: int, chain: int, kind: int, api: str
) -> Place:
    native = stacks.native[chain] if chain >= 0 else ()
    if python >= 0:
        user, stack = frames[python]
        return Place(stack[user], stack[0], kind, stack, native, api)
    leaf = Frame(function=short_symbol(native[0]), file="", line=0) if native else None
    return Place(None, leaf, kind, (), native, api)


def _key(place: Place) -> tuple[object, ...]:
    user = (place.user.file, place.user.line, place.user.function) if place.user else ()
    leaf = (place.leaf.function, place.leaf.file) if place.leaf else ()
    return (*user, *leaf, place.kind, place.api)


def short_symbol(symbol: str) -> str:
    """A C++ symbol without arguments, template arguments and lambdas: ``at::native::nonzero_cuda``."""
    depth = 0
    kept = []
    for char in symbol.replace("(anonymous namespace)::", "").replace("operator()", "operator"):
        if char in "<({":
            if char == "(" and depth == 0:
                break
            depth += 1
        elif char in ">)}":
            depth -= 1
        elif depth == 0:
            kept.append(char)
    return "".join(kept).rstrip(":").replace("::::", "::") or symbol


def site_ids(places: Sequence[Place], users: Users) -> list[str]:
    """Ids that survive edits: a hash of file, function, leaf and API kind, numbered where several lines share them."""
    groups: dict[str, list[tuple[int, int]]] = {}
    for index, place in enumerate(places):
        user = place.user
        parts = (
            users.relative(user.file) if user else "",
            user.function if user else "",
            place.leaf.function if place.leaf else place.api,
            KIND_NAMES[place.kind],
        )
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:12]
        groups.setdefault(digest, []).append((user.line if user else 0, index))
    ids = [""] * len(places)
    for digest, members in groups.items():
        for number, (_, index) in enumerate(sorted(members), start=1):
            ids[index] = digest if number == 1 else f"{digest}-{number}"
    return ids
