"""Define the arguments of the task tools, with names and words that models know from other trackers."""

from __future__ import annotations

import json
from typing import Any

from sakti.agent.tools.actions import Field, Missing
from sakti.core.types import Json
from sakti.tasks.changes import REASONS, TYPES
from sakti.tasks.graph import EDGE_TYPES


def text(about: str = "", **more: Any) -> Json:
    return {"type": "string", **({"description": about} if about else {}), **more}


def whole(about: str = "", **bounds: int) -> Json:
    return {"type": "integer", **bounds, **({"description": about} if about else {})}


def texts(about: str = "", **items: Any) -> Json:
    return {
        "type": "array",
        "items": {"type": "string", **items},
        **({"description": about} if about else {}),
    }


def flag(about: str = "") -> Json:
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


def _word(value: Any) -> str:
    """Return a word; the action validates it."""
    if not isinstance(value, str):
        raise ValueError(f"a word, not {value!r}.")
    return value.strip().lower()


ID = Field("id", text("task id or handle"), ("taskId", "task", "handle", "issue", "issueId", "todoId"))
LIMIT = Field("limit", whole(minimum=1, maximum=100), ("max", "maxResults", "count", "n", "top", "topK", "perPage"))
QUERY = Field("query", text(), ("q", "pattern", "search", "searchTerm", "keywords", "text"))
TYPE = Field(
    "type", text("of a task; on dep: of the dependency", enum=[*TYPES, *EDGE_TYPES]), ("kind", "issueType"), read=_word
)
TASK_TYPE = Field("type", text(enum=list(TYPES)), ("kind", "issueType"))
ASSIGNEE = Field("assignee", text("a person"), ("owner", "assignedTo"))


def _page(value: Any) -> str:
    """Return the content of a page of memory; a model may write an object instead of its JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        raise ValueError(f"Markdown or a JSON object, not {value!r}.")
    return value


QUERY_FIELDS = (
    ID,
    QUERY,
    Field(
        "status",
        text("list: not closed by default", enum=["open", "ready", "blocked", "in_progress", "closed", "all"]),
        ("state",),
        STATUS_WORDS,
    ),
    TASK_TYPE,
    Field("label", text(), ("tag", "labels")),
    ASSIGNEE,
    LIMIT,
    Field("offset", whole(minimum=0), ("skip", "start")),
    Field("includeMessages", flag("search: also messages")),
)

MUTATE_FIELDS = (
    ID,
    Field("title", text(), ("name", "subject"), only={"create": ("content",)}),
    Field("description", text(), ("body", "details", "desc"), only={"create": ("content",)}),
    Field("priority", whole("0 is most urgent", minimum=0, maximum=4), (), PRIORITY_WORDS),
    TYPE,
    Field("labels", texts(), ("tags", "label")),
    ASSIGNEE,
    Field("metadata", {"type": "object", "description": "your own keys; null removes one"}, ("meta",)),
    Field("parent", text("parent task"), ("parentId", "epic")),
    Field(
        "dependsOn",
        texts("tasks that it waits for"),
        ("blockedBy", "dependencies", "deps", "waitsFor", "addBlockedBy", "on"),
    ),
    Field("reason", text(enum=list(REASONS)), ("closeReason", "resolution"), REASON_WORDS),
    Field("summary", text("close: what was done, in which files"), ("result", "notes", "outcome")),
    Field("force", flag("although it is blocked, has open children or is claimed by someone else")),
    Field("add", flag("dep: false removes the dependency")),
    Field("messageId", text(), ("message",)),
    Field("content", text("update_context: Markdown sections, or a JSON object"), ("context",), read=_page),
    Field(
        "scope",
        text("update_context: the workspace's page, or this thread's own", enum=["resource", "thread"]),
        (),
        {"workspace": "resource"},
    ),
    Field("replace", flag("update_context: the whole page")),
)

HINTS = {"status": "The status changes by claim, release, close (with a summary) and reopen."}
MISSING = {
    "id": Missing("needs id, the id or handle of a task", "not_found"),
    "title": Missing("needs a title", "empty_title"),
    "query": Missing("needs a query: words of a title, a summary, a file"),
    "summary": Missing("needs a summary: what was done, in which files"),
    "dependsOn": Missing("needs dependsOn: the tasks that it waits for"),
    "messageId": Missing("needs messageId, the id of a message", "not_found"),
    "content": Missing("needs content: Markdown sections, each under its heading"),
}
