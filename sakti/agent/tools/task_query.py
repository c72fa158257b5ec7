"""Read the task board with task-query."""

from __future__ import annotations

from sakti.agent.tools.actions import ActionTool, action_tool
from sakti.agent.tools.context import ToolContext
from sakti.agent.tools.task_fields import MISSING, QUERY_FIELDS
from sakti.core.errors import TaskError
from sakti.core.types import Json
from sakti.store.database import Store
from sakti.tasks import queries


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
