"""Find marks of masked secrets in a call that have no value in it.

The user is asked about such a call, since it would not work.
"""

from __future__ import annotations

from msgspec.structs import replace

from sakti.agent.judge.decide import Decision
from sakti.agent.tools.base import Tool
from sakti.agent.tools.context import ToolContext
from sakti.agent.tools.files import read_file
from sakti.core.errors import ToolError
from sakti.core.types import Json
from sakti.store.secrets import marks_in, marks_of

REASON = "{marks} stands for a masked secret, which is not inserted"


def ask_if_masked(run: ToolContext, tool: Tool, arguments: Json, decision: Decision) -> Decision:
    """Return the decision, to be asked in every mode where a mark would go somewhere as it is."""
    if decision.verdict != "allow" or not (marks := find_unresolved(run, tool, arguments)):
        return decision
    target = decision.target or ", ".join(tool.named(arguments)) or str(arguments.get("command", tool.name))
    return replace(decision, verdict="ask", reason=REASON.format(marks=", ".join(marks)), target=target, rules=())


def find_unresolved(run: ToolContext, tool: Tool, arguments: Json) -> tuple[str, ...]:
    """Return the marks in a call that writes, runs or reaches the web or a server.

    Those are left out whose value the changed file holds.
    """
    marks = marks_in(arguments) if tool.effect in ("write", "run", "fetch", "search", "remote") else ()
    if not marks or tool.effect != "write":
        return marks
    held: set[str] = set()
    for name in tool.named(arguments):
        try:
            held |= marks_of(read_file(run.resolve(name))[1].text)
        except (OSError, ToolError):  # no such file yet, or none with a text
            continue
    return tuple(mark for mark in marks if mark not in held)
