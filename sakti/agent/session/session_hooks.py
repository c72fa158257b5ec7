"""Connect hooks to a session: find them, provide their data, and report events to them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from sakti.agent.judge.workspace_view import resolve_path
from sakti.agent.processors.base import Processor, StepInput
from sakti.agent.project.hooks import answers, payload, settings
from sakti.agent.project.hooks.answers import HookDecision, HookSurroundings
from sakti.agent.project.hooks.fire import FACT, TITLE, Hooks, make_hold_message
from sakti.agent.sandbox import environment
from sakti.core import resources
from sakti.core.errors import BLOCKED, SaktiError
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
    get_thread_id,
)
from sakti.core.types import ContextPart, Json, Message, Part
from sakti.store.log import lines as memory_log
from sakti.store.tasks import questions
from sakti.store.tasks import rows as task_events
from sakti.store.threads import messages as stored_messages
from sakti.tasks.describe import describe

if TYPE_CHECKING:
    from sakti.agent.open_thread import OpenThread

IDLE_S = 60.0  # seconds after a turn until hooks are told that sakti waits
END_S = 5.0  # seconds that a hook may take at the end of a session
MOST_CLOSED = 50  # closings of tasks that are read


def begin(thread: OpenThread) -> SessionHooks | None:
    """Give an open thread its hooks; None without hooks. Problems with them become notices."""
    hooks = thread.workspace.files.load_hooks()
    for problem in hooks.problems:
        thread.emit(Notice("warning", TITLE, problem))
    return SessionHooks(thread, hooks) if hooks.active else None


class SessionHooks:
    """The hooks of a session: the host that they run for, and the listener that passes events to them."""

    def __init__(self, thread: OpenThread, hooks: settings.HookList) -> None:
        self._open = thread
        self._hooks = Hooks(hooks, self, thread.workspace.files.hashes)
        self._folder: Path | None = None
        self._written = ("", -1)  # the thread in the file, the index of its last message
        self._transcript_lock = asyncio.Lock()
        self._work: set[asyncio.Task[None]] = set()
        self._starting: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._closings: int | None = None  # the newest closing of a task that hooks know of
        self._closings_lock = asyncio.Lock()
        self._by_hand = False  # a compaction that the user asked for runs
        thread.hooks = self._hooks
        thread.workspace.subscribe(self.on_event)

    # --- what hooks need ----------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        return self._open.id

    @property
    def mode(self) -> str:
        return self._open.approval_mode

    def emit(self, event: Event) -> None:
        self._open.emit(event)

    async def place(self) -> HookSurroundings:
        """Return the surroundings of hooks now."""
        ws = self._open.workspace
        environ = ws.command_environment()
        sandbox = None if self._open.approval_mode == "full" else ws.sandbox
        if sandbox is not None:
            await asyncio.to_thread(ws.try_sandbox)
            sandbox = None if sandbox.level.name == "unsandboxed" else sandbox
        return HookSurroundings(
            ws.root,
            self._cwd,
            environment.choose_variables(environ, ws.config.sandbox.env),
            sandbox,
            environ,
            (resources.config_home() / "hooks",),
            ws.home,
        )

    @property
    def _cwd(self) -> Path:
        toolbox = self._open.existing_toolbox
        return toolbox.state.cwd if toolbox is not None else self._open.workspace.root

    async def transcript(self) -> Path:
        """Update the transcript file of the open thread; return the file."""
        async with self._transcript_lock:
            if self._folder is None:
                self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="sakti-hooks-")).resolve()
            name, (thread, last) = self.session_id, self._written
            path, last = self._folder / f"{name}.jsonl", last if thread == name else -1
            new = await self._open.workspace.store.read(stored_messages.list_after, name, last) if name else []
            settled = _select_settled(new)
            text = self._format_transcript(settled)
            with path.open("a" if last >= 0 else "w", encoding="utf-8") as file:
                file.write(text)
            self._written = name, settled[-1].index if settled else last
            return path

    async def child_transcript(self, child_id: str) -> Path:
        """Write the transcript of a child thread beside that of the open one; return the file."""
        path = (await self.transcript()).parent / f"agent-{child_id}.jsonl"
        messages = await self._open.workspace.store.read(stored_messages.list_after, child_id, -1)
        await asyncio.to_thread(path.write_text, self._format_transcript(messages), "utf-8")
        return path

    def _format_transcript(self, messages: Iterable[Message]) -> str:
        cwd = self._cwd
        return "".join(payload.format_transcript(messages, str(cwd), lambda path: str(resolve_path(cwd, path))))

    # --- the life of a session ----------------------------------------------------------------------------------

    def start(self, source: str) -> None:
        """Run the hooks of a session that begins, or goes on; the next turn waits for them."""
        self._starting = self._start_work(self._start, source)

    async def _start(self, source: str) -> None:
        if self._closings is None and self._hooks.listens("TaskClosed"):
            self._closings = await self._read_newest_closing()
        info = self._open.workspace.models.info
        model = {"model": info.full_name} if info is not None else {}
        decision = await self._hooks.fire("SessionStart", {"source": source, **model})
        if self._hooks.listens("SessionStart") and (decision.context or source != "compact"):
            self._open.news.hooks = answers.delimit("SessionStart", decision.context)

    async def ready(self) -> None:
        """Wait for the hooks of the session's start: their texts go with the first request."""
        if self._starting is not None and not self._starting.done():
            await asyncio.wait({self._starting})

    async def end(self, reason: str) -> None:
        """Run the hooks of a session's end; they may take a few seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._notify_closed_tasks()
        await self._hooks.fire("SessionEnd", {"reason": reason}, limit=END_S)

    async def close(self) -> None:
        """End the session for hooks; running ones have a few seconds."""
        if self._idle is not None:
            self._idle.cancel()
        if self._work:
            await asyncio.wait(self._work, timeout=END_S)
        for task in tuple(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        if self._open.thread is not None:
            await self.end("other" if not self._open.workspace.options.interactive else "prompt_input_exit")
        await self._hooks.end()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    # --- a turn -------------------------------------------------------------------------------------------------

    async def extend_prompt(self, text: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return a prompt with the texts of hooks. Raises `SaktiError` if one blocks it."""
        decision = await self._hooks.fire("UserPromptSubmit", {"prompt": text})
        _require_permission(decision)
        hook_text = answers.delimit("UserPromptSubmit", decision.context)
        return (*parts, ContextPart({FACT: hook_text})) if hook_text else parts

    async def hold_stop(self, answer: str, held: int) -> tuple[tuple[Part, ...], Json]:
        """Return the message that continues a turn which was held `held` times; no parts if it ends."""
        texts = await self._hooks.hold("Stop", answer, held)
        return (make_hold_message("Stop", texts), {FACT: "Stop"}) if texts else ((), {})

    def list_processors(self) -> tuple[Processor, ...]:
        """Return the processor that tells hooks that memory is about to replace messages in a step."""
        return (_BeforeCompaction(self._open, self._hooks),) if self._hooks.listens("PreCompact") else ()

    @contextlib.asynccontextmanager
    async def compaction(self, focus: str) -> AsyncGenerator[None]:
        """Surround a compaction that the user asked for. Raises `SaktiError` if a hook blocks it."""
        decision = await self._hooks.fire("PreCompact", {"trigger": "manual", "custom_instructions": focus})
        _require_permission(decision)
        self._by_hand = True
        try:
            yield
        finally:
            self._by_hand = False

    # --- what happens -------------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Tell hooks of an event, unless it is another thread's; nothing waits for them."""
        if get_thread_id(event) not in ("", self._open.id):
            return
        match event:
            case MemoryOperation(kind="end"):
                self._start_work(self._on_observed, event)
            case MemoryActivation(operation_type="observation") if not self._by_hand:
                self._start_work(self._on_compacted, "auto", {"messages": event.messages_activated})
            case CompactionFinished(messages=messages) if messages and not event.undone:
                self._start_work(self._on_compacted, "manual", {"messages": messages, "lines": event.lines})
            case TasksChanged():
                self._start_work(self._notify_closed_tasks)
            case ApprovalRequested(tool=tool):
                name = payload.name_of(tool)
                self._notify("permission_prompt", f"sakti needs your permission to use {name}", "Permission needed")
            case TurnStarted() if self._idle is not None:
                self._idle.cancel()
            case TurnFinished():
                self._start_work(self._notify_closed_tasks)
                if self._open.workspace.options.interactive and self._hooks.listens("Notification"):
                    notification = ("idle_prompt", "sakti is waiting for your input", "Waiting")
                    self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._notify, *notification)
            case (
                MemoryOperation() | MemoryActivation() | CompactionFinished() | TurnStarted() | StepStarted()
                | PromptRead() | TextDelta() | ThinkingDelta() | ToolCallDelta() | ToolStarted() | ToolOutput()
                | ToolFinished() | MessageSaved() | StepFinished() | StepDiscarded() | RetryScheduled()
                | ApprovalResolved() | QueueChanged() | ThreadChanged() | AgentStarted() | AgentProgress()
                | AgentFinished() | ModelChanged() | StoreWaiting() | Notice() | MemoryStatus() | StaleLeases()
                | SideQuestion() | JobsChanged() | McpServerChanged()
            ):  # fmt: skip
                pass  # no hook listens to these
            case _:
                assert_never(event)

    def _notify(self, kind: str, message: str, title: str) -> None:
        fields = {"message": message, "title": title, "notification_type": kind}
        self._start_work(self._fire, "Notification", fields)

    async def _fire(self, event: str, fields: Mapping[str, Any]) -> None:
        await self._hooks.fire(event, fields)

    async def _on_compacted(self, trigger: str, fields: Mapping[str, Any]) -> None:
        await self._hooks.fire("PostCompact", {"trigger": trigger, **fields})
        if self._hooks.listens("SessionStart"):
            await self._start("compact")

    async def _on_observed(self, event: MemoryOperation) -> None:
        """Tell hooks about the new lines of the log, with the ids of stored ones."""
        name = "Observed" if event.operation_type == "observation" else "Reflected"
        if not self._hooks.listens(name):
            return
        window = self._open.engine.state.window
        groups = {g.id for g in (*window.active, *window.buffered) if g.cycle_id == event.cycle_id}
        stored = await self._open.workspace.store.read(
            memory_log.read_lines, event.record_id, states=("active", "buffered")
        )
        lines = [
            {"id": x.id, "text": x.content, "date": x.date, "time": x.time} for x in stored if x.group_id in groups
        ]
        text = str(event.fields.get("observations", ""))
        await self._hooks.fire(
            name,
            {
                "record_id": event.record_id,
                "cycle_id": event.cycle_id,
                "thread_ids": list(event.thread_ids),
                "lines": lines or [{"id": None, "text": line} for line in payload.split_lines(text)],
                "observations": text,
            },
        )

    async def _read_newest_closing(self) -> int:
        events = await self._open.workspace.store.read(
            task_events.list_newest_events, self._open.workspace.board_id, ("close",), 1
        )
        return events[0].pk if events else 0

    async def _notify_closed_tasks(self) -> None:
        """Tell hooks of the tasks that were closed since the last time."""
        if not self._hooks.listens("TaskClosed") or self._closings is None:
            return
        store = self._open.workspace.store
        async with self._closings_lock:
            events = await store.read(
                task_events.list_newest_events, self._open.workspace.board_id, ("close",), MOST_CLOSED
            )
            new = [e for e in reversed(events) if e.pk > self._closings]
            self._closings = max([self._closings, *(e.pk for e in new)])
        for closing in new:
            task = await store.read(questions.get, closing.task_id)
            if task is not None:
                lines = payload.split_lines(task.summary or "")
                about = {"task_id": task.id, "task_subject": task.title, "task": describe(task), "lines": lines}
                await self._hooks.fire("TaskClosed", about)

    def _start_work(self, work: Callable[..., Awaitable[None]], *args: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(_ignore_store_errors(work, *args))
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task


class _BeforeCompaction(Processor):
    """Tells hooks once that memory is full, before the step in which it replaces messages."""

    def __init__(self, thread: OpenThread, hooks: Hooks) -> None:
        self._open, self._hooks, self._was_full = thread, hooks, False

    async def process_input_step(self, step: StepInput) -> StepInput:
        memory = self._open.engine.state
        full = self._open.workspace.config.memory.enabled and memory.is_full() and not memory.is_suspended
        if full and not self._was_full:
            await self._hooks.fire("PreCompact", {"trigger": "auto", "custom_instructions": ""})
        self._was_full = full
        return step


def _require_permission(decision: HookDecision) -> None:
    """Raise `SaktiError` if hooks deny the request, or end the turn."""
    if decision.stop is None and decision.verdict != "deny":
        return
    reason = decision.stop.text if decision.stop is not None else decision.reason
    raise SaktiError(reason or "A hook ended it.", title="Blocked by a hook", code=BLOCKED)


async def _ignore_store_errors(work: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Run work that nothing waits for; errors of the store are not reported here."""
    with contextlib.suppress(SaktiError):
        await work(*args)


def _select_settled(messages: list[Message]) -> list[Message]:
    """Return the messages up to the first that a guard has not passed yet."""
    first = next((n for n, m in enumerate(messages) if m.state == "provisional"), len(messages))
    return messages[:first]
