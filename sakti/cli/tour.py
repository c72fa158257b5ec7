"""`sakti tour`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sakti.actions.scope import Scope
from sakti.actions.spec import CHAT, action
from sakti.actions.values import USAGE, Refused
from sakti.cli import common


@action(shell="tour", panel=CHAT, json=False)
async def tour(scope: Scope) -> None:
    """Two minutes with sakti, without a model: answers are played from a script, tools and memory are real."""
    import tempfile

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refused("the tour needs a terminal.", code=USAGE)
    common.log_to_file()
    from sakti.agent.tour import FIRST, tour_session
    from sakti.cli.chat import talk

    with tempfile.TemporaryDirectory(prefix="sakti-tour-") as folder:
        raise SystemExit(talk(tour_session(Path(folder), env=dict(os.environ)), prompt=FIRST))
