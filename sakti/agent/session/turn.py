"""State of one turn, and how its messages are stored.

Everything is durable before the next thing happens; text before an interrupt is kept, and every call gets a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field, structs

from sakti.agent.limits import LoopDetector
from sakti.agent.processors.base import Processor, StepRecord, TurnResult, check_hook_result
from sakti.agent.session.inbox import Inbox
from sakti.agent.session.recovery import AnswerJournal, make_interrupted_result
from sakti.agent.tools.toolbox import Toolbox
from sakti.core.config import AgentSettings
from sakti.core.errors import SaktiError
from sakti.core.events import Event, ToolFinished, TurnStatus
from sakti.core.tokens import Counter, count_parts, sum_message_tokens
from sakti.core.types import (
    PASTED,
    Block,
    Json,
    MarkerPart,
    Message,
    ModelInfo,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
    join_plain_text,
)
from sakti.memory.engine import MemoryEngine
from sakti.providers import limits
from sakti.providers.protocol import Provider
from sakti.store import user_state
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.tasks import rows
from sakti.store.threads import codec, removal, runs
from sakti.store.threads import messages as message_store
from sakti.store.threads import threads as thread_store

LEFT_OUT = "A processor left it out."
CUT = "cut"  # marks an answer that ended at a token limit


async def find_no_fallback() -> None:
    return None


async def _find_no_model(_name: str) -> tuple[Provider, ModelInfo] | None:
    return None


async def _end_turn(_answer: str, _held: int) -> tuple[tuple[Part, ...], Json]:
    return (), {}


def _is_never_over() -> bool:
    return False


def _make_empty_usage() -> Usage:
    return Usage()


async def _keep_message(_typed: Message, message: Message) -> Message:
    return message


async def _ignore_message(_message: Message) -> None:
    return None


class Stop(Exception):
    """Ends the turn with a status that is not an answer."""

    def __init__(self, status: TurnStatus, error: SaktiError) -> None:
        super().__init__(error.message)
        self.status: TurnStatus = status
        self.error = error


class Turn(Struct):
    """State of one turn, and its callbacks.

    `facts` returns the facts that change from step to step, by name; `fallback` the model that answers when the first
    one stays overloaded; `find_model` the model that a processor names for a step. `on_model_corrected` gets the limits
    that an answer has shown. `accept` gets a prompt as it was typed and as processors left it, and returns the message
    to store. `may_end` gets the answer, and how often it held the turn; it returns the parts and metadata of the
    message that continues the turn, no parts to end it. `is_over` is asked after each step whether nothing is left to
    do, and may raise `Stop`. `children_usage` is the usage of the turn's child threads. `on_user` is awaited with each
    stored message of the user, before its event. `sink` gets the events. `parent_id` is the thread that a child works
    for. `awaits_guard`: messages are provisional until the processors have seen the answer.
    """

    store: Store
    counter: Counter
    provider: Provider
    model: ModelInfo
    engine: MemoryEngine
    toolbox: Toolbox
    thread_id: str
    resource_id: str
    system: tuple[Block, ...]
    facts: Callable[[], Awaitable[Mapping[str, str]]]
    inbox: Inbox
    settings: AgentSettings
    before: tuple[Processor, ...]
    after: tuple[Processor, ...]
    sink: Callable[[Event], None]
    awaits_guard: bool = False
    owner: str | None = None  # this process in the claims that it makes (host:pid:name)
    require: Callable[[Database], None] = lambda _: None  # raises if the thread is no longer this turn's
    fallback: Callable[[], Awaitable[tuple[Provider, ModelInfo] | None]] = find_no_fallback
    on_model_corrected: Callable[[ModelInfo], None] = lambda _info: None
    find_model: Callable[[str], Awaitable[tuple[Provider, ModelInfo] | None]] = _find_no_model
    accept: Callable[[Message, Message], Awaitable[Message]] = _keep_message
    may_end: Callable[[str, int], Awaitable[tuple[tuple[Part, ...], Json]]] = _end_turn
    is_over: Callable[[], bool] = _is_never_over
    children_usage: Callable[[], Usage] = _make_empty_usage
    parent_id: str = ""
    on_user: Callable[[Message], Awaitable[None]] = _ignore_message
    interrupted: bool = False
    out_of_time: bool = False
    random: random.Random = field(default_factory=random.Random)
    # progress so far
    messages: list[Message] = field(default_factory=list[Message])
    steps: list[StepRecord] = field(default_factory=list[StepRecord])
    usage: Usage = field(default_factory=Usage)
    step: int = 0
    streamed: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    results: list[ToolResultPart] = field(default_factory=list[ToolResultPart])
    open_calls: tuple[ToolCallPart, ...] = ()
    began: float = 0.0  # seconds of the monotonic clock
    wait_left: float = limits.LONGEST_WAIT  # seconds that failed calls may still wait
    cut_answers: int = 0  # answers in a row that ended at their limit
    cut_at_tokens: int = 0  # tokens at which the last one was cut; 0: it was not
    loop_detector: LoopDetector = field(default_factory=LoopDetector)
    purpose: str = "actor"  # of its model calls: "side" if nothing of it is stored
    left_out: dict[str, str] = field(default_factory=dict[str, str])  # pieces of the thread that were refused
    usual_model: tuple[Provider, ModelInfo] | None = None  # answers again after a step with another model
    refused: Message | None = None  # of the user, while processors handle it: not stored yet
    written: dict[str, ToolCallPart] = field(default_factory=dict[str, ToolCallPart])  # calls with the secrets in them

    def emit(self, event: Event) -> None:
        """Pass an event on; the result of a call that ended is the turn's, even if the others are cancelled."""
        if isinstance(event, ToolFinished):
            self.results.append(event.result)
        self.sink(event)

    def open_journal(self) -> AnswerJournal | None:
        """Return the journal of an answer that is to survive a crash; None if it must not be stored early."""
        is_stored = self.purpose == "actor" and not self.awaits_guard and not self.parent_id
        return AnswerJournal(self.store, self.resource_id, self.thread_id) if is_stored else None

    def interrupt(self) -> None:
        self.interrupted = True

    @contextlib.contextmanager
    def limited_in_time(self) -> Generator[None]:
        """End all waiting of the turn, including running tools, at its time limit.

        Its task is cancelled as by Esc.
        """
        task, limit = asyncio.current_task(), self.settings.max_seconds

        def end() -> None:
            self.out_of_time = True
            if task is not None:
                task.cancel()

        timer = None if limit is None else asyncio.get_running_loop().call_later(limit, end)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

    def find_stop(self) -> TurnStatus | None:
        """Return the end of the turn if it was cancelled itself, by Esc or its time limit.

        Its task then continues, to store the partial results. None: the cancellation comes from elsewhere and must
        propagate.
        """
        if not (self.interrupted or self.out_of_time):
            return None
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return "interrupted" if self.interrupted else "limit"

    def seconds(self) -> float:
        """Return how long the turn has taken so far."""
        return self.store.clock.monotonic() - self.began

    def learn_limits(self, **changes: int | bool) -> None:
        """Apply the model's limits revealed by an answer, to this turn and later ones."""
        self.model = structs.replace(self.model, **changes)  # pyright: ignore[reportArgumentType]
        self.on_model_corrected(self.model)

    def is_paused(self) -> bool:
        """Return whether the server paused the last answer, to be continued unchanged."""
        return self.steps[-1].stop_reason == "pause"

    def text(self) -> str:
        """Return the last answer, with the preceding cut or paused pieces that it continues."""
        answers = [m for m in self.messages if m.role == "assistant"]
        pieces = [m.text for m in answers[-1:]]
        paused = {step.message.id for step in self.steps if step.stop_reason == "pause"}
        for before in reversed(answers[:-1]):
            if not (is_cut(before) or before.id in paused) or before.tool_calls:
                break
            pieces.append(before.text)
        return "".join(reversed(pieces))


