"""Update the search index in the background after a thread was deleted or restored."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sakti.store.database import Store


from sakti.store.maintenance import purging, upkeep


class Indexing:
    """Background indexing of a session, one job at a time."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._one = asyncio.Lock()

    def begin(self, store: Store) -> None:
        """Begin the remaining work, also that of other processes; returns at once."""
        task = asyncio.create_task(self._work(store))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, store: Store) -> None:
        async with self._one:
            for work in (upkeep.reindex, purging.resume_purges, upkeep.pack):
                await upkeep.run_quietly(store, work)

    async def wait(self) -> None:
        """Wait until no work remains."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def end(self) -> None:
        """Stop; the next session goes on with it."""
        for task in self._tasks:
            task.cancel()
        await self.wait()
