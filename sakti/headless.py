"""Run one turn without a screen: text, one JSON object, or the stream of events as JSON lines."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any, TypeAlias, assert_never

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from sakti.agent import program_io
from sakti.agent.session import lifecycle
from sakti.agent.session.lifecycle import observe_on_exit
from sakti.agent.session.session import Options, Session
from sakti.core import terminal
from sakti.core.calls import summarize_call
from sakti.core.config import AgentSettings
from sakti.core.errors import BLOCKED, NOT_SAVED, NoModelError, SaktiError
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
    to_json,
)
from sakti.core.streams import print_document
from sakti.core.text import encode_json_line, format_count, sanitize_text, to_one_line
from sakti.core.types import Json, Usage, display_name, unwrap_call
from sakti.store.secrets import MaskedStream, mask_output

_Delta: TypeAlias = TextDelta | ThinkingDelta | ToolOutput

CONTINUES_AFTER = ("answered", "refused")  # statuses after which the next message is answered
EXIT = {
    "answered": 0,
    "error": 1,
    "usage": 2,
    "no_model": 5,
    "limit": 3,
    "tripwire": 3,
    "repetition": 3,
    "refused": 4,
    "length": 6,
    "interrupted": 130,
}


class Limits(Struct, frozen=True):
    """Limits of the entire run, over all its turns: US dollars, model calls, seconds. None: no limit."""

    usd: float | None = None
    steps: int | None = None
    seconds: float | None = None

    def limit_turn(self, settings: AgentSettings, usage: Usage, steps: int, seconds: float) -> AgentSettings | None:
        """Return the limits of the next turn after the usage so far, or None if a limit is reached."""
        usd = None if self.usd is None else self.usd - (usage.cost_usd or 0.0)
        calls = None if self.steps is None else self.steps - steps
        time = None if self.seconds is None else self.seconds - seconds
        if any(rest is not None and rest <= 0 for rest in (usd, calls, time)):
            return None
        return replace(
            settings,
            max_usd=_lower_limit(settings.max_usd, usd),
            max_steps=settings.max_steps if calls is None else min(settings.max_steps, calls),
            max_seconds=_lower_limit(settings.max_seconds, time),
        )

    def describe_reached(self, usage: Usage, steps: int, seconds: float) -> str:
        """Describe the limit that is reached, or return ""."""
        if self.usd is not None and (usage.cost_usd or 0.0) >= self.usd:
            return f"The limit of ${self.usd:g} for this run is reached (--max-cost)."
        if self.steps is not None and steps >= self.steps:
            return f"The limit of {format_count(self.steps, 'model call')} for this run is reached (--max-turns)."
        if self.seconds is not None and seconds >= self.seconds:
            return f"The limit of {self.seconds:g} s for this run is reached (--timeout)."
        return ""


def _lower_limit(one: float | None, other: float | None) -> float | None:
    return min((x for x in (one, other) if x is not None), default=None)


def run(
    options: Options,
    prompt: str,
    output: str,
    *,
    session: Session | None = None,
    limits: Limits | None = None,
    schema: Any = None,
    lines: int | None = None,
) -> int:
    """Answer `prompt`; returns the exit code (see `EXIT`).

    The result goes to standard output, progress to standard error. `schema`: the answer must be JSON that matches it.
    `lines` is the file descriptor of further messages, as JSON Lines, that are answered after the prompt.
    """
    asking = () if schema is None else (program_io.AsksForJson(schema),)
    session = session or Session(options, processors=asking)
    with contextlib.ExitStack() as ends:  # of the process, since closing the event loop may also block its exit
        return asyncio.run(_Run(session, output, limits or Limits(), schema, ends).play(prompt, lines))


class _Run:
    """State of a run: its events, its usage, and its progress."""

    def __init__(self, session: Session, output: str, limits: Limits, schema: Any, ends: contextlib.ExitStack) -> None:
        self._ends = ends
        self._session, self._output, self._limits, self._schema = session, output, limits, schema
        self._waits = terminal.WaitNotice(session.workspace.config.store.wait)
        self._masked = _MaskedDeltas()
        self._agent = session.workspace.config.agent
        self._began = time.monotonic()
        self._finished: list[TurnFinished] = []
        self._untrusted_files: dict[str, str] = {}  # files created by the last turn, and why they are unused
        self._saved = False
        self._usage, self._steps = Usage(), 0
        self._plan: Json | None = None  # plan that the agent proposed as the result
        self._task: asyncio.Task[Any] | None = None
        self._stopped = False
        self._closing: asyncio.Future[bool] | None = None  # both referenced to avoid garbage collection
        self._warming: asyncio.Task[None] | None = None

    async def play(self, prompt: str, lines: int | None) -> int:
        session = self._session
        session.subscribe(self._on_event)
        self._task = asyncio.current_task()
        terminal.stop_by_signals((signal.SIGINT, signal.SIGTERM), self._stop, EXIT["interrupted"], self._ends)
        status = "error"
        try:
            status = await self._answer_all(prompt, lines)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            status = self._end("interrupted", "")
        except TimeoutError:
            if self._limits.seconds is None:
                raise
            status = self._fail("limit", self._limits.describe_reached(Usage(), 0, self._limits.seconds))
        except NoModelError as e:
            status = self._fail("no_model", e.message)
        except SaktiError as e:
            nothing = e.retryable and not self._saved
            message = f"{e.message} Nothing was changed: run it again." if nothing else e.message
            failed = {"config": "usage", BLOCKED: "refused"}.get(e.code, "error")
            status = self._fail("interrupted" if self._stopped else failed, message, e.title)
        finally:
            self._task = None  # a session that is closing is not stopped again
            await self._close(EXIT[status])
        self._ends.callback(terminal.end_within(terminal.GRACE, EXIT[status]).cancel)
        return EXIT[status]

    async def _close(self, code: int) -> None:
        """Close the session; exit the process with `code` if its tasks hang."""
        limit = terminal.end_within(terminal.CLOSING_S, code)
        self._ends.callback(limit.cancel)
        self._session.hurry()
        await self._session.close()

    def _stop(self) -> None:
        """Stop the running turn; streamed text is kept."""
        self._stopped = True
        if self._session.busy:
            self._closing = asyncio.ensure_future(self._session.interrupt())
        elif self._task is not None:
            self._task.cancel()

    async def _answer_all(self, prompt: str, lines: int | None) -> str:
        session = self._session
        async with asyncio.timeout(self._limits.seconds):
            await session.start()
        self._warming = asyncio.create_task(session.workspace.models.warm())  # while the first request is prepared
        self._print_warnings()
        status = await self._answer(prompt) if prompt.strip() or lines is None else "answered"
        if lines is not None and status in CONTINUES_AFTER:
            status = await self._answer_lines(lines, status)
        if status in CONTINUES_AFTER:
            await observe_on_exit(session.current, session.interrupt, lambda text: print(text, file=sys.stderr))
        return status

    def _print_warnings(self) -> None:
        workspace = self._session.workspace
        warnings = (*workspace.options.warnings, workspace.not_saved) if self._output != "text" else ()
        for text in filter(None, (*warnings, workspace.options.project_notice)):
            print(f"sakti: {sanitize_text(text)}", file=sys.stderr)

    async def _answer_lines(self, lines: int, status: str) -> str:
        """Answer the messages from a file descriptor until one fails; return the last status."""
        async with contextlib.aclosing(program_io.iter_messages(lines)) as following:
            while status in CONTINUES_AFTER and (text := await self._next(following)) is not None:
                status = await self._answer(text)
        return status

    async def _next(self, following: AsyncGenerator[str, None]) -> str | None:
        """Wait for the next message; None at the end. Raises `TimeoutError` when the run's time is up."""
        seconds = self._limits.seconds
        remaining = None if seconds is None else max(0.0, seconds - (time.monotonic() - self._began))
        async with asyncio.timeout(remaining):
            return await anext(following, None)

    async def _answer(self, prompt: str) -> str:
        """Answer one message and print the result; with a schema, the model may repair its answer twice."""
        status = await self._turn(prompt)
        if self._schema is None or status not in CONTINUES_AFTER:
            return self._end(status, self._last.text)
        for repair in range(program_io.REPAIRS + 1):
            checked = program_io.check(self._last.text, self._schema)
            if not checked.problems:
                return self._end(status, encode_json_line(checked.value), value=checked.value)
            if repair == program_io.REPAIRS:
                why = to_one_line("; ".join(checked.problems), 300)
                return self._fail("limit", f"The answer does not match the JSON Schema after 2 repairs: {why}")
            status = await self._turn(repair=program_io.AGAIN.format(problems="\n".join(checked.problems)))
            if status not in CONTINUES_AFTER:
                break
        return self._end(status, self._last.text)

    @property
    def _last(self) -> TurnFinished:
        return self._finished[-1]

    async def _turn(self, prompt: str = "", *, repair: str = "") -> str:
        """Run one turn, for a prompt or a repair, within the remaining limits of the run; return its status."""
        session = self._session
        limits = self._limits.limit_turn(self._agent, self._usage, self._steps, time.monotonic() - self._began)
        if limits is None:
            thread = session.thread.id if session.thread else ""
            text = self._describe_limit(self._usage, self._steps)
            self._finished.append(TurnFinished(thread, "limit", "", 0, Usage(), text, "Limit reached", "run_limit"))
            print(f"sakti: {text}", file=sys.stderr)
            return "limit"
        session.workspace.config = replace(session.workspace.config, agent=limits)
        if repair:
            await session.send_program_text(program_io.REPAIR, repair, "the answer did not match the JSON Schema")
        else:
            await session.submit(prompt)
        await session.wait()
        self._untrusted_files = await lifecycle.settle_new_files(session.workspace, None)
        for sentence in self._untrusted_files.values():
            print(f"sakti: {sentence}", file=sys.stderr)
        end = self._last
        self._usage, self._steps = self._usage + end.usage, self._steps + end.steps
        if end.error_code in NOT_SAVED and not session.workspace.not_saved:
            print("sakti: The thread so far is kept; `sakti run -c` continues it.", file=sys.stderr)
        return "refused" if end.status == "answered" and session.refused_calls else end.status

    def _describe_limit(self, usage: Usage, steps: int) -> str:
        return self._limits.describe_reached(usage, steps, time.monotonic() - self._began)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, TurnFinished):
            event = self._name_limit(event)
            self._finished.append(event)
        elif isinstance(event, MessageSaved):
            self._saved = True
        elif isinstance(event, ToolFinished) and event.result.name == "present_plan":
            self._plan = event.result.details.get("plan") or self._plan
        elif isinstance(event, StoreWaiting):
            self._waits.on_wait(event.seconds)
        self._show(event)

    def _name_limit(self, event: TurnFinished) -> TurnFinished:
        """Name the run's limit that ended a turn, whose own limit was the remainder."""
        if event.status != "limit":
            return event
        text = self._describe_limit(self._usage + event.usage, self._steps + event.steps)
        return replace(event, error=text, error_title="Limit reached", error_code="run_limit") if text else event

    def _show(self, event: Event) -> None:
        if self._output == "stream-json":
            for one in self._masked.of(event):
                _print(encode_json_line(mask_output(to_json(one))))
        elif self._output == "text" or (isinstance(event, Notice) and event.severity == "error"):
            _print_progress(event)

    def _fail(self, status: str, message: str, title: str = "") -> str:
        """Print one sentence on standard error, and the result; returns `status`."""
        print(f"sakti: {sanitize_text(f'{title}: {message}' if title else message)}", file=sys.stderr)
        return self._end(status, "", error=message)

    def _name_untrusted(self) -> Json:
        return {"left_out": list(self._untrusted_files)} if self._untrusted_files else {}

    def _end(self, status: str, text: str, *, error: str | None = None, value: Any = None) -> str:
        """Print the result of a message, or of a run without messages; returns `status`."""
        result = self._describe(status, text, error) | self._name_untrusted()
        if self._plan is not None:
            result["plan"] = self._plan
            result["text"] = text = text or Session.describe_plan(self._plan)
        if self._schema is not None:
            result["structured_output"] = value
        self._print_result(result, text)
        return status

    def _describe(self, status: str, text: str, error: str | None) -> Json:
        """Describe the last turn, or a run without turns."""
        last = self._finished[-1] if self._finished else None
        usage = self._usage if last is not None else self._session.current.usage
        result: Json = {
            "thread_id": None,
            "text": text,
            "status": status,
            "steps": self._steps,
            "usage": to_builtins(usage),
            "cost_usd": usage.cost_usd,
            "error": error,
        }
        if last is None:
            return result
        thread_id = last.thread_id if self._session.workspace.saved else None
        more = {"metadata": last.metadata} if last.metadata else {}
        return {**result, "thread_id": thread_id or None, "error": error or last.error, **more}

    def _print_result(self, result: Json, text: str) -> None:
        if self._output == "json":
            _print(encode_json_line(result))
        elif self._output == "stream-json":
            _print(encode_json_line({"type": "result", **result}))
        elif text:
            _print(sanitize_text(text), is_json=self._schema is not None)


