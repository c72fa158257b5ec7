"""Hooks before and after each tool call, the only extension point of running tools; why calls fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.judge.decide import Decision
from sakti.agent.tools.base import Tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.files import read_file
from sakti.core.errors import SaktiError, ToolError
from sakti.core.events import Event, ToolStarted
from sakti.core.types import PREFIX, Json, ToolCallPart, display_name
from sakti.store.secrets import find_all_marks, find_marks

log = logging.getLogger(__name__)


class CallAnnouncer:
    """Sink for the events of one call; its start comes first, or after an immediate question."""

    def __init__(self, call: ToolCallPart, emit: Callable[[Event], None]) -> None:
        self._emit, self._start = emit, ToolStarted(call)
        self._begun = False

    def begin_soon(self) -> None:
        """Emit the start once the call waits for something, unless another event comes first."""
        asyncio.get_running_loop().call_soon(self.begin)

    def begin(self) -> None:
        """Emit the start, once."""
        if not self._begun:
            self._begun = True
            self._emit(self._start)

    def change(self, call: ToolCallPart) -> None:
        """Announce a call that a hook or the user changed; emit its start again if it has begun."""
        if call.arguments != self._start.call.arguments:
            self._start = ToolStarted(call)
            if self._begun:
                self._emit(self._start)

    def __call__(self, event: Event) -> None:
        self.begin()
        self._emit(event)


class DeniedCall(ToolError):
    """A call that must not run. `why` is a short reason for people, or ""."""

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message, code="refused")
        self.why = why


class GuardDecision(Struct, frozen=True):
    """A call as a guard leaves it.

    `verdict` is the wish of the guard: "allow" may skip a question that a user's rule could skip, "ask" asks one, with
    `reason`; "" leaves it to permissions. `note` goes to the model with the result.
    """

    call: ToolCallPart
    verdict: Literal["", "allow", "ask"] = ""
    reason: str = ""
    note: str = ""


class Guard(Protocol):
    """Decides on calls in addition to permissions: the hooks of user and project."""

    async def before(self, call: ToolCallPart) -> GuardDecision:
        """Return the verdict on a call whose arguments are valid. Raises `DeniedCall`."""
        ...

    async def ask_hooks(self, call: ToolCallPart) -> GuardDecision:
        """Return the verdict on a call that the user would be asked about. Raises `DeniedCall`.

        Without a verdict the user is asked.
        """
        ...

    async def after(self, call: ToolCallPart, outcome: Outcome, duration_ms: int) -> Outcome:
        """Return the outcome of a completed call for the model."""
        ...

    def stop_reason(self) -> str | None:
        """Return the reason to end the turn now, once; None if it continues."""
        ...


class CallHook(Protocol):
    """Takes part in every tool call of a session."""

    async def before(self, call: ToolCallPart) -> ToolCallPart:
        """Return the call to run; permissions judge changed arguments like those of the model.

        Raises `ToolError` to refuse it; the model reads the message.
        """
        ...

    async def after(self, call: ToolCallPart, outcome: Outcome) -> Outcome:
        """Return the outcome for the model, also of a failed call; it is masked and cut afterwards."""
        ...


async def run_before(hooks: Sequence[CallHook], call: ToolCallPart) -> ToolCallPart:
    """Return the call as all hooks leave it, in order."""
    for hook in hooks:
        call = await hook.before(call)
    return call


async def run_after(hooks: Sequence[CallHook], call: ToolCallPart, outcome: Outcome) -> Outcome:
    """Return the outcome as all hooks leave it, the last hook first."""
    for hook in reversed(hooks):
        outcome = await hook.after(call, outcome)
    return outcome


def describe_failure(call: ToolCallPart, error: Exception) -> Outcome:
    """Describe for the model why a call failed."""
    if isinstance(error, SaktiError):
        return Outcome(error.message, is_error=True)
    if isinstance(error, OSError):
        return Outcome(f"{call.name} failed: {error.strerror or error}.", is_error=True)
    log.error("tool %s failed", call.name, exc_info=error)
    return Outcome(f"{call.name} failed: {type(error).__name__}: {error}", is_error=True)


def add_notes(outcome: Outcome, decision: Decision, lost: Sequence[str]) -> Outcome:
    """Add the notes of its approval to a result, and the files that /undo cannot restore."""
    notes = [decision.note] if decision.note and not decision.outside else []
    if lost:
        notes.append(f"removed or changed, and /undo cannot restore it: {', '.join(lost)}")
    return replace(outcome, content="\n".join([outcome.content, *(f"[{n}]" for n in notes)]))


def explain_denial(call: ToolCallPart, decision: Decision, note: str, *, interactive: bool) -> DeniedCall:
    """Return the error of a call that was not approved; `note` is that of the user or the policy."""
    if not interactive:
        why = explain_change(call, decision) or note
        return DeniedCall(f"Denied: {why}.", why)
    return DeniedCall(f"The user denied this call.{f' They say: {note}' if note else ''}", note)


def explain_change(call: ToolCallPart, decision: Decision) -> str:
    """Return why a changed tool of a server is not called without a terminal; "" for other calls."""
    if not (decision.diff and call.name.startswith(PREFIX)):
        return ""
    changed = f"the description or schema of {display_name(call.name)} changed since it was approved"
    return f"{changed}; call it in a chat, which shows the difference, and allow it there"


REASON = "{marks} stands for a masked secret, which is not inserted"


def ask_about_marks(run: ToolContext, tool: Tool, arguments: Json, decision: Decision) -> Decision:
    """Return the decision; require a question in every mode if a mark would be used literally."""
    if decision.verdict != "allow" or not (marks := find_unresolved(run, tool, arguments)):
        return decision
    return ask_anyway(tool, arguments, decision, REASON.format(marks=", ".join(marks)))


def ask_anyway(tool: Tool, arguments: Json, decision: Decision, reason: str) -> Decision:
    """Turn a decision that allows a call into a question that no rule answers."""
    target = decision.target or ", ".join(tool.list_paths(arguments)) or str(arguments.get("command", tool.name))
    return replace(decision, verdict="ask", reason=reason, target=target, rules=())


def find_unresolved(run: ToolContext, tool: Tool, arguments: Json) -> tuple[str, ...]:
    """Return the marks in a call that writes, runs or reaches the web or a server.

    Marks whose value is in the changed file are left out.
    """
    marks = find_marks(arguments) if tool.effect in ("write", "run", "fetch", "search", "remote") else ()
    if not marks or tool.effect != "write":
        return marks
    held: set[str] = set()
    for name in tool.list_paths(arguments):
        try:
            held |= find_all_marks(read_file(run.resolve(name))[1].text)
        except (OSError, ToolError):  # no such file yet, or none with a text
            continue
    return tuple(mark for mark in marks if mark not in held)
