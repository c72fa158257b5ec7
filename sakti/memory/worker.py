"""Call the Observer or the Reflector, and make a group with its lines from the answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct, structs

from sakti.core.errors import MemoryFailure
from sakti.core.events import Notice
from sakti.core.types import Json, Message, ModelCall, join_plain_text
from sakti.memory import modes
from sakti.memory.log import dates, lines, parse
from sakti.memory.observe import model, speaking
from sakti.memory.observe.faithfulness import Dropped, EvidenceSource, find_losses, find_unsupported
from sakti.memory.observe.tool_facts import with_user_answers
from sakti.memory.protocol import (
    ObserveInput,
    Observer,
    ObserveResult,
    ReflectInput,
    Reflector,
    ReflectResult,
)
from sakti.memory.reflect import quality
from sakti.memory.reflect.extractive import NAME as EXTRACTIVE
from sakti.memory.reflect.extractive import ExtractiveReflector
from sakti.memory.shared import split_sections
from sakti.memory.state import MemoryServices
from sakti.memory.statements import marking
from sakti.store import memory as memory_store
from sakti.store.database import Database
from sakti.store.log import lines as memory_log
from sakti.store.log.replacements import remove_marks
from sakti.store.memory import Group, NewLine, Record, ResultLease
from sakti.store.memory.group_rows import Section, get_row_thread, list_spans, make_section_metadata, merge_spans
from sakti.store.secrets import mask_secrets
from sakti.store.threads import messages

FINDINGS_SHARE = 4  # largest share of a reflection's target (1/4) for verified findings
ATTEMPTS = 2  # failed reflections after which a full log is condensed without a model


class ReflectionInputs(Struct, frozen=True):
    """Content that a reflection must keep: pinned lines, sections and fields of lines, replaced words.

    `findings` are verified findings of child threads, newest first, limited to a share of the target.
    """

    pinned: list[str]
    sections: Mapping[str, str]
    fields: Mapping[str, Json]
    replaced: list[marking.ReplacedWords]
    findings: list[str]


class MemoryWorker:
    """Caller of Observer and Reflector of one engine."""

    def __init__(self, services: MemoryServices, observer: Observer, reflector: Reflector) -> None:
        self.store, self.counter, self.emit = services.store, services.counter, services.emit
        self.clock, self.ids, self._aside = services.store.clock, services.store.ids, services.aside
        self.observer, self.reflector = observer, reflector
        self._remembered = marking.Remembered()
        self._log: memory_log.LogSnapshot | None = None
        self._failed = 0  # permanently failed reflections in a row

    def log(self, db: Database, record_id: str) -> list[memory_log.LogLine]:
        """Return the lines that new ones may replace: those of the log and of buffered groups."""
        self._log = current = memory_log.read_snapshot(db, record_id, self._log)
        return current.lines

    def read_inputs(self, db: Database, record_id: str, merged: Sequence[str]) -> ReflectionInputs:
        """Return the content that a reflection of these groups must keep."""
        return ReflectionInputs(
            memory_store.list_pinned_lines(db, merged),
            *memory_store.load_mode_data(db, merged),
            marking.list_replaced_words(self.log(db, record_id)),
            memory_store.list_verified_findings(db, merged),
        )

    async def observe(
        self,
        record: Record,
        request: ObserveInput,
        held: ResultLease,
        cycle_id: str,
        before: Sequence[memory_log.LogLine],
    ) -> tuple[Group, list[NewLine]]:
        """Call the Observer and return an unstored group, whose range the caller sets, with its lines.

        `before`: the log lines that the new ones may replace. If nothing deserved a line, its text is empty, and the
        messages still count as observed.
        """
        request = structs.replace(request, messages=with_user_answers(request.messages))
        result = await self.observer.observe(request)
        await self._record_calls(request.thread_id, "observer", result.calls)
        by_model = result.model != EXTRACTIVE
        if result.note:
            self.emit(Notice("warning", "Memory", result.note))
        marked, rows, claimed = await self._aside(
            _read_answer,
            result.text,
            request,
            by_model,
            lambda text: marking.mark_new(text, before, self._remembered, result.replaces),
        )
        text = marked.text
        size = sum(m.tokens for m in request.messages)
        if not text and by_model and size >= model.LARGE_INPUT:
            raise MemoryFailure(f"{self.observer.name} recorded nothing from {size} tokens.", code="malformed")
        metadata: Json = {"timezone": request.timezone} if text else {}
        if title := parse.clean_line(mask_secrets(result.title or ""), 80):
            metadata["title"] = " ".join(title.split())
        group = structs.replace(
            self.empty_group(record, request, held, cycle_id),
            text=text,
            observation_tokens=self.counter.count(text),
            model=result.model,
            prompt_hash=result.prompt_hash,
            current_task=_clean_state(result.current_task, request.current_task),
            suggested_response=_clean_state(result.suggested_response, request.suggested_response),
            metadata=metadata,
        )
        return group, self._build_lines(request.mode, rows, claimed, result, marked.metadata)

    def empty_group(
        self, record: Record, request: ObserveInput | ReflectInput, held: ResultLease, cycle_id: str
    ) -> Group:
        """Return a group without text."""
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
        before: ReflectionInputs,
        held: ResultLease,
        cycle_id: str,
    ) -> tuple[Group, list[NewLine]]:
        """Call the Reflector and return an unstored group with its lines.

        Raises `MemoryFailure` (not_smaller) unless the answer is smaller than its input.
        """
        merged = [g.id for g in groups]
        inputs = [t for _, t in request.groups]
        result, text, sections = await self._condense_or_extract(record, groups, request, before)
        group = self._fill_reflection(self.empty_group(record, request, held, cycle_id), groups, result, text, sections)
        group = structs.replace(group, generation=record.generation_count + 1, merged_group_ids=tuple(merged))
        pinned = {p.lstrip("* ").strip() for p in request.pinned}
        lost, log_rows, claimed = await self._aside(
            _check_reflection, inputs, text, [t for t, _ in split_sections(group)]
        )
        counts: Json = {
            "dropped": {"lines": list(lost.lines), "paths": list(lost.paths)},
            "input_tokens": sum(self.counter.count(t) for t in inputs),
        }
        group = structs.replace(group, metadata=group.metadata | counts)
        rows = self._build_lines(
            request.mode, log_rows, claimed, ObserveResult("", categories=before.sections, fields=before.fields)
        )
        pinned_lines = {r.line for r in rows if _format_pinned(r) in pinned}
        return group, _mark_pinned(rows, group, pinned_lines) if pinned_lines or sections else rows

    def _fill_reflection(
        self, group: Group, groups: Sequence[Group], result: ReflectResult, text: str, sections: tuple[Section, ...]
    ) -> Group:
        """Fill an empty group with a reflection of other groups."""
        # in a shared log, its own thread is the one with the newest notes
        thread_id = groups[-1].thread_id if sections else group.thread_id
        return structs.replace(
            _with_range(group, groups, thread_id),
            thread_id=thread_id,
            kind="reflection",
            text=text,
            message_tokens=sum(g.message_tokens for g in groups),
            observation_tokens=self.counter.count(text),
            model=result.model,
            prompt_hash=result.prompt_hash,
            current_task=_clean(result.current_task),
            suggested_response=_clean(result.suggested_response),
            metadata={
                **{k: v for g in groups for k, v in g.metadata.items() if k == "timezone"},
                "level": result.level,
                **(make_section_metadata(sections) if sections else {}),
            },
        )

    async def _condense_or_extract(
        self, record: Record, groups: Sequence[Group], request: ReflectInput, before: ReflectionInputs
    ) -> tuple[ReflectResult, str, tuple[Section, ...]]:
        """Condense, without a model if that failed repeatedly and the log is full."""
        try:
            out = await self._condense(self.reflector, record, groups, request, before)
            self._failed = 0
            return out
        except MemoryFailure as e:  # `FallbackReflector` handles a provider's refusal without the model
            extractive = ExtractiveReflector(self.counter)
            self._failed += 1
            if not request.full or self._failed < ATTEMPTS or self.reflector.name == extractive.name:
                raise
            note = f"{e.message} The log is full, so it was condensed without a model."
            self.emit(Notice("warning", "Memory", note))
            return await self._condense(extractive, record, groups, request, before)

    async def _condense(
        self,
        reflector: Reflector,
        record: Record,
        groups: Sequence[Group],
        request: ReflectInput,
        before: ReflectionInputs,
    ) -> tuple[ReflectResult, str, tuple[Section, ...]]:
        """Return a Reflector's answer, its checked text, and the sections of a shared log.

        Lines of the user lost by a model are restored as far as the target allows.
        """
        sections: tuple[Section, ...] = ()
        if record.scope == "resource":
            result, sections = await quality.reflect_by_thread(
                reflector, groups, request, self.counter, before.replaced, self._aside
            )
            text = result.text
        else:
            result = await reflector.reflect(request)
            quality.check_length(result.text, request)
            findings = self._select_fitting(before.findings, request.target_tokens // FINDINGS_SHARE)
            kept_lines = (*request.pinned, *findings)
            text = await self._aside(quality.finish_answer, result.text, kept_lines, before.replaced)
            text = quality.list_lost_findings(text, (t for _, t in request.groups), before.findings[::-1])
        await self._record_calls(request.thread_id, "reflector", result.calls)
        if result.note:
            self.emit(Notice("warning", "Memory", result.note))
        return result, await self._check_text(reflector, request, before, mask_secrets(text), sections), sections

    def _select_fitting(self, newest_first: Sequence[str], tokens: int) -> list[str]:
        """Return the newest lines that fit a number of tokens, oldest first."""
        out: list[str] = []
        for line in newest_first:
            tokens -= self.counter.count(line)
            if tokens < 0:
                break
            out.insert(0, line)
        return out

    async def _check_text(
        self,
        reflector: Reflector,
        request: ReflectInput,
        before: ReflectionInputs,
        text: str,
        sections: tuple[Section, ...],
    ) -> str:
        inputs = [t for _, t in request.groups]
        size, after = (sum(map(self.counter.count, texts)) for texts in (inputs, [text]))
        if not text or after >= size:
            raise MemoryFailure(
                f"The reflection was not smaller than the log ({after} of {size} tokens): the log stays.",
                code="not_smaller",
            )
        if reflector.name == EXTRACTIVE:
            return text
        important = await self._aside(quality.select_important_lines, inputs, before.replaced)
        lost = await self._aside(quality.find_lost_lines, text, important, before.replaced)
        quality.check_answer(len(important) - len(lost), len(important), after, size)
        limit = 0 if sections else size - 1  # in a shared log each thread has its own section of the text
        text = text if sections else quality.restore_weight(text, important)
        text, lost = quality.restore_lines(
            text, lost, before.replaced, room=min(request.target_tokens, limit), limit=limit, count=self.counter.count
        )
        unlike = await self._aside(quality.find_unlike_lines, text, lost)
        quality.check_floor(len(important) - len(unlike), len(important))
        if lost:
            note = f"The reflection left out {len(lost)} of {len(important)} important lines. Search still finds them."
            self.emit(Notice("warning", "Memory", note))
        return text

    def _build_lines(
        self,
        mode: str,
        rows: Sequence[lines.LogRow],
        claimed: Sequence[tuple[str, ...]],
        result: ObserveResult,
        more: Mapping[int, Json] | None = None,
    ) -> list[NewLine]:
        """Return the lines of a log with unsupported claims, their sections and typed fields.

        `result` has sections and fields by content; `more` is metadata by line number.
        """
        sections = {remove_marks(content): name for content, name in result.categories.items()}
        out: list[NewLine] = []
        for number, (r, doubts) in enumerate(zip(rows, claimed, strict=True)):
            bare_content = remove_marks(r.content).removesuffix(memory_log.UNVERIFIED)
            section = sections.get(bare_content, "")
            fields = modes.convert_fields(mode, section, bare_content) | result.fields.get(bare_content, {})
            metadata = r.metadata | {"mode_specific": fields}
            out.append(
                NewLine(
                    self.ids.new(),
                    number,
                    r.depth,
                    r.date,
                    r.time,
                    r.priority,
                    r.content,
                    metadata | (more or {}).get(number, {}),
                    flags=doubts,
                    category=section,
                )
            )
        return out

    async def _record_calls(
        self, thread_id: str, purpose: Literal["observer", "reflector"], calls: Sequence[ModelCall]
    ) -> None:
        for call in calls:
            await self.store.write(messages.add_step, thread_id, purpose, call, id=self.ids.new(), now=self.clock.now())


def _mark_pinned(rows: Sequence[NewLine], group: Group, pinned: Container[int]) -> list[NewLine]:
    """Return the lines of a reflection, each with its thread and its pin."""
    return [structs.replace(r, pinned=r.line in pinned, thread_id=get_row_thread(group, r.line)) for r in rows]


def _with_range(group: Group, groups: Sequence[Group], thread_id: str) -> Group:
    """Set the range of a thread's messages covered by other groups."""
    mine = [g for g in groups if g.thread_id == thread_id]
    span = next((s for s in merge_spans(s for g in groups for s in list_spans(g)) if s.thread_id == thread_id), None)
    return structs.replace(
        group,
        first_message_id=mine[0].first_message_id if mine else None,
        last_message_id=mine[-1].last_message_id if mine else None,
        first_index=span.first if span else None,
        last_index=span.last if span else None,
    )


