"""The diagnosis in a terminal: a line for each thing looked at, and what to do below those that need it."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nsys_sync.report.terminal import paragraphs, show
from nsys_sync.report.words import harmless

if TYPE_CHECKING:
    from nsys_sync.doctor import Diagnosis

_SIGNS = {"ok": ("✓", "green"), "info": ("·", "dim"), "warn": ("!", "yellow"), "fail": ("✗", "bold red")}


def render(
    diagnosis: Diagnosis, *, width: int | None = None, color: bool | None = None, file: IO[str] | None = None
) -> None:
    """Write the diagnosis for people. width: columns, None for the terminal's. file: standard output if None."""
    show(lambda _: _page(diagnosis), width=width, color=color, file=file)


def _page(diagnosis: Diagnosis) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold", ratio=1)
    for check in diagnosis.checks:
        sign, style = _SIGNS[check.status]
        text = Text(harmless(check.found))
        if check.fix:
            text.append(f"\n{harmless(check.fix)}", style="cyan")
        table.add_row(Text(sign, style=style), check.name, text)
    return paragraphs([table, Group(*_verdict(diagnosis))])


def _verdict(diagnosis: Diagnosis) -> list[RenderableType]:
    failed = [check.name for check in diagnosis.checks if check.status == "fail"]
    warned = [check.name for check in diagnosis.checks if check.status == "warn"]
    if failed:
        return [
            Text(f"profile cannot work here: {', '.join(failed)}.", style="bold"),
            Text("report, diff and check read traces from other machines here."),
        ]
    if warned:
        return [Text(f"profile works here; look at: {', '.join(warned)}.", style="bold")]
    return [Text("profile works here.", style="bold")]
