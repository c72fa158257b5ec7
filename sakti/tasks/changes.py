"""Share helpers of all task changes: valid values, actor, claim, edge checks, log and undo.

Errors are TaskErrors with a code. An undo goes through the log, newest first, and only restores the fields that a
change touched.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Sequence
from typing import Any, cast

from msgspec import Struct

from sakti.core.errors import TaskError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import show_value
from sakti.core.types import Json
from sakti.store.connection import Database
from sakti.store.tasks import graph as store_graph
from sakti.store.tasks import questions, rows
from sakti.store.tasks.deadlocks import BLOCKS, PARENT
from sakti.store.tasks.questions import Task
from sakti.store.tasks.rows import SOURCE_KEYS, TaskEvent
from sakti.store.text_registry import mask_for_storage
from sakti.tasks.describe import name_holder

CLAIM_MS = 60 * 60 * 1000  # a chat renews its claim; it expires an hour after the last renewal
SHELL_CLAIM_MS = 24 * CLAIM_MS  # a shell never renews its claim
REOPENED = {"status": "open", "closed_at": None, "close_reason": None, "summary": None, "claimed_at": None}
NO_CLAIM = dict.fromkeys(("session_id", "claim_owner", "claimed_at", "claim_expires_at"))

# Uses of each task field, except computed ones. export: included in JSON Lines; compare: distinguishes versions of a
# task; update: settable by a command; log: recorded in the change log; undo: restored by an undo.
FIELD_USES = {
    "id": "export log",
    "resource_id": "log",
    "handle": "export log",
    "title": "export compare update log undo",
    "description": "export compare update log undo",
    "status": "export compare log undo",
    "priority": "export compare update log undo",
    "type": "export compare update log undo",
    "assignee": "export compare update log undo",
    "session_id": "log undo",
    "claimed_at": "log undo",
    "claim_expires_at": "log undo",
    "thread_id": "log undo",
    "close_reason": "export compare log undo",
    "summary": "export compare log undo",
    "created_at": "export log",
    "updated_at": "export",
    "closed_at": "export log undo",
    "compaction_level": "log",
    "labels": "compare update log undo",
    "claim_owner": "log undo",
    "metadata": "compare update log undo",
}
EXPORTED, COMPARED, UPDATABLE, _LOGGED, _RESTORED = (
    tuple(name for name, uses in FIELD_USES.items() if use in uses.split())
    for use in ("export", "compare", "update", "log", "undo")
)
UNDOABLE = ("create", "update", "claim", "takeover", "release", "close", "reopen", "dep", "link", "delete", "restore",
            "import")  # fmt: skip
STATUSES, TYPES = ("open", "in_progress", "closed"), ("bug", "feature", "task", "epic", "chore")
REASONS = ("completed", "wontfix", "duplicate")
METADATA_LIMIT = 10_000  # characters of its JSON
_BAD = lazy_pattern("[\x00\ud800-\udfff]")


class CycleError(TaskError):
    """Error for an edge that would close a cycle; `path` are the ids `a, b, …, a` of its tasks."""

    code = "cycle"

    def __init__(self, message: str, path: Sequence[str]) -> None:
        super().__init__(message)
        self.path = tuple(path)


class Actor(Struct, frozen=True):
    """Actor of a change: who, where and when (Unix ms).

    `session_id` owns the claims: the thread id of a chat, `shell:NAME` for a shell, or `user:you`. `owner` is the
    process of the chat (host:pid:name): its claims end with it. A claim lasts `lease_ms`. `thread_id` is the thread,
    `name` is written to the log. `also` are other holders that this actor may act for: the user, for the chat in the
    same window.
    """

    resource_id: str
    session_id: str
    now: int
    thread_id: str | None = None
    name: str = "agent"
    lease_ms: int = CLAIM_MS
    owner: str | None = None
    also: tuple[str, ...] = ()

    def is_holder(self, task: Task) -> bool:
        return task.session_id in (self.session_id, *self.also)


def check_claim(actor: Actor, task: Task, verb: str, *, force: bool) -> None:
    """Raise TaskError (already_claimed), with the holder's name, if someone else works on the task.

    `verb` names the change that was requested.
    """
    if not force and rows.is_claim_live(task, actor.now) and not actor.is_holder(task):
        raise TaskError(
            f"{task.handle} is claimed by {name_holder(task)}. Use force to {verb} it anyway.", code="already_claimed"
        )


# --- the log ----------------------------------------------------------------------------------------------


def find_difference(before: Task, after: Task) -> tuple[Json, Json]:
    """Return the fields that differ, with their values before and after."""
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in _LOGGED}
    changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return {name: old for name, (old, _) in changed.items()}, {name: new for name, (_, new) in changed.items()}


def log(db: Database, actor: Actor, before: Task, after: Task, action: str, *, batch: str | None = None) -> None:
    """Log the fields changed by an action."""
    rows.add_event(db, after, action, actor.name, actor.now, find_difference(before, after), batch=batch)


def apply_change(db: Database, actor: Actor, task: Task, action: str, **values: Any) -> Task:
    """Change fields and log the change; a shrunk task gets its full text back first."""
    if rows.unshrink(db, task.id, actor.now):
        task = questions.get(db, task.id) or task  # so that undo restores the complete text
    now, _ = rows.update(db, task.id, **values, updated_at=actor.now)
    log(db, actor, task, now, action)
    return now


# --- edges ------------------------------------------------------------------------------------------------


def connect(db: Database, actor: Actor, task: Task, target: Task, kind: str, *, count: bool = True) -> bool:
    """Add an edge; return False if it exists.

    Raises `CycleError`, or `TaskError` (bad_parent). `count`: see `edges.add`.
    """
    if task.id == target.id:
        what = "depend on itself" if kind == BLOCKS else "be a part of itself"
        what = what if kind in (BLOCKS, PARENT) else "be connected to itself"
        raise CycleError(f"{task.handle} cannot {what}.", (task.id, task.id))
    refuse_cycle(db, task.id, target.id, kind)
    if kind == PARENT:
        refuse_epic_in_task(db, task, target)
        if task.status != "closed":
            refuse_closed_parent(target)
    return rows.add_edge(db, task.id, target.id, kind, actor.now, count=count)


def refuse_epic_in_task(db: Database, child: Task, parent: Task) -> None:
    """Refuse an epic as the child of a task that is not one: the direction is probably wrong.

    The message advises the opposite edge if that is possible. Raises `TaskError` (bad_parent).
    """
    if child.type == "epic" and parent.type != "epic":
        advice = ""
        is_open_for = child.status != "closed" or parent.status == "closed"
        if is_open_for and store_graph.find_deadlock(db, parent.id, child.id, PARENT) is None:
            command = f"`dep {parent.handle} {child.handle} --type {PARENT}`"
            advice = f" The other way round: {command} makes {parent.handle} a part of the epic."
        raise TaskError(
            f"{child.handle} is an epic and cannot be part of the {parent.type} {parent.handle}.{advice}",
            code="bad_parent",
        )


def refuse_closed_parent(parent: Task) -> None:
    """Refuse an open child of a closed epic. Raises `TaskError` (closed)."""
    if parent.type == "epic" and parent.status == "closed":
        raise TaskError(
            f"The epic {parent.handle} is closed; `reopen {parent.handle}` opens it for more tasks.", code="closed"
        )


def refuse_open_parts(db: Database, resource_id: str, task_ids: Iterable[str]) -> None:
    """Refuse a change that would give a closed epic an open child.

    The epic is one of the tasks or a parent of one. Raises `TaskError` (closed).
    """
    for epic in store_graph.find_epics_to_reopen(db, resource_id, task_ids)[:1]:
        children = store_graph.list_open_children(db, [epic])[epic]
        names = questions.map_handles(db, [epic, children[0]])
        raise TaskError(
            f"The epic {names[epic]} is closed, and {names[children[0]]} would be an open part of it;"
            f" `reopen {names[epic]}` opens it for more tasks.",
            code="closed",
        )


def reopen_epics(db: Database, actor: Actor, batch: str) -> list[Task]:
    """Reopen closed epics of a workspace that got an open child from an import; return them."""
    out: list[Task] = []
    while epics := store_graph.find_epics_to_reopen(db, actor.resource_id):
        for epic in questions.get_many(db, epics).values():
            now, _ = rows.update(db, epic.id, **REOPENED, updated_at=actor.now)
            log(db, actor, epic, now, "reopen", batch=batch)
            out.append(now)
    return out


def refuse_new_epic_in_task(parent: Task) -> None:
    """Refuse to create an epic as the child of a task that is not one.

    The advice cannot name it, as it has no handle yet. Raises `TaskError` (bad_parent).
    """
    if parent.type != "epic":
        raise TaskError(
            f"An epic cannot be part of the {parent.type} {parent.handle}. Create it without a parent; then"
            f" `dep {parent.handle} EPIC --type {PARENT}` makes {parent.handle} a part of it.",
            code="bad_parent",
        )


def refuse_cycle(db: Database, task_id: str, on: str, kind: str) -> None:
    """Raise `CycleError` if an edge would make tasks wait for each other."""
    if kind in (BLOCKS, PARENT) and (cycle := store_graph.find_deadlock(db, task_id, on, kind)):
        raise CycleError(describe_cycle(db, cycle, (task_id, on) if kind == PARENT else None), cycle)


def describe_cycle(db: Database, cycle: Sequence[str], new: tuple[str, str] | None = None) -> str:
    """Describe a cycle: its path, and the steps that are containers waiting for their children.

    `new` is a child and its parent that are about to be connected.
    """
    names = questions.map_handles(db, cycle)
    parts = {*store_graph.list_parts_among(db, cycle), *([new] if new else ())}
    ends = [(a, b) for a, b in itertools.pairwise(cycle) if (b, a) in parts]
    text = f"That would create a cycle: {' → '.join(names[t] for t in cycle)}."
    return text + "".join(f" Close the child {names[b]} before {names[a]}." for a, b in ends[:3])


def undelete(db: Database, task_id: str) -> Task:
    """Undelete a task, unless it would now close a cycle, or be an open part of a closed epic."""
    task, _ = rows.update(db, task_id, deleted_at=None)
    if cycle := store_graph.find_deadlock_at(db, task.id):
        raise CycleError(describe_cycle(db, cycle), cycle)
    refuse_open_parts(db, task.resource_id, [task.id])
    return task


def list_freed(db: Database, moved: dict[str, bool]) -> tuple[Task, ...]:
    """Return the tasks unblocked by a change, from those whose state it changed."""
    ids = sorted(t for t, held in moved.items() if not held)
    return tuple(t for t in questions.get_many(db, ids).values() if t.status != "closed") if ids else ()


def make_handle(db: Database, resource_id: str, seed: str) -> str:
    """Make a handle of three or more characters, unique in the workspace."""
    source = random.Random(seed)
    for length in range(3, 12):
        for _ in range(4):
            handle = "t" + "".join(source.choice("23456789abcdefghjkmnpqrstuvwxyz") for _ in range(length))
            if not questions.has_handle(db, resource_id, handle):
                return handle
    raise TaskError("No free handle was found.", code="invalid")


def undo_changes(db: Database, actor: Actor, count: int = 1) -> list[tuple[str, Task]]:
    """Undo the last `count` changes of the workspace; return them as (action, task).

    An import is one change, and so is an epic closed with its parts. A change that no longer has any effect (the
    deletion of a task that was restored since) is skipped. Raises `TaskError`: nothing_to_undo, or the rule that the
    previous state would break.
    """
    out: list[tuple[str, Task]] = []
    while count and (newest := rows.list_newest_events(db, actor.resource_id, UNDOABLE, 1)):
        event = newest[0]
        done = _undo_event(db, actor, event)
        rows.mark_events_undone(db, event, actor.now)
        if done:
            details: Json = {"event": event.pk, "action": event.action, "tasks": len(done)}
            rows.add_event(db, done[0][1], "undo", actor.name, actor.now, (None, details))
            out += done
            count -= 1
    if not out:
        raise TaskError("There is nothing to undo.", code="nothing_to_undo")
    return out


def _undo_event(db: Database, actor: Actor, event: TaskEvent) -> list[tuple[str, Task]]:
    if event.batch is None:
        task = _undo_one(db, actor, event)
        done = [] if task is None else [(event.action, task)]
        refuse_open_parts(db, actor.resource_id, [task.id for _, task in done])
        return done
    return _undo_batch(db, actor, event.batch, "close" if event.action == "close" else "import")


def _undo_batch(db: Database, actor: Actor, batch: str, action: str) -> list[tuple[str, Task]]:
    """Undo changes that were made together; imported tasks are deleted."""
    group = rows.list_events_of_batch(db, batch)
    undone = [_undo_one(db, actor, e) for e in group if e.action != "import"]
    changed_tasks = [task for task in undone if task is not None]
    imported = questions.get_many(db, [e.task_id for e in group if e.action == "import"])
    rows.delete_many(db, actor.resource_id, list(imported), actor.now)
    refuse_open_parts(db, actor.resource_id, [task.id for task in changed_tasks])
    return [(action, task) for task in changed_tasks] + [("import", task) for task in imported.values()]


def _undo_one(db: Database, actor: Actor, event: TaskEvent) -> Task | None:
    """Undo one change; None if nothing changes."""
    values, task_id = event.after or {}, event.task_id
    task = questions.get(db, task_id)
    match event.action:
        case "delete":
            return undelete(db, task_id) if task is None else None
        case _ if task is None:
            return None  # it was deleted later by something that cannot be undone first
        case "create" | "import":
            return rows.update(db, task_id, deleted_at=actor.now)[0]
        case "restore":
            return _undo_restore(db, actor, task, event.before or {})
        case "dep":
            return _undo_edge(db, actor, task, values)
        case "link":
            return task if rows.remove_link(db, task_id, values["message"]) else None
        case _:
            return _restore_fields(db, actor, task, event.before or {}, values)


def _undo_edge(db: Database, actor: Actor, task: Task, values: Json) -> Task | None:
    """Remove an added edge, or add a removed one again."""
    on, kind = values["on"], values["type"]
    if values["add"]:
        return task if rows.remove_edge(db, task.id, on, kind)[0] else None
    if not questions.exists(db, on):
        return None  # it was purged
    if questions.get(db, on) is not None:
        refuse_cycle(db, task.id, on, kind)
    return task if rows.add_edge(db, task.id, on, kind, actor.now) else None


def _undo_restore(db: Database, actor: Actor, task: Task, before: Json) -> Task | None:
    """Undo the restoring of a deleted task or of a shrunk one's text."""
    if before.get("deleted"):
        return rows.update(db, task.id, deleted_at=actor.now)[0]
    if "compaction_level" not in before or task.compaction_level:
        return None
    text, summary = before.get("description", task.description), before.get("summary", task.summary)
    rows.shrink(db, task, before["compaction_level"], text, summary, actor.now)
    return questions.get(db, task.id)


