"""Share what every change of a task needs: the actor, the claim check, the log, the edge checks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from sakti.core.errors import TaskError
from sakti.core.types import Json
from sakti.store.connection import Database
from sakti.store.tasks import graph as store_graph
from sakti.store.tasks import questions, rows
from sakti.store.tasks.questions import NAMES, Task
from sakti.tasks import graph as g
from sakti.tasks.describe import holder

CLAIM_MS = 60 * 60 * 1000  # a chat's claim ends an hour after its last sign of life
SHELL_CLAIM_MS = 24 * CLAIM_MS  # a shell gives none
REOPENED = {"status": "open", "closed_at": None, "close_reason": None, "summary": None, "claimed_at": None}
_NOT_LOGGED = ("updated_at", "holder_title", "state", "held", "open_children")


class CycleError(TaskError):
    """Error for an edge that would close a cycle; `path` are the ids `a, b, …, a` of the tasks on it."""

    code = "cycle"

    def __init__(self, message: str, path: Sequence[str]) -> None:
        super().__init__(message)
        self.path = tuple(path)


class Actor(Struct, frozen=True):
    """Actor of a change: who, where and when (Unix ms).

    `session_id` holds the claims: a chat by the id of its thread, a shell's actor (`shell:NAME`) or the user
    (`user:you`). `owner` is the process that runs the chat (host:pid:uuid): its claims end with it. A claim lasts
    `lease_ms`. `thread_id` is the thread, `name` is written to the log. `also` are other holders that this one may
    act for: the user, for the chat of the same window.
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


def refuse_held(actor: Actor, task: Task, doing: str, *, force: bool) -> None:
    """Raise TaskError (already_claimed), with the holder's name, if someone else works on the task."""
    if not force and rows.is_claim_live(task, actor.now) and not actor.is_holder(task):
        raise TaskError(
            f"{task.handle} is claimed by {holder(task)}. {doing} it anyway needs force.", code="already_claimed"
        )


# --- the log ----------------------------------------------------------------------------------------------


def difference(before: Task, after: Task) -> tuple[Json, Json]:
    """Return the fields that differ: as they were, as they are."""
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in NAMES if name not in _NOT_LOGGED}
    changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return {name: old for name, (old, _) in changed.items()}, {name: new for name, (_, new) in changed.items()}


def log(db: Database, actor: Actor, before: Task, after: Task, action: str, *, batch: str | None = None) -> None:
    """Log which fields an action changed."""
    rows.add_event(db, after, action, actor.name, actor.now, *difference(before, after), batch=batch)


def changed(db: Database, actor: Actor, task: Task, action: str, **values: Any) -> Task:
    """Change fields and log the change; a shrunk task gets its full text back first."""
    if rows.unshrink(db, task.id, actor.now):
        task = questions.get(db, task.id) or task  # so that undo brings the whole text back, not its beginning
    now, _ = rows.update(db, task.id, **values, updated_at=actor.now)
    log(db, actor, task, now, action)
    return now


# --- edges ------------------------------------------------------------------------------------------------


def connect(db: Database, actor: Actor, task: Task, target: Task, kind: str, *, count: bool = True) -> bool:
    """Add an edge; return False if it exists.

    Raises `CycleError`, or `TaskError` (bad_parent). `count` as in `edges.add`.
    """
    if task.id == target.id:
        what = "depend on itself" if kind == g.BLOCKS else "be a part of itself"
        what = what if kind in (g.BLOCKS, g.PARENT) else "be connected to itself"
        raise CycleError(f"{task.handle} cannot {what}.", (task.id, task.id))
    refuse_cycle(db, task.id, target.id, kind)
    if kind == g.PARENT:
        refuse_epic_in_task(db, task, target)
        if task.status != "closed":
            refuse_closed_parent(target)
    return rows.add_edge(db, task.id, target.id, kind, actor.now, count=count)


