"""Declare the actions that change the board or transfer it, and the arguments that commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from sakti.actions import spec
from sakti.actions.scope import Scope
from sakti.actions.spec import Action, action, arg, flag, option
from sakti.actions.values import USAGE, Done, Refused, Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.streams import print_document, read_input
from sakti.core.text import encode_json_line, format_count, quote

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.agent.session.session import Session
    from sakti.core.types import Json
    from sakti.store.tasks.questions import Task
    from sakti.tasks.queries import BoardTask, Branch
    from sakti.tasks.transfer import ImportResult


with lazy_imports:
    from sakti.core import clock
    from sakti.store import secrets
    from sakti.tasks import queries as task_queries
    from sakti.tasks import service as task_service
    from sakti.tasks import transfer as task_transfer


AS = option("--as", name="as_", metavar="ACTOR", help="Who makes the change (default: SAKTI_ACTOR, else you).")
TASK = arg("task", "Handle, id, or the beginning of one.", offers="tasks")
FORCE = flag("--force", help="Do it even if someone else has claimed it.")
META = option("--meta", many=True, metavar="KEY=VALUE",
              help="Metadata; may be repeated; an empty value removes the key.")  # fmt: skip
TYPES = ("bug", "feature", "task", "epic", "chore")
TYPE_HELP = f"{', '.join(TYPES[:-1])} or {TYPES[-1]}."
STATUS_SYMBOLS = {"open": "·", "in_progress": "▶", "closed": "✓"}


def read_metadata(pairs: Sequence[str]) -> dict[str, str]:
    """Return the values of `--meta KEY=VALUE` by key. Raises `Refused`."""
    metadata: dict[str, str] = {}
    for text in pairs:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise Refused(f"--meta: {quote(text)} is not KEY=VALUE.", code=USAGE)
        metadata[key.strip()] = value
    return metadata


def format_task(task: Json) -> str:
    """Format a task as one line, with its blockers and holder."""
    more = f"  [{', '.join(task['labels'])}]" if task.get("labels") else ""
    more += f"  ← {', '.join(task['blockedBy'])}" if task.get("blockedBy") else ""
    more += f"  ({describe_children(task['waitsForChildren'])})" if task.get("waitsForChildren") else ""
    more += "  (ready to close)" if task.get("readyToClose") else ""
    if task.get("claimedBy"):
        more += f"  {task['claimedBy']}{', claim ended' if task.get('claimEnded') else ''}"
    urgent = f", for P{task['forPriority']} {task['for']}" if "for" in task else ""
    head = f"{STATUS_SYMBOLS[task['status']]} {task['handle']}  P{task['priority']}{urgent} {task['type']:<7}"
    return f"{head} {task['title']}{more}"


def describe_children(count: int) -> str:
    """Describe the wait of a container: `waits for its 3 children`."""
    return f"waits for its {count} children" if count > 1 else "waits for its child"


def describe_notes(card: BoardTask) -> str:
    """Return the notes after a card's title."""
    parts = [f"for {card.urgent_for}"] if card.urgent_for else []
    parts += [f"← {', '.join(card.blocked_by)}"] if card.blocked_by else []
    parts += [describe_children(card.waits_for_children)] if card.waits_for_children else []
    parts += [f"{card.held_by}{', claim ended' if card.abandoned else ''}"] if card.held_by else []
    parts += ["ready to close"] if card.ready_to_close else []
    return f"  {'; '.join(parts)}" if parts else ""


FEW = 5


def report_change(
    task: Task, sentence: str = "", freed: tuple[Task, ...] | None = None, *, more: str = "", line: str = ""
) -> Done:
    """Report a changed task and the tasks that it unblocked.

    `more` ends the sentence; a shell prints `line` instead of the task.
    """
    values = secrets.mask_output(task_queries.describe(task))
    handles = ", ".join(t.handle for t in freed or ())
    shell = (line or format_task(values), *([f"unblocked: {handles}"] if freed else []))
    unblocked = {} if freed is None else {"unblocked": [secrets.mask_output(task_queries.describe(t)) for t in freed]}
    sentences = (sentence or f"{task.handle} was changed.", f"Unblocked: {handles}." if freed else "", more)
    return Done(" ".join(s for s in sentences if s), shell=shell, json={"success": True, "task": values, **unblocked})


def report_claim(claimed: tuple[Task, str | None]) -> Done:
    return report_change(claimed[0], f"{claimed[0].handle} is yours.")


@action(
    arg("title"),
    option("-d", "--description", default="", metavar="TEXT"),
    option("-p", "--priority", kind="whole", low=0, high=4, default=2, metavar="N",
           help="0 (most urgent) to 4 (default 2)."),
    option("-t", "--type", default="task", metavar="TYPE", help=TYPE_HELP, choices=TYPES),
    option("--parent", metavar="TASK", help="The parent task.", offers="tasks"),
    option("--depends-on", many=True, metavar="TASK", help="Task that this one waits for; may be repeated.",
        offers="tasks"),
    option("-l", "--label", many=True, metavar="LABEL", help="May be repeated."),
    option("--assignee", metavar="NAME"),
    META,
    AS,
    shell="tasks create",
    chat="tasks create",
)  # fmt: skip
async def create(scope: Scope, title: str, label: list[str], meta: list[str], as_: str | None, **fields: Any) -> Value:
    """Create a task."""
    task_id = clock.TimeIds(clock.SystemClock()).new()
    task = await scope.change(
        task_service.create,
        as_,
        task_service.NewTask(task_id, title, labels=label, metadata=read_metadata(meta), **fields),
    )
    return report_change(task, f"{task.handle} was created.")


