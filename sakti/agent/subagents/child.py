"""Run a child thread: follow its progress, take its report, and store its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sakti.agent.project.hooks.answers import HookText, delimit
from sakti.agent.repository import find_local_timezone
from sakti.agent.session.turn_lease import TurnLease
from sakti.agent.subagents import report as reports
from sakti.agent.subagents.files import AgentSpec, NamedTools
from sakti.agent.subagents.report import ChildReport, make_report
from sakti.agent.subagents.thread import ChildThread, ChildTurns
from sakti.agent.tools.context import Outcome
from sakti.core.calls import summarize_call
from sakti.core.errors import SaktiError
from sakti.core.events import (
    AgentFinished,
    AgentProgress,
    Event,
    Gauge,
    JobsChanged,
    MemoryActivation,
    MemoryStatus,
    Notice,
    RetryScheduled,
    StepFinished,
    StepStarted,
    TasksChanged,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from sakti.core.text import to_one_line
from sakti.core.types import ChildState, Json, RunState, ToolCallPart, Usage, describe_state, display_name, unwrap_call
from sakti.memory import modes
from sakti.store.secrets import mask_output
from sakti.store.threads import runs
from sakti.store.threads.runs import ChildRun

if TYPE_CHECKING:
    from sakti.agent.open_thread import OpenThread
    from sakti.agent.tools.base import Tool

log = logging.getLogger(__name__)

REPAIRS = 2  # reports with wrong arguments that are answered with their errors
IDLE_ACTIVATIONS = 3  # times that memory made room without a successful call in between
STOP_S = 0.8  # seconds until a stopped child is no longer waited for
EVERY_S = 0.25  # seconds between two events of progress
SHOWN = 5  # calls that are kept for the screen
INVALID = "{problem} Call report again with that corrected."


class Child:
    """A child while it works, and until its report is delivered.

    `spend` gets each step's usage; `reached` returns the limit of the parent's turn that is reached, "" for none.
    `calls` are its last calls in a line each.
    """

    def __init__(
        self,
        parent: OpenThread,
        spec: AgentSpec,
        run: ChildRun,
        tools: NamedTools | None,
        spend: Callable[[Usage], None],
        reached: Callable[[], str],
    ) -> None:
        self.parent, self.spec, self.run = parent, spec, run
        self.thread = ChildThread(parent, spec, run.goal, tools, self.on_event, self._make_report)
        self.turns = ChildTurns(self.thread, self._has_reported, self._limit, self._hold)
        if parent.hooks is not None:
            self.thread.hooks = parent.hooks.of_agent(run.child_id, spec.name)
        ws = parent.workspace
        self.lease = TurnLease(ws.store, ws.owner, run.child_id)  # while it waits for a place; then the turn takes it
        self.listeners: list[Callable[[Event], None]] = []  # called with its events
        self.task: asyncio.Task[None] | None = None
        self.report: ChildReport | None = None
        self.usage = Usage()
        self.step, self.activity = 0, "starting"
        self.calls: list[str] = []
        self.state: ChildState = "waiting"
        self.outcome: Outcome | None = None
        self.stopped = ""  # why it was stopped
        self._spend, self._reached = spend, reached
        self._clock = parent.workspace.clock
        self._began, self._shown = self._clock.monotonic(), float("-inf")
        self._timer: asyncio.TimerHandle | None = None  # until the progress is emitted
        self._gauge = Gauge(0, 0)
        self._refused = 0
        self._activations = 0
        self._held = 0  # times that hooks kept it from ending
        self._can_end = False  # hooks know of its end
        self._end: TurnFinished | None = None

    @property
    def id(self) -> str:
        return self.run.child_id

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    @property
    def is_here(self) -> bool:
        """Return whether the thread that started it is still the open one."""
        return self.run.parent_id == self.parent.id

    @property
    def seconds(self) -> float:
        return self._clock.monotonic() - self._began

    # --- the run ----------------------------------------------------------------------------------------------

    async def play(self, text: str, places: asyncio.Semaphore, model: str) -> None:
        """Work until the report, a limit or a stop; the outcome is there when it ends."""
        why = ""
        try:
            async with places:
                if not self.stopped:
                    await self._work(text, model)
        except asyncio.CancelledError:
            self.stopped = self.stopped or "stopped"
        except SaktiError as e:
            why = e.message
        except Exception as e:  # top level of the task: a failure of the child goes into its report
            log.exception("child failed")
            why = f"{type(e).__name__}: {e}"
        await self.finish(why)

    async def _work(self, text: str, model: str) -> None:
        self._began = self._clock.monotonic()
        self.state = "running"
        self.show()
        await self.thread.open_stored(self.id)
        if model:
            self.thread.answering = await self.parent.workspace.models.for_turn(model)
        self._warn_without_price()
        if self.thread.hooks is not None:
            await self.thread.hooks.start_agent()
        await self.turns.ask(text)

    def _warn_without_price(self) -> None:
        """Emit a notice, once per model, that the limit in dollars has no effect."""
        models, answering = self.parent.workspace.models, self.thread.answering
        info = answering[1] if answering is not None else models.info
        if info is not None and info.input_price is None and info.full_name not in models.noticed_prices:
            models.noticed_prices.add(info.full_name)
            text = f"The price of {info.full_name} is not known: subagents.max_usd does not limit its child threads."
            self.parent.emit(Notice("warning", "No price", text))

    async def stop(self, why: str) -> None:
        """Stop it with a partial report; waits no longer than `STOP_S`."""
        if not self.is_running:
            return
        assert self.task is not None
        self.stopped = self.stopped or why
        if self.thread.busy:
            await asyncio.wait({asyncio.ensure_future(self.turns.interrupt())}, timeout=STOP_S)
        elif self.outcome is None:  # it waits for a place, or is being opened
            self.task.cancel()
        await asyncio.wait({self.task}, timeout=STOP_S)
        await self.finish("")

    async def finish(self, why: str) -> None:
        """Store its end and make its outcome, once."""
        if self.outcome is not None:
            return
        state, report = self._make_ending(why)
        self.state = state
        ws, clock = self.parent.workspace, self._clock
        head = reports.format_head(self.id, self.spec.name, self.step, self.usage.cost_usd)
        block = reports.format_block(report, head)
        details: Json = {
            runs.CHILD: self.id, "marks": report.in_words(), "state": state, "steps": self.step,
            "cost_usd": self.usage.cost_usd, "seconds": self.seconds, "calls": self.calls,
        }  # fmt: skip
        self.outcome = Outcome(block, details=details)
        findings = reports.make_findings(report, ws.store.ids, ws.counter, clock.now(), find_local_timezone() or "UTC")
        stored = {
            "block": block, "findings": findings, "marks": report.in_words(), "steps": self.step,
            runs.BUDGET: self._get_budget(),
        }  # fmt: skip
        try:
            await ws.store.write(runs.end, self.id, state, stored, clock.now())
        except SaktiError as e:
            self.parent.emit(Notice("warning", e.title, e.message))
        await self.lease.give_back()
        quotes = report.verified_count, report.quote_count, report.in_words()
        ended = AgentFinished(self.id, self.run.call_id, state, *quotes, self.step, self.usage.cost_usd, self.seconds)
        if self.is_here:
            self.parent.emit(ended)
        if not (self._can_end or self.stopped):  # stopping does not wait for hooks
            await self._hold(report.summary)
        await self.thread.close()

    def _make_ending(self, why: str) -> tuple[RunState, ChildReport]:
        if self.report is not None:
            return "finished", self.report
        end, text = self._end, self._last_text()
        if end is not None and end.status == "answered" and not self.stopped and not why:
            return "finished", ChildReport(text, unstructured=True)
        reason = self.stopped or why or (end.error if end is not None else "") or "it ended without a report"
        return "partial", reports.make_partial_report(self._read_observations(), text, reason)

    def _last_text(self) -> str:
        turn = self.thread.running.turn
        streamed = "".join(turn.streamed) if turn is not None else ""
        return streamed or (turn.text() if turn is not None else "") or (self._end.text if self._end else "")

    def _read_observations(self) -> list[str]:
        """Return the lines that were observed of its work."""
        try:
            window = self.thread.engine.state.window
        except (SaktiError, RuntimeError):
            return []  # it never began
        text = "\n".join(g.text for g in (*window.active, *window.buffered))
        return [line.strip("* ") for line in text.split("\n") if line.startswith("* ")]

    def _get_budget(self) -> int | None:
        """Return the tokens that its window left for memory, for its gauges; None if that is unknown."""
        try:
            return self.thread.engine.state.budget
        except (SaktiError, RuntimeError):
            return None  # it never began

    def _limit(self, usage: Usage) -> str:
        """Return the limit that it has reached, "" for none."""
        limits = self.parent.workspace.config.subagents
        fresh = usage.input_tokens - usage.cached_tokens + usage.output_tokens
        if fresh >= limits.max_tokens:
            return f"The limit of {limits.max_tokens:,} tokens is reached (subagents.max_tokens)."
        if self._activations >= IDLE_ACTIVATIONS:
            return f"Its memory was condensed {IDLE_ACTIVATIONS} times without a successful call in between."
        return self._reached()

    # --- the report -------------------------------------------------------------------------------------------

    def _make_report(self) -> Tool:
        return make_report(modes.read_numbers(self.spec.mode).fields, self._take, self._refuse)

    def _has_reported(self) -> bool:
        return (self.report is not None and self._can_end) or self._refused > REPAIRS

    async def _hold(self, answer: str) -> tuple[HookText, ...]:
        """Return the texts of hooks that keep it from ending; none if it may end."""
        hooks = self.thread.hooks
        texts = await hooks.hold("SubagentStop", answer, self._held) if hooks is not None else ()
        self._held += bool(texts)
        self._can_end = not texts
        return texts

    def _refuse(self, problem: str) -> Outcome:
        self._refused += 1
        return Outcome(INVALID.format(problem=problem), is_error=True)

    async def _take(self, report: ChildReport) -> Outcome:
        """Check the quotations and end the work, unless a hook continues it."""
        files = await self._list_readable({f.file for f in report.findings if f.file and f.quote})
        checked = await asyncio.to_thread(reports.check_quotes, report.findings, lambda name: _read(files.get(name)))
        self.report = ChildReport(report.summary, checked, report.not_found, report.gaps, report.fields)
        taken = f"The report was accepted: {self.report.in_words()}."
        if texts := await self._hold(report.summary):
            return Outcome(f"{taken} Continue first, then call report again:\n{delimit('SubagentStop', texts)}")
        return Outcome(taken)

    async def _list_readable(self, names: set[str]) -> dict[str, Path]:
        """Return the paths of those files that the child may read without a question."""
        toolbox, out = self.thread.toolbox, dict[str, Path]()
        for name in names:
            path = toolbox.state.resolve(name)
            if not path.is_file():
                path = (self.parent.workspace.root / name).resolve()
            if await toolbox.may_read(str(path), self.id):
                out[name] = path
        return out

    # --- what happens -----------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Process an event of the child, and pass on events that concern the parent."""
        for listener in tuple(self.listeners):
            listener(event)
        if isinstance(event, TasksChanged | JobsChanged):
            self.parent.emit(event)
        elif self._note_progress(event):
            self.show()

    def _note_progress(self, event: Event) -> bool:
        """Return whether an event is progress, after taking it in; the screen that follows it shows the rest."""
        if activity := _describe_activity(event):
            self.activity = activity
        if isinstance(event, StepStarted):
            self.step = event.step
        elif isinstance(event, ToolStarted):
            self.calls = [*self.calls, self.activity][-SHOWN:]
        elif isinstance(event, ToolFinished):
            self._activations = self._activations if event.result.is_error else 0
        elif isinstance(event, MemoryActivation):
            self._activations += event.operation_type == "observation"
        elif isinstance(event, MemoryStatus):
            self._gauge = event.messages
        elif isinstance(event, StepFinished):
            self.usage = self.usage + event.usage
            if self.is_here:
                self._spend(event.usage)
        elif isinstance(event, TurnFinished):
            self._end = event
        else:
            return bool(activity)
        return True

    def show(self) -> None:
        """Emit the progress, at most four times a second; the last one is not left out."""
        if self._timer is None:
            wait = self._shown + EVERY_S - self._clock.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, wait), self._emit_progress)

    def _emit_progress(self) -> None:
        self._timer = None
        if self.outcome is None and self.is_here:
            self._shown = self._clock.monotonic()
            self.parent.emit(self.progress())

    def progress(self) -> AgentProgress:
        return AgentProgress(
            self.id,
            self.run.call_id,
            self.step,
            self.activity,
            self._gauge,
            self.usage.cost_usd,
            self.seconds,
            tuple(self.calls),
            self.state,
        )

    @property
    def in_words(self) -> str:
        """Return its activity or its end in words."""
        doing = f"step {self.step} · {self.activity}"
        return describe_state(self.state, doing if self.report is None else self.report.in_words())


def _describe_activity(event: Event) -> str:
    """Return the activity of a child since an event, "" if that is the same as before."""
    if isinstance(event, StepStarted):
        return "thinking"
    if isinstance(event, TextDelta):
        return "writing"
    if isinstance(event, ToolStarted):
        call: ToolCallPart = mask_output(unwrap_call(event.call))
        return to_one_line(f"{display_name(call.name)} {summarize_call(call)}", 60)
    return f"the model failed, attempt {event.attempt}" if isinstance(event, RetryScheduled) else ""


def _read(path: Path | None) -> bytes | None:
    try:
        return path.read_bytes() if path is not None and path.is_file() else None
    except OSError:
        return None