def refuse_epic_in_task(db: Database, child: Task, parent: Task) -> None:
    """Refuse an epic as the child of a task that is not one: the direction is mixed up.

    The advice in the message is only given where it can be followed. Raises `TaskError` (bad_parent).
    """
    if child.type == "epic" and parent.type != "epic":
        advice = ""
        is_open_for = child.status != "closed" or parent.status == "closed"
        if is_open_for and store_graph.find_deadlock(db, parent.id, child.id, g.PARENT) is None:
            command = f"`dep {parent.handle} {child.handle} --type {g.PARENT}`"
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
    """Refuse a change after which a closed epic, one of the tasks or a parent of one, has an open child.

    Raises `TaskError` (closed).
    """
    for epic in store_graph.find_epics_to_reopen(db, resource_id, task_ids)[:1]:
        children = store_graph.open_children(db, [epic])[epic]
        names = questions.handles(db, [epic, children[0]])
        raise TaskError(
            f"The epic {names[epic]} is closed, and {names[children[0]]} would be an open part of it;"
            f" `reopen {names[epic]}` opens it for more tasks.",
            code="closed",
        )


def reopen_epics(db: Database, actor: Actor, batch: str) -> list[Task]:
    """Reopen the closed epics of a workspace with an open child, as imports may bring them; return them."""
    out: list[Task] = []
    while epics := store_graph.find_epics_to_reopen(db, actor.resource_id):
        for epic in questions.get_many(db, epics).values():
            now, _ = rows.update(db, epic.id, **REOPENED, updated_at=actor.now)
            log(db, actor, epic, now, "reopen", batch=batch)
            out.append(now)
    return out


def refuse_new_epic_in_task(parent: Task) -> None:
    """Refuse to create an epic as the child of a task that is not one.

    It has no handle yet that the advice could use. Raises `TaskError` (bad_parent).
    """
    if parent.type != "epic":
        raise TaskError(
            f"An epic cannot be part of the {parent.type} {parent.handle}. Create it without a parent; then"
            f" `dep {parent.handle} EPIC --type {g.PARENT}` makes {parent.handle} a part of it.",
            code="bad_parent",
        )


def refuse_cycle(db: Database, task_id: str, on: str, kind: str) -> None:
    """Raise `CycleError` where an edge would make tasks wait for each other."""
    if kind in (g.BLOCKS, g.PARENT) and (cycle := store_graph.find_deadlock(db, task_id, on, kind)):
        raise CycleError(describe_cycle(db, cycle, (task_id, on) if kind == g.PARENT else None), cycle)


def describe_cycle(db: Database, cycle: Sequence[str], new: tuple[str, str] | None = None) -> str:
    """Describe a cycle: its path, and which steps are containers that end after their children.

    `new` is a child and its parent that are about to be connected.
    """
    names = questions.handles(db, cycle)
    parts = {*store_graph.parts_among(db, cycle), *([new] if new else ())}
    ends = [(a, b) for a, b in itertools.pairwise(cycle) if (b, a) in parts]
    text = f"That would create a cycle: {' → '.join(names[t] for t in cycle)}."
    return text + "".join(f" Close the child {names[b]} before {names[a]}." for a, b in ends[:3])


def undelete(db: Database, task_id: str) -> Task:
    """Undelete a task, unless it would close a cycle, or be an open part of a closed epic, by now."""
    task, _ = rows.update(db, task_id, deleted_at=None)
    if cycle := store_graph.find_deadlock_at(db, task.id):
        raise CycleError(describe_cycle(db, cycle), cycle)
    refuse_open_parts(db, task.resource_id, [task.id])
    return task


def list_freed(db: Database, moved: dict[str, bool]) -> tuple[Task, ...]:
    """Return the tasks that a change unblocks, of those whose state it changed."""
    ids = sorted(t for t, held in moved.items() if not held)
    return tuple(t for t in questions.get_many(db, ids).values() if t.status != "closed") if ids else ()


def new_handle(db: Database, resource_id: str, seed: str) -> str:
    """Make a handle of three or more characters, unique in the workspace."""
    source = random.Random(seed)
    for length in range(3, 12):
        for _ in range(4):
            handle = "t" + "".join(source.choice("23456789abcdefghjkmnpqrstuvwxyz") for _ in range(length))
            if not questions.has_handle(db, resource_id, handle):
                return handle
    raise TaskError("No free handle was found.", code="invalid")
