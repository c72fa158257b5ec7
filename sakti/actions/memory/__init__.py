"""Declare `/memory`, `/observations` and `sakti memory`: windows, log, its past, corrections."""

from __future__ import annotations

from sakti.actions.memory.log import (
    at,
    diff,
    edit,
    forget,
    log,
    observations,
    pin,
    restore,
    undo_correction,
    unpin,
)
from sakti.actions.memory.pages import capture, export, working
from sakti.actions.memory.windows import (
    events,
    observe,
    pause,
    reflect,
    resume,
    status,
    undo,
    undo_reflection,
)
from sakti.actions.spec import MEMORY, Group

GROUP = Group("memory", "Show and correct observational memory: windows, log, history.", MEMORY)
ACTIONS = (status, log, at, diff, observe, reflect, undo, pause, resume, pin, edit, forget, restore, working, export,
           capture, undo_reflection, events, observations, unpin, undo_correction)  # fmt: skip