def _format_pinned(row: NewLine) -> str:
    return memory_store.format_line(row.content, row.priority, row.time).lstrip("* ").strip()


def _clean_state(text: str | None, before: str | None) -> str | None:
    """Return an Observer's task or response; the previous one if it repeats the instructions."""
    return before if text and model.is_instruction(text) else _clean(text)


def _clean(text: str | None) -> str | None:
    return parse.clean_line(mask_secrets(text)) if text else None


def _read_answer(
    text: str, request: ObserveInput, by_model: bool, mark: Callable[[str], marking.Marked]
) -> tuple[marking.Marked, list[lines.LogRow], list[tuple[str, ...]]]:
    """Clean and mark an Observer's answer.

    Returns it, its lines, and the unsupported claims of each line.
    """
    text = parse.clean(parse.sanitize_observation_lines(mask_secrets(model.cut_lines(text))))
    if by_model:
        text = model.check_lines(text, request)
    marked = mark(with_zone(text, request))
    rows = list(lines.iter_rows(marked.text))
    doubts = _flag_rows(rows, make_source(request))
    if by_model and any(doubts):
        marked.text = model.with_doubts(marked.text, (r.line for r, d in zip(rows, doubts, strict=True) if d))
        rows = list(lines.iter_rows(marked.text))
    return marked, rows, doubts