@action(TASK, AS, shell="tasks claim", chat="tasks claim")
async def claim(scope: Scope, task: str, as_: str | None) -> Value:
    """Claim a task; it is in progress until it is released or closed, for 24 hours at most."""
    return report_claim(await scope.change(task_service.claim, as_, task))


@action(TASK, FORCE, AS, shell="tasks release", chat="tasks release")
async def release(scope: Scope, task: str, force: bool, as_: str | None) -> Value:
    """Release a claimed task."""
    free = await scope.change(task_service.release, as_, task, force=force)
    return report_change(free, f"{free.handle} is open again.")


@action(
    TASK,
    option(
        "-s", "--summary", required=True, in_chat=True, metavar="SUMMARY", help="What was done, and in which files."
    ),
    option("--reason", default="completed", choices=("completed", "wontfix", "duplicate"), help="Why it is closed."),
    flag(
        "--force",
        help="Close it even if it is blocked or claimed by someone else; an epic closes with its open children.",
    ),
    AS,
    shell="tasks close",
    chat="tasks close",
)
async def close(scope: Scope, task: str, summary: str, reason: str, force: bool, as_: str | None) -> Value:
    """Close a task with a summary."""
    closed, freed = await scope.change(task_service.close, as_, task, reason, summary, force=force)
    return report_change(closed, f"{closed.handle} is closed.", freed)


@action(TASK, AS, shell="tasks reopen", chat="tasks reopen")
async def reopen(scope: Scope, task: str, as_: str | None) -> Value:
    """Reopen a closed task."""
    again = await scope.change(task_service.reopen, as_, task)
    return report_change(again, f"{again.handle} is open again.")


@action(
    TASK,
    option("--title", metavar="TEXT"),
    option("-d", "--description", metavar="TEXT"),
    option("-p", "--priority", kind="whole", low=0, high=4, metavar="N", help="0 (most urgent) to 4."),
    option("-t", "--type", metavar="TYPE", help=TYPE_HELP, choices=TYPES),
    option("--assignee", metavar="NAME"),
    META,
    FORCE,
    AS,
    shell="tasks update",
)
async def update(scope: Scope, task: str, meta: list[str], force: bool, as_: str | None, **fields: Any) -> Value:
    """Change the fields of a task."""
    changes = {k: v for k, v in fields.items() if v is not None}
    if meta:
        changes["metadata"] = {key: value or None for key, value in read_metadata(meta).items()}
    if not changes:
        options = "--title, --description, --priority, --type, --assignee or --meta"
        raise Refused(f"nothing to change: give {options}.", code=USAGE)
    return report_change(await scope.change(task_service.update, as_, task, changes, force=force))


@action(
    TASK,
    arg("on", "The task that it waits for.", offers="tasks"),
    option("--type", metavar="TYPE", choices=("blocks", "parent-child", "related", "discovered-from"),
           help="blocks, parent-child (TASK is the child), related or discovered-from (default: blocks)."),
    flag("--remove", help="Remove the dependency (of any type unless --type is given)."),
    FORCE,
    AS,
    shell="tasks dep",
    chat="tasks dep",
)  # fmt: skip
async def dep(scope: Scope, task: str, on: str, type: str | None, remove: bool, force: bool, as_: str | None) -> Value:
    """Make TASK wait for ON."""
    waits = await scope.change(task_service.depend, as_, task, on, type, add=not remove, force=force)
    return report_change(waits, f"{waits.handle} waits for {on}.")


@action(TASK, arg("message", "Its id."), AS, shell="tasks link")
async def link(scope: Scope, task: str, message: str, as_: str | None) -> Value:
    """Link a message, by its id, to a task."""
    return report_change(await scope.change(task_service.link, as_, task, message))


@action(TASK, arg("labels", many=True, metavar="LABEL"), flag("--remove", help="Remove the labels."), FORCE, AS,
        shell="tasks label")  # fmt: skip
async def label(scope: Scope, task: str, labels: list[str], remove: bool, force: bool, as_: str | None) -> Value:
    """Add labels to a task, or remove them."""
    add, drop = ([], labels) if remove else (labels, [])
    return report_change(await scope.change(task_service.set_labels, as_, task, add, drop, force=force))


@action(TASK, FORCE, AS, shell="tasks delete", chat="tasks delete")
async def delete(scope: Scope, task: str, force: bool, as_: str | None) -> Value:
    """Delete a task; `restore` or `undo` restores it."""
    gone, freed = await scope.change(task_service.delete, as_, task, force=force)
    sentence = f"{gone.handle} {quote(secrets.mask_secrets(gone.title))} was deleted."
    how = f"{sentence} `sakti tasks restore {gone.handle}` restores it."
    return report_change(gone, sentence, freed, more="Undo restores it.", line=how)


