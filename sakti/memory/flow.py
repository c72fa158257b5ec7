"""How memory moves: what is observed, in the background or while a step waits, goes into the log whole and
once.

`Flow` owns the window and changes it only after the transaction that says the same has committed. Every await
on the way there is under one lock, so two commits never plan on each other's past.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from sakti.core.clock import Clock
from sakti.core.config import MemorySettings
from sakti.core.errors import MemoryFailure, SaktiError, StoreError
from sakti.core.events import Event, MemoryActivation, Notice
from sakti.core.ids import Ids
from sakti.core.types import Json
from sakti.memory import dates, failpoints, policy
from sakti.memory.context import ContextBuilder
from sakti.memory.lines import corrected
from sakti.memory.observing import Observing
from sakti.memory.reflecting import Reflecting
from sakti.memory.window import Window
from sakti.memory.work import Operation, Worker
from sakti.store import generations, memory_corrections
from sakti.store import memory as memory_store
from sakti.store import messages as message_store
from sakti.store import threads as thread_store
from sakti.store.database import Database, Store
from sakti.store.memory import Activation, Group

T = TypeVar("T")
Trigger: TypeAlias = Literal["threshold", "idle", "provider_change"]
PAUSED = "paused"  # in a record's metadata: the user wants nothing asked in the background


class Flow:
    """The state machine of one thread's memory. `changed` is called after every change, for the status."""

    def __init__(
        self,
        *,
        store: Store,
        settings: MemorySettings,
        mode: str,
        clock: Clock,
        ids: Ids,
        emit: Callable[[Event], None],
        worker: Worker,
        builder: ContextBuilder,
        window: Window,
        timezone: str,
        changed: Callable[[], None],
        failpoint: failpoints.Hook = failpoints.nothing,
    ) -> None:
        self.store, self.settings, self.mode, self.clock, self.ids = store, settings, mode, clock, ids
        self.emit, self.worker, self.builder, self.window = emit, worker, builder, window
        self.timezone, self.changed, self.failpoint = timezone, changed, failpoint
        self.budget: int | None = None
        self.goal = ""
        self.buffered_at = window.record.last_buffered_at_tokens
        self.hold_until: int | None = window.record.metadata.get("hold_until")
        self.observing = Observing(self)
        self.reflecting = Reflecting(self)
        self.backlog = False
        self.note = ""
        self.lock = asyncio.Lock()
        self._numbers: tuple[tuple[int, int | None], policy.Numbers] | None = None

    # --- figures ----------------------------------------------------------------------------------------

    @property
    def today(self) -> int:
        return dates.noon(self.clock.now(), self.timezone)

    def observation_tokens(self) -> int:
        return self.builder.tokens(self.window.active, self.today)

    def numbers(self) -> policy.Numbers:
        state = (self.observation_tokens(), self.budget)
        if self._numbers is None or self._numbers[0] != state:  # asked for many times a step
            self._numbers = state, policy.effective_numbers(self.settings, *state)
        return self._numbers[1]

    @property
    def paused(self) -> bool:
        return PAUSED in self.window.record.metadata

    def tasks(self) -> list[asyncio.Task[Any]]:
        """All work that goes on."""
        work = (self.observing.background, self.observing.waited_for, self.reflecting.task)
        return [t for t in work if t is not None and not t.done()]

    def snapshot(self, numbers: policy.Numbers) -> Json:
        return {
            "message_tokens": numbers.threshold,
            "buffer_tokens": numbers.buffer or False,
            "buffer_activation": numbers.activation,
            "block_after": numbers.block_after,
            "observation_tokens": numbers.reflect_at,
            "scope": self.window.record.scope,
            "mode": self.mode,
        }

    def operation(
        self, name: Literal["observation", "buffering"], kind: Literal["observation", "reflection"]
    ) -> Operation:
        window = self.window
        return Operation(self.ids.new(), name, kind, window.record.id, window.thread.id, self.snapshot(self.numbers()))

    # --- activation -------------------------------------------------------------------------------------

    async def activate_due(self, trigger: Trigger = "threshold") -> bool:
        """Put what is ready into the log as long as the threshold is reached; without a model call."""
        done = False
        while True:
            async with self.lock:  # what is chosen here is what goes, whatever is buffered meanwhile
                groups, reflection = self._due(trigger)
                if not groups and not reflection:
                    return done
                self.changed()  # what is projected now is what goes
                if not await self._activate(groups, trigger, with_reflection=reflection):
                    return done
            done = True
            if trigger != "threshold":
                return done

    def _due(self, trigger: Trigger) -> tuple[list[Group], bool]:
        """The groups whose time has come, and whether the waiting reflection's has."""
        numbers, window = self.numbers(), self.window
        ready = window.ready()
        count = 0
        if ready and (window.pending >= numbers.threshold or trigger != "threshold"):
            count = policy.choose_boundary(
                [g.message_tokens for g in ready], numbers.activation, numbers.threshold, window.pending
            )
        full = self.observation_tokens() >= numbers.reflect_at and not self.reflecting.held()
        return ready[:count], window.reflection is not None and full

    async def activate(self, groups: Sequence[Group], trigger: Trigger, *, with_reflection: bool) -> bool:
        """Commit one activation and follow it in the window. False when the store refused or had moved on."""
        async with self.lock:
            return await self._activate(groups, trigger, with_reflection=with_reflection)

    async def _activate(self, groups: Sequence[Group], trigger: Trigger, *, with_reflection: bool) -> bool:
        window = self.window
        reflection = window.reflection if with_reflection else None
        if reflection is not None and not {g.id for g in window.active}.issuperset(reflection.merged_group_ids):
            await self.store.write(memory_store.discard, [reflection.id], self.clock.now())
            window.reflection = reflection = None
        if not groups and reflection is None:
            return False
        change, active = self.change(groups, reflection)
        try:
            await self.store.write(self._write_activation, change)
        except MemoryFailure:
            await self.reload()
            return False
        except StoreError as e:
            self._tell(e)
            return False
        self.failpoint("activate.committed")
        self.follow(groups, reflection, active, change, trigger)
        await self.in_store_order()
        return True

    def _write_activation(self, db: Database, change: Activation) -> None:
        memory_store.activate(db, change)
        self.failpoint("activate.written")

    def change(self, groups: Sequence[Group], reflection: Group | None) -> tuple[Activation, list[Group]]:
        window = self.window
        active = [g for g in window.active if reflection is None or g.id not in reflection.merged_group_ids]
        active = [*([reflection] if reflection else []), *active, *groups]
        observed = sum(g.message_tokens for g in groups)
        last = groups[-1].last_index if groups else window.cursor
        last = window.cursor if last is None else last
        metadata: Json = {}
        if groups:
            metadata["last_observed_at"] = self.clock.now()
            told = next((g for g in reversed(groups) if g.current_task or g.suggested_response), None)
            if told is not None:
                metadata |= _task(told)
        elif (
            reflection is not None
            and reflection.current_task
            and (window.thread.metadata.get("task_index", -1) <= (reflection.last_index or -1))
        ):
            metadata |= _task(reflection)  # no newer Observer has said what is being worked on
        pending = sum(m.tokens for m in window.messages if m.index > last)
        change = Activation(
            record_id=window.record.id,
            thread_id=window.thread.id,
            group_ids=tuple(g.id for g in groups),
            reflection_id=reflection.id if reflection else None,
            expected_cursor=window.cursor,
            last_index=last,
            tokens_observed=observed,
            pending_tokens=pending,
            observation_tokens=sum(g.observation_tokens for g in active),
            buffered_at_tokens=max(0, self.buffered_at - observed),
            thread_metadata=metadata,
            title=None,
            now=self.clock.now(),
        )
        return change, active

    def follow(
        self,
        groups: Sequence[Group],
        reflection: Group | None,
        active: list[Group],
        change: Activation,
        trigger: Trigger | None,
    ) -> None:
        """The window after a committed change. `trigger` None: an observation that a step waited for, which
        has events of its own."""
        window, now = self.window, change.now
        before = len(window.messages)
        ids = set(change.group_ids)
        window.active = [
            dataclasses.replace(g, state="active", activated_at=now) if g.state == "buffered" else g for g in active
        ]
        window.buffered = [g for g in window.buffered if g.id not in ids]
        window.drop_through(change.last_index)
        self.buffered_at = change.buffered_at_tokens
        if reflection is not None:
            window.reflection = None
        record = window.record
        held = {generations.HOLD} if reflection else set[str]()
        window.record = dataclasses.replace(
            record,
            metadata={k: v for k, v in record.metadata.items() if k not in held},
            generation_count=record.generation_count + (1 if reflection else 0),
            total_tokens_observed=record.total_tokens_observed + change.tokens_observed,
            observation_token_count=change.observation_tokens,
            last_buffered_at_tokens=self.buffered_at,
            last_observed_at=now if groups else record.last_observed_at,
            last_reflection_at=now if reflection else record.last_reflection_at,
        )
        window.thread = dataclasses.replace(
            window.thread,
            metadata={k: v for k, v in {**window.thread.metadata, **change.thread_metadata}.items() if v is not None},
        )
        activated: list[tuple[Literal["observation", "reflection"], list[Group]]] = [
            ("observation", list(groups)),
            ("reflection", [reflection] if reflection else []),
        ]
        for kind, chosen in activated:
            if chosen and trigger is not None:
                self.emit(
                    MemoryActivation(
                        groups[0].cycle_id if groups else chosen[0].cycle_id,
                        kind,
                        record.id,
                        (window.thread.id,),
                        trigger,
                        now,
                        len(chosen),
                        sum(g.message_tokens for g in chosen),
                        sum(g.observation_tokens for g in chosen),
                        before - len(window.messages) if kind == "observation" else 0,
                        window.record.generation_count,
                        "\n".join(g.text for g in chosen if g.text),
                        self.snapshot(self.numbers()),
                    )
                )
        self.changed()

    # --- telling ----------------------------------------------------------------------------------------

    def failed(self, operation: Operation, error: Exception, *, started: int, tokens: int, partial: str = "") -> str:
        """Show a failure; returns it in words."""
        message = error.message if isinstance(error, SaktiError) else f"{type(error).__name__}: {error}"
        role = "Observer" if operation.type == "observation" else "Reflector"
        text = message if isinstance(error, MemoryFailure) else f"{role} failed: {message}"
        self.emit(
            operation.event(
                "failed",
                failed_at=self.clock.now(),
                duration_ms=self.clock.now() - started,
                tokens_attempted=tokens,
                error=text,
                observations=partial,
            )
        )
        return text

    def _tell(self, error: SaktiError) -> None:
        self.emit(Notice("warning", error.title, error.message))

    # --- the disk ---------------------------------------------------------------------------------------

    async def rewrite(self, work: Callable[[Database], T], point: str = "edit") -> T:
        """Commit a change that people made to the log, and read it anew."""
        async with self.lock:
            done = await self.store.write(work)
            self.failpoint(f"{point}.committed")
            await self.reload()
        return done

    async def in_store_order(self) -> None:
        """With one log for several threads a group may have been made before, but go in after, one of another
        thread: the log is then read as every later start will read it."""
        if self.window.record.scope == "resource":
            await self.reload()

    async def refresh(self) -> None:
        """Read the window anew if the record is no longer as we know it."""

        def state(db: Database) -> tuple[int, int, frozenset[str], bool]:
            record, thread = self.window.record.id, self.window.thread.id
            return (
                memory_store.cursor(db, record, thread),
                memory_corrections.count(db, record),
                memory_store.current_ids(db, record, thread),
                memory_store.is_marked(db, record, PAUSED),
            )

        async with self.lock:  # what is committed but not followed yet is no news
            window = self.window
            known = (window.cursor, window.corrections, window.group_ids(), self.paused)
            if await self.store.read(state) != known:
                await self.reload()

    async def reload(self) -> None:
        """Read the window anew: another process or an undo has changed the record."""
        old = self.window

        def read(db: Database) -> Window:
            return load(db, old)

        self.window = await self.store.read(read)
        self.window.turn_users = old.turn_users
        self.buffered_at = self.window.record.last_buffered_at_tokens
        self.changed()


def load(db: Database, old: Window) -> Window:
    record = memory_store.get_record(db, old.record.lookup_key) or old.record
    thread = thread_store.get(db, old.thread.id) or old.thread
    cursor = memory_store.cursor(db, record.id, thread.id)
    changes = memory_corrections.changed_lines(db, record.id)

    def groups(state: memory_store.GroupState) -> list[Group]:
        found = memory_store.groups(db, record.id, state)
        return [dataclasses.replace(g, text=corrected(g.text, changes[g.id])) if g.id in changes else g for g in found]

    return Window(
        thread,
        record,
        cursor,
        messages=message_store.after(db, thread.id, cursor),
        active=groups("active"),
        buffered=groups("buffered"),
        corrections=memory_corrections.count(db, record.id),
    )


def _task(group: Group) -> Json:
    return {
        "current_task": group.current_task,
        "suggested_response": group.suggested_response,
        "task_index": group.last_index,
    }
