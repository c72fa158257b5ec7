"""Import the history of other programs, follow it, and undo an import."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from sakti.agent import repository
from sakti.core.errors import SaktiError, StoreError
from sakti.core.text import clean_surrogates, quote
from sakti.core.tokens import Counter, O200k
from sakti.core.types import Json, Part, ToolCallPart, ToolResultPart
from sakti.importers import inputs, map_folder, mastra
from sakti.importers.entries import Entry, Findings, Importer, Problem, Source, TodoItem
from sakti.importers.writer import BATCH, Counts, ImportWriter, group_entries, is_continuation
from sakti.store import imports
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.imports import THREAD, RunPart, SourceState
from sakti.store.maintenance import purging
from sakti.store.secrets import mask_secrets as mask_text
from sakti.store.tasks import rows as task_rows
from sakti.store.threads import removal
from sakti.tasks import beads
from sakti.tasks.changes import Actor

HEAD = 4096  # bytes by which a file is recognized
WATCH_S = 2.0
MOST_PROBLEMS = 100  # most problems listed per program
Progress = Callable[[str, int, int], None]  # program, bytes read, total bytes


class ImportOptions(Struct, frozen=True):
    """Options of an import.

    `here` is the id of the only workspace to import. Threads without an entry after `since` (Unix ms) are left out.
    `renamed`: pairs of folders before and after a move. `workspace`: the current folder. `hold_open` leaves an
    unfinished answer for the next import.
    """

    workspace: Path
    home: Path
    here: str | None = None
    since: int | None = None
    renamed: tuple[tuple[str, str], ...] = ()
    dry_run: bool = False
    hold_open: bool = False

    @property
    def is_partial(self) -> bool:
        return self.here is not None or self.since is not None


class SourceReport(Struct):
    """Figures of one program; `messages` are prompts and answers, `threads` those without a parent."""

    program: str
    path: str
    version: str = ""
    threads: int = 0
    child_threads: int = 0
    messages: int = 0
    new: int = 0
    unchanged: int = 0
    raw: int = 0
    masked: int = 0
    dropped_thinking: int = 0
    tasks: int = 0
    size: int = 0
    workspaces: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])


class RunReport(Struct):
    run: str
    sources: list[SourceReport] = field(default_factory=list[SourceReport])

    def as_json(self) -> Json:
        return to_builtins(self)


class Service:
    """Import into one store; `counter` counts tokens. `is_stopped` ends a run after the current batch."""

    def __init__(
        self,
        store: Store,
        options: ImportOptions,
        counter: Counter | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.store, self.options = store, options
        self.is_stopped = is_stopped
        self._counter = counter or O200k()
        self._workspaces: dict[str, str] = {}
        self.run = store.ids.new()

    def workspace_of(self, folder: str) -> str:
        """Return the workspace id of a folder: its repository, else the folder itself."""
        if folder not in self._workspaces:
            mapped = self._map_folder(folder)
            path = Path(mapped)
            self._workspaces[folder] = mask_text(mapped)
            if path.is_absolute() and inputs.read_status(path) is not None:
                with contextlib.suppress(OSError):  # no permission
                    self._workspaces[folder] = str(repository.find_root(path))
        return self._workspaces[folder]

    def _map_folder(self, folder: str) -> str:
        """Return a folder's new place after moves; a resource of Mastra may be mapped to a folder, too."""
        kind, sign, name = folder.partition(":")
        if sign and kind in ("mastra", "mastra-only"):
            mapped = map_folder(name, self.options.renamed)
            if mapped != name:
                return mapped
            return str(self.options.workspace) if kind == "mastra-only" else folder
        return map_folder(folder, self.options.renamed) if folder else str(self.options.workspace)

    async def import_all(self, roots: Sequence[tuple[Importer, Path]], progress: Progress | None = None) -> RunReport:
        """Import each program from its folder or file."""
        report = RunReport(self.run)
        for importer, root in roots:
            if not self.is_stopped():
                report.sources.append(await self.import_program(importer, root, progress))
        return report

    async def measure(self, importer: Importer, root: Path) -> SourceReport:
        """Return the size of a program's sources without reading them."""
        sources = await asyncio.to_thread(self._list_sources, importer, root, Findings())
        return SourceReport(importer.program, str(root), size=sum(map(_measure, sources)))

    async def import_program(self, importer: Importer, root: Path, progress: Progress | None = None) -> SourceReport:
        findings = Findings()
        sources = await asyncio.to_thread(self._list_sources, importer, root, findings)
        report = SourceReport(importer.program, str(root), size=sum(map(_measure, sources)))
        work = _ProgramImport(self, importer, report, findings)
        states = {s.path: s for s in await self.store.read(imports.list_sources) if s.program == importer.program}
        changed = await asyncio.to_thread(work.find_changed, sources, states)
        done, total = 0, sum(map(_measure, changed))
        for source in changed:
            if self.is_stopped():
                break
            try:
                await work.import_source(source, self._report_to(progress, importer.program, done, total))
            except StoreError as e:
                if e.code != "unreadable":
                    raise
                findings.add(source.path, 0, e.message)
            done += _measure(source)
        return work.finish()

    def _list_sources(self, importer: Importer, root: Path, findings: Findings) -> list[Source]:
        """Return the sources below a folder; names that are not UTF-8 are reported."""
        sources: list[Source] = []
        for source in importer.find(root, findings):
            path = os.path.realpath(source.path)
            if clean_surrogates(path) != path:
                findings.add(source.path, 0, "its name is not UTF-8")
            else:
                sources.append(replace(source, key=map_folder(path, self.options.renamed)))
        return sources

    @staticmethod
    def _report_to(progress: Progress | None, program: str, done: int, total: int) -> Callable[[int], None]:
        def report(offset: int) -> None:
            if progress is not None:
                progress(program, done + offset, total)

        return report

    def make_writer(self, program: str) -> ImportWriter:
        return ImportWriter(program, self.run, self.store.ids, self._counter, self.workspace_of)