def is_cut(said: Message) -> bool:
    """Return whether an answer ended at a limit of tokens."""
    return any(isinstance(p, MarkerPart) and p.kind == CUT for p in said.parts)


# --- messages -------------------------------------------------------------------------------------------


def make_message(turn: Turn, role: Role, parts: Sequence[Part]) -> Message:
    """Make a message with secrets masked: the same text is stored and sent to every model."""
    parts = codec.mask_parts(parts)
    counted = count_parts(turn.counter, parts, turn.model.image_rule)
    pasted = turn.inbox.take_pasted(join_plain_text(parts)) if role == "user" and turn.inbox.pasted else []
    return Message(
        id=turn.store.ids.new(),
        thread_id=turn.thread_id,
        resource_id=turn.resource_id,
        role=role,
        parts=tuple(parts),
        created_at=turn.store.clock.now(),
        tokens=sum_message_tokens(counted),
        part_tokens=counted,
        token_counter=turn.counter.name,
        state="provisional" if turn.awaits_guard else "saved",
        metadata={PASTED: pasted} if pasted else {},
    )


async def append(turn: Turn, message: Message) -> Message:
    """Store a message durably, then add it to the turn. An interrupt in between waits for both.

    Additions of processors are masked, too.
    """
    message = codec.mask_message(message, lambda parts: count_parts(turn.counter, parts, turn.model.image_rule))
    paths = list_touched_paths(message, turn)

    def store(db: Database) -> Message:
        turn.require(db)
        task_id = rows.find_active_task(db, message.thread_id, message.thread_id, turn.owner)
        if task_id is None and turn.parent_id:
            task_id = rows.find_active_task(db, turn.parent_id, turn.parent_id, turn.owner)
        stored = message_store.append(db, structs.replace(message, task_id=task_id), paths=paths)
        user_state.forget_answer(db, turn.resource_id, turn.thread_id)  # it is part of this message, or given up
        runs.deliver_results(db, stored)
        runs.report_job_results(db, stored)
        return stored

    write = asyncio.ensure_future(turn.store.write(store))
    cancelled = False
    while not write.done():
        try:
            await asyncio.shield(write)
        except asyncio.CancelledError:
            cancelled = True
    saved = write.result()
    turn.messages.append(saved)
    turn.engine.add(saved)
    if saved.role == "assistant":
        turn.streamed, turn.thinking = [], []
        turn.open_calls, turn.results = saved.tool_calls, []
    if cancelled:
        raise asyncio.CancelledError
    return saved


