"""Observe a thread: turn messages into groups of the log, one observation per thread at a time.

In the background, groups are buffered for a later activation; if a caller waits, they enter the log at once. The
lease also excludes other windows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct, structs

from sakti.core.errors import MemoryFailure
from sakti.core.types import Json, Message
from sakti.memory import policy, shared
from sakti.memory.jobs.operation import Leases, Operation
from sakti.memory.phases import NEVER_WAITS, RESTING, Phase, Signal
from sakti.memory.protocol import ObserveInput
from sakti.memory.state import TURN_WAIT_S, MemoryState, finish_commit
from sakti.memory.window import split_into_slices, sync_cut
from sakti.memory.worker import MemoryWorker, is_observable
from sakti.providers import omissions
from sakti.store import memory as memory_store
from sakti.store.database import Database
from sakti.store.log.lines import LogLine
from sakti.store.memory import Add, Group, ResultLease
from sakti.store.memory.group_rows import TITLE, list_spans
from sakti.store.text_registry import mask_for_storage
from sakti.store.threads import lineage
from sakti.store.threads import messages as message_store
from sakti.store.threads.threads import LEFT_OUT

HARMLESS = ("busy", "conflict", "lease_lost")  # codes: another window did the work, so the model has not failed


class _ObservationRun(Struct, frozen=True):
    """One run of the job: its events, the user's focus, and the groups so far."""

    operation: Operation
    focus: str
    groups: list[Group]

    @property
    def is_buffering(self) -> bool:
        return self.operation.name == "buffering"