def _restore_fields(db: Database, actor: Actor, task: Task, before: Json, after: Json) -> Task | None:
    """Restore the fields that a change touched; later changes of other fields stay."""
    changes = {k: v for k, v in before.items() if k in _RESTORED and (k not in after or after[k] != v)}
    labels, metadata = changes.pop("labels", None), changes.pop("metadata", None)
    if labels is None and metadata is None and not changes:
        return None
    if labels is not None:
        rows.set_labels(db, task.id, labels)
    if metadata is not None:
        rows.set_metadata(db, task.id, metadata)
    rows.unshrink(db, task.id, actor.now)
    return rows.update(db, task.id, **changes, updated_at=actor.now)[0]


def check_text(name: str, value: Any) -> None:
    """Refuse text that cannot be stored, anywhere in a value."""
    if isinstance(value, str):
        if match := _BAD.search(value):
            what = "a NUL character" if match[0] == "\x00" else "half of a surrogate pair"
            raise TaskError(f"{name} has {what} at position {match.start()}; remove it.", code="bad_text")
    elif isinstance(value, dict):
        for key, each in cast("dict[Any, Any]", value).items():
            check_text(name, key)
            check_text(f"{name}.{key}", each)
    elif isinstance(value, list | tuple):
        for each in cast("list[Any]", value):
            check_text(name, each)