async def save(turn: Turn, role: Role, parts: Sequence[Part]) -> Message:
    return await append(turn, make_message(turn, role, parts))


async def read_last_prompt(turn: Turn) -> Message:
    message = await turn.store.read(message_store.get_last_of_user, turn.thread_id)
    if message is None:
        raise SaktiError("There is nothing to retry.", code="nothing")
    return message


def restore_call(turn: Turn, call: ToolCallPart) -> ToolCallPart:
    """Return a stored call as the model wrote it, to be run: only the stored copy is masked."""
    written = turn.written.get(call.id, call)
    return written if codec.mask_part(written) == call else call


async def save_results(turn: Turn) -> Message:
    have = {r.call_id for r in turn.results}
    results = [*turn.results, *(make_interrupted_result(c) for c in turn.open_calls if c.id not in have)]
    order = {c.id: i for i, c in enumerate(turn.open_calls)}
    results.sort(key=lambda r: order[r.call_id])
    images = [image for r in results for image in turn.toolbox.images.pop(r.call_id, ())]
    turn.open_calls = ()
    return await save(turn, "tool", [*results, *images])


async def save_unfinished(turn: Turn, marker: str = "interrupted") -> list[Message]:
    """Make a message of the unsaved streamed text; calls without a result get one that says so."""
    saved: list[Message] = []
    if turn.streamed or (turn.thinking and marker):
        parts: list[Part] = []
        if turn.thinking:
            parts.append(ThinkingPart("".join(turn.thinking)))
        if turn.streamed:
            parts.append(TextPart("".join(turn.streamed)))
        if marker:
            parts.append(MarkerPart(marker))
        if turn.streamed:
            saved.append(await save(turn, "assistant", parts))
        turn.streamed, turn.thinking = [], []
    if turn.open_calls:
        saved.append(await save_results(turn))
    return saved


