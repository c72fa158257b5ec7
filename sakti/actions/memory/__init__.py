"""Declare `/memory`, `/observations` and `sakti memory`: windows, log, its past, corrections."""

from __future__ import annotations

from sakti.actions.memory import log, windows
from sakti.actions.spec import MEMORY, CommandGroup

GROUP = CommandGroup("memory", "Show and correct observational memory: windows, log, history.", MEMORY)
PARTS = (windows, log)
