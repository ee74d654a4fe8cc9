"""The command line: one function a command; it parses, calls and prints. No arithmetic, no SQL."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from nsys_sync.errors import ExitCode, NsysSyncError, UsageError

app = typer.Typer(
    name="nsys-sync",
    help="Find where a GPU program's CPU waits for the GPU, at which Python line, and what that costs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

STDOUT = "-"

Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
MapPath = Annotated[
    list[str], typer.Option("--map-path", metavar="OLD=NEW", help="Where the trace's files are on this machine.")
]


def main() -> None:
    """Entry point: errors become one sentence on stderr and their exit code."""
    try:
        app()
    except NsysSyncError as error:
        say(f"nsys-sync: {error.message}")
        if error.hint:
            say(f"  {error.hint}")
        sys.exit(int(error.exit_code))
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`: not our failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(int(ExitCode.OK))
    except Exception as error:
        if os.environ.get("NSYS_SYNC_TRACEBACK"):
            raise
        say(f"nsys-sync: internal error: {type(error).__name__}: {error}")
        say("  Please report it with the output of the same command under NSYS_SYNC_TRACEBACK=1.")
        sys.exit(int(ExitCode.ERROR))


def say(text: str) -> None:
    """A line for people, beside the output proper."""
    print(text.encode("utf-8", "replace").decode("utf-8"), file=sys.stderr, flush=True)


def _version(wanted: bool) -> None:
    if wanted:
        from nsys_sync._version import __version__

        print(f"nsys-sync {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find where a GPU program's CPU waits for the GPU, at which Python line, and what that costs."""


class Outputs:
    """The files that a command was asked for; ``-`` is stdout, at most once, and then people's text goes to stderr."""

    def __init__(self, force: bool, **targets: str | None) -> None:
        self._force = force
        self._targets = {name: target for name, target in targets.items() if target is not None}
        from nsys_sync.report.files import check_new

        if list(self._targets.values()).count(STDOUT) > 1:
            raise UsageError("stdout-twice", "Only one output can go to stdout (-).", "Name files for the others.")
        files = [check_new(target, force=force) for target in self._targets.values() if target != STDOUT]
        if len(set(files)) < len(files):
            raise UsageError("same-output", "Two outputs would go to the same file.", "Name different files.")

    @property
    def stdout_taken(self) -> bool:
        """Whether stdout belongs to a file format."""
        return STDOUT in self._targets.values()

    def write(self, name: str, content: Callable[[], bytes]) -> None:
        """Write one output, if it was asked for."""
        target = self._targets.get(name)
        if target == STDOUT:
            sys.stdout.buffer.write(content())
            sys.stdout.buffer.flush()
        elif target is not None:
            from nsys_sync.report.files import write_new

            say(f"Written: {write_new(target, content(), force=self._force)}")

    def save(self, name: str, writer: Callable[[Path], Path]) -> None:
        """Let a writer make one output, if it was asked for; it needs a file."""
        target = self._targets.get(name)
        if target == STDOUT:
            raise UsageError("stdout-file", f"--{name} needs a file, not stdout.", f"Name one: --{name} PATH")
        if target is not None:
            say(f"Written: {writer(Path(target))}")