async def store_end(turn: Turn, status: TurnStatus, error: SaktiError | None) -> None:
    """Store the end of a turn without an answer, with its last message.

    It is shown when the thread is opened again, but never sent to a model.
    """
    if not turn.messages:
        return
    ended = {"status": status, **({"title": error.title, "text": error.message, "code": error.code} if error else {})}

    def keep(db: Database) -> None:
        message_store.add_metadata(db, turn.messages[-1].id, {"ended": ended})
        user_state.forget_answer(db, turn.resource_id, turn.thread_id)

    await turn.store.write(keep)


def list_touched_paths(message: Message, turn: Turn) -> list[str]:
    """Return the paths that a message's calls name, as the workspace writes them."""
    out: dict[str, None] = {}
    for call in message.tool_calls:
        out |= dict.fromkeys(turn.toolbox.list_touched(call))
    return list(out)


async def confirm(turn: Turn) -> None:
    if turn.awaits_guard:
        await turn.store.write(message_store.confirm, [m.id for m in turn.messages])


async def finish(turn: Turn) -> dict[str, Json]:
    """Store the turn after its processors; return the metadata that they added, by message id."""
    result = TurnResult(turn.thread_id, tuple(turn.messages), turn.text())
    for processor in turn.after:
        result = check_hook_result(await processor.process_output_result(result), result, processor)
    await _take_over(turn, result)
    await confirm(turn)
    for message_id, metadata in result.metadata.items():
        await turn.store.write(message_store.add_metadata, message_id, metadata)
    await turn.store.write(thread_store.touch, turn.thread_id, turn.store.clock.now())
    return result.metadata


async def _take_over(turn: Turn, result: TurnResult) -> None:
    """Store the processors' changes of the turn's messages.

    Withholds the ones they left out, a call with its results.
    """
    processed = {m.id: m for m in result.messages}
    removed = _select_removed_messages(turn.messages, processed.keys())
    for before in turn.messages:
        after = processed.get(before.id)
        if after is not None and after.parts != before.parts:
            await _store_change(turn, before, after.parts)
    if removed:
        await turn.store.write(removal.withhold_turn, [m.id for m in removed], LEFT_OUT)
        turn.engine.forget([m.id for m in removed])
        turn.messages = [m for m in turn.messages if m not in removed]


def _select_removed_messages(messages: Sequence[Message], remaining: Collection[str]) -> list[Message]:
    """Messages without an id in `remaining`, and those that share a tool call with one of them."""
    removed = [m for m in messages if m.id not in remaining]
    calls = {call_id for m in removed for call_id in _call_ids(m)}
    return removed + [m for m in messages if m.id in remaining and calls & _call_ids(m)]


def _call_ids(message: Message) -> set[str]:
    return {c.id for c in message.tool_calls} | {r.call_id for r in message.tool_results}


async def _store_change(turn: Turn, before: Message, new_parts: Sequence[Part]) -> None:
    """Store new parts of a message, in the window and in the turn too."""
    parts = codec.mask_parts(new_parts)
    counted = count_parts(turn.counter, parts, turn.model.image_rule)
    changed = structs.replace(before, parts=parts, part_tokens=counted, tokens=sum_message_tokens(counted))
    if await turn.store.write(message_store.add_context, changed):
        turn.engine.state.window.amend(changed)
        turn.messages = [changed if m.id == changed.id else m for m in turn.messages]


async def withhold_message(turn: Turn, reason: str) -> Message:
    """Store a withheld mark in place of a message refused by a guardrail, without its text."""
    assert turn.refused is not None
    refused, turn.refused = turn.refused, None
    mark = (MarkerPart("withheld", reason),)
    saved = await append(turn, structs.replace(refused, parts=mark, part_tokens=(0,), tokens=0, state="withheld"))
    await turn.store.write(removal.forget_prompts, turn.resource_id, turn.thread_id, refused.text)
    return saved


async def withhold(turn: Turn, reason: str) -> None:
    """Remove the text of the turn's messages from rows, files, and the log of changes of both."""
    outputs = [r.details.get("output_file") for m in turn.messages for r in m.tool_results]
    outputs += [r.details.get("output_file") for r in turn.results]
    ids = [m.id for m in turn.messages]
    await turn.store.write(removal.withhold_turn, ids, reason)
    turn.engine.forget(ids)
    for path in outputs:
        if isinstance(path, str):
            Path(path).unlink(missing_ok=True)
    await turn.store.flush()
