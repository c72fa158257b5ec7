"""Allow one turn at a time in a thread, however many windows have it open."""

from __future__ import annotations

import asyncio
import contextlib

from sakti.core.errors import MemoryFailure, SaktiError
from sakti.store import leases
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.threads import threads

BUSY = "thread_busy"
DELETED = "thread_deleted"
REMOVED = "thread_removed"


async def require_thread(store: Store, thread_id: str) -> None:
    """Raise `SaktiError` (thread_removed) if a stored thread no longer exists."""
    if await store.read(threads.get, thread_id) is None:
        raise _make_removal_error("/new starts a new one.")


def _make_removal_error(then: str) -> SaktiError:
    return SaktiError(f"This thread was removed in another window. {then}", title="Thread removed", code=REMOVED)


class TurnLease:
    """The right to write turns into a thread.

    `owner` names this session; a holder that is gone is no holder. `interactive` tells whether there is a prompt for
    the commands that a refusal names, `stored` whether the thread is in the database already.
    """

    def __init__(
        self, store: Store, owner: str, thread_id: str, *, interactive: bool = True, stored: bool = False
    ) -> None:
        self._store, self._owner, self._thread_id = store, owner, thread_id
        self._interactive, self._stored = interactive, stored
        self._operation = store.ids.new()
        self._heartbeat: asyncio.Task[None] | None = None

    async def take(self) -> None:
        """Take the turn lease of a thread.

        Raises `SaktiError`: thread_busy while another window holds it, thread_deleted and thread_removed if the thread
        no longer exists.
        """

        def acquire(db: Database) -> bool:
            if self._stored and threads.get(db, self._thread_id) is None:
                new = "/new starts a new one; your text is kept in the prompt."
                raise _make_removal_error(
                    new if self._interactive else "Without --continue and --resume a new one starts."
                )
            if threads.is_deleted(db, self._thread_id):
                back = "ctrl+t and ctrl+y restore it, /new starts another."
                raise SaktiError(
                    "This thread was deleted in another window: "
                    + (back if self._interactive else "`sakti threads restore` restores it."),
                    title="Thread deleted",
                    code=DELETED,
                )
            leases.clear_dead(db, self._thread_id)
            return leases.acquire(
                db,
                record_id=self._thread_id,
                kind="turn",
                owner=self._owner,
                operation_id=self._operation,
                thread_id=self._thread_id,
                now=self._store.clock.now(),
            )

        if not await self._store.write(acquire):
            raise SaktiError(
                "This thread is in use in another window; wait for it, or start a new one "
                + ("with /new." if self._interactive else "without --continue and --resume."),
                title="Thread in use",
                code=BUSY,
                retryable=True,
            )
        self._heartbeat = asyncio.create_task(self._renew())

    async def give_back(self) -> None:
        """Release the lease; does nothing if it is not held."""
        if self._heartbeat is None:
            return
        self._heartbeat.cancel()
        self._heartbeat = None
        with contextlib.suppress(SaktiError):  # it runs out by itself
            await self._store.write(
                leases.release,
                record_id=self._thread_id,
                kind="turn",
                thread_id=self._thread_id,
                owner=self._owner,
                operation_id=self._operation,
            )

    def require(self, db: Database) -> None:
        """Require the turn lease in the transaction that writes a message.

        A process that stood still so long that another window took over writes nothing any more. Raises `SaktiError`
        (thread_lost).
        """
        try:
            leases.require(
                db,
                record_id=self._thread_id,
                kind="turn",
                thread_id=self._thread_id,
                owner=self._owner,
                operation_id=self._operation,
            )
        except MemoryFailure as e:
            raise SaktiError(
                "This turn was suspended and the thread continued in another window; the rest of it is not saved.",
                title="Thread in use",
                code="thread_lost",
            ) from e

    async def _renew(self) -> None:
        # real seconds, as in memory's own leases: other processes read this row
        while True:
            await asyncio.sleep(leases.HEARTBEAT_S)
            with contextlib.suppress(SaktiError):
                await self._store.write(
                    leases.renew,
                    record_id=self._thread_id,
                    kind="turn",
                    thread_id=self._thread_id,
                    owner=self._owner,
                    operation_id=self._operation,
                    now=self._store.clock.now(),
                )