@action(TASK, AS, shell="tasks restore", chat="tasks restore")
async def restore(scope: Scope, task: str, as_: str | None) -> Value:
    """Restore a deleted task, or the full text of one that was shortened with age."""
    back = await scope.change(task_service.restore, as_, task)
    return report_change(back, f"{back.handle} was restored.")


@action(arg("count", "How many changes (default 1).", kind="whole", low=1, default=1, metavar="N"), AS,
        shell="tasks undo", chat="tasks undo")  # fmt: skip
async def undo(scope: Scope, count: int, as_: str | None) -> Value:
    """Undo the last N changes of this workspace, whoever made them."""
    done = await scope.change(task_service.undo_changes, as_, count)
    described = [(action, task_queries.describe(task)) for action, task in done]
    imported = sum(action == "import" for action, _ in done)
    first = [f"Undone: import of {imported} tasks"] if imported > FEW else []
    named = [(a, t) for a, t in described if a != "import" or imported <= FEW]
    return Done(
        "; ".join((*first, *(f"Undone: {a} {t['handle']}" for a, t in named))) + ".",
        shell=(*(x.lower() for x in first), *(f"undone: {a} {format_task(t)}" for a, t in named)),
        json={"success": True, "undone": [{"action": a, "task": t} for a, t in described]},
    )


_ACTIONS = {a.chat.partition(" ")[2]: a for a in list(globals().values()) if isinstance(a, Action) and a.chat}


async def change_task(session: Session, what: str, *words: str, force: bool = False) -> str:
    """Run `what` (such as "close") with arguments in the order of the chat's line.

    The user's claims are separate from the agent's; tasks claimed by another chat need `force`. Raises `TaskError`.
    """
    action = _ACTIONS[what]
    arguments: dict[str, Any] = {a.name: [] if a.many else a.default for a in action.args}
    arguments |= dict(zip((a.name for a in spec.list_chat_args(action)), words, strict=False))
    if force:
        arguments["force"] = True
    done = await action.run(Scope(session, lambda _: None), **arguments)
    assert isinstance(done, Done)
    return done.sentence


async def read_tree(session: Session, task_id: str) -> tuple[Branch, ...]:
    """Return a task and its neighbours in the graph, the task first. Raises TaskError."""
    return await session.workspace.store.read(task_queries.build_tree, session.workspace.resource_id, task_id)


@action(arg("path", "File to write (default: standard output).", metavar="FILE", kind="path", default=None),
        shell="tasks export", json=False)  # fmt: skip
async def export(scope: Scope, path: Path | None) -> Value | None:
    """Export all tasks as JSON Lines."""
    lines = await scope.ask(task_transfer.export)
    text = "".join(f"{encode_json_line(line)}\n" for line in lines)
    if path is None:
        if text:
            print_document(text.removesuffix("\n"))
        return None
    try:
        path.write_text(text, "utf-8")
    except OSError as e:
        raise Refused(f"{path} cannot be written: {e.strerror}.") from e
    return Done(f"{format_count(len(lines), 'task')} written to {path}.")


@action(arg("path", "JSON Lines; - for standard input.", metavar="FILE", kind="path"), AS, shell="tasks import")
async def import_(scope: Scope, path: Path, as_: str | None) -> Value:
    """Import the tasks of an export; tasks that were not changed here get newer versions."""
    if str(path) != "-" and path.exists() and not path.is_file():
        raise Refused(f"{path} is not a regular file.", code=USAGE)  # a device or a pipe may never end
    try:
        text = (read_input() if str(path) == "-" else path.read_bytes()).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        raise Refused(f"{path} cannot be read: {why}.", code=USAGE) from e
    return _describe_import(await scope.change(task_transfer.import_tasks, as_, task_transfer.split_lines(text)))


def _describe_import(done: ImportResult) -> Value:
    edges = format_count(done.dependencies, "dependency", "dependencies")
    updated = f"{done.updated:,} replaced by newer versions; " if done.updated else ""
    present = f"{format_count(done.known, 'was', 'were')} already there"
    belong = format_count(done.elsewhere, "task that belongs", "tasks that belong")
    others = f"skipped: {belong} to another workspace of this database"
    return Text(
        (
            *(f"skipped: {e.task} {e.type} {e.on}: {e.reason}" for e in done.left_out),
            *(f"skipped: {d.task}: {d.reason}" for d in done.differing),
            *[others] * bool(done.elsewhere),
            *(f"reopened: {epic}: it has open children" for epic in done.reopened),
            f"{format_count(done.tasks, 'task')} and {edges}; {updated}{present}",
        ),
        json={
            "success": True,
            "tasks": done.tasks,
            "dependencies": done.dependencies,
            "known": done.known,
            "updated": done.updated,
            "elsewhere": done.elsewhere,
            "differing": [to_builtins(d) for d in done.differing],
            "reopened": list(done.reopened),
            "leftOut": [to_builtins(e) for e in done.left_out],
        },
    )
