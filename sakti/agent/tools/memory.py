"""Make the memory tools task-query, task-mutate and memory-search.

Invalid input is an answer, not an exception.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from sakti.agent.tools import memory_search, task_mutate, task_query
from sakti.agent.tools.base import Tool
from sakti.core.events import Event, TasksChanged
from sakti.memory.working import schema as page_schema
from sakti.memory.working.pages import Pages
from sakti.store.database import Store


def make_tools(
    store: Store,
    *,
    resource_id: str,
    owner: str | None,
    pages: Pages,
    emit: Callable[[Event], None],
    in_window: Callable[[], set[str]],
) -> list[Tool]:
    """Make the three tools of one session; tasks belong to the workspace of `pages`.

    `owner` (host:pid:uuid) is the process that its claims end with, `in_window` gives the ids of the messages that
    the model sees already.
    """
    mutate = task_mutate.make(
        store, resource_id=pages.resource_id, owner=owner, pages=pages, changed=lambda: emit(TasksChanged())
    )
    schema = pages.schema()
    if schema is not None:
        mutate = structs.replace(mutate, description=f"{mutate.description}\n\n{page_schema.told(schema)}")
    search = memory_search.make(store, resource_id=resource_id, counter=pages.counter, in_window=in_window)
    return [task_query.make(store, pages.resource_id), mutate, search]
