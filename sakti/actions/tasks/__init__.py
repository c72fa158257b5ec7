"""Declare `/tasks` and `sakti tasks`: the board.

Agents and scripts call the shell's commands often, so a question costs no more than its answer: what only reads needs
nothing, neither an event loop nor more of the store than the query.
"""

from __future__ import annotations

from sakti.actions.spec import MEMORY, Group
from sakti.actions.tasks.changes import (
    claim,
    close,
    create,
    delete,
    dep,
    label,
    link,
    release,
    reopen,
    restore,
    undo,
    update,
)
from sakti.actions.tasks.files import export, import_
from sakti.actions.tasks.questions import board, explain, list_, ready, said, search, show, tree

GROUP = Group("tasks", "The task board.", MEMORY)
ACTIONS = (ready, list_, show, search, explain, tree, said, board, create, claim, release, close, reopen, update, dep,
           link, label, delete, restore, undo, export, import_)  # fmt: skip
