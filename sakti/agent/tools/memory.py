"""task-query, task-mutate, memory-search: the three memory tools. Bad input is an answer, never an exception."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Annotated, Literal

import pydantic

from sakti.agent.tools.base import Outcome, Tool, ToolRun, tool
from sakti.agent.tools.hits import Around, MessageRange, find
from sakti.core.config import MemorySettings
from sakti.core.errors import SaktiError
from sakti.core.events import Event, TasksChanged
from sakti.core.tokens import Counter
from sakti.core.types import Json
from sakti.memory import page_schema
from sakti.memory import recall as recall_module
from sakti.memory.pages import Pages
from sakti.store import search as search_store
from sakti.store.database import Store
from sakti.tasks import queries, service


def _answer(values: Json) -> Outcome:
    return Outcome(json.dumps({"success": True, **values}, ensure_ascii=False))


def _refusal(error: SaktiError) -> Outcome:
    body = {"success": False, "error": error.message, "code": error.code}
    return Outcome(json.dumps(body, ensure_ascii=False), is_error=True)


def _wrong(sentence: str) -> Outcome:
    return _refusal(SaktiError(sentence, code="invalid"))


def make_tools(
    store: Store,
    *,
    resource_id: str,
    session_id: str,
    counter: Counter,
    settings: MemorySettings,
    emit: Callable[[Event], None],
    in_window: Callable[[], set[str]],
) -> list[Tool]:
    """The three tools of one session. `in_window` gives the ids of the messages that the model sees already."""

    pages = Pages(store, counter, settings, resource_id)
    schema = pages.schema()

    def actor(run: ToolRun) -> service.Actor:
        return service.Actor(resource_id, session_id, store.clock.now(), run.thread_id)

    @tool(name="task-query", read_only=True, internal=True, refuse=_wrong)
    async def task_query(
        run: ToolRun,
        action: Literal["ready", "show", "list", "search"],
        id: str | None = None,
        query: str | None = None,
        status: Literal["open", "in_progress", "closed", "all"] | None = None,
        type: Literal["bug", "feature", "task", "epic", "chore"] | None = None,
        label: str | None = None,
        assignee: str | None = None,
        limit: Annotated[int | None, pydantic.Field(ge=1, le=100)] = None,
        offset: Annotated[int, pydantic.Field(ge=0)] = 0,
        includeMessages: bool = False,
    ) -> Outcome:
        try:
            match action:
                case "ready":
                    return _answer(await store.read(queries.ready, resource_id, limit or 5))
                case "show":
                    return _answer(await store.read(queries.show, resource_id, id or ""))
                case "list":
                    return _answer(
                        await store.read(
                            queries.list_tasks,
                            resource_id,
                            status=status,
                            type=type,
                            label=label,
                            assignee=assignee,
                            limit=limit or 20,
                            offset=offset,
                        )
                    )
                case "search":
                    return _answer(
                        await store.read(queries.search, resource_id, query or "", limit or 3, includeMessages)
                    )
        except SaktiError as e:
            return _refusal(e)

    @tool(name="task-mutate", internal=True, refuse=_wrong)
    async def task_mutate(
        run: ToolRun,
        action: Literal["create", "claim", "release", "close", "update", "reopen", "dep", "link", "update_context"],
        id: Annotated[str | None, "task id or handle"] = None,
        taskId: Annotated[str | None, "the same, on dep and link"] = None,
        title: str | None = None,
        description: str | None = None,
        priority: Annotated[int | None, pydantic.Field(ge=0, le=4), "0 is most urgent"] = None,
        type: str | None = None,
        labels: list[str] | None = None,
        assignee: str | None = None,
        parent: str | None = None,
        dependsOn: list[str] | str | None = None,
        reason: Literal["completed", "wontfix", "duplicate"] = "completed",
        summary: Annotated[str | None, "on close: what was done, in which files"] = None,
        force: bool = False,
        add: bool = True,
        messageId: str | None = None,
        content: Annotated[str | None, "on update_context: Markdown sections, or a JSON object"] = None,
        scope: Annotated[
            Literal["resource", "thread"] | None, "on update_context: the workspace's page, or this thread's own"
        ] = None,
        replace: bool = False,
    ) -> Outcome:
        who = actor(run)
        on = [dependsOn] if isinstance(dependsOn, str) else list(dependsOn or [])
        id = id or taskId or ""
        try:
            match action:
                case "create":
                    task = await store.write(
                        service.create,
                        who,
                        store.ids.new(),
                        title or "",
                        description=description or "",
                        priority=2 if priority is None else priority,
                        type=type or "task",
                        labels=labels or [],
                        parent=parent,
                        depends_on=on,
                        message_id=run.message_id,
                    )
                    result: Json = {"task": service.describe(task)}
                case "claim":
                    task, previous = await store.write(service.claim, who, id)
                    result = {"task": service.describe(task)}
                    if previous:
                        result["note"] = f"{previous} stays in progress; {task.handle} is now the active task."
                case "release":
                    result = {"task": service.describe(await store.write(service.release, who, id))}
                case "close":
                    task, freed = await store.write(service.close, who, id, reason, summary or "", force=force)
                    result = {"task": service.describe(task), "unblocked": [service.describe(t) for t in freed]}
                    finished = await store.read(service.finished_containers, task.id)
                    if finished:
                        result["readyToClose"] = [service.describe(t) for t in finished]
                case "update":
                    changes = {
                        "title": title,
                        "description": description,
                        "priority": priority,
                        "type": type,
                        "assignee": assignee,
                        "labels": labels,
                    }
                    task = await store.write(
                        service.update, who, id, {k: v for k, v in changes.items() if v is not None}
                    )
                    result = {"task": service.describe(task)}
                case "reopen":
                    result = {"task": service.describe(await store.write(service.reopen, who, id))}
                case "dep":
                    task = await store.write(service.depend_all, who, id, on, type, add=add)
                    result = {"task": service.describe(task)}
                case "link":
                    task = await store.write(service.link, who, id, messageId or "")
                    result = {"task": service.describe(task)}
                case "update_context":
                    page, changed = await pages.update(
                        run.thread_id, content or "", scope=scope, replace=replace, actor="agent"
                    )
                    result = {"workingMemory": page, "changed": list(changed)}
        except SaktiError as e:
            return _refusal(e)
        emit(TasksChanged())
        return _answer(result)

    @tool(name="memory-search", read_only=True, internal=True, refuse=_wrong)
    async def memory_search(
        run: ToolRun,
        action: Literal["search", "recall"] = "search",
        query: str | None = None,
        limit: Annotated[int, pydantic.Field(ge=1, le=20)] = 5,
        offset: Annotated[int, pydantic.Field(ge=0), "go on from an earlier answer's `next`"] = 0,
        kinds: list[Literal["message", "observation", "reflection", "task", "working_memory"]] | None = None,
        scope: Literal["thread", "workspace"] = "workspace",
        messageRange: Annotated[Around | MessageRange, "messages round each hit that come with it"] = 0,
        id: Annotated[str | None, "on recall: message id, group id, or their short form"] = None,
        page: Annotated[
            int, "on recall: pages forward (1, 2 …) or back (-1, -2 …) from there; 0 is the place itself"
        ] = 0,
        detail: Literal["low", "high"] = "low",
        partIndex: int | None = None,
        charOffset: int = 0,
    ) -> Outcome:
        try:
            if action == "recall":
                return _answer(
                    await recall_module.recall(
                        store,
                        counter,
                        resource_id=resource_id,
                        thread_id=run.thread_id,
                        id=id or "",
                        page=page,
                        detail=detail,
                        part_index=partIndex,
                        char_offset=charOffset,
                    )
                )
            where = search_store.Scope(resource_id, run.thread_id if scope == "thread" else None, tuple(kinds or ()))
            around = messageRange
            if isinstance(around, int):
                around = MessageRange(before=around, after=around)
            return _answer(
                await store.read(
                    find,
                    query or "",
                    where,
                    limit=limit,
                    offset=offset,
                    around=around,
                    counter=counter,
                    in_window=in_window(),
                )
            )
        except SaktiError as e:
            return _refusal(e)

    if schema is not None:
        described = f"{task_mutate.description}\n\n{page_schema.told(schema)}"
        task_mutate = dataclasses.replace(task_mutate, description=described)
    return [task_query, task_mutate, memory_search]
