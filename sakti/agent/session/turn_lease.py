"""Allow one turn at a time in a thread, however many windows have it open."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal, TypeAlias

from sakti.core.errors import MemoryFailure, SaktiError
from sakti.store import files, leases
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.threads import threads

BUSY = "thread_busy"
DELETED = "thread_deleted"
REMOVED = "thread_removed"
QUESTION = "question:"  # before a thread's id: the record of a second lease, held while the turn waits for the user


OtherTurn: TypeAlias = Literal["", "running", "waiting"]


def find_other_turn(db: Database, thread_id: str, owner: str, now: int) -> OtherTurn:
    """Return whether a turn of another window runs in a thread, or waits for the user there."""
    questions = {x.operation_id for x in leases.list_leases(db, f"{QUESTION}{thread_id}", 0)}
    for lease in leases.list_leases(db, thread_id, now):
        if lease.kind == "turn" and lease.owner != owner and files.is_owner_running(lease.owner):
            return "waiting" if lease.operation_id in questions else "running"
    return ""


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
        self._store, self._thread_id = store, thread_id
        self._interactive, self._stored = interactive, stored
        operation = store.ids.new()
        self._row = {"record_id": thread_id, "thread_id": thread_id, "owner": owner, "operation_id": operation}
        self._question = {**self._row, "record_id": f"{QUESTION}{thread_id}"}
        self._heartbeat: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None  # stores whether the turn waits for the user

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
            return leases.acquire(db, kind="turn", now=self._store.clock.now(), **self._row)

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
        if self._asking is not None:
            await asyncio.wait({self._asking})

        def release(db: Database) -> None:
            leases.release(db, kind="turn", **self._question)
            leases.release(db, kind="turn", **self._row)

        with contextlib.suppress(SaktiError):  # it runs out by itself
            await self._store.write(release)

    def show_asking(self, *, asks: bool) -> None:
        """Tell other windows whether the turn waits for the user's answer."""
        if self._heartbeat is not None:
            self._asking = asyncio.create_task(self._store_asking(self._asking, asks=asks))

    async def _store_asking(self, before: asyncio.Task[None] | None, *, asks: bool) -> None:
        """Store whether the turn waits for the user, after the write `before`."""
        if before is not None:
            await asyncio.wait({before})

        def write(db: Database) -> None:
            if asks:
                leases.clear_dead(db, self._question["record_id"])
                leases.acquire(db, kind="turn", now=self._store.clock.now(), **self._question)
            else:
                leases.release(db, kind="turn", **self._question)

        with contextlib.suppress(SaktiError):
            await self._store.write(write)

    def require(self, db: Database) -> None:
        """Require the turn lease in the transaction that writes a message.

        A process that stood still so long that another window took over writes nothing any more. Raises `SaktiError`
        (thread_lost).
        """
        try:
            leases.require(db, kind="turn", **self._row)
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
                await self._store.write(leases.renew, kind="turn", now=self._store.clock.now(), **self._row)
