"""Tasks of beads (the `bd` tracker): from its `issues.jsonl`, the folder that holds it, or its SQLite database.

The issue as it was read is kept in the task's metadata, so an import can be repeated: only what changed in beads since
then changes here, and what was changed here stays. Beads' own words are mapped to ours: `blocked` is computed here, so
such an issue is open; an unknown type of issue becomes a task, an unknown edge `related`.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from sakti.core.errors import TaskError
from sakti.core.ids import Ids
from sakti.core.types import Json
from sakti.store import foreign, task_graph
from sakti.store import tasks as store
from sakti.store.connection import Database
from sakti.store.tasks import Task
from sakti.tasks import graph as g
from sakti.tasks import service
from sakti.tasks.transfer import parse

SOURCE = "beads"
NAMES = ("issues.jsonl", "beads.jsonl")  # newer and older versions of bd
_SECTIONS = {"design": "Design", "acceptance_criteria": "Acceptance criteria", "notes": "Notes"}
_NOT_DONE = ("wontfix", "won't", "wont fix", "not planned", "obsolete", "invalid", "cancel", "abandon")


@dataclass(slots=True)
class Report:
    """What an import did. `skipped` and `notes` pair the id of an issue with a sentence; `cycles` are edges that were
    left out, each as the whole path that it would have closed."""

    imported: int = 0
    updated: int = 0
    unchanged: int = 0
    dependencies: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    notes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    cycles: list[list[str]] = field(default_factory=list[list[str]])


class DryRun(Exception):
    """Carries the report out of a transaction that is to be rolled back."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


def read(path: Path) -> list[Json]:
    """The issues at `path`. Raises `TaskError`: "no_input" where there is nothing, "invalid" what cannot be read."""
    file = _find(path)
    if file.suffix in (".db", ".sqlite", ".sqlite3"):
        return foreign.beads_issues(file)
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise TaskError(f"{file} cannot be read: {e}.", code="invalid") from e
    try:
        return [line for line in parse(text.splitlines()) if line.get("_type", "issue") == "issue"]
    except TaskError as e:
        raise TaskError(f"{file}: {e.message} Nothing was imported.", code="invalid") from e


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


def bring_in(db: Database, actor: service.Actor, ids: Ids, issues: Iterable[Json], dry_run: bool = False) -> Report:
    """Add what is new and change what changed, in the caller's transaction. With `dry_run` raises `DryRun`."""
    report = Report()
    known = store.by_source(db, actor.resource_id, SOURCE)
    tasks: dict[str, str] = {}  # an issue's id → its task's, of all that are on the board
    edges: list[tuple[str, Json, Json]] = []
    for issue in issues:
        name = str(issue["id"])
        before = known.get(name)
        if before is not None and before.deleted:
            report.skipped.append((name, "it was deleted here; `sakti tasks restore` brings it back"))
        elif issue.get("status") == "tombstone" or issue.get("deleted_at"):
            report.skipped.append((name, "it was deleted in beads"))
        elif name in tasks:
            report.skipped.append((name, "it is there twice; the first one counts"))
        else:
            try:
                task_id = _bring_one(db, actor, ids, issue, before, report)
            except TaskError as e:
                report.skipped.append((name, e.message))
                continue
            tasks[name] = task_id
            edges.append((name, before.original if before is not None else {}, issue))
    for name, old, new in edges:
        _connect(db, actor, name, old, new, tasks, report)
    task_graph.refresh_all(db, actor.resource_id)
    if dry_run:
        raise DryRun(report)
    return report


def _bring_one(
    db: Database, actor: service.Actor, ids: Ids, issue: Json, before: store.Sourced | None, report: Report
) -> str:
    """Insert or update the task of an issue; returns its id. Raises `TaskError` for values that no task can have."""
    name = str(issue["id"])
    fields = _fields(issue, actor.now)
    if before is None:
        task = _task(db, actor, ids.new(), name, fields)
        store.insert(db, task)
        store.add_event(db, task, "import", actor.name, actor.now, None, dataclasses.asdict(task))
        report.imported += 1
    elif before.original == issue:
        report.unchanged += 1
        return before.task_id
    else:
        old = _fields(before.original, actor.now)
        changed = {k: v for k, v in fields.items() if v != old[k]}
        task = store.get(db, before.task_id)
        assert task is not None
        if changed:
            labels = changed.pop("labels", None)
            if changed.get("status", "in_progress") != "in_progress":
                changed |= {"session_id": None, "claimed_at": None, "claim_expires_at": None}
            if labels is not None:
                store.set_labels(db, task.id, labels)
            now, _ = store.update(db, task.id, **{"updated_at": actor.now, **changed})
            store.add_event(db, now, "update", actor.name, actor.now, dataclasses.asdict(task), dataclasses.asdict(now))
        report.updated += 1
    store.set_metadata(db, task.id, {"source": SOURCE, "source_id": name, "original": issue})
    report.notes += [(name, note) for note in _notes(issue)]
    return task.id


