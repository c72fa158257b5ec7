"""`sakti tasks`: the board from a shell. Exit code 1 when something is refused, 2 when it was called wrongly.

Agents and scripts call it often, so a question costs no more than its answer: the line is read by argparse, not by
typer (whose checks bring pydantic), and what only reads opens the database without an event loop.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sakti.cli import common
from sakti.core.errors import TaskError

if TYPE_CHECKING:
    from sakti.store.database import Store
    from sakti.store.tasks import Task
    from sakti.tasks.service import Actor

HELP = "The task board."
SIGNS = {"open": "·", "in_progress": "▶", "closed": "✓"}


# --- the command line -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Argument:
    """What `ArgumentParser.add_argument` takes."""

    names: tuple[str, ...]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """`run` is called with the arguments by name; its docstring is the help."""

    run: Callable[..., None]
    arguments: tuple[Argument, ...]


COMMANDS: dict[str, Command] = {}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        common.fail(f"{message}. `{self.prog} --help` shows how it is written.", common.USAGE)


def _arg(*names: str, **options: Any) -> Argument:
    return Argument(names, options)


def _flag(name: str, help: str = "") -> Argument:
    return _arg(name, action="store_true", help=help)


def _whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """A whole number within bounds."""

    def check(text: str) -> int:
        if text.lstrip("-").isdecimal() and int(text) >= low and (high is None or int(text) <= high):
            return int(text)
        bounds = f"{low} to {high}" if high is not None else f"{low} or more"
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, {bounds}")

    return check


def _limit(default: int) -> Argument:
    return _arg("--limit", type=_whole(1), default=default, metavar="N", help=f"At most so many; {default}.")


JSON = _arg("--json", dest="json_", action="store_true", help="One JSON object on standard output.")
AS = _arg("--as", dest="as_", metavar="ACTOR", help="Who acts; SAKTI_ACTOR, else you.")
TASK = _arg("task", metavar="TASK", help="A handle, an id, or the beginning of one.")
TYPE_HELP = "bug, feature, task, epic or chore."


def _command(name: str, *arguments: Argument) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(run: Callable[..., None]) -> Callable[..., None]:
        COMMANDS[name] = Command(run, arguments)
        return run

    return register


def run(argv: Sequence[str]) -> None:
    """`sakti tasks …`; ends in SystemExit where something is refused or was written wrongly."""
    if not argv or argv[0] in ("-h", "--help"):
        _say_help()
        raise SystemExit(common.OK if argv else common.USAGE)
    name, *rest = argv
    command = COMMANDS.get(name)
    if command is None:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"Did you mean `sakti tasks {near[0]}`?" if near else "`sakti tasks --help` shows the commands."
        common.fail(f"There is no command `sakti tasks {name}`. {hint}", common.USAGE)
    parser = _Parser(f"sakti tasks {name}", description=command.run.__doc__, allow_abbrev=False)
    for argument in command.arguments:
        parser.add_argument(*argument.names, **argument.options)
    read = parser.parse_args if "--" in rest else parser.parse_intermixed_args  # each knows what the other does not
    command.run(**vars(read(rest)))


def _say_help() -> None:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {(c.run.__doc__ or '').splitlines()[0]}" for name, c in COMMANDS.items()]
    common.say("\n".join(["Usage: sakti tasks COMMAND …", "", f"{HELP} COMMAND --help tells more.", "", *lines]))


# --- what the commands share ------------------------------------------------------------------------------


def _actor(name: str | None) -> Actor:
    from sakti.tasks.service import SHELL_CLAIM_MS, Actor

    who = name or os.environ.get("SAKTI_ACTOR") or os.environ.get("USER") or "shell"
    now = int(time.time() * 1000)
    return Actor(str(common.workspace()), f"shell:{who}", now, name=who, lease_ms=SHELL_CLAIM_MS)


def _refuse(error: TaskError, as_json: bool, exit_code: int = common.FAILED) -> NoReturn:
    if as_json:
        common.say_json({"success": False, "error": error.message, "code": error.code})
        raise SystemExit(exit_code)
    common.fail(error.message, exit_code)


def _change(fn: Callable[..., Any], as_json: bool, name: str | None, *args: Any, **kwargs: Any) -> Any:
    """One change, in a transaction; a refusal is printed and ends the program with 1."""

    async def work(store: Store) -> Any:
        try:
            return await store.write(fn, _actor(name), *args, **kwargs)
        except TaskError as e:
            return e

    result = common.with_store(work)
    return _refuse(result, as_json) if isinstance(result, TaskError) else result


def _ask(fn: Callable[..., Any], as_json: bool, *args: Any, **kwargs: Any) -> Any:
    """One question; a refusal is printed and ends the program with 1."""
    with common.plain_errors():
        try:
            return common.ask(fn, str(common.workspace()), *args, **kwargs)
        except TaskError as e:
            _refuse(e, as_json)


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


def _show_freed(task: Task, freed: tuple[Task, ...], as_json: bool) -> None:
    from sakti.tasks.queries import describe

    _show(task, as_json, {"unblocked": [describe(t) for t in freed]})
    if freed and not as_json:
        common.say(f"unblocked: {', '.join(t.handle for t in freed)}")


# --- the commands -----------------------------------------------------------------------------------------


@_command("ready", _limit(20), _flag("--claim", "Take the first one at once."), AS, JSON)
def ready(limit: int, claim: bool, as_: str | None, json_: bool) -> None:
    """What can be started now, most urgent first."""
    if claim:
        from sakti.tasks import service

        claimed, _ = _change(service.claim_next, json_, as_)
        _show(claimed, json_)
        return
    from sakti.tasks import queries

    found = _ask(queries.ready, json_, limit)
    _show_all(found, json_)
    if not json_:
        common.say(f"{found['readyCount']} ready, {found['blockedCount']} blocked")


@_command(
    "list",
    _arg("--status", choices=("open", "in_progress", "closed", "all"), help="Not closed, where none is given."),
    _arg("-t", "--type", dest="type_", metavar="TYPE", help=TYPE_HELP),
    _arg("-l", "--label", metavar="LABEL"),
    _arg("--assignee", metavar="NAME"),
    _flag("--all", "Closed ones too."),
    _limit(100),
    _arg("--offset", type=_whole(0), default=0, metavar="N", help="Leave out so many."),
    JSON,
)
def list_(
    status: str | None,
    type_: str | None,
    label: str | None,
    assignee: str | None,
    all: bool,
    limit: int,
    offset: int,
    json_: bool,
) -> None:
    """Tasks that are not closed, most urgent first."""
    from sakti.tasks import queries

    status = "all" if all else status
    found = _ask(
        queries.list_tasks,
        json_,
        status=status,
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


@_command("show", TASK, JSON)
def show(task: str, json_: bool) -> None:
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


@_command(
    "search",
    _arg("query", metavar="QUERY", nargs="+"),
    _limit(10),
    _flag("--messages", "What was said about it, too."),
    JSON,
)
def search(query: list[str], limit: int, messages: bool, json_: bool) -> None:
    """Tasks whose title, description or summary match."""
    from sakti.tasks import queries

    found = _ask(queries.search, json_, " ".join(query), limit, messages)
    _show_all(found, json_)
    if not json_:
        for message in found.get("messages", ()):
            common.say(f"  {message['role']}: {message['text']}")
        if not found["tasks"]:
            common.say("nothing found")


@_command("explain", TASK, JSON)
def explain(task: str, json_: bool) -> None:
    """The shortest chain from a task to something that can be started now."""
    from sakti.tasks import queries

    found = _ask(queries.explain, json_, task)
    if json_:
        common.say_json({"success": True, **found})
        return
    for depth, step in enumerate(found["chain"]):
        why = f"waits for ({step['because']}) " if step["because"] else ""
        common.say(f"{'  ' * depth}{why}{_line(step)}")


@_command("tree", TASK, JSON)
def tree(task: str, json_: bool) -> None:
    """What a task waits for and what waits for it, all the way."""
    from sakti.tasks import queries

    found = _ask(queries.tree, json_, task)
    if json_:
        lines = [
            {"depth": b.depth, "relation": b.relation, **queries.describe(b.task), "isBlocked": b.held} for b in found
        ]
        common.say_json({"success": True, "task": queries.describe(found[0].task), "tree": lines})
        return
    for branch in found:
        relation = f"{branch.relation} " if branch.relation else ""
        again = "  (see above)" if branch.again else ""
        common.say(f"{'  ' * branch.depth}{relation}{_line(queries.describe(branch.task))}{again}")


@_command("board", JSON)
def board(json_: bool) -> None:
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


@_command(
    "create",
    _arg("title", metavar="TITLE"),
    _arg("-d", "--description", default="", metavar="TEXT"),
    _arg("-p", "--priority", type=_whole(0, 4), default=2, metavar="N", help="0, most urgent, to 4; 2."),
    _arg("-t", "--type", dest="type_", default="task", metavar="TYPE", help=TYPE_HELP),
    _arg("--parent", metavar="TASK", help="The task that this one is a part of."),
    _arg("--depends-on", action="append", default=[], metavar="TASK", help="Waits for this one; may be repeated."),
    _arg("-l", "--label", action="append", default=[], metavar="LABEL", help="May be repeated."),
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
    as_: str | None,
    json_: bool,
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
        labels=label,
        parent=parent,
        depends_on=depends_on,
    )
    _show(task, json_)


@_command("claim", TASK, AS, JSON)
def claim(task: str, as_: str | None, json_: bool) -> None:
    """Take a task; it is in progress until it is released or closed, or for 24 hours."""
    from sakti.tasks import service

    claimed, _ = _change(service.claim, json_, as_, task)
    _show(claimed, json_)


@_command("release", TASK, AS, JSON)
def release(task: str, as_: str | None, json_: bool) -> None:
    """Give a claimed task back."""
    from sakti.tasks import service

    _show(_change(service.release, json_, as_, task), json_)


@_command(
    "close",
    TASK,
    _arg("-s", "--summary", required=True, metavar="TEXT", help="What was done, and in which files."),
    _arg("--reason", default="completed", metavar="REASON", help="completed, wontfix or duplicate."),
    _flag("--force", "Although something blocks it, or a child is open."),
    AS,
    JSON,
)
def close(task: str, summary: str, reason: str, force: bool, as_: str | None, json_: bool) -> None:
    """Close a task with a summary."""
    from sakti.tasks import service

    closed, freed = _change(service.close, json_, as_, task, reason, summary, force=force)
    _show_freed(closed, freed, json_)


@_command("reopen", TASK, AS, JSON)
def reopen(task: str, as_: str | None, json_: bool) -> None:
    """Open a closed task again."""
    from sakti.tasks import service

    _show(_change(service.reopen, json_, as_, task), json_)


@_command(
    "update",
    TASK,
    _arg("--title", metavar="TEXT"),
    _arg("-d", "--description", metavar="TEXT"),
    _arg("-p", "--priority", type=_whole(0, 4), metavar="N", help="0, most urgent, to 4."),
    _arg("-t", "--type", dest="type_", metavar="TYPE", help=TYPE_HELP),
    _arg("--assignee", metavar="NAME"),
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
    as_: str | None,
    json_: bool,
) -> None:
    """Change the fields of a task."""
    from sakti.tasks import service

    given = {"title": title, "description": description, "priority": priority, "type": type_, "assignee": assignee}
    changes = {k: v for k, v in given.items() if v is not None}
    if not changes:
        common.fail("nothing to change: give --title, --description, --priority, --type or --assignee.", common.USAGE)
    _show(_change(service.update, json_, as_, task, changes), json_)


@_command(
    "dep",
    TASK,
    _arg("on", metavar="ON", help="The task that it waits for."),
    _arg("--type", dest="type_", metavar="TYPE",
         help="blocks, parent-child (TASK is the child), related or discovered-from; blocks."),
    _flag("--remove", "Take the dependency away, whatever its type where none is given."),
    AS,
    JSON,
)  # fmt: skip
def dep(task: str, on: str, type_: str, remove: bool, as_: str | None, json_: bool) -> None:
    """TASK waits for ON."""
    from sakti.tasks import service

    _show(_change(service.depend, json_, as_, task, on, type_, add=not remove), json_)


@_command("link", TASK, _arg("message", metavar="MESSAGE", help="Its id."), AS, JSON)
def link(task: str, message: str, as_: str | None, json_: bool) -> None:
    """Link a message, by its id, to a task."""
    from sakti.tasks import service

    _show(_change(service.link, json_, as_, task, message), json_)


@_command("label", TASK, _arg("labels", metavar="LABEL", nargs="+"), _flag("--remove", "Take them off."), AS, JSON)
def label(task: str, labels: list[str], remove: bool, as_: str | None, json_: bool) -> None:
    """Put labels on a task, or take them off."""
    from sakti.tasks import service

    add, drop = ([], labels) if remove else (labels, [])
    _show(_change(service.set_labels, json_, as_, task, add, drop), json_)


@_command("delete", TASK, AS, JSON)
def delete(task: str, as_: str | None, json_: bool) -> None:
    """Take a task from the board; `restore` and `undo` bring it back."""
    from sakti.tasks import service

    deleted, freed = _change(service.delete, json_, as_, task)
    _show_freed(deleted, freed, json_)


@_command("restore", TASK, AS, JSON)
def restore(task: str, as_: str | None, json_: bool) -> None:
    """Bring back a deleted task, or the whole text of one that was shrunk with age."""
    from sakti.tasks import service

    _show(_change(service.restore, json_, as_, task), json_)


@_command(
    "undo", _arg("count", metavar="N", nargs="?", type=_whole(1), default=1, help="How many changes; 1."), AS, JSON
)
def undo(count: int, as_: str | None, json_: bool) -> None:
    """Take back the last N changes of this workspace, whoever made them."""
    from sakti.tasks import queries, service

    done = _change(service.undo, json_, as_, count)
    if json_:
        common.say_json({"success": True, "undone": [{"action": a, "task": queries.describe(t)} for a, t in done]})
        return
    for action, task in done:
        common.say(f"undone: {action} {_line(queries.describe(task))}")


@_command("export", _arg("path", metavar="FILE", nargs="?", type=Path, help="Standard output where none is given."))
def export(path: Path | None) -> None:
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


@_command("import", _arg("path", metavar="FILE", type=Path, help="JSON Lines; - is standard input."), AS, JSON)
def import_(path: Path, as_: str | None, json_: bool) -> None:
    """Bring in tasks of an export; what is there already stays as it is."""
    from sakti.tasks import transfer

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        common.fail(f"{path} cannot be read: {e}.", common.USAGE)
    done = _change(transfer.bring_in, json_, as_, text.splitlines())
    if json_:
        values = {"tasks": done.tasks, "dependencies": done.dependencies, "known": done.known}
        common.say_json({"success": True, **values})
    else:
        common.say(f"{done.tasks} tasks and {done.dependencies} dependencies; {done.known} were there already")


def import_beads(path: Path, *, dry_run: bool, as_: str | None, json_: bool) -> None:
    """`sakti import beads`."""
    from sakti.core.clock import SystemClock
    from sakti.core.ids import TimeIds
    from sakti.tasks import beads

    try:
        issues = beads.read(path)
    except TaskError as e:
        _refuse(e, json_, common.USAGE if e.code == "no_input" else common.FAILED)
    try:
        report = _change(beads.bring_in, json_, as_, TimeIds(SystemClock()), issues, dry_run)
    except beads.DryRun as e:
        report = e.report
    if json_:
        common.say_json({"success": True, "dryRun": dry_run, **beads.describe(report)})
        return
    for name, why in (*report.skipped, *report.notes):
        common.say(f"{name}: {why}")
    for cycle in report.cycles:
        common.say(f"left out, it would be a cycle: {' → '.join(cycle)}")
    begin = "Would be: " if dry_run else ""
    common.say(
        f"{begin}{report.imported} imported, {report.updated} updated, {report.unchanged} unchanged,"
        f" {len(report.skipped)} skipped; {report.dependencies} dependencies, {len(report.cycles)} cycles refused"
    )