class Observation:
    """Observation job of one open thread.

    `task` is the running or last one; `is_busy_elsewhere`: another window was observing.
    """

    def __init__(self, state: MemoryState, worker: MemoryWorker, leases: Leases) -> None:
        self.state, self.worker, self.leases = state, worker, leases
        self.task: asyncio.Task[bool] | None = None
        self.is_busy_elsewhere = False
        self._stopped = False

    def running(self) -> asyncio.Task[bool] | None:
        return self.task if self.task is not None and not self.task.done() else None

    # --- starting, waiting, stopping -----------------------------------------------------------------------

    def start(self, *, at_end: bool = False) -> None:
        """Start a background observation if an interval was crossed and nothing runs.

        At the end of a turn an interval's worth of pending messages is enough.
        """
        if self.state.phase not in (Phase.IDLE, Phase.CATCHING_UP) or self.running() is not None:
            return
        messages = self.state.window.observable()
        if self._is_due(messages, at_end=at_end) and any(is_observable(m) for m in messages):
            self.state.signal(Signal.BUFFER)
            self._begin(messages, "buffering", "", [])

    def _is_due(self, messages: Sequence[Message], *, at_end: bool) -> bool:
        """Return whether these messages are enough for a background observation."""
        window, numbers = self.state.window, self.state.numbers
        # a backlog is always reduced in the background, whatever the interval
        behind = self.state.phase is Phase.CATCHING_UP
        if numbers.buffer is None and not behind:
            return False
        interval = numbers.buffer or numbers.threshold
        tokens = sum(m.tokens for m in messages)
        if at_end and tokens < interval // 2:
            return False
        boundary = window.record.last_buffered_at_tokens
        crossed = policy.has_crossed_interval(window.pending, boundary, interval, numbers.threshold)
        # a long prompt left out of the last observation may fill an interval by itself
        return behind or crossed or tokens >= interval

    async def now(self, messages: Sequence[Message], focus: str = "", into: list[Group] | None = None) -> bool:
        """Observe `messages`, directly after the cursor, slice by slice; False if nothing was observed.

        The new groups are added to `into`. The work continues if the caller is cancelled, unless it is stopped.
        """
        if not messages or self.running() is not None:
            return False
        return await asyncio.shield(self.begin_now(messages, focus, into))

    def begin_now(
        self, messages: Sequence[Message], focus: str = "", into: list[Group] | None = None
    ) -> asyncio.Task[bool]:
        """Begin to observe like `now`, if nothing else is running."""
        self.state.signal(Signal.WAIT)
        return self._begin(list(messages), "observation", focus, [] if into is None else into)

    def _begin(
        self, messages: list[Message], name: Literal["observation", "buffering"], focus: str, groups: list[Group]
    ) -> asyncio.Task[bool]:
        self.task = asyncio.create_task(self._run(messages, name, focus, groups))
        self.task.add_done_callback(lambda _task: self.state.notify())  # the job counts as running until this point
        return self.task

    async def join(self) -> None:
        """Wait until no observation of this thread runs in this process."""
        while (running := self.running()) is not None:
            self.state.signal(Signal.WAIT)
            await asyncio.wait([running])

    async def join_others(self) -> None:
        """Wait until no other window observes this thread, and load its results."""
        window = self.state.window
        if await self.leases.others_end(window.record.id, "observing", window.thread.id):
            await self.state.refresh()

    async def stop(self) -> None:
        """Cancel the observation that a caller waits for; slices already in the log stay."""
        task = self.running()
        if task is not None:
            self._stopped = True
            task.cancel()
            await asyncio.wait([task])
            self._stopped = False

    # --- one observation ----------------------------------------------------------------------------------

    async def _run(
        self, messages: list[Message], name: Literal["observation", "buffering"], focus: str, groups: list[Group]
    ) -> bool:
        """Run the job; any error becomes an event, and the chat continues."""
        state = self.state
        tokens = sum(m.tokens for m in messages)
        operation = Operation.of(state, name, "observation", tokens)
        run = _ObservationRun(operation, focus, groups)
        signal, self.is_busy_elsewhere = Signal.DONE, False
        try:
            await self._observe(messages, run)
            state.retry, state.note, state.has_warned = policy.Backoff(), "", False
        except asyncio.CancelledError:
            if self._stopped:
                operation.report_failure(state, MemoryFailure("stopped by the user", code="stopped"), groups)
            raise
        except Exception as e:
            if not isinstance(e, MemoryFailure) or e.code not in HARMLESS:
                signal = Signal.FAILED
                numbers = state.numbers
                interval = numbers.buffer or numbers.threshold // 5
                state.retry = state.retry.after(state.window.pending, state.clock.now(), interval)
            self.is_busy_elsewhere = isinstance(e, MemoryFailure) and e.code == "busy"
            state.note = operation.report_failure(state, e, groups)
            if signal is Signal.FAILED:
                state.warn_once(f"{state.note} The chat continues; memory tries again later.")
        finally:
            state.signal(signal)
            state.settle()
            state.notify()
        return bool(groups)

    async def _observe(self, messages: list[Message], run: _ObservationRun) -> None:
        state = self.state
        window, operation, buffering = state.window, run.operation, run.is_buffering

        stored: tuple[int, int] | None = None
        before: list[LogLine] = []  # read before the request, which shows the log in this state

        def begin(db: Database) -> None:
            nonlocal stored, before
            message_store.seal(db, [m.id for m in messages], operation.started)
            if buffering:
                memory_store.set_buffered_at(db, window.record.id, window.pending, operation.started)
            stored = memory_store.read_revision(db, window.record.id, window.thread.id)
            before = self.worker.log(db, window.record.id)

        async with self.leases.hold(window.record.id, "observing", window.thread.id, begin) as held:
            state.failpoint("buffer.begin" if buffering else "observe.begin")
            if stored != state.window.revision:  # another window observed some messages before this one got the lease
                await state.refresh()
            if not buffering and state.window.ready():
                return  # buffered groups go into the log first
            operation.start(state)
            pieces = split_into_slices(self._load_pending(messages), state.numbers.threshold)
            for piece in pieces:
                if run.groups and buffering and state.phase in RESTING:
                    break
                if run.groups:
                    before = await state.read(lambda db: self.worker.log(db, window.record.id))
                await self._observe_piece(piece, run, before, held, last=piece is pieces[-1])
            operation.end(state, run.groups)

    def _load_pending(self, messages: list[Message]) -> list[Message]:
        """Return the messages not yet observed by another window.

        Raises `MemoryFailure` (conflict) if there are none.
        """
        ids = {m.id for m in messages}
        pending = [m for m in self.state.window.find_uncovered_messages() if m.id in ids]
        if not pending:
            raise MemoryFailure("These messages were observed in another window meanwhile.", code="conflict")
        return pending

    async def _observe_piece(
        self, piece: list[Message], run: _ObservationRun, before: list[LogLine], held: ResultLease, *, last: bool
    ) -> None:
        state, cycle_id = self.state, run.operation.cycle_id
        request = self._request(piece, run.focus)
        if request.messages:
            group, lines = await self.worker.observe(state.window.record, request, held, cycle_id, before)
        else:  # withheld messages count as observed, too
            group, lines = self.worker.empty_group(state.window.record, request, held, cycle_id), []
        group = structs.replace(
            group,
            first_message_id=piece[0].id,
            last_message_id=piece[-1].id,
            first_index=piece[0].index,
            last_index=piece[-1].index,
            message_ids=tuple(m.id for m in piece),
            message_tokens=sum(m.tokens for m in piece),
            metadata={**group.metadata, **self._name_thread(group)},
        )
        state.failpoint("buffer.asked" if run.is_buffering else "observe.asked")

        async def commit() -> None:
            add = Add(group, lines, held, activate=not run.is_buffering, ends=last)
            await state.move(add, "buffer" if run.is_buffering else "observe")
            run.groups.append(group)
            if last:
                self.leases.note_end(held)

        await finish_commit(commit())

    def _name_thread(self, group: Group) -> Json:
        """Return the title that a group in a shared log stores for its thread."""
        window = self.state.window
        if window.record.scope != "resource":
            return {}
        title = "" if window.thread.title_pinned else str(group.metadata.get("title") or "")
        return {TITLE: mask_for_storage("threads", "title", title) or window.thread.title}

    def _request(self, piece: list[Message], focus: str) -> ObserveInput:
        state, window = self.state, self.state.window
        earlier, texts = self._load_earlier(piece[0].index)
        task, response = _find_newest_task(earlier) or (window.thread.metadata.get("current_task"), None)
        left_out = window.thread.metadata.get(LEFT_OUT, {})
        return ObserveInput(
            window.thread.id,
            omissions.omit_pieces([m for m in piece if is_observable(m)], left_out, omissions.EVERY_MODEL),
            state.timezone,
            state.mode,
            "\n".join(t for t in texts if t),
            task,
            response,
            focus,
            state.goal,
            state.settings.thread_title and not window.thread.title_pinned,
            _find_newest_timezone(earlier),
            max(0, state.numbers.reflect_at - state.observation_tokens),
            state.numbers.reflect_at,
        )

    def _load_earlier(self, index: int) -> tuple[list[Group], list[str]]:
        """Return the groups before a message, and the texts of the log about this thread's past."""
        window = self.state.window
        earlier = [*window.active, *(g for g in window.buffered if (g.last_index or 0) < index)]
        if window.record.scope != "resource":
            return earlier, [g.text for g in earlier]
        ancestry = lineage.get_lineage(window.thread)  # work in other threads does not belong to this thread's state
        texts = [shared.select_lineage_text(g, ancestry) for g in earlier]
        return [g for g in earlier if shared.is_of_lineage(list_spans(g), ancestry)], texts


