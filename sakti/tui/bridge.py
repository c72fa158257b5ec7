"""Map session events to calls on widgets. Only this module decides how an event is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from sakti.agent.reports.memory_report import describe_compaction, describe_stale_leases, describe_uncompaction
from sakti.core.events import (
    TURN_ENDS,
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
from sakti.core.text import count_k, format_count
from sakti.tui.transcript.blocks import CardBlock, NoticeBlock
from sakti.tui.transcript.build import make_end_notice
from sakti.tui.widgets.approval import summarize_question

if TYPE_CHECKING:
    from sakti.tui.chat.screen import ChatScreen
    from sakti.tui.transcript.live_turn import LiveTurn

SILENT_EVENTS = (StoreWaiting, TasksChanged, PromptRead)  # events that change nothing on the screen
READING = "reading the prompt"  # the activity of a local model before its first token


def make_no_model_card() -> CardBlock:
    """Return the help for a missing model, as a card in the chat so that the prompt keeps its focus."""
    return CardBlock(
        title="No model configured. Tools, search and tasks still work.",
        rows=(
            ("API key", "set ANTHROPIC_API_KEY or OPENAI_API_KEY and start sakti again"),
            ("server", "/model PROVIDER/NAME, for Ollama, LM Studio, llama.cpp or vLLM on this machine"),
            ("offline", "/setup downloads a small model that needs no key and no network"),
            ("demo", "/tour: two minutes, scripted, no model needed"),
        ),
    )


def show_event(chat: ChatScreen, event: Event) -> None:
    """Show `event`. Called on the app's event loop, in the order of events."""
    live = chat.transcript.live
    chat.status_line.handle_event(event)
    if not isinstance(event, SILENT_EVENTS):
        chat.panes.follow_windows()
    chat.stop_control.handle_event(event)
    match event:
        case (
            TextDelta() | ThinkingDelta() | ToolCallDelta() | ToolStarted() | ToolOutput() | ToolFinished()
            | MessageSaved()
        ):  # fmt: skip
            _show_live(live, event)
        case TurnStarted() | StepStarted() | StepFinished() | StepDiscarded() | RetryScheduled() | TurnFinished():
            _follow_turn(chat, event)
        case ApprovalRequested() | ApprovalResolved():
            _show_approval(chat, event)
        case JobsChanged() | SideQuestion() | StoreWaiting() | McpServerChanged():
            _show_side_event(chat, event)
        case QueueChanged(queued):
            chat.conversation.queue.queued = queued
            chat.status_line.queued = len(queued)
            chat.drafts.save_soon()
        case ThreadChanged(thread):
            chat.show_thread(thread)
        case ModelChanged(model, reason, window):
            chat.show_model(model, window, reason)
            if model is None:
                live.add_block(make_no_model_card())
        case TasksChanged():
            chat.panes.load_board()
            chat.show_modes()  # an approved plan, or its undo, changes the approval mode
        case Notice(severity, title, text):
            chat.show_saving()
            live.add_block(NoticeBlock(tone=severity, title=title, text=text))
        case MemoryStatus() | MemoryOperation() | MemoryActivation() | StaleLeases() | CompactionFinished():
            _show_memory(chat, event)
        case AgentStarted() | AgentProgress() | AgentFinished():
            live.show_child(event)
        case PromptRead():
            pass  # the status line shows it
        case _:
            assert_never(event)


def _show_live(
    live: LiveTurn,
    event: TextDelta | ThinkingDelta | ToolCallDelta | ToolStarted | ToolOutput | ToolFinished | MessageSaved,
) -> None:
    match event:
        case TextDelta(text):
            live.add_text(text)
        case ThinkingDelta(text):
            live.add_thinking(text)
        case ToolCallDelta(call_id, name, text):
            live.write_call(call_id, name, text)
        case ToolStarted(call, own):
            live.start_tool(call, own=own)
        case ToolOutput(call_id, text, progress):
            live.add_output(call_id, text, progress)
        case ToolFinished(result, duration_ms):
            live.finish_tool(result, duration_ms)
        case MessageSaved(message):
            live.attach(message)
        case _:
            assert_never(event)


