"""Declare `sakti tour`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sakti.actions.scope import Scope
from sakti.actions.spec import CHAT, action
from sakti.actions.values import USAGE, Refused
from sakti.cli import common
from sakti.core import terminal
from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.agent import tour as scripted_tour
    from sakti.cli import chat as chat_command


@action(shell="tour", panel=CHAT, json=False)
async def tour(scope: Scope) -> None:
    """Take a two-minute tour without a model: answers come from a script, tools and memory are real."""
    import tempfile

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refused("the tour needs a terminal.", code=USAGE)
    common.log_to_file()
    with tempfile.TemporaryDirectory(prefix="sakti-tour-") as folder:
        session = scripted_tour.tour_session(Path(folder), env=dict(os.environ))
        code = chat_command.talk(session, prompt=scripted_tour.FIRST)
    terminal.end(code)
