"""`sakti tasks`: the board from a shell. Exit code 1 when something is refused."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from sakti.cli import common

app = typer.Typer(help="The task board.", no_args_is_help=True, rich_markup_mode=None)
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
As = Annotated[str | None, typer.Option("--as", metavar="ACTOR", help="Who acts; SAKTI_ACTOR, else you.")]


def _actor(name: str | None) -> Any:
    from sakti.tasks.service import Actor

    who = name or os.environ.get("SAKTI_ACTOR") or os.environ.get("USER") or "shell"
    return Actor(str(common.workspace()), f"shell:{who}", int(time.time() * 1000), name=who)


def _change(fn: Callable[..., Any], as_json: bool, name: str | None, *args: Any, **kwargs: Any) -> Any:
    """Run a change; a refusal is printed and ends the program with 1."""
    from sakti.core.errors import TaskError

    async def work(store: Any) -> Any:
        try:
            return await store.write(fn, _actor(name), *args, **kwargs)
        except TaskError as e:
            return e

    result = common.with_store(work)
    if not isinstance(result, TaskError):
        return result
    if as_json:
        common.say_json({"success": False, "error": result.message, "code": result.code})
        raise SystemExit(common.FAILED)
    return common.fail(result.message)


def _line(task: Any) -> str:
    sign = {"open": "·", "in_progress": "▶", "closed": "✓"}[task["status"]]
    return f"{sign} {task['handle']}  P{task['priority']} {task['type']:<7} {task['title']}"


def _show(task: Any, as_json: bool, more: dict[str, Any] | None = None) -> None:
    from sakti.tasks.service import describe

    values = describe(task)
    if as_json:
        common.say_json({"success": True, "task": values, **(more or {})})
    else:
        common.say(_line(values))


@app.command()
def ready(limit: Annotated[int, typer.Option("--limit", min=1)] = 20, json_: Json = False) -> None:
    """What can be started now, most urgent first."""
    from sakti.tasks import service

    resource = str(common.workspace())
    board = common.with_store(lambda s: s.read(service.board, resource, 0))
    if json_:
        common.say_json(
            {
                "success": True,
                "readyCount": len(board.ready),
                "blockedCount": len(board.blocked),
                "tasks": [
                    {"id": c.id, "handle": c.handle, "title": c.title, "priority": c.priority, "type": c.type}
                    for c in board.ready[:limit]
                ],
            }
        )
        return
    for card in board.ready[:limit]:
        common.say(f"· {card.handle}  P{card.priority} {card.type:<7} {card.title}")
    common.say(f"{len(board.ready)} ready, {len(board.blocked)} blocked")


@app.command("list")
def list_(all_: Annotated[bool, typer.Option("--all", help="Closed ones too.")] = False, json_: Json = False) -> None:
    """All tasks that are not closed."""
    from sakti.store import tasks
    from sakti.tasks.service import describe

    rows = common.with_store(lambda s: s.read(tasks.all_live, str(common.workspace())))
    shown = [
        describe(t) for t in sorted(rows, key=lambda t: (t.priority, t.created_at)) if all_ or t.status != "closed"
    ]
    if json_:
        common.say_json({"success": True, "tasks": shown, "total": len(shown)})
        return
    for task in shown:
        common.say(_line(task))
    if not shown:
        common.say("No tasks. `sakti tasks create TITLE` makes one.")


@app.command()
def show(task: str, json_: Json = False) -> None:
    """One task: what blocks it, what was said about it."""
    from sakti.agent.tools.memory import show_task
    from sakti.core.errors import TaskError

    async def look(store: Any) -> Any:
        try:
            return await store.read(show_task, str(common.workspace()), task)
        except TaskError as e:
            return e

    found = common.with_store(look)
    if isinstance(found, TaskError):
        common.fail(found.message)
    if json_:
        common.say_json({"success": True, **found})
        return
    common.say(_line(found["task"]))
    for name in ("description", "summary"):
        if found["task"].get(name):
            common.say(f"\n{found['task'][name]}")
    if found["isBlocked"]:
        common.say(f"\nblocked by {', '.join(found['blockingTasks'])}")
    for message in found["messages"]:
        common.say(f"  {message['role']}: {message['text'][:100]}")


@app.command()
def create(
    title: str,
    description: Annotated[str, typer.Option("--description", "-d")] = "",
    priority: Annotated[int, typer.Option("--priority", "-p", min=0, max=4)] = 2,
    type_: Annotated[str, typer.Option("--type", "-t")] = "task",
    parent: Annotated[str | None, typer.Option("--parent")] = None,
    depends_on: Annotated[list[str] | None, typer.Option("--depends-on")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", "-l")] = None,
    as_: As = None,
    json_: Json = False,
) -> None:
    """Make a task."""
    from sakti.core.clock import SystemClock
    from sakti.core.ids import TimeIds
    from sakti.tasks import service

    task = _change(
        service.create,
        json_,
        as_,
        TimeIds(SystemClock()).new(),
        title,
        description=description,
        priority=priority,
        type=type_,
        labels=label or [],
        parent=parent,
        depends_on=depends_on or [],
    )
    _show(task, json_)


@app.command()
def claim(task: str, as_: As = None, json_: Json = False) -> None:
    """Take a task; it is in progress until it is released or closed."""
    from sakti.tasks import service

    claimed, _ = _change(service.claim, json_, as_, task)
    _show(claimed, json_)


@app.command()
def release(task: str, as_: As = None, json_: Json = False) -> None:
    """Give a claimed task back."""
    from sakti.tasks import service

    _show(_change(service.release, json_, as_, task), json_)


@app.command()
def close(
    task: str,
    summary: Annotated[str, typer.Option("--summary", "-s", help="What was done.")],
    reason: Annotated[str, typer.Option("--reason", help="completed, wontfix or duplicate.")] = "completed",
    force: Annotated[bool, typer.Option("--force", help="Although something blocks it.")] = False,
    as_: As = None,
    json_: Json = False,
) -> None:
    """Close a task with a summary."""
    from sakti.tasks import service

    closed, freed = _change(service.close, json_, as_, task, reason, summary, force=force)
    _show(closed, json_, {"unblocked": [service.describe(t) for t in freed]})
    if freed and not json_:
        common.say(f"unblocked: {', '.join(t.handle for t in freed)}")


@app.command()
def reopen(task: str, as_: As = None, json_: Json = False) -> None:
    """Open a closed task again."""
    from sakti.tasks import service

    _show(_change(service.reopen, json_, as_, task), json_)


@app.command()
def dep(
    task: str,
    on: str,
    type_: Annotated[str, typer.Option("--type", help="blocks, parent-child, related or discovered-from.")] = "blocks",
    remove: Annotated[bool, typer.Option("--remove")] = False,
    as_: As = None,
    json_: Json = False,
) -> None:
    """TASK waits for ON."""
    from sakti.tasks import service

    _show(_change(service.depend, json_, as_, task, on, type_, add=not remove), json_)
