"""Build the board: ready, blocked, in progress, closed today, with blockers and holders."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from sakti.store.connection import Connection
from sakti.store.tasks import graph, questions
from sakti.store.tasks.questions import TaskCard
from sakti.tasks.describe import Urgency, claimed_by, find_urgent, is_abandoned, reasons

COLUMN_LIMIT = 100  # cards of a column that are read; its title counts all
CONTAINER_LIMIT = 50  # they stand below what is blocked


class BoardTask(Struct, frozen=True):
    """Row of the board. `held_by` names the holder; `since`: start of work or closing time (Unix ms).

    `blocked_by` names own blockers by handle, inherited ones as "X (via EPIC)"; `waits_for_children` counts the open
    ones. `abandoned`: the process that worked on it has ended; `urgent_for` names
    a more urgent task that waits for it, as `P0 t4k`.
    """

    id: str
    handle: str
    title: str
    priority: int
    type: str
    assignee: str | None
    blocked_by: tuple[str, ...] = ()
    held_by: str | None = None
    since: int | None = None
    ready_to_close: bool = False
    waits_for_children: int = 0
    abandoned: bool = False
    urgent_for: str = ""


class Board(Struct, frozen=True):
    """Columns of the board.

    `counts` are those of all tasks: ready, blocked, in progress, closed today; None where the columns hold all of
    them. `containers` are open, unblocked tasks that end after their open children.
    """

    ready: tuple[BoardTask, ...] = ()
    blocked: tuple[BoardTask, ...] = ()
    in_progress: tuple[BoardTask, ...] = ()
    closed_today: tuple[BoardTask, ...] = ()
    counts: tuple[int, int, int, int] | None = None
    containers: tuple[BoardTask, ...] = ()
    container_count: int = 0


def board(db: Connection, resource_id: str, midnight: int, limit: int = COLUMN_LIMIT) -> Board:
    """Return the board; `midnight` (Unix ms) is when today began. At most `limit` cards a column."""
    ready, blocked, working = (
        questions.cards(db, resource_id, state, limit) for state in ("ready", "blocked", "in_progress")
    )
    urgent = find_urgent(db, resource_id)
    names = questions.handles(db, {u.waiting for u in urgent.values()}) if urgent else {}
    if urgent:
        stored = questions.row_order(db, [t.id for t in ready])
        ready.sort(key=lambda t: (urgent[t.id].priority if t.id in urgent else t.priority, t.created_at, stored[t.id]))
    containers = questions.cards(db, resource_id, "container", min(limit, CONTAINER_LIMIT))
    closed, closed_count = questions.closed_since(db, resource_id, midnight, limit)
    why = reasons(db, [t.id for t in (*blocked, *working) if t.held])
    finished = graph.containers(db, [t.id for t in ready])
    counts = questions.counts(db, resource_id)

    def drawn(cards: list[TaskCard]) -> tuple[BoardTask, ...]:
        return tuple(
            _card(t, why.get(t.id, ()), _describe(urgent.get(t.id), names), ready_to_close=t.id in finished)
            for t in cards
        )

    return Board(
        ready=drawn(ready),
        blocked=drawn(blocked),
        in_progress=drawn(working),
        closed_today=drawn(closed),
        counts=(counts["ready"], counts["blocked"], counts["in_progress"], closed_count),
        containers=drawn(containers),
        container_count=counts["container"],
    )


def _describe(urgency: Urgency | None, names: Mapping[str, str]) -> str:
    return f"P{urgency.priority} {names[urgency.waiting]}" if urgency else ""


def _card(task: TaskCard, blocked_by: tuple[str, ...], urgent_for: str, *, ready_to_close: bool) -> BoardTask:
    return BoardTask(
        id=task.id,
        handle=task.handle,
        title=task.title,
        priority=task.priority,
        type=task.type,
        assignee=task.assignee,
        blocked_by=blocked_by,
        held_by=claimed_by(task) if task.session_id is not None else None,
        since=task.closed_at if task.status == "closed" else task.claimed_at,
        ready_to_close=ready_to_close,
        waits_for_children=0 if task.status == "closed" else task.open_children,
        urgent_for=urgent_for,
        abandoned=task.claim_owner is not None and is_abandoned(task),
    )
