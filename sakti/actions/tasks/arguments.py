"""Arguments that several commands of the board have, and how a task looks in a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sakti.actions.spec import arg, flag, option
from sakti.actions.values import USAGE, Refused

if TYPE_CHECKING:
    from sakti.core.types import Json
    from sakti.tasks.queries import BoardTask

AS = option("--as", name="as_", metavar="ACTOR", help="Who makes the change (default: SAKTI_ACTOR, else you).")
TASK = arg("task", "Handle, id, or the beginning of one.", offers="tasks")
FORCE = flag("--force", help="Do it even if someone else has claimed it.")
META = option("--meta", many=True, metavar="KEY=VALUE",
              help="Metadata; may be repeated; an empty value removes the key.")  # fmt: skip
TYPES = ("bug", "feature", "task", "epic", "chore")
TYPE_HELP = f"{', '.join(TYPES[:-1])} or {TYPES[-1]}."
SIGNS = {"open": "·", "in_progress": "▶", "closed": "✓"}


def read_metadata(pairs: Sequence[str]) -> dict[str, str]:
    """Return the values of `--meta KEY=VALUE` by key. Raises `Refused`."""
    metadata: dict[str, str] = {}
    for text in pairs:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise Refused(f"--meta: {text!r} is not KEY=VALUE.", code=USAGE)
        metadata[key.strip()] = value
    return metadata


def line(task: Json) -> str:
    """Format a task as one line, with its blockers and holder."""
    more = f"  [{', '.join(task['labels'])}]" if task.get("labels") else ""
    more += f"  ← {', '.join(task['blockedBy'])}" if task.get("blockedBy") else ""
    more += f"  ({children(task['waitsForChildren'])})" if task.get("waitsForChildren") else ""
    more += "  (ready to close)" if task.get("readyToClose") else ""
    if task.get("claimedBy"):
        more += f"  {task['claimedBy']}{', claim ended' if task.get('claimEnded') else ''}"
    urgent = f", for P{task['forPriority']} {task['for']}" if "for" in task else ""
    head = f"{SIGNS[task['status']]} {task['handle']}  P{task['priority']}{urgent} {task['type']:<7}"
    return f"{head} {task['title']}{more}"


def children(count: int) -> str:
    """Format what a container waits for: `waits for its 3 children`."""
    return f"waits for its {count} children" if count > 1 else "waits for its child"


def notes(card: BoardTask) -> str:
    """Return the notes behind a card's title."""
    found = [f"for {card.urgent_for}"] if card.urgent_for else []
    found += [f"← {', '.join(card.blocked_by)}"] if card.blocked_by else []
    found += [children(card.waits_for_children)] if card.waits_for_children else []
    found += [f"{card.held_by}{', claim ended' if card.abandoned else ''}"] if card.held_by else []
    found += ["ready to close"] if card.ready_to_close else []
    return f"  {'; '.join(found)}" if found else ""
