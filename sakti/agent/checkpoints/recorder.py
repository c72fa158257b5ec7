"""Record what the calls of a turn do to files; what cannot be recorded is told once and stops no call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sakti.agent.checkpoints import targets, uncovered
from sakti.agent.checkpoints.shadow import Before, Shadow
from sakti.agent.judge import commands
from sakti.agent.judge.where import Place
from sakti.core.errors import SaktiError

log = logging.getLogger(__name__)


class Recorder:
    """Knows the turn that runs; `tell` hears why something is not covered. Tools call it in threads."""

    def __init__(self, shadow: Shadow, tell: Callable[[str], None]) -> None:
        self.shadow = shadow
        self._tell = tell
        self._told: set[str] = set()
        self._turn: tuple[str, int] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, thread_id: str, index: int) -> None:
        """Record for the turn of this user's message from now on; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._turn = (thread_id, index)

    def writing(self, files: Sequence[tuple[Path, bytes | None, int]]) -> None:
        """Record files that a tool is about to write; blocks, never raises."""
        if self._turn is None:
            return
        try:
            self.shadow.writing(files, *self._turn)
        except (OSError, SaktiError) as e:
            self._uncovered(e)

    async def refuses(self, effect: str, arguments: Mapping[str, Any], place: Place) -> str:
        """Return which files that a command names an undo could not restore, and why; "" if there are none."""
        if self._turn is None or effect != "run":
            return ""
        named = targets.read_targets(str(arguments.get("command", "")), place)
        if named == targets.NOTHING:
            return ""
        try:
            return await asyncio.to_thread(self.shadow.refuses, named)
        except (OSError, SaktiError) as e:
            self._uncovered(e)
            return ""

    @contextlib.asynccontextmanager
    async def around(self, effect: str, arguments: Mapping[str, Any], place: Place) -> AsyncGenerator[list[str]]:
        """Record what a command changes while it runs; one that only reads is not looked at.

        Yields a list that gets the names of files that it changed and an undo cannot restore.
        """
        turn, lost = self._turn, list[str]()
        command = str(arguments.get("command", ""))
        if turn is None or effect != "run" or _only_reads(command, place):
            yield lost
            return
        before = await asyncio.to_thread(self._before, targets.read_targets(command, place))
        try:
            yield lost
        finally:
            if before is not None:  # to its end, also where the call was cancelled
                lost += await asyncio.shield(asyncio.to_thread(self._after, before, turn))

    def _before(self, named: targets.Targets) -> Before | None:
        try:
            before = self.shadow.before(named)
        except (OSError, SaktiError) as e:
            self._uncovered(e)
            return None
        if before.history.problem:
            self._tell_once(before.history.problem)
        return before

    def _after(self, before: Before, turn: tuple[str, int]) -> list[str]:
        try:
            lost = uncovered.summarise(self.shadow.after(before, *turn))
            self.shadow.prune()  # here, where nobody waits for it, and not on leaving
        except (OSError, SaktiError) as e:
            self._uncovered(e)
            return []
        return lost

    def _uncovered(self, error: Exception) -> None:
        why = error.message if isinstance(error, SaktiError) else str(error)
        log.warning("no checkpoint: %s", why)
        self._tell_once(why)

    def _tell_once(self, why: str) -> None:
        if why not in self._told and self._loop is not None:
            self._told.add(why)
            self._loop.call_soon_threadsafe(self._tell, why)


def _only_reads(command: str, place: Place) -> bool:
    return all(
        part.kind == "read" and all(access != "write" for _, access in part.paths)
        for part in commands.read(command, place).parts
    )