@app.command()
def report(
    trace: Annotated[
        Path,
        typer.Argument(metavar="TRACE", help=".sqlite, .sqlite.xz, .nsys-rep, .qdrep, or a saved report .json"),
    ],
    html: Annotated[str | None, typer.Option(metavar="PATH", help="Write the dashboard.")] = None,
    json: Annotated[str | None, typer.Option(metavar="PATH", help="Write the report as JSON (- is stdout).")] = None,
    csv: Annotated[str | None, typer.Option(metavar="PATH", help="Write the sites as CSV (- is stdout).")] = None,
    perfetto: Annotated[
        str | None, typer.Option(metavar="PATH", help="Write a trace for ui.perfetto.dev (.json or .json.gz).")
    ] = None,
    sarif: Annotated[str | None, typer.Option(metavar="PATH", help="Write SARIF for code scanning.")] = None,
    save: Annotated[str | None, typer.Option(metavar="PATH", help="Write the findings as SQLite tables.")] = None,
    force: Force = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the dashboard in the browser.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Sites to list in the terminal (0: all).")] = 10,
    no_source: Annotated[bool, typer.Option("--no-source", help="Leave source code out of the dashboard.")] = False,
    step: Annotated[str | None, typer.Option(metavar="NAME", help="The NVTX ranges that are the steps.")] = None,
    skip_first: Annotated[int, typer.Option(min=0, metavar="N", help="Leave out the first steps.")] = 0,
    within: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only from the first to the last range with this name.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only from this time of the trace on (12ms).")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="Only up to this time of the trace.")] = None,
    project: Annotated[
        list[str], typer.Option(metavar="PATH", help="Folder whose code is yours, as in the trace.")
    ] = [],
    library: Annotated[list[str], typer.Option(metavar="PATH", help="Folder whose code is not yours.")] = [],
    map_path: MapPath = [],
    rules: Annotated[Path | None, typer.Option(metavar="FILE", help="Rules of your own that go first.")] = None,
    copy_gbps: Annotated[
        float | None, typer.Option(min=0.001, metavar="GB/S", help="Speed of pinned copies, for predictions.")
    ] = None,
) -> None:
    """Show where the host waits for the GPU in a trace, and what it costs."""
    if open_ and html in (None, STDOUT):
        raise UsageError("open-what", "--open needs a dashboard to open.", "Add --html PATH.")
    outputs = Outputs(force, html=html, json=json, csv=csv, perfetto=perfetto, sarif=sarif, save=save)
    from nsys_sync.analysis.options import Options
    from nsys_sync.inputs import duration_ns, path_maps, read

    options = Options(
        step=step,
        project=tuple(project),
        library=tuple(library),
        maps=tuple(path_maps(map_path)),
        skip_first=skip_first,
        low=None if from_ is None else duration_ns("--from", from_),
        high=None if to is None else duration_ns("--to", to),
        within=within,
        rules=rules,
        copy_gbps=copy_gbps,
    )
    found, timeline = read(trace, options, say)

    from nsys_sync.report import text

    text.render(found, file=sys.stderr if outputs.stdout_taken else sys.stdout, limit=limit or None)
    outputs.write("json", found.to_json)
    if csv is not None:
        from nsys_sync.report.data import csv_text

        outputs.write("csv", lambda: csv_text(found).encode("utf-8"))
    if html is not None:
        from nsys_sync.report.html import page

        outputs.write("html", lambda: page(found, timeline, source=not no_source).encode("utf-8"))
    if sarif is not None:
        from nsys_sync.gate import sites_by_id
        from nsys_sync.report.locate import Project
        from nsys_sync.report.sarif import dumps

        outputs.write("sarif", lambda: dumps(sites_by_id([found]), Project.find()))
    if perfetto is not None:
        from nsys_sync.report import perfetto as perfetto_writer

        outputs.save("perfetto", lambda path: perfetto_writer.write(found, timeline, path, force=force))
    if save is not None:
        from nsys_sync.report.data import save_sqlite

        outputs.save("save", lambda path: save_sqlite(found, path, force=force))
    if open_ and html is not None:
        typer.launch(Path(html).absolute().as_uri())


@app.command()
def scrub(
    source: Annotated[Path, typer.Argument(metavar="IN", help="An export: .sqlite or .sqlite.xz")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The copy to write: .sqlite or .sqlite.xz")],
    map_path: MapPath = [],
    force: Force = False,
) -> None:
    """Copy an export without the environment, output and names that it carries."""
    from nsys_sync.inputs import path_maps
    from nsys_sync.scrub import scrub as scrub_file

    print(scrub_file(source, target, map_paths=path_maps(map_path), force=force))


if __name__ == "__main__":
    main()
