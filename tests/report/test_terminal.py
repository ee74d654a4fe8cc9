"""Text for people on any terminal."""

from __future__ import annotations

import io

from rich.text import Text

from nsys_sync.report.terminal import paragraphs, show


def test_commands_are_never_cut() -> None:
    command = "nsys-sync report " + "/a/long/folder" * 20
    out = io.StringIO()
    parts = [Text("words " * 30), None, Text(command, no_wrap=True, overflow="ignore"), Text("end")]
    show(lambda _: paragraphs(parts), width=40, color=False, file=out)
    lines = out.getvalue().split("\n")
    assert command in lines
    assert all(len(line) <= 40 for line in lines if line != command)
    assert lines[-4:] == [command, "", "end", ""]
