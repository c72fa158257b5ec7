"""A memory that can be driven without an agent: scripted Observer and Reflector, and checks of what must
hold."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sakti.core.config import MemorySettings, ObservationSettings, ReflectionSettings
from sakti.core.errors import ProviderError
from sakti.core.events import Event
from sakti.core.tokens import Counter, Estimator, count_parts, sum_message_tokens
from sakti.core.types import Message, Part, TextPart, Thread, ToolCallPart, ToolResultPart
from sakti.memory import state
from sakti.memory.engine import MemoryEngine, Prepared
from sakti.memory.log import dates
from sakti.memory.protocol import ObserveInput, ObserveResult, ReflectInput, ReflectResult
from sakti.memory.state import MemoryOptions, MemoryServices
from sakti.store.database import Store
from sakti.store.memory.group_rows import list_spans
from sakti.store.threads import messages, threads
from tests.fakes.clock import FakeClock


class ScriptedObserver:
    """One line a message. `gate` (an event) is awaited before each answer; `fail` decides by the call's
    number."""

    name = "scripted"

    def __init__(self, fail: Callable[[int], bool] = lambda _: False) -> None:
        self.inputs: list[ObserveInput] = []
        self.fail = fail
        self.gate: asyncio.Event | None = None

    async def observe(self, request: ObserveInput) -> ObserveResult:
        self.inputs.append(request)
        number = len(self.inputs)
        if self.gate is not None:
            await self.gate.wait()
        if self.fail(number):
            raise ProviderError("rate limit exceeded", code="rate_limit")
        lines = [f"Date: {dates.format_day(request.messages[0].created_at, 'UTC')}"]
        for m in request.messages:
            words = " ".join(re.findall(r"\w+", m.text or str(m.parts))[:6])
            lines.append(f"* 🟡 (10:00) {m.role} {m.index}: {words}")
        return ObserveResult(
            "\n".join(lines), f"Primary: task {number}", f"Go on {number}", f"Title {number}", "scripted"
        )


class ScriptedReflector:
    name = "scripted"

    def __init__(self, *, incompressible: bool = False) -> None:
        self.inputs: list[ReflectInput] = []
        self.incompressible = incompressible
        self.gate: asyncio.Event | None = None

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        self.inputs.append(request)
        if self.gate is not None:
            await self.gate.wait()
        lines = [line for _, text in request.groups for line in text.split("\n")]
        return ReflectResult("\n".join(lines if self.incompressible else lines[::2]), "Primary: reflected")


def settings(message_tokens: int = 1_000, observation_tokens: int = 400, **values: Any) -> MemorySettings:
    observation = {k: values.pop(k) for k in ("buffer_tokens", "buffer_activation", "block_after") if k in values}
    return MemorySettings(
        observation=ObservationSettings(message_tokens=message_tokens, **observation),
        reflection=ReflectionSettings(observation_tokens=observation_tokens),
        **values,
    )


class Driver:
    """A thread, its engine, and what an agent does to them; every request is checked and kept."""

    zone = "UTC"
    patience = 0.1  # seconds that a step waits for another window's observation
    turn_wait = 3_600.0  # seconds that a turn waits for models of memory: a test that waits too long fails by itself

    def __init__(self, store: Store, settings: MemorySettings, observer: Any, reflector: Any, counter: Counter) -> None:
        self.store, self.settings, self.observer, self.reflector = store, settings, observer, reflector
        self.counter = counter
        self.events: list[Event] = []
        self.requests: list[Prepared] = []
        self.budget: int | None = None
        self.said: list[Message] = []
        self.prompts: list[Message] = []
        clock = store.clock
        assert isinstance(clock, FakeClock)
        self.clock = clock
        self.step_number = 0
        self.failpoint: state.FailpointHook = state.ignore_failpoint

    @classmethod
    async def make(
        cls,
        path: Path,
        memory: MemorySettings | None = None,
        *,
        observer: Any = None,
        reflector: Any = None,
        counter: Counter | None = None,
        thread_id: str = "t1",
        failpoint: state.FailpointHook = state.ignore_failpoint,
        clock: FakeClock | None = None,
    ) -> Driver:
        clock = clock or FakeClock()
        store = await Store.open(path, clock=clock, synchronous="NORMAL")
        driver = cls(
            store,
            memory or settings(),
            observer or ScriptedObserver(),
            reflector or ScriptedReflector(),
            counter or Estimator(),
        )
        driver.failpoint = failpoint
        await driver.open(thread_id)
        return driver

    async def open(self, thread_id: str = "t1", mode: str = "default") -> None:
        thread = await self.store.read(threads.get, thread_id)
        if thread is None:
            now = self.clock.now()
            thread = Thread(thread_id, "workspace", "", now, now)
            await self.store.write(threads.create, thread)
        self.thread = thread
        services = MemoryServices(self.store, self.counter, self.events.append, failpoint=self.failpoint)
        options = MemoryOptions(
            settings=self.settings,
            mode=mode,
            timezone=self.zone,
            patience=self.patience,
            turn_wait=self.turn_wait,
        )
        self.engine = MemoryEngine(services, options, self.observer, self.reflector)
        await self.engine.open(thread)

    async def close(self) -> None:
        await self.engine.close()
        await self.store.close()

    def of(self, kind: type[Any]) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]

    async def say(self, role: str, *parts: Part) -> Message:
        counted = count_parts(self.counter, parts)
        self.clock.advance(0.01)
        message = Message(
            self.store.ids.new(),
            self.thread.id,
            "workspace",
            role,
            parts,
            self.clock.now(),  # pyright: ignore
            tokens=sum_message_tokens(counted),
            part_tokens=counted,
            token_counter=self.counter.name,
        )
        saved = await self.store.write(messages.append, message)
        self.said.append(saved)
        self.engine.add(saved)
        return saved

    async def begin(self, text: str, model: str = "demo") -> None:
        self.prompts = [await self.say("user", TextPart(text))]
        self.step_number = 0
        await self.engine.begin_turn(provider="scripted", model=model)

    async def prepare(self) -> Prepared:
        self.step_number += 1
        prepared = await self.engine.prepare(step=self.step_number, budget=self.budget)
        self.requests.append(prepared)
        self.check(prepared)
        return prepared

    async def turn(self, text: str, steps: list[dict[str, Any]]) -> None:
        await self.begin(text)
        for number, step in enumerate(steps):
            await self.prepare()
            await self.step(step, f"c{len(self.said)}-{number}")
        await self.engine.end_turn()

    async def step_result(self, message: Message) -> None:
        """Answer the calls of a message that was left without results."""
        await self.say("tool", *(ToolResultPart(c.id, c.name, "interrupted") for c in message.tool_calls))

    async def step(self, step: dict[str, Any], call_id: str) -> None:
        tool = step.get("tool")
        text = (TextPart(step["text"]),) if step.get("text") else ()
        if tool is None:
            await self.say("assistant", *(text or (TextPart("."),)))
            return
        await self.say("assistant", *text, ToolCallPart(call_id, tool["name"], tool["args"]))
        await self.say("tool", ToolResultPart(call_id, tool["name"], tool["result"]))

    def check(self, prepared: Prepared) -> None:
        """The invariants that every request shows."""
        flow = self.engine._state
        assert flow is not None
        sent = [m for m in prepared.messages if "synthetic" not in m.metadata]
        indexes = [m.index for m in sent]
        assert indexes == sorted(set(indexes)), "order"
        for prompt in self.prompts:
            assert prompt.id in {m.id for m in sent}, "the current prompt is missing"
        called = {c.id for m in sent for c in m.tool_calls}
        answered = {r.call_id for m in sent for r in m.tool_results}
        assert called == answered, "a call and its result were parted"
        covered = set[int]()
        for group in flow.window.active:
            own = {i for s in list_spans(group) if s.thread_id == self.thread.id for i in range(s.first, s.last + 1)}
            assert group.kind == "reflection" or not covered & own, "observed twice"
            covered |= own
        if self.budget is None and flow.message_limit is None and not self.engine._request.is_limited:
            missing = [m.index for m in self.said if m.index not in covered and m.index not in indexes]
            assert not missing, f"messages {missing} are neither raw nor in the log"
        else:
            size = sum(m.tokens for m in prepared.messages) + sum(b.tokens for b in prepared.blocks)
            last = sum(m.tokens for m in sent[-3:]) + sum(m.tokens for m in self.prompts)
            assert self.budget is None or size <= max(self.budget, last + sum(b.tokens for b in prepared.blocks) + 200)
        if prepared.messages and "synthetic" in prepared.messages[0].metadata:
            assert flow.window.cursor >= 0
        assert sent[-1].role in ("user", "tool"), "a request ends with the user's or a tool's"
