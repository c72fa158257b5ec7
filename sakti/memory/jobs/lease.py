"""Hold a lease during some work: acquired in a transaction, renewed by heartbeat, released."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from msgspec import Struct, field

from sakti.core.errors import MemoryFailure, SaktiError
from sakti.store import leases
from sakti.store.database import Database, Store
from sakti.store.memory import Held

POLL_S = 0.1  # between two looks at another window's lease
PATIENCE_S = 10.0  # for what another window observes; then the request goes with what there is


class Leases(Struct, frozen=True):
    """Leases of one engine; `owner` is its name in them, `patience` the seconds it waits for others."""

    store: Store
    owner: str
    patience: float = PATIENCE_S
    _ended: set[str] = field(default_factory=set[str])  # operations whose leases went with their last result

    @contextlib.asynccontextmanager
    async def hold(
        self,
        record_id: str,
        kind: leases.LeaseKind,
        thread_id: str = "",
        start: Callable[[Database], None] | None = None,
    ) -> AsyncGenerator[Held]:
        """Hold a lease for the time of the block; `start` runs in the transaction that acquires it.

        Raises `MemoryFailure` (busy) when another window holds it: then nothing was written.
        """
        held = Held(kind, self.owner, self.store.ids.new(), thread_id)

        def acquire(db: Database) -> bool:
            return leases.acquire(
                db,
                record_id=record_id,
                kind=kind,
                thread_id=thread_id,
                owner=self.owner,
                operation_id=held.operation_id,
                now=self.store.clock.now(),
            )

        def take(db: Database) -> bool:
            taken = acquire(db) or (bool(leases.clear_dead(db, record_id, but=self.owner)) and acquire(db))
            if taken and start is not None:
                start(db)
            return taken

        if not await self.store.write(take):
            raise MemoryFailure("Observation already in progress", code="busy", retryable=True)
        heartbeat = asyncio.create_task(self._heartbeat(record_id, held))
        try:
            yield held
        finally:
            heartbeat.cancel()
            if held.operation_id not in self._ended:
                await self._release(record_id, held)
            self._ended.discard(held.operation_id)

    def ended(self, held: Held) -> None:
        """Note that a lease was released by the commit of its last result."""
        self._ended.add(held.operation_id)

    async def _release(self, record_id: str, held: Held) -> None:
        with contextlib.suppress(SaktiError, RuntimeError):  # a closed store has no leases to give back
            await asyncio.shield(
                self.store.write(
                    leases.release,
                    record_id=record_id,
                    kind=held.kind,
                    thread_id=held.thread_id,
                    owner=self.owner,
                    operation_id=held.operation_id,
                )
            )

    async def _heartbeat(self, record_id: str, held: Held) -> None:
        # real seconds on purpose: other processes look at this row, whatever clock tests inject here
        while True:
            await asyncio.sleep(leases.HEARTBEAT_S)
            with contextlib.suppress(SaktiError):
                await self.store.write(
                    leases.renew,
                    record_id=record_id,
                    kind=held.kind,
                    thread_id=held.thread_id,
                    owner=self.owner,
                    operation_id=held.operation_id,
                    now=self.store.clock.now(),
                )

    async def others_end(self, record_id: str, kind: leases.LeaseKind, thread_id: str = "") -> bool:
        """Wait until no other window holds that lease; False if one still does after `patience`."""
        looks = int(self.patience / POLL_S)
        while await self.store.read(self._held_elsewhere, record_id, kind, thread_id):
            if looks <= 0:
                return False
            looks -= 1
            await asyncio.sleep(POLL_S)
        return True

    def _held_elsewhere(self, db: Database, record_id: str, kind: leases.LeaseKind, thread_id: str) -> bool:
        return any(
            lease.kind == kind and lease.thread_id == thread_id and lease.owner != self.owner
            for lease in leases.held(db, record_id, self.store.clock.now())
            if leases.alive(lease.owner)
        )

    @contextlib.asynccontextmanager
    async def turn(self, thread_id: str) -> AsyncGenerator[None]:
        """Hold the thread's turn lease for a manual operation; a running turn of the same owner is enough.

        Raises `MemoryFailure` (busy) while another window runs a turn.
        """

        def own(db: Database) -> bool:
            held = leases.held(db, thread_id, self.store.clock.now())
            return any(x.kind == "turn" and x.owner == self.owner for x in held)

        if self.store.read_only_reason:
            raise MemoryFailure(self.store.read_only_reason, code="read_only")
        if await self.store.read(own):
            yield
            return
        try:
            async with self.hold(thread_id, "turn", thread_id):
                yield
        except MemoryFailure as e:
            if e.code != "busy":
                raise
            raise MemoryFailure(
                "This thread is in use in another window; wait for it.", title="Thread in use", code="busy"
            ) from e
