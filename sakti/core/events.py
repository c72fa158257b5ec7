"""Events of a session, as one union, for the TUI, headless output, the log and tests.

`to_json` gives the form of `--output stream-json`: `type` is the event's name, fields are snake_case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import replace

from sakti.core.config import SessionMode
from sakti.core.errors import NOT_SAVED
from sakti.core.text import sanitize_text, to_one_line
from sakti.core.types import ChildState, Json, Message, Thread, ToolCallPart, ToolResultPart, Usage

TurnStatus: TypeAlias = Literal[
    "answered", "interrupted", "error", "limit", "length", "tripwire", "repetition", "refused", "no_model"
]
Severity: TypeAlias = Literal["information", "warning", "error"]


class ThreadEvent(Struct, frozen=True, kw_only=True):
    """Event of one thread. The open thread fills in its id; it is empty for a workspace notice."""

    thread_id: str = ""


class Gauge(Struct, frozen=True):
    tokens: int
    threshold: int


# --- the turn -------------------------------------------------------------------------------------------


class TurnStarted(Struct, frozen=True):
    thread_id: str
    message: Message


class StepStarted(ThreadEvent, frozen=True):
    """Start of a model call; `step` counts from 1, `request_tokens` is our own count of its input."""

    step: int
    model: str
    request_tokens: int


class PromptRead(ThreadEvent, frozen=True):
    """Progress of a local model that has read `read` of the prompt's `total` tokens."""

    read: int
    total: int

    @property
    def percent(self) -> int:
        return min(100, 100 * self.read // max(1, self.total))


class TextDelta(ThreadEvent, frozen=True):
    text: str


class ThinkingDelta(ThreadEvent, frozen=True):
    text: str


class ToolCallDelta(ThreadEvent, frozen=True):
    """Next piece of a tool call's arguments, which the model is still writing."""

    call_id: str
    name: str
    text: str


class ToolStarted(ThreadEvent, frozen=True):
    """Start of a tool call, or of its approval question; again if a hook changed it since.

    `own`: the user runs it.
    """

    call: ToolCallPart
    own: bool = False


class ToolOutput(ThreadEvent, frozen=True):
    """Next piece of a running tool's output, or its new `progress` in a few words."""

    call_id: str
    text: str
    progress: str = ""


class ToolFinished(ThreadEvent, frozen=True):
    """End of a tool call. `duration_ms` is the tool's own time, without the wait for approval.

    The details of a denied call's result have the reason as `denied`.
    """

    result: ToolResultPart
    duration_ms: int


class MessageSaved(ThreadEvent, frozen=True):
    """A message was stored; the text of an answer was streamed before as deltas."""

    message: Message


class StepFinished(ThreadEvent, frozen=True):
    step: int
    usage: Usage
    stop_reason: str


class StepDiscarded(ThreadEvent, frozen=True):
    """The streamed output of this step is void, since it is retried or withheld by a processor."""

    step: int
    reason: str


class RetryScheduled(ThreadEvent, frozen=True):
    """A failed model call will be retried in `delay` seconds; Esc cancels the wait."""

    attempt: int
    max_attempts: int
    delay: float
    reason: str

    @property
    def in_words(self) -> str:
        attempt = f"attempt {self.attempt} of {self.max_attempts}"
        return f"{to_one_line(self.reason, 200)} Trying again in {self.delay:.0f} seconds, {attempt}."


# Titles of turns that end without an answer, if the error has none of its own.
TURN_ENDS: Mapping[str, str] = {
    "interrupted": "Interrupted",
    "limit": "Stopped at a limit",
    "length": "The answer was cut",
    "repetition": "Stopped",
    "tripwire": "Withheld",
    "refused": "Refused",
    "no_model": "No model",
    "error": "No answer",
}


class TurnFinished(Struct, frozen=True):
    """End of a turn; `text` is the final answer.

    If status is not "answered", `error` is a sentence for people and `error_code` its stable name. `metadata` comes
    from processors, by message id, or from a guardrail with its reason.
    """

    thread_id: str
    status: TurnStatus
    text: str
    steps: int
    usage: Usage
    error: str | None = None
    error_title: str | None = None
    error_code: str | None = None
    metadata: Json = field(default_factory=dict[str, Any])

    @property
    def keeps_answer(self) -> bool:
        """Return whether a failed turn stored part of an answer."""
        return bool(self.text or self.steps) and self.error_code not in NOT_SAVED

    @property
    def in_words(self) -> str:
        """Describe the end of a turn with its error; "" for an answer."""
        title = to_one_line(self.error_title or TURN_ENDS.get(self.status, ""), 100)
        return f"{title}: {sanitize_text(self.error)}" if self.error else title


# --- the user ---------------------------------------------------------------------------------------------


# How far an approval goes: this call, the open thread, or the workspace, where its rule is saved; `edits` lets a
# thread edit files as the approval mode of that name does.
Grant: TypeAlias = Literal["once", "thread", "workspace", "edits"]


class CardOption(Struct, frozen=True, forbid_unknown_fields=True):
    label: Annotated[str, Meta(min_length=1, max_length=200)]
    description: Annotated[str, Meta(max_length=1_000)] = ""


class CardQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """Question of `ask_user`; `header` is a short name, `multiple`: several options may be chosen."""

    question: Annotated[str, Meta(min_length=1, max_length=2_000)]
    header: Annotated[str, Meta(min_length=1, max_length=20)]
    options: Annotated[tuple[CardOption, ...], Meta(min_length=2, max_length=6)]
    multiple: bool = False


class FreeQuestion(CardQuestion, frozen=True):
    """Question with a written answer; an empty answer chooses the first option, if there is one."""

    default: str = ""


class CardAnswer(Struct, frozen=True):
    """Answer to a question of `ask_user`: the labels chosen, and the user's own words."""

    header: str
    choices: tuple[str, ...] = ()
    text: str = ""


class ApprovalRequested(ThreadEvent, frozen=True):
    """Tool call that waits for the user's approval.

    `reason`: why it asks; `target`: the command or file; `diff`: a unified diff for edits; `rule`: the rule that a
    lasting grant would save; `call_id`: the id of the call. `is_edit`: the approval mode `edits`
    would allow it. `questions` are those of `ask_user`, which the user answers instead of allowing a call.
    `agent` names the child that asks, with its goal; "" for the thread itself. `later` lists the
    following calls that will also ask, with their targets.
    """

    id: str
    tool: str
    reason: str
    target: str
    cwd: str
    diff: str = ""
    rule: str = ""
    call_id: str = ""
    is_edit: bool = False
    questions: tuple[CardQuestion, ...] = ()
    agent: str = ""
    later: tuple[str, ...] = ()

    @property
    def asker(self) -> str:
        """Return the child thread that asks; "" for the thread itself."""
        return f"child thread {to_one_line(self.agent, 80)}" if self.agent else ""

    @property
    def is_plan(self) -> bool:
        """Return whether it asks to approve a plan, which is Markdown in `target`."""
        return self.tool == "present_plan"

    @property
    def is_card(self) -> bool:
        """Return whether it is shown as a card."""
        return bool(self.questions) or self.is_plan


class ApprovalAnswer(Struct, frozen=True):
    """User's answer to an approval or a card.

    `grant`: how far it goes; `edited` replaces the command in question; `note` goes to the agent with a refusal.
    `is_judged`: rules or the approval mode answered, not the user. `answers` are those to the questions of a card.
    For an approved plan: the approval `mode` from now on, whether it runs in a `fresh` thread, and its Markdown as
    `edited` by the user.
    """

    approved: bool
    grant: Grant = "once"
    note: str = ""
    edited: str | None = None
    is_judged: bool = False
    answers: tuple[CardAnswer, ...] = ()
    mode: SessionMode = "ask"
    fresh: bool = False


class ApprovalResolved(ThreadEvent, frozen=True):
    id: str
    approved: bool
    note: str = ""
    call_id: str = ""


class SideQuestion(ThreadEvent, frozen=True):
    """Question asked beside the thread, and its answer.

    While "answering", `text` is the next piece of the answer; an empty piece starts the answer, or restarts it. At the
    end, `text` is the complete answer, or the reason why there is none.
    """

    question: str
    state: Literal["answering", "answered", "stopped", "failed"]
    text: str = ""


class QueueChanged(ThreadEvent, frozen=True):
    """Queue of messages typed while the agent works, oldest first; they are sent at the next step."""

    queued: tuple[str, ...]


class ThreadChanged(ThreadEvent, frozen=True):
    thread: Thread


class AgentStarted(ThreadEvent, frozen=True):
    """Start of a child thread; `agent` is its mode or custom agent, `call_id` the call that asked for it."""

    child_id: str
    call_id: str
    agent: str
    goal: str
    background: bool = False

    @property
    def in_words(self) -> str:
        return f"child thread {to_one_line(self.agent, 40)}: {to_one_line(self.goal, 200)}"


class AgentProgress(ThreadEvent, frozen=True):
    """Progress of a running child, sent at most four times a second.

    Carries the current `activity`, the tokens and threshold of its window, the cost, the time since its start, and the
    last `calls`, one line each.
    """

    child_id: str
    call_id: str
    step: int
    activity: str
    messages: Gauge
    cost_usd: float | None
    seconds: float
    calls: tuple[str, ...] = ()
    state: ChildState = "running"


class AgentFinished(ThreadEvent, frozen=True):
    """End of a child: the number of `quotes` in its report and of `verified` ones, and its marks."""

    child_id: str
    call_id: str
    state: ChildState
    verified: int
    quotes: int
    marks: str
    steps: int
    cost_usd: float | None
    seconds: float

    @property
    def in_words(self) -> str:
        return f"child thread ended: {to_one_line(self.marks, 200)}"


class ModelChanged(Struct, frozen=True):
    """Another model was chosen: "provider/name", None without one; `reason` is a few words."""

    model: str | None
    reason: str
    context_window: int | None = None


class TasksChanged(Struct, frozen=True):
    pass


class JobsChanged(ThreadEvent, frozen=True):
    """A background command of the thread or of one of its running children began or ended."""


class McpServerChanged(Struct, frozen=True):
    """An MCP server changed its state; `tools` counts its tools, `error` is the reason of a failure."""

    name: str
    state: str
    version: str = ""
    tools: int = 0
    error: str = ""


class StoreWaiting(Struct, frozen=True):
    """Write that has waited `seconds` for another process's write lock; None: the wait is over."""

    seconds: float | None


class Notice(ThreadEvent, frozen=True):
    """A line for the user that belongs to no message."""

    severity: Severity
    title: str
    message: str

    @property
    def in_words(self) -> str:
        return f"{to_one_line(self.title, 80)}: {to_one_line(self.message, 600)}"


# --- memory -----------------------------------------------------------------------------------------------


class BufferedObservations(Struct, frozen=True):
    chunks: int = 0
    message_tokens: int = 0
    projected_message_removal: int = 0
    observation_tokens: int = 0
    status: Literal["idle", "running", "complete"] = "idle"


class BufferedReflection(Struct, frozen=True):
    input_observation_tokens: int = 0
    observation_tokens: int = 0
    status: Literal["idle", "running", "complete"] = "idle"


class Backlog(Struct, frozen=True):
    """Background work left for observation.

    Tokens of messages, model calls, and the estimated cost in US dollars (None: the price is unknown).
    """

    tokens: int
    calls: int
    cost_usd: float | None
    paused: bool = False


class MemoryStatus(Struct, frozen=True):
    """State of the memory windows, sent at each step and when background work starts or ends.

    `reason`: why this Observer was chosen. `retry_at`: latest time at which a failed observation is tried again (Unix
    ms); new messages bring it forward. `phase`: what observation does now (`sakti.memory.phases.Phase`). `unsent`
    and `unsent_observations`: tokens of both windows that do not fit into the next request.
    """

    name = "data-om-status"
    record_id: str
    thread_id: str
    step_number: int
    generation_count: int
    messages: Gauge
    observations: Gauge
    buffered_observations: BufferedObservations
    buffered_reflection: BufferedReflection
    observer: str = ""
    reflector: str = ""
    approximate: bool = False
    next_buffer_at: int | None = None
    note: str = ""
    reason: str = ""
    backlog: Backlog | None = None
    retry_at: int | None = None
    phase: str = "idle"
    unsent: int = 0
    unsent_observations: int = 0


class StaleLeases(Struct, frozen=True):
    """Background memory work that ended with its window and will be repeated when due.

    `kinds` are those of the leases that were cleared; `owner` is host:pid; `started_at` in Unix ms.
    """

    name = "data-om-stale"
    record_id: str
    thread_id: str
    kinds: tuple[str, ...]
    owner: str
    started_at: int


class MemoryOperation(ThreadEvent, frozen=True):
    """Common data of every event of an observation, a reflection or a buffering.

    `kind` is the last part of the event's name (start, end, failed); `fields` are defined by the specification.
    """

    operation: Literal["observation", "buffering"]
    kind: Literal["start", "end", "failed"]
    cycle_id: str
    operation_type: Literal["observation", "reflection"]
    record_id: str
    thread_ids: tuple[str, ...]
    config: Json = field(default_factory=dict[str, Any])
    fields: Json = field(default_factory=dict[str, Any])


class MemoryActivation(ThreadEvent, frozen=True):
    name = "data-om-activation"
    cycle_id: str
    operation_type: Literal["observation", "reflection"]
    record_id: str
    thread_ids: tuple[str, ...]
    triggered_by: Literal["threshold", "idle", "provider_change"]
    activated_at: int
    chunks_activated: int
    tokens_activated: int
    observation_tokens: int
    messages_activated: int
    generation_count: int
    observations: str
    config: Json = field(default_factory=dict[str, Any])


class CompactionFinished(ThreadEvent, frozen=True):
    """Result of /compact.

    Token counts before and after cover raw messages and log together. `gone_tokens` count the removed
    messages, `kept_tokens` those that stay raw; `pinned` counts lines of the log, `doubtful` the new lines that their
    source does not support. `undone`: after an undo; `stopped`: the user stopped it, and the finished part is kept.
    """

    record_id: str
    messages: int
    tokens_before: int
    tokens_after: int
    lines: int
    warnings: tuple[str, ...] = ()
    undone: bool = False
    gone_tokens: int = 0
    kept: int = 0
    kept_tokens: int = 0
    pinned: int = 0
    doubtful: int = 0
    stopped: bool = False


Event: TypeAlias = (
    TurnStarted | StepStarted | PromptRead | TextDelta | ThinkingDelta | ToolCallDelta | ToolStarted | ToolOutput
    | ToolFinished | MessageSaved | StepFinished | StepDiscarded | RetryScheduled | TurnFinished | ApprovalRequested
    | ApprovalResolved | SideQuestion | QueueChanged | ThreadChanged | AgentStarted | AgentProgress | AgentFinished
    | ModelChanged | TasksChanged | JobsChanged | McpServerChanged | StoreWaiting | Notice | MemoryStatus
    | StaleLeases | MemoryOperation | MemoryActivation | CompactionFinished
)  # fmt: skip


def get_thread_id(event: Event) -> str:
    """Return the id of an event's thread; "" for a workspace event."""
    return "" if isinstance(event, ModelChanged | TasksChanged | McpServerChanged | StoreWaiting) else event.thread_id


def assign_thread(event: Event, thread_id: str) -> Event:
    """Return the event with a thread id, unless it already has one."""
    if isinstance(event, ThreadEvent) and not event.thread_id:
        return replace(event, thread_id=thread_id)
    return event


def get_event_name(event: Event) -> str:
    """Return an event's public name: `text_delta` for TextDelta, `data-om-…` for the events of memory."""
    if isinstance(event, MemoryOperation):
        return f"data-om-{event.operation}-{event.kind}"
    if isinstance(event, MemoryStatus | MemoryActivation | StaleLeases):
        return event.name
    return re.sub(r"(?<!^)([A-Z])", r"_\1", type(event).__name__).lower()


def to_json(event: Event) -> Json:
    """Convert an event to one JSON object, `type` first."""
    out: Json = {"type": get_event_name(event)}
    if isinstance(event, MemoryStatus):
        return out | _status_to_json(event)
    if isinstance(event, MemoryOperation):
        return out | {
            "thread_id": event.thread_id,
            "cycle_id": event.cycle_id,
            "operation_type": event.operation_type,
            "record_id": event.record_id,
            "thread_ids": list(event.thread_ids),
            "config": event.config,
            **event.fields,
        }
    return out | to_builtins(event, str_keys=True)


def _status_to_json(event: MemoryStatus) -> Json:
    return {
        "record_id": event.record_id,
        "thread_id": event.thread_id,
        "step_number": event.step_number,
        "generation_count": event.generation_count,
        "windows": {
            "active": {"messages": to_builtins(event.messages), "observations": to_builtins(event.observations)},
            "buffered": {
                "observations": to_builtins(event.buffered_observations),
                "reflection": to_builtins(event.buffered_reflection),
            },
        },
        "observer": event.observer,
        "observer_reason": event.reason,
        "reflector": event.reflector,
        "note": event.note,
        "backlog": None if event.backlog is None else to_builtins(event.backlog),
        "retry_at": event.retry_at,
        "phase": event.phase,
        "approximate": event.approximate,
        "unsent": {"messages": event.unsent, "observations": event.unsent_observations},
    }
