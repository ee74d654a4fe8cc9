"""Text for people on any terminal: its width, its colours, the characters that it can show."""

from __future__ import annotations

import io
import re
import sys
from typing import IO, TYPE_CHECKING

from rich.console import Console, Group
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment

    from nsys_sync.analysis.findings import SiteClass

_ASCII = str.maketrans(
    {"·": "-", "–": "-", "−": "-", "…": "~", "µ": "u", "→": ">", "×": "x", "█": "#", "≤": "<", "✓": "+", "✗": "x"}
)

#: Classes of syncs, in colours that are seen on a light and on a dark ground.
CLASS_STYLE: dict[SiteClass, str] = {
    "avoidable": "bold red",
    "deferrable": "yellow",
    "needed": "cyan",
    "intentional": "green",
    "unknown": "dim",
}
#: The blank before a unit, before a share in parentheses, on both sides of a factor, before what parts two facts, and
#: behind what a name is the name of.
_TIED = re.compile(r"(?<=\d) (?=(?:[nµm]?s|%|×|[KMGT]?i?B|GB/s)(?!\w)|\(<?\d)| (?=× \d|·)|(?<=×) (?=\d)|(?<= id) ")
#: What stands for such a blank while lines are broken: nothing that is shown has it (``words.harmless``).
_UNBROKEN = "\ue000"


class _Console(Console):
    """Breaks no line between a number and what it counts."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text):
            renderable = renderable.copy()
            renderable.plain = _TIED.sub(_UNBROKEN, renderable.plain)
        return super().render(renderable, options)


def show(
    page: Callable[[int], RenderableType], *, width: int | None = None, color: bool | None = None, file: IO[str] | None
) -> None:
    """Write what ``page`` makes for a width in columns.

    width: None for the terminal's (80 in a pipe). color: None for colour only in a terminal that has it. file: standard
    output if None.
    """
    out = sys.stdout if file is None else file
    measure = Console(file=out, width=width)
    colored = measure.is_terminal and not measure.no_color if color is None else color
    buffer = io.StringIO()
    console = _Console(
        file=buffer,
        width=max(measure.width, 24),
        color_system="standard" if colored else None,
        force_terminal=colored,
        no_color=not colored,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    # What is wider than the terminal is a command to be copied whole; all else is wrapped.
    console.print(page(console.width), crop=False)
    out.write(fit(buffer.getvalue().replace(_UNBROKEN, " "), getattr(out, "encoding", None) or "utf-8"))


def paragraphs(parts: Iterable[RenderableType | None]) -> Group:
    """The parts that there are, with an empty line between them."""
    shown = [part for part in parts if part is not None]
    return Group(*[line for part in shown for line in (part, Text(""))][:-1])


def command(line: str) -> Text:
    """A command line, never broken: it is there to be copied."""
    return Text(f"  {line}", style="cyan", no_wrap=True, overflow="ignore")


def next_steps(lines: Sequence[str]) -> RenderableType | None:
    """The commands to go on with; None if there are none."""
    return Group(Text("Next:"), *map(command, lines)) if lines else None


def fit(text: str, encoding: str) -> str:
    """The text without trailing blanks, in characters that the encoding has."""
    text = "\n".join(line.rstrip() for line in text.split("\n"))
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")
    return text
