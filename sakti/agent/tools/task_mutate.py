"""Define the tool task-mutate, and the arguments of both task tools.

It changes the task board and the page of working memory. Names and words that models know from other trackers are
accepted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from sakti.agent.tools.actions import ActionTool, Field, MissingArgument, Run, make_action_tool
from sakti.agent.tools.context import ToolContext
from sakti.core.errors import TaskError
from sakti.core.text import show_value
from sakti.core.types import Json
from sakti.memory.pages import Pages, Scope
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.tasks.deadlocks import EDGE_TYPES
from sakti.store.tasks.questions import Task
from sakti.tasks import service
from sakti.tasks.changes import REASONS, TYPES
from sakti.tasks.queries import describe


def make_text_schema(about: str = "", **more: Any) -> Json:
    return {"type": "string", **({"description": about} if about else {}), **more}


def make_integer_schema(about: str = "", **bounds: int) -> Json:
    return {"type": "integer", **bounds, **({"description": about} if about else {})}


def list_schema(about: str = "", **items: Any) -> Json:
    return {
        "type": "array",
        "items": {"type": "string", **items},
        **({"description": about} if about else {}),
    }


def make_flag_schema(about: str = "") -> Json:
    return {"type": "boolean", **({"description": about} if about else {})}


_CLOSED = dict.fromkeys(("done", "completed", "complete", "finished", "resolved", "fixed"), "closed")
_OPEN = dict.fromkeys(("todo", "pending", "to do", "new", "backlog", "not_started"), "open")
_WORKING = dict.fromkeys(("doing", "active", "in progress", "in-progress", "started", "wip"), "in_progress")
STATUS_WORDS: dict[str, str] = {**_CLOSED, **_OPEN, **_WORKING, "any": "all"}
_NAMED = {"critical": 0, "urgent": 0, "high": 1, "medium": 2, "low": 3}
PRIORITY_WORDS: dict[str, int] = {**{f"p{n}": n for n in range(5)}, **_NAMED}
_DONE = ("done", "complete", "finished", "fixed", "resolved")
_DROPPED = ("wont_fix", "won't fix", "wont-fix", "cancelled", "canceled", "obsolete")
REASON_WORDS: dict[str, str] = {**dict.fromkeys(_DONE, "completed"), **dict.fromkeys(_DROPPED, "wontfix")}


def _read_word(value: Any) -> str:
    """Return a word; the action validates it."""
    if not isinstance(value, str):
        raise ValueError(f"a word, not {show_value(value)}.")
    return value.strip().lower()


ID = Field("id", make_text_schema("task id or handle"), ("taskId", "task", "handle", "issue", "issueId", "todoId"))
LIMIT = Field(
    "limit", make_integer_schema(minimum=1, maximum=100), ("max", "maxResults", "count", "n", "top", "topK", "perPage")
)
QUERY = Field("query", make_text_schema(), ("q", "pattern", "search", "searchTerm", "keywords", "text"))
TYPE = Field(
    "type",
    make_text_schema("of a task; on dep: of the dependency", enum=[*TYPES, *EDGE_TYPES]),
    ("kind", "issueType"),
    read=_read_word,
)
TASK_TYPE = Field("type", make_text_schema(enum=list(TYPES)), ("kind", "issueType"))
ASSIGNEE = Field("assignee", make_text_schema("a person"), ("owner", "assignedTo"))


def _read_page(value: Any) -> str:
    """Return the content of a page of memory; a model may write an object instead of its JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        raise ValueError(f"Markdown or a JSON object, not {show_value(value)}.")
    return value


QUERY_FIELDS = (
    ID,
    QUERY,
    Field(
        "status",
        make_text_schema(
            "list: not closed by default", enum=["open", "ready", "blocked", "in_progress", "closed", "all"]
        ),
        ("state",),
        STATUS_WORDS,
    ),
    TASK_TYPE,
    Field("label", make_text_schema(), ("tag", "labels")),
    ASSIGNEE,
    LIMIT,
    Field("offset", make_integer_schema(minimum=0), ("skip", "start")),
    Field("includeMessages", make_flag_schema("search: also messages")),
)

