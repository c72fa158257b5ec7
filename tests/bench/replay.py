"""Replay conversations for `python -m tests.bench replay` against the real engine on a real database.

Every commit, every request and every question to memory's models is checked. The clock is moved by the conversation,
the models of memory are scripted (`scripted`), a crash is a failpoint after which nothing is written any more, and a
new start on the same file.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from sakti.core.tokens import O200k
from tests.bench.bench_store import Awaited, Killed
from tests.bench.player import Player
from tests.bench.run import Run
from tests.bench.script import Script

__all__ = ["Run", "replay"]


async def replay(script: Script, counter: O200k, *, kill_at: str = "", history_messages: int = 0) -> Run:
    """Replay one conversation; `kill_at` names a failpoint at which the process dies, more than once."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_quiet_about_kills)
    loop.set_default_executor(Awaited(1))
    with tempfile.TemporaryDirectory(prefix="sakti-replay-") as folder:
        player = Player(script, counter, Path(folder) / "replay.db", kill_at)
        await player.start(history_messages)
        try:
            for number, turn in enumerate(script.turns):
                await player.turn(number, turn)
            await player.finish()
        finally:
            await player.close()
        return player.run


def _quiet_about_kills(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)
