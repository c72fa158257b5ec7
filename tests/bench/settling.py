"""Let work in a replay continue until it is done, without waiting in real time.

Where everything is blocked, work waits for a model of memory, and one answers, chosen at random.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from tests.bench.invariants import Finding
from tests.bench.windows import Stage, Window

TURNS_OF = 20  # passes of the loop without any work of the database after which what is not done waits for a model
STUCK = 50  # times that everything stands still and no model waits


class Work(Struct):
    """Running work of a window; `step`: a step waits for it."""

    window: Window
    task: asyncio.Task[Any]
    step: bool = False


class Settling:
    """Scheduler of a replay."""

    def __init__(self, windows: Mapping[int, Window], stage: Stage, find: Callable[[Iterable[Finding]], None]) -> None:
        self._windows, self._stage, self._find = windows, stage, find

    async def settle(self, works: list[Work]) -> int:
        """Wait until all works are done; return how many steps had to wait for a model."""
        idle, waited = 0, set[int]()
        while await self._stands_still([w.task for w in works]):
            waited |= self._waiting(works)
            if not self._let_answer([w for w in works if not w.task.done()]):
                idle += 1
                if idle > STUCK:
                    self._find([(6, "work waits for nothing")])
                    for work in works:
                        work.task.cancel()
                    await asyncio.wait([w.task for w in works])
        return len(waited)

    def _waiting(self, works: list[Work]) -> set[int]:
        """Return the windows whose steps wait for a model, and check whether they may."""
        found = {
            w.window.number
            for w in works
            if w.step and not w.task.done() and not w.window.store.dead and self._stage.gate.waiting(w.window.number)
        }
        return {n for n in found if self._stage.steps.waits(n)}

    def _let_answer(self, works: list[Work]) -> bool:
        """Let a model answer that these wait for, or else any."""
        gate = self._stage.gate
        own = [w for work in works for w in gate.waiting(work.window.number)]
        found = own or gate.waiting()
        if not found and gate.stopped:
            gate.stopped.clear()
            found = gate.waiting()
        if not found:
            return False
        gate.release([self._stage.source.choice(found)] if self._stage.script.late else found)
        return True

    async def quiet(self) -> None:
        """Wait until background work is done, or blocked by a model that has not answered yet."""
        while tasks := [t for w in self._windows.values() for t in w.engine.tasks()]:
            if await self._stands_still(tasks):
                break

    async def _stands_still(self, tasks: list[asyncio.Task[Any]]) -> bool:
        """Return whether everything is blocked and some of `tasks` are not done.

        The database has answered everything, and what waited for an answer has had more passes of the loop than it
        needs to continue.
        """
        passes = 0
        while not all(t.done() for t in tasks) and passes < TURNS_OF:
            await asyncio.sleep(0)
            passes += 1
            running = {r for w in self._windows.values() for r in w.store.running}
            if running:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                passes = 0
        return not all(t.done() for t in tasks)
