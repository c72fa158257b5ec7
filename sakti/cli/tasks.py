"""`sakti tasks`: the board from a shell. Exit code 1 when something is refused, 2 when it was called wrongly."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sakti.cli import common
from sakti.core.errors import TaskError

if TYPE_CHECKING:
    from sakti.store.tasks import Task
    from sakti.tasks.service import Actor

app = typer.Typer(help="The task board.", no_args_is_help=True, rich_markup_mode=None)
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
As = Annotated[str | None, typer.Option("--as", metavar="ACTOR", help="Who acts; SAKTI_ACTOR, else you.")]
TaskArg = Annotated[str, typer.Argument(metavar="TASK", help="A handle, an id, or the beginning of one.")]
SIGNS = {"open": "·", "in_progress": "▶", "closed": "✓"}


def _actor(name: str | None) -> Actor:
    from sakti.tasks.service import SHELL_CLAIM_MS, Actor

    who = name or os.environ.get("SAKTI_ACTOR") or os.environ.get("USER") or "shell"
    now = int(time.time() * 1000)
    return Actor(str(common.workspace()), f"shell:{who}", now, name=who, lease_ms=SHELL_CLAIM_MS)


def _run(as_json: bool, work: Callable[[Any], Any]) -> Any:
    """Run something with the database; a refusal is printed and ends the program with 1."""

    async def guarded(store: Any) -> Any:
        try:
            return await work(store)
        except TaskError as e:
            return e

    result = common.with_store(guarded)
    if not isinstance(result, TaskError):
        return result
    if as_json:
        common.say_json({"success": False, "error": result.message, "code": result.code})
        raise SystemExit(common.FAILED)
    return common.fail(result.message)


def _change(fn: Callable[..., Any], as_json: bool, name: str | None, *args: Any, **kwargs: Any) -> Any:
    return _run(as_json, lambda store: store.write(fn, _actor(name), *args, **kwargs))


def _ask(fn: Callable[..., Any], as_json: bool, *args: Any, **kwargs: Any) -> Any:
    return _run(as_json, lambda store: store.read(fn, str(common.workspace()), *args, **kwargs))


def _line(task: Any) -> str:
    more = f"  [{', '.join(task['labels'])}]" if task.get("labels") else ""
    return f"{SIGNS[task['status']]} {task['handle']}  P{task['priority']} {task['type']:<7} {task['title']}{more}"


def _show(task: Task, as_json: bool, more: dict[str, Any] | None = None) -> None:
    from sakti.tasks.queries import describe

    values = describe(task)
    if as_json:
        common.say_json({"success": True, "task": values, **(more or {})})
    else:
        common.say(_line(values))


def _show_all(found: Any, as_json: bool) -> None:
    if as_json:
        common.say_json({"success": True, **found})
        return
    for task in found["tasks"]:
        common.say(_line(task) + ("  (ready to close)" if task.get("readyToClose") else ""))


@app.command()
def ready(
    limit: Annotated[int, typer.Option("--limit", min=1)] = 20,
    claim_: Annotated[bool, typer.Option("--claim", help="Take the first one at once.")] = False,
    as_: As = None,
    json_: Json = False,
) -> None:
    """What can be started now, most urgent first."""
    if claim_:
        from sakti.tasks import service

        claimed, _ = _change(service.claim_next, json_, as_)
        _show(claimed, json_)
        return
    from sakti.tasks import queries

    found = _ask(queries.ready, json_, limit)
    _show_all(found, json_)
    if not json_:
        common.say(f"{found['readyCount']} ready, {found['blockedCount']} blocked")


@app.command("list")
def list_(
    status: Annotated[str | None, typer.Option("--status", help="open, in_progress, closed or all.")] = None,
    type_: Annotated[str | None, typer.Option("--type", "-t")] = None,
    label: Annotated[str | None, typer.Option("--label", "-l")] = None,
    assignee: Annotated[str | None, typer.Option("--assignee")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Closed ones too.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1)] = 100,
    offset: Annotated[int, typer.Option("--offset", min=0)] = 0,
    json_: Json = False,
) -> None:
    """Tasks that are not closed, most urgent first."""
    from sakti.tasks import queries

    if status not in (None, "open", "in_progress", "closed", "all"):
        common.fail(f"--status is open, in_progress, closed or all, not {status!r}.", common.USAGE)
    found = _ask(
        queries.list_tasks,
        json_,
        status="all" if all_ else status,
        type=type_,
        label=label,
        assignee=assignee,
        limit=limit,
        offset=offset,
    )
    _show_all(found, json_)
    if not json_:
        if not found["total"]:
            common.say("No tasks. `sakti tasks create TITLE` makes one.")
        elif found["total"] > len(found["tasks"]):
            common.say(f"{len(found['tasks'])} of {found['total']}")


@app.command()
def show(task: TaskArg, json_: Json = False) -> None:
    """One task: what blocks it, its dependencies, what was said about it."""
    from sakti.tasks import queries

    found = _ask(queries.show, json_, task)
    if json_:
        common.say_json({"success": True, **found})
        return
    common.say(_line(found["task"]))
    for name in ("description", "summary"):
        if found["task"].get(name):
            common.say(f"\n{found['task'][name]}")
    if found["isBlocked"]:
        common.say(f"\nblocked by {', '.join(found['blockingTasks'])}")
    for edge in found["dependencies"]:
        common.say(f"  {edge['task']} {edge['type']} {edge['dependsOn']} ({edge['status']})")
    for message in found["messages"]:
        common.say(f"  {message['role']}: {message['text'][:100]}")


@app.command()
def search(
    query: str,
    limit: Annotated[int, typer.Option("--limit", min=1)] = 10,
    messages: Annotated[bool, typer.Option("--messages", help="What was said about it, too.")] = False,
    json_: Json = False,
) -> None:
    """Tasks whose title, description or summary match."""
    from sakti.tasks import queries

    found = _ask(queries.search, json_, query, limit, messages)
    _show_all(found, json_)
    if not json_:
        for message in found.get("messages", ()):
            common.say(f"  {message['role']}: {message['text']}")
        if not found["tasks"]:
            common.say("nothing found")


@app.command()
def explain(task: TaskArg, json_: Json = False) -> None:
    """The shortest chain from a task to something that can be started now."""
    from sakti.tasks import queries

    found = _ask(queries.explain, json_, task)
    if json_:
        common.say_json({"success": True, **found})
        return
    for depth, step in enumerate(found["chain"]):
        why = f"waits for ({step['because']}) " if step["because"] else ""
        common.say(f"{'  ' * depth}{why}{_line(step)}")


@app.command()
def create(
    title: str,
    description: Annotated[str, typer.Option("--description", "-d")] = "",
    priority: Annotated[int, typer.Option("--priority", "-p", min=0, max=4)] = 2,
    type_: Annotated[str, typer.Option("--type", "-t", help="bug, feature, task, epic or chore.")] = "task",
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
def claim(task: TaskArg, as_: As = None, json_: Json = False) -> None:
    """Take a task; it is in progress until it is released or closed, or for 24 hours."""
    from sakti.tasks import service

    claimed, _ = _change(service.claim, json_, as_, task)
    _show(claimed, json_)


@app.command()
def release(task: TaskArg, as_: As = None, json_: Json = False) -> None:
    """Give a claimed task back."""
    from sakti.tasks import service

    _show(_change(service.release, json_, as_, task), json_)


@app.command()
def close(
    task: TaskArg,
    summary: Annotated[str, typer.Option("--summary", "-s", help="What was done.")],
    reason: Annotated[str, typer.Option("--reason", help="completed, wontfix or duplicate.")] = "completed",
    force: Annotated[bool, typer.Option("--force", help="Although something blocks it.")] = False,
    as_: As = None,
    json_: Json = False,
) -> None:
    """Close a task with a summary."""
    from sakti.tasks import queries, service

    closed, freed = _change(service.close, json_, as_, task, reason, summary, force=force)
    _show(closed, json_, {"unblocked": [queries.describe(t) for t in freed]})
    _say_freed(freed, json_)


def _say_freed(freed: tuple[Task, ...], as_json: bool) -> None:
    if freed and not as_json:
        common.say(f"unblocked: {', '.join(t.handle for t in freed)}")


@app.command()
def reopen(task: TaskArg, as_: As = None, json_: Json = False) -> None:
    """Open a closed task again."""
    from sakti.tasks import service

    _show(_change(service.reopen, json_, as_, task), json_)


@app.command()
def update(
    task: TaskArg,
    title: Annotated[str | None, typer.Option("--title")] = None,
    description: Annotated[str | None, typer.Option("--description", "-d")] = None,
    priority: Annotated[int | None, typer.Option("--priority", "-p", min=0, max=4)] = None,
    type_: Annotated[str | None, typer.Option("--type", "-t")] = None,
    assignee: Annotated[str | None, typer.Option("--assignee")] = None,
    as_: As = None,
    json_: Json = False,
) -> None:
    """Change the fields of a task."""
    from sakti.tasks import service

    given = {"title": title, "description": description, "priority": priority, "type": type_, "assignee": assignee}
    changes = {k: v for k, v in given.items() if v is not None}
    if not changes:
        common.fail("nothing to change: give --title, --description, --priority, --type or --assignee.", common.USAGE)
    _show(_change(service.update, json_, as_, task, changes), json_)


@app.command()
def dep(
    task: TaskArg,
    on: Annotated[str, typer.Argument(metavar="ON")],
    type_: Annotated[str, typer.Option("--type", help="blocks, parent-child, related or discovered-from.")] = "blocks",
    remove: Annotated[bool, typer.Option("--remove")] = False,
    as_: As = None,
    json_: Json = False,
) -> None:
    """TASK waits for ON."""
    from sakti.tasks import service

    _show(_change(service.depend, json_, as_, task, on, type_, add=not remove), json_)


@app.command()
def link(
    task: TaskArg, message: Annotated[str, typer.Argument(metavar="MESSAGE")], as_: As = None, json_: Json = False
) -> None:
    """Link a message, by its id, to a task."""
    from sakti.tasks import service

    _show(_change(service.link, json_, as_, task, message), json_)


@app.command()
def label(
    task: TaskArg,
    labels: Annotated[list[str], typer.Argument(metavar="LABEL…")],
    remove: Annotated[bool, typer.Option("--remove")] = False,
    as_: As = None,
    json_: Json = False,
) -> None:
    """Put labels on a task, or take them off."""
    from sakti.tasks import service

    add, drop = ([], labels) if remove else (labels, [])
    _show(_change(service.set_labels, json_, as_, task, add, drop), json_)


@app.command()
def delete(task: TaskArg, as_: As = None, json_: Json = False) -> None:
    """Take a task from the board; `restore` and `undo` bring it back."""
    from sakti.tasks import queries, service

    deleted, freed = _change(service.delete, json_, as_, task)
    _show(deleted, json_, {"unblocked": [queries.describe(t) for t in freed]})
    _say_freed(freed, json_)


@app.command()
def restore(task: TaskArg, as_: As = None, json_: Json = False) -> None:
    """Bring back a deleted task, or the whole text of one that was shrunk with age."""
    from sakti.tasks import service

    _show(_change(service.restore, json_, as_, task), json_)


@app.command()
def undo(count: Annotated[int, typer.Argument(min=1, metavar="N")] = 1, as_: As = None, json_: Json = False) -> None:
    """Take back the last N changes of this workspace, whoever made them."""
    from sakti.tasks import queries, service

    done = _change(service.undo, json_, as_, count)
    if json_:
        common.say_json({"success": True, "undone": [{"action": a, "task": queries.describe(t)} for a, t in done]})
        return
    for action, task in done:
        common.say(f"undone: {action} {_line(queries.describe(task))}")


@app.command()
def board(json_: Json = False) -> None:
    """The columns: in progress, ready, blocked and by what, done today."""
    import dataclasses
    import datetime

    from sakti.tasks import queries

    midnight = datetime.datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
    found = _ask(queries.board, json_, int(midnight.timestamp() * 1000))
    if json_:
        common.say_json({"success": True, **dataclasses.asdict(found)})
        return
    ready_, blocked, working, done = found.counts
    for title, count, cards, sign in (
        ("In progress", working, found.in_progress, "▶"),
        ("Ready", ready_, found.ready, "·"),
        ("Blocked", blocked, found.blocked, "✗"),
        ("Done today", done, found.closed_today, "✓"),
    ):
        common.say(f"{title}  {count}")
        for card in cards:
            notes = [f"← {', '.join(card.blocked_by)}"] if card.blocked_by else []
            notes += [card.held_by] if card.held_by else []
            notes += ["ready to close"] if card.ready_to_close else []
            note = f"  {'; '.join(notes)}" if notes else ""
            common.say(f"  {sign} {card.handle}  P{card.priority} {card.title}{note}")


@app.command()
def export(
    path: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Standard output where none is given.")] = None,
) -> None:
    """All tasks as JSON Lines."""
    from sakti.core.text import json_line
    from sakti.tasks import transfer

    text = "".join(f"{json_line(line)}\n" for line in _ask(transfer.export, False))
    if path is None:
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, "utf-8")
    except OSError as e:
        common.fail(f"{path} cannot be written: {e.strerror}.")


@app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="JSON Lines; - is standard input.")],
    as_: As = None,
    json_: Json = False,
) -> None:
    """Bring in tasks of an export; what is there already stays as it is."""
    from sakti.tasks import transfer

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        common.fail(f"{path} cannot be read: {e}.", common.USAGE)

    async def work(store: Any) -> Any:
        return await store.write(transfer.bring_in, _actor(as_), list(transfer.parse(text.splitlines())))

    done = _run(json_, work)
    if json_:
        values = {"tasks": done.tasks, "dependencies": done.dependencies, "known": done.known}
        common.say_json({"success": True, **values})
    else:
        common.say(f"{done.tasks} tasks and {done.dependencies} dependencies; {done.known} were there already")
