"""Declare `/tasks` and `sakti tasks`: the board.

Agents and scripts call the shell's commands often, so a question costs no more than its answer: what only reads needs
nothing, neither an event loop nor more of the store than the query.
"""

from __future__ import annotations

from sakti.actions.spec import MEMORY, CommandGroup
from sakti.actions.tasks import changes, questions

GROUP = CommandGroup("tasks", "The task board.", MEMORY)
PARTS = (questions, changes)
