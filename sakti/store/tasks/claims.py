"""Claim tasks, across chats, shells and processes.

The holder of a claim is a thread, a shell's actor or the user (`session_id`). A thread's claim also has an owner, the
process that runs the thread: when that process ends the claim is free at once, but the thread still has it when it is
opened again. A claim without an owner, or of another machine, lasts until its lease ends.

`active` is raw SQL: it runs with every message.
"""

from __future__ import annotations

from peewee import Case, fn

from sakti.store import leases
from sakti.store.connection import Database
from sakti.store.models import TaskRow
from sakti.store.tasks.row import Task

CLOSED, IN_PROGRESS, OPEN = "closed", "in_progress", "open"


def is_live(task: Task, now: int) -> bool:
    """Return whether the claim's lease and its owner, if any, are alive."""
    if task.status != IN_PROGRESS or task.session_id is None:
        return False
    if task.claim_expires_at is None or task.claim_expires_at < now:
        return False
    return task.claim_owner is None or leases.alive(task.claim_owner)


def claim(
    db: Database, task: Task, holder: str, owner: str | None, thread_id: str | None, now: int, expires: int
) -> bool:
    """Claim by one conditional UPDATE; return whether the holder has the task afterwards."""
    row = TaskRow
    mine = (row.session_id == holder) & (row.status == IN_PROGRESS)
    free = row.session_id.is_null() | (row.session_id == holder) | (row.status == OPEN)
    free |= row.claim_expires_at.is_null() | (row.claim_expires_at < now)
    if task.claim_owner is not None and not leases.alive(task.claim_owner):
        free |= row.claim_owner == task.claim_owner
    claimed = (
        row.update(
            status=IN_PROGRESS,
            session_id=holder,
            claim_owner=owner,
            thread_id=fn.COALESCE(thread_id, row.thread_id),
            claimed_at=Case(None, [(mine, row.claimed_at)], now),
            claim_expires_at=expires,
            updated_at=now,
        )
        .where(row.id == task.id, row.deleted_at.is_null(), row.status != CLOSED, row.held == 0, free)
        .execute(db)
    )
    return claimed == 1


def active(db: Database, thread_id: str, holder: str, owner: str | None = None) -> str | None:
    """Return the thread's active task: claimed by this holder and in progress; else None.

    It runs with every message, so it is one statement in SQL. A new process of the thread becomes the claim's owner.
    """
    row = db.execute_sql(
        "SELECT t.id, t.claim_owner FROM threads th CROSS JOIN tasks t"
        " ON t.id = json_extract(th.metadata, '$.active_task_id') WHERE th.id = ? AND t.status = 'in_progress'"
        " AND t.session_id = ? AND t.deleted_at IS NULL",
        (thread_id, holder),
    ).fetchone()
    if row is None:
        return None
    task_id, before = row
    if owner is not None and owner != before:
        TaskRow.update(claim_owner=owner).where(TaskRow.id == task_id).execute(db)
    return task_id


def latest(db: Database, resource_id: str, holder: str) -> str | None:
    """Return the task that the holder claimed last and still has in progress."""
    mine = (TaskRow.resource_id == resource_id) & (TaskRow.session_id == holder)
    mine &= (TaskRow.status == IN_PROGRESS) & TaskRow.deleted_at.is_null()
    query = TaskRow.select(TaskRow.id).where(mine).order_by(TaskRow.claimed_at.desc(), TaskRow.pk.desc())
    row = query.limit(1).tuples().get_or_none(db)
    return None if row is None else row[0]


def orphans(db: Database, resource_id: str, holder: str) -> list[str]:
    """Return the tasks held by a thread whose process has ended."""
    mine = (TaskRow.resource_id == resource_id) & (TaskRow.session_id == holder)
    mine &= (TaskRow.status == IN_PROGRESS) & TaskRow.claim_owner.is_null(False)
    claimed = TaskRow.select(TaskRow.id, TaskRow.claim_owner).where(mine).tuples().execute(db)
    return [task_id for task_id, owner in claimed if not leases.alive(owner)]


def adopt(db: Database, resource_id: str, holder: str, owner: str) -> None:
    """Make a process the owner of a thread's claims that no other process has."""
    for task_id in orphans(db, resource_id, holder):
        TaskRow.update(claim_owner=owner).where(TaskRow.id == task_id).execute(db)