def _check_reflection(
    inputs: Sequence[str], text: str, texts: Sequence[str]
) -> tuple[Dropped, list[lines.LogRow], list[tuple[str, ...]]]:
    """Return a reflection's losses, the lines of its `texts`, and their unsupported claims.

    Losses and claims are measured against its input.
    """
    rows = [row for one in texts for row in lines.iter_rows(one)]
    source = EvidenceSource(*inputs, said=(s for t in inputs for s in speaking.iter_log_sayings(t)))
    return find_losses(inputs, text), rows, _flag_rows(rows, source)


def _flag_rows(rows: Sequence[lines.LogRow], source: EvidenceSource) -> list[tuple[str, ...]]:
    for row in rows:
        mask_secrets(row.content)  # cached, so that the transaction that stores it is shorter
    return [find_unsupported(remove_marks(row.content), source) for row in rows]


def make_source(request: ObserveInput) -> EvidenceSource:
    """Return the source of an observation: the complete messages and the previous log."""
    texts = [join_plain_text(m.parts) for m in request.messages]
    zones = f"{request.timezone} {request.zone_before}"
    aims = [request.current_task or "", request.goal, request.focus]
    moments = [datetime.fromtimestamp(m.created_at / 1000, dates.load_zone(request.timezone)) for m in request.messages]
    return EvidenceSource(
        *texts, request.log, *aims, zones,
        said=itertools.chain(
            speaking.iter_message_sayings(request.messages),
            speaking.iter_log_sayings(request.log),
            (("user", a) for a in aims),
        ),
        days={m.date() for m in moments},
        clocks={f"{m.hour}:{m.minute:02}" for m in moments},
    )  # fmt: skip


def with_zone(text: str, request: ObserveInput) -> str:
    """Begin a log with a note if its time zone differs from that of earlier lines, which stay unchanged."""
    if not text or request.zone_before in ("", request.timezone):
        return text
    time = dates.format_clock(request.messages[0].created_at, request.timezone)
    line = f"* 🟡 ({time}) Times are in {request.timezone} from here on, those before in {request.zone_before}"
    head, _, rest = text.partition("\n")
    return f"{head}\n{line}\n{rest}" if head.startswith("Date:") else f"{line}\n{text}"


def is_observable(message: Message) -> bool:
    """Return whether an Observer may read a message: not a synthetic, provisional or withheld one."""
    return message.role != "system" and message.state == "saved" and "synthetic" not in message.metadata
