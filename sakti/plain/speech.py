"""Format events as lines to be read aloud: answers line by line, tool calls when they end."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias, assert_never

from msgspec import Struct, field

from sakti.agent.reports.memory_report import describe_stale_leases
from sakti.core.events import (
    AgentFinished,
    AgentProgress,
    AgentStarted,
    ApprovalRequested,
    ApprovalResolved,
    CompactionFinished,
    Event,
    JobsChanged,
    McpServerChanged,
    MemoryActivation,
    MemoryOperation,
    MemoryStatus,
    MessageSaved,
    ModelChanged,
    Notice,
    PromptRead,
    QueueChanged,
    RetryScheduled,
    SideQuestion,
    StaleLeases,
    StepDiscarded,
    StepFinished,
    StepStarted,
    StoreWaiting,
    TasksChanged,
    TextDelta,
    ThinkingDelta,
    ThreadChanged,
    ToolCallDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from sakti.core.text import sanitize_text, to_one_line
from sakti.core.types import ImagePart, Message, ToolCallPart, ToolResultPart
from sakti.plain import words
from sakti.plain.prose import Prose

MOST_CALLS = 20  # number of recent tool calls whose output is available
SLOW = ("bash", "webfetch", "websearch", "agent")  # tools that may take long, so their start is announced
READY = "ready"
READ_STEP = 20  # percentage points of the prompt between progress lines
FIRST_WAIT_NOTICE, NEXT_WAIT_NOTICE = 2.0, 10.0  # seconds of waiting for another window before a notice
_TONES = {"information": "note", "warning": "warning", "error": "error"}


class EndedCall(Struct, frozen=True):
    """A finished tool call; `output` is its complete known output."""

    asked: ToolCallPart | None
    result: ToolResultPart

    def lines(self) -> list[str]:
        head = f"{words.describe_call(self.asked)}:" if self.asked is not None else f"{self.result.name}:"
        changed = self.result.details.get("diff")
        body = words.spell_diff(str(changed)) if changed else sanitize_text(self.result.content).split("\n")
        output_file = self.result.details.get("output_file")
        return [head, *body, *([f"the full output is in {to_one_line(str(output_file), 300)}"] if output_file else [])]


Progress: TypeAlias = (
    TurnStarted
    | StepStarted
    | PromptRead
    | StepDiscarded
    | RetryScheduled
    | TurnFinished
    | AgentStarted
    | AgentProgress
    | AgentFinished
)


class Speech(Struct):
    """Formats events in their order. `calls`: the finished calls, newest last."""

    calls: deque[EndedCall] = field(default_factory=lambda: deque[EndedCall](maxlen=MOST_CALLS))
    _prose: Prose = field(default_factory=Prose)
    _speaking: bool = False
    _thinking: bool = False
    _read: int = 0  # percentage in the last progress line
    _running: dict[str, ToolCallPart] = field(default_factory=dict[str, ToolCallPart])
    _command_call: str = ""  # call of the user's own command: its output is streamed
    _expected_command: str | None = None
    _command_line: str = ""
    _queued: tuple[str, ...] = ()
    _waiting: set[str] = field(default_factory=set[str])  # queued messages, not yet read by the agent or removed
    _thread: str = ""
    _questions: int = 0
    _next_wait: float = FIRST_WAIT_NOTICE
    _open: tuple[ApprovalRequested, ...] = ()

    def expect_command(self, command: str) -> None:
        """Treat the next call of that command as the user's own."""
        self._expected_command = command

    def format_event(self, event: Event) -> list[str]:
        """Return the lines for `event`; none for events that only a screen shows."""
        if isinstance(event, TextDelta):
            return self._add_label(self._prose.add(event.text))
        if isinstance(event, ThinkingDelta):
            first, self._thinking = not self._thinking, True
            return ["sakti is thinking"] if first else []
        return [*self._end_text(), *self._say(event)] if _ends_text(event) else self._say(event)

    def _add_label(self, lines: list[str]) -> list[str]:
        if lines and not self._speaking:
            self._speaking = True
            return [f"sakti: {lines[0]}", *lines[1:]]
        return lines

    def _end_text(self) -> list[str]:
        lines = self._add_label(self._prose.end())
        self._speaking = False
        return lines

    def _say(self, event: Event) -> list[str]:
        match event:
            case (
                TurnStarted() | StepStarted() | PromptRead() | StepDiscarded() | RetryScheduled() | TurnFinished()
                | AgentStarted() | AgentProgress() | AgentFinished()
            ):  # fmt: skip
                return self._report_progress(event)
            case ToolStarted() | ToolOutput() | ToolFinished():
                return self._report_tool(event)
            case ApprovalRequested() | ApprovalResolved() | SideQuestion():
                return self._ask_or_resolve(event)
            case QueueChanged(queued):
                return self._queue(queued)
            case MessageSaved(message):
                return self._on_saved(message)
            case ThreadChanged(thread):
                previous, self._thread = self._thread, thread.id
                name = to_one_line(thread.title, 100) or "a new thread"
                return [f"thread: {name}"] if previous != thread.id else []
            case ModelChanged(model, reason):
                return [f"model: {to_one_line(model, 100)}, {to_one_line(reason, 100)}"] if model else []
            case StoreWaiting(seconds):
                return self._store_waits(seconds)
            case Notice(severity=severity):
                return [f"{_TONES[severity]}: {event.in_words}"]
            case StaleLeases() | MemoryActivation() | MemoryOperation() | CompactionFinished():
                return _format_memory(event)
            case (
                TextDelta()
                | ThinkingDelta()
                | ToolCallDelta()
                | StepFinished()
                | TasksChanged()
                | MemoryStatus()
                | JobsChanged()
                | McpServerChanged()
            ):
                return []  # spoken as they arrive, or shown only on a screen
            case _:
                assert_never(event)

    def _report_progress(self, event: Progress) -> list[str]:
        match event:
            case TurnStarted(message=message):
                return [f"sent: {words.describe_image(p)}" for p in message.parts if isinstance(p, ImagePart)]
            case StepStarted():
                self._thinking, self._read = False, 0
                return []
            case PromptRead(percent=percent):
                return self._report_reading(percent)
            case StepDiscarded(reason=reason):
                return [f"the answer since the last step was discarded: {to_one_line(reason, 200)}"]
            case RetryScheduled():
                return [f"the model failed: {event.in_words} ctrl+c gives up"]
            case TurnFinished():
                return self._on_turn_finished(event)
            case AgentStarted() | AgentFinished():
                return [event.in_words]
            case AgentProgress():
                return []  # only a screen shows it

    def _report_reading(self, percent: int) -> list[str]:
        """Return a progress line now and then while a prompt is read."""
        if percent < self._read + READ_STEP or percent == 100:
            return []
        self._read = percent
        return [f"reading the prompt: {percent} %"]

    def _report_tool(self, event: ToolStarted | ToolOutput | ToolFinished) -> list[str]:
        match event:
            case ToolStarted(call):
                self._running[call.id] = call
                if self._expected_command is not None and call.arguments == {"command": self._expected_command}:
                    self._expected_command, self._command_call, self._command_line = None, call.id, ""
                    return []
                waits = bool(self._open)  # waiting for an answer that has not begun
                return [f"tool: {words.describe_call(call)}, started"] if call.name in SLOW and not waits else []
            case ToolOutput(call_id, text):
                if call_id != self._command_call:
                    return []
                *complete, self._command_line = (self._command_line + text).split("\n")
                return [sanitize_text(line) for line in complete]
            case ToolFinished(result, duration_ms):
                return self._on_tool_finished(result, duration_ms)

    def _on_tool_finished(self, result: ToolResultPart, duration_ms: int) -> list[str]:
        request = self._running.pop(result.call_id, None)
        self.calls.append(EndedCall(request, result))
        is_own_command, rest = result.call_id == self._command_call, sanitize_text(self._command_line)
        if is_own_command:
            self._command_call = self._command_line = ""
        spoken_lines = [
            words.describe_result(request, result, duration_ms, own=is_own_command),
            *(words.list_tail(result) if not is_own_command else ()),
        ]
        return [rest, *spoken_lines] if is_own_command and rest else spoken_lines

    def _ask_or_resolve(self, event: ApprovalRequested | ApprovalResolved | SideQuestion) -> list[str]:
        return words.format_side_answer(event) if isinstance(event, SideQuestion) else self._ask_approval(event)

    def _ask_approval(self, event: ApprovalRequested | ApprovalResolved) -> list[str]:
        """Ask one question at a time, in order of arrival."""
        if isinstance(event, ApprovalRequested):
            self._open = (*self._open, event)
            return self._ask() if len(self._open) == 1 else []
        first = self._open[:1]
        was_card = any(q.is_card for q in self._open if q.id == event.id)
        self._open = tuple(q for q in self._open if q.id != event.id)
        return [
            words.describe_resolution(event, was_card=was_card),
            *(self._ask() if self._open and self._open[:1] != first else []),
        ]

    def _ask(self) -> list[str]:
        self._questions += 1
        return words.format_question(self._open, self._questions)

    @property
    def question(self) -> ApprovalRequested | None:
        """Return the question asked last if it is still open."""
        return self._open[0] if self._open else None

    def _store_waits(self, seconds: float | None) -> list[str]:
        """Announce a wait after two seconds, then every ten."""
        if seconds is None:
            was_announced, self._next_wait = self._next_wait > FIRST_WAIT_NOTICE, FIRST_WAIT_NOTICE
            return ["the other window is done"] if was_announced else []
        if seconds < self._next_wait:
            return []
        self._next_wait += NEXT_WAIT_NOTICE
        return [f"another window is writing to the database: waiting for it, {seconds:.0f} seconds"]

    def _queue(self, queued: tuple[str, ...]) -> list[str]:
        before, self._queued = self._queued, queued
        if len(queued) > len(before):
            self._waiting.add(queued[-1])
            return [f"queued, {len(queued)} waiting: {to_one_line(queued[-1], 100)}"]
        return []

    def _on_saved(self, message: Message) -> list[str]:
        """Announce a queued message when the agent reads it; several calls are announced before they run."""
        if message.role == "assistant":
            return words.announce_calls(message)
        if message.role != "user" or message.text not in self._waiting:
            return []
        self._waiting.discard(message.text)
        return [f"read by the agent: {to_one_line(message.text, 100)}"]

    def _on_turn_finished(self, event: TurnFinished) -> list[str]:
        self._running.clear()
        self._open = ()
        if event.status == "answered":
            return [READY]
        note = "; the answer so far is kept" if event.keeps_answer and event.status in ("error", "interrupted") else ""
        if event.status == "error":
            return [event.in_words, f"/retry tries again{note}", READY]
        return [f"{event.in_words}{note}", READY]


def _format_memory(event: StaleLeases | MemoryActivation | MemoryOperation | CompactionFinished) -> list[str]:
    match event:
        case StaleLeases():
            return [f"memory: {describe_stale_leases(event)}"]
        case MemoryActivation():
            return [words.describe_activation(event)]
        case MemoryOperation(kind="failed", operation_type=operation, fields={"code": "stopped"}):
            return [f"memory: the {operation} was stopped"]
        case MemoryOperation(kind="failed", operation_type=operation):
            why = to_one_line(str(event.fields.get("error", "")), 200)
            return [f"memory: the {operation} failed; {why}" if why else f"memory: the {operation} failed"]
        case MemoryOperation():
            return []  # only a screen shows them
        case CompactionFinished():
            return words.format_compaction(event)


def _ends_text(event: Event) -> bool:
    """Return whether to print an unfinished line of the answer before this event."""
    return isinstance(event, ToolStarted | ApprovalRequested | StepDiscarded | TurnFinished | MessageSaved)