def _follow_turn(
    chat: ChatScreen,
    event: TurnStarted | StepStarted | StepFinished | StepDiscarded | RetryScheduled | TurnFinished,
) -> None:
    live = chat.transcript.live
    match event:
        case TurnStarted(message=message):
            live.show_user(message)
            live.begin_wait()
            chat.transcript.scroll_end_now()
            chat.notifier.begin_turn()
        case StepStarted(model=model):
            chat.show_modes()
            chat.panes.show_windows()
            chat.panes.load_carried()
            live.begin_step(READING if model.startswith("local/") else "thinking")
        case StepFinished():
            chat.panes.load_usage()
        case StepDiscarded(reason=reason):
            live.discard_step(reason)
        case RetryScheduled(attempt, limit):
            live.begin_wait(f"retrying, attempt {attempt} of {limit}")
        case TurnFinished():
            _finish_turn(chat, event)
        case _:
            assert_never(event)


def _show_side_event(chat: ChatScreen, event: JobsChanged | SideQuestion | StoreWaiting | McpServerChanged) -> None:
    """Show events outside of the conversation."""
    if isinstance(event, JobsChanged):
        chat.status_line.jobs = len(chat.host.session.background_commands())
    elif isinstance(event, StoreWaiting):
        chat.status_line.show_wait(event.seconds)
    elif isinstance(event, McpServerChanged):
        chat.status_line.handle_server(event)
    else:
        chat.conversation.show_aside(event)
        chat.update_escape_label()


def _show_approval(chat: ChatScreen, event: ApprovalRequested | ApprovalResolved) -> None:
    is_open = isinstance(event, ApprovalRequested)
    chat.transcript.live.set_state(event.call_id, "waiting" if is_open else "running")
    chat.show_approvals(event)
    if is_open:
        chat.notifier.notify(summarize_question(event))


def _show_memory(
    chat: ChatScreen, event: MemoryStatus | MemoryOperation | MemoryActivation | StaleLeases | CompactionFinished
) -> None:
    live = chat.transcript.live
    match event:
        case MemoryStatus():
            chat.panes.show_windows()
        case MemoryOperation(kind=kind):
            chat.sidebar.memory.handle_operation(event)
            if kind == "end":
                chat.panes.load_log()
        case MemoryActivation():
            live.add_block(make_activation_notice(event, by_hand=chat.stop_control.activities.is_running("compaction")))
            chat.panes.load_log()
            chat.panes.load_context()
        case StaleLeases():
            live.add_block(NoticeBlock(title="Memory", text=describe_stale_leases(event)))
        case CompactionFinished():
            if event.undone:
                block = NoticeBlock(tone="good", title="Compaction undone", text=describe_uncompaction(event))
            else:
                title = "Compacted in part, then stopped" if event.stopped else "Compacted"
                title = title if event.messages else "Not compacted"
                block = CardBlock(title=title, rows=tuple(describe_compaction(event)), warnings=event.warnings)
            live.add_block(block)
            chat.transcript.scroll_end_now()
            chat.panes.load_log()
            chat.panes.load_context()
        case _:
            assert_never(event)


def make_activation_notice(event: MemoryActivation, *, by_hand: bool = False) -> NoticeBlock:
    """Return the notice for activated observations or a reflection; `by_hand`: for /compact."""
    full = "was ready when you compacted" if by_hand else "the window was full"
    why = {"threshold": full, "idle": "after a pause", "provider_change": "another model"}
    if event.operation_type == "reflection":
        text = (
            f"{count_k(event.tokens_activated)} → {count_k(event.observation_tokens)} tokens of observations, "
            f"generation {event.generation_count}"
        )
        return NoticeBlock(title="Memory reflected", text=text)
    messages = format_count(event.messages_activated, "message")
    text = (
        f"{messages}, {count_k(event.tokens_activated)} tokens, became observations"
        f" ({why.get(event.triggered_by, event.triggered_by)})"
    )
    return NoticeBlock(title="Memory activated", text=text)


def _finish_turn(chat: ChatScreen, event: TurnFinished) -> None:
    live = chat.transcript.live
    live.end_turn()
    chat.panes.load_usage()
    chat.show_git()
    chat.host.start_worker(chat.ask_about_new_files, group="trust")
    chat.notifier.end_turn(event.error_title or TURN_ENDS.get(event.status, "The answer is ready"))
    if event.status == "answered":
        return
    text = event.error or ""
    if event.status == "error":
        rest = "; the answer so far is kept" if event.keeps_answer else ""
        text = f"{text}\nF5 retries{rest}.".strip()
    live.add_block(make_end_notice(event.status, event.error_title or "", text))
