"""Ask models: one answers from the context and by searching, one judges without seeing either."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path

from msgspec import Struct

from sakti.agent.tools import memory_search
from sakti.agent.tools.actions import ActionTool
from sakti.agent.tools.context import ToolState
from sakti.core.clock import Clock, SystemClock
from sakti.core.config import ModelSettings
from sakti.core.errors import ProviderError, ToolError
from sakti.core.text import to_one_line
from sakti.core.tokens import Counter
from sakti.core.types import (
    Block,
    Json,
    Message,
    ModelInfo,
    Part,
    Request,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from sakti.memory.model_call import MemoryModel
from sakti.providers import facts
from sakti.providers.facts import ServedLimits
from sakti.providers.limits import Retries
from sakti.providers.protocol import Completed, Provider, StreamEvent
from tests.bench.longmemeval import prompts
from tests.bench.longmemeval.formats import BenchQuestion
from tests.bench.longmemeval.ingest import WORKSPACE, Ingested

STEPS = 6  # model calls of one answer


class MeteredProvider:
    """Provider that adds up what its calls use, priced, until `take`."""

    def __init__(self, provider: Provider, model: str) -> None:
        self.name, self.is_custom_server, self.loopback = provider.name, provider.is_custom_server, provider.loopback
        self.model = model
        self._provider = provider
        self._usage = Usage()

    @property
    def full_name(self) -> str:
        return f"{self.name}/{self.model}"

    def take(self) -> Json:
        """Return tokens and US dollars since the last time; the price is None if it is not known."""
        usage, self._usage = self._usage, Usage()
        return {
            "fresh": usage.input_tokens - usage.cached_tokens,
            "cached": usage.cached_tokens,
            "output": usage.output_tokens,
            "usd": usage.cost_usd,
        }

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        events = self._provider.stream(request)
        try:
            async for event in events:
                if isinstance(event, Completed):
                    self._usage += facts.with_cost(event.usage, self.name, self.model)
                yield event
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    async def models(self) -> Sequence[ModelInfo]:
        return await self._provider.models()

    async def fetch_limits(self, model: str) -> ServedLimits | None:
        return await self._provider.fetch_limits(model)

    async def warm(self) -> None:
        await self._provider.warm()

    async def close(self) -> None:
        await self._provider.close()


class ModelAnswer(Struct, frozen=True):
    text: str
    steps: int
    searches: int
    latency_ms: int


class AnswerModel:
    """Model that answers questions about a conversation; with `tool` it may search, in at most `STEPS` calls."""

    def __init__(self, provider: MeteredProvider, counter: Counter, folder: Path) -> None:
        self.provider = provider
        self._counter, self._folder = counter, folder
        self._clock: Clock = SystemClock()

    async def answer(self, question: BenchQuestion, ingested: Ingested, *, searches: bool) -> ModelAnswer:
        tool = self._tool(ingested) if searches else None
        day = time.strftime("%A, %d %B %Y", time.gmtime(question.asked_at / 1000))
        head = (prompts.ANSWER if tool else prompts.ANSWER_ALONE).format(steps=STEPS - 1, date=day)
        system = (Block("system", head, edge=True), *ingested.blocks)
        messages = [*_dated(ingested.messages), _message("user", (TextPart(f"Question: {question.text}"),), question)]
        started = time.monotonic()
        count = 0
        for step in range(1, STEPS + 1):
            done = await self._call(
                Request(
                    self.provider.model,
                    system,
                    tuple(messages),
                    (tool.spec(),) if tool else (),
                    "auto" if step < STEPS else "none",
                )
            )
            calls = [p for p in done.parts if isinstance(p, ToolCallPart)]
            if not calls or tool is None or step == STEPS:
                break
            count += len(calls)
            messages.append(_message("assistant", done.parts, question))
            results = tuple([await self._run(tool, call, ingested) for call in calls])
            messages.append(_message("tool", results, question))
        text = "\n".join(p.text for p in done.parts if isinstance(p, TextPart)).strip()
        return ModelAnswer(text, step, count, round(1000 * (time.monotonic() - started)))

    def _tool(self, ingested: Ingested) -> ActionTool:
        sent = {m.id for m in ingested.messages}
        return memory_search.make_memory_search(
            ingested.store, resource_id=WORKSPACE, counter=self._counter, in_window=lambda: sent
        )

    async def _run(self, tool: ActionTool, call: ToolCallPart, ingested: Ingested) -> ToolResultPart:
        state = ToolState(self._folder, self._folder, self._folder, self._clock, ingested.store.ids, {})
        try:
            outcome = await tool(state.make_context(call.id, ingested.thread_id, ""), call.arguments or {})
        except ToolError as e:
            return ToolResultPart(call.id, call.name, e.message, is_error=True)
        return ToolResultPart(call.id, call.name, outcome.content, outcome.is_error)

    async def _call(self, request: Request) -> Completed:
        retries = Retries(random.random)
        while True:
            try:
                return await self._complete(request)
            except ProviderError as e:
                seconds = retries.wait(e)
                if seconds is None:
                    raise
                await self._clock.sleep(seconds)

    async def _complete(self, request: Request) -> Completed:
        async for event in self.provider.stream(request):
            if isinstance(event, Completed):
                return event
        raise ProviderError("The answer broke off before its end.", code="stream_cut", retryable=True)


def _message(role: Role, parts: tuple[Part, ...], question: BenchQuestion) -> Message:
    return Message(f"bench-{role}", "", WORKSPACE, role, parts, question.asked_at)


def _dated(messages: Sequence[Message]) -> list[Message]:
    """Return the messages, each of another day than the one before with its date: questions ask for times."""
    out: list[Message] = []
    day = ""
    for message in messages:
        today = time.strftime("%d %B %Y", time.gmtime(message.created_at / 1000))
        parts = message.parts if today == day else (TextPart(f"[{today}]"), *message.parts)
        out.append(Message(message.id, message.thread_id, WORKSPACE, message.role, parts, message.created_at))
        day = today
    return out


class JudgeModel:
    """Model that compares answers with references; it never sees the conversation."""

    def __init__(self, provider: MeteredProvider, counter: Counter) -> None:
        self.provider = provider
        settings = ModelSettings(temperature=0.0)
        self._model = MemoryModel(provider, provider.model, counter, SystemClock(), settings=settings)

    async def judge(self, type: str, question: str, reference: str, answer: str, *, abstention: bool) -> Json:
        """Return the verdict, None if the reply is neither yes nor no, with the prompt and the reply."""
        system = prompts.judge_system(type, abstention=abstention)
        reference = "(none: this was never said)" if abstention else reference
        prompt = prompts.JUDGE_PROMPT.format(question=question, reference=reference, answer=answer or "(no answer)")
        verdict, reply = await self._ask(system, prompt)
        return {"verdict": verdict, "judge_prompt": f"{system}\n\n{prompt}", "judge_reply": reply}

    async def is_supported(self, line: str, messages: str) -> bool | None:
        """Return whether a line of the log says only what its messages say; None without a clear reply."""
        verdict, _ = await self._ask(prompts.SOURCE, prompts.SOURCE_PROMPT.format(messages=messages, line=line))
        return verdict

    async def _ask(self, system: str, prompt: str) -> tuple[bool | None, str]:
        text, _ = await self._model.ask(system, prompt)
        words = text.strip().strip("*_.\"'").casefold().split()
        first = words[0].strip(".,:;!*\"'") if words else ""
        return {"yes": True, "no": False}.get(first), to_one_line(text, 200)
