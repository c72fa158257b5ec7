"""The one union of events that leaves the core. The TUI, headless output, the log and tests consume it.

`to_json` gives the form of `--output stream-json`: `type` is the event's name, fields are snake_case.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sakti.core.types import Json, Message, Thread, ToolCallPart, ToolResultPart, Usage

TurnStatus: TypeAlias = Literal[
    "answered", "interrupted", "error", "limit", "length", "tripwire", "repetition", "refused", "no_model"
]
Severity: TypeAlias = Literal["information", "warning", "error"]


# --- the turn -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TurnStarted:
    thread_id: str
    message: Message


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A model call begins. `step` counts from 1; `request_tokens` is our own count of its input."""

    step: int
    model: str
    request_tokens: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The model is still writing this call's arguments."""

    call_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """`own`: the user runs it. A call that is asked about starts with its question."""

    call: ToolCallPart
    own: bool = False


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A piece of what a running tool prints."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """`duration_ms` is the tool's own time, without what an approval took. A call that was denied says so in the
    result's details: `denied`, why."""

    result: ToolResultPart
    duration_ms: int


@dataclass(frozen=True, slots=True)
class MessageSaved:
    """`message` is durable. An answer's text has been streamed before as deltas."""

    message: Message


@dataclass(frozen=True, slots=True)
class StepFinished:
    step: int
    usage: Usage
    stop_reason: str


@dataclass(frozen=True, slots=True)
class StepDiscarded:
    """What was streamed of this step is void: it is played again (a retry) or was withheld by a processor."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class RetryScheduled:
    """The provider failed and is asked again in `delay` seconds; Esc gives up waiting."""

    attempt: int
    max_attempts: int
    delay: float
    reason: str


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """`text` is the final answer. `error` is a sentence for people where status is not "answered";
    `error_code` its stable name."""

    thread_id: str
    status: TurnStatus
    text: str
    steps: int
    usage: Usage
    error: str | None = None
    error_title: str | None = None
    error_code: str | None = None


# --- the user ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A tool call waits for the user. `reason` says why it asks, `target` what will run or change, `diff` is
    a unified diff for edits, `rule` what "always" would save; `call_id` is the call's."""

    id: str
    tool: str
    reason: str
    target: str
    cwd: str
    diff: str = ""
    rule: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalResolved:
    id: str
    approved: bool
    note: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """Messages typed while the agent works, oldest first; they go in at the next step."""

    queued: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ThreadChanged:
    thread: Thread


@dataclass(frozen=True, slots=True)
class ModelChanged:
    """`model` is "provider/name", None when there is none; `reason` says in a few words why this one."""

    model: str | None
    reason: str
    context_window: int | None = None


@dataclass(frozen=True, slots=True)
class TasksChanged:
    pass


@dataclass(frozen=True, slots=True)
class StoreWaiting:
    """Another process writes to the database, and what is to be saved here has waited for it for `seconds`; None: it
    waits no longer."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the user that belongs to no message."""

    severity: Severity
    title: str
    message: str


# --- memory -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gauge:
    tokens: int
    threshold: int


@dataclass(frozen=True, slots=True)
class BufferedObservations:
    chunks: int = 0
    message_tokens: int = 0
    projected_message_removal: int = 0
    observation_tokens: int = 0
    status: Literal["idle", "running", "complete"] = "idle"


@dataclass(frozen=True, slots=True)
class BufferedReflection:
    input_observation_tokens: int = 0
    observation_tokens: int = 0
    status: Literal["idle", "running", "complete"] = "idle"


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is still to be observed in the background: tokens of messages, model calls, an estimate of their cost in US
    dollars (None: no price is known)."""

    tokens: int
    calls: int
    cost_usd: float | None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """The windows, once a step and whenever background work starts or ends. `reason`: why this Observer. `retry_at`:
    when an observation that failed is tried again at the latest (Unix ms), sooner when more is said. `phase`: what
    observation does now (`sakti.memory.state.Phase`)."""

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


@dataclass(frozen=True, slots=True)
class StaleLeases:
    """Work on memory that was under way when its window ended; it is done anew when it is due. `kinds` of the leases
    that were cleared; `owner` is host:pid; `started_at` in Unix ms."""

    name = "data-om-stale"
    record_id: str
    thread_id: str
    kinds: tuple[str, ...]
    owner: str
    started_at: int


@dataclass(frozen=True, slots=True)
class MemoryOperation:
    """What every event of an observation, a reflection or a buffering carries. `kind` is the event's last
    part: start, end or failed; `fields` are those the specification names for it."""

    operation: Literal["observation", "buffering"]
    kind: Literal["start", "end", "failed"]
    cycle_id: str
    operation_type: Literal["observation", "reflection"]
    record_id: str
    thread_ids: tuple[str, ...]
    config: Json = field(default_factory=dict[str, Any])
    fields: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class MemoryActivation:
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


@dataclass(frozen=True, slots=True)
class CompactionFinished:
    """The result card of /compact. Tokens are of raw messages and log together, `gone_tokens` of the messages that
    went, `kept_tokens` of those that stay raw; `pinned` lines of the log, and `doubtful` new ones, which claim what
    their source does not have. `undone` after an undo."""

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


Event: TypeAlias = (
    TurnStarted
    | StepStarted
    | TextDelta
    | ThinkingDelta
    | ToolCallDelta
    | ToolStarted
    | ToolOutput
    | ToolFinished
    | MessageSaved
    | StepFinished
    | StepDiscarded
    | RetryScheduled
    | TurnFinished
    | ApprovalRequested
    | ApprovalResolved
    | QueueChanged
    | ThreadChanged
    | ModelChanged
    | TasksChanged
    | StoreWaiting
    | Notice
    | MemoryStatus
    | StaleLeases
    | MemoryOperation
    | MemoryActivation
    | CompactionFinished
)


def event_name(event: Event) -> str:
    """`text_delta` for TextDelta; the memory events have names of their own (`data-om-…`)."""
    match event:
        case MemoryOperation(operation=operation, kind=kind):
            return f"data-om-{operation}-{kind}"
        case MemoryStatus() | MemoryActivation() | StaleLeases():
            return event.name
        case _:
            return re.sub(r"(?<!^)([A-Z])", r"_\1", type(event).__name__).lower()


def to_json(event: Event) -> Json:
    """The event as one JSON object, `type` first."""
    out: Json = {"type": event_name(event)}
    match event:
        case MemoryStatus():
            out |= {
                "record_id": event.record_id,
                "thread_id": event.thread_id,
                "step_number": event.step_number,
                "generation_count": event.generation_count,
                "windows": {
                    "active": {
                        "messages": dataclasses.asdict(event.messages),
                        "observations": dataclasses.asdict(event.observations),
                    },
                    "buffered": {
                        "observations": dataclasses.asdict(event.buffered_observations),
                        "reflection": dataclasses.asdict(event.buffered_reflection),
                    },
                },
                "observer": event.observer,
                "observer_reason": event.reason,
                "reflector": event.reflector,
                "note": event.note,
                "backlog": None if event.backlog is None else dataclasses.asdict(event.backlog),
                "retry_at": event.retry_at,
                "phase": event.phase,
                "approximate": event.approximate,
            }
        case MemoryOperation():
            out |= {
                "cycle_id": event.cycle_id,
                "operation_type": event.operation_type,
                "record_id": event.record_id,
                "thread_ids": list(event.thread_ids),
                "config": event.config,
                **event.fields,
            }
        case _:
            out |= _plain(dataclasses.asdict(event))
    return out


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    return value
