"""Events of the session to calls on widgets: one match, nothing else decides what an event means on screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.agent.figures import compacted, stale_leases, taken_back
from sakti.core.errors import NOT_SAVED
from sakti.core.events import (
    ApprovalRequested,
    ApprovalResolved,
    CompactionFinished,
    Event,
    MemoryActivation,
    MemoryOperation,
    MemoryStatus,
    MessageSaved,
    ModelChanged,
    Notice,
    QueueChanged,
    RetryScheduled,
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
from sakti.core.text import count_k
from sakti.tui.transcript.blocks import CardBlock, NoticeBlock

if TYPE_CHECKING:
    from sakti.tui.app import SaktiApp

_ENDS = {
    "interrupted": "Interrupted",
    "limit": "Stopped at a limit",
    "length": "The answer was cut",
    "repetition": "Stopped: it went in circles",
    "tripwire": "Withheld",
    "refused": "Refused",
    "no_model": "No model",
    "error": "The model did not answer",
}


def no_model_card() -> CardBlock:
    """What to do where there is no model; a card in the chat, so the prompt keeps its focus."""
    return CardBlock(
        title="No model yet: everything but the answers works",
        rows=(
            ("a key", "set ANTHROPIC_API_KEY or OPENAI_API_KEY and start sakti again"),
            ("a server", "/model PROVIDER/NAME, for Ollama, LM Studio, llama.cpp or vLLM on this machine"),
            ("offline", "run `sakti local install` in a shell: a small model that needs no key and no network"),
            ("a look", "run `sakti tour` in a shell: two minutes, played from a script, no model is asked"),
        ),
    )


def handle(app: SaktiApp, event: Event) -> None:
    """Show `event`. Called on the app's event loop, in the order of events."""
    live = app.live
    match event:
        case TextDelta(text):
            live.add_text(text)
        case ThinkingDelta(text):
            live.add_thinking(text)
        case ToolCallDelta(call_id, name, text):
            live.write_call(call_id, name, text)
        case ToolStarted(call):
            app.status_line.going_on()
            live.start_tool(call)
        case ToolOutput(call_id, text):
            live.add_output(call_id, text)
        case ToolFinished(result, duration_ms):
            live.finish_tool(result, duration_ms)
        case MessageSaved(message):
            live.claim(message)
        case TurnStarted(message=message):
            live.show_user(message)
            app.transcript.scroll_end_now()
            app.status_line.busy(True)
            app.attention.turn_began()
        case StepStarted(request_tokens=tokens):
            app.status_line.going_on()
            app.status_line.context = tokens
            live.begin_step()
        case StepFinished():
            app.sidebar.memory.look()
        case StepDiscarded(reason=reason):
            live.discard_step(reason)
        case RetryScheduled(attempt, limit, delay, reason):
            app.status_line.retry(delay, attempt, limit, reason)
        case TurnFinished():
            _turn_finished(app, event)
        case ApprovalRequested() | ApprovalResolved():
            app.show_approvals(event)
            if isinstance(event, ApprovalRequested):
                app.attention.wanted(f"{event.tool} asks to run: {event.target}")
        case QueueChanged(queued):
            app.queue.queued = queued
            app.status_line.queued = len(queued)
            app.unsent.changed()
        case ThreadChanged(thread):
            app.show_thread(thread)
        case ModelChanged(model, reason, window):
            app.show_model(model, window, reason)
            if model is None:
                live.add_block(no_model_card())
        case TasksChanged():
            app.load_board()
        case StoreWaiting(seconds):
            app.status_line.waiting(seconds)
        case Notice(severity, title, text):
            app.header.not_saved = bool(app.session.not_saved)
            live.add_block(NoticeBlock(tone=severity, title=title, text=text))
        case _:
            _memory(app, event)


def _memory(app: SaktiApp, event: Event) -> None:
    match event:
        case MemoryStatus():
            before, app.sidebar.memory.status = app.sidebar.memory.status, event
            if before is not None and _log_of(before) != _log_of(event):  # by another window, too
                app.load_observations()
        case MemoryOperation(kind=kind):
            app.sidebar.memory.operation(event)
            if kind == "end":
                app.load_observations()
        case MemoryActivation():
            app.transcript.live.add_block(activation_notice(event, by_hand=app.compacting))
            app.load_observations()
        case StaleLeases():
            app.transcript.live.add_block(NoticeBlock(title="Memory", text=stale_leases(event)))
        case CompactionFinished():
            if event.undone:
                block = NoticeBlock(tone="good", title="Compaction undone", text=taken_back(event))
            else:
                title = "Compacted" if event.messages else "Not compacted"
                block = CardBlock(title=title, rows=tuple(compacted(event)), warnings=event.warnings)
            app.transcript.live.add_block(block)
            app.load_observations()
        case _:
            pass


def _log_of(status: MemoryStatus) -> tuple[str, int, int]:
    return status.thread_id, status.generation_count, status.observations.tokens


def activation_notice(event: MemoryActivation, *, by_hand: bool = False) -> NoticeBlock:
    """The line that says what happened when the bar dropped; `by_hand`: for /compact."""
    full = "was ready when you compacted" if by_hand else "the window was full"
    why = {"threshold": full, "idle": "after a pause", "provider_change": "another model"}
    if event.operation_type == "reflection":
        text = (
            f"{count_k(event.tokens_activated)} → {count_k(event.observation_tokens)} tokens of observations, "
            f"generation {event.generation_count}"
        )
        return NoticeBlock(title="Memory reflected", text=text)
    text = (
        f"{event.messages_activated} messages, {count_k(event.tokens_activated)} → "
        f"{count_k(event.observation_tokens)} tokens ({why.get(event.triggered_by, event.triggered_by)})"
    )
    return NoticeBlock(title="Memory activated", text=text)


def _turn_finished(app: SaktiApp, event: TurnFinished) -> None:
    app.transcript.live.end_turn()
    app.status_line.busy(False)
    app.sidebar.memory.look()
    app.show_git()
    app.attention.turn_ended(event.error_title or _ENDS.get(event.status, "The answer is there"))
    if event.status == "answered":
        return
    title = event.error_title or _ENDS.get(event.status, event.status)
    text = event.error or ""
    if event.status == "error":
        kept = "" if event.error_code in NOT_SAVED else "; what was said so far is kept"
        text = f"{text}\nF5 asks again{kept}.".strip()
    tone = "error" if event.status in ("error", "no_model") else "warning"
    app.transcript.live.add_block(NoticeBlock(tone=tone, title=title, text=text))
