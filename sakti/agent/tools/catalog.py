"""Collect the tools of a session: each `@tool` of this package, and those of memory, tasks and skills."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection
from typing import Annotated, Any, Protocol

from msgspec import structs

from sakti.agent import tools
from sakti.agent.project import skills
from sakti.agent.project.skills import Library, Skill
from sakti.agent.tools import memory_search, task_mutate
from sakti.agent.tools.actions import ActionTool, make_action_tool
from sakti.agent.tools.base import Tool, tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.task_mutate import MISSING, QUERY_FIELDS
from sakti.core.errors import TaskError, ToolError
from sakti.core.events import Event, TasksChanged
from sakti.core.text import quote
from sakti.core.types import Json
from sakti.memory import page_content
from sakti.memory.pages import Pages
from sakti.store.database import Store
from sakti.tasks import queries

SKILL = "skill"


def make_all_tools(store: Store, **of_session: Any) -> list[Tool]:
    """Return every tool of a session; `of_session` goes to the memory tools (see `make_tools`)."""
    return [*list_workspace_tools(), *make_tools(store, **of_session)]


def list_workspace_tools() -> list[Tool]:
    """Return the tools that work on files and commands."""
    names = [module.name for module in pkgutil.iter_modules(tools.__path__)]
    files = [importlib.import_module(f"{tools.__name__}.{name}") for name in names]
    values = ((file.__name__, value) for file in files for value in vars(file).values())
    listed = [tool for name, tool in values if isinstance(tool, Tool) and tool.function.__module__ == name]
    return sorted(listed, key=lambda tool: tool.name)


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

    `owner` (host:pid:name) is the process that its claims end with, `in_window` gives the ids of the messages that
    the model sees already.
    """
    mutate = task_mutate.make_task_mutate(
        store, resource_id=pages.resource_id, owner=owner, pages=pages, changed=lambda: emit(TasksChanged())
    )
    schema = pages.schema()
    if schema is not None:
        mutate = structs.replace(
            mutate, description=f"{mutate.description}\n\n{page_content.make_schema_instructions(schema)}"
        )
    search = memory_search.make_memory_search(
        store, resource_id=resource_id, counter=pages.counter, in_window=in_window
    )
    return [make_task_query(store, pages.resource_id), mutate, search]


def make_task_query(store: Store, resource_id: str) -> ActionTool:
    """Make the tool task-query for one workspace."""

    async def ready(run: ToolContext, *, limit: int = 5) -> Json:
        return await store.read(queries.list_ready, resource_id, limit)

    async def show(run: ToolContext, *, id: str) -> Json:
        return await store.read(queries.show_task, resource_id, id)

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
    return make_action_tool("task-query", QUERY_FIELDS, actions, parallel=True, missing=MISSING)


class LoadedSkills(Protocol):
    """The skills that were loaded in the open thread."""

    def __contains__(self, name: object, /) -> bool: ...

    async def add(self, skill: Skill) -> None: ...


def make_skill_tool(library: Callable[[], Library], loaded: LoadedSkills) -> Tool:
    """Make the tool of one session."""

    @tool(effect="own", name=SKILL)
    async def skill(run: ToolContext, name: Annotated[str, "of a skill, or words that say what is needed"]) -> Outcome:
        """Load a skill."""
        offered = {s.name: s for s in library().offered}
        match = offered.get(name.strip().removeprefix("/").removeprefix("$"))
        if match is None:
            raise ToolError(_explain_unknown(library(), name, offered))
        if match.name in loaded:
            return Outcome(f"The skill {match.name} is already loaded: its text is in this conversation.")
        await loaded.add(match)
        return Outcome(skills.format_skill(match, match.body), details={"skill": match.name, "path": match.source})

    return skill


def _explain_unknown(library: Library, name: str, known: Collection[str]) -> str:
    near = skills.find_similar(library, name)
    if near:
        return "There is no such skill. Similar ones:\n" + "\n".join(f"- {s.name}: {s.description}" for s in near)
    return f"There is no skill {quote(name)}. There are: {', '.join(sorted(known))}."
