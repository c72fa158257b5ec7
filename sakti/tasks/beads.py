"""Import issues of beads (the `bd` tracker): its `issues.jsonl`, folder, or SQLite database.

The original issue is kept in the task's metadata, so an import can be repeated: it applies later changes in beads and
keeps changes made here. Beads' terms are mapped to ours: `blocked` is computed here, so such an issue is open; an
unknown issue type becomes a task, an unknown edge becomes `related`.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, field, to_builtins

from sakti.core.clock import Ids
from sakti.core.errors import TaskError
from sakti.core.text import quote
from sakti.core.types import Json
from sakti.store import copies
from sakti.store.connection import Database
from sakti.store.tasks import graph as store_graph
from sakti.store.tasks import questions, rows
from sakti.store.tasks.deadlocks import BLOCKS, EDGE_TYPES, RELATED
from sakti.store.tasks.questions import Task
from sakti.store.tasks.rows import ImportedTask
from sakti.tasks.changes import (
    NO_CLAIM,
    STATUSES,
    TYPES,
    Actor,
    check_priority,
    check_text,
    clean_labels,
    clean_title,
    log,
    make_handle,
    reopen_epics,
)
from sakti.tasks.transfer import Gate, parse_lines, split_lines

SOURCE = "beads"
NAMES = ("issues.jsonl", "beads.jsonl")  # newer and older versions of bd
_SECTIONS = {"design": "Design", "acceptance_criteria": "Acceptance criteria", "notes": "Notes"}
_NOT_DONE = ("wontfix", "won't", "wont fix", "not planned", "obsolete", "invalid", "cancel", "abandon")


class Report(Struct):
    """Result of an import.

    `skipped` and `notes` pair the id of an issue with a sentence; `cycles` are edges that were left out, each as the
    whole path that it would have closed; `gone` are issues imported before that the source no longer has (their tasks
    stay).
    """

    imported: int = 0
    updated: int = 0
    unchanged: int = 0
    dependencies: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    notes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    cycles: list[list[str]] = field(default_factory=list[list[str]])
    gone: list[str] = field(default_factory=list[str])


class DryRun(Exception):
    """Carries the report of a transaction that is rolled back."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


def read(path: Path) -> list[Json]:
    """Return the issues at `path`. Raises TaskError (no_input, unreadable)."""
    file = _find(path)
    if file.suffix in (".db", ".sqlite", ".sqlite3"):
        return copies.read_beads_issues(file)
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        raise TaskError(f"{file} cannot be read: {why}.", code="unreadable") from e
    try:
        return [line for line in parse_lines(split_lines(text)) if line.get("_type", "issue") == "issue"]
    except TaskError as e:
        raise TaskError(f"{file}: {e.message} Nothing was imported.", code=e.code) from e


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    folders = [path, path / ".beads"] if path.is_dir() else []
    for folder in reversed(folders):
        for name in NAMES:
            if (folder / name).is_file():
                return folder / name
        if databases := sorted(folder.glob("*.db")):
            return databases[0]
    what = f"neither {' nor '.join(NAMES)} nor a database" if folders else "nothing"
    raise TaskError(f"There is {what} at {path}. Name a `.beads` folder, or what `bd export` wrote.", code="no_input")


def import_issues(
    db: Database,
    actor: Actor,
    ids: Ids,
    issues: Iterable[Json],
    dry_run: bool = False,
    *,
    source: str = SOURCE,
    batch: str = "",
) -> Report:
    """Add new issues and update changed ones, in the caller's transaction.

    `source` is the program of the issues, `batch` the id of the import in the log of changes. Raises `DryRun` with the
    report if `dry_run` is set, so that the caller rolls back.
    """
    state = _Import(db, actor, ids, Report(), batch or ids.new(), source)
    imported = rows.map_by_source(db, actor.resource_id, source)
    pairs = state.import_all(issues, imported)
    seen = {*state.tasks, *(name for name, _ in state.report.skipped)}
    state.report.gone += sorted(name for name, task in imported.items() if name not in seen and not task.deleted)
    state.connect(pairs)
    names = {task: name for name, task in state.tasks.items()}
    for epic in reopen_epics(db, actor, state.batch):
        state.report.notes.append((names.get(epic.id, epic.handle), "it became open: it has open children"))
    store_graph.refresh_all(db, actor.resource_id)
    if dry_run:
        raise DryRun(state.report)
    return state.report


def _find_reason_to_skip(issue: Json, before: ImportedTask | None, is_twice: bool) -> str:
    """Return the reason to skip an issue, "" to import it."""
    if before is not None and before.deleted:
        return "it was deleted in sakti; `sakti tasks restore` restores it"
    if issue.get("status") == "tombstone" or issue.get("deleted_at"):
        return "it was deleted in beads"
    return "it occurs twice; the first one is used" if is_twice else ""


