"""Masks a report of Nsight Systems: a copy whose only texts are those that its scrubbed export shows.

    python scripts/mask_report.py REPORT.nsys-rep SCRUBBED.sqlite.xz MASKED.nsys-rep.xz [--map-path OLD=NEW]

A report holds the environment, command lines and names of every process of the machine. In the copy each of these texts
is ``[removed]``, and memory that nobody initialised is zero. Numbers stay, so nsys exports the same events from it, and
texts that it needs itself (``WORDS``, clock offsets). Paths are mapped as for SCRUBBED, which ``nsys-sync scrub`` made.

The format is not documented. What is relied on here was seen in reports of nsys 2023.4.4; anything else is an error:

- A file is ``HEAD``, sections, a list of the sections, where that begins, and ``END``.
- Sections are messages of Protocol Buffers with numbers and bytes. Bytes are a text, a message or a Python stack; which
  one shows in them.
- The section of the events is ``MARKER`` and messages, each after its length, some of them packed in blocks of LZ4. Two
  places in it, where strings and where layouts begin, are in a section of their own. The copy's blocks are not
  compressed: what it holds can be searched.
"""

from __future__ import annotations

import argparse
import lzma
import re
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsys_sync.trace.database import Database  # noqa: E402 - found through the line above
from nsys_sync.trace.files import sqlite_file  # noqa: E402
from nsys_sync.trace.private import REMOVED, Cleaner, Private  # noqa: E402

HEAD = re.compile(rb"NVIDIA Tegra Profiler Report [\d@v.-]+")
END = b"U3w[END]"
MARKER = b"QDTEXT00"
EVENTS, PLACES = b"Raw Sampling Data", b"Sampling Data Offsets"
#: Texts of nsys that it looks for or shows beside the events.
WORDS = frozenset({"lz4", "Python Thread"})
#: Stands in messages whose other texts are numbers that times are computed with.
CLOCK = b"Offset"

Mask = Callable[[str], str]
Fields = Sequence[tuple[int, int | bytes]]

_NUMBER, _BYTES = 0, 2
_NAME, _BEGIN, _SIZE = 1 << 3 | _BYTES, 2 << 3 | _NUMBER, 3 << 3 | _NUMBER
_U64 = struct.Struct("<Q")
# A Python stack: thread state, source, count of frames; for each function, file, line. Between the numbers nsys leaves
# what was in memory; these write zeros there.
_STACK = struct.Struct("<III4x")
_FRAME = struct.Struct("<QQi4x")


def masked(report: bytes, mask: Mask) -> bytes:
    """The report with ``mask`` of each text in it."""
    if not report.endswith(END):
        raise ValueError("The report does not end as a whole one does.")
    tail = len(report) - len(END) - _U64.size
    (listed,) = _U64.unpack_from(report, tail)
    sections: dict[bytes, bytes] = {}
    begin = listed
    for _, entry in fields(report[listed:tail]):
        (_, name), (_, offset), (_, size) = fields(_bytes(entry))
        sections[_bytes(name)] = report[_int(offset) : _int(offset) + _int(size)]
        begin = min(begin, _int(offset))
    if not HEAD.fullmatch(report[:begin]):
        raise ValueError("The report does not begin as a known one does.")
    (packing_key, packing), (strings_key, strings), (layouts_key, layouts) = fields(sections[PLACES])
    if packing != b"lz4":
        raise ValueError(f"The events are packed in another way: {packing!r}.")

    events, strings, layouts = _masked_events(sections[EVENTS], _int(strings), _int(layouts), mask)
    made = {name: masked_message(section, mask) for name, section in sections.items() if name not in {EVENTS, PLACES}}
    made[EVENTS] = events
    made[PLACES] = message([(packing_key, packing), (strings_key, strings), (layouts_key, layouts)])
    out, entries = report[:begin], b""
    for name in sections:
        entry = message([(_NAME, name), (_BEGIN, len(out)), (_SIZE, len(made[name]))])
        entries += message([(_NAME, entry)])
        out += made[name]
    return out + entries + _U64.pack(len(out)) + END


