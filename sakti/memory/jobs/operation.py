"""Hold the lease of a job, and emit its events: started, ended, failed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Literal

from msgspec import Struct, field

from sakti.core.errors import MemoryFailure, SaktiError
from sakti.core.events import MemoryOperation
from sakti.core.types import Json
from sakti.memory.state import PATIENCE_S, MemoryState
from sakti.store import files, leases
from sakti.store.database import Database, Store
from sakti.store.memory import Group, ResultLease

# Names of the numbers in the events: tokens to read, tokens that were read, tokens written.
_FIELDS = {
    "observation": ("tokens_to_observe", "tokens_observed", "observation_tokens"),
    "buffering": ("tokens_to_buffer", "tokens_buffered", "buffered_tokens"),
}


class Operation(Struct, frozen=True):
    """One job: its kind, record and settings.

    `tokens` are its input, `started` is in Unix ms.
    """

    cycle_id: str
    name: Literal["observation", "buffering"]
    type: Literal["observation", "reflection"]
    record_id: str
    thread_id: str
    tokens: int
    started: int
    config: Json

    @classmethod
    def of(
        cls,
        state: MemoryState,
        name: Literal["observation", "buffering"],
        kind: Literal["observation", "reflection"],
        tokens: int,
    ) -> Operation:
        window = state.window
        return cls(
            state.ids.new(),
            name,
            kind,
            window.record.id,
            window.thread.id,
            tokens,
            state.clock.now(),
            state.describe_settings(),
        )

    def start(self, state: MemoryState) -> None:
        state.emit(self._event("start", started_at=self.started, **{_FIELDS[self.name][0]: self.tokens}))
        state.notify()

    def end(self, state: MemoryState, made: Sequence[Group]) -> None:
        _, read, written = _FIELDS[self.name]
        last = made[-1] if made else None
        values: Json = {
            read: self.tokens if self.type == "reflection" else sum(g.message_tokens for g in made),
            written: sum(g.observation_tokens for g in made),
            "observations": "\n".join(g.text for g in made if g.text),
        }
        if self.name == "observation" and self.type == "observation" and last is not None:
            values |= {"current_task": last.current_task, "suggested_response": last.suggested_response}
        state.emit(
            self._event("end", completed_at=state.clock.now(), duration_ms=self._measure_duration(state), **values)
        )

    def report_failure(self, state: MemoryState, error: Exception, made: Sequence[Group] = ()) -> str:
        """Emit a failure; return its message."""
        message = error.message if isinstance(error, SaktiError) else f"{type(error).__name__}: {error}"
        role = "Observer" if self.type == "observation" else "Reflector"
        text = message if isinstance(error, MemoryFailure) else f"{role} failed: {message}"
        state.emit(
            self._event(
                "failed",
                failed_at=state.clock.now(),
                duration_ms=self._measure_duration(state),
                tokens_attempted=self.tokens,
                error=text,
                code=error.code if isinstance(error, SaktiError) else "error",
                retryable=error.retryable if isinstance(error, SaktiError) else False,
                observations="\n".join(g.text for g in made),
            )
        )
        return text

    def _measure_duration(self, state: MemoryState) -> int:
        return state.clock.now() - self.started

    def _event(self, kind: Literal["start", "end", "failed"], **values: object) -> MemoryOperation:
        return MemoryOperation(
            self.name, kind, self.cycle_id, self.type, self.record_id, (self.thread_id,), self.config, dict(values)
        )


POLL_S = 0.1  # seconds between two checks of another window's lease


class Leases(Struct, frozen=True):
    """Leases of one engine; `owner` is its name in them, `patience` the seconds to wait for others."""

    store: Store
    owner: str
    patience: float = PATIENCE_S
    _ended: set[str] = field(default_factory=set[str])  # operations whose lease was released with their last result

    @contextlib.asynccontextmanager
    async def hold(
        self,
        record_id: str,
        kind: leases.LeaseKind,
        thread_id: str = "",
        start: Callable[[Database], None] | None = None,
    ) -> AsyncGenerator[ResultLease]:
        """Hold a lease during the block; `start` runs in the transaction that acquires it.

        Raises `MemoryFailure` (busy) if another window holds it: then nothing was written.
        """
        held = ResultLease(kind, self.owner, self.store.ids.new(), thread_id)

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
        heartbeat = asyncio.create_task(self._keep_renewing(record_id, held))
        try:
            yield held
        finally:
            heartbeat.cancel()
            if held.operation_id not in self._ended:
                await self._release(record_id, held)
            self._ended.discard(held.operation_id)

    def note_end(self, held: ResultLease) -> None:
        """Note that a lease was released by the commit of its last result."""
        self._ended.add(held.operation_id)

    async def _release(self, record_id: str, held: ResultLease) -> None:
        with contextlib.suppress(SaktiError, RuntimeError):  # a closed store has no leases to release
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

    async def _keep_renewing(self, record_id: str, held: ResultLease) -> None:
        # real seconds on purpose: other processes read this row, whatever clock tests inject here
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
        while await self.store.read(self._is_held_elsewhere, record_id, kind, thread_id):
            if looks <= 0:
                return False
            looks -= 1
            await asyncio.sleep(POLL_S)
        return True

    def _is_held_elsewhere(self, db: Database, record_id: str, kind: leases.LeaseKind, thread_id: str) -> bool:
        return any(
            lease.kind == kind and lease.thread_id == thread_id and lease.owner != self.owner
            for lease in leases.list_leases(db, record_id, self.store.clock.now())
            if files.is_owner_running(lease.owner)
        )

    @contextlib.asynccontextmanager
    async def turn(self, thread_id: str) -> AsyncGenerator[None]:
        """Hold the thread's turn lease for a manual operation; a running turn of the same owner suffices.

        Raises `MemoryFailure` (busy) while another window runs a turn.
        """

        def own(db: Database) -> bool:
            held = leases.list_leases(db, thread_id, self.store.clock.now())
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
