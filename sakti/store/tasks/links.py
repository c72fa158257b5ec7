"""Link messages to tasks, and read the messages of a task."""

from __future__ import annotations

from peewee import SQL

from sakti.store.connection import Database
from sakti.store.models import MessageRow, TaskMessageRow
from sakti.store.rows import insert_new


def add(db: Database, task_id: str, message_id: str, relation: str, now: int) -> bool:
    """Link a message (relation: output or reference); False if it was linked."""
    link = {"task_id": task_id, "message_id": message_id, "relation": relation}
    return insert_new(db, TaskMessageRow, **link, created_at=now)


def remove(db: Database, task_id: str, message_id: str) -> bool:
    """Unlink a message; False if it was not linked."""
    link = (TaskMessageRow.task_id == task_id) & (TaskMessageRow.message_id == message_id)
    return TaskMessageRow.delete().where(link).execute(db) == 1


def said_about(db: Database, task_id: str, limit: int = 500) -> list[str]:
    """Return the ids of the messages linked to a task, oldest first.

    Each tool call comes with its results, even where those are not linked.
    """
    said, result = MessageRow, MessageRow.alias()
    linked = (TaskMessageRow.message_id == said.id) & (TaskMessageRow.task_id == task_id)
    follows = (result.thread_id == said.thread_id) & (result.message_index == said.message_index + 1)
    own = TaskMessageRow.select(said.id, said.created_at, said.message_index).join(said, on=linked)
    results = (
        TaskMessageRow.select(result.id, result.created_at, result.message_index)
        .join(said, on=linked)
        .join(result, on=follows)
        .where(said.role == "assistant", result.role == "tool")
    )
    both = (own | results).order_by(SQL("2"), SQL("3")).limit(limit)
    return [row[0] for row in both.tuples().execute(db)]
