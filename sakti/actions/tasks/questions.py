"""Declare the actions that read the board."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from sakti.actions.spec import action, arg, flag, limit, option
from sakti.actions.tasks.changes import AS, TASK, TYPE_HELP, TYPES, describe_notes, format_task, report_claim
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

    listed = await scope.ask(task_queries.list_ready, limit)
    return _list_tasks(listed, f"{listed['readyCount']} ready, {listed['blockedCount']} blocked")


def _list_tasks(listed: Json, *more: str) -> Text:
    return Text((*map(format_task, listed["tasks"]), *more), json={"success": True, **listed})


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
    listed = await scope.ask(task_queries.list_tasks, status="all" if all else status, **asked)
    if not listed["total"]:
        return _list_tasks(listed, "No tasks. `sakti tasks create TITLE` creates one.")
    left_out = listed["total"] > len(listed["tasks"])
    return _list_tasks(listed, *([f"{len(listed['tasks'])} of {listed['total']}"] if left_out else []))


@action(TASK, shell="tasks show")
async def show(scope: Scope, task: str) -> Value:
    """Show one task: its blockers, dependencies and messages about it."""
    card = await scope.ask(task_queries.show_task, task)
    about = card["task"]
    out = [format_task(about), *(f"\n{about[name]}" for name in ("description", "summary") if about.get(name))]
    out += [f"{key}: {value}" for key, value in about.get("metadata", {}).items()]
    if card["isBlocked"]:
        out.append("\nblocked by")
        out += [
            f"  {format_task(x)}" + (f"  (via {x['via']})" if "via" in x else "") for x in card["blockingTasks"]
        ]  # fmt: skip
    out += [f"  {x['task']} {x['type']} {x['dependsOn']} ({x['status']})" for x in card["dependencies"]]
    out += [f"  {m['role']}: {m['text'][:100]}" for m in card["messages"]]
    return Text(tuple(out), json={"success": True, **card})


@action(arg("query", many=True), limit(10), flag("--messages", help="Include messages about them."),
         shell="tasks search")  # fmt: skip
async def search(scope: Scope, query: list[str], limit: int, messages: bool) -> Value:
    """Search tasks by title, description and summary."""
    text = " ".join(query)
    if not text.strip():
        raise TaskError("Write the words to search for: of a title, a summary, a file.", code="invalid")
    listed = await scope.ask(task_queries.search, text, limit, messages)
    texts = [f"  {m['role']}: {m['text']}" for m in listed.get("messages", ())]
    return _list_tasks(listed, *texts, *([] if listed["tasks"] else ["nothing found"]))


@action(TASK, shell="tasks explain")
async def explain(scope: Scope, task: str) -> Value:
    """Show the shortest chain from a task to one that can be started now."""
    explained = await scope.ask(task_queries.explain, task)
    out: list[str] = []
    for depth, step in enumerate(explained["chain"]):
        why = f"waits for ({step['because']}) " if step["because"] else ""
        out.append(f"{'  ' * depth}{why}{format_task(step)}")
    return Text(tuple(out), json={"success": True, **explained})


@action(TASK, shell="tasks tree", chat="tasks tree")
async def tree(scope: Scope, task: str) -> Value:
    """Show everything a task waits for and everything that waits for it."""
    branches = await scope.ask(task_queries.build_tree, task)
    tasks = [task_queries.describe(b.task) for b in branches]
    lines = tuple(
        f"{'  ' * b.depth}{f'{b.relation} ' if b.relation else ''}{format_task(t)}{'  (see above)' if b.again else ''}"
        for b, t in zip(branches, tasks, strict=True)
    )
    described = [
        {"depth": b.depth, "relation": b.relation, **t, "isBlocked": b.held}
        for b, t in zip(branches, tasks, strict=True)
    ]
    return Rows(lines, "branches", tuple(branches), json={"success": True, "task": tasks[0], "tree": described})


@action(TASK, chat="tasks said", needs="session")
async def show_messages(scope: Scope, task: str) -> Value:
    """Show messages about a task."""
    views = scope.session.views
    related = await views.task_messages((await scope.ask(task_queries.build_tree, task))[0].task.id)
    return Rows(tuple(m.text for m in related), "messages", tuple(related), "No message mentions it.")


@action(shell="tasks board", chat="tasks", summary="the task board")
async def board(scope: Scope) -> Value:
    """Show the board: in progress, ready, blocked and by what, done today."""

    async def columns() -> Value:
        now = datetime.datetime.fromtimestamp(scope.now() / 1000)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        contents = await scope.ask(task_queries.load_board, int(midnight.timestamp() * 1000))
        described = {"success": True, **to_builtins(contents)}
        return Rows(
            _format_columns(contents),
            "board",
            (contents,),
            tail=_explain_changes() if scope.live else "",
            json=described,
        )

    return Open("board", fallback=columns)


def _explain_changes() -> str:
    """Return the explanation of how to change the board in a chat."""
    written = chat_line.describe_forms(registry.find_subcommands("tasks"))
    return f"/tasks {written}; add ! (close!) to change a task that another thread has claimed"


def _format_columns(board: Board) -> tuple[str, ...]:
    ready_, blocked, working, done = board.counts or (0, 0, 0, 0)
    out: list[str] = []
    for title, count, cards, sign in (
        ("In progress", working, board.in_progress, "▶"),
        ("Ready", ready_, board.ready, "·"),
        ("Blocked", blocked, board.blocked, "✗"),
        ("Waiting for children", board.container_count, board.containers, "◦"),
        ("Done today", done, board.closed_today, "✓"),
    ):
        if title.startswith("Waiting") and not count:
            continue
        out.append(f"{title}  {count}")
        out += [f"  {sign} {card.handle}  P{card.priority} {card.title}{describe_notes(card)}" for card in cards]
        out += [f"  and {count - len(cards)} more"] if count > len(cards) else []
    return tuple(out)
