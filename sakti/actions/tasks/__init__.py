"""Declare `/tasks` and `sakti tasks`: the board.

Agents and scripts call these shell commands often, so reading is cheap: it needs no event loop and imports no more of
the store than the query.
"""

from __future__ import annotations

from sakti.actions.spec import MEMORY, CommandGroup
from sakti.actions.tasks import changes, questions

GROUP = CommandGroup("tasks", "The task board.", MEMORY)
PARTS = (questions, changes)
