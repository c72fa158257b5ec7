"""Convert a task's row to a `Task` or `TaskCard`, and define the columns of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from sakti.core.types import Json


class Task(Struct, frozen=True):
    """One task; `status` is open, in_progress or closed, blocked is computed. Times in Unix ms.

    `session_id` is the holder of its claim: the id of a thread, `shell:NAME` or `user:NAME`; `claim_owner` is the
    process (host:pid:uuid) that runs that thread, `holder_title` the thread's title (None for other holders). `state`
    is its column: ready, blocked, container, in_progress, closed, deleted; `held` whether it or an ancestor waits for
    an open task.
    """

    id: str
    resource_id: str
    handle: str
    title: str
    description: str
    status: str
    priority: int
    type: str
    assignee: str | None
    session_id: str | None
    claimed_at: int | None
    claim_expires_at: int | None
    thread_id: str | None
    close_reason: str | None
    summary: str | None
    created_at: int
    updated_at: int
    closed_at: int | None
    compaction_level: int = 0
    labels: tuple[str, ...] = ()
    claim_owner: str | None = None
    holder_title: str | None = None
    metadata: Json = field(default_factory=dict[str, Any])
    state: str = "ready"
    held: int = 0
    open_children: int = 0


class TaskCard(NamedTuple):
    """Fields of a task on the board: a named tuple, ten times as fast to create for hundreds of rows."""

    id: str
    handle: str
    title: str
    status: str
    priority: int
    type: str
    assignee: str | None
    session_id: str | None
    claimed_at: int | None
    claim_owner: str | None
    closed_at: int | None
    holder_title: str | None
    held: int
    open_children: int
    created_at: int


# What is not a column of its own: computed when it is read. Metadata without what an import keeps of its source.
_COMPUTED = {
    "labels": "(SELECT json_group_array(l.label ORDER BY l.label) FROM task_labels l WHERE l.task_id = t.id)",
    "holder_title": "(SELECT th.title FROM threads th WHERE th.id = t.session_id)",
    "metadata": "CASE t.metadata WHEN '{}' THEN '{}' ELSE json_remove(t.metadata, '$.original') END",
}
_OF_THE_GRAPH = ("state", "held", "open_children")  # kept by `graph` and the schema
NAMES = Task.__struct_fields__
STORED = tuple(name for name in NAMES if name not in _COMPUTED and name not in _OF_THE_GRAPH)
COLUMNS = ", ".join(_COMPUTED.get(name, f"t.{name}") for name in NAMES)
CARD_COLUMNS = ", ".join(_COMPUTED.get(name, f"t.{name}") for name in TaskCard._fields)


def task_of(row: Sequence[Any]) -> Task:
    """Convert a row selected as `COLUMNS` from `tasks t` to a `Task`."""
    values = dict(zip(NAMES, row, strict=True))
    values["labels"] = tuple(json.loads(values["labels"]))
    values["metadata"] = json.loads(values["metadata"])
    return Task(**values)


def card_of(row: Sequence[Any]) -> TaskCard:
    """Convert a row selected as `CARD_COLUMNS` from `tasks t` to a `TaskCard`: its fields, in order."""
    return TaskCard._make(row)
