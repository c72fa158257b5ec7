"""Change the task board and the page of working memory with task-mutate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sakti.agent.tools.actions import ActionTool, Run, action_tool
from sakti.agent.tools.context import ToolContext
from sakti.agent.tools.task_fields import HINTS, MISSING, MUTATE_FIELDS
from sakti.core.errors import TaskError
from sakti.core.types import Json
from sakti.memory.working.pages import Pages, Scope
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.tasks.questions import Task
from sakti.tasks import service
from sakti.tasks.queries import describe


def make(
    store: Store,
    *,
    resource_id: str,
    owner: str | None,
    pages: Pages,
    changed: Callable[[], None],
) -> ActionTool:
    """Make the tool for one session.

    Its claims belong to the calling thread, and end with the process `owner`. `changed` is called after each change.
    """

    def actor(run: ToolContext) -> service.Actor:
        return service.Actor(resource_id, run.thread_id, store.clock.now(), run.thread_id, owner=owner)

    async def change(run: ToolContext, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        done = await store.write(fn, actor(run), *args, **kwargs)
        changed()
        return done

    async def update_context(
        run: ToolContext, *, content: str, scope: Scope | None = None, replace: bool = False
    ) -> Json:
        page, sections = await pages.update(run.thread_id, content, scope=scope, replace=replace, actor="agent")
        changed()
        return {"workingMemory": page, "changed": list(sections)}

    actions = {**_fields(store, change), **_claims(change), **_edges(change), "update_context": update_context}
    return action_tool("task-mutate", MUTATE_FIELDS, actions, missing=MISSING, hints=HINTS)


def _build_result(task: Task) -> Json:
    return {"task": describe(task)}


def _fields(store: Store, change: Callable[..., Any]) -> dict[str, Run]:
    async def create(
        run: ToolContext,
        *,
        title: str,
        description: str = "",
        priority: int = 2,
        type: str = "task",
        labels: Sequence[str] = (),
        assignee: str | None = None,
        metadata: Json | None = None,
        parent: str | None = None,
        dependsOn: Sequence[str] = (),
    ) -> Json:
        task = await change(
            run,
            service.create,
            store.ids.new(),
            title,
            description=description,
            priority=priority,
            type=type,
            labels=labels,
            assignee=assignee,
            metadata=metadata,
            parent=parent,
            depends_on=dependsOn,
            message_id=run.message_id,
        )
        return _build_result(task)

    async def update(
        run: ToolContext,
        *,
        id: str,
        title: str = "",
        description: str | None = None,
        priority: int | None = None,
        type: str | None = None,
        labels: Sequence[str] | None = None,
        assignee: str | None = None,
        metadata: Json | None = None,
        force: bool = False,
    ) -> Json:
        fields = {"title": title or None, "description": description, "priority": priority, "type": type}
        fields |= {"labels": labels, "assignee": assignee, "metadata": metadata}
        changes = {k: v for k, v in fields.items() if v is not None}
        return _build_result(await change(run, service.update, id, changes, force=force))

    return {"create": create, "update": update}


def _claims(change: Callable[..., Any]) -> dict[str, Run]:
    async def claim(run: ToolContext, *, id: str) -> Json:
        task, previous = await change(run, service.claim, id)
        note = {"note": f"{previous} stays in progress; {task.handle} is now the active task."} if previous else {}
        return _build_result(task) | note

    async def release(run: ToolContext, *, id: str, force: bool = False) -> Json:
        def back(db: Database, actor: service.Actor) -> tuple[Task, Task | None]:
            released = service.release(db, actor, id, force=force)
            return released, service.active_task(db, run.thread_id, run.thread_id)

        task, active = await change(run, back)
        return _build_result(task) | ({"note": f"{active.handle} is the active task."} if active else {})

    async def close(run: ToolContext, *, id: str, summary: str, reason: str = "completed", force: bool = False) -> Json:
        def end(db: Database, actor: service.Actor) -> tuple[Task, tuple[Task, ...], list[Task]]:
            task, freed = service.close(db, actor, id, reason, summary, force=force)
            return task, freed, service.finished_containers(db, task.id)

        task, freed, finished = await change(run, end)
        ready = {"readyToClose": [describe(t) for t in finished]} if finished else {}
        return _build_result(task) | {"unblocked": [describe(t) for t in freed]} | ready

    async def reopen(run: ToolContext, *, id: str) -> Json:
        return _build_result(await change(run, service.reopen, id))

    return {"claim": claim, "release": release, "close": close, "reopen": reopen}


def _edges(change: Callable[..., Any]) -> dict[str, Run]:
    async def dep(
        run: ToolContext,
        *,
        id: str,
        dependsOn: Sequence[str],
        type: str | None = None,
        add: bool = True,
        force: bool = False,
    ) -> Json:
        if not dependsOn:
            raise TaskError(f"dep {MISSING['dependsOn'].sentence}.", code="invalid")
        return _build_result(await change(run, service.depend_all, id, dependsOn, type, add=add, force=force))

    async def link(run: ToolContext, *, id: str, messageId: str) -> Json:
        return _build_result(await change(run, service.link, id, messageId))

    return {"dep": dep, "link": link}
