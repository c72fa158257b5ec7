"""Provide the processors that every session has or can have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal

from msgspec import structs

from sakti.agent.processors.base import Processor, StepInput, TurnInput, TurnResult
from sakti.core.tokens import Counter, Estimator, O200k, message_tokens
from sakti.core.types import Message
from sakti.memory.engine import DEFAULT_CACHE_TTL, MemoryEngine

# Tools that nearly all work needs, and those that the prompt speaks of.
ALWAYS = ("read", "edit", "apply_patch", "write", "bash", "grep", "glob", "skill", "memory-search")


class MemoryProcessor(Processor):
    """Observational memory: gives each step its window of messages and the blocks that replace the rest."""

    kind = "memory"

    def __init__(self, engine: MemoryEngine) -> None:
        self.engine = engine

    async def process_input(self, turn: TurnInput) -> TurnInput:
        provider, _, model = turn.model.partition("/")
        ttl = DEFAULT_CACHE_TTL if turn.cache_ttl is None else turn.cache_ttl
        await self.engine.begin_turn(provider=provider, model=model, cache_ttl=ttl)
        return turn

    async def process_input_step(self, step: StepInput) -> StepInput:
        prepared = await self.engine.prepare(step=step.step, budget=step.budget, facts=step.facts)
        return structs.replace(
            step,
            messages=prepared.messages,
            system=(*step.system, *prepared.blocks),
        )

    async def process_output_result(self, result: TurnResult) -> TurnResult:
        await self.engine.end_turn()
        return result


class MessageHistory(Processor):
    """Newest messages only, if observational memory is off; tool exchanges are not split.

    Without a number all that memory gives are sent, as far as the window takes them.
    """

    kind = "history"

    def __init__(self, last_messages: int | Literal[False] = False) -> None:
        self.last_messages = last_messages

    async def process_input_step(self, step: StepInput) -> StepInput:
        if self.last_messages is False:
            return step
        return structs.replace(step, messages=newest_whole(step.messages, self.last_messages))


class TokenLimiter(Processor):
    """Last limit before a request: drops the oldest messages until `limit` tokens remain.

    The default is the step's budget.

    The newest user message stays, and a call is never separated from its result. `encoding` counts the text of blocks
    that have no count of their own; messages keep the counts they were stored with.
    """

    kind = "limiter"

    def __init__(
        self, limit: int | None = None, encoding: Counter | Literal["o200k_base", "estimate"] = "o200k_base"
    ) -> None:
        named: dict[str, Callable[[], Counter]] = {"o200k_base": O200k, "estimate": Estimator}
        self.counter = named[encoding]() if isinstance(encoding, str) else encoding
        self.limit = limit

    async def process_input_step(self, step: StepInput) -> StepInput:
        limit = self.limit if self.limit is not None else step.budget
        if limit is None:
            return step
        blocks = sum(b.tokens or self.counter.count(b.text) for b in step.system if b.kind not in ("system",))
        return structs.replace(step, messages=fit(step.messages, limit - blocks))


class ToolCallFilter(Processor):
    """Filter that leaves the calls of the named tools, and their results, out of the request.

    Without names all calls but those of the running turn, which the model still works on.
    """

    kind = "tool_filter"

    def __init__(self, exclude: Collection[str] | None = None) -> None:
        self.exclude = None if exclude is None else frozenset(exclude)

    async def process_input_step(self, step: StepInput) -> StepInput:
        running = {s.message.id for s in step.steps}
        remaining: list[Message] = []
        for group in exchanges(step.messages):
            if self.exclude is None:
                calls = () if group[0].id in running else group[0].tool_calls
                hidden = {c.id for c in calls}
            else:
                hidden = {c.id for c in group[0].tool_calls if c.name in self.exclude}
            remaining += without_calls(group, hidden)
        return structs.replace(step, messages=tuple(remaining))


class ToolSearch(Processor):
    """Offers all tools but the named ones by search, so that a request holds only a few.

    It is settled when a session begins: the tools of a thread's requests never change.
    """

    kind = "tool_search"

    def __init__(self, always: Collection[str] = ALWAYS) -> None:
        self.always = frozenset(always)


# --- pure -------------------------------------------------------------------------------------------------


def exchanges(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Group messages so that an assistant's calls and the tool message after them stay together."""
    groups: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and groups and groups[-1][-1].tool_calls:
            groups[-1].append(message)
        else:
            groups.append([message])
    return [tuple(g) for g in groups]


def without_calls(messages: Sequence[Message], hidden: Collection[str]) -> list[Message]:
    """Return the messages without the named calls and their results; empty messages are removed."""
    remaining: list[Message] = []
    for message in messages:
        parts = tuple(
            p
            for p in message.parts
            if getattr(p, "id", None) not in hidden and getattr(p, "call_id", None) not in hidden
        )
        if parts:
            remaining.append(message if len(parts) == len(message.parts) else structs.replace(message, parts=parts))
    return remaining


def newest_whole(messages: Sequence[Message], last: int) -> tuple[Message, ...]:
    """Return the newest exchanges with at least `last` messages in total, if there are so many."""
    newest: list[tuple[Message, ...]] = []
    size = 0
    for group in reversed(exchanges(messages)):
        if size >= last:
            break
        newest.append(group)
        size += len(group)
    return tuple(m for group in reversed(newest) for m in group)


def fit(messages: Sequence[Message], limit: int) -> tuple[Message, ...]:
    """Return the newest exchanges that fit `limit` tokens.

    The newest one and the newest user message are always among them.
    """
    groups = exchanges(messages)
    sizes = [sum(m.tokens or message_tokens(m.part_tokens) for m in g) for g in groups]
    current = max((i for i, g in enumerate(groups) if is_from_user(g[0])), default=len(groups) - 1)
    must = {current, len(groups) - 1}
    room = limit - sum(sizes[i] for i in must if 0 <= i < len(sizes))
    chosen = set(must)
    for i in range(len(groups) - 1, -1, -1):
        if i in must:
            continue
        if sizes[i] > room:
            break
        room -= sizes[i]
        chosen.add(i)
    return tuple(m for i, g in enumerate(groups) if i in chosen for m in g)


def is_from_user(message: Message) -> bool:
    """Return whether the user typed the message, rather than sakti."""
    return message.role == "user" and not message.metadata.get("synthetic")