MUTATE_FIELDS = (
    ID,
    Field("title", make_text_schema(), ("name", "subject"), only={"create": ("content",)}),
    Field("description", make_text_schema(), ("body", "details", "desc"), only={"create": ("content",)}),
    Field("priority", make_integer_schema("0 is most urgent", minimum=0, maximum=4), (), PRIORITY_WORDS),
    TYPE,
    Field("labels", list_schema(), ("tags", "label")),
    ASSIGNEE,
    Field("metadata", {"type": "object", "description": "your own keys; null removes one"}, ("meta",)),
    Field("parent", make_text_schema("parent task"), ("parentId", "epic")),
    Field(
        "dependsOn",
        list_schema("tasks that it waits for"),
        ("blockedBy", "dependencies", "deps", "waitsFor", "addBlockedBy", "on"),
    ),
    Field("reason", make_text_schema(enum=list(REASONS)), ("closeReason", "resolution"), REASON_WORDS),
    Field("summary", make_text_schema("close: what was done, in which files"), ("result", "notes", "outcome")),
    Field("force", make_flag_schema("although it is blocked, has open children or is claimed by someone else")),
    Field("add", make_flag_schema("dep: false removes the dependency")),
    Field("messageId", make_text_schema(), ("message",)),
    Field(
        "content",
        make_text_schema("update_context: Markdown sections, or a JSON object"),
        ("context",),
        read=_read_page,
    ),
    Field(
        "scope",
        make_text_schema("update_context: the workspace's page, or this thread's own", enum=["resource", "thread"]),
        (),
        {"workspace": "resource"},
    ),
    Field("replace", make_flag_schema("update_context: the whole page")),
)

HINTS = {"status": "The status changes by claim, release, close (with a summary) and reopen."}
MISSING = {
    "id": MissingArgument("needs id, the id or handle of a task", "not_found"),
    "title": MissingArgument("needs a title", "empty_title"),
    "query": MissingArgument("needs a query: words of a title, a summary, a file"),
    "summary": MissingArgument("needs a summary: what was done, in which files"),
    "dependsOn": MissingArgument("needs dependsOn: the tasks that it waits for"),
    "messageId": MissingArgument("needs messageId, the id of a message", "not_found"),
    "content": MissingArgument("needs content: Markdown sections, each under its heading"),
}


def make_task_mutate(
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

    actions = {
        **_make_field_actions(store, change),
        **_make_claim_actions(change),
        **_make_edge_actions(change),
        "update_context": update_context,
    }
    return make_action_tool("task-mutate", MUTATE_FIELDS, actions, missing=MISSING, hints=HINTS)


def _build_result(task: Task) -> Json:
    return {"task": describe(task)}


def _make_field_actions(store: Store, change: Callable[..., Any]) -> dict[str, Run]:
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
        new = service.NewTask(
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
        return _build_result(await change(run, service.create, new))

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


def _make_claim_actions(change: Callable[..., Any]) -> dict[str, Run]:
    async def claim(run: ToolContext, *, id: str) -> Json:
        task, previous = await change(run, service.claim, id)
        note = {"note": f"{previous} stays in progress; {task.handle} is now the active task."} if previous else {}
        return _build_result(task) | note

    async def release(run: ToolContext, *, id: str, force: bool = False) -> Json:
        def back(db: Database, actor: service.Actor) -> tuple[Task, Task | None]:
            released = service.release(db, actor, id, force=force)
            return released, service.get_active_task(db, run.thread_id, run.thread_id)

        task, active = await change(run, back)
        return _build_result(task) | ({"note": f"{active.handle} is the active task."} if active else {})

    async def close(run: ToolContext, *, id: str, summary: str, reason: str = "completed", force: bool = False) -> Json:
        def end(db: Database, actor: service.Actor) -> tuple[Task, tuple[Task, ...], list[Task]]:
            task, freed = service.close(db, actor, id, reason, summary, force=force)
            return task, freed, service.list_finished_containers(db, task.id)

        task, freed, finished = await change(run, end)
        ready = {"readyToClose": [describe(t) for t in finished]} if finished else {}
        return _build_result(task) | {"unblocked": [describe(t) for t in freed]} | ready

    async def reopen(run: ToolContext, *, id: str) -> Json:
        return _build_result(await change(run, service.reopen, id))

    return {"claim": claim, "release": release, "close": close, "reopen": reopen}


def _make_edge_actions(change: Callable[..., Any]) -> dict[str, Run]:
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
