"""Queries of the screen and the shell, answered with plain values. Nothing here writes memory."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from sakti.core.calls import format_parts
from sakti.core.events import BufferedObservations, BufferedReflection, Gauge, MemoryStatus
from sakti.core.lazy import lazy_imports
from sakti.core.text import format_count, to_one_line
from sakti.core.tokens import count_part
from sakti.core.types import ContextPart, Json, Message, ModelInfo, RunState, Spent, Thread, ToolSpec

if TYPE_CHECKING:
    from sakti.agent.open_thread import OpenThread
    from sakti.agent.session.turn_lease import OtherTurn
    from sakti.memory.engine import Prepared
    from sakti.store.connection import Database
    from sakti.store.database import Store
    from sakti.store.log.events import LogChange, MemoryEvent
    from sakti.store.log.lines import Figures, LogLine
    from sakti.store.memory import Group
    from sakti.store.memory.group_rows import Origin
    from sakti.store.search.search import SearchPage
    from sakti.store.threads.fork import CarriedLine
    from sakti.store.threads.messages import MessageMatch
    from sakti.tasks.queries import Board


with lazy_imports:
    from sakti.agent.processors import base
    from sakti.agent.reports import memory_report
    from sakti.agent.session import turn_lease
    from sakti.agent.threads import history
    from sakti.memory import modes as memory_modes
    from sakti.memory import policy as memory_policy
    from sakti.store import leases, user_state
    from sakti.store import memory as stored_memory
    from sakti.store.log import corrections as memory_corrections
    from sakti.store.log import events as memory_events
    from sakti.store.log import lines as memory_log
    from sakti.store.memory import group_rows
    from sakti.store.search import search as text_search
    from sakti.store.tasks import questions as task_questions
    from sakti.store.tasks import rows as task_links
    from sakti.store.threads import messages as stored_messages
    from sakti.store.threads import removal as deleted_messages
    from sakti.store.threads import runs
    from sakti.store.threads import threads as stored_threads
    from sakti.tasks import queries as task_queries


FIRST_WORDS = 80  # characters of a message that tell it from others in a list
STREAMING = "running step, not stored yet (estimated)"


class ThreadSummary(Struct, frozen=True):
    thread: Thread
    preview: str
    messages: int
    tokens: int
    undone: tuple[ThreadSummary, ...] = ()  # branches that an undo left, the newest first
    children: tuple[ThreadSummary, ...] = ()
    state: RunState | None = None  # of a child

    @property
    def below(self) -> tuple[ThreadSummary, ...]:
        """Return the threads that lists show indented under it."""
        return (*self.children, *self.undone)

    @staticmethod
    def of(row: stored_threads.Summary) -> ThreadSummary:
        """Return the summary of a stored row."""
        thread, preview, messages, tokens, undone, children, state = row
        below = tuple(map(ThreadSummary.of, undone)), tuple(map(ThreadSummary.of, children))
        return ThreadSummary(thread, preview, messages, tokens, *below, state)


class ContextBlock(Struct, frozen=True):
    """Part of the next request as of now. `cached`: it comes before the last stable edge."""

    kind: str
    label: str
    tokens: int
    text: str
    cached: bool


class UnfinishedCall(Struct, frozen=True):
    """State of a call that has no result yet; `elsewhere`: another window runs it."""

    state: OtherTurn
    elsewhere: bool


class Windows(Struct, frozen=True):
    """The windows at one moment; `streaming` are the estimated tokens of the running step.

    `context`: tokens of the next request, `streaming` among them; 0 if nothing was said yet.
    """

    status: MemoryStatus | None = None
    context: int = 0
    streaming: int = 0


class ChildMemory(Struct, frozen=True):
    """Memory of a child thread: windows, lines of the log, waiting lines, figures and events."""

    status: MemoryStatus
    lines: list[LogLine]
    waiting: list[LogLine]
    figures: Figures
    events: list[MemoryEvent]
    spent: Spent


def _format_tool(tool: ToolSpec) -> str:
    return f"{tool.name}: {tool.description}\n{json.dumps(tool.parameters, indent=1, ensure_ascii=False)}"


def _make_message_block(message: Message) -> ContextBlock:
    who = str(message.metadata.get("synthetic") or message.role)  # a reminder has no author
    text = format_parts(message.parts)
    label = f"{who}  {to_one_line(text[: 8 * FIRST_WORDS], FIRST_WORDS)}".strip()
    return ContextBlock("message", label, message.tokens, text, False)


class Views:
    """The queries of a started session."""

    def __init__(self, thread: OpenThread) -> None:
        self._open = thread
        self._tools: tuple[tuple[ToolSpec, ...], str] = ((), "")  # listed once as long as they are the same
        self._facts = ("", 0)  # their text and its tokens

    @property
    def _store(self) -> Store:
        return self._open.workspace.store

    @property
    def _resource_id(self) -> str:
        return self._open.workspace.resource_id

    async def transcript(self, thread_id: str, before: int | None = None, limit: int = 200) -> list[Message]:
        """Return `limit` messages of a thread before index `before` (the newest if None), oldest first."""
        return await self._store.read(stored_messages.list_page, thread_id, before=before, limit=limit)

    async def version(self) -> int:
        """Return a number that changes with every write, whichever process made it."""
        return await self._store.read(stored_messages.read_data_version)

    async def other_turn(self, thread_id: str) -> OtherTurn:
        """Return whether a turn of another window runs in a thread, or waits for the user there."""
        ws = self._open.workspace
        return await self._store.read(turn_lease.find_other_turn, thread_id, ws.owner, ws.clock.now())

    async def unfinished_calls(self, messages: Sequence[Message]) -> dict[str, UnfinishedCall]:
        """Return calls without a result in running turns of the threads of `messages`, by call id."""
        return await self._store.read(self._find_unfinished_calls, {m.thread_id for m in messages if m.tool_calls})

    def _find_unfinished_calls(self, db: Database, thread_ids: Collection[str]) -> dict[str, UnfinishedCall]:
        ws = self._open.workspace
        unfinished: dict[str, UnfinishedCall] = {}
        for thread_id in thread_ids:
            if not (state := turn_lease.find_other_turn(db, thread_id, "", ws.clock.now())):
                continue
            elsewhere = bool(turn_lease.find_other_turn(db, thread_id, ws.owner, ws.clock.now()))
            turn = [*takewhile(lambda m: m.role != "user", reversed(stored_messages.list_page(db, thread_id)))]
            finished = {result.call_id for m in turn for result in m.tool_results}
            calls = (call.id for m in turn for call in m.tool_calls if call.id not in finished)
            unfinished |= dict.fromkeys(calls, UnfinishedCall(state, elsewhere))
        return unfinished

    async def message(self, message_id: str) -> Message | None:
        return await self._store.read(stored_messages.get, message_id)

    async def observations(self) -> list[LogLine]:
        """Return the lines of this thread's log, in its order."""
        ws, thread = self._open.workspace, self._open.thread
        if thread is None:
            return []
        return await ws.store.read(memory_log.read_lines, self._open.engine.record_id)

    async def waiting_observations(self) -> list[LogLine]:
        """Return the lines that are made and not in the prompt yet, in their order."""
        ws, thread = self._open.workspace, self._open.thread
        return [] if thread is None else await ws.store.read(memory_log.read_waiting_lines, self._open.engine.record_id)

    async def carried_lines(self) -> list[CarriedLine]:
        """Return the lines about earlier threads of the workspace in requests of this one."""
        ws, thread = self._open.workspace, self._open.thread
        if thread is None or not await ws.store.read(memory_log.has_earlier, ws.resource_id, thread.id):
            return []
        await ws.warm_counter()
        if self._open.status is None:  # another thread opens meanwhile
            return []
        return await self._open.engine.carried_lines()

    async def group_of(self, line_id: str) -> str:
        """Return the group of a line of any log, or ""."""
        return await self._store.read(memory_log.find_group_of_line, line_id)

    async def warm_windows(self) -> None:
        """Load the tools that `windows` counts, unless nothing was said yet."""
        if self._open.status is not None and self._open.engine.preview().messages:
            await self._open.warm_toolbox()

    def windows(self) -> Windows:
        """Return the windows as they are now, a running step with them; cheap enough for a few times a second."""
        thread = self._open
        if thread.status is None:  # none is open, or it is being loaded
            return Windows()
        prepared = thread.engine.preview()
        if thread.existing_toolbox is None or not prepared.messages:
            return Windows(prepared.status)
        tokens = sum(b.tokens for b in self._build_blocks(prepared))
        return Windows(prepared.status, tokens, thread.running.estimate.tokens)

    async def moments(self) -> list[LogChange]:
        """Return the times at which this thread's log changed by itself, oldest first."""
        ws, thread = self._open.workspace, self._open.thread
        return [] if thread is None else await ws.store.read(memory_events.list_changes, self._open.engine.record_id)

    async def log_at(self, time: int) -> list[LogLine]:
        """Return the lines of this thread's log as it was at a time (Unix ms)."""
        return await self._store.read(memory_corrections.read_log_at, self._open.engine.record_id, time)

    async def memory_figures(self) -> Figures:
        """Return the figures of this thread's memory, by its stored rows."""
        ws, thread = self._open.workspace, self._open.thread
        if thread is None:
            return memory_log.Figures()
        return await ws.store.read(memory_log.compute_figures, self._open.engine.record_id)

    async def memory_events(self) -> list[MemoryEvent]:
        """Return the events of this thread's memory, newest first."""
        ws, thread = self._open.workspace, self._open.thread
        if thread is None:
            return []
        return await ws.store.read(memory_events.list_events, self._open.engine.record_id, thread.id)

    async def memory_groups(self, group_ids: Sequence[str]) -> list[Group]:
        """Groups of the log by their ids, with their texts."""
        return await self._store.read(stored_memory.get_groups, group_ids)

    async def spent(self) -> Spent:
        """Return the usage of this thread so far, by its stored calls."""
        return await self._load_spending(self._open.thread.id) if self._open.thread is not None else Spent()

    async def _load_spending(self, thread_id: str) -> Spent:
        purposes = ("actor", "side", "search", "observer", "reflector")
        used = [await self._store.read(runs.load_total_usage, thread_id, p) for p in purposes]
        actor, side, search, observer, reflector = used
        return Spent(actor + side, observer + reflector, search)

    async def child_memory(self, child_id: str) -> ChildMemory | None:
        """Return the memory of a child of this thread as it is stored; None before it has one."""
        read = self._store.read
        record = await read(stored_memory.get_record, f"thread:{child_id}")
        run = await read(runs.get, child_id)
        if record is None or run is None:
            return None
        last = await read(stored_memory.find_cursor, record.id, child_id)
        messages = await read(stored_messages.list_after, child_id, last)
        log = sum(g.observation_tokens for g in await read(stored_memory.list_groups, record.id, "active"))
        settings = memory_modes.apply_mode(self._open.workspace.config.memory, run.mode)
        # the window of a child that never reported is about its parent's
        budget = (run.report or {}).get(runs.BUDGET, self._open.engine.state.budget)
        numbers = memory_policy.compute_effective_numbers(settings, log, budget)
        return ChildMemory(
            MemoryStatus(
                record.id,
                child_id,
                0,
                record.generation_count,
                Gauge(sum(m.tokens for m in messages), numbers.threshold),
                Gauge(log, numbers.reflect_at),
                BufferedObservations(),
                BufferedReflection(),
            ),
            await read(memory_log.read_lines, record.id),
            await read(memory_log.read_waiting_lines, record.id),
            await read(memory_log.compute_figures, record.id),
            await read(memory_events.list_events, record.id, child_id),
            await self._load_spending(child_id),
        )

    async def turn_tokens(self) -> int | None:
        """Tokens of a recent turn in this thread, or None if unknown."""
        thread = self._open.thread
        return None if thread is None else await self._store.read(memory_log.compute_average_turn, thread.id)

    async def sources(self, group_id: str) -> list[Message]:
        """Return the raw messages that an observation group was made from."""
        store = self._store
        ids = await store.read(memory_log.list_sources, group_id)
        return deleted_messages.skip_deleted(await store.read(stored_messages.get_many, ids))

    async def board(self) -> Board:
        ws = self._open.workspace
        midnight = datetime.datetime.fromtimestamp(ws.clock.now() / 1000).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        return await ws.store.read(task_queries.load_board, ws.board_id, int(midnight.timestamp() * 1000))

    async def board_version(self) -> int:
        """Return a number that grows with every change of a task, whichever process made it."""
        return await self._store.read(task_questions.read_last_event, self._open.workspace.board_id)

    async def task(self, task_id: str) -> Json:
        """Return a task of this workspace in full: fields, blockers, edges, history. Raises `TaskError`."""
        return await self._store.read(task_queries.show_task, self._open.workspace.board_id, task_id)

    async def task_messages(self, task_id: str) -> list[Message]:
        """Return the messages about a task, oldest first."""
        store = self._store
        return await store.read(stored_messages.get_many, await store.read(task_links.list_linked_messages, task_id))

    async def search(
        self,
        query: str,
        *,
        scope: Literal["thread", "workspace", "all"] = "workspace",
        limit: int = 50,
        offset: int = 0,
        first: bool = False,
    ) -> SearchPage:
        """Hits for `query`; with `first` a page of very many texts may come before it was looked inside words."""
        ws, thread = self._open.workspace, self._open.thread
        where = text_search.Scope(
            None if scope == "all" else ws.resource_id,
            thread.id if scope == "thread" and thread else None,
        )
        return await ws.store.search(text_search.search, query, where, limit=limit, offset=offset, first=first)

    async def within(self, thread_id: str, text: str) -> list[MessageMatch]:
        """Return the messages of a thread that have `text` itself, oldest first."""
        return await self._store.read(stored_messages.find_text, thread_id, text)

    async def around(self, thread_id: str, index: int, before: int = 3, after: int = 3) -> list[Message]:
        """Return the message of an index in its thread, between those before and after it."""
        return await self._store.read(stored_messages.list_between, thread_id, index - before, index + after)

    async def origin(self, line_id: str) -> Origin | None:
        """Return the origin of a line of the log."""
        return await self._store.read(group_rows.find_origin, line_id)

    async def threads(self, limit: int = 100) -> list[ThreadSummary]:
        rows = await self._store.read(stored_threads.list_summaries, self._resource_id, limit)
        return [ThreadSummary.of(row) for row in rows]

    async def context(self) -> list[ContextBlock]:
        """Return the request as it would be sent now: after the running step, or if the user wrote."""
        await self._open.warm_toolbox()
        return self.request_blocks()

    def request_blocks(self) -> list[ContextBlock]:
        """Return the blocks of the next request: stored rows, and an estimate of the running step."""
        return self._build_blocks(self._open.engine.preview())

    def _build_blocks(self, prepared: Prepared) -> list[ContextBlock]:
        ws = self._open.workspace
        counter, info = ws.counter, ws.models.info
        tools = self._open.toolbox.specs(info)
        if self._tools[0] is not tools:
            self._tools = tools, "\n\n".join(map(_format_tool, tools))
        counted = self._open.toolbox.count(counter, tools)
        out = [ContextBlock("tools", format_count(len(tools), "tool"), counted, self._tools[1], True)]
        for block in (*self._open.system(), *prepared.blocks):
            tokens = block.tokens or counter.count(block.text)
            label = block.kind.replace("_", " ")
            if block.kind in ("instructions", "memory"):
                label = to_one_line(block.text.partition("\n")[0].removeprefix("# "), FIRST_WORDS)
            out.append(ContextBlock(block.kind, label, tokens, block.text, True))
        if processors := ws.processors():
            listed = "\n".join(map(base.get_title, processors))
            out.append(ContextBlock("processors", format_count(len(processors), "processor"), 0, listed, False))
        out += map(_make_message_block, prepared.messages)
        for describe in (memory_report.describe_unsent, memory_report.describe_unsent_observations):
            if text := describe(prepared.status):
                out.append(ContextBlock("unsent", text, 0, text, False))
        if facts := self._open.engine.next_facts(self._open.facts()):
            part = ContextPart(facts)
            out.append(ContextBlock("tail", "date, folder, Git status", self._count_facts(part), part.text, False))
        if streaming := self._open.running.estimate.tokens:
            out.append(ContextBlock("streaming", STREAMING, streaming, STREAMING, False))
        return out

    def _count_facts(self, part: ContextPart) -> int:
        if self._facts[0] != part.text:
            self._facts = part.text, count_part(self._open.workspace.counter, part)
        return self._facts[1]

    async def past_request(self, number: int) -> list[ContextBlock]:
        """Return the request of a past step of the open thread, by its number from 1, if it is stored."""
        ws, thread = self._open.workspace, self._open.thread
        if thread is None:
            return []
        past = await ws.store.read(history.read_request, thread.id, number)
        count = ws.counter.count
        pieces = past.pieces if past is not None else ()
        return [ContextBlock(p.kind, p.kind.replace("_", " "), count(p.text), p.text, False) for p in pieces]

    async def models(self) -> list[ModelInfo]:
        provider = self._open.workspace.models.provider
        return [] if provider is None else list(await provider.models())

    async def history(self, limit: int = 500) -> list[str]:
        """Prompts of this workspace, oldest first."""
        return await self._store.read(user_state.list_prompts, self._resource_id, limit)

    async def add_history(self, text: str) -> None:
        ws = self._open.workspace
        text = self._open.inbox.sent_as.get(text, text)
        await ws.store.write(user_state.add_prompt, ws.resource_id, text, ws.clock.now(), self._open.id or None)

    async def take_unsent(self) -> tuple[str, list[str]]:
        """Take over the draft and the queued messages of ended windows of this workspace."""
        ws = self._open.workspace
        self._open.inbox.window = leases.make_owner()
        if ws.store.read_only_reason:
            return "", []
        return await ws.store.write(user_state.take_unsent, ws.resource_id, self._open.inbox.window, ws.clock.now())

    async def keep_unsent(self, draft: str, queued: Sequence[str], *, left: bool = False) -> None:
        """Store the unsent texts of this window, if anything can be written; `left`: it closes."""
        ws = self._open.workspace
        if self._open.inbox.window and not ws.store.read_only_reason:
            await ws.store.write(
                user_state.save_unsent,
                ws.resource_id,
                self._open.inbox.window,
                user_state.Unsent(draft, tuple(queued), self._open.id or None),
                ws.clock.now(),
                is_closing=left,
            )

    async def ui_state(self) -> dict[str, str]:
        return await self._store.read(user_state.load_ui_state)

    async def set_ui_state(self, key: str, value: str) -> None:
        await self._store.write(user_state.set_ui_state, key, value)
