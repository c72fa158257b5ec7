"""Export and import tasks as JSON Lines, with labels, edges and message ids.

The edges of an import are added to the graph one by one; invalid ones are left out.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, cast

from msgspec import Struct

from sakti.core.errors import TaskError
from sakti.core.text import quote
from sakti.core.types import Json
from sakti.store.connection import Connection, Database
from sakti.store.tasks import graph, questions, rows
from sakti.store.tasks.deadlocks import BLOCKS, EDGE_TYPES, PARENT, Edge, WaitGraph
from sakti.store.tasks.questions import Task
from sakti.store.threads import messages as message_store
from sakti.tasks.changes import (
    COMPARED,
    EXPORTED,
    REASONS,
    TYPES,
    Actor,
    check_choice,
    check_priority,
    check_text,
    clean_labels,
    clean_title,
    find_difference,
    make_handle,
    merge_metadata,
    reopen_epics,
)


class RefusedEdge(Struct, frozen=True):
    """Reason for leaving out an edge.

    `cycle` are the handles `a, …, a` of the tasks that would wait for each other.
    """

    reason: str
    cycle: tuple[str, ...] = ()


class Gate:
    """Checks the edges of a workspace one by one; `coming` are the edges to check."""

    def __init__(self, db: Connection, resource_id: str, coming: Iterable[Edge]) -> None:
        self._db = db
        self._waiting = WaitGraph(graph.list_edges(db, resource_id), coming)
        self._epics = questions.list_ids_of_type(db, resource_id, "epic")

    def admit(self, edge: Edge) -> RefusedEdge | None:
        """Add an edge and return None, or return the reason to refuse it."""
        task, on, kind = edge
        if kind not in (BLOCKS, PARENT):
            return RefusedEdge("a task cannot depend on itself") if task == on else None
        if kind == PARENT and task in self._epics and on not in self._epics:
            return RefusedEdge("an epic can only be part of another epic")
        cycle = self._waiting.add(edge)
        if cycle is None:
            return None
        names = questions.map_handles(self._db, cycle)
        path = tuple(names[t] for t in cycle)
        return RefusedEdge(f"it would create a cycle: {' → '.join(path)}", path)


class LeftOutEdge(Struct, frozen=True):
    """Edge that was not imported: the handles of its tasks, its type, and the reason."""

    task: str
    on: str
    type: str
    reason: str


class DifferingTask(Struct, frozen=True):
    """Task that differs from the import, which was not applied: its handle, and the reason."""

    task: str
    reason: str


class ImportResult(Struct, frozen=True):
    """Result of an import.

    Number of tasks and edges added, tasks replaced by a newer version, unchanged tasks, tasks that differ or were
    deleted here, edges left out, closed epics reopened for an open part, and number of tasks that belong to another
    workspace of the database.
    """

    tasks: int
    dependencies: int
    known: int
    left_out: tuple[LeftOutEdge, ...] = ()
    updated: int = 0
    differing: tuple[DifferingTask, ...] = ()
    reopened: tuple[str, ...] = ()
    elsewhere: int = 0


class _SortedImport(Struct):
    """Lines of an import, sorted by their outcome."""

    added: list[tuple[Task, Json, int]] = []
    newer: list[tuple[Task, Task, Json, int]] = []  # the task here and in the import
    same: int = 0
    elsewhere: int = 0
    differing: list[DifferingTask] = []


def export(db: Database, resource_id: str) -> list[Json]:
    """Return all tasks of the workspace, oldest first, with their full text and without claims.

    `based_on`: the `updated_at` of the imported version of a task, so that it can be exported back.
    """
    versions = rows.map_versions(db, resource_id)
    edges: dict[str, list[Json]] = {}
    for task, on, kind in graph.list_edges(db, resource_id):
        edges.setdefault(task, []).append({"on": on, "type": kind})
    out: list[Json] = []
    for task, original in questions.read_with_originals(db, resource_id):
        line: Json = {f: getattr(task, f) for f in EXPORTED} | (original or {})
        if line["status"] == "in_progress":
            line["status"] = "open"
        line["labels"] = list(task.labels)
        line["dependencies"] = edges.get(task.id, [])
        line["messages"] = [m["id"] for m in questions.list_linked_messages(db, task.id, limit=100_000)]
        line["metadata"] = {k: v for k, v in task.metadata.items() if k not in rows.SOURCE_KEYS}
        line["based_on"] = versions.get(task.id)
        out.append(_drop_empty(line))
    return out


def _drop_empty(line: Json) -> Json:
    return {k: v for k, v in line.items() if v not in (None, "", [], {})}


def parse_lines(lines: Iterable[Json | str]) -> Iterator[Json]:
    """Yield the objects of a JSON Lines text. Raises `TaskError` with the number of an invalid line."""
    return (line for _, line in _number_lines(lines))


def _number_lines(lines: Iterable[Json | str]) -> Iterator[tuple[int, Json]]:
    for number, line in enumerate(lines, 1):
        if isinstance(line, str) and not line.strip():
            continue
        try:
            value: Any = json.loads(line) if isinstance(line, str) else line
        except ValueError as e:
            raise TaskError(f"Line {number} is not JSON: {e}.", code="unreadable") from e
        except RecursionError as e:
            raise TaskError(f"Line {number} is nested too deep.", code="unreadable") from e
        if not isinstance(value, dict) or not cast("Json", value).get("id"):
            raise TaskError(f"Line {number} is not a task with an id.", code="unreadable")
        yield number, cast("Json", value)


def split_lines(text: str) -> list[str]:
    """Split a JSON Lines text at line feeds only: its strings may contain other Unicode line ends."""
    return text.split("\n")


def import_tasks(db: Database, actor: Actor, lines: Iterable[Json | str]) -> ImportResult:
    """Add the tasks of an export (lines or objects), in one transaction.

    An existing task is replaced by a newer version if it was not changed here since. An invalid value refuses the
    import; an edge that would be a deadlock is left out and reported.
    """
    try:
        read = _sort_lines(db, actor, lines)
        both = [*read.added, *((task, line, number) for task, _, line, number in read.newer)]
        edges = [edge for task, line, number in both for edge in _read_edges(db, actor, task, line, number)]
    except TaskError as e:
        code = "unreadable" if e.code == "invalid" else e.code
        raise TaskError(f"{e.message} Nothing was imported.", code=code) from e
    connected, left_out = _connect(db, actor, edges)
    for task, line, _ in both:
        _link(db, actor, task, line)
    batch = uuid.uuid4().hex
    for task, newer, _, _ in read.newer:
        _replace(db, actor, task, newer, batch)
    reopened = tuple(task.handle for task in reopen_epics(db, actor, batch))
    graph.refresh_all(db, actor.resource_id)
    for task, _, _ in read.added:
        version: Json = {"version": task.updated_at}
        rows.add_event(db, task, "import", actor.name, actor.now, (None, version), batch=batch)
    differing = tuple(read.differing)
    return ImportResult(
        len(read.added), connected, read.same, left_out, len(read.newer), differing, reopened, read.elsewhere
    )


def _link(db: Database, actor: Actor, task: Task, line: Json) -> None:
    """Link a task to the messages of a line that exist here."""
    for message in line.get("messages") or ():
        if message_store.get(db, str(message)) is not None:
            rows.add_link(db, task.id, str(message), "reference", actor.now)


def _sort_lines(db: Database, actor: Actor, lines: Iterable[Json | str]) -> _SortedImport:
    """Add new tasks, and determine the newer version of the others.

    Raises `TaskError` with the number of a refused line.
    """
    out = _SortedImport()
    for number, line in _number_lines(lines):
        try:
            check_text("the task", line)
            here = questions.get(db, str(line["id"]))
            if _is_out_of_reach(db, actor, str(line["id"]), here, out):
                continue
            task = _make_task(db, actor, line)
        except TaskError as e:
            raise TaskError(f"Line {number}: {e.message}", code=e.code) from e
        if here is None:
            rows.insert(db, task)
            out.added.append((task, line, number))
        elif not _find_changes(here, task):
            out.same += 1
        elif reason := _explain_kept(db, here, task, line):
            out.same += 1
            out.differing.append(DifferingTask(here.handle, reason))
        else:
            out.newer.append((here, task, line, number))
    return out


def _is_out_of_reach(db: Database, actor: Actor, task_id: str, here: Task | None, out: _SortedImport) -> bool:
    """Return whether a task belongs to another workspace, or was deleted here, and record it."""
    workspace, handle = questions.find_place(db, task_id) or (actor.resource_id, "")
    if workspace != actor.resource_id:
        out.elsewhere += 1
        return True
    if here is None and handle:
        out.differing.append(DifferingTask(handle, f"deleted here; `tasks restore {handle}` restores it"))
        return True
    return False


def _find_changes(here: Task, other: Task) -> Json:
    """Return the fields that differ in an imported version, except texts of a shrunk task."""
    status = "open" if here.status == "in_progress" else here.status
    local = {name: getattr(here, name) for name in COMPARED} | {"status": status}
    local["metadata"] = {k: v for k, v in here.metadata.items() if k not in rows.SOURCE_KEYS}
    shrunk = ("description", "summary") if here.compaction_level else ()
    return {
        name: getattr(other, name) for name in COMPARED if name not in shrunk and local[name] != getattr(other, name)
    }


def _explain_kept(db: Database, here: Task, other: Task, line: Json) -> str:
    """Return why an imported version is refused; "" if it is newer and nothing was changed here since."""
    if other.updated_at <= here.updated_at:
        return "the one here is newer" if other.updated_at < here.updated_at else "changed at the same moment"
    based_on = line.get("based_on")
    is_base = isinstance(based_on, int) and here.updated_at <= based_on
    return "" if is_base or rows.is_imported(db, here.id) else "also changed here"


def _replace(db: Database, actor: Actor, here: Task, newer: Task, batch: str) -> None:
    """Replace the fields of a task by those of a newer version."""
    values = _find_changes(here, newer)
    rows.unshrink(db, here.id, actor.now)
    if "labels" in values:
        rows.set_labels(db, here.id, values.pop("labels"))
    if "metadata" in values:
        source = {k: v for k, v in here.metadata.items() if k in rows.SOURCE_KEYS}
        rows.set_metadata(db, here.id, source | values.pop("metadata"))
    after, _ = rows.update(db, here.id, **values, closed_at=newer.closed_at, updated_at=newer.updated_at)
    old, new = find_difference(here, after)
    rows.add_event(db, after, "update", actor.name, actor.now, (old, new | {"version": newer.updated_at}), batch=batch)


def _read_edges(db: Database, actor: Actor, task: Task, line: Json, number: int) -> list[Edge]:
    """Return the edges of a line. Raises `TaskError` for an invalid one."""
    out: list[Edge] = []
    for edge in line.get("dependencies") or ():
        kind, on = str(edge.get("type", BLOCKS)), str(edge.get("on", ""))
        if kind not in EDGE_TYPES or not questions.is_in(db, actor.resource_id, on):
            what = f"{quote(task.title, 60)} has an edge of the unknown kind {quote(kind)} to {quote(on)}."
            raise TaskError(f"Line {number}: {what}", code="invalid")
        out.append((task.id, on, kind))
    return out


def _connect(db: Database, actor: Actor, wanted: list[Edge]) -> tuple[int, tuple[LeftOutEdge, ...]]:
    """Add the allowed edges; return their number, and the edges left out."""
    gate, added = Gate(db, actor.resource_id, wanted), 0
    out: list[tuple[Edge, str]] = []
    for edge in wanted:
        if refused := gate.admit(edge):
            out.append((edge, refused.reason))
        else:
            added += rows.add_edge(db, *edge, actor.now, count=False)
    names = questions.map_handles(db, {t for (task, on, _), _ in out for t in (task, on)})
    return added, tuple(LeftOutEdge(names[task], names[on], kind, why) for (task, on, kind), why in out)


def _make_task(db: Database, actor: Actor, line: Json) -> Task:
    status = str(line.get("status", "open"))
    status = "open" if status == "in_progress" else status
    title = clean_title(line.get("title"))
    kind = line.get("type", "task")
    check_choice("status", status, ("open", "closed"))
    check_choice("type", kind, TYPES)
    check_priority(line.get("priority", 2))
    closed = status == "closed"
    reason = line.get("close_reason") if closed else None
    if reason is not None:
        check_choice("close_reason", reason, REASONS)
    created = _get_time(line, "created_at", actor.now)
    return Task(
        id=str(line["id"]),
        resource_id=actor.resource_id,
        handle=_choose_handle(db, actor, line),
        title=title,
        description=str(line.get("description") or ""),
        status=status,
        priority=line.get("priority", 2),
        type=kind,
        assignee=str(line.get("assignee") or "") or None,
        close_reason=reason,
        summary=str(line.get("summary") or "") or None,
        created_at=created,
        updated_at=_get_time(line, "updated_at", created),
        closed_at=_get_time(line, "closed_at", actor.now) if closed else None,
        labels=tuple(clean_labels(line.get("labels") or ())),
        metadata=merge_metadata({}, line.get("metadata") or {}),
    )


def _choose_handle(db: Database, actor: Actor, line: Json) -> str:
    """Return the handle in a line if it is free here, else a new one."""
    handle = str(line.get("handle") or "")
    if handle and len(handle) <= 40 and not questions.has_handle(db, actor.resource_id, handle):
        return handle
    return make_handle(db, actor.resource_id, str(line["id"]))


def _get_time(line: Json, name: str, default: int) -> int:
    value = line.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
