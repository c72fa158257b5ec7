"""Select memory's part of a request: blocks before the messages, messages that fit, volatile facts.

Pages, carry-over and other threads' messages are read once per turn, so that a turn's requests share a prefix.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from sakti.core.config import MemorySettings
from sakti.core.errors import StoreError
from sakti.core.resources import read_prompt
from sakti.core.text import format_count
from sakti.core.tokens import Counter, count_part, sum_message_tokens
from sakti.core.types import Block, ContextPart, Message, Thread
from sakti.memory import context, shared
from sakti.memory.pages import Pages
from sakti.memory.state import MemoryState
from sakti.memory.summaries import Levels
from sakti.memory.window import Window, find_first_fitting, select_newest, select_newest_fitting
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.log import lines as memory_log
from sakti.store.secrets import mask_value
from sakti.store.tasks import questions as tasks
from sakti.store.threads import fork, runs
from sakti.store.threads import messages as message_store
from sakti.store.threads import threads as stored_threads

NOW = "now"  # the fact that changes by itself
# First words of long facts: even a new turn only sends them if they changed.
ONCE = frozenset({"instructions", "hooks", "skills", "skill", "mode", "plan", "job", "report", "mcp"})
STALE_MS = 10 * 60_000  # age at which a turn sends the time again


def select_next_facts(messages: Sequence[Message], facts: Mapping[str, str], now: int) -> dict[str, str]:
    """Return the facts that the next request adds.

    They go with the newest message, or after an answer with the user's next one.
    """
    last = messages[-1] if messages else None
    if last is not None and last.role != "assistant":
        return select_due_facts(messages, facts, now, begins=False)
    thread_id, resource_id = (last.thread_id, last.resource_id) if last is not None else ("", "")
    prompt = Message("", thread_id, resource_id, "user", (), now)
    return select_due_facts((*messages, prompt), facts, now, begins=True)


def select_due_facts(
    messages: Sequence[Message], facts: Mapping[str, str], now: int, *, begins: bool
) -> dict[str, str]:
    """Return the facts to send with the last of `messages`, secrets masked: they are stored with it.

    `begins`: the message begins a turn, so all but the long facts are sent again; otherwise only changed ones. Empty
    after an answer, which cannot have facts.
    """
    if not messages or messages[-1].role == "assistant":
        return {}
    facts = mask_value(dict(facts))
    current, time = _find_sent_facts(messages)
    changed = {name: fact for name, fact in facts.items() if current.get(name) != fact}
    if begins and _has_no_facts(messages[-1], facts):
        return {name: fact for name, fact in facts.items() if name.partition(" ")[0] not in ONCE or name in changed}
    if NOW in current and now - time < STALE_MS:
        changed.pop(NOW, None)
    return changed


def _has_no_facts(message: Message, facts: Mapping[str, str]) -> bool:
    """Return whether a message is the user's and was sent without these facts."""
    return message.role == "user" and not _find_sent_facts([message])[0].keys() & facts.keys()


def _find_sent_facts(messages: Sequence[Message]) -> tuple[dict[str, str], int]:
    """Return the facts as last sent, and the time at which the current time was sent."""
    current: dict[str, str] = {}
    time = 0
    for message in messages:
        for part in message.parts:
            if isinstance(part, ContextPart):
                current |= part.facts
                time = message.created_at if NOW in part.facts else time
    return current, time


EXCERPT_SHARE = 4  # an overlong message is shortened to this fraction (1/4) of the room for messages
LOG_SHARE = 0.75  # share of the room for memory and messages: a longer log is sent in part
NO_WINDOW = 1 << 60  # without observation a summary always replaces its messages


def count_unsent(window: Window, sent: Sequence[Message]) -> tuple[int, int]:
    """Return the number of pending messages not sent in full, and the tokens missing from the request."""
    tokens = {m.id: m.tokens for m in sent}
    missing = [size for m in window.messages if (size := m.tokens - tokens.get(m.id, 0)) > 0]
    return len(missing), sum(missing)


def describe_unsent(messages: int, tokens: int) -> str:
    """Describe the messages that are neither observed yet nor sent in full; "" without any."""
    size = f"{format_count(messages, 'message')}, {tokens:,} tokens"
    note = (
        f"Too long for the request ({size}): of the newest only the beginning and the end are sent, until they are"
        " observed. /compact observes now; search finds them in full."
    )
    return note if tokens else ""