class _ProgramImport:
    def __init__(self, service: Service, importer: Importer, report: SourceReport, findings: Findings) -> None:
        self._service, self._importer = service, importer
        self._report, self._findings = report, findings
        self._writer = service.make_writer(importer.program)
        self._counts = Counts()
        self._threads: set[str] = set()
        self._children: set[str] = set()
        self._folders: set[str] = set()
        self._skipped = False  # whether a filter left something out
        self._start = self._read_figures()  # figures before the current source
        self._messages = 0  # figures of the current source, including an earlier run that read its beginning

    def find_changed(self, sources: Sequence[Source], states: Mapping[str, SourceState]) -> list[Source]:
        """Return the sources that are new or changed since an earlier import; count the others."""
        changed: list[Source] = []
        for source in sources:
            now, before = _find_state(source), states.get(str(source.path))
            if now is None or before is None or not before.is_same(now) or self._service.options.is_partial:
                changed.append(source)
            else:
                self._add_unchanged(before)
        return changed

    async def import_source(self, source: Source, report: Callable[[int], None]) -> None:
        """Import the new entries of one source."""
        store, options = self._service.store, self._service.options
        now = await asyncio.to_thread(_read_state, source)
        if now is None:
            self._findings.add(source.path, 0, "it cannot be read")
            return
        before = await store.read(imports.get_source, source.program, str(source.path))
        offset = _resume_at(before, now)
        if offset and not options.dry_run:
            await store.write(imports.remove_entry, source.program, inputs.make_raw_id(source.path, offset))
        earlier = before if offset else None
        self._messages = earlier.counts.get("messages", 0) if earlier is not None else 0
        self._start, self._skipped = self._read_figures(), False
        read_to = await self._import_entries(source, offset, now, await self._choose_threads(source), report)
        if earlier is not None:
            self._add_beginning(earlier)
        if self._service.is_stopped():
            return
        await self._import_todos(source)
        if options.dry_run:
            return
        if source.program == "mastra":
            await mastra.import_memory(store, self._writer, source, self._findings)
        if not self._skipped:
            await store.write(self._save_state, replace(now, offset=read_to), earlier)

    def _save_state(self, db: Database, now: SourceState, before: SourceState | None) -> None:
        """Store the offset up to which a source was read; `before`: state after an earlier import."""
        counts = self._count_source(before, self._messages)
        imports.save_source(db, replace(now, counts=counts, last_run=self._service.run))

    def _count_source(self, before: SourceState | None, messages: int) -> Json:
        """Return the figures of the current source, with the threads of an earlier run, if any."""
        added = {name: count - self._start[name] for name, count in self._read_figures().items()}
        return {**added, **(before.counts if before is not None else {}), "messages": messages}

    def _read_figures(self) -> dict[str, int]:
        messages = self._counts.new + self._counts.unchanged
        return {"messages": messages, "threads": len(self._threads), "children": len(self._children)}

    def _add_unchanged(self, before: SourceState) -> None:
        self._report.unchanged += before.counts.get("messages", 0)
        self._report.threads += before.counts.get("threads", 0)
        self._report.child_threads += before.counts.get("children", 0)

    def _add_beginning(self, before: SourceState) -> None:
        """Add the figures of an earlier run of the current source, without counting threads twice."""
        now = self._read_figures()
        self._report.unchanged += before.counts.get("messages", 0)
        self._report.threads += max(0, before.counts.get("threads", 0) - now["threads"] + self._start["threads"])
        self._report.child_threads += max(
            0, before.counts.get("children", 0) - now["children"] + self._start["children"]
        )

    async def _choose_threads(self, source: Source) -> set[str] | None:
        """Return the threads of a source that are recent enough; None: all."""
        if self._service.options.since is None:
            return None
        return await asyncio.to_thread(self._find_recent_threads, source)

    def _find_recent_threads(self, source: Source) -> set[str]:
        """Return the threads of a source with an entry after the requested time."""
        newest: dict[str, int] = {}
        for entry in self._importer.entries(source, 0, Findings()):
            newest[entry.thread.id] = max(entry.time, newest.get(entry.thread.id, 0))
        since = self._service.options.since or 0
        return {thread for thread, time in newest.items() if time >= since}

    async def _import_entries(
        self, source: Source, offset: int, now: SourceState, chosen: set[str] | None, report: Callable[[int], None]
    ) -> int:
        """Store the entries of a source in batches; return the offset up to which it was read."""
        entries = self._importer.entries(source, offset, self._findings)
        batches = _make_batches(entry for entry in entries if self._is_wanted(entry, chosen))
        if self._service.options.hold_open:
            batches = _remove_unfinished(batches)
        end = offset
        self._findings.read_to = offset
        while not self._service.is_stopped() and (batch := await asyncio.to_thread(next, batches, None)) is not None:
            await self._store_batch(source, batch, now)
            end = max(end, batch[-1].end) if batch else end
            report(end)
        return end if self._service.options.hold_open else self._findings.read_to

    def _is_wanted(self, entry: Entry, chosen: set[str] | None) -> bool:
        here, thread = self._service.options.here, entry.thread
        is_wanted = (chosen is None or thread.id in chosen) and (
            here is None or self._service.workspace_of(thread.cwd) == here
        )
        self._skipped |= not is_wanted
        return is_wanted

    async def _store_batch(self, source: Source, entries: Sequence[Entry], now: SourceState) -> None:
        for entry in entries:
            if entry.kind not in ("note", "end"):
                (self._children if entry.thread.parent else self._threads).add(entry.thread.id)
                self._folders.add(self._service.workspace_of(entry.thread.cwd))
                self._report.version = entry.thread.version or self._report.version
        options, store = self._service.options, self._service.store
        if not entries:
            return
        if options.dry_run:
            self._add_counts(await store.read(self._writer.preview, entries))
            return
        end = 0 if options.is_partial or source.path.suffix != ".jsonl" else entries[-1].end
        state = replace(now, offset=end, size=-1, last_run=self._service.run) if end else None
        self._add_counts(await store.write(self._write_batch, entries, state))

    def _add_counts(self, counts: Counts) -> None:
        self._counts.add(counts)
        self._messages += counts.new + counts.unchanged

    def _write_batch(self, db: Database, entries: Sequence[Entry], state: SourceState | None) -> Counts:
        """Store a batch and the offset up to which the source was read, in one transaction."""
        counts = self._writer.write(db, entries)
        if state is not None:
            before = imports.get_source(db, state.program, state.path)
            messages = self._messages + counts.new + counts.unchanged
            imports.save_source(db, replace(state, counts=self._count_source(before, messages)))
        return counts

    # --- tasks ----------------------------------------------------------------------------------------------

    async def _import_todos(self, source: Source) -> None:
        todos = await asyncio.to_thread(lambda: list(self._importer.todos(source, self._findings)))
        if todos and not self._service.options.dry_run:
            self._report.tasks += await self._service.store.write(self._write_todos, todos)
        else:
            self._report.tasks += len(todos)

    def _write_todos(self, db: Database, todos: Sequence[TodoItem]) -> int:
        """Add tasks to the boards of their threads' workspaces; return how many are new or changed."""
        store = self._service.store
        origins = imports.find_entries(db, self._importer.program, [THREAD + t.thread.id for t in todos])
        boards: dict[str, list[Json]] = {}
        for todo in todos:
            if (origin := origins.get(THREAD + todo.thread.id)) is not None:
                thread, _ = removal.get_with_deletion(db, origin.thread_id)
                boards.setdefault(thread.resource_id, []).append(_to_issue(todo))
        added = 0
        for board, issues in boards.items():
            actor = Actor(board, "user:you", store.clock.now(), name=f"import {self._importer.program}")
            _add_blocks(issues)
            report = beads.import_issues(
                db, actor, store.ids, issues, source=self._importer.program, batch=self._service.run
            )
            added += report.imported + report.updated
        return added

    def finish(self) -> SourceReport:
        """Return the figures of the program."""
        report, counts = self._report, self._counts
        report.new, report.raw, report.masked = counts.new, counts.raw, counts.masked
        report.unchanged += counts.unchanged
        report.messages = report.new + report.unchanged
        report.threads += len(self._threads)
        report.child_threads += len(self._children)
        report.workspaces = len(self._folders)
        report.dropped_thinking = self._findings.dropped_thinking
        report.problems = self._findings.problems[:MOST_PROBLEMS]
        return report


