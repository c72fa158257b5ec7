"""What the commands of `sakti tasks` share: who acts, how a question is asked and a change made, how tasks look."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from sakti.cli import common
from sakti.core.errors import TaskError

if TYPE_CHECKING:
    from sakti.core.types import Json
    from sakti.store.database import Store
    from sakti.store.tasks.row import Task
    from sakti.tasks.service import Actor

SIGNS = {"open": "·", "in_progress": "▶", "closed": "✓"}


def actor(name: str | None) -> Actor:
    """Return who acts: `--as`, else SAKTI_ACTOR, else the user of the shell."""
    from sakti.tasks.service import SHELL_CLAIM_MS, Actor

    who = name or os.environ.get("SAKTI_ACTOR") or os.environ.get("USER") or "shell"
    now = int(time.time() * 1000)
    return Actor(str(common.workspace()), f"shell:{who}", now, name=who, lease_ms=SHELL_CLAIM_MS)


def refuse(error: TaskError, as_json: bool, exit_code: int = common.FAILED) -> NoReturn:
    """Print a refusal and end the program."""
    if as_json:
        common.say_json({"success": False, "error": error.message, "code": error.code})
        raise SystemExit(exit_code)
    common.fail(error.message, exit_code)


def change(fn: Callable[..., Any], as_json: bool, name: str | None, *args: Any, **kwargs: Any) -> Any:
    """Make one change, in a transaction; a refusal is printed and ends the program with 1."""

    async def work(store: Store) -> Any:
        try:
            return await store.write(fn, actor(name), *args, **kwargs)
        except TaskError as e:
            return e

    result = common.with_store(work)
    return refuse(result, as_json) if isinstance(result, TaskError) else result


def ask(fn: Callable[..., Any], as_json: bool, *args: Any, **kwargs: Any) -> Any:
    """Ask one question; a refusal is printed and ends the program with 1. Secrets are masked in the answer."""
    from sakti.store.text_registry import leaving_all

    with common.plain_errors():
        try:
            return leaving_all(common.ask(fn, str(common.workspace()), *args, **kwargs))
        except TaskError as e:
            refuse(e, as_json)


def line(task: Json) -> str:
    """Return a task as one line, with what it waits for and who has it."""
    more = f"  [{', '.join(task['labels'])}]" if task.get("labels") else ""
    more += f"  ← {', '.join(task['blockedBy'])}" if task.get("blockedBy") else ""
    more += f"  ({children(task['waitsForChildren'])})" if task.get("waitsForChildren") else ""
    more += "  (ready to close)" if task.get("readyToClose") else ""
    if task.get("claimedBy"):
        more += f"  {task['claimedBy']}{', claim ended' if task.get('claimEnded') else ''}"
    return f"{SIGNS[task['status']]} {task['handle']}  P{task['priority']} {task['type']:<7} {task['title']}{more}"


def children(count: int) -> str:
    """`waits for its 3 children`"""
    return f"waits for its {count} children" if count > 1 else "waits for its child"


def show(task: Task, as_json: bool, more: Json | None = None) -> None:
    """Print a task that was changed."""
    from sakti.store.text_registry import leaving_all
    from sakti.tasks.queries import describe

    values = leaving_all(describe(task))
    if as_json:
        common.say_json({"success": True, "task": values, **(more or {})})
    else:
        common.say(line(values))


def show_all(found: Json, as_json: bool) -> None:
    """Print the tasks of an answer."""
    if as_json:
        common.say_json({"success": True, **found})
        return
    for task in found["tasks"]:
        common.say(line(task))


def show_freed(task: Task, freed: tuple[Task, ...], as_json: bool) -> None:
    """Print a task that was changed, and what that freed."""
    from sakti.tasks.queries import describe

    show(task, as_json, {"unblocked": [describe(t) for t in freed]})
    if freed and not as_json:
        common.say(f"unblocked: {', '.join(t.handle for t in freed)}")
