"""When the log itself is condensed: in the background early on, or while a step waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sakti.core.errors import MemoryFailure
from sakti.memory import policy
from sakti.memory.protocol import ReflectInput
from sakti.store import generations, memory_corrections
from sakti.store import memory as memory_store
from sakti.store.database import Database
from sakti.store.generations import ReflectionUndone
from sakti.store.memory import Group

if TYPE_CHECKING:
    from sakti.memory.flow import Flow

TAIL_MS, TAIL_LINES = 24 * policy.HOUR, 50
INTERVALS = 5  # after an undo the log grows by such a part of its threshold before it is condensed again


class Reflecting:
    """The reflections of one flow. `task` is the one that runs or ran last."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.task: asyncio.Task[None] | None = None
        self._above = 0  # input tokens of the last reflection that failed: not tried again until it has grown

    def running(self) -> asyncio.Task[None] | None:
        return self.task if self.task is not None and not self.task.done() else None

    def held(self) -> bool:
        """After an undo: nothing is condensed by itself until the log has grown by one more interval."""
        window = self.flow.window
        until = window.record.metadata.get(generations.HOLD)
        return until is not None and sum(g.observation_tokens for g in window.active) < until

    async def undo(self, generation: int | None = None) -> ReflectionUndone:
        """Take a reflection back, the newest by default; one that is being made from it is dropped. Raises
        `MemoryFailure`: not_found, conflict."""
        flow = self.flow
        interval = flow.numbers().reflect_at // INTERVALS

        def store(db: Database) -> ReflectionUndone:
            done = generations.undo_reflection(
                db, flow.window.record.id, flow.clock.now(), interval=interval, generation=generation
            )
            flow.failpoint("unreflect.written")
            return done

        return await flow.rewrite(store, "unreflect")

    def to_reflect(self, numbers: policy.Numbers) -> list[Group]:
        """The older part of the log: all but the newest lines (24 hours or 50, whichever is more) that fit a
        third of the budget; reflections that fill more than half of it go alone, first."""
        active = self.flow.window.active
        reflections = [g for g in active if g.kind == "reflection"]
        if len(reflections) > 1 and sum(g.observation_tokens for g in reflections) > numbers.reflect_at / 2:
            return reflections
        kept, rows, tokens = 0, 0, 0
        for group in reversed([g for g in active if g.kind == "observation"]):
            young = self.flow.clock.now() - group.created_at < TAIL_MS
            if not (young or rows < TAIL_LINES) or tokens + group.observation_tokens > numbers.reflect_at / 3:
                break
            kept, rows, tokens = (
                kept + 1,
                rows + group.text.count("\n") + 1,
                tokens + group.observation_tokens,
            )
        return active[: len(active) - kept]

    def start(self, numbers: policy.Numbers) -> None:
        """Condense the older log in the background from its share of the threshold on; the result waits for
        it."""
        if numbers.reflect_from is None or self.flow.observation_tokens() < numbers.reflect_from or self.held():
            return
        if self.flow.paused:
            return
        self.begin(numbers, 1)

    def begin(self, numbers: policy.Numbers, level: int, *, whole: bool = False) -> bool:
        """Start at a level; False when one runs or waits, or there is nothing (new) to condense. `whole`: all
        of the log, however small it is."""
        if self.flow.window.reflection is not None or self.running() is not None:
            return False
        groups = list(self.flow.window.active) if whole else self.to_reflect(numbers)
        tokens = sum(g.observation_tokens for g in groups)
        if not groups or (not whole and (tokens <= self._above or tokens < numbers.reflect_at // 6)):
            return False
        self.task = asyncio.create_task(self._reflect(groups, numbers, level, tokens))
        self.task.add_done_callback(lambda _task: self.flow.changed())  # only now it no longer runs
        return True

    async def _reflect(self, groups: list[Group], numbers: policy.Numbers, level: int, tokens: int) -> None:
        window, started = self.flow.window, self.flow.clock.now()
        operation = self.flow.operation("buffering" if level else "observation", "reflection")
        rest = self.flow.observation_tokens() - tokens
        share = self.flow.settings.reflection.buffer_activation if level else 0.5
        target = max(1, int(min(numbers.reflect_at - rest, tokens * share)))
        name = "tokens_to_buffer" if level else "tokens_to_observe"

        async def work() -> None:
            kind = "buffering_reflection" if level else "reflecting"
            async with self.flow.worker.lease(window.record, kind, window.thread.id) as held:
                self.flow.failpoint("reflect.begin")
                self.flow.emit(operation.event("start", started_at=started, **{name: tokens}))
                self.flow.changed()
                pinned = await self.flow.store.read(memory_store.pinned_lines, [g.id for g in groups])
                request = ReflectInput(
                    window.thread.id,
                    tuple((g.id, g.text) for g in groups if g.text),
                    target,
                    level,
                    tuple(pinned),
                    self.flow.mode,
                    limit_tokens=max(1, numbers.reflect_at - rest),
                )
                group, rows = await self.flow.worker.reflect(
                    window.record, groups, request, held=held, operation=operation
                )
                self.flow.failpoint("reflect.asked")

                def store(db: Database) -> None:
                    if memory_corrections.count(db, window.record.id) != window.corrections:
                        raise MemoryFailure("The log was corrected meanwhile: it is condensed anew.", code="conflict")
                    memory_store.insert_group(
                        db, group, rows, resource_id=window.thread.resource_id, expected_cursor=None, held=held
                    )
                    self.flow.failpoint("reflect.written")

                await self.flow.store.write(store)
                self.flow.failpoint("reflect.committed")
                self.flow.window.reflection = group
                done = "tokens_buffered" if level else "tokens_observed"
                size = "buffered_tokens" if level else "observation_tokens"
                self.flow.emit(
                    operation.event(
                        "end",
                        completed_at=self.flow.clock.now(),
                        duration_ms=self.flow.clock.now() - started,
                        observations=group.text,
                        **{done: tokens, size: group.observation_tokens},
                    )
                )

        try:
            await work()
            self._above = 0
        except Exception as e:
            if not isinstance(e, MemoryFailure) or e.code not in ("busy", "conflict", "lease_lost"):
                self._above = tokens + tokens // 10
            self.flow.note = self.flow.failed(operation, e, started=started, tokens=tokens)
        self.flow.changed()

    async def settle(self) -> None:
        """Before a request: wait for a reflection above its own `block_after`, or at the threshold when
        nothing is done in the background; then put it into the log."""
        flow = self.flow
        numbers, tokens = flow.numbers(), flow.observation_tokens()
        if tokens < numbers.reflect_at or self.held() or flow.paused:
            return
        if self.running() is None and flow.window.reflection is None and not self.begin(numbers, 0):
            return
        running = self.running()
        if running is not None and (tokens > numbers.reflect_block_after or numbers.reflect_from is None):
            await asyncio.wait([running])
            await flow.activate_due()
