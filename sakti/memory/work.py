"""Ask the Observer or the Reflector, and make a group with its lines of the answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from sakti.core.clock import Clock
from sakti.core.errors import MemoryFailure
from sakti.core.events import Event, Notice
from sakti.core.ids import Ids
from sakti.core.tokens import Counter
from sakti.core.types import Json, Message, plain_text
from sakti.memory import dates, lines, parse
from sakti.memory.faithfulness import Source, dropped, flags
from sakti.memory.protocol import ModelCall, ObserveInput, Observer, ReflectInput, Reflector
from sakti.store import memory as memory_store
from sakti.store import messages
from sakti.store.database import Store
from sakti.store.memory import Group, Held, NewLine, Record


class Worker:
    """Observer and Reflector of one engine."""

    def __init__(
        self,
        *,
        store: Store,
        counter: Counter,
        clock: Clock,
        ids: Ids,
        emit: Callable[[Event], None],
        observer: Observer,
        reflector: Reflector,
    ) -> None:
        self.store, self.counter, self.clock, self.ids, self.emit = store, counter, clock, ids, emit
        self.observer, self.reflector = observer, reflector

    async def observe(
        self, record: Record, request: ObserveInput, held: Held, cycle_id: str
    ) -> tuple[Group, list[NewLine]]:
        """Ask the Observer; the group is not stored yet, and its range is the caller's to say. Where nothing was worth
        a line its text is empty: the messages count as observed all the same."""
        result = await self.observer.observe(request)
        await self._record_calls(request.thread_id, "observer", result.calls)
        if result.note:
            self.emit(Notice("warning", "Memory", result.note))
        text = with_zone(parse.clean(parse.sanitize_observation_lines(result.text)), request)
        metadata: Json = {"timezone": request.timezone} if text else {}
        if title := parse.clean_line(result.title, 80):
            metadata["title"] = " ".join(title.split())
        group = dataclasses.replace(
            self.empty_group(record, request, held, cycle_id),
            text=text,
            observation_tokens=self.counter.count(text),
            model=result.model,
            prompt_hash=result.prompt_hash,
            current_task=parse.clean_line(result.current_task),
            suggested_response=parse.clean_line(result.suggested_response),
            metadata=metadata,
        )
        return group, self.rows(text, source_of(request), result.categories)

    def empty_group(self, record: Record, request: ObserveInput, held: Held, cycle_id: str) -> Group:
        """A group that says nothing."""
        return Group(
            id=self.ids.new(),
            record_id=record.id,
            thread_id=request.thread_id,
            kind="observation",
            state="buffered",
            text="",
            created_at=self.clock.now(),
            mode=request.mode,
            generation=record.generation_count,
            cycle_id=cycle_id,
            operation_id=held.operation_id,
        )

    async def reflect(
        self,
        record: Record,
        groups: Sequence[Group],
        request: ReflectInput,
        held: Held,
        cycle_id: str,
    ) -> tuple[Group, list[NewLine]]:
        """Ask the Reflector; raises `MemoryFailure` (not_smaller) unless the answer is smaller than its
        input."""
        result = await self.reflector.reflect(request)
        await self._record_calls(request.thread_id, "reflector", result.calls)
        if result.note:
            self.emit(Notice("warning", "Memory", result.note))
        text = with_pinned(parse.clean(parse.sanitize_observation_lines(result.text)), request.pinned)
        before = sum(self.counter.count(t) for _, t in request.groups)
        after = self.counter.count(text)
        if not text or after >= before:
            raise MemoryFailure(
                f"The reflection was not smaller than the log ({after} of {before} tokens): the log stays.",
                code="not_smaller",
            )
        inputs = [t for _, t in request.groups]
        merged = [g.id for g in groups]
        lost = dropped(inputs, text)
        firsts = [g.first_index for g in groups if g.first_index is not None]
        lasts = [g.last_index for g in groups if g.last_index is not None]
        group = Group(
            id=self.ids.new(),
            record_id=record.id,
            thread_id=request.thread_id,
            kind="reflection",
            state="buffered",
            text=text,
            created_at=self.clock.now(),
            mode=request.mode,
            first_message_id=groups[0].first_message_id,
            last_message_id=groups[-1].last_message_id,
            first_index=min(firsts, default=None),
            last_index=max(lasts, default=None),
            message_tokens=sum(g.message_tokens for g in groups),
            observation_tokens=after,
            generation=record.generation_count + 1,
            merged_group_ids=tuple(merged),
            cycle_id=cycle_id,
            operation_id=held.operation_id,
            model=result.model,
            prompt_hash=result.prompt_hash,
            current_task=parse.clean_line(result.current_task),
            suggested_response=parse.clean_line(result.suggested_response),
            metadata={
                **{k: v for g in groups for k, v in g.metadata.items() if k == "timezone"},
                "input_tokens": before,
                "level": result.level,
                "dropped": {"lines": list(lost.lines), "paths": list(lost.paths)},
            },
        )
        pinned = {p.lstrip("* ").strip() for p in request.pinned}
        rows = [
            dataclasses.replace(
                r, pinned=memory_store.as_line(r.content, r.priority, r.time).lstrip("* ").strip() in pinned
            )
            for r in self.rows(text, Source(*inputs), await self.store.read(memory_store.categories, merged))
        ]
        return group, rows

    def rows(self, text: str, source: Source, categories: Mapping[str, str]) -> list[NewLine]:
        """The lines of a log, each marked with what it claims that its source does not have, and with the section of
        its mode that it stands in (`categories`, by content)."""
        return [
            NewLine(
                self.ids.new(),
                r.line,
                r.depth,
                r.date,
                r.time,
                r.priority,
                r.content,
                r.metadata | ({"mode_specific": lines.fields(r.content)} if r.content in categories else {}),
                flags=flags(r.content, source),
                category=categories.get(r.content, ""),
            )
            for r in lines.rows(text)
        ]

    async def _record_calls(
        self, thread_id: str, purpose: Literal["observer", "reflector"], calls: Sequence[ModelCall]
    ) -> None:
        for call in calls:
            await self.store.write(
                messages.add_step,
                id=self.ids.new(),
                thread_id=thread_id,
                purpose=purpose,
                model=call.model,
                usage=call.usage,
                now=self.clock.now(),
                counted_tokens=call.counted_tokens,
                duration_ms=call.duration_ms,
                stop_reason=call.stop_reason,
            )


def source_of(request: ObserveInput) -> Source:
    """What an observation may draw on: the messages whole, and the log before them."""
    texts = [plain_text(m.parts) for m in request.messages]
    zones = f"{request.timezone} {request.zone_before}"
    return Source(*texts, request.log, request.current_task or "", request.goal, request.focus, zones)


def with_zone(text: str, request: ObserveInput) -> str:
    """A log that begins by saying that its times are in another zone than those before it, where that is so: what was
    written before stays as it is."""
    if not text or request.zone_before in ("", request.timezone):
        return text
    time = dates.clock_text(request.messages[0].created_at, request.timezone)
    line = f"* 🟡 ({time}) Times are in {request.timezone} from here on, those before in {request.zone_before}"
    head, _, rest = text.partition("\n")
    return f"{head}\n{line}\n{rest}" if head.startswith("Date:") else f"{line}\n{text}"


def with_pinned(text: str, pinned: Sequence[str]) -> str:
    """A reflection with every pinned line in it: those it lost come back word for word, first."""

    def bare(line: str) -> str:
        return line.strip().lstrip("*-> ").strip()  # a nested line begins with an arrow

    have = {bare(line) for line in text.split("\n")}
    lost = [p for p in pinned if bare(p) not in have]
    return "\n".join([*lost, text]) if lost else text


def observable(message: Message) -> bool:
    """Whether a message may be told to an Observer: nothing of our own, nothing that a guardrail holds
    back."""
    return message.role != "system" and message.state == "saved" and "synthetic" not in message.metadata
