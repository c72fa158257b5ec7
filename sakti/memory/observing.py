"""Observing: what is said becomes groups of the log, in the background (buffered, to be activated later) or while a
step waits (active at once)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from sakti.core.errors import MemoryFailure
from sakti.core.events import ThreadChanged
from sakti.core.types import Message
from sakti.memory import policy
from sakti.memory.protocol import ObserveInput
from sakti.memory.window import slices
from sakti.memory.work import Operation, observable
from sakti.store import memory as memory_store
from sakti.store import messages as message_store
from sakti.store import threads as thread_store
from sakti.store.database import Database
from sakti.store.memory import Group, Held, NewLine

if TYPE_CHECKING:
    from sakti.memory.flow import Flow

RETRY_AFTER_MS = 60_000
LONGEST_RETRY = 8


class Observing:
    """The observations of one thread. `background` is the buffering that goes on, `waited_for` the observation that
    a step waits for."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.background: asyncio.Task[None] | None = None
        self.waited_for: asyncio.Task[bool] | None = None
        self._stopped = False
        self._to_come = 0  # groups that the background work has still to make
        self._failures = 0
        self._retry_tokens = 0
        self._retry_time = 0

    def running(self) -> asyncio.Task[Any] | None:
        return next((t for t in (self.waited_for, self.background) if t is not None and not t.done()), None)

    def producing(self) -> asyncio.Task[Any] | None:
        """The work that goes on, unless all that comes of it is there and it only tidies up."""
        running = self.running()
        return None if running is self.background and not self._to_come else running

    def start(self, numbers: policy.Numbers, *, at_end: bool = False) -> None:
        """Begin a background observation if an interval was crossed (or, at the end of a turn, if an
        interval's worth is pending) and nothing runs."""
        window = self.flow.window
        if self.flow.paused:
            return
        # a backlog is always caught up with in the background, whatever the interval
        if (numbers.buffer is None and not self.flow.backlog) or self.running() is not None or not self.may_try():
            return
        interval = numbers.buffer or numbers.threshold
        crossed = policy.interval_crossed(window.pending, self.flow.buffered_at, interval, numbers.threshold)
        messages = window.observable()
        # what the last one had to leave out (a long prompt) may be an interval's worth by itself
        large = sum(m.tokens for m in messages) >= interval
        if not (crossed or large or self.flow.backlog) or not any(observable(m) for m in messages):
            return
        if at_end and sum(m.tokens for m in messages) < interval // 2:
            return
        self._to_come = 1
        self.background = asyncio.create_task(self._buffer(messages, numbers))
        self.background.add_done_callback(lambda _task: self.flow.changed())  # only now it no longer runs

    async def _buffer(self, found: list[Message], numbers: policy.Numbers) -> None:
        window = self.flow.window
        operation, started = self.flow.operation("buffering", "observation"), self.flow.clock.now()
        tokens = sum(m.tokens for m in found)
        boundary = window.pending
        made: list[Group] = []

        def begin(db: Database) -> None:
            message_store.seal(db, [m.id for m in found], started)
            memory_store.set_buffered_at(db, window.record.id, boundary, started)

        async def work() -> None:
            async with self.flow.worker.lease(window.record, "buffering_observation", window.thread.id, begin) as held:
                self.flow.buffered_at = boundary
                self.flow.failpoint("buffer.begin")
                self.flow.emit(operation.event("start", started_at=started, tokens_to_buffer=tokens))
                self.flow.changed()
                pieces = slices(found, numbers.threshold)
                self._to_come = len(pieces)
                for piece in pieces:
                    if made and self.flow.paused:
                        break
                    made.append(await self._piece(piece, held, operation, ""))
                    self._to_come -= 1
                self._to_come = 0
                self.flow.emit(
                    operation.event(
                        "end",
                        completed_at=self.flow.clock.now(),
                        duration_ms=self.flow.clock.now() - started,
                        tokens_buffered=sum(g.message_tokens for g in made),
                        buffered_tokens=sum(g.observation_tokens for g in made),
                        observations="\n".join(g.text for g in made if g.text),
                    )
                )

        await self._guarded(work, operation, started=started, tokens=tokens, made=made, numbers=numbers)

    async def _piece(
        self, piece: list[Message], held: Held, operation: Operation, focus: str, *, activate: bool = False
    ) -> Group:
        window = self.flow.window
        known = [*window.active, *(g for g in window.buffered if (g.last_index or 0) < piece[0].index)]
        last = next((g for g in reversed(known) if g.current_task or g.suggested_response), None)
        request = ObserveInput(
            window.thread.id,
            tuple(m for m in piece if observable(m)),
            self.flow.timezone,
            self.flow.mode,
            "\n".join(g.text for g in known if g.text),
            last.current_task if last else window.thread.metadata.get("current_task"),
            last.suggested_response if last else None,
            focus,
            self.flow.goal,
            self.flow.settings.thread_title and not window.thread.title_pinned,
            next((str(g.metadata["timezone"]) for g in reversed(known) if "timezone" in g.metadata), ""),
        )
        group, rows = await self._group(piece, request, held, operation)
        self.flow.failpoint("observe.asked" if activate else "buffer.asked")
        async with self.flow.lock:
            return await self._commit(group, rows, held, activate=activate)

    async def _group(
        self, piece: list[Message], request: ObserveInput, held: Held, operation: Operation
    ) -> tuple[Group, list[NewLine]]:
        """The group for `piece`; messages that nobody may be told of count as observed all the same."""
        window = self.flow.window
        if request.messages:
            group, rows = await self.flow.worker.observe(window.record, request, held, operation)
        else:
            group, rows = (
                Group(
                    self.flow.ids.new(),
                    window.record.id,
                    window.thread.id,
                    "observation",
                    "buffered",
                    "",
                    self.flow.clock.now(),
                    self.flow.mode,
                    cycle_id=operation.cycle_id,
                    operation_id=held.operation_id,
                ),
                [],
            )
        return dataclasses.replace(
            group,
            first_message_id=piece[0].id,
            last_message_id=piece[-1].id,
            first_index=piece[0].index,
            last_index=piece[-1].index,
            message_ids=tuple(m.id for m in piece),
            message_tokens=sum(m.tokens for m in piece),
        ), rows

    async def _commit(self, group: Group, rows: list[NewLine], held: Held, *, activate: bool) -> Group:
        window = self.flow.window
        point = "observe" if activate else "buffer"
        title = str(group.metadata.get("title") or "")
        newer = window.thread.metadata.get("title_index", -1) < (group.last_index or 0)
        wants_title = bool(title) and newer and not window.thread.title_pinned
        change, active = self.flow.change([group], None) if activate else (None, [])

        def store(db: Database) -> None:
            memory_store.insert_group(
                db,
                group,
                rows,
                resource_id=window.thread.resource_id,
                expected_cursor=window.cursor,
                held=held,
            )
            if change is not None:
                memory_store.activate(db, change)
            if wants_title:
                thread_store.rename(db, window.thread.id, title, self.flow.clock.now(), by_user=False)
                thread_store.update_metadata(db, window.thread.id, {"title_index": group.last_index})
            self.flow.failpoint(f"{point}.written")

        try:
            await self.flow.store.write(store)
        except MemoryFailure as e:
            if e.code == "conflict":
                await self.flow.reload()
            raise
        self.flow.failpoint(f"{point}.committed")
        if wants_title:
            window.thread = dataclasses.replace(
                window.thread,
                title=title,
                metadata={**window.thread.metadata, "title_index": group.last_index},
            )
            self.flow.emit(ThreadChanged(window.thread))
        if change is not None:
            self.flow.follow([group], None, active, change, None)
            await self.flow.in_store_order()
        else:
            window.buffered = sorted([*window.buffered, group], key=lambda g: g.first_index or 0)
            self.flow.changed()
        return group

    async def now(self, found: Sequence[Message], focus: str = "") -> bool:
        """Observe `found` now and put it into the log, slice by slice; False when nothing came of it. The
        work goes on when the caller is cancelled, unless it is stopped."""
        if not found:
            return False
        task = self.waited_for = asyncio.create_task(self._observe(list(found), focus))
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """Give up the observation that somebody waits for; the slices that are in the log stay there."""
        task = self.waited_for
        if task is not None and not task.done():
            self._stopped = True
            task.cancel()
            await asyncio.wait([task])
            self._stopped = False

    async def _observe(self, found: list[Message], focus: str) -> bool:
        window, numbers = self.flow.window, self.flow.numbers()
        operation, started = self.flow.operation("observation", "observation"), self.flow.clock.now()
        tokens = sum(m.tokens for m in found)
        made: list[Group] = []

        def begin(db: Database) -> None:
            message_store.seal(db, [m.id for m in found], started)

        async def work() -> None:
            async with self.flow.worker.lease(window.record, "observing", window.thread.id, begin) as held:
                self.flow.failpoint("observe.begin")
                self.flow.emit(operation.event("start", started_at=started, tokens_to_observe=tokens))
                self.flow.changed()
                for piece in slices(found, numbers.threshold):
                    made.append(await self._piece(piece, held, operation, focus, activate=True))
                self.flow.emit(
                    operation.event(
                        "end",
                        completed_at=self.flow.clock.now(),
                        duration_ms=self.flow.clock.now() - started,
                        tokens_observed=tokens,
                        observation_tokens=sum(g.observation_tokens for g in made),
                        observations="\n".join(g.text for g in made if g.text),
                        current_task=made[-1].current_task,
                        suggested_response=made[-1].suggested_response,
                    )
                )

        await self._guarded(work, operation, started=started, tokens=tokens, made=made, numbers=numbers)
        return bool(made)

    async def _guarded(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        operation: Operation,
        *,
        started: int,
        tokens: int,
        made: list[Group],
        numbers: policy.Numbers,
    ) -> None:
        """The root of every piece of work: whatever goes wrong becomes an event, and the chat goes on."""
        try:
            await work()
            self._failures, self.flow.note = 0, ""
        except asyncio.CancelledError:
            if self._stopped:
                why = MemoryFailure("stopped by the user", code="stopped")
                self.flow.failed(
                    operation, why, started=started, tokens=tokens, partial="\n".join(g.text for g in made)
                )
                self.flow.changed()
            raise
        except Exception as e:
            if not isinstance(e, MemoryFailure) or e.code not in ("busy", "conflict", "lease_lost"):
                self._failures += 1
                step = min(LONGEST_RETRY, 2 ** (self._failures - 1))
                self._retry_tokens = self.flow.window.pending + (numbers.buffer or numbers.threshold // 5) * step
                self._retry_time = self.flow.clock.now() + RETRY_AFTER_MS * step
            self.flow.note = self.flow.failed(
                operation, e, started=started, tokens=tokens, partial="\n".join(g.text for g in made)
            )
        self.flow.changed()

    @property
    def retry_at(self) -> int | None:
        """When what failed is tried again at the latest (Unix ms); None where nothing failed."""
        return self._retry_time if self._failures else None

    def may_try(self) -> bool:
        """False while a failure's backoff lasts: until the window has grown or some time has passed."""
        return (
            not self._failures
            or self.flow.window.pending >= self._retry_tokens
            or self.flow.clock.now() >= self._retry_time
        )
