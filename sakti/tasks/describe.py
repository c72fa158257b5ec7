"""Find a task by id, handle or prefix, and describe tasks for answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sakti.core.errors import TaskError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import quote
from sakti.store import files
from sakti.store.connection import Connection
from sakti.store.tasks import graph, questions
from sakti.store.tasks.questions import Task, TaskCard

if TYPE_CHECKING:
    from sakti.core.types import Json

_UUID = lazy_pattern(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def find(db: Connection, resource_id: str, text: str, *, deleted: bool = False) -> Task:
    """Return the task named by an id, a handle or an unambiguous prefix.

    Raises `TaskError`.
    """
    query = text.strip()
    matches = questions.find_matching(db, resource_id, query, deleted=deleted) if query else []
    if not matches:
        raise TaskError(f"There is no task {quote(text)}. `list` shows all tasks.", code="not_found")
    if len(matches) > 1:
        names = ", ".join(f"{t.handle} ({t.title[:40]})" for t in matches[:5])
        more = ", …" if len(matches) > 5 else ""
        raise TaskError(f"{quote(text)} could be {names}{more}. Write more characters.", code="ambiguous")
    return matches[0]


# --- claims -----------------------------------------------------------------------------------------------


def name_holder(task: Task | TaskCard) -> str:
    """Name the holder of a claim: a thread by its title, a shell by its actor's name, never by id."""
    who = task.session_id or ""
    if task.holder_title is not None:
        return f'the thread "{task.holder_title}"' if task.holder_title else "an untitled thread"
    if who == "user:you":
        return "the user"
    return "another thread" if _UUID.fullmatch(who) else who.removeprefix("shell:").removeprefix("user:")


def name_claimant(task: Task | TaskCard) -> str | None:
    """Name the holder for `--json` and cards: a thread's title, else `shell:NAME` or `user:you`."""
    if task.status != "in_progress" or task.session_id is None:
        return None
    if task.holder_title is not None:
        return task.holder_title or "untitled thread"
    return "another thread" if _UUID.fullmatch(task.session_id) else task.session_id


def is_abandoned(task: Task | TaskCard) -> bool:
    """Return whether the process that worked on the task has ended, so that others may claim it."""
    if task.status != "in_progress" or task.claim_owner is None:
        return False
    return not files.is_owner_running(task.claim_owner)


# --- descriptions -----------------------------------------------------------------------------------------


def describe(task: Task) -> Json:
    """Return a task in the form of tools and `--json`."""
    out: Json = {
        "id": task.id,
        "handle": task.handle,
        "title": task.title,
        "status": task.status,
        "priority": task.priority,
        "type": task.type,
    }
    optional = {
        "description": task.description,
        "assignee": task.assignee,
        "claimedBy": name_claimant(task),
        "claimEnded": is_abandoned(task),
        "close_reason": task.close_reason,
        "summary": task.summary,
        "labels": list(task.labels),
        "metadata": task.metadata,
    }
    return out | {k: v for k, v in optional.items() if v}


def describe_all(db: Connection, tasks: Sequence[Task]) -> list[Json]:
    """Return tasks with their obstacles: `blockedBy` (handles), `waitsForChildren` (number)."""
    why = describe_blockers(db, [t.id for t in tasks if t.held and t.status != "closed"])
    out: list[Json] = []
    for task in tasks:
        marks: Json = {"blockedBy": list(why[task.id])} if task.id in why else {}
        if task.open_children and task.status != "closed":
            marks["waitsForChildren"] = task.open_children
        out.append(describe(task) | marks)
    return out


WAITING = 100  # most urgent waiting tasks of each state that pass on their priority
WALKED = 300  # most tasks visited for this


class Urgency(Struct, frozen=True):
    """Priority of the most urgent task that waits for another one, and its id."""

    priority: int
    waiting: str


def find_urgent(db: Connection, resource_id: str, priority: int = 4) -> dict[str, Urgency]:
    """Return the ready tasks that a more urgent task, of at least this priority, waits for."""
    reached = graph.find_waited_for(db, questions.list_waiting(db, resource_id, priority, WAITING), WALKED)
    priorities = questions.map_ready_priorities(db, reached) if reached else {}
    return {task: Urgency(*reached[task]) for task, p in priorities.items() if reached[task][0] < p}


def describe_blockers(db: Connection, task_ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return each task's blockers by handle: `X`, or `X (via EPIC)` if an ancestor waits for X."""
    roots = list(task_ids)
    blockers = graph.find_reasons(db, roots) if roots else {}
    if not blockers:
        return {}
    names = questions.map_handles(db, {t for pairs in blockers.values() for pair in pairs for t in pair})

    def name(root: str, via: str, by: str) -> str:
        return names[by] if via == root else f"{names[by]} (via {names[via]})"

    return {root: tuple(name(root, *pair) for pair in pairs) for root, pairs in blockers.items()}


def list_blocker_titles(db: Connection, task_ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the titles of each task's blockers, including those of its ancestors."""
    roots = list(task_ids)
    blockers = graph.find_reasons(db, roots) if roots else {}
    titles = questions.map_titles(db, {by for pairs in blockers.values() for _, by in pairs}) if blockers else {}
    return {root: tuple(dict.fromkeys(titles[by] for _, by in pairs)) for root, pairs in blockers.items()}
