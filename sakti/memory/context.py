"""Build memory's part of a request: working memory, carry-over, reflections, observations.

The blocks are in this order. Every group is a separate block, and no block changes within a day, so the prompt's
prefix stays cached. Volatile facts go to the end of the request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import structs

from sakti.core.clock import shorten_id
from sakti.core.lazy import lazy_pattern
from sakti.core.resources import fill_prompt, read_prompt
from sakti.core.text import to_one_line
from sakti.core.tokens import MESSAGE_OVERHEAD, Counter, count_part, cut_to_tokens, sum_message_tokens
from sakti.core.types import (
    Block,
    ContextPart,
    FilePart,
    ImagePart,
    MarkerPart,
    Message,
    OutputPart,
    Part,
    TextPart,
    ThinkingPart,
    Thread,
    ToolCallPart,
    ToolResultPart,
)
from sakti.memory import shared
from sakti.memory.log import dates
from sakti.memory.log.lines import share_heads
from sakti.store.log.lines import CarryOver
from sakti.store.memory import Group
from sakti.store.threads.fork import LINE, CarriedPiece

_MINOR = lazy_pattern(r"^([ \t]*[*-] )[🟡🟢]\ufe0f? ?", re.MULTILINE)
_ARROW = lazy_pattern(r"^([ \t]+[*-] )-> ?", re.MULTILINE)


def strip_for_actor(text: str) -> str:
    """Remove 🟡, 🟢, repeated speakers, and the arrows of nested lines; 🔴 and ✅ stay."""
    return share_heads(_ARROW.sub(r"\1", _MINOR.sub(r"\1", text)))


def render_group(group: Group, now: int, previous_date: int | None, *, tagged: bool, threads: bool = False) -> str:
    """Render one group for the request.

    `now` is noon of the day and `previous_date` the last date before it in the log: both change at most once a day.
    The tag gives the range of messages for recall, and in a log of several `threads` the thread; a reflection of
    several has a tag for each.
    """
    if threads:
        blocks: list[str] = []
        for text, spans in shared.split_sections(group):
            if text:
                shown = dates.add_relative_time_to_observations(strip_for_actor(text), now, previous_date).strip("\n")
                blocks.append(f"{shared.format_tag(group, spans, ranges=tagged)}\n{shown}\n</observation-group>")
                previous_date = None  # each thread has its own dates
        return "\n".join(blocks)
    text = dates.add_relative_time_to_observations(strip_for_actor(group.text), now, previous_date).strip("\n")
    if not tagged or group.first_index is None:
        return text
    span = f"{group.first_index}-{group.last_index}"
    head = f'<observation-group id="{shorten_id(group.id)}" kind="{group.kind}" messages="{span}">'
    return f"{head}\n{text}\n</observation-group>"


LOG_KINDS = ("observations", "reflection")  # kinds of blocks
REMINDER_ID = "synthetic-reminder"
SPARE_BLOCKS = 50  # most rendered blocks outside the log that stay cached


class ContextBuilder:
    """Renders blocks and counts their tokens once, until the block or the day changes."""

    def __init__(self, counter: Counter, *, tagged: bool) -> None:
        self._counter = counter
        self._tagged = tagged
        self._cache: dict[tuple[str, str, int, int | None], Block] = {}
        self._last_dates: dict[str, int | None] = {}
        self._texts: dict[tuple[str, str], Block] = {}
        self._excerpts: dict[tuple[str, int, int], Message] = {}
        self._made: tuple[Sequence[Group], int, tuple[Block, ...], int] = ([], 0, (), 0)
        self._thread: Thread | None = None

    def share(self, thread: Thread) -> None:
        """Treat the log as shared by several threads from now on; `thread` is the reader."""
        self._thread = thread
        self._cache, self._made = {}, ([], 0, (), 0)

    def log(self, active: Sequence[Group], now: int) -> tuple[Block, ...]:
        """Return one block per group, in order; empty without observations. `now` is noon of the day."""
        return self._render(active, now)[2]

    def tokens(self, active: Sequence[Group], now: int) -> int:
        """Return the tokens of the log as sent, without the instructions around it."""
        return self._render(active, now)[3]

    def _render_group(self, group: Group, now: int, previous: int | None) -> Block:
        """Render a group of the log; `previous` is the last date above it."""
        text = render_group(group, now, previous, tagged=self._tagged, threads=self._thread is not None)
        self._last_dates[group.id] = dates.last_header(group.text)
        return Block(LOG_KINDS[group.kind == "reflection"], text, tokens=self._counter.count(text))

    def _render(self, active: Sequence[Group], now: int) -> tuple[Sequence[Group], int, tuple[Block, ...], int]:
        cached = self._made
        if cached[0] is active and cached[1] == now:  # a window's log is never changed, only replaced
            return cached
        if not any(g.text for g in active):  # nothing is counted, so a new thread does not load the tokenizer
            self._made = (active, now, (), 0)
            return self._made
        previous: int | None = None
        fresh: dict[tuple[str, str, int, int | None], Block] = {}
        for group in (g for g in active if g.text):
            key = (group.id, group.text, now, previous)  # a correction changes the text
            fresh[key] = self._cache.get(key) or self._render_group(group, now, previous)
            last = self._last_dates.get(group.id)
            previous = previous if last is None else last
        # blocks of groups that will soon enter the log stay cached, so that they are counted once
        self._cache = self._cache | fresh if len(self._cache) <= 2 * len(fresh) + SPARE_BLOCKS else fresh
        *rest, newest = fresh.values()
        blocks = (self.text("memory", self._join_instructions()), *rest, structs.replace(newest, edge=True))
        self._made = (active, now, blocks, sum(b.tokens for b in fresh.values()))
        return self._made

    def text(self, kind: str, text: str, *, edge: bool = False) -> Block:
        key = (kind, text)
        block = self._texts.get(key)
        if block is None:
            if len(self._texts) > 50:
                self._texts.clear()
            block = self._texts[key] = Block(kind, text, tokens=self._counter.count(text))
        return structs.replace(block, edge=True) if edge else block

    def cut_message(self, message: Message, tokens: int) -> Message:
        """Return a message cut to about `tokens` tokens."""
        if message.tokens <= tokens:
            return message
        key = (message.id, message.tokens, tokens)
        if key not in self._excerpts:
            if len(self._excerpts) > SPARE_BLOCKS:
                self._excerpts.clear()
            self._excerpts[key] = shorten_message(message, tokens, self._counter)
        return self._excerpts[key]

    def _join_instructions(self) -> str:
        parts = [read_prompt("memory")]
        if self._tagged:
            parts.insert(1, read_prompt("memory#recall"))
        if self._thread is not None:
            parts.append(shared.build_shared_instructions(self._thread, recall=self._tagged))
        return "\n\n".join(p for p in parts if p)

    def reminder(self, thread_id: str, resource_id: str) -> Message:
        """Return the message that replaces removed raw messages: never stored, shown, searched or observed."""
        words = read_prompt("memory#reminder")
        if self._thread is not None:
            words = fill_prompt("memory#reminder-shared", thread=shared.make_thread_alias(self._thread.id))
        text = f"<system-reminder>\n{words}\n</system-reminder>"
        tokens = self.text("reminder", text).tokens
        return Message(
            REMINDER_ID,
            thread_id,
            resource_id,
            "user",
            (TextPart(text),),
            0,
            tokens=tokens + MESSAGE_OVERHEAD,
            part_tokens=(tokens,),
            token_counter=self._counter.name,
            metadata={"synthetic": "reminder"},
        )


LEAST_EXCERPT = 600  # least tokens of a shortened message
SHORTENED = "[Shortened to fit: memory-search finds all of it.]"


def shorten_message(message: Message, tokens: int, counter: Counter) -> Message:
    """Return a message of about `tokens` tokens: long texts keep their beginning and end."""
    fixed = sum(size for part, size in zip(message.parts, message.part_tokens, strict=False) if not _has_text(part))
    sizes = [s for part, s in zip(message.parts, message.part_tokens, strict=False) if _has_text(part)]
    limit = max(LEAST_EXCERPT, _share_out(sizes, tokens - fixed))

    def cut(text: str) -> str:
        excerpt = cut_to_tokens(counter, text, limit)
        return text if excerpt == text else f"{excerpt}\n{SHORTENED}"

    parts = tuple(_cut_part(part, cut) for part in message.parts)
    pairs = zip(parts, message.parts, message.part_tokens, strict=False)
    sizes = [size if new == old else count_part(counter, new) for new, old, size in pairs]
    if parts == message.parts or sum_message_tokens(sizes) >= message.tokens:
        return message
    return structs.replace(message, parts=parts, part_tokens=tuple(sizes), tokens=sum_message_tokens(sizes))


def _has_text(part: Part) -> bool:
    return isinstance(part, TextPart | ToolCallPart | ToolResultPart | FilePart | OutputPart)


def _share_out(sizes: Sequence[int], room: int) -> int:
    """Return the size to which the largest of `sizes` must be cut so that all fit `room`."""
    for number, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - number)
        if size > share:
            return share
        room -= size
    return max(sizes, default=0)


def _cut_part(part: Part, cut: Callable[[str], str]) -> Part:
    """Return a part with its texts cut; thinking and images stay uncut."""
    match part:
        case TextPart(text):
            return part if cut(text) == text else TextPart(cut(text))
        case ToolCallPart(arguments=dict(arguments)):
            return structs.replace(
                part, arguments={k: cut(v) if isinstance(v, str) else v for k, v in arguments.items()}
            )
        case ToolCallPart(raw=raw):
            return structs.replace(part, raw=cut(raw))
        case ToolResultPart(content=content):
            return structs.replace(part, content=cut(content))
        case FilePart(text=text) | OutputPart(text=text):
            return structs.replace(part, text=cut(text))
        case ThinkingPart() | ImagePart() | MarkerPart() | ContextPart():
            return part


def collect_changing_parts(current_task: str | None, suggested_response: str | None, gap_ms: int) -> dict[str, str]:
    """Return the parts that may change with each step: pause before the prompt, task, suggested response."""
    out: dict[str, str] = {}
    if gap := dates.format_temporal_gap(gap_ms):
        out["gap"] = f"[{gap}]"
    if current_task:
        out["task"] = f"<current-task>\n{current_task}\n</current-task>"
    if suggested_response:
        out["response"] = f"<suggested-response>\n{suggested_response}\n</suggested-response>"
    return out


def select_carried_over(earlier: CarryOver, head: str, counter: Counter, limit: int) -> list[CarriedPiece]:
    """Return the lines below `head` that a new thread begins with, `limit` tokens in total.

    Newest threads and pinned lines come first; lines that do not fit are left out.
    """
    pieces: list[CarriedPiece] = []
    if earlier.title:
        pieces.append(CarriedPiece("thread", earlier.thread_id, f"Last thread: {to_one_line(earlier.title)}"))
    if earlier.current_task:
        pieces.append(CarriedPiece("thread", earlier.thread_id, f"Its task: {to_one_line(earlier.current_task, 300)}"))
    pieces += [CarriedPiece("task", task_id, f"Open task: {text}") for task_id, text in earlier.tasks]
    pieces += [CarriedPiece("line", line_id, f"{LINE}{text}") for line_id, text in earlier.lines]
    tokens = counter.count(head)
    remaining: list[CarriedPiece] = []
    for piece in pieces if tokens < limit else ():
        size = counter.count(piece.text) + 1
        if tokens + size <= limit:
            tokens += size
            remaining.append(piece)
    return remaining