def _masked_events(section: bytes, strings: int, layouts: int, mask: Mask) -> tuple[bytes, int, int]:
    """The section of the events, and where its strings and its layouts begin, counted from the marker's end."""
    if not section.startswith(MARKER):
        raise ValueError("The events do not begin with the known marker.")
    data = section[len(MARKER) :]
    system, at = _with_length(data, 0)
    collection, at = _with_length(data, at)
    made = _masked_messages(system + collection, mask) + _masked_blocks(data[at:strings], mask)
    new_strings = len(made)
    end_of_strings = _block(data, strings)[1]
    made += _masked_blocks(data[strings:end_of_strings], mask) + _masked_messages(data[end_of_strings:layouts], mask)
    new_layouts = len(made)
    return MARKER + made + _masked_blocks(data[layouts:], mask), new_strings, new_layouts


def _masked_messages(data: bytes, mask: Mask) -> bytes:
    out, at = b"", 0
    while at < len(data):
        whole, at = _with_length(data, at)
        made = masked_message(whole[varint(whole, 0)[1] :], mask)
        out += encoded(len(made)) + made
    return out


def _masked_blocks(data: bytes, mask: Mask) -> bytes:
    out, at = b"", 0
    while at < len(data):
        unpacked, at = _block(data, at)
        out += stored(_masked_messages(unpacked, mask))
    return out


def _with_length(data: bytes, at: int) -> tuple[bytes, int]:
    """A message with the length before it, and where it ends."""
    size, begin = varint(data, at)
    if begin + size > len(data):
        raise ValueError("A message is longer than its place.")
    return data[at : begin + size], begin + size


# Blocks


def _block(data: bytes, at: int) -> tuple[bytes, int]:
    """What a block holds, and where it ends."""
    size, at = varint(data, at)
    unpacked_size, at = varint(data, at)
    unpacked = unpack(data[at : at + size])
    if len(unpacked) != unpacked_size:
        raise ValueError("A block does not hold what it says.")
    return unpacked, at + size


def unpack(block: bytes) -> bytes:
    """The content of a block of LZ4: runs of literal bytes, and copies of what came before."""
    out, at = bytearray(), 0
    while at < len(block):
        token = block[at]
        size, at = _run(block, at + 1, token >> 4)
        out += block[at : at + size]
        at += size
        if at >= len(block):
            break
        back = block[at] | block[at + 1] << 8
        size, at = _run(block, at + 2, token & 15)
        # One by one, for a copy may reach into itself.
        for _ in range(size + 4):
            out.append(out[-back])
    return bytes(out)


def _run(block: bytes, at: int, size: int) -> tuple[int, int]:
    more = size == 15
    while more:
        size += block[at]
        more = block[at] == 255
        at += 1
    return size, at


def stored(content: bytes) -> bytes:
    """A block with its two sizes, uncompressed: one run of literal bytes."""
    token = bytes([min(len(content), 15) << 4])
    if len(content) >= 15:
        more, rest = divmod(len(content) - 15, 255)
        token += bytes([*[255] * more, rest])
    return encoded(len(token) + len(content)) + encoded(len(content)) + token + content


# Messages


def masked_message(content: bytes, mask: Mask) -> bytes:
    """A message with ``mask`` of each text in it, at any depth."""
    found = fields(content)
    if any(value == CLOCK for _, value in found):
        mask = _clock_text
    return message([(key, value if isinstance(value, int) else _masked_bytes(value, mask)) for key, value in found])


def _clock_text(text: str) -> str:
    return text if text == CLOCK.decode() or re.fullmatch(r"-?\d{1,20}", text) else REMOVED


def _masked_bytes(value: bytes, mask: Mask) -> bytes:
    text = _text(value)
    if text is not None:
        return mask(text).encode() if text else value
    try:
        return masked_message(value, mask)
    except ValueError:
        stack = _clean_stack(value)
        return REMOVED.encode() if stack is None else stack


