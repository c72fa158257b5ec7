"""Answer by rule as Observer and Reflector, when told to: the models of a replay.

The line of a message contains a word that only this message gives (`oracle.tag`): so a reader of the log knows which
messages it is about.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections.abc import Callable, Collection, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.core.clock import Clock
from sakti.core.config import ModelSettings
from sakti.core.errors import ProviderError
from sakti.core.tokens import Counter
from sakti.core.types import Message, join_plain_text
from sakti.memory.log import dates
from sakti.memory.model_call import MemoryModel
from sakti.memory.observe.model import ModelObserver
from sakti.memory.protocol import ObserveInput, ObserveResult, ReflectInput, ReflectResult
from sakti.providers.protocol import Provider
from tests.bench import oracle
from tests.bench.charged import Charge

ModelRole: TypeAlias = Literal["observer", "reflector"]
LINE_SHARE = 0.1  # of a message's tokens: the length of its line
TAG_TOKENS = 4
_NAMED = re.compile(r"[\w./-]*[/_][\w./-]*\w|\w+\.\w{1,4}\b")
_BROKEN = ProviderError("rate limit exceeded", code="rate_limit")


class Waiting(Struct, eq=False):
    """Model of memory that could answer, of a window."""

    window: int
    role: ModelRole
    due: int
    answer: asyncio.Future[None]


class Gate:
    """Gate that delays the answers of memory's models until `delay` further calls of the actor's model.

    Windows in `stopped` get no answer at all.
    """

    def __init__(self, delay: int) -> None:
        self.delay = delay
        self.calls = 0
        self.stopped: set[int] = set()
        self._waiting: list[Waiting] = []

    def waiting(self, window: int | None = None) -> list[Waiting]:
        """Return what could be released, of one window or of all that are not stopped."""
        self._waiting = [w for w in self._waiting if not w.answer.done()]
        return [w for w in self._waiting if (w.window not in self.stopped if window is None else w.window == window)]

    async def wait(self, window: int, role: ModelRole) -> None:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiting(window, role, self.calls + self.delay, answer))
        await answer

    def call_made(self) -> None:
        """Count a call of the actor's model; those that waited long enough may answer."""
        self.calls += 1
        self.release([w for w in self.waiting() if w.due < self.calls])

    def release(self, chosen: Collection[Waiting] | None = None) -> None:
        """Let these answer now, or all that wait."""
        for waiting in self.waiting() if chosen is None else chosen:
            if not waiting.answer.done():
                waiting.answer.set_result(None)


class ScriptedObserver:
    """Observer that writes one line per message, of about a tenth of its tokens, with its paths and identifiers.

    A tool's line is nested under that of its call. `input_tokens` are the whole prompts without instructions; `charge`
    leaves out what it takes itself.
    """

    name = "scripted"

    def __init__(
        self,
        gate: Gate,
        counter: Counter,
        clock: Clock,
        provider: Provider,
        charge: Charge,
        *,
        window: int,
        previous_tokens: int,
        fail_rate: float,
        seed: int,
    ) -> None:
        memory_model = MemoryModel(provider, "scripted", counter, clock, settings=ModelSettings())
        self._prompt = ModelObserver(memory_model, previous_tokens=previous_tokens).prompt
        self._gate, self._counter, self._window, self._charge = gate, counter, window, charge
        self._source, self._fail_rate = random.Random(seed), fail_rate
        self.asked: Callable[[ObserveInput, str], None] = lambda request, prompt: None
        self.answered: Callable[[ObserveInput], None] = lambda request: None
        self.calls = 0
        self.input_tokens = 0

    async def observe(self, request: ObserveInput) -> ObserveResult:
        with self._charge.apart():
            self.calls += 1
            prompt = self._prompt(request)
            self.input_tokens += self._counter.count(prompt)
            self.asked(request, prompt)
            text = self._lines(request)
            number = self.calls
        await self._gate.wait(self._window, "observer")
        if self._source.random() < self._fail_rate:
            raise _BROKEN
        with self._charge.apart():
            self.answered(request)
        return ObserveResult(text, f"Primary: part {number}", f"Go on with part {number}.", f"Part {number}", self.name)

    def _lines(self, request: ObserveInput) -> str:
        out: list[str] = []
        day = ""
        for message in request.messages:
            today = dates.format_day(message.created_at, request.timezone)
            if today != day:
                day = today
                out.append(f"Date: {day}")
            if message.role == "tool":
                out.append(f"  * -> {self._line(message)}")
                continue
            sign = "🔴" if message.role == "user" and message.index % 6 == 0 else "🟡"
            out.append(f"* {sign} ({dates.format_clock(message.created_at, request.timezone)}) {self._line(message)}")
        return "\n".join(out)

    def _line(self, message: Message) -> str:
        text = join_plain_text(message.parts)
        words = max(2, int(message.tokens * LINE_SHARE * 0.7) - TAG_TOKENS)
        named = list(dict.fromkeys(m[0] for m in itertools.islice(_NAMED.finditer(text), 40)))[: max(1, words // 8)]
        rest = text.split(None, words)[: max(1, words - 3 * len(named))]
        return " ".join([f"{message.role} {message.index} {oracle.tag(message)}:", *rest, *named])


class ScriptedReflector:
    """Reflector that keeps half of its input's lines; all of them when it is incompressible."""

    name = "scripted"

    def __init__(
        self, gate: Gate, charge: Charge, *, window: int, incompressible: bool, fail_rate: float, seed: int
    ) -> None:
        self._gate, self._window, self._incompressible, self._charge = gate, window, incompressible, charge
        self._source, self._fail_rate = random.Random(seed), fail_rate
        self.answered: Callable[[ReflectInput, str], None] = lambda request, text: None

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        with self._charge.apart():
            lines = [line for _, text in request.groups for line in text.split("\n") if line.strip()]
            text = "\n".join(lines if self._incompressible else self._half(lines))
        await self._gate.wait(self._window, "reflector")
        if self._source.random() < self._fail_rate:
            raise _BROKEN
        with self._charge.apart():
            self.answered(request, text)
        return ReflectResult(text, "Primary: as reflected", None, self.name)

    def _half(self, lines: Sequence[str]) -> list[str]:
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