class _MaskedDeltas:
    """Masks secrets that span several text deltas; other events wait until all deltas are out."""

    def __init__(self) -> None:
        self._open: dict[tuple[type[Event], str], tuple[_Delta, MaskedStream]] = {}

    def of(self, event: Event) -> Iterator[Event]:
        if isinstance(event, TextDelta | ThinkingDelta | ToolOutput) and event.text:
            key = type(event), event.call_id if isinstance(event, ToolOutput) else ""
            _, stream = self._open.setdefault(key, (event, MaskedStream()))
            if text := stream.feed(event.text):
                yield replace(event, text=text)
            return
        for delta, stream in self._open.values():
            if text := stream.end():
                yield replace(delta, text=text)
        self._open.clear()
        yield event


def _print(line: str, *, is_json: bool = True) -> None:
    with contextlib.suppress(BrokenPipeError):
        print_document(line) if is_json else print(line)
        sys.stdout.flush()


def _print_progress(event: Event) -> None:
    """Print progress for a person on standard error."""
    match event:
        case ToolStarted(call):
            call = mask_output(unwrap_call(call))
            line = f"▸ {display_name(call.name)}  {to_one_line(summarize_call(call), 100)}"
        case ToolFinished(result) if isinstance(denied := result.details.get("denied"), str):
            line = f"  ⊘ denied{f': {to_one_line(denied, 200)}' if denied else ''}"
        case ToolFinished(result, duration):
            line = f"  {'✗' if result.is_error else '✓'} {duration / 1000:.1f}s"
            if result.is_error:
                line += f"  {to_one_line(result.content, 200)}"
        case AgentStarted() | AgentFinished():
            line = f"  {event.in_words}"
        case RetryScheduled():
            line = f"… {event.in_words}"
        case Notice(severity=severity) if severity != "information":
            line = f"! {event.in_words}"
        case TurnFinished(error=error) if error:
            line = f"sakti: {event.in_words}"
        case (
            TurnStarted() | StepStarted() | PromptRead() | TextDelta() | ThinkingDelta() | ToolCallDelta()
            | ToolOutput() | MessageSaved() | StepFinished() | StepDiscarded() | TurnFinished() | ApprovalRequested()
            | ApprovalResolved() | QueueChanged() | ThreadChanged() | AgentProgress() | ModelChanged() | TasksChanged()
            | StoreWaiting() | Notice() | MemoryStatus() | StaleLeases() | MemoryOperation() | MemoryActivation()
            | CompactionFinished() | SideQuestion() | JobsChanged() | McpServerChanged()
        ):  # fmt: skip
            return
        case _:
            assert_never(event)
    print(sanitize_text(line), file=sys.stderr, flush=True)