def _fields(issue: Json, now: int) -> Json:
    """What an issue says, in our words."""
    status = str(issue.get("status") or "open")
    closed = status == "closed"
    created = _time(issue.get("created_at"), now)
    priority = issue.get("priority")
    priority = 2 if priority is None else priority
    service.check_priority(priority)
    reason = _text(issue, "close_reason")
    return {
        "title": service.clean_title(issue.get("title")),
        "description": _description(issue),
        "status": status if status in service.STATUSES else "open",
        "priority": priority,
        "type": issue["issue_type"] if issue.get("issue_type") in service.TYPES else "task",
        "assignee": _text(issue, "assignee") or None,
        "close_reason": _reason(reason) if closed else None,
        "summary": reason or None,
        "created_at": created,
        "updated_at": _time(issue.get("updated_at"), created),
        "closed_at": _time(issue.get("closed_at"), created) if closed else None,
        "labels": tuple(service.clean_labels(_list(issue.get("labels")))),
    }


def _task(db: Database, actor: service.Actor, task_id: str, name: str, fields: Json) -> Task:
    free = len(name) <= 40 and not store.has_handle(db, actor.resource_id, name)
    return Task(
        id=task_id,
        resource_id=actor.resource_id,
        handle=name if free else service.new_handle(db, actor.resource_id, task_id),
        session_id=None,
        claimed_at=None,
        claim_expires_at=None,
        thread_id=None,
        **fields,
    )


def _description(issue: Json) -> str:
    """Its texts as one, with a heading each, and what was said about it."""
    parts = [_text(issue, "description")]
    parts += [f"## {title}\n\n{text}" for key, title in _SECTIONS.items() if (text := _text(issue, key))]
    comments = [cast("Json", c) for c in _list(issue.get("comments")) if isinstance(c, dict)]
    if comments:
        said = "\n".join(
            f"- {_text(c, 'author') or 'somebody'}, {_text(c, 'created_at')[:10]}: {_text(c, 'text')}" for c in comments
        )
        parts.append(f"## Comments\n\n{said}")
    return "\n\n".join(p for p in parts if p)


def _notes(issue: Json) -> Iterable[str]:
    status, kind = issue.get("status") or "open", issue.get("issue_type") or "task"
    if status not in service.STATUSES:
        yield f"its status {status!r} is open here" + ("; what blocks it are its edges" if status == "blocked" else "")
    if kind not in service.TYPES:
        yield f"its type {kind!r} is task here"


def _reason(text: str) -> str:
    lower = text.lower()
    if "duplicate" in lower:
        return "duplicate"
    return "wontfix" if any(word in lower for word in _NOT_DONE) else "completed"


def _edges(issue: Json) -> dict[tuple[str, str], str]:
    """Its edges as (other issue, our type) → beads' type."""
    out: dict[tuple[str, str], str] = {}
    for value in _list(issue.get("dependencies")):
        edge = cast("Json", value) if isinstance(value, dict) else {}
        kind = str(edge.get("type") or edge.get("dep_type") or g.BLOCKS)
        if on := _text(edge, "depends_on_id"):
            out.setdefault((on, kind if kind in g.EDGE_TYPES else g.RELATED), kind)
    return out


def _connect(
    db: Database, actor: service.Actor, name: str, old: Json, new: Json, tasks: dict[str, str], report: Report
) -> None:
    """Add the edges that an issue did not have before, take away those that it no longer has."""
    before, after = _edges(old), _edges(new)
    for on, kind in before.keys() - after.keys():
        if on in tasks:
            store.remove_edge(db, tasks[name], tasks[on], kind)
    for (on, kind), theirs in after.items():
        if (on, kind) in before:
            continue
        if on not in tasks:
            report.notes.append((name, f"its {theirs} edge to {on} was left out: that issue did not come in"))
        elif on == name:
            report.cycles.append([name, name])
        elif kind in (g.BLOCKS, g.PARENT) and (cycle := task_graph.find_cycle(db, tasks[name], tasks[on])):
            names = store.get_many(db, set(cycle))
            report.cycles.append([names[t].handle for t in cycle])
        else:
            report.dependencies += store.add_edge(db, tasks[name], tasks[on], kind, actor.now, count=False)
            if theirs != kind:
                report.notes.append((name, f"its {theirs} edge to {on} is {kind} here"))


def _text(values: Json, key: str) -> str:
    value = values.get(key)
    return value.strip() if isinstance(value, str) else ""


def _list(value: Any) -> Sequence[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _time(value: Any, default: int) -> int:
    """Unix ms of an RFC 3339 time."""
    try:
        moment = datetime.datetime.fromisoformat(str(value))
    except ValueError:
        return default
    return max(0, int(moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp() * 1000))


def describe(report: Report) -> Json:
    """The report as `--json` shows it."""
    pairs = {"skipped": report.skipped, "notes": report.notes}
    return dataclasses.asdict(report) | {
        name: [{"id": i, "reason": why} for i, why in found] for name, found in pairs.items()
    }
