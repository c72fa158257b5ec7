"""Tasks as JSON Lines: one object a task, with its labels, its edges and the ids of its messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from sakti.core.errors import TaskError
from sakti.core.types import Json
from sakti.store import messages as message_store
from sakti.store import task_graph
from sakti.store import tasks as store
from sakti.store.connection import Database
from sakti.store.tasks import Task
from sakti.tasks import graph as g
from sakti.tasks import service

_FIELDS = (
    "id",
    "handle",
    "title",
    "description",
    "status",
    "priority",
    "type",
    "assignee",
    "close_reason",
    "summary",
    "created_at",
    "updated_at",
    "closed_at",
)


@dataclass(frozen=True, slots=True)
class Imported:
    """How many tasks and edges came in, and how many tasks were there already (they stay as they are)."""

    tasks: int
    dependencies: int
    known: int


def export(db: Database, resource_id: str) -> list[Json]:
    """Every task of the workspace, the oldest first, with its whole text. Claims belong to a session and stay here."""
    rows = list(store.rows_of(db, resource_id))
    edges: dict[str, list[Json]] = {}
    for task, on, kind in store.edges(db, resource_id):
        edges.setdefault(task, []).append({"on": on, "type": kind})
    out: list[Json] = []
    for task, original in rows:
        line: Json = {f: getattr(task, f) for f in _FIELDS} | (json.loads(original) if original else {})
        if line["status"] == "in_progress":
            line["status"] = "open"
        line["labels"] = list(task.labels)
        line["dependencies"] = edges.get(task.id, [])
        line["messages"] = [m["id"] for m in store.linked_messages(db, task.id, limit=100_000)]
        out.append({k: v for k, v in line.items() if v not in (None, "", [])})
    return out


def parse(lines: Iterable[Json | str]) -> Iterator[Json]:
    """The objects of a JSON Lines text. Raises `TaskError` with the number of a line that is none."""
    for number, line in enumerate(lines, 1):
        if isinstance(line, str) and not line.strip():
            continue
        try:
            value: Any = json.loads(line) if isinstance(line, str) else line
        except ValueError as e:
            raise TaskError(f"Line {number} is not JSON: {e}.", code="invalid") from e
        if not isinstance(value, dict) or not cast("Json", value).get("id"):
            raise TaskError(f"Line {number} is not a task with an id.", code="invalid")
        yield cast("Json", value)


def bring_in(db: Database, actor: service.Actor, lines: Iterable[Json | str]) -> Imported:
    """Add what is not there yet, from the lines of an export or their objects: all of it or, where a value or a cycle
    is refused, nothing."""
    made: list[tuple[Task, Json]] = []
    known = 0
    for line in parse(lines):
        if store.exists(db, str(line["id"])):
            known += 1
            continue
        task = _task(db, actor, line)
        store.insert(db, task)
        made.append((task, line))
    edges = 0
    for task, line in made:
        for edge in line.get("dependencies") or ():
            kind, on = str(edge.get("type", g.BLOCKS)), str(edge.get("on", ""))
            target = store.get(db, on)
            if kind not in g.EDGE_TYPES or target is None or target.resource_id != actor.resource_id:
                raise TaskError(f"{task.title[:60]!r} has an edge {kind!r} to {on!r}, which is none.", code="invalid")
            edges += store.add_edge(db, task.id, on, kind, actor.now, count=False)
        for message in line.get("messages") or ():
            if message_store.get(db, str(message)) is not None:
                store.link(db, task.id, str(message), "reference", actor.now)
    cycle = g.any_cycle(g.Edge(*e) for e in store.edges(db, actor.resource_id))
    if cycle:
        names = store.get_many(db, set(cycle))
        raise TaskError(f"That would be a cycle: {' → '.join(names[t].handle for t in cycle)}.", code="cycle")
    task_graph.refresh_all(db, actor.resource_id)
    for task, _ in made:
        store.add_event(db, task, "import", actor.name, actor.now, None, None)
    return Imported(len(made), edges, known)


def _task(db: Database, actor: service.Actor, line: Json) -> Task:
    status = str(line.get("status", "open"))
    status = "open" if status == "in_progress" else status
    title = service.clean_title(line.get("title"))
    kind = line.get("type", "task")
    service.check("status", status, ("open", "closed"))
    service.check("type", kind, service.TYPES)
    service.check_priority(line.get("priority", 2))
    closed = status == "closed"
    reason = line.get("close_reason") if closed else None
    if reason is not None:
        service.check("close_reason", reason, service.REASONS)
    created = _time(line, "created_at", actor.now)
    wanted = str(line.get("handle") or "")
    free = wanted and len(wanted) <= 40 and not store.has_handle(db, actor.resource_id, wanted)
    return Task(
        id=str(line["id"]),
        resource_id=actor.resource_id,
        handle=wanted if free else service.new_handle(db, actor.resource_id, str(line["id"])),
        title=title,
        description=str(line.get("description") or ""),
        status=status,
        priority=line.get("priority", 2),
        type=kind,
        assignee=str(line["assignee"]) if line.get("assignee") else None,
        session_id=None,
        claimed_at=None,
        claim_expires_at=None,
        thread_id=None,
        close_reason=reason,
        summary=str(line["summary"]) if line.get("summary") else None,
        created_at=created,
        updated_at=_time(line, "updated_at", created),
        closed_at=_time(line, "closed_at", actor.now) if closed else None,
        labels=tuple(service.clean_labels(line.get("labels") or ())),
    )


def _time(line: Json, name: str, default: int) -> int:
    value = line.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