def _text(value: bytes) -> str | None:
    """Bytes as a text, None if they are something else; a message of one short text looks like a text with its size."""
    if value[:1] == b"\n" and value[1:2] == bytes([len(value) - 2 & 0xFF]):
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if re.sub(r"[\n\t]", "", text).isprintable() else None


def _clean_stack(value: bytes) -> bytes | None:
    """A Python stack without what is between its numbers, None for other bytes."""
    if len(value) < _STACK.size:
        return None
    head = _STACK.unpack_from(value)
    if len(value) != _STACK.size + head[2] * _FRAME.size:
        return None
    frames = _FRAME.iter_unpack(value[_STACK.size :])
    return _STACK.pack(*head) + b"".join(_FRAME.pack(*frame) for frame in frames)


def fields(content: bytes) -> Fields:
    """(key, value) of a message's fields; a key is number << 3 | kind. ValueError if these are no such fields."""
    found: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(content):
        key, at = varint(content, at)
        value: int | bytes
        value, at = varint(content, at)
        if key & 7 == _BYTES:
            size, at = value, at + value
            value = content[at - size : at]
        if key < 8 or key & 7 not in {_NUMBER, _BYTES} or at > len(content):
            raise ValueError("These bytes are not a message.")
        found.append((key, value))
    return found


def message(parts: Fields) -> bytes:
    """The bytes of a message with these fields."""
    return b"".join(
        encoded(key) + (encoded(value) if isinstance(value, int) else encoded(len(value)) + value)
        for key, value in parts
    )


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    for end in range(at, min(at + 10, len(data))):
        if data[end] < 0x80:
            return sum((byte & 0x7F) << 7 * k for k, byte in enumerate(data[at : end + 1])), end + 1
    raise ValueError("A number has no end.")


def encoded(number: int) -> bytes:
    """A number as ``varint`` reads it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("There are bytes where a number was expected.")  # noqa: TRY004 - the input's fault
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("There is a number where bytes were expected.")  # noqa: TRY004 - the input's fault
    return value


# What may stay


def shown_texts(export: Path) -> frozenset[str]:
    """Every text in an export."""
    with sqlite_file(export) as readable, closing(Database(readable, export)) as db:
        return frozenset(_texts(db))


def _texts(db: Database) -> Iterator[str]:
    for table in db.tables:
        for row in db.rows(f"SELECT * FROM {db.table(table)}"):
            yield from (value for value in row if isinstance(value, str))


def mask_of(shown: frozenset[str], paths: Sequence[tuple[str, str]] = ()) -> Mask:
    """Keeps texts that are shown, after the mapping of paths; of a path whose last part is shown alone, that part."""
    cleaner = Cleaner(Private(), paths)

    def mask(text: str) -> str:
        mapped = cleaner.text(text) or ""
        name = mapped.rpartition("/")[2] if mapped.startswith("/") else ""
        return next((kept for kept in (mapped, name) if kept in shown or kept in WORDS), REMOVED)

    return mask


def mask_file(report: Path, scrubbed: Path, target: Path, paths: Sequence[tuple[str, str]] = ()) -> None:
    """Write the masked copy of a report, compressed."""
    made = masked(report.read_bytes(), mask_of(shown_texts(scrubbed), paths))
    target.write_bytes(lzma.compress(made, preset=9))


def main() -> None:
    """Mask one report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("scrubbed", type=Path, help="the report's export after nsys-sync scrub")
    parser.add_argument("target", type=Path, help="the copy to write")
    parser.add_argument("--map-path", action="append", default=[], metavar="OLD=NEW", help="as scrub was given")
    chosen = parser.parse_args()
    pairs = [pair.partition("=") for pair in chosen.map_path]
    mask_file(chosen.report, chosen.scrubbed, chosen.target, [(old, new) for old, _, new in pairs])


if __name__ == "__main__":
    main()
