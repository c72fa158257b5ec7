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
    message, result = MessageRow, MessageRow.alias()
    linked = (TaskMessageRow.message_id == message.id) & (TaskMessageRow.task_id == task_id)
    follows = (result.thread_id == message.thread_id) & (result.message_index == message.message_index + 1)
    linked_messages = TaskMessageRow.select(message.id, message.created_at, message.message_index).join(
        message, on=linked
    )
    results = (
        TaskMessageRow.select(result.id, result.created_at, result.message_index)
        .join(message, on=linked)
        .join(result, on=follows)
        .where(message.role == "assistant", result.role == "tool")
    )
    both = (linked_messages | results).order_by(SQL("2"), SQL("3")).limit(limit)
    return [row[0] for row in both.tuples().execute(db)]
