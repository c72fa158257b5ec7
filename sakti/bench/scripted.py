"""Observer and Reflector that answer by rule, when they are told to: the models of a replay."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from dataclasses import dataclass

from sakti.core.clock import Clock
from sakti.core.config import ModelSettings
from sakti.core.errors import ProviderError
from sakti.core.tokens import Counter
from sakti.core.types import Message, plain_text
from sakti.memory import dates
from sakti.memory.asking import Asker
from sakti.memory.observer import ModelObserver
from sakti.memory.protocol import ObserveInput, ObserveResult, ReflectInput, ReflectResult
from sakti.providers.protocol import Provider

LINE_SHARE = 0.1  # of a message's tokens: the length of its line
_NAMED = re.compile(r"[\w./-]*[/_][\w./-]*\w|\w+\.\w{1,4}\b")
_BROKEN = ProviderError("rate limit exceeded", code="rate_limit")


@dataclass(slots=True)
class _Waiting:
    due: int
    answer: asyncio.Future[None]


class Gate:
    """Holds back what memory's models answer until `delay` further calls of the actor's model were made."""

    def __init__(self, delay: int) -> None:
        self.delay = delay
        self.calls = 0
        self._waiting: list[_Waiting] = []

    @property
    def waiting(self) -> int:
        self._waiting = [w for w in self._waiting if not w.answer.done()]
        return len(self._waiting)

    async def wait(self) -> None:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(self.calls + self.delay, answer))
        await answer

    def call_made(self) -> None:
        """The actor's model was called: whoever has waited long enough may answer."""
        self.calls += 1
        for waiting in self._waiting:
            if waiting.due < self.calls and not waiting.answer.done():
                waiting.answer.set_result(None)

    def release(self) -> None:
        """Everything that waits may answer now."""
        for waiting in self._waiting:
            if not waiting.answer.done():
                waiting.answer.set_result(None)


class ScriptedObserver:
    """One line a message of about a tenth of its tokens, naming its paths and identifiers. `cpu` is the
    seconds of thread time that it took, `input_tokens` the whole prompts without instructions."""

    name = "scripted"

    def __init__(
        self,
        gate: Gate,
        counter: Counter,
        clock: Clock,
        provider: Provider,
        *,
        previous_tokens: int,
        fail_rate: float,
        seed: int,
    ) -> None:
        asker = Asker(provider, "scripted", counter, clock, settings=ModelSettings())
        self._prompt = ModelObserver(asker, previous_tokens=previous_tokens).prompt
        self._gate, self._counter, self._clock = gate, counter, clock
        self._source, self._fail_rate = random.Random(seed), fail_rate
        self.cpu = 0.0
        self.calls = 0
        self.input_tokens = 0
        self.prompts: list[str] = []
        self.answered: list[tuple[str, int, int]] = []
        self.asked: list[Message] = []

    async def observe(self, request: ObserveInput) -> ObserveResult:
        started = time.thread_time()
        self.calls += 1
        prompt = self._prompt(request)
        self.prompts.append(prompt)
        self.asked += request.messages
        self.input_tokens += self._counter.count(prompt)
        text = self._lines(request)
        number = self.calls
        self.cpu += time.thread_time() - started
        await self._gate.wait()
        if self._source.random() < self._fail_rate:
            raise _BROKEN
        self.answered.append((request.thread_id, request.messages[0].index, request.messages[-1].index))
        return ObserveResult(text, f"Primary: part {number}", f"Go on with part {number}.", f"Part {number}", self.name)

    def _lines(self, request: ObserveInput) -> str:
        out: list[str] = []
        day = ""
        for message in request.messages:
            today = dates.day_text(message.created_at, request.timezone)
            if today != day:
                day = today
                out.append(f"Date: {day}")
            sign = "🔴" if message.role == "user" and message.index % 6 == 0 else "🟡"
            out.append(f"* {sign} ({dates.clock_text(message.created_at, request.timezone)}) {self._line(message)}")
        return "\n".join(out)

    def _line(self, message: Message) -> str:
        text = plain_text(message.parts)
        words = max(3, int(message.tokens * LINE_SHARE * 0.7))
        named = list(dict.fromkeys(m[0] for m in itertools.islice(_NAMED.finditer(text), 40)))[: max(1, words // 8)]
        rest = text.split(None, words)[: max(2, words - 3 * len(named))]
        return " ".join([f"{message.role} {message.index}:", *rest, *named])


class ScriptedReflector:
    """Half of its input's lines; all of them when it is incompressible."""

    name = "scripted"

    def __init__(self, gate: Gate, *, incompressible: bool, fail_rate: float, seed: int) -> None:
        self._gate, self._incompressible = gate, incompressible
        self._source, self._fail_rate = random.Random(seed), fail_rate
        self.cpu = 0.0

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        started = time.thread_time()
        lines = [line for _, text in request.groups for line in text.split("\n") if line.strip()]
        kept = lines if self._incompressible else self._half(lines)
        self.cpu += time.thread_time() - started
        await self._gate.wait()
        if self._source.random() < self._fail_rate:
            raise _BROKEN
        return ReflectResult("\n".join(kept), "Primary: as reflected", None, self.name)

    def _half(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        header, number = "", 0
        for line in lines:
            if line.startswith("Date:"):
                header = line
                continue
            number += 1
            if number % 2 == 0:
                continue
            if header and header not in out[-200:]:
                out.append(header)
            out.append(line)
        return out