def _to_issue(todo: TodoItem) -> Json:
    """Convert a task to an issue of beads."""
    prefix = todo.thread.id[:8]
    return {
        "id": f"{prefix}-{todo.id}",
        "title": todo.title,
        "description": "" if todo.description == todo.title else todo.description,
        "status": todo.status,
        "blocks": [f"{prefix}-{other}" for other in todo.blocks],
        "dependencies": [
            {"issue_id": f"{prefix}-{todo.id}", "depends_on_id": f"{prefix}-{other}", "type": "blocks"}
            for other in todo.blocked_by
        ],
    }


def _add_blocks(issues: Sequence[Json]) -> None:
    """Turn the tasks that an issue blocks into their dependencies."""
    by_id = {issue["id"]: issue for issue in issues}
    for issue in issues:
        for other in issue.pop("blocks"):
            edge: dict[str, Any] = {"issue_id": other, "depends_on_id": issue["id"], "type": "blocks"}
            if other in by_id and edge not in by_id[other]["dependencies"]:
                by_id[other]["dependencies"].append(edge)


# --- batches ------------------------------------------------------------------------------------------------


def _make_batches(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    """Yield entries in batches that begin with a prompt or an answer."""
    batch: list[Entry] = []
    for entry in entries:
        is_start = entry.kind == "message" and entry.role != "tool"
        if len(batch) >= BATCH and is_start and not is_continuation(batch[-1], entry):
            yield batch
            batch = []
        batch.append(entry)
    if batch:
        yield batch


def _remove_unfinished(batches: Iterator[list[Entry]]) -> Iterator[list[Entry]]:
    """Remove the last answer if the program is still writing it."""
    before: list[Entry] | None = None
    for batch in batches:
        if before is not None:
            yield before
        before = batch
    if before is not None:
        yield before[: len(before) - count_unfinished(before)]


def count_unfinished(entries: Sequence[Entry]) -> int:
    """Return the number of entries of the last answer if it or the results of its calls are unfinished."""
    if entries and entries[-1].kind == "raw" and entries[-1].is_open:  # a line that is still being written
        return 1 + count_unfinished(entries[:-1])
    groups = _find_last_answer(list(group_entries(entries)))
    answer = list(itertools.chain.from_iterable(groups))
    return len(answer) if groups and _is_unfinished(groups[0], answer) else 0


def _is_unfinished(first: Sequence[Entry], answer: Sequence[Entry]) -> bool:
    """Return whether an answer is still being written or waits for a result; `first`: its first group."""
    if any(e.kind == "end" for e in answer):
        return False
    return any(e.is_open for e in first) or _has_open_call(part for e in answer for part in e.parts)


def _find_last_answer(groups: Sequence[Sequence[Entry]]) -> Sequence[Sequence[Entry]]:
    """Return the groups from the last answer on; none if a user's message follows it."""
    for start in reversed(range(len(groups))):
        if groups[start][0].role in ("assistant", "user"):
            return groups[start:] if groups[start][0].role == "assistant" else ()
    return ()


def _has_open_call(parts: Iterable[Part]) -> bool:
    calls: set[str] = set()
    for part in parts:
        if isinstance(part, ToolCallPart):
            calls.add(part.id)
        elif isinstance(part, ToolResultPart):
            calls.discard(part.call_id)
    return bool(calls)


# --- sources ------------------------------------------------------------------------------------------------


def _measure(source: Source) -> int:
    return sum(state.st_size for path in (source.path, *source.side) if (state := inputs.read_status(path)) is not None)


def _read_state(source: Source) -> SourceState | None:
    """Return the state of a source with the hash of its beginning; None if unreadable."""
    state = _find_state(source)
    if state is None:
        return None
    try:
        with source.path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return None
    return replace(state, head=hashlib.sha256(head).hexdigest()) if len(head) == HEAD else state


def _find_state(source: Source) -> SourceState | None:
    """Return the state of a source, None if it is no file."""
    status = inputs.read_status(source.path)
    if status is None or not stat.S_ISREG(status.st_mode):  # reading a pipe or a device would never end
        return None
    sides = [state for path in source.side if (state := inputs.read_status(path)) is not None]
    return SourceState(
        source.program,
        str(source.path),
        status.st_dev,
        status.st_ino,
        status.st_size + sum(s.st_size for s in sides),
        max([status.st_mtime_ns, *(s.st_mtime_ns for s in sides)]),
        status.st_size,
    )


def _resume_at(before: SourceState | None, now: SourceState) -> int:
    """Return the offset at which reading continues, 0 for another file."""
    if before is None or not before.path.endswith(".jsonl"):
        return 0
    is_same_file = (before.device, before.inode) == (now.device, now.inode) and before.offset <= now.offset
    return before.offset if is_same_file and (not before.head or before.head == now.head) else 0


# --- follow -------------------------------------------------------------------------------------------------


async def watch(
    service: Service, roots: Sequence[tuple[Importer, Path]], tell: Callable[[RunReport], None], rounds: int = 0
) -> list[str]:
    """Follow the programs imported before until stopped; return their names.

    `rounds` limits the number of checks.
    """
    programs = {state.program for state in await service.store.read(imports.list_sources)}
    followed = [(importer, root) for importer, root in roots if importer.program in programs]
    while followed:
        report = await service.import_all(followed)
        if any(source.new for source in report.sources):
            tell(report)
        rounds -= 1
        if not rounds:
            break
        await service.store.clock.sleep(WATCH_S)
    return [importer.program for importer, _ in followed]


# --- undo ---------------------------------------------------------------------------------------------------


class UndoPlan(Struct, frozen=True):
    """Threads and tasks that an undo removes; `stays`: threads continued here, which stay."""

    run: str
    parts: tuple[RunPart, ...]
    tasks: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.parts or self.tasks)

    @property
    def stays(self) -> tuple[RunPart, ...]:
        return tuple(p for p in self.parts if p.continued)

    @property
    def goes(self) -> tuple[RunPart, ...]:
        return tuple(p for p in self.parts if not p.continued)

    def as_json(self) -> Json:
        return {"run": self.run, "threads": to_builtins(self.parts), "tasks": list(self.tasks)}