class RequestBuilder:
    """Builds memory's part of the requests of one open thread.

    `last_messages` are sent if nothing is observed.
    """

    def __init__(
        self, store: Store, counter: Counter, settings: MemorySettings, thread: Thread, *, last_messages: int
    ) -> None:
        self._store, self._counter, self._settings = store, counter, settings
        self._last_messages = last_messages
        self.log = context.ContextBuilder(counter, tagged=settings.retrieval)
        if settings.scope == "resource":
            self.log.share(thread)
        self._levels = Levels(store, counter)
        self._pages = Pages(store, counter, settings, thread.resource_id)
        self._working_memory: tuple[str, ...] = ()
        self._pinned: dict[str, str] = {}  # plan and goal, which stay when their messages have left
        self._pinned_at = -1  # index of the last message that was no longer sent when they were read
        self._carried = ""
        self._pieces: list[fork.CarriedPiece] = []  # its pieces, if they could not be stored
        self._unwanted: set[fork.CarriedPiece] = set()  # pieces that the user removed before the first turn
        self._tasks = ""  # the task in progress, and the number of ready tasks
        self._other_threads = ""  # messages of other threads that the shared log does not cover yet
        self._room: int | None = None
        self._start = 0  # first group of the log in the last request
        self.gap = 0  # ms between the newest prompt and the message before it

    def use_page_of(self, resource_id: str) -> None:
        """Read the page of another workspace, shared by this one."""
        self._pages = Pages(self._store, self._counter, self._settings, resource_id)

    # --- read once per turn -------------------------------------------------------------------------------

    async def open(self, state: MemoryState) -> None:
        """Load the pages and the carry-over of the thread's last request."""
        thread_id = state.window.thread.id
        self._working_memory = await self._pages.read_for_request(thread_id)
        await self._read_pinned(state)
        self._carried = await self._store.read(fork.read_carried_text, thread_id)

    async def _read_pinned(self, state: MemoryState) -> None:
        self._pinned_at = cursor = state.window.cursor if self._settings.enabled else NO_WINDOW
        self._pinned = await self._store.read(stored_threads.read_pinned_texts, state.window.thread, cursor)

    async def load(self, state: MemoryState) -> None:
        """Load what other processes changed since the last turn."""
        thread = state.window.thread
        if fork.CARRY_OVER_KEY in thread.metadata:
            self._carried = await self._store.read(fork.read_carried_text, thread.id)
        self._working_memory = await self._pages.read_for_request(thread.id)
        self._tasks = await self._store.read(tasks.describe_board, thread.resource_id, thread.id)
        if not self._settings.enabled:
            await self._levels.load(thread)
        if not self._settings.enabled or state.window.cursor != self._pinned_at:  # since /compact
            await self._read_pinned(state)
        await self._read_other_threads(state)

    async def carry_over(self, state: MemoryState, *, writes: bool) -> None:
        """Build the carry-over of a new thread at its first turn; it stays unchanged from then on."""
        thread = state.window.thread
        if not self._may_carry(thread):
            return
        head = read_prompt("memory#carry-over")
        pieces = self._pieces = self._build(await self._find_pieces(thread))
        if writes or self._store.not_saved:
            with contextlib.suppress(StoreError):  # the block is rebuilt at the next start
                await self._store.write(fork.store_carry_over, thread.id, head if pieces else "", pieces)
                metadata = {**thread.metadata, fork.CARRY_OVER_KEY: head if pieces else ""}
                state.window.thread = structs.replace(thread, metadata=metadata)

    def _may_carry(self, thread: Thread) -> bool:
        """Return whether the first turn of a thread builds its carry-over."""
        return bool(
            self._settings.enabled
            and self._settings.carry_over
            and fork.CARRY_OVER_KEY not in thread.metadata
            and not thread.parent_id
        )

    async def _find_pieces(self, thread: Thread) -> list[fork.CarriedPiece]:
        earlier = await self._store.read(memory_log.build_carry_over, thread.resource_id, thread.id)
        head = read_prompt("memory#carry-over")
        return context.select_carried_over(earlier, head, self._counter, self._settings.carry_over) if earlier else []

    async def carried_lines(self, state: MemoryState, *, is_new: bool) -> list[fork.CarriedLine]:
        """Return the lines of the carry-over; if the thread `is_new`, those that its first turn would send."""
        thread = state.window.thread
        if not self._may_carry(thread):
            return await self._store.read(fork.read_carried_lines, thread.id) if self._settings.enabled else []
        pieces = await self._find_pieces(thread) if is_new else self._pieces
        if is_new and state.window.thread is thread:  # otherwise the first turn has built it meanwhile
            self._build(pieces)
        return [
            fork.CarriedLine(n, p.kind, p.source_id, p.text, p in self._unwanted, is_sent=not is_new)
            for n, p in enumerate(pieces)
        ]

    def _build(self, pieces: list[fork.CarriedPiece]) -> list[fork.CarriedPiece]:
        """Send those of `pieces` that the user did not remove, and return them."""
        remaining = [p for p in pieces if p not in self._unwanted]
        self._carried = "\n".join([read_prompt("memory#carry-over"), *(p.text for p in remaining)]) if remaining else ""
        return remaining

    async def remove_carried(self, state: MemoryState, line: fork.CarriedLine, *, removed: bool) -> None:
        """Remove a line of the carry-over, or restore it.

        Before the first turn it is left out at once, later on the next `renew`.
        """
        thread = state.window.thread
        piece = fork.CarriedPiece(line.kind, line.source_id, line.text)
        self._unwanted = self._unwanted - {piece} | ({piece} if removed else set())
        if fork.CARRY_OVER_KEY in thread.metadata:
            await self._store.write(fork.mark_removed, thread.id, line.position, removed=removed)

    async def renew(self, state: MemoryState) -> None:
        """Drop the lines removed by the user, and add plan and goal: the prompt's prefix changes anyway."""
        thread = state.window.thread
        await self._read_pinned(state)
        if self._carried and await self._store.read(fork.has_removed, thread.id):
            with contextlib.suppress(StoreError):  # they are dropped at the next change
                await self._store.write(fork.drop_removed_lines, thread.id)
                self._carried = await self._store.read(fork.read_carried_text, thread.id)

    async def _read_other_threads(self, state: MemoryState) -> None:
        window = state.window
        if not self._settings.enabled or window.record.scope != "resource":
            return
        others = await self._store.read(
            memory_log.list_unobserved_of_others, window.record.id, window.thread.resource_id, window.thread.id
        )
        limit = int(state.numbers.threshold * shared.OTHERS_SHARE)
        self._other_threads = (
            shared.format_other_threads(others, self._counter, limit, state.timezone) if others else ""
        )

    def summarize(self, window: Window) -> None:
        """Start to summarize messages that have left the window."""
        self._levels.start(window, window.cursor + 1 if self._settings.enabled else NO_WINDOW)

    def running(self) -> list[asyncio.Task[Any]]:
        """Return the running summary tasks."""
        return self._levels.running()

    # --- the request --------------------------------------------------------------------------------------

    def halve(self, pending: int) -> None:
        """Halve the tokens to send, starting from `pending`: the provider found the request too long."""
        self._room = max(1, (self._room or pending) // 2)

    def unlimit(self) -> None:
        """Send everything that memory keeps again."""
        self._room = None

    @property
    def is_limited(self) -> bool:
        """Return whether requests are limited because the provider found one too long."""
        return self._room is not None

    def blocks(self, state: MemoryState) -> tuple[Block, ...]:
        """Return the blocks before the messages, the most stable first."""
        out = [self.log.text("working_memory", text) for text in self._working_memory]
        out += [self.log.text(name, f"<{name}>\n{text}\n</{name}>") for name, text in self._pinned.items()]
        if self._carried and self._settings.enabled:
            out.append(self.log.text("carry_over", f"<carry-over>\n{self._carried}\n</carry-over>"))
        log = self._log(state) if self._settings.enabled else ()
        if not log and out:
            out[-1] = structs.replace(out[-1], edge=True)
        others = (self.log.text("other_threads", self._other_threads),) if self._other_threads else ()
        return (*out, *log, *others)

    def _log(self, state: MemoryState) -> tuple[Block, ...]:
        """Return the log, or its newest part if it exceeds the model's window."""
        log = self.log.log(state.window.active, state.today)
        if not log or state.budget is None:
            return log
        self._start = find_first_fitting([b.tokens for b in log[1:]], int(state.budget * LOG_SHARE), self._start)
        if not self._start:
            return log
        return (log[0], self.log.text("memory", read_prompt("memory#cut")), *log[1 + self._start :])

    def messages(self, state: MemoryState, *, is_idle: bool = False) -> tuple[Message, ...]:
        """Return the messages to send, with summaries or the reminder in place of older ones.

        `is_idle`: no turn is running, so after an answer the next request begins with a new prompt.
        """
        messages = [m for m in state.window.messages if m.tokens or m.parts]
        if not self._settings.enabled:
            return self._last_by_number(state, messages)
        ended = is_idle and _ends_with_answer(messages)
        prompts = [] if ended else state.prompts
        messages = [*(m for m in prompts if m.index <= state.window.cursor), *messages]
        reminder = self._make_reminder(state.window)
        return (*reminder, *self._fit(state, messages, prompts, reminder, ended=ended))

    def _fit(
        self,
        state: MemoryState,
        messages: list[Message],
        prompts: Sequence[Message],
        reminder: tuple[Message, ...],
        *,
        ended: bool,
    ) -> list[Message]:
        """Return the newest messages that fit memory's limit and the model's window.

        `ended`: the last exchange is complete and another one follows.
        """
        most = self._compute_message_limit(state, reminder)
        room = min((r for r in (state.message_limit, most) if r is not None), default=None)
        if room is None or sum(m.tokens for m in messages) <= room:
            return messages
        limit = max(context.LEAST_EXCERPT, room // EXCERPT_SHARE)
        most = room if ended else most
        return select_newest_fitting(messages, room, prompts, lambda m: self.log.cut_message(m, limit), most=most)

    def _make_reminder(self, window: Window) -> tuple[Message, ...]:
        """Return the message that replaces observed ones; none if no message was observed."""
        if window.cursor < 0 or not window.active:
            return ()
        return (self.log.reminder(window.thread.id, window.thread.resource_id),)

    def _last_by_number(self, state: MemoryState, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the newest messages, in the number of the settings, and summaries of older ones."""
        raw = self._levels.select_uncovered_messages(messages, state.prompts)
        sent = [*self._levels.blocks, *select_newest(raw, self._last_messages, state.prompts)]
        return tuple(sorted(sent, key=lambda m: m.index))

    def _compute_message_limit(self, state: MemoryState, reminder: tuple[Message, ...]) -> int | None:
        """Return the most tokens of messages in the model's window; None without a limit."""
        limits = [] if self._room is None else [self._room]
        if state.budget is not None:
            before = sum(b.tokens for b in self.blocks(state)) + sum(m.tokens for m in reminder)
            limits.append(state.budget - before)
        return min(limits, default=None)

    def count_unsent(self, state: MemoryState, sent: Sequence[Message]) -> tuple[int, int]:
        """Return the tokens of pending messages and of the log that a request with these messages leaves out."""
        if not self._settings.enabled:
            return 0, 0  # a fixed number of messages is sent
        log = sum(b.tokens for b in self.blocks(state) if b.kind in context.LOG_KINDS)
        return count_unsent(state.window, sent)[1], max(0, state.observation_tokens - log)

    def tail(self, state: MemoryState) -> dict[str, str]:
        """Return the facts that change from step to step, by name."""
        metadata = state.window.thread.metadata
        tasks_line = {"tasks": self._tasks} if self._tasks else {}
        if not self._settings.enabled:
            return context.collect_changing_parts(None, None, self.gap) | tasks_line
        newest = max((m.index for m in state.prompts), default=-1)
        response = metadata.get("suggested_response") if metadata.get("task_index", -1) >= newest else None
        return context.collect_changing_parts(metadata.get("current_task"), response, self.gap) | tasks_line

    async def attach_facts(self, state: MemoryState, facts: Mapping[str, str], now: int, *, begins: bool) -> None:
        """Attach the changed facts, memory's included, to the newest message.

        Raises `StoreError`: the message stays as it is.

        `begins`: the message begins a turn.
        """
        sent = self.messages(state)
        changed = select_due_facts(sent, {**facts, **self.tail(state)}, now, begins=begins)
        if not sent or not changed or sent[-1].index < 0:
            return
        last = next((m for m in state.window.messages if m.id == sent[-1].id), sent[-1])  # it may be sent shortened
        part = ContextPart(changed)
        counted = (*last.part_tokens, count_part(self._counter, part))
        amended = structs.replace(
            last, parts=(*last.parts, part), part_tokens=counted, tokens=sum_message_tokens(counted)
        )

        def store(db: Database) -> bool:
            stored = message_store.add_context(db, amended)
            if stored:
                runs.deliver_facts(db, amended, changed)
                runs.report_job_facts(db, amended, changed)
            return stored

        if await self._store.write(store):
            state.window.amend(amended)
            state.prompts = [amended if m.id == amended.id else m for m in state.prompts]


def _ends_with_answer(messages: Sequence[Message]) -> bool:
    return bool(messages) and messages[-1].role == "assistant" and not messages[-1].tool_calls
