"""The commands of `sakti tasks` that ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.cli import common
from sakti.cli.tasks.line import AS, JSON, TASK, TYPE_HELP, arg, command, flag, limit, whole
from sakti.cli.tasks.output import ask, change, children, line, refuse, show, show_all
from sakti.core.errors import TaskError

if TYPE_CHECKING:
    from sakti.tasks.board import BoardTask


@command("ready", limit(20), flag("--claim", "Take the first one at once."), AS, JSON)
def ready(limit: int, claim: bool, as_: str | None, json_: bool) -> None:
    """What can be started now, most urgent first."""
    if claim:
        from sakti.tasks import service

        claimed, _ = change(service.claim_next, json_, as_)
        show(claimed, json_)
        return
    from sakti.tasks import queries

    found = ask(queries.ready, json_, limit)
    show_all(found, json_)
    if not json_:
        common.say(f"{found['readyCount']} ready, {found['blockedCount']} blocked")


@command(
    "list",
    arg(
        "--status",
        choices=("open", "ready", "blocked", "in_progress", "closed", "all"),
        help="Not closed, where none is given.",
    ),
    arg("-t", "--type", dest="type_", metavar="TYPE", help=TYPE_HELP),
    arg("-l", "--label", metavar="LABEL"),
    arg("--assignee", metavar="NAME"),
    flag("--all", "Closed ones too."),
    limit(100),
    arg("--offset", type=whole(0), default=0, metavar="N", help="Skip the first N."),
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
    found = ask(
        queries.list_tasks,
        json_,
        status=status,
        type=type_,
        label=label,
        assignee=assignee,
        limit=limit,
        offset=offset,
    )
    show_all(found, json_)
    if not json_:
        if not found["total"]:
            common.say("No tasks. `sakti tasks create TITLE` makes one.")
        elif found["total"] > len(found["tasks"]):
            common.say(f"{len(found['tasks'])} of {found['total']}")


@command("show", TASK, JSON)
def show_(task: str, json_: bool) -> None:
    """One task: what blocks it, its dependencies, what was said about it."""
    from sakti.tasks import queries

    found = ask(queries.show, json_, task)
    if json_:
        common.say_json({"success": True, **found})
        return
    common.say(line(found["task"]))
    for name in ("description", "summary"):
        if found["task"].get(name):
            common.say(f"\n{found['task'][name]}")
    for key, value in found["task"].get("metadata", {}).items():
        common.say(f"{key}: {value}")
    if found["isBlocked"]:
        common.say("\nblocked by")
        for blocker in found["blockingTasks"]:
            common.say(f"  {line(blocker)}" + (f"  (via {blocker['via']})" if "via" in blocker else ""))
    for edge in found["dependencies"]:
        common.say(f"  {edge['task']} {edge['type']} {edge['dependsOn']} ({edge['status']})")
    for message in found["messages"]:
        common.say(f"  {message['role']}: {message['text'][:100]}")


@command(
    "search",
    arg("query", metavar="QUERY", nargs="+"),
    limit(10),
    flag("--messages", "What was said about it, too."),
    JSON,
)
def search(query: list[str], limit: int, messages: bool, json_: bool) -> None:
    """Tasks whose title, description or summary match."""
    from sakti.tasks import queries

    text = " ".join(query)
    if not text.strip():
        refuse(TaskError("Say what to search for: words of a title, a summary, a file.", code="invalid"), json_)
    found = ask(queries.search, json_, text, limit, messages)
    show_all(found, json_)
    if not json_:
        for message in found.get("messages", ()):
            common.say(f"  {message['role']}: {message['text']}")
        if not found["tasks"]:
            common.say("nothing found")


@command("explain", TASK, JSON)
def explain(task: str, json_: bool) -> None:
    """The shortest chain from a task to something that can be started now."""
    from sakti.tasks import queries

    found = ask(queries.explain, json_, task)
    if json_:
        common.say_json({"success": True, **found})
        return
    for depth, step in enumerate(found["chain"]):
        why = f"waits for ({step['because']}) " if step["because"] else ""
        common.say(f"{'  ' * depth}{why}{line(step)}")


@command("tree", TASK, JSON)
def tree(task: str, json_: bool) -> None:
    """What a task waits for and what waits for it, all the way."""
    from sakti.tasks import queries

    found = ask(queries.tree, json_, task)
    if json_:
        lines = [
            {"depth": b.depth, "relation": b.relation, **queries.describe(b.task), "isBlocked": b.held} for b in found
        ]
        common.say_json({"success": True, "task": queries.describe(found[0].task), "tree": lines})
        return
    for branch in found:
        relation = f"{branch.relation} " if branch.relation else ""
        again = "  (see above)" if branch.again else ""
        common.say(f"{'  ' * branch.depth}{relation}{line(queries.describe(branch.task))}{again}")


@command("board", JSON)
def board(json_: bool) -> None:
    """The columns: in progress, ready, blocked and by what, done today."""
    import dataclasses
    import datetime

    from sakti.tasks import queries

    midnight = datetime.datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
    found = ask(queries.board, json_, int(midnight.timestamp() * 1000))
    if json_:
        common.say_json({"success": True, **dataclasses.asdict(found)})
        return
    ready_, blocked, working, done = found.counts
    for title, count, cards, sign in (
        ("In progress", working, found.in_progress, "▶"),
        ("Ready", ready_, found.ready, "·"),
        ("Blocked", blocked, found.blocked, "✗"),
        ("Waiting for children", found.container_count, found.containers, "◦"),
        ("Done today", done, found.closed_today, "✓"),
    ):
        if title.startswith("Waiting") and not count:
            continue
        common.say(f"{title}  {count}")
        for card in cards:
            common.say(f"  {sign} {card.handle}  P{card.priority} {card.title}{_notes(card)}")
        if count > len(cards):
            common.say(f"  and {count - len(cards)} more")


def _notes(card: BoardTask) -> str:
    notes = [f"← {', '.join(card.blocked_by)}"] if card.blocked_by else []
    notes += [children(card.waits_for_children)] if card.waits_for_children else []
    notes += [f"{card.held_by}{', claim ended' if card.abandoned else ''}"] if card.held_by else []
    notes += ["ready to close"] if card.ready_to_close else []
    return f"  {'; '.join(notes)}" if notes else ""