class _Import(Struct):
    """State of one import.

    `tasks` maps the ids of all imported issues to their tasks. The events share `batch`, so that one undo reverts
    them all.
    """

    db: Database
    actor: Actor
    ids: Ids
    report: Report
    batch: str
    source: str
    tasks: dict[str, str] = field(default_factory=dict[str, str])

    def import_one(self, issue: Json, before: ImportedTask | None) -> str:
        """Insert or update an issue's task and return its id. Raises TaskError for invalid values."""
        db, name = self.db, str(issue["id"])
        check_text("the issue", issue)
        fields = _to_fields(issue, self.actor.now)
        if before is None:
            task = _make_task(db, self.actor, self.ids.new(), name, fields)
            rows.insert(db, task)
            rows.add_event(db, task, "import", self.actor.name, self.actor.now, batch=self.batch)
            self.report.imported += 1
        elif before.original == issue:
            self.report.unchanged += 1
            return before.task_id
        else:
            task = self._update(before, fields)
            self.report.updated += 1
        rows.set_source(db, task.id, self.source, name, issue)
        self.report.notes += [(name, note) for note in _list_notes(issue)]
        return task.id

    def _update(self, before: ImportedTask, fields: Json) -> Task:
        """Apply changes in the source since the last import; changes made here stay."""
        old = _to_fields(before.original, self.actor.now)
        changed = {k: v for k, v in fields.items() if v != old[k]}
        task = questions.get(self.db, before.task_id)
        assert task is not None
        if changed:
            labels = changed.pop("labels", None)
            if changed.get("status", "in_progress") != "in_progress":
                changed |= NO_CLAIM
            if labels is not None:
                rows.set_labels(self.db, task.id, labels)
            now, _ = rows.update(self.db, task.id, **{"updated_at": self.actor.now, **changed})
            log(self.db, self.actor, task, now, "update", batch=self.batch)
        return task

    def import_all(self, issues: Iterable[Json], imported: Mapping[str, ImportedTask]) -> list[tuple[str, Json, Json]]:
        """Import issues; return the id of each, its former version ({} if new), and the issue."""
        pairs: list[tuple[str, Json, Json]] = []
        for issue in issues:
            name = str(issue["id"])
            before = imported.get(name)
            if reason := _find_reason_to_skip(issue, before, name in self.tasks):
                self.report.skipped.append((name, reason))
                continue
            try:
                self.tasks[name] = self.import_one(issue, before)
            except TaskError as e:
                self.report.skipped.append((name, e.message))
                continue
            pairs.append((name, before.original if before is not None else {}, issue))
        return pairs

    def connect(self, pairs: Sequence[tuple[str, Json, Json]]) -> None:
        """Remove the edges that issues no longer have, and add new ones."""
        new: list[tuple[str, str, str, str]] = []
        was_there = {name for name, old, _ in pairs if old}
        for name, old, issue in pairs:
            before, after = _read_edges(old), _read_edges(issue)
            self._remove_edges(name, before.keys() - after.keys())
            new += [(name, on, kind, theirs) for (on, kind), theirs in after.items() if (on, kind) not in before]
        new_edges = [(self.tasks[a], self.tasks[b], kind) for a, b, kind, _ in new if b in self.tasks]
        gate = Gate(self.db, self.actor.resource_id, new_edges)
        for name, on, kind, theirs in new:
            if on in self.tasks:
                self._admit(gate, name, on, kind, theirs, was_there=name in was_there)
            else:
                self._note(name, f"its {theirs} edge to {on} was skipped: that issue was not imported")

    def _remove_edges(self, name: str, edges: Collection[tuple[str, str]]) -> None:
        """Remove edges (target, type) of an issue to imported issues."""
        for on, kind in edges:
            if on in self.tasks:
                edge = (self.tasks[name], self.tasks[on], kind)
                if rows.remove_edge(self.db, *edge, count=False)[0]:
                    self._log_edge(edge, add=False)

    def _admit(self, gate: Gate, name: str, on: str, kind: str, their_type: str, *, was_there: bool) -> None:
        """Add an edge (`theirs`: its type in beads) unless it would break the graph."""
        edge = (self.tasks[name], self.tasks[on], kind)
        refused = gate.admit(edge)
        if refused is None:
            self.report.dependencies += self._put(edge, was_there=was_there)
            if their_type != kind:
                self._note(name, f"its {their_type} edge to {on} became {kind}")
        elif refused.cycle:
            self.report.cycles.append(list(refused.cycle))
        else:
            self._note(name, f"its {their_type} edge to {on} was skipped: {refused.reason}")

    def _note(self, name: str, note: str) -> None:
        self.report.notes.append((name, note))

    def _put(self, edge: tuple[str, str, str], *, was_there: bool) -> bool:
        task, on, kind = edge
        added = rows.add_edge(self.db, task, on, kind, self.actor.now, count=False)
        if added and was_there:  # undoing the import removes a new task with its edges
            self._log_edge(edge, add=True)
        return added

    def _log_edge(self, edge: tuple[str, str, str], *, add: bool) -> None:
        task = questions.get(self.db, edge[0])
        if task is not None:
            details: Json = {"on": edge[1], "type": edge[2], "add": add}
            rows.add_event(self.db, task, "dep", self.actor.name, self.actor.now, (None, details), batch=self.batch)