def clean_title(value: Any) -> str:
    """Return a title as stored: one line of 1 to 500 characters, without secrets."""
    title = " ".join(str(value or "").split())
    if not title:
        raise TaskError("A task needs a title.", code="empty_title")
    if len(title) > 500:
        raise TaskError(f"The title has {len(title)} characters; at most 500.", code="title_too_long")
    check_text("title", title)
    return mask_for_storage("tasks", "title", title)


def check_priority(priority: Any) -> None:
    """Refuse a priority that is not 0 to 4."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 4:
        raise TaskError(f"Priority {priority} is not 0 (most urgent) to 4.", code="bad_priority")


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuse a value that is not in `allowed`."""
    if value not in allowed:
        raise TaskError(f"{name} must be one of {', '.join(allowed)}, not {show_value(value)}.", code=f"bad_{name}")


def clean_labels(values: Sequence[Any]) -> list[str]:
    """Return the labels on one line each, sorted, without duplicates."""
    check_text("labels", list(values))
    return sorted({label for v in values if (label := " ".join(str(v).split())[:60])})


def merge_metadata(before: Json, changes: Any) -> Json:
    """Return metadata with `changes` in it; a value of None removes its key."""
    if not isinstance(changes, dict):
        raise TaskError("metadata must be an object of keys and values.", code="invalid")
    new = cast("Json", changes)
    check_text("metadata", new)
    if taken := sorted(set(new) & set(SOURCE_KEYS)):
        raise TaskError(f"metadata.{taken[0]} is reserved for imports; choose another key.", code="invalid")
    merged = {k: v for k, v in {**before, **new}.items() if v is not None}
    size = len(json.dumps(merged, ensure_ascii=False))
    if size > METADATA_LIMIT:
        raise TaskError(f"metadata has {size:,} characters; at most {METADATA_LIMIT:,}.", code="invalid")
    return merged
