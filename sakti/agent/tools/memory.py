"""Make the memory tools task-query, task-mutate and memory-search.

Invalid input is an answer, not an exception.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from sakti.agent.tools import memory_search, task_mutate
from sakti.agent.tools.actions import ActionTool, action_tool
from sakti.agent.tools.base import Tool
from sakti.agent.tools.context import ToolContext
from sakti.agent.tools.task_fields import MISSING, QUERY_FIELDS
from sakti.core.errors import TaskError
from sakti.core.events import Event, TasksChanged
from sakti.core.types import Json
from sakti.memory.working import schema as page_schema
from sakti.memory.working.pages import Pages
from sakti.store.database import Store
from sakti.tasks import queries


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
        mutate = structs.replace(
            mutate, description=f"{mutate.description}\n\n{page_schema.schema_instructions(schema)}"
        )
    search = memory_search.make(store, resource_id=resource_id, counter=pages.counter, in_window=in_window)
    return [make(store, pages.resource_id), mutate, search]


def make(store: Store, resource_id: str) -> ActionTool:
    """Make the tool for one workspace."""

    async def ready(run: ToolContext, *, limit: int = 5) -> Json:
        return await store.read(queries.ready, resource_id, limit)

    async def show(run: ToolContext, *, id: str) -> Json:
        return await store.read(queries.show, resource_id, id)

    async def list_(
        run: ToolContext,
        *,
        status: str | None = None,
        type: str | None = None,
        label: str | None = None,
        assignee: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> Json:
        return await store.read(
            queries.list_tasks,
            resource_id,
            status=status or None,
            type=type or None,
            label=label or None,
            assignee=assignee or None,
            limit=limit,
            offset=offset,
        )

    async def search(run: ToolContext, *, query: str, limit: int = 3, includeMessages: bool = False) -> Json:
        if not query.strip():
            raise TaskError(f"search {MISSING['query'].sentence}.", code="invalid")
        return await store.read(queries.search, resource_id, query, limit, includeMessages)

    actions = {"ready": ready, "show": show, "list": list_, "search": search}
    return action_tool("task-query", QUERY_FIELDS, actions, parallel=True, missing=MISSING)