def _to_fields(issue: Json, now: int) -> Json:
    """Map an issue to the fields of a task."""
    status = str(issue.get("status") or "open")
    closed = status == "closed"
    created = _parse_time(issue.get("created_at"), now)
    priority = issue.get("priority")
    priority = 2 if priority is None else priority
    check_priority(priority)
    reason = _get_text(issue, "close_reason")
    return {
        "title": clean_title(issue.get("title")),
        "description": _join_description(issue),
        "status": status if status in STATUSES else "open",
        "priority": priority,
        "type": issue["issue_type"] if issue.get("issue_type") in TYPES else "task",
        "assignee": _get_text(issue, "assignee") or None,
        "close_reason": _to_close_reason(reason) if closed else None,
        "summary": reason or None,
        "created_at": created,
        "updated_at": _parse_time(issue.get("updated_at"), created),
        "closed_at": _parse_time(issue.get("closed_at"), created) if closed else None,
        "labels": tuple(clean_labels(_to_list(issue.get("labels")))),
    }


def _make_task(db: Database, actor: Actor, task_id: str, name: str, fields: Json) -> Task:
    free = len(name) <= 40 and not questions.has_handle(db, actor.resource_id, name)
    handle = name if free else make_handle(db, actor.resource_id, task_id)
    return Task(id=task_id, resource_id=actor.resource_id, handle=handle, **fields)


def _join_description(issue: Json) -> str:
    """Join an issue's texts, each under a heading, and its comments."""
    parts = [_get_text(issue, "description")]
    parts += [f"## {title}\n\n{text}" for key, title in _SECTIONS.items() if (text := _get_text(issue, key))]
    comments = [cast("Json", c) for c in _to_list(issue.get("comments")) if isinstance(c, dict)]
    if comments:
        comment_text = "\n".join(
            f"- {_get_text(c, 'author') or 'somebody'}, {_get_text(c, 'created_at')[:10]}: {_get_text(c, 'text')}"
            for c in comments
        )
        parts.append(f"## Comments\n\n{comment_text}")
    return "\n\n".join(p for p in parts if p)


def _list_notes(issue: Json) -> Iterable[str]:
    status, kind = issue.get("status") or "open", issue.get("issue_type") or "task"
    if status not in STATUSES:
        yield f"its status {quote(status)} became open" + (
            "; its edges say what blocks it" if status == "blocked" else ""
        )
    if kind not in TYPES:
        yield f"its type {quote(kind)} became task"


def _to_close_reason(text: str) -> str:
    lower = text.lower()
    if "duplicate" in lower:
        return "duplicate"
    return "wontfix" if any(word in lower for word in _NOT_DONE) else "completed"


def _read_edges(issue: Json) -> dict[tuple[str, str], str]:
    """Map an issue's edges: (other issue, our type) → beads' type."""
    out: dict[tuple[str, str], str] = {}
    for value in _to_list(issue.get("dependencies")):
        edge = cast("Json", value) if isinstance(value, dict) else {}
        kind = str(edge.get("type") or edge.get("dep_type") or BLOCKS)
        if on := _get_text(edge, "depends_on_id"):
            out.setdefault((on, kind if kind in EDGE_TYPES else RELATED), kind)
    return out


def _get_text(values: Json, key: str) -> str:
    value = values.get(key)
    return value.strip() if isinstance(value, str) else ""


def _to_list(value: Any) -> Sequence[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _parse_time(value: Any, default: int) -> int:
    """Parse an RFC 3339 time to Unix ms; `default` for anything else."""
    try:
        moment = datetime.datetime.fromisoformat(str(value))
    except ValueError:
        return default
    return max(0, int(moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp() * 1000))


def describe(report: Report) -> Json:
    """Convert the report to the output of `--json`."""
    pairs = {"skipped": report.skipped, "notes": report.notes}
    return to_builtins(report) | {name: [{"id": i, "reason": why} for i, why in ids] for name, ids in pairs.items()}
