"""Manage observational memory for the agent: add messages, get the window of the next request.

A turn is `begin_turn`, then `prepare` before every model call, then `end_turn`; `add` follows every stored message.
Below the thresholds nothing is read or written between the calls of a turn. A failure of memory never ends a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from msgspec import Struct, structs

from sakti.core.errors import MemoryFailure, SaktiError, StoreError
from sakti.core.events import CompactionFinished, MemoryStatus, Notice, StaleLeases
from sakti.core.types import Block, Message, Thread
from sakti.memory import compaction, corrections, modes, policy, status
from sakti.memory import request as memory_request
from sakti.memory.factory import FallbackObserver
from sakti.memory.jobs.observation import Observation, Patience, wait_for_messages
from sakti.memory.jobs.operation import Leases
from sakti.memory.jobs.reflection import Reflection, ReflectionUndone
from sakti.memory.phases import Phase, ReflectionPhase
from sakti.memory.protocol import Observer, Reflector
from sakti.memory.request import RequestBuilder
from sakti.memory.state import MemoryOptions, MemoryServices, MemoryState, Trigger
from sakti.memory.window import find_newest_prompt, load_first_window, open_record
from sakti.memory.worker import MemoryWorker
from sakti.store import leases
from sakti.store import memory as memory_store
from sakti.store.log.corrections import Action, LineCorrection
from sakti.store.maintenance.purging import Copies
from sakti.store.memory import Record
from sakti.store.threads import messages as message_store
from sakti.store.threads.fork import CarriedLine

READ_ONLY = "Memory is read-only here (memory.read_only, --no-save): nothing is observed, condensed or corrected."
DEFAULT_CACHE_TTL = 5 * policy.MINUTE


class Prepared(Struct, frozen=True, dict=True):
    """Memory's part of one request; `tail` has the current volatile facts."""

    blocks: tuple[Block, ...]
    messages: tuple[Message, ...]
    tail: tuple[str, ...]
    status: MemoryStatus


