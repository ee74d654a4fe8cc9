"""Python frames out of NVTX payloads, as JSON text or as binary data.

Both forms list frames innermost first; functions and files are ids in StringIds, whose values are HTML-escaped.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec

#: Domains whose marks carry a Python stack; True where the mark stands at a CUDA call, False for periodic samples.
PYTHON_DOMAINS = {
    "Python Backtrace on CUDA": True,
    "Python Backtrace": True,
    "Python Periodic Sampling": False,
}

RawFrame = tuple[int, int, int]


_StringId = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 63) - 1)]


class _Frame(msgspec.Struct):
    function: _StringId = msgspec.field(name="Function", default=-1)
    file: _StringId = msgspec.field(name="File", default=-1)
    line: int = msgspec.field(name="Line", default=0)


class _Payload(msgspec.Struct):
    frames: list[_Frame] = msgspec.field(name="Frames", default_factory=list)


_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PAYLOAD = msgspec.json.Decoder(_Payload)


class Layout(NamedTuple):
    """Byte offsets in a binary payload: frame count, first frame; the size of a frame, and the offsets in it."""

    frame_count: int = 12
    frames: int = 16
    size: int = 24
    function: int = 0
    file: int = 8
    line: int = 16

    @property
    def is_possible(self) -> bool:
        """Whether every field lies within its frame, and frames behind the count."""
        inside = (
            0 <= self.function <= self.size - 8 and 0 <= self.file <= self.size - 8 and 0 <= self.line <= self.size - 4
        )
        return inside and 0 <= self.frame_count <= self.frames - 4 and self.size <= 4096


def from_json(text: str) -> list[RawFrame] | None:
    """Frames (function id, file id, line) of a mark's JSON text; None if it is not a Python stack."""
    try:
        outer = _DECODER.decode(text)
        for key, value in outer.items():
            if key in PYTHON_DOMAINS:
                return [(f.function, f.file, f.line & 0xFFFFFFFF) for f in _PAYLOAD.decode(value).frames]
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        pass
    return None


def from_binary(data: bytes, layouts: Mapping[int, Layout]) -> list[RawFrame] | None:
    """Frames of a mark's binary data; None if it is not a Python stack.

    The blob is a count of payloads, then (schema id, size, offset) of each, as 64-bit numbers; layouts are by schema
    id. Only the low 32 bits of the frame count and of a line are defined.
    """
    if len(data) < 8:
        return None
    (payloads,) = struct.unpack_from("<Q", data)
    for at in range(8, min(8 + 24 * payloads, len(data) - 23), 24):
        schema, size, offset = struct.unpack_from("<QQQ", data, at)
        layout = layouts.get(schema)
        if layout is None or not layout.is_possible or offset + size > len(data) or size < layout.frames:
            continue
        (count,) = struct.unpack_from("<I", data, offset + layout.frame_count)
        first = offset + layout.frames
        if first + count * layout.size > offset + size:
            return None
        return [
            (
                struct.unpack_from("<Q", data, frame + layout.function)[0],
                struct.unpack_from("<Q", data, frame + layout.file)[0],
                struct.unpack_from("<I", data, frame + layout.line)[0],
            )
            for frame in range(first, first + count * layout.size, layout.size)
        ]
    return None