WITHOUT_MODEL_S = 1.0  # longest time of a job without its model


def _find_newest_task(groups: Sequence[Group]) -> tuple[str | None, str | None] | None:
    """Return task and suggested response of the newest group that has them."""
    last = next((g for g in reversed(groups) if g.current_task or g.suggested_response), None)
    return None if last is None else (last.current_task, last.suggested_response)


def _find_newest_timezone(groups: Sequence[Group]) -> str:
    return next((str(g.metadata["timezone"]) for g in reversed(groups) if "timezone" in g.metadata), "")


class Patience:
    """Time that a turn may wait for jobs; a job that exceeds it is not waited for again.

    When it is over, `give_up_model` may let a job end without its model, and returns whether it did.
    """

    def __init__(self, limit: float = TURN_WAIT_S, give_up_model: Callable[[], bool] = lambda: False) -> None:
        self.limit = self._left = limit
        self._give_up_model = give_up_model
        self._late: asyncio.Task[object] | None = None

    def renew(self) -> None:
        """Restore the full time for a new turn."""
        self._left = self.limit

    @property
    def is_over(self) -> bool:
        """Return whether a job that outlasted a turn's patience is still running."""
        return self._late is not None and not self._late.done()

    async def wait(self, task: asyncio.Task[object]) -> bool:
        """Wait for a job within the turn's remaining time; return whether it ended.

        The job may continue.
        """
        if task is not self._late:
            started = time.monotonic()
            await asyncio.wait([task], timeout=max(0.0, self._left))
            self._left -= time.monotonic() - started
        if not task.done() and self._give_up_model():
            self._left = WITHOUT_MODEL_S
            await asyncio.wait([task], timeout=self._left)
        if not task.done():
            self._late = task
        return task.done()


def _must_wait(state: MemoryState, observation: Observation) -> bool:
    """Return whether too much is pending for a request."""
    numbers, window = state.numbers, state.window
    if state.phase in NEVER_WAITS or window.pending < numbers.threshold:
        return False
    is_coming = window.ready() or observation.running() is not None
    return window.pending > numbers.block_after or not is_coming


async def wait_for_messages(state: MemoryState, observation: Observation, patience: Patience) -> None:
    """Wait while too many messages are pending.

    That is more than `block_after`, or the threshold with nothing buffered or running. The wait also ends if nothing
    more can be done, or with the turn's patience. Groups buffered here or in another window are activated meanwhile.
    """
    may_join_others = True
    while _must_wait(state, observation):
        before = state.window.pending
        if (running := observation.running()) is not None:
            state.signal(Signal.WAIT)
            if not await patience.wait(running):
                return
            await state.activate_due()
            continue
        messages = _select_next_messages(state)
        if not messages or not await patience.wait(observation.begin_now(messages)):
            return
        if observation.is_busy_elsewhere and may_join_others:
            may_join_others = False
            if not await patience.wait(asyncio.create_task(observation.join_others())):
                return
            await state.activate_due()
        elif state.window.pending >= before and not await state.activate_due():
            return


def _select_next_messages(state: MemoryState) -> list[Message]:
    """Return the messages that can be observed at once; empty while groups are buffered."""
    if state.window.ready():
        return []
    numbers, messages = state.numbers, state.window.find_uncovered_messages()
    floor = policy.resolve_retention_floor(numbers.activation, numbers.threshold)
    return messages[: sync_cut(messages, numbers.threshold, floor)]
