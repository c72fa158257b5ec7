"""Declare `sakti import`: history and tasks of other programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from sakti.actions.scope import confirm, show_progress_bar
from sakti.actions.search import read_since
from sakti.actions.spec import IMPORT_PROGRAMS, MEMORY, action, arg, flag, option
from sakti.actions.tasks.changes import AS
from sakti.actions.values import USAGE, Card, Open, Refused, Rows, Text, Value, pick_numbered
from sakti.core.lazy import lazy_imports
from sakti.core.text import format_bytes, format_count, format_minute, quote

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.importers.entries import Importer
    from sakti.importers.service import ImportOptions, Progress, RunReport, Service, SourceReport
    from sakti.store.database import Store
    from sakti.tasks.beads import Report


with lazy_imports:
    from sakti import importers as programs
    from sakti.core import clock
    from sakti.importers import service as importing
    from sakti.store import imports
    from sakti.tasks import beads as beads_file

GONE = 20  # maximum number of listed issues
SHOWN = 10  # maximum number of listed problems per program
NOTHING = 2  # exit code if there is nothing to import


@action(
    arg("program", f"{', '.join(IMPORT_PROGRAMS)}, beads (tasks), or all: every history in the home folder.",
        default=None, choices=(*IMPORT_PROGRAMS, "beads", "all")),
    arg("path", "Its folder or file (default: the usual place).", kind="path", default=None),
    flag("--dry-run", help="Only show what would be imported."),
    flag("--here", help="Only threads of this workspace."),
    option("--since", metavar="TIME", help="Only threads with messages since: 2026-01-15, yesterday, 7d …"),
    option("--map", name="renamed", metavar="A=B", many=True, help="Folder A is now B; may be repeated."),
    flag("--watch", help="Keep following earlier imports until stopped."),
    option("--undo", metavar="RUN", optional=True, help="Remove everything that one import added; without RUN, list "
           "the imports."),
    flag("--yes", help="Do not ask for confirmation."),
    AS,
    shell="import",
    panel=MEMORY,
)  # fmt: skip
async def import_(scope: Scope, program: str | None, path: Path | None, as_: str | None, **chosen: Any) -> Value:
    """Import threads of other programs. Run it again to import new entries.

    Sources are only read. Exit 1: failed, 2: nothing to import.
    """
    if chosen["undo"] is not None:
        return scope.in_store(lambda store: _undo(scope, store, chosen["undo"], chosen["yes"]))
    if program == "beads":
        return await _import_beads(scope, path, chosen["dry_run"], as_)
    options = importing.ImportOptions(
        workspace=scope.workspace,
        home=Path.home(),
        here=scope.resource if chosen["here"] else None,
        since=read_since(chosen["since"]),
        renamed=tuple(map(_read_pair, chosen["renamed"])),
        dry_run=chosen["dry_run"],
        hold_open=chosen["watch"],
    )
    roots = _choose_roots(program, path, options)
    if chosen["watch"]:
        return scope.in_store(lambda store: _watch(scope, store, options, roots))
    asks = program == "all" and bool(roots) and not (chosen["yes"] or options.dry_run)
    return scope.in_store(lambda store: _import_roots(scope, store, options, roots, asks))


def _choose_roots(program: str | None, path: Path | None, options: ImportOptions) -> list[tuple[Importer, Path]]:
    """Return the chosen importers and their sources. Raises Refused."""
    if not program:
        raise Refused(f"Name a program: {', '.join(IMPORT_PROGRAMS)}, beads, or all.", code=USAGE)
    if program != "all":
        return [_find_root(program, path, options)]
    if path is not None:
        raise Refused("`sakti import all` takes no path; name a program.", code=USAGE)
    return programs.list_present(options.home, options.workspace)


def _read_pair(text: str) -> tuple[str, str]:
    before, sign, after = text.partition("=")
    if not (before and sign and after):
        raise Refused(f"--map takes A=B, not {quote(text)}.", code=USAGE)
    return before.rstrip("/") or "/", after.rstrip("/") or "/"


def _find_root(program: str, path: Path | None, options: ImportOptions) -> tuple[Importer, Path]:
    """Return the importer of a program and its source. Raises Refused."""
    importer = programs.make_importer(program)
    place = path.expanduser() if path is not None else importer.place(options.home, options.workspace)
    if place is None:
        raise Refused(f"`sakti import {program}` needs the path of a file.", code=USAGE)
    if path is not None and not place.exists():
        raise Refused(f"There is nothing at {place}.", code=USAGE)
    return importer, place


async def _import_roots(
    scope: Scope, store: Store, options: ImportOptions, roots: list[tuple[Importer, Path]], asks: bool
) -> Value:
    if asks:
        await _confirm_all(scope, store, options, roots)
    service = importing.Service(store, options)
    _tell_name(scope, service)
    return _show_report(await _import(service, roots), options.dry_run)


def _tell_name(scope: Scope, service: Service) -> None:
    """Print the name of an import before it starts: it may be killed."""
    if not (scope.json or service.options.dry_run):
        scope.tell(Text((f"Import {service.run}",)))


async def _import(service: Service, roots: list[tuple[Importer, Path]]) -> RunReport:
    with show_progress_bar("importing", "bytes") as show:
        return await service.import_all(roots, lambda program, done, of: show(done, of, f"importing {program}"))


async def _confirm_all(scope: Scope, store: Store, options: ImportOptions, roots: list[tuple[Importer, Path]]) -> None:
    """List the histories in the home folder and ask. Raises Refused."""
    report = await _import(importing.Service(store, replace(options, dry_run=True)), roots)
    if not any(source.new for source in report.sources):
        return
    if scope.json or not sys.stdin.isatty():
        raise Refused("This imports every history in the home folder; --yes confirms it.", code=USAGE)
    scope.tell(Text(tuple(map(describe_source, report.sources))))
    if not confirm("Import them?"):
        raise Refused("Nothing was imported.")


def describe_source(source: SourceReport) -> str:
    """Return one line about a program: its threads, messages, workspaces and size."""
    threads = source.threads + source.child_threads
    return (
        f"{source.program:<11} {format_count(threads, 'thread'):>11}  {format_count(source.messages, 'message'):>14}"
        f"  {format_count(source.workspaces, 'workspace'):>13}  {format_bytes(source.size):>7}"
    )


def _has_content(source: SourceReport) -> bool:
    return bool(source.messages or source.tasks or source.raw)


def _show_report(report: RunReport, dry_run: bool) -> Value:
    lines = [line for source in report.sources for line in _list_results(source, dry_run)]
    is_empty = not any(_has_content(s) for s in report.sources)
    if is_empty:
        where = "no thread matches the options" if report.sources else "no history of another program was found"
        lines.append(f"Nothing to import: {where}.")
    elif any(s.new for s in report.sources) and not dry_run:
        lines.append(f"`sakti search WORDS --all-workspaces` finds it; `sakti import --undo"
                     f" {report.run}` removes it.")  # fmt: skip
    return Text(tuple(lines), json=report.as_json(), exit=NOTHING if is_empty else 0)


def _describe_figures(source: SourceReport, dry_run: bool) -> str:
    """Describe the import from one program."""
    would = "would be new" if dry_run else "new"
    parts = [f"{source.new:,} {would}", f"{source.unchanged:,} unchanged"]
    notes = {
        format_count(source.tasks, "task"): source.tasks,
        f"{source.raw} not recognized, kept as text": source.raw,
        f"{source.masked:,} with masked secrets": source.masked,
        f"{format_count(source.dropped_thinking, 'encrypted reasoning block')} skipped": source.dropped_thinking,
    }
    parts += [note for note, count in notes.items() if count]
    threads = format_count(source.threads + source.child_threads, "thread")
    return f"{threads}, {format_count(source.messages, 'message')}: {', '.join(parts)}"


def _list_results(source: SourceReport, dry_run: bool) -> list[str]:
    """Return the figures and the problems of one program."""
    if not (source.messages or source.problems or source.tasks):
        return []
    lines = [f"{source.program:<12} {_describe_figures(source, dry_run)}"]
    for problem in source.problems[:SHOWN]:
        where = f"{problem.file}:{problem.line}" if problem.line else problem.file
        lines.append(f"  {where}: {problem.why}")
    if len(source.problems) > SHOWN:
        lines.append(f"  and {len(source.problems) - SHOWN} more; --json names them")
    return lines


async def _watch(scope: Scope, store: Store, options: ImportOptions, roots: list[tuple[Importer, Path]]) -> Value:
    service = importing.Service(store, options)
    _tell_name(scope, service)

    def tell(report: RunReport) -> None:
        scope.tell(
            Text(tuple(line for source in report.sources if source.new for line in _list_results(source, False)))
        )

    followed = await importing.watch(service, roots, tell)
    names = ", ".join(followed) or "none: nothing was imported before"
    return Text((f"Followed {names}.",), json={"followed": followed}, exit=0 if followed else NOTHING)


async def _undo(scope: Scope, store: Store, run: str, yes: bool) -> Value:
    plan = await store.read(importing.plan_undo, run)
    if plan.is_empty:
        return await _list_runs(store, run)
    lines = [
        f"{'keep' if p.continued else 'remove'}  {quote(p.title or 'untitled')}: {format_count(p.messages, 'message')}"
        for p in plan.parts
    ]
    lines += [f"remove  {format_count(len(plan.tasks), 'task')}"] if plan.tasks else []
    if not yes:
        if scope.json or not sys.stdin.isatty():
            return Text((*lines, "Nothing was removed. --yes removes it."), json={"removed": False, **plan.as_json()})
        scope.tell(Text(tuple(lines)))
        if not confirm("Remove them?"):
            raise Refused("Nothing was removed.")
    problems = await importing.undo(store, plan)
    summary = f"Removed {format_count(len(plan.goes), 'thread')} of the import {run}."
    return Text((*problems, summary), json={"removed": True, **plan.as_json()})


async def _list_runs(store: Store, unknown: str) -> Value:
    """List the imports that can be undone. Raises Refused if a name is `unknown`."""
    runs = await store.read(imports.list_runs)
    lines = [f"{r.run}  {format_minute(clock.read_id_time(r.run))}  {', '.join(r.programs)}  "
             f"{format_count(r.threads, 'thread')}" for r in runs]  # fmt: skip
    if unknown:
        raise Refused("\n".join((f"There is no import {unknown}." + (" There are:" if lines else ""), *lines)))
    advice = "`sakti import --undo RUN` removes one." if lines else "No import can be undone."
    return Text((*lines, advice), json={"runs": to_builtins(runs)})


# --- chat ---------------------------------------------------------------------------------------------------

COUNTED = 100  # percentage of a completely counted program
NO_HISTORY = "Nothing to import: no history of another program was found."


class HistoryImport:
    """Import of other programs' history in a chat: figures first, then a run that can be stopped."""

    def __init__(self, store: Store, workspace: Path) -> None:
        self._store = store
        self._options = importing.ImportOptions(workspace=workspace, home=Path.home())

    async def count(
        self, show: Callable[[SourceReport, int], None], is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Show the size of each program that has something to import, then its figures.

        `show` receives the figures and the counted percentage of the program. Nothing is written.
        """
        service = importing.Service(self._store, replace(self._options, dry_run=True), is_stopped=is_stopped)
        listed = [(importer, root, await service.measure(importer, root)) for importer, root in await self._find()]
        for _, _, size in listed:
            show(size, 0)
        for importer, root, size in listed:

            def show_progress(_: str, done: int, total: int, size: SourceReport = size) -> None:
                show(size, min(99, 100 * done // max(1, total)))

            show(await service.import_program(importer, root, show_progress), COUNTED)

    async def names(self) -> list[str]:
        """Return the programs that have something to import."""
        return [importer.program for importer, _ in await self._find()]

    async def _find(self) -> list[tuple[Importer, Path]]:
        return await programs.find_present(self._options.home, self._options.workspace)

    async def run(
        self,
        names: Collection[str],
        progress: Progress | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Card:
        """Import these programs; return the report, also of a stopped import."""
        service = importing.Service(self._store, self._options, is_stopped=is_stopped)
        roots = [(importer, root) for importer, root in await self._find() if importer.program in names]
        return _show_card(await service.import_all(roots, progress), is_stopped())


def _show_card(report: RunReport, was_stopped: bool) -> Card:
    rows = [(source.program, _describe_figures(source, False)) for source in report.sources]
    problems = sum(len(source.problems) for source in report.sources)
    if problems:
        rows.append(("problems", f"{problems}; `sakti import all --dry-run` names them"))
    if any(source.new for source in report.sources):
        rows.append(("search", "/search searches the imported threads"))
        rows.append(("undo", f"sakti import --undo {report.run}"))
    if was_stopped:
        rows.append(("stopped", "imported threads are kept; /import continues"))
    return Card("Import", tuple(rows))


@action(chat="import", needs="session")
async def import_in_chat(scope: Scope) -> Value:
    """Import threads of other programs: claude-code, codex, opencode and others."""
    history = HistoryImport(scope.store, scope.workspace)

    async def list_rows() -> Value:
        sources: list[SourceReport] = []
        with scope.working("counting the history of other programs"):
            await history.count(lambda source, percent: sources.append(source) if percent == COUNTED else None)

        async def import_one(number: int) -> Value:
            with scope.working("importing"):
                return await history.run([pick_numbered(sources, number).program])

        text = tuple(f"{number}. {describe_source(source)}" for number, source in enumerate(sources, 1))
        return Rows(text, "imports", tuple(sources), NO_HISTORY, what="imports that program", pick=import_one)

    return Open("import", history, fallback=list_rows)


# --- beads --------------------------------------------------------------------------------------------------


async def _import_beads(scope: Scope, path: Path | None, dry_run: bool, as_: str | None) -> Value:
    issues = beads_file.read(path or scope.workspace)
    try:
        report = await scope.change(beads_file.import_issues, as_, clock.TimeIds(clock.SystemClock()), issues, dry_run)
    except beads_file.DryRun as e:
        report = e.report
    return _show_beads(report, dry_run)


def _show_beads(report: Report, dry_run: bool) -> Value:
    out = [f"{name}: {why}" for name, why in (*report.skipped, *report.notes)]
    out += [f"skipped, it would close a cycle: {' → '.join(cycle)}" for cycle in report.cycles]
    if report.gone:
        some = ", ".join(report.gone[:GONE]) + (", …" if len(report.gone) > GONE else "")
        out.append(f"{len(report.gone)} missing in beads, kept here: {some}")
    out.append(
        f"{'Would be: ' if dry_run else ''}{report.imported} imported, {report.updated} updated,"
        f" {report.unchanged} unchanged, {len(report.skipped)} skipped;"
        f" {format_count(report.dependencies, 'dependency', 'dependencies')},"
        f" {format_count(len(report.cycles), 'cycle')} refused"
    )
    taken = report.imported + report.updated + report.unchanged
    described: dict[str, Any] = {"success": True, "dryRun": dry_run, **beads_file.describe(report)}
    return Text(tuple(out), json=described, exit=NOTHING if report.skipped and not taken else 0)