def plan_undo(db: Database, run: str) -> UndoPlan:
    """List the threads and tasks added by a run."""
    tasks = {e.task_id for e in task_rows.list_events_of_batch(db, run) if e.action == "import"}
    return UndoPlan(run, tuple(imports.list_run_parts(db, run)), tuple(sorted(tasks)))


async def undo(store: Store, plan: UndoPlan) -> list[str]:
    """Remove the threads, messages and tasks added by a run; return why threads stay."""
    problems = [f"{quote(part.title)} was continued here and stays" for part in plan.stays]
    stays = {part.thread_id for part in plan.stays}
    for part in plan.goes:
        try:
            await store.write(imports.remove_groups, part.thread_id)
            await store.write(imports.move_threads_back, plan.run, part.thread_id)
            if part.is_new or not await store.write(imports.remove_messages, plan.run, part.thread_id):
                with contextlib.suppress(StoreError):  # already deleted
                    await store.write(removal.delete_thread, part.thread_id, store.clock.now())
                await purging.purge_thread(store, part.thread_id)
        except SaktiError as e:
            stays.add(part.thread_id)
            problems.append(f"{quote(part.title)} stays: {e.message}")
    for task_id in plan.tasks:
        await store.write(_delete_task, task_id, store.clock.now())
        await purging.purge_task(store, task_id)
    await store.write(imports.remove_pages, mastra.page_actor(plan.run))
    await store.write(imports.forget_run, plan.run, sorted(stays))
    return problems


def _delete_task(db: Database, task_id: str, now: int) -> None:
    resource = task_rows.find_resource(db, task_id)
    if resource is not None:
        task_rows.delete_many(db, resource, [task_id], now)
