"""The command line: one function a command; it parses, calls and prints. No arithmetic, no SQL."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from nsys_sync.console import STDOUT, Outputs, run, say, say_error
from nsys_sync.errors import UsageError

if TYPE_CHECKING:
    from nsys_sync.analysis.options import Options
    from nsys_sync.profile import Profiled

app = typer.Typer(
    name="nsys-sync",
    help="Find where a GPU program's CPU waits for the GPU, at which Python line, and what that costs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)

Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
MapPath = Annotated[
    list[str], typer.Option("--map-path", metavar="OLD=NEW", help="Where the trace's files are on this machine.")
]
Step = Annotated[str | None, typer.Option(metavar="NAME", help="The NVTX ranges that are the steps.")]
SkipFirst = Annotated[int, typer.Option(min=0, metavar="N", help="Leave out the first steps.")]
ProjectFolders = Annotated[list[str], typer.Option(metavar="PATH", help="Folder whose code is yours, as in the trace.")]
LibraryFolders = Annotated[list[str], typer.Option(metavar="PATH", help="Folder whose code is not yours.")]
ProgramWords = Annotated[
    list[str],
    typer.Argument(metavar="PROGRAM", help="A Python script, -m MODULE, or any command; all that follows is its own."),
]
Rules = Annotated[Path | None, typer.Option(metavar="FILE", help="Rules of your own that go first.")]


class Backtrace(StrEnum):
    """CUDA calls that get a Python stack."""

    sync = "sync"
    all = "all"


def main() -> None:
    """Entry point."""
    run(app)


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


def _options(
    step: str | None,
    skip_first: int,
    project: Sequence[str],
    library: Sequence[str],
    map_path: list[str],
    rules: Path | None,
) -> Options:
    """How traces are read, as far as several commands let it be chosen."""
    from nsys_sync.analysis.options import Options
    from nsys_sync.inputs import path_maps

    return Options(
        step=step,
        skip_first=skip_first,
        project=tuple(project),
        library=tuple(library),
        maps=tuple(path_maps(map_path)),
        rules=rules,
    )


#: Options of ``report`` that decide what it finds in a trace.
_READING = (
    "step", "skip_first", "within", "from_", "to", "project", "library", "map_path", "rules", "copy_gbps",
)  # fmt: skip


def _as_given(context: typer.Context) -> str:
    """Those options of a command line again, as a shell takes them."""
    words: list[str] = []
    for param in context.command.params:
        given = context.params.get(param.name or "") if param.name in _READING else None
        for value in given if isinstance(given, (list, tuple)) else [given] if given else []:
            words += [param.opts[0], str(value)]
    return shlex.join(words)


@app.command(short_help="Say where the CPU waits in a trace, and what that costs.")
def report(
    context: typer.Context,
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
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Sites to list in the terminal (0: all).")] = 10,
    no_source: Annotated[bool, typer.Option("--no-source", help="Leave source code out of the dashboard.")] = False,
    step: Step = None,
    skip_first: SkipFirst = 0,
    within: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only from the first to the last range with this name.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only from this time of the trace on (12ms).")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="Only up to this time of the trace.")] = None,
    project: ProjectFolders = [],
    library: LibraryFolders = [],
    map_path: MapPath = [],
    rules: Rules = None,
    copy_gbps: Annotated[
        float | None, typer.Option(min=0.001, metavar="GB/S", help="Speed of pinned copies, for predictions.")
    ] = None,
) -> None:
    """Show where the CPU waits for the GPU in a trace, and what it costs."""
    if open_ and html in (None, STDOUT):
        raise UsageError("open-what", "--open needs a dashboard to open.", "Add --html PATH.")
    outputs = Outputs(
        [trace, rules], force=force, html=html, json=json, csv=csv, perfetto=perfetto, sarif=sarif, save=save
    )
    from nsys_sync.inputs import duration_ns, read, read_and_draw

    options = replace(
        _options(step, skip_first, project, library, map_path, rules),
        low=None if from_ is None else duration_ns("--from", from_),
        high=None if to is None else duration_ns("--to", to),
        within=within,
        copy_gbps=copy_gbps,
    )
    drawn = html is not None or perfetto is not None
    found, timeline = read_and_draw(trace, options, say) if drawn else (read(trace, options, say), None)

    from nsys_sync.report import text

    text.render(
        found,
        file=outputs.people,
        limit=limit or None,
        path=str(trace),
        options=_as_given(context),
        page=html is not None,
    )
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


class _Launcher(TyperCommand):
    """A command whose own options end where the program begins, and ``-m MODULE`` is a program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Let the parser stop at ``-m``, as it does at the name of a script."""
        with_value = {name for param in self.params if not getattr(param, "is_flag", True) for name in param.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] not in ("-m", "--"):
            at += 2 if args[at] in with_value else 1
        return super().parse_args(ctx, [*args[:at], "--", *args[at:]] if args[at : at + 1] == ["-m"] else args)


@app.command(
    cls=_Launcher,
    context_settings={"allow_interspersed_args": False},
    short_help="Run a program under nsys for a few steps, and report.",
)
def profile(
    program: ProgramWords = [],
    capture: Annotated[
        str,
        typer.Option(
            metavar="RANGE",
            help="auto, steps:SKIP:COUNT, time:DELAY:SECONDS, nvtx:NAME, script (its own range) or all.",
        ),
    ] = "auto",
    backtrace: Annotated[
        Backtrace, typer.Option(help="CUDA calls that get a Python stack; all is slow.", case_sensitive=False)
    ] = Backtrace.sync,
    light: Annotated[bool, typer.Option("--light", help="No backtraces and no sampling.")] = False,
    gil: Annotated[bool, typer.Option("--gil", help="Record the GIL too.")] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="NAME",
            help="Base name of the files; {script}, {time}, {rank}, {host}, {pid} are filled in.",
        ),
    ] = None,
    force: Force = False,
    no_html: Annotated[bool, typer.Option("--no-html", help="Write no dashboard.")] = False,
    no_source: Annotated[bool, typer.Option("--no-source", help="Leave source code out of all files.")] = False,
    only_ranks: Annotated[
        str | None, typer.Option(metavar="N,N", help="Profile these ranks and run the others plainly.")
    ] = None,
    nsys: Annotated[str | None, typer.Option(metavar="PATH", help="The nsys to use.")] = None,
    nsys_arg: Annotated[
        list[str], typer.Option(metavar="ARG", help="Pass an argument on to nsys profile (repeatable).")
    ] = [],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the nsys command and run nothing.")] = False,
) -> None:
    """Run a program under nsys and report its syncs."""
    from nsys_sync.capture.launch import run_plainly
    from nsys_sync.capture.naming import Program
    from nsys_sync.capture.plan import Detail, parse_ranks
    from nsys_sync.capture.prepare import Request, prepare
    from nsys_sync.profile import profile as run_profile

    request = Request(
        words=program,
        capture=capture,
        detail=Detail(backtrace=backtrace.value, light=light, gil=gil, extra=tuple(nsys_arg)),
        nsys=nsys,
        output=output,
        force=force,
        source=not no_source,
        only_ranks=None if only_ranks is None else parse_ranks(only_ranks),
    )
    launch = prepare(request)
    if dry_run:
        print(launch.shown)
        return
    if isinstance(launch, Program):
        run_plainly(launch)
    else:
        _show_profile(run_profile(launch, lambda text: say(f"nsys-sync: {text}")), html=not no_html, force=force)


def _show_profile(profiled: Profiled, *, html: bool, force: bool) -> None:
    """Print and write what a run gave, and leave with its exit code."""
    written = list(profiled.written)
    stored = profiled.stored
    if profiled.report is not None and stored is not None:
        from nsys_sync.paths import write_new
        from nsys_sync.report import text

        if profiled.speaks:
            trace = profiled.path(".sqlite")
            here = trace.relative_to(Path.cwd()) if trace.is_relative_to(Path.cwd()) else trace
            text.render(profiled.report, path=str(here), page=html)
        written.append(write_new(profiled.path(".json"), stored.to_json(), force=force))
        if html:
            from nsys_sync.report.html import write

            written.append(write(stored, profiled.timeline, profiled.path(".html"), force=force))
    for path in written:
        say(f"Written: {path}")
    if profiled.error is not None:
        say_error(profiled.error)
    raise typer.Exit(profiled.exit_code)


@app.command(
    cls=_Launcher,
    context_settings={"allow_interspersed_args": False},
    short_help="List where a program's CPU waits, without nsys and its times.",
)
def watch(
    program: ProgramWords = [],
    after_steps: Annotated[
        int, typer.Option(min=0, metavar="N", help="Leave out what happens in the first steps (optimizer steps).")
    ] = 0,
    error: Annotated[bool, typer.Option("--error", help="Stop the program at its first sync (exit 3).")] = False,
    fail: Annotated[bool, typer.Option("--fail", help="Exit 3 if there is any sync that is not allowed.")] = False,
    json: Annotated[
        str | None, typer.Option(metavar="PATH", help="Write what was seen as JSON; {rank} is filled in (- is stdout).")
    ] = None,
    force: Force = False,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Sites to list in the terminal (0: all).")] = 20,
    project: ProjectFolders = [],
    library: LibraryFolders = [],
    rules: Rules = None,
) -> None:
    """Run a program, without nsys, and list where its CPU waits for the GPU, as far as Python can see it."""
    from nsys_sync.capture.naming import find_program, own_rank
    from nsys_sync.capture.watching import Plan
    from nsys_sync.watching import Reading, watch_program

    rank = own_rank(os.environ)
    speaks = not rank
    if json is not None and rank is not None:
        json = json.replace("{rank}", str(rank)) if "{rank}" in json else json if speaks else None
    outputs = Outputs([*map(Path, program), rules], force=force, json=json)
    done = watch_program(
        find_program(program, os.environ),
        Plan(after_steps=after_steps, stop_at_first=error),
        Reading(project, library, rules),
        lambda text: say(f"nsys-sync: {text}"),
        fail=fail,
        to_stderr=outputs.stdout_taken,
    )
    found = done.report
    if found is not None:
        from nsys_sync.report import watch_text

        if speaks:
            watch_text.render(found, file=outputs.people, limit=limit or None, command=shlex.join(program))
        outputs.write("json", found.to_json)
    if done.error is not None:
        say_error(done.error)
    raise typer.Exit(done.exit_code)


@app.command()
def export(
    source: Annotated[Path, typer.Argument(metavar="REPORT", help="A report of nsys: .nsys-rep or .qdrep")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PATH", help="The .sqlite to write (beside the report).")
    ] = None,
    nsys: Annotated[str | None, typer.Option(metavar="PATH", help="The nsys to use.")] = None,
    force: Force = False,
) -> None:
    """Make the .sqlite that report needs, Python frames included."""
    from nsys_sync.capture.export import export as export_report
    from nsys_sync.capture.nsys import find_nsys

    written = export_report(find_nsys(nsys), source, output, lambda text: say(f"nsys-sync: {text}"), force=force)
    print(written)
    say(f"Next: nsys-sync report {shlex.quote(str(written))}")


@app.command(short_help="Compare captures before and after a change.")
def diff(
    captures: Annotated[
        list[Path], typer.Argument(metavar="BEFORE AFTER", help="Two traces or saved reports (.json).")
    ] = [],
    before: Annotated[
        list[Path], typer.Option(metavar="PATH", help="A capture before the change (repeatable, with --after).")
    ] = [],
    after: Annotated[list[Path], typer.Option(metavar="PATH", help="A capture after it (repeatable).")] = [],
    html: Annotated[str | None, typer.Option(metavar="PATH", help="Write the comparison as a page.")] = None,
    json: Annotated[
        str | None, typer.Option(metavar="PATH", help="Write the comparison as JSON (- is stdout).")
    ] = None,
    force: Force = False,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Sites to list in the terminal (0: all).")] = 20,
    step: Step = None,
    skip_first: SkipFirst = 0,
    project: ProjectFolders = [],
    library: LibraryFolders = [],
    map_path: MapPath = [],
    rules: Rules = None,
) -> None:
    """Compare captures before and after a change: sites gone and new, step time, wait and idle, and the noise."""
    outputs = Outputs([*captures, *before, *after, rules], force=force, html=html, json=json)
    from nsys_sync.compare import compare
    from nsys_sync.inputs import read_all, two_sides

    options = _options(step, skip_first, project, library, map_path, rules)
    first, second = two_sides(captures, before, after)
    comparison = compare(read_all(first, options, say), read_all(second, options, say))

    from nsys_sync.report import compare_text

    compare_text.render(comparison, file=outputs.people, limit=limit or None)
    outputs.write("json", comparison.to_json)
    if html is not None:
        from nsys_sync.report.compare_html import comparison_page

        outputs.write("html", lambda: comparison_page(comparison).encode("utf-8"))


@app.command(short_help="Say which rank of a run holds the others, behind which syncs.")
def ranks(
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE", help="One trace of all ranks of a run, or one of each.")
    ],
    html: Annotated[str | None, typer.Option(metavar="PATH", help="Write the ranks as a page.")] = None,
    json: Annotated[str | None, typer.Option(metavar="PATH", help="Write the ranks as JSON (- is stdout).")] = None,
    force: Force = False,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Sites to list in the terminal (0: all).")] = 20,
    step: Step = None,
    skip_first: SkipFirst = 0,
    project: ProjectFolders = [],
    library: LibraryFolders = [],
    map_path: MapPath = [],
    rules: Rules = None,
) -> None:
    """Lay the ranks of a run side by side: which one holds the others, for how long, and behind which syncs."""
    outputs = Outputs([*traces, rules], force=force, html=html, json=json)
    from nsys_sync.inputs import read_ranks
    from nsys_sync.ranks import compare_ranks, members

    options = _options(step, skip_first, project, library, map_path, rules)
    found = compare_ranks(members(read_ranks(traces, options, say)))

    from nsys_sync.report import ranks_text

    ranks_text.render(found, file=outputs.people, limit=limit or None)
    outputs.write("json", found.to_json)
    if html is not None:
        from nsys_sync.report.ranks_html import ranks_page

        outputs.write("html", lambda: ranks_page(found).encode("utf-8"))


@app.command(short_help="Fail when captures exceed limits or have new syncs, for CI.")
def check(
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE", help="Captures of one program, or saved reports (.json).")
    ],
    max_syncs_per_step: Annotated[
        str | None, typer.Option(metavar="N", help="Most syncs in a step of any process.")
    ] = None,
    max_wait: Annotated[
        str | None, typer.Option(metavar="TIME", help="Longest wait a step (2ms), or in all (40ms/capture).")
    ] = None,
    max_idle_from_syncs: Annotated[
        str | None,
        typer.Option(metavar="LIMIT", help="Most GPU idle from syncs: a time a step (1ms) or a share (5%)."),
    ] = None,
    within: Annotated[
        str | None, typer.Option(metavar="REGION", help="Judge only what happens in the ranges with this name.")
    ] = None,
    baseline: Annotated[
        list[Path],
        typer.Option(metavar="REPORT", help="Fail on sites that it lacks and on clear growth (repeatable)."),
    ] = [],
    allow: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Accepted sites (TOML); else [tool.nsys-sync] of the root's pyproject.toml."),
    ] = None,
    sarif: Annotated[str | None, typer.Option(metavar="PATH", help="Write SARIF for code scanning.")] = None,
    json: Annotated[str | None, typer.Option(metavar="PATH", help="Write the result as JSON (- is stdout).")] = None,
    github: Annotated[bool, typer.Option("--github", help="Annotate the pull request (GitHub Actions).")] = False,
    root: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The checkout that paths are relative to (the Git tree).")
    ] = None,
    force: Force = False,
    step: Step = None,
    skip_first: SkipFirst = 0,
    project: ProjectFolders = [],
    library: LibraryFolders = [],
    map_path: MapPath = [],
    rules: Rules = None,
) -> None:
    """Fail (exit 3) when captures exceed limits or have new syncs; exit 4 when something was not measured."""
    outputs = Outputs([*traces, *baseline, allow, rules], force=force, sarif=sarif, json=json)
    from nsys_sync import gate
    from nsys_sync.inputs import read_all, read_baseline
    from nsys_sync.report.locate import Project

    checkout = Project.find(root)
    limits = gate.parse_limits(syncs=max_syncs_per_step, wait=max_wait, idle_from_syncs=max_idle_from_syncs)
    accepted = gate.find_allow(allow, checkout.root)
    options = replace(_options(step, skip_first, project, library, map_path, rules), within=within)
    found = read_all(traces, options, say)
    known = read_baseline(baseline, options, say)
    result = gate.check(found, limits, baseline=known, allow=accepted, today=gate.today())
    sites = gate.sites_by_id(found)

    from nsys_sync.report import gate_text
    from nsys_sync.report.github import commands
    from nsys_sync.report.sarif import dumps

    gate_text.render(result, sites, file=outputs.people)
    if github:
        for command in commands(result, sites, checkout):
            print(command, file=outputs.people)
    outputs.write("sarif", lambda: dumps(sites, checkout, result))
    outputs.write("json", result.to_json)
    raise typer.Exit(int(result.exit_code))


@app.command(short_help="Say what works on this machine, and how to mend the rest.")
def doctor(
    nsys: Annotated[str | None, typer.Option(metavar="PATH", help="The nsys to look at.")] = None,
    json: Annotated[str | None, typer.Option(metavar="PATH", help="Write it as JSON (- is stdout).")] = None,
    force: Force = False,
) -> None:
    """Say what works on this machine and how to mend the rest; exit 1 if profile cannot work here."""
    outputs = Outputs(force=force, json=json)
    from nsys_sync.doctor import diagnose
    from nsys_sync.report import doctor_text

    diagnosis = diagnose(nsys)
    doctor_text.render(diagnosis, file=outputs.people)
    outputs.write("json", diagnosis.to_json)
    raise typer.Exit(diagnosis.exit_code)


@app.command(short_help="Copy a trace without what is private in it.")
def scrub(
    source: Annotated[Path, typer.Argument(metavar="IN", help="An export: .sqlite or .sqlite.xz")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The copy to write: .sqlite or .sqlite.xz")],
    map_path: Annotated[
        list[str], typer.Option("--map-path", metavar="OLD=NEW", help="A folder, and what the copy calls it.")
    ] = [],
    force: Force = False,
) -> None:
    """Copy an export without the environment, the output and the names that no report shows."""
    from nsys_sync.inputs import path_maps
    from nsys_sync.scrub import scrub as scrub_file

    result = scrub_file(source, target, map_paths=path_maps(map_path), force=force)
    print("\n".join(result.lines(min(shutil.get_terminal_size().columns, 100))))


@app.command("rules", short_help="Show the kinds of sync, or what a line of source would be.")
def show_rules(
    what: Annotated[
        str | None, typer.Argument(metavar="ID | FILE:LINE", help="A rule to show, or a source line to judge.")
    ] = None,
    rules: Rules = None,
    json: Annotated[str | None, typer.Option(metavar="PATH", help="Write it as JSON (- is stdout).")] = None,
    force: Force = False,
) -> None:
    """Show the catalogue of syncs, one rule, or what it makes of a source line without a trace."""
    outputs = Outputs([rules], force=force, json=json)
    from nsys_sync.analysis.catalogue.judge import Catalogue, line_of
    from nsys_sync.report import catalogue_text

    catalogue = Catalogue.load(rules)
    if what is None:
        catalogue_text.render_list(catalogue, file=outputs.people)
        outputs.write("json", lambda: catalogue_text.rules_json(catalogue.rules))
    elif (place := line_of(what)) is not None:
        verdict = catalogue.judge_line(*place)
        catalogue_text.render_verdict(verdict, catalogue.rule(verdict.rule), what, file=outputs.people)
        outputs.write("json", lambda: catalogue_text.verdict_json(*place, verdict))
    else:
        rule = catalogue.rule(what)
        catalogue_text.render_rule(rule, file=outputs.people)
        outputs.write("json", lambda: catalogue_text.rules_json([rule]))


if __name__ == "__main__":
    main()
