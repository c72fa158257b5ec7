"""The commands of `sakti tasks` that change the board."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sakti.cli import common
from sakti.cli.tasks.line import AS, FORCE, JSON, META, TASK, TYPE_HELP, arg, command, flag, whole
from sakti.cli.tasks.output import change, line, show, show_freed

if TYPE_CHECKING:
    from sakti.store.tasks.row import Task

FEW = 5


@command(
    "create",
    arg("title", metavar="TITLE"),
    arg("-d", "--description", default="", metavar="TEXT"),
    arg("-p", "--priority", type=whole(0, 4), default=2, metavar="N", help="0, most urgent, to 4; 2."),
    arg("-t", "--type", dest="type_", default="task", metavar="TYPE", help=TYPE_HELP),
    arg("--parent", metavar="TASK", help="The task that this one is a part of."),
    arg("--depends-on", action="append", default=[], metavar="TASK", help="Waits for this one; may be repeated."),
    arg("-l", "--label", action="append", default=[], metavar="LABEL", help="May be repeated."),
    arg("--assignee", metavar="NAME"),
    META,
    AS,
    JSON,
)
def create(
    title: str,
    description: str,
    priority: int,
    type_: str,
    parent: str | None,
    depends_on: list[str],
    label: list[str],
    assignee: str | None,
    meta: list[tuple[str, str]],
    as_: str | None,
    json_: bool,
) -> None:
    """Make a task."""
    from sakti.core.clock import SystemClock
    from sakti.core.ids import TimeIds
    from sakti.tasks import service

    task = change(
        service.create,
        json_,
        as_,
        TimeIds(SystemClock()).new(),
        title,
        description=description,
        priority=priority,
        type=type_,
        labels=label,
        assignee=assignee,
        metadata=dict(meta),
        parent=parent,
        depends_on=depends_on,
    )
    show(task, json_)


@command("claim", TASK, AS, JSON)
def claim(task: str, as_: str | None, json_: bool) -> None:
    """Take a task; it is in progress until it is released or closed, or for 24 hours."""
    from sakti.tasks import service

    claimed, _ = change(service.claim, json_, as_, task)
    show(claimed, json_)


@command("release", TASK, FORCE, AS, JSON)
def release(task: str, force: bool, as_: str | None, json_: bool) -> None:
    """Give a claimed task back."""
    from sakti.tasks import service

    show(change(service.release, json_, as_, task, force=force), json_)


@command(
    "close",
    TASK,
    arg("-s", "--summary", required=True, metavar="TEXT", help="What was done, and in which files."),
    arg("--reason", default="completed", metavar="REASON", help="completed, wontfix or duplicate."),
    flag("--force", "Although something blocks it, a child is open, or somebody else has claimed it."),
    AS,
    JSON,
)
def close(task: str, summary: str, reason: str, force: bool, as_: str | None, json_: bool) -> None:
    """Close a task with a summary."""
    from sakti.tasks import service

    closed, freed = change(service.close, json_, as_, task, reason, summary, force=force)
    show_freed(closed, freed, json_)


@command("reopen", TASK, AS, JSON)
def reopen(task: str, as_: str | None, json_: bool) -> None:
    """Open a closed task again."""
    from sakti.tasks import service

    show(change(service.reopen, json_, as_, task), json_)


@command(
    "update",
    TASK,
    arg("--title", metavar="TEXT"),
    arg("-d", "--description", metavar="TEXT"),
    arg("-p", "--priority", type=whole(0, 4), metavar="N", help="0, most urgent, to 4."),
    arg("-t", "--type", dest="type_", metavar="TYPE", help=TYPE_HELP),
    arg("--assignee", metavar="NAME"),
    META,
    FORCE,
    AS,
    JSON,
)
def update(
    task: str,
    title: str | None,
    description: str | None,
    priority: int | None,
    type_: str | None,
    assignee: str | None,
    meta: list[tuple[str, str]],
    force: bool,
    as_: str | None,
    json_: bool,
) -> None:
    """Change the fields of a task."""
    from sakti.tasks import service

    given: dict[str, Any] = {
        "title": title,
        "description": description,
        "priority": priority,
        "type": type_,
        "assignee": assignee,
    }
    changes = {k: v for k, v in given.items() if v is not None}
    if meta:
        changes["metadata"] = {key: value or None for key, value in meta}
    if not changes:
        options = "--title, --description, --priority, --type, --assignee or --meta"
        common.fail(f"nothing to change: give {options}.", common.USAGE)
    show(change(service.update, json_, as_, task, changes, force=force), json_)


@command(
    "dep",
    TASK,
    arg("on", metavar="ON", help="The task that it waits for."),
    arg("--type", dest="type_", metavar="TYPE",
         help="blocks, parent-child (TASK is the child), related or discovered-from; blocks."),
    flag("--remove", "Take the dependency away, whatever its type where none is given."),
    FORCE,
    AS,
    JSON,
)  # fmt: skip
def dep(task: str, on: str, type_: str, remove: bool, force: bool, as_: str | None, json_: bool) -> None:
    """TASK waits for ON."""
    from sakti.tasks import service

    show(change(service.depend, json_, as_, task, on, type_, add=not remove, force=force), json_)


@command("link", TASK, arg("message", metavar="MESSAGE", help="Its id."), AS, JSON)
def link(task: str, message: str, as_: str | None, json_: bool) -> None:
    """Link a message, by its id, to a task."""
    from sakti.tasks import service

    show(change(service.link, json_, as_, task, message), json_)


@command("label", TASK, arg("labels", metavar="LABEL", nargs="+"), flag("--remove", "Take them off."), FORCE, AS, JSON)
def label(task: str, labels: list[str], remove: bool, force: bool, as_: str | None, json_: bool) -> None:
    """Put labels on a task, or take them off."""
    from sakti.tasks import service

    add, drop = ([], labels) if remove else (labels, [])
    show(change(service.set_labels, json_, as_, task, add, drop, force=force), json_)


@command("delete", TASK, FORCE, AS, JSON)
def delete(task: str, force: bool, as_: str | None, json_: bool) -> None:
    """Take a task from the board; `restore` and `undo` bring it back."""
    from sakti.tasks import service

    deleted, freed = change(service.delete, json_, as_, task, force=force)
    show_freed(deleted, freed, json_)


@command("restore", TASK, AS, JSON)
def restore(task: str, as_: str | None, json_: bool) -> None:
    """Bring back a deleted task, or the whole text of one that was shrunk with age."""
    from sakti.tasks import service

    show(change(service.restore, json_, as_, task), json_)


@command("undo", arg("count", metavar="N", nargs="?", type=whole(1), default=1, help="How many changes; 1."), AS, JSON)
def undo(count: int, as_: str | None, json_: bool) -> None:
    """Take back the last N changes of this workspace, whoever made them."""
    from sakti.tasks import queries, service

    done = change(service.undo, json_, as_, count)
    if json_:
        common.say_json({"success": True, "undone": [{"action": a, "task": queries.describe(t)} for a, t in done]})
        return
    _say_undone(done)


def _say_undone(done: Sequence[tuple[str, Task]]) -> None:
    """Name what was taken back; an import, which is many, by its number."""
    from sakti.tasks import queries

    imported = [task for action, task in done if action == "import"]
    if len(imported) > FEW:
        common.say(f"undone: import of {len(imported)} tasks")
    for action, task in done:
        if action != "import" or len(imported) <= FEW:
            common.say(f"undone: {action} {line(queries.describe(task))}")
