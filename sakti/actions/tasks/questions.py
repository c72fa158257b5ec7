"""Declare the actions that read the board."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from sakti.actions.spec import action, arg, flag, limit, option
from sakti.actions.tasks.changes import AS, TASK, TYPE_HELP, TYPES, line, notes, report_claim
from sakti.actions.values import Open, Rows, Text, Value
from sakti.core.errors import TaskError
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.core.types import Json
    from sakti.tasks.queries import Board


with lazy_imports:
    from sakti.actions import line as chat_line
    from sakti.actions import registry
    from sakti.tasks import queries as task_queries
    from sakti.tasks import service as task_service

STATUSES = ("open", "ready", "blocked", "in_progress", "closed", "all")


@action(limit(20), flag("--claim", help="Claim the first one."), AS, shell="tasks ready")
async def ready(scope: Scope, limit: int, claim: bool, as_: str | None) -> Value:
    """List tasks that can be started now, most urgent first."""
    if claim:
        return report_claim(await scope.change(task_service.claim_next, as_))

    found = await scope.ask(task_queries.ready, limit)
    return _list_tasks(found, f"{found['readyCount']} ready, {found['blockedCount']} blocked")


def _list_tasks(found: Json, *more: str) -> Text:
    return Text((*map(line, found["tasks"]), *more), json={"success": True, **found})


@action(
    option("--status", choices=STATUSES, metavar="STATUS", help=f"{', '.join(STATUSES)} (default: not closed)."),
    option("-t", "--type", metavar="TYPE", help=TYPE_HELP, choices=TYPES),
    option("-l", "--label", metavar="LABEL"),
    option("--assignee", metavar="NAME"),
    flag("--all", help="Include closed tasks."),
    limit(100),
    option("--offset", kind="whole", low=0, default=0, metavar="N", help="Skip the first N."),
    shell="tasks list",
)
async def list_(scope: Scope, status: str | None, all: bool, **asked: Any) -> Value:
    """List tasks that are not closed, most urgent first."""
    found = await scope.ask(task_queries.list_tasks, status="all" if all else status, **asked)
    if not found["total"]:
        return _list_tasks(found, "No tasks. `sakti tasks create TITLE` creates one.")
    left_out = found["total"] > len(found["tasks"])
    return _list_tasks(found, *([f"{len(found['tasks'])} of {found['total']}"] if left_out else []))


@action(TASK, shell="tasks show")
async def show(scope: Scope, task: str) -> Value:
    """Show one task: its blockers, dependencies and messages about it."""
    found = await scope.ask(task_queries.show_task, task)
    about = found["task"]
    out = [line(about), *(f"\n{about[name]}" for name in ("description", "summary") if about.get(name))]
    out += [f"{key}: {value}" for key, value in about.get("metadata", {}).items()]
    if found["isBlocked"]:
        out.append("\nblocked by")
        out += [
            f"  {line(x)}" + (f"  (via {x['via']})" if "via" in x else "") for x in found["blockingTasks"]
        ]  # fmt: skip
    out += [f"  {x['task']} {x['type']} {x['dependsOn']} ({x['status']})" for x in found["dependencies"]]
    out += [f"  {m['role']}: {m['text'][:100]}" for m in found["messages"]]
    return Text(tuple(out), json={"success": True, **found})


@action(arg("query", many=True), limit(10), flag("--messages", help="Include messages about them."),
         shell="tasks search")  # fmt: skip
async def search(scope: Scope, query: list[str], limit: int, messages: bool) -> Value:
    """Search tasks by title, description and summary."""
    text = " ".join(query)
    if not text.strip():
        raise TaskError("Write the words to search for: of a title, a summary, a file.", code="invalid")
    found = await scope.ask(task_queries.search, text, limit, messages)
    said = [f"  {m['role']}: {m['text']}" for m in found.get("messages", ())]
    return _list_tasks(found, *said, *([] if found["tasks"] else ["nothing found"]))


@action(TASK, shell="tasks explain")
async def explain(scope: Scope, task: str) -> Value:
    """Show the shortest chain from a task to one that can be started now."""
    found = await scope.ask(task_queries.explain, task)
    out: list[str] = []
    for depth, step in enumerate(found["chain"]):
        why = f"waits for ({step['because']}) " if step["because"] else ""
        out.append(f"{'  ' * depth}{why}{line(step)}")
    return Text(tuple(out), json={"success": True, **found})


@action(TASK, shell="tasks tree", chat="tasks tree")
async def tree(scope: Scope, task: str) -> Value:
    """Show everything a task waits for and everything that waits for it."""
    found = await scope.ask(task_queries.build_tree, task)
    tasks = [task_queries.describe(b.task) for b in found]
    lines = tuple(
        f"{'  ' * b.depth}{f'{b.relation} ' if b.relation else ''}{line(t)}{'  (see above)' if b.again else ''}"
        for b, t in zip(found, tasks, strict=True)
    )
    told = [
        {"depth": b.depth, "relation": b.relation, **t, "isBlocked": b.held} for b, t in zip(found, tasks, strict=True)
    ]
    return Rows(lines, "branches", tuple(found), json={"success": True, "task": tasks[0], "tree": told})


@action(TASK, chat="tasks said", needs="session")
async def show_messages(scope: Scope, task: str) -> Value:
    """Show messages about a task."""
    views = scope.session.views
    found = await views.task_messages((await scope.ask(task_queries.build_tree, task))[0].task.id)
    return Rows(tuple(m.text for m in found), "messages", tuple(found), "No message mentions it.")


@action(shell="tasks board", chat="tasks", summary="the task board")
async def board(scope: Scope) -> Value:
    """Show the board: in progress, ready, blocked and by what, done today."""

    async def columns() -> Value:
        now = datetime.datetime.fromtimestamp(scope.now() / 1000)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        found = await scope.ask(task_queries.load_board, int(midnight.timestamp() * 1000))
        told = {"success": True, **to_builtins(found)}
        return Rows(_columns(found), "board", (found,), tail=_changes() if scope.live else "", json=told)

    return Open("board", instead=columns)


def _changes() -> str:
    """Return how a chat changes the board."""
    written = chat_line.forms(registry.under("tasks"))
    return f"/tasks {written}; add ! (close!) to change a task that another thread has claimed"


def _columns(found: Board) -> tuple[str, ...]:
    ready_, blocked, working, done = found.counts or (0, 0, 0, 0)
    out: list[str] = []
    for title, count, cards, sign in (
        ("In progress", working, found.in_progress, "▶"),
        ("Ready", ready_, found.ready, "·"),
        ("Blocked", blocked, found.blocked, "✗"),
        ("Waiting for children", found.container_count, found.containers, "◦"),
        ("Done today", done, found.closed_today, "✓"),
    ):
        if title.startswith("Waiting") and not count:
            continue
        out.append(f"{title}  {count}")
        out += [f"  {sign} {card.handle}  P{card.priority} {card.title}{notes(card)}" for card in cards]
        out += [f"  and {count - len(cards)} more"] if count > len(cards) else []
    return tuple(out)