class MemoryEngine:
    """Memory of one open thread."""

    def __init__(
        self, services: MemoryServices, options: MemoryOptions, observer: Observer, reflector: Reflector
    ) -> None:
        self._services, self._store, self._emit = services, services.store, services.emit
        self._counter, self._clock, self._ids = services.counter, services.store.clock, services.store.ids
        self._options = structs.replace(options, settings=modes.apply_mode(options.settings, options.mode))
        self._settings = self._options.settings
        self._last_messages = modes.last_messages(options.settings, options.mode)
        self._leases = Leases(self._store, options.owner or leases.make_owner(), options.patience)
        self._chosen = observer.name
        self._worker = MemoryWorker(services, observer, reflector)
        self._patience = Patience(options.turn_wait, self._stop_waiting_for_model)
        self._rates: status.Rates | None = None
        self._pricing: asyncio.Task[None] | None = None
        self._state: MemoryState | None = None
        self._request: RequestBuilder
        self._observation: Observation
        self._reflection: Reflection
        self._step, self._actor = 0, ""
        self._budget: int | None = None
        self._last_message_at: int | None = None
        self._closed = False
        self._has_unsent = False
        self._new_thread = False

    # --- opening ----------------------------------------------------------------------------------------

    @property
    def record_id(self) -> str:
        return self._state.window.record.id if self._state else ""

    @property
    def window_ids(self) -> set[str]:
        """Return the ids of the messages that are sent in full."""
        return {m.id for m in self._state.window.messages} if self._state else set()

    @property
    def state(self) -> MemoryState:
        """Return the memory state of the open thread, read-only for callers."""
        if self._state is None:
            raise RuntimeError("the engine has no thread: await open() first")
        return self._state

    @property
    def observation(self) -> Observation:
        """Return the observation job of the open thread, read-only for callers."""
        return self._observation

    @property
    def reflection(self) -> Reflection:
        """Return the reflection job of the open thread, read-only for callers."""
        return self._reflection

    @property
    def _writes(self) -> bool:
        return not self._settings.read_only and not self._store.read_only_reason

    @property
    def _observes(self) -> bool:
        return self._settings.enabled and self._writes and bool(self.record_id)

    @property
    def is_unrecorded(self) -> bool:
        """Return whether the thread has no memory record because the database was not writable on opening."""
        return self._state is not None and not self.record_id and self._writes

    async def open(self, thread: Thread) -> None:
        """Load the thread's memory; events report cleared leases and repaired states."""
        if self._state is not None:
            await self.close()
            self._closed = False
        self._request = RequestBuilder(
            self._store,
            self._counter,
            self._settings,
            thread,
            last_messages=self._last_messages,
        )
        if self._options.page_of is not None:
            self._request.use_page_of(self._options.page_of)
        record = await self._open_record(thread)
        few = None if self._settings.enabled else max(200, self._last_messages * 4)
        window = await load_first_window(self._store, thread, record, newest=few)
        self._state = state = MemoryState(self._services, self._options, self._request.log, window, self._announce)
        state.is_late = lambda: self._patience.is_over
        state.budget = self._budget
        self._load_failures(state)
        self._observation = Observation(state, self._worker, self._leases)
        self._reflection = Reflection(state, self._worker, self._leases)
        if self._observes:
            state.settle()
            state.detect_backlog()
            if state.phase is Phase.CATCHING_UP:
                self._pricing = asyncio.create_task(self._find_rates())
        self._actor = str(record.metadata.get("actor") or "")
        newest = window.messages[-1:] or await self._store.read(message_store.list_page, thread.id, limit=1)
        self._last_message_at = newest[-1].created_at if newest else None
        prompt = await find_newest_prompt(self._store, window)
        state.prompts = [prompt] if prompt else []
        self._new_thread = not newest
        await self._request.open(state)

    async def _open_record(self, thread: Thread) -> Record:
        """Return the thread's record; emit events for cleared leases, repairs and failed writes."""
        opened = await open_record(
            self._store,
            thread,
            scope=self._settings.scope,
            timezone=self._options.timezone,
            new_id=self._ids.new(),
            now=self._clock.now(),
            read_only=self._settings.read_only,
        )
        record = opened.record
        if opened.failure:
            self._emit(Notice("warning", "Memory is read-only", opened.failure))
        for lease in opened.stale:
            owner = lease.owner.rsplit(":", 1)[0]
            self._emit(StaleLeases(record.id, lease.thread_id or thread.id, (lease.kind,), owner, lease.started_at))
        if opened.mended:
            self._emit(Notice("warning", "Memory was repaired", f"{opened.mended}. No message was lost."))
        return record

    def _load_failures(self, state: MemoryState) -> None:
        """Count the Observer's failures in this log across processes."""
        if isinstance(self._worker.observer, FallbackObserver) and self._observes:
            store = functools.partial(self._write_metadata, state)
            self._worker.observer.load_failures(state.window.record.metadata, store)

    async def _find_rates(self) -> None:
        """Look up the Observer's price in the background; loading the price list is slow."""
        self._rates = status.find_rates(self._worker.observer.name)
        self._announce()

    # --- a turn -----------------------------------------------------------------------------------------

    async def begin_turn(self, *, provider: str, model: str, cache_ttl: int = DEFAULT_CACHE_TTL) -> None:
        """Load changes of other processes; activate early if the prompt cache is cold anyway.

        It is cold after idle time (`cache_ttl`: its lifetime in ms) or after a change of provider or model.
        """
        state = self.state
        self._patience.renew()
        if self._settings.enabled:
            if self._new_thread:
                self._new_thread = False
                await self._request.carry_over(state, writes=self._writes)
            await state.refresh()
        await self._request.load(state)
        actor = f"{provider}/{model}"
        trigger = self._find_early_trigger(actor, cache_ttl)
        if self._observes:
            if actor != self._actor:
                await self._write_metadata(state, {"actor": actor})
            if trigger is not None:
                await state.activate_due(trigger)
                await self._request.renew(state)
        self._actor = actor

    def _find_early_trigger(self, actor: str, cache_ttl: int) -> Trigger | None:
        """Return why the prompt cache is cold; None if it may be warm."""
        ttl = policy.parse_activation_ttl(self._settings.activate_after_idle, "memory.activate_after_idle")
        if self._actor and actor != self._actor:
            return "provider_change"
        limit = cache_ttl if ttl == "auto" else ttl
        prompt_ids = {m.id for m in self.state.prompts}
        before = next((m for m in reversed(self.state.window.messages) if m.id not in prompt_ids), None)
        if limit is not None and before is not None and self._clock.now() - before.created_at >= limit:
            return "idle"
        return None

    def add(self, message: Message) -> None:
        """Add a message that was just stored to the window."""
        state = self.state
        if message.role == "user":
            if self._step == 0:
                state.prompts = []
                last = self._last_message_at
                self._request.gap = 0 if last is None else message.created_at - last
            state.prompts.append(message)
        state.window.add(message)
        self._last_message_at = message.created_at

    def forget(self, message_ids: list[str]) -> None:
        """Remove messages withheld by a guardrail from the window."""
        self.state.window.forget(set(message_ids))
        self._step = 0

    def set_models(self, observer: Observer, reflector: Reflector) -> None:
        """Replace Observer and Reflector for a model whose limits are now known."""
        self._worker.observer, self._worker.reflector = observer, reflector
        self._chosen = observer.name  # before failures are loaded, since the name may change to the fallback's
        if self._state is not None:
            self._load_failures(self._state)

    def set_budget(self, budget: int) -> None:
        """Set the tokens that the model's window leaves for memory and messages."""
        self._budget = budget
        if self._state is not None:
            self._state.budget = budget

    async def prepare(
        self, *, step: int, budget: int | None = None, facts: Mapping[str, str] | None = None
    ) -> Prepared:
        """Return the window for the next model call.

        `budget`: tokens that the model's window leaves for memory and messages, None if unknown. Changed `facts` are
        sent with the newest message, together with those of memory (None: no facts are sent). It only waits for a
        model above `block_after`, or at the threshold if nothing is buffered or running.
        """
        state = self.state
        self._step, self._budget, state.budget = step, budget, budget
        log = state.window.active
        if self._observes:
            await self._move(state, facts)
            if [g.id for g in state.window.active] != [g.id for g in log]:
                await self._request.renew(state)
        elif facts is not None:
            await self._attach_facts(state, facts)
        now = self.status()
        self._emit(now)
        prepared = self._prepare(state, now)
        self._warn_of_unsent(state, prepared.messages)
        return prepared

    def _warn_of_unsent(self, state: MemoryState, sent: tuple[Message, ...]) -> None:
        """Warn once about messages not sent in full, unless an undo or a late job explains it."""
        unsent = memory_request.describe_unsent(*memory_request.count_unsent(state.window, sent))
        if unsent and not (self._has_unsent or state.is_suspended or self._patience.is_over):
            self._emit(Notice("warning", "Memory", unsent))
        self._has_unsent = bool(unsent)

    def next_facts(self, facts: Mapping[str, str]) -> dict[str, str]:
        """Return the facts, memory's included, that the next request would add."""
        state, request = self.state, self._request
        return memory_request.select_next_facts(
            self._build_messages(), {**facts, **request.tail(state)}, self._clock.now()
        )

    def preview(self) -> Prepared:
        """Return the window as it would be sent, without changing or writing anything."""
        return self._prepare(self.state, self.status())

    def _prepare(self, state: MemoryState, now: MemoryStatus) -> Prepared:
        request = self._request
        return Prepared(request.blocks(state), self._build_messages(), tuple(request.tail(state).values()), now)

    def _build_messages(self) -> tuple[Message, ...]:
        return self._request.messages(self.state, is_idle=self._step == 0)

    async def _move(self, state: MemoryState, facts: Mapping[str, str] | None) -> None:
        """Activate and start due work before a request; wait if it must."""
        state.settle()
        if not state.is_suspended:
            if state.is_full():  # activate groups buffered by another window before a model is asked
                await state.refresh()
            await state.activate_due()
        if facts is not None:  # before a job reads the newest message, which this changes
            await self._attach_facts(state, facts)
        if state.is_suspended:
            return
        self._observation.start()
        self._reflection.start()
        await wait_for_messages(state, self._observation, self._patience)
        await self._reflection.settle(self._patience)
        # running jobs may have ended during the wait for the log
        await wait_for_messages(state, self._observation, self._patience)
        self._report_late(state)

    def _stop_waiting_for_model(self) -> bool:
        """Let the running observation end without its model; False if it has no substitute."""
        observer = self._worker.observer
        thread_id = self.state.window.thread.id
        return isinstance(observer, FallbackObserver) and observer.stand_in(thread_id, self._patience.limit)

    def _report_late(self, state: MemoryState) -> None:
        if self._patience.is_over:
            state.note = f"{self._worker.observer.name} has not answered for {self._patience.limit:g} seconds."
            state.warn_once(
                f"{state.note} The chat continues with the newest messages that fit; a late answer will still be used."
            )

    async def _attach_facts(self, state: MemoryState, facts: Mapping[str, str]) -> None:
        """Attach the changed facts to the newest message; if the store fails, the message stays as it is."""
        try:
            await self._request.attach_facts(state, facts, self._clock.now(), begins=self._step == 1)
        except StoreError as e:
            self._emit(Notice("warning", e.title, e.message))

    async def end_turn(self) -> None:
        """End a saved turn: pending messages may be buffered. Never waits for a model."""
        state = self.state
        self._step = 0
        self._request.unlimit()
        if self._writes:
            self._request.summarize(state.window)
        if self._observes:
            state.settle()
            self._observation.start(at_end=True)
            self._reflection.start()

    async def _write_metadata(self, state: MemoryState, changes: dict[str, object]) -> None:
        """Change the record's metadata; a failure is only reported."""
        try:
            await self._store.write(memory_store.set_record_metadata, state.window.record.id, changes)
        except SaktiError as e:
            self._emit(Notice("warning", e.title, e.message))

    def status(self) -> MemoryStatus:
        """Return the current status of the windows, with the same numbers as in the request."""
        observer = self._worker.observer.name
        reason = self._options.reason if observer == self._chosen else f"{self._chosen} could not observe"
        models = status.MemoryModels(observer, self._worker.reflector.name, self._rates, reason)
        now = status.build_status(self.state, models, self._step, running=self._observation.running() is not None)
        if not (self._settings.enabled and self._writes):  # nothing is ever observed in this mode
            now = structs.replace(now, phase="read-only" if self._settings.enabled else "off", next_buffer_at=None)
        messages, log = self._request.count_unsent(self.state, self._build_messages())
        return structs.replace(now, unsent=messages, unsent_observations=log)

    def _announce(self) -> None:
        if not self._closed and self._state is not None:
            self._emit(self.status())

    # --- requests of the user ---------------------------------------------------------------------------

    def _require_writable(self) -> None:
        """Raise `MemoryFailure` (read_only) if memory is read-only."""
        if not self._writes:
            raise MemoryFailure(self._store.read_only_reason or READ_ONLY, code="read_only")

    @contextlib.asynccontextmanager
    async def _manual_operation(self) -> AsyncGenerator[MemoryState]:
        """Guard every change of memory that the user requests.

        It holds the thread's turn lease and loads the changes of other windows. Raises `MemoryFailure` (busy,
        read_only).
        """
        state = self.state
        self._require_writable()
        async with self._leases.turn(state.window.thread.id):
            await state.refresh()
            yield state

    async def refresh(self) -> bool:
        """Load changes of this memory by other windows; return whether there were any."""
        return await self.state.refresh()

    async def observe_now(self, focus: str = "") -> bool:
        """Shrink the window after the provider found the request too long; False if impossible.

        Buffered groups are activated and all but the last exchange is observed; if that fails, fewer messages are
        sent.
        """
        state = self.state
        await state.refresh()  # messages observed by another window leave the next request anyway
        before = state.window.pending
        if self._observes:
            shrinking = asyncio.create_task(self._observe_all(focus))
            await self._patience.wait(shrinking)
            self._report_late(state)
        if state.window.pending < before:
            return True
        messages = state.window.messages
        if len(policy.list_inner_cuts(messages)) < 2:
            return False
        self._request.halve(before)
        return True

    async def compact(self, focus: str = "") -> CompactionFinished:
        """Observe all pending messages except the last exchange, after running jobs have ended.

        If nothing is pending, `messages` is 0 and no model is called. Raises `MemoryFailure` (busy) while another
        window runs a turn in the thread.
        """
        async with self._manual_operation():
            done = await compaction.compact(self._observation, focus)
        if not self._closed:  # after closing, the screen shows another thread
            self._emit(done)
        self._announce()
        return done

    async def undo_compaction(self) -> CompactionFinished | None:
        """Restore the state before the last compaction; None, with a Notice, if impossible.

        Raises `MemoryFailure` (busy).
        """
        async with self._manual_operation():
            done = await compaction.undo(self._observation)
        if done is not None:
            self._emit(done)
        return done

    async def erase(self, line: str) -> Copies:
        """Erase a line for good, from the database and its copies; return its texts.

        Files may repeat them. Raises `MemoryFailure`: not_found, ambiguous, busy.
        """
        async with self._manual_operation() as state:
            return await corrections.erase(state, line)

    async def correct(self, line: str, action: Action, text: str = "") -> LineCorrection:
        """Correct a line, named by its id or the end of the id.

        Raises `MemoryFailure`: not_found, ambiguous, empty, unchanged, busy.
        """
        async with self._manual_operation() as state:
            return await corrections.correct(state, line, action, text)

    async def carried_lines(self) -> list[CarriedLine]:
        """Return the lines of earlier threads at the beginning of this thread's requests."""
        return await self._request.carried_lines(self.state, is_new=self._new_thread)

    async def remove_carried(self, line: CarriedLine, *, removed: bool = True) -> None:
        """Remove a line of the carry-over, or restore it.

        Raises `MemoryFailure` (read_only).
        """
        self._require_writable()
        await self._request.remove_carried(self.state, line, removed=removed)

    async def undo_correction(self, line: str | None = None) -> LineCorrection:
        """Undo the newest correction of a line or of the log.

        Raises `MemoryFailure`: not_found, busy.
        """
        async with self._manual_operation() as state:
            return await corrections.undo(state, line)

    async def _observe_all(self, focus: str) -> None:
        await self._observation.join()
        await compaction.observe_all(self._observation, focus, [], whole_turn=False)

    async def reflect_now(self) -> bool:
        """Condense the complete log now and wait for the Reflector.

        Returns False if there is nothing to condense, or if it failed (`status().note` has the reason). Raises
        `MemoryFailure` (busy).
        """
        async with self._manual_operation() as state:
            await self._observation.join()
            await self._reflection.join()
            before = state.window.record.generation_count
            if state.reflection_phase is not ReflectionPhase.READY:
                self._reflection.begin(0, whole=True)
                await self._reflection.join()
            if state.reflection_phase is ReflectionPhase.READY:
                await state.try_move(memory_store.Activate((), reflection=True), "activate", "threshold")
            return state.window.record.generation_count > before

    async def undo_reflection(self, generation: int | None = None) -> ReflectionUndone:
        """Undo a reflection (the newest by default); later observations stay.

        Nothing is condensed automatically until the log has grown by one more interval. Raises `MemoryFailure`:
        not_found, conflict (a newer reflection was made from it), busy.
        """
        async with self._manual_operation():
            return await self._reflection.undo(generation)

    async def observe_rest(self) -> bool:
        """Observe all observable messages, on exit; False if there were none."""
        async with self._manual_operation():
            return await compaction.observe_rest(self._observation)

    def count_tokens_to_observe(self) -> int:
        """Return the tokens that `observe_rest` would observe; 0 if automatic observation is off."""
        return compaction.count_unobserved(self.state) if self._observes and self.state.phase is not Phase.PAUSED else 0

    async def pause(self) -> None:
        """Stop background model calls of this memory until `resume`, in all windows, across restarts.

        Meanwhile the newest messages that fit are sent; manual operations (`compact`, `reflect_now`) still work.
        """
        self._require_writable()
        await status.set_paused(self.state, paused=True)
        if self._pricing is None:
            self._pricing = asyncio.create_task(self._find_rates())

    async def resume(self, *, start: bool = True) -> None:
        """Continue after `pause`, oldest messages first, in the background; at once or with the next turn."""
        self._require_writable()
        if not self._settings.enabled:
            raise MemoryFailure("Memory is off here: there is nothing to resume.", code="off")
        await status.set_paused(self.state, paused=False)
        if start:
            self._observation.start()

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return all running background tasks."""
        work = (self._observation.running(), self._reflection.running())
        return [*(t for t in work if t is not None), *self._request.running()]

    async def wait_idle(self) -> None:
        """Wait until no background task runs."""
        while tasks := self.tasks():
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Cancel background tasks; never waits for a model."""
        self._closed = True
        if self._state is None:
            return
        tasks = self.tasks()
        if self._pricing is not None and not self._pricing.done():
            tasks.append(self._pricing)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
