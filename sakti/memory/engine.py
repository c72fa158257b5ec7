"""Observational memory as the agent uses it: messages go in, the window of the next request comes out.

A turn is `begin_turn`, then `prepare` before every model call, then `end_turn`; `add` follows every message
that was made durable. Nothing is read from the disk between the calls of one turn, nothing is written unless
memory changes, and a failure of memory never ends a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sakti.core.clock import Clock
from sakti.core.config import MemorySettings
from sakti.core.errors import MemoryFailure, SaktiError, StoreError
from sakti.core.events import (
    CompactionFinished,
    Event,
    MemoryStatus,
    Notice,
)
from sakti.core.ids import Ids
from sakti.core.tokens import Counter
from sakti.core.types import Block, Message, Thread
from sakti.memory import backlog, compaction, context, corrections, elsewhere, failpoints, levels, modes, policy, status
from sakti.memory.flow import Flow, Trigger, load
from sakti.memory.protocol import Observer, Reflector
from sakti.memory.window import Window, newest_that_fit, sync_cut
from sakti.memory.work import Worker
from sakti.store import leases, memory_log
from sakti.store import memory as memory_store
from sakti.store import messages as message_store
from sakti.store import threads as thread_store
from sakti.store import working_memory as pages
from sakti.store.database import Database, Store
from sakti.store.generations import ReflectionUndone
from sakti.store.memory import Record
from sakti.store.memory_corrections import Action, Corrected

# A thread that is opened with more than so many thresholds pending is caught up with in the background.
BACKLOG_FACTOR = 2
NO_WINDOW = 1 << 60  # where nothing is observed no message is in the way of its summary


@dataclass(frozen=True)
class Prepared:
    """What memory contributes to one request. `tail` moves from step to step and goes behind every
    breakpoint."""

    blocks: tuple[Block, ...]
    messages: tuple[Message, ...]
    tail: tuple[str, ...]
    status: MemoryStatus


class MemoryEngine:
    """The memory of one open thread. `owner` names this engine in the leases; `reason` says why this Observer."""

    def __init__(
        self,
        *,
        store: Store,
        settings: MemorySettings,
        mode: str,
        counter: Counter,
        clock: Clock,
        ids: Ids,
        observer: Observer,
        reflector: Reflector,
        emit: Callable[[Event], None],
        owner: str | None = None,
        timezone: str | None = None,
        goal: str = "",
        reason: str = "",
        failpoint: failpoints.Hook = failpoints.nothing,
    ) -> None:
        self._store, self._counter, self._clock, self._ids = store, counter, clock, ids
        self._mode = mode
        self._settings = modes.settings_for(settings, mode)
        self._last_messages = modes.last_messages(settings, mode)
        self._emit = emit
        self._owner = owner or leases.new_owner()
        self._timezone, self._goal, self._failpoint = timezone, goal, failpoint
        self._chosen, self._reason = observer.name, reason
        self._worker = Worker(
            store=store,
            counter=counter,
            clock=clock,
            ids=ids,
            emit=emit,
            owner=self._owner,
            observer=observer,
            reflector=reflector,
        )
        self._builder = context.ContextBuilder(counter, mode=mode, tagged=settings.retrieval)
        self._levels = levels.Levels(store, counter)
        self._rates: backlog.Rates | None = None
        self._pricing: asyncio.Task[None] | None = None
        self._flow: Flow | None = None
        self._step = 0
        self._actor = ""
        self._working_memory = ""
        self._last_message_at: int | None = None
        self._gap = 0
        self._room: int | None = None  # set when the provider found a request too long that memory thought fits
        self._closed = False
        self._new_thread = False
        self._elsewhere = ""  # what other threads said that the shared log does not have yet

    # --- opening ----------------------------------------------------------------------------------------

    @property
    def record_id(self) -> str:
        return self._flow.window.record.id if self._flow else ""

    @property
    def window_ids(self) -> set[str]:
        """Ids of the messages that the model sees whole."""
        return {m.id for m in self._flow.window.messages} if self._flow else set()

    @property
    def flow(self) -> Flow:
        """The state of the open thread's memory, for checks: to be read, never changed."""
        return self._open()

    def _open(self) -> Flow:
        if self._flow is None:
            raise RuntimeError("the engine has no thread: await open() first")
        return self._flow

    @property
    def _observes(self) -> bool:
        return self._settings.enabled and not self._settings.read_only and not self._store.read_only_reason

    async def open(self, thread: Thread) -> None:
        """Load the thread's record, cursor, log and unobserved messages; clear what a crash left and say
        so."""
        if self._flow is not None:
            await self.close()
            self._closed = False
        record, expired = await self._record(thread)
        for lease in expired:
            self._emit(
                Notice(
                    "information",
                    "Stale flags detected and cleared",
                    f"{lease.kind} of thread {lease.thread_id or thread.id}, "
                    f"begun by {lease.owner.rsplit(':', 1)[0]}, "
                    "had not finished; it is done anew when it is due.",
                )
            )
        window = await self._store.read(load, Window(thread, record, -1))
        window = await self._load_without_observing(window)
        self._flow = flow = Flow(
            store=self._store,
            settings=self._settings,
            mode=self._mode,
            clock=self._clock,
            ids=self._ids,
            emit=self._emit,
            worker=self._worker,
            builder=self._builder,
            window=window,
            timezone=self._timezone or record.observed_timezone,
            changed=self._announce,
            failpoint=self._failpoint,
        )
        flow.goal = self._goal
        flow.backlog = window.pending > BACKLOG_FACTOR * flow.numbers().block_after
        if flow.backlog and self._observes:
            self._pricing = asyncio.create_task(self._find_rates())
        self._actor = str(record.metadata.get("actor") or "")
        newest = window.messages[-1:] or await self._store.read(message_store.page, thread.id, limit=1)
        self._last_message_at = newest[-1].created_at if newest else None
        await self._find_prompt(flow)
        self._new_thread = not newest
        await self._read_pages(flow)

    async def _find_rates(self) -> None:
        """What the Observer costs: the list of prices is slow to load, so nobody waits for it."""
        self._rates = await backlog.rates(self._worker.observer.name)
        self._announce()

    async def _record(self, thread: Thread) -> tuple[Record, list[leases.Lease]]:
        scope = self._settings.scope
        key = f"thread:{thread.id}" if scope == "thread" else f"resource:{thread.resource_id}"
        zone, now, new_id = self._timezone or "UTC", self._clock.now(), self._ids.new()

        def make(db: Database) -> tuple[Record, list[leases.Lease]]:
            record = memory_store.get_or_create(
                db,
                id=new_id,
                lookup_key=key,
                scope=scope,
                thread_id=thread.id if scope == "thread" else None,
                resource_id=thread.resource_id,
                timezone=zone,
                now=now,
            )
            if self._timezone and record.observed_timezone != self._timezone:
                memory_store.set_timezone(db, record.id, self._timezone)
            return record, [*leases.clear_expired(db, record.id, now), *leases.clear_dead(db, record.id)]

        try:
            return await self._store.write(make)
        except StoreError as e:
            self._emit(Notice("warning", "Memory is read-only", e.message))
            found = await self._store.read(memory_store.get_record, key)
            empty = Record("", key, scope, thread.id, thread.resource_id, 0, None, None, 0, 0, 0, zone, {})
            return found or empty, []

    async def _load_without_observing(self, window: Window) -> Window:
        if self._settings.enabled:
            return window
        newest = await self._store.read(message_store.page, window.thread.id, limit=max(200, self._last_messages * 4))
        return Window(window.thread, window.record, -1, messages=newest)

    async def _find_prompt(self, flow: Flow) -> None:
        """The newest prompt, so that a turn which goes on after a crash has it in every request."""
        window = flow.window
        prompt = next((m for m in reversed(window.messages) if m.role == "user"), None)
        if prompt is None and window.cursor >= 0:
            page = await self._store.read(message_store.page, window.thread.id, before=window.cursor + 1, limit=100)
            prompt = next((m for m in reversed(page) if m.role == "user" and m.state == "saved"), None)
        window.turn_users = [prompt] if prompt else []

    async def _read_pages(self, flow: Flow) -> None:
        """Working memory: the thread's own page, else the workspace's."""
        thread = flow.window.thread
        page = await self._store.read(pages.working_memory, "thread", thread.id) or await self._store.read(
            pages.working_memory, "resource", thread.resource_id
        )
        self._working_memory = page[0] if page else ""

    async def _carry_over(self, flow: Flow) -> None:
        """What a new thread starts with, made at its first turn and frozen from then on."""
        self._new_thread = False
        thread = flow.window.thread
        if "carry_over" in thread.metadata or not self._settings.carry_over or thread.parent_id:
            return
        earlier = await self._store.read(memory_log.carry_over, thread.resource_id, thread.id)
        text = "" if earlier is None else context.carry_over_text(earlier, "", self._counter, self._settings.carry_over)
        with contextlib.suppress(StoreError):  # read-only: the block is made anew at the next start
            await self._store.write(thread_store.update_metadata, thread.id, {"carry_over": text})
        flow.window.thread = dataclasses.replace(thread, metadata={**thread.metadata, "carry_over": text})

    # --- a turn -----------------------------------------------------------------------------------------

    async def begin_turn(self, *, provider: str, model: str) -> None:
        """Take in what other processes changed; activate early when the prompt cache is cold anyway: after
        idle time, or because another provider or model is asked now."""
        flow = self._open()
        if self._new_thread:
            await self._carry_over(flow)
        await self._catch_up(flow)
        if not self._settings.enabled:
            await self._levels.load(flow.window.thread)
        await self._read_elsewhere(flow)
        actor = f"{provider}/{model}"
        trigger: Trigger | None = None
        before = [m for m in flow.window.messages if m.id not in {u.id for u in flow.window.turn_users}]
        ttl = policy.parse_activation_ttl(self._settings.activate_after_idle, "memory.activate_after_idle")
        if ttl == "auto":
            ttl = policy.resolve_auto_activation_ttl(provider, model)
        if self._actor and actor != self._actor:
            trigger = "provider_change"
        elif ttl is not None and before and self._clock.now() - before[-1].created_at >= ttl:
            trigger = "idle"
        if self._observes:
            if actor != self._actor:
                await self._write_quietly(flow, {"actor": actor})
            if trigger is not None and flow.hold_until is None:
                await flow.activate_due(trigger)
        self._actor = actor

    async def _read_elsewhere(self, flow: Flow) -> None:
        """With one log for the workspace: once a turn, so that the requests of a turn begin alike."""
        window = flow.window
        if not self._settings.enabled or window.record.scope != "resource":
            return
        found = await self._store.read(
            memory_log.unobserved_elsewhere, window.record.id, window.thread.resource_id, window.thread.id
        )
        limit = int(flow.numbers().threshold * elsewhere.SHARE)
        self._elsewhere = elsewhere.text(found, self._counter, limit, flow.timezone) if found else ""

    async def _catch_up(self, flow: Flow) -> None:
        window = flow.window
        known = window.messages[-1].index if window.messages else window.cursor
        waiting = [m.id for m in window.messages if m.state == "provisional"]

        def read(db: Database) -> tuple[list[Message], list[Message], tuple[str, int] | None]:
            page = pages.working_memory(db, "thread", window.thread.id) or pages.working_memory(
                db, "resource", window.thread.resource_id
            )
            return (
                message_store.after(db, window.thread.id, known),
                message_store.get_many(db, waiting),
                page,
            )

        new, settled, page = await self._store.read(read)
        self._working_memory = page[0] if page else ""
        window.replace({m.id: m for m in settled})
        for message in new:
            window.add(message)
        if self._settings.enabled:
            await flow.refresh()

    def add(self, message: Message) -> None:
        """A message that was just made durable enters the window."""
        flow = self._open()
        if message.role == "user":
            if self._step == 0:
                flow.window.turn_users = []
                self._gap = 0 if self._last_message_at is None else message.created_at - self._last_message_at
            flow.window.turn_users.append(message)
        flow.window.add(message)
        self._last_message_at = message.created_at

    def forget(self, message_ids: list[str]) -> None:
        """These messages were withheld by a guardrail: they leave the window."""
        self._open().window.forget(set(message_ids))
        self._step = 0

    def expect(self, budget: int) -> None:
        """Tell before the first request what the model's window will leave, so that the thresholds shown hold."""
        self._open().budget = budget

    async def prepare(self, *, step: int, budget: int | None = None) -> Prepared:
        """The window for the next model call. `budget`: tokens that the model's window leaves for memory and
        messages (None: not known). Waits for a model only above `block_after`, or at the threshold when
        nothing is buffered and nothing is running."""
        flow = self._open()
        self._step, flow.budget = step, budget
        if self._observes:
            await self._move(flow)
        now = self.status()
        self._emit(now)
        return Prepared(self._blocks(flow), self._messages(flow), self._tail(flow), now)

    def preview(self) -> Prepared:
        """The window as it would be sent now; nothing is moved, written or told."""
        flow = self._open()
        return Prepared(self._blocks(flow), self._messages(flow), self._tail(flow), self.status())

    async def _move(self, flow: Flow) -> None:
        if flow.hold_until is not None:
            if flow.window.pending < flow.hold_until:
                return
            flow.hold_until = None
            await self._write_quietly(flow, {"hold_until": None})
        await flow.activate_due()
        numbers = flow.numbers()
        flow.backlog = (flow.backlog or flow.paused) and flow.window.pending > numbers.block_after
        flow.observing.start(numbers)
        flow.reflecting.start(numbers)
        await self._wait_for_messages(flow)
        await flow.reflecting.settle()
        await self._wait_for_messages(flow)  # what was running may have ended while the log was waited for

    async def _wait_for_messages(self, flow: Flow) -> None:
        while not (flow.backlog or flow.paused):
            numbers, window = flow.numbers(), flow.window
            running = flow.observing.producing()
            if window.pending < numbers.threshold:
                return
            if window.pending <= numbers.block_after and (window.ready() or running):
                return
            before = window.pending
            if running is not None:
                await asyncio.wait([running])
                await flow.activate_due()
                if flow.window.pending < before or flow.observing.producing() is not None:
                    continue
            if not flow.observing.may_try():
                return
            messages = flow.window.uncovered()
            floor = policy.resolve_retention_floor(numbers.activation, numbers.threshold)
            cut = sync_cut(messages, numbers.threshold, floor)
            if not await flow.observing.now(messages[:cut]) or flow.window.pending >= before:
                return

    async def end_turn(self) -> None:
        """The turn is saved. What is pending may be buffered; never waits for a model."""
        flow = self._open()
        self._step = 0
        self._room = None
        if not self._settings.read_only and not self._store.read_only_reason:
            self._levels.start(flow.window, flow.window.cursor + 1 if self._settings.enabled else NO_WINDOW)
        if self._observes and flow.hold_until is None:
            numbers = flow.numbers()
            flow.observing.start(numbers, at_end=True)
            flow.reflecting.start(numbers)

    async def _write_quietly(self, flow: Flow, changes: dict[str, object]) -> None:
        try:
            await self._store.write(memory_store.set_record_metadata, flow.window.record.id, changes)
        except SaktiError as e:
            self._emit(Notice("warning", e.title, e.message))

    # --- the request ------------------------------------------------------------------------------------

    def _blocks(self, flow: Flow) -> tuple[Block, ...]:
        out: list[Block] = []
        if self._working_memory.strip():
            out.append(
                self._builder.text(
                    "working_memory", f"<working-memory>\n{self._working_memory.strip()}\n</working-memory>"
                )
            )
        carried = str(flow.window.thread.metadata.get("carry_over") or "")
        if carried:
            out.append(self._builder.text("carry_over", f"<carry-over>\n{carried}\n</carry-over>"))
        log = self._builder.log(flow.window.active, flow.today) if self._settings.enabled else ()
        if not log and out:
            out[-1] = dataclasses.replace(out[-1], edge=True)
        others = (self._builder.text("other_threads", self._elsewhere),) if self._elsewhere else ()
        return (*out, *log, *others)

    def _messages(self, flow: Flow) -> tuple[Message, ...]:
        window = flow.window
        messages = [m for m in window.messages if m.tokens or m.parts]
        if not self._settings.enabled:
            raw = self._levels.uncovered(messages, window.turn_users)
            sent = [*self._levels.blocks, *_newest(raw, self._last_messages, window.turn_users)]
            return tuple(sorted(sent, key=lambda m: m.index))
        gone = window.cursor >= 0 and bool(window.active)
        head = [m for m in window.turn_users if m.index <= window.cursor]
        messages = [*head, *messages]
        reminder = self._builder.reminder(window.thread.id, window.thread.resource_id) if gone else None
        room = flow.budget
        if room is not None:
            room -= sum(b.tokens for b in self._blocks(flow)) + (reminder.tokens if reminder else 0)
        if flow.backlog:
            limit = flow.numbers().block_after
            room = limit if room is None else min(room, limit)
        if self._room is not None:
            room = self._room if room is None else min(room, self._room)
        if room is not None and sum(m.tokens for m in messages) > room:
            messages = newest_that_fit(messages, room, window.turn_users)
        return (reminder, *messages) if reminder else tuple(messages)

    def _tail(self, flow: Flow) -> tuple[str, ...]:
        metadata = flow.window.thread.metadata
        if not self._settings.enabled:
            return context.tail(None, None, self._gap)
        newest = max((m.index for m in flow.window.turn_users), default=-1)
        response = metadata.get("suggested_response") if metadata.get("task_index", -1) >= newest else None
        return context.tail(metadata.get("current_task"), response, self._gap)

    def status(self) -> MemoryStatus:
        """The windows as they are now; the same numbers as in the request."""
        observer = self._worker.observer.name
        return status.status(
            self._open(),
            self._step,
            observer,
            self._worker.reflector.name,
            approximate=self._counter.approximate,
            reason=self._reason if observer == self._chosen else f"{self._chosen} could not observe",
            left=backlog.left(self._open(), observer, self._rates),
        )

    def _announce(self) -> None:
        if not self._closed and self._flow is not None:
            self._emit(self.status())

    # --- by hand ----------------------------------------------------------------------------------------

    async def observe_now(self, focus: str = "") -> bool:
        """The provider found the request too long: put what is ready into the log, observe all but the last
        exchange, and where even that is not to be had, send less of it. False when nothing can be made
        smaller."""
        flow = self._open()
        before = flow.window.pending
        while (running := flow.observing.running()) is not None:
            await asyncio.wait([running])
        if self._observes:
            await compaction.observe_all(flow, focus, whole_turn=False)
        if flow.window.pending < before:
            return True
        messages = flow.window.messages
        cuts = [c for c in policy.safe_cuts(messages) if c < len(messages)]
        if len(cuts) < 2:
            return False
        self._room = max(1, (self._room or before) // 2)
        return True

    async def compact(self, focus: str = "") -> CompactionFinished:
        """Observe everything pending but the last exchange; joins what runs. Nothing pending: `messages` is
        0 and no model is asked."""
        flow = self._open()
        done = await compaction.compact(flow, focus)
        if not self._closed:  # else another thread is on the screen
            self._emit(done)
        self._announce()
        return done

    async def undo_compaction(self) -> CompactionFinished | None:
        """Log and window exactly as before the last compaction; None when there is none, or when newer
        observations build on it (a Notice says so). Automatic observation then waits for one more
        interval."""
        flow = self._open()
        done = await compaction.undo(flow)
        if done is not None:
            self._emit(done)
        return done

    async def correct(self, line: str, action: Action, text: str = "") -> Corrected:
        """Pin, unpin, edit or forget a line of the log, named by its id or the end of it. Raises
        `MemoryFailure`: not_found, ambiguous, empty, unchanged."""
        return await corrections.correct(self._open(), line, action, text)

    async def undo_correction(self, line: str | None = None) -> Corrected:
        """Take back the newest correction, of a line or of the whole log. Raises `MemoryFailure`
        (not_found)."""
        return await corrections.undo(self._open(), line)

    async def reflect_now(self) -> bool:
        """Condense the whole log now; waits for the Reflector. False when there is nothing to condense, or
        nothing came of it (`status().note` says why)."""
        flow = self._open()
        await self.wait_idle()
        before = flow.window.record.generation_count
        if flow.window.reflection is None:
            if not flow.reflecting.begin(flow.numbers(), 0, whole=True):
                return False
            await self.wait_idle()
        if flow.window.reflection is not None:
            await flow.activate([], "threshold", with_reflection=True)
        return flow.window.record.generation_count > before

    async def undo_reflection(self, generation: int | None = None) -> ReflectionUndone:
        """The log as before a reflection (the newest by default), with what was observed since behind it; then
        nothing is condensed by itself until the log has grown by one more interval. Raises `MemoryFailure`:
        not_found, conflict (a newer reflection was made from it)."""
        return await self._open().reflecting.undo(generation)

    async def pause(self) -> None:
        """Ask no model in the background, for this memory, until `resume`, in other windows and after a restart too;
        the newest messages that fit are sent meanwhile. By hand (`compact`, `reflect_now`) everything goes."""
        flow = self._open()
        await backlog.pause(flow)
        if self._pricing is None:
            self._pricing = asyncio.create_task(self._find_rates())

    async def resume(self, *, start: bool = True) -> None:
        """Go on where `pause` stopped: oldest first, in the background, at once or with the next turn."""
        if not self._observes:
            raise MemoryFailure("Memory is off or read-only here: there is nothing to resume.", code="off")
        await backlog.resume(self._open(), start=start)

    def compact_preview(self) -> tuple[int, int, int]:
        """(messages that /compact would observe, tokens of messages and log now, an estimate of them
        after)."""
        return compaction.preview(self._open())

    def tasks(self) -> list[asyncio.Task[Any]]:
        """All background work that goes on."""
        return [*self._open().tasks(), *self._levels.running()]

    async def wait_idle(self) -> None:
        """Until no background work runs."""
        while tasks := self.tasks():
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Give up background work; never waits for a model."""
        self._closed = True
        flow = self._flow
        if flow is None:
            return
        tasks = self.tasks()
        if self._pricing is not None and not self._pricing.done():
            tasks.append(self._pricing)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _newest(messages: list[Message], count: int, keep: list[Message]) -> list[Message]:
    """The newest `count` messages, a little more where a tool exchange would be cut; the prompt always."""
    start = max(0, len(messages) - count)
    start = max((c for c in policy.safe_cuts(messages) if c <= start), default=0)
    kept = {m.id for m in keep}
    return [m for i, m in enumerate(messages) if i >= start or m.id in kept]
