"""Pursue a goal of the user: begin new turns until it is met, blocked, or a limit is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from sakti.agent.tools.approvals import Approvals
from sakti.agent.tools.background import LAST_LINES, LONGEST_LINE
from sakti.core.config import AgentSettings
from sakti.core.errors import NoModelError, SaktiError
from sakti.core.events import ApprovalAnswer, ApprovalRequested, Notice, ThreadChanged, TurnFinished
from sakti.core.lazy import lazy_pattern
from sakti.core.resources import fill_prompt
from sakti.core.text import format_count
from sakti.core.types import ContextPart, Json, MarkerPart, ModelInfo, Part, TextPart, ToolCallPart, ToolResultPart
from sakti.store import files
from sakti.store.secrets import mask_value
from sakti.store.threads import threads as thread_store

if TYPE_CHECKING:
    from sakti.agent.judge.decide import Decision
    from sakti.agent.open_thread import OpenThread
    from sakti.agent.session.turn import Turn

KEY = "goal"  # in a thread's metadata; also the kind of the marks of its turns, and the name of its facts
IDLE_AT_MOST = 2  # turns in a row without a tool call
_VALUE = r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'][^\s]*)"""
_OPTION = lazy_pattern(rf"(?:^|\s)--(until|max-turns|max-cost)(?:\s+|=){_VALUE}\s*$")
_STRAY = lazy_pattern(rf"^--([a-z][a-z-]*)|(?:^|\s)--([a-z][a-z-]*)(?:(?:\s+|=){_VALUE})?\s*$")
_UNCLOSED = lazy_pattern(r"""(?:^|\s)--(until|max-turns|max-cost)(?:\s+|=)(?:"[^"]*|'[^']*)$""")
_QUOTED = lazy_pattern(r"""\s*(?:"([^"]*)"|'([^']*)')\s*""")
_MARK = lazy_pattern(r"[*_`]*GOAL (DONE|BLOCKED):[*_`]*\s*(.*?)[*_`]*")


class Goal(Struct, frozen=True):
    """Goal of a thread as it is stored; `state` is its progress or its end.

    `until` is the command whose exit code 0 ends it. `turns` were begun for it, `usd` is spent, `idle` counts turns in
    a row without a tool call. `index` is that of the message that set it, `owner` the window that pursues it.
    """

    text: str
    until: str = ""
    max_turns: int = 20
    max_usd: float = 5.0
    state: Literal["active", "paused", "met", "blocked", "stopped", "limit"] = "active"
    reason: str = ""
    turns: int = 0
    usd: float = 0.0
    idle: int = 0
    index: int = -1
    owner: str = ""

    @property
    def is_open(self) -> bool:
        return self.state in ("active", "paused")

    @property
    def spent(self) -> str:
        """Return turns and dollars, as the status line shows them."""
        return f"{self.turns}/{self.max_turns} · ${self.usd:.2f}"


# --- decisions ------------------------------------------------------------------------------------------------


def parse_goal(line: str, max_turns: int, max_usd: float) -> Goal:
    """Read a goal with its options, which end the line. Raises `ValueError` with the reason."""
    options: dict[str, str] = {}
    while (match := _OPTION.search(line)) and match[1] not in options:
        value = match[2]
        if value[0] in "\"'":
            value = value[1:-1].replace('\\"', '"') if value[0] == '"' else value[1:-1]
        options[match[1]] = value.strip()
        line = line[: match.start()]
    text = _read_text(line, options)
    turns = _read_limit("--max-turns", options.get("max-turns"), max_turns)
    usd = _read_limit("--max-cost", options.get("max-cost", "").removeprefix("$") or None, max_usd)
    if turns != int(turns):
        raise ValueError("--max-turns takes a whole number.")
    if not text:
        raise ValueError("Write the goal after /goal.")
    return Goal(text, options.get("until", ""), int(turns), usd)


def _read_text(line: str, options: Container[str]) -> str:
    """Return the words of a goal; quotes around all of them protect words that look like options."""
    if (quoted := _QUOTED.fullmatch(line)) is not None:
        return (quoted[1] or quoted[2] or "").strip()
    if (unclosed := _UNCLOSED.search(line)) is not None:
        raise ValueError(f"The quote after --{unclosed[1]} is not closed.")
    stray = _STRAY.search(line.strip())
    if stray is not None and (name := stray[1] or stray[2]) not in options:
        where = "Write them after the goal, each with a value; quote the goal if this belongs to it."
        raise ValueError(f"--{name} cannot be read: /goal takes --until, --max-turns and --max-cost. {where}")
    return line.strip()


def _read_limit(name: str, text: str | None, default: float) -> float:
    try:
        value = float(text) if text is not None else default
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} takes a number above 0.")
    return value


def judge_turn(goal: Goal, end: TurnFinished, *, has_calls: bool, was_refused: bool) -> Goal:
    """Count a turn, and end or pause the goal depending on its result."""
    goal = replace(goal, usd=goal.usd + (end.usage.cost_usd or 0.0), idle=0 if has_calls else goal.idle + 1)
    if end.status == "limit" and goal.usd >= goal.max_usd:
        return _stop_at_limit(goal)
    if end.status != "answered":
        return replace(goal, state="paused", reason=end.error or "the turn was stopped")
    if was_refused:
        return replace(goal, state="paused", reason="a call was refused")
    lines = end.text.rstrip().rsplit("\n", 1)
    if not goal.until and (mark := _MARK.fullmatch(lines[-1].strip())):
        return replace(goal, state="met" if mark[1] == "DONE" else "blocked", reason=mark[2])
    return goal


def judge_check(goal: Goal, check: ToolResultPart | None) -> Goal:
    """End or pause the goal for the outcome of its check, else for its limits."""
    if check is not None and "denied" in check.details:
        return replace(goal, state="paused", reason="the check was refused")
    if check is not None and check.details.get("exit_code") == 0 and not check.is_error:
        return replace(goal, state="met", reason="the check passes")
    if goal.turns >= goal.max_turns or goal.usd >= goal.max_usd:
        return _stop_at_limit(goal)
    if goal.idle >= IDLE_AT_MOST:
        return replace(goal, state="paused", reason=f"{IDLE_AT_MOST} consecutive turns called no tool")
    return goal


def _stop_at_limit(goal: Goal) -> Goal:
    limit = f"${goal.max_usd:.2f}" if goal.usd >= goal.max_usd else format_count(goal.max_turns, "turn")
    return replace(goal, state="limit", reason=f"the limit of {limit} is reached")


def describe(goal: Goal) -> list[str]:
    """Return a goal in lines: its text, check, turns, cost and state."""
    check = [f"until: {goal.until}"] if goal.until else []
    limits = f"turns {goal.turns} of {goal.max_turns}, ${goal.usd:.2f} of ${goal.max_usd:.2f}"
    return [*goal.text.split("\n"), *check, limits, f"{goal.state}: {goal.reason}" if goal.reason else goal.state]


def _describe_end(goal: Goal) -> str:
    if goal.until:
        return fill_prompt("goal#end-checked", until=goal.until)
    return fill_prompt("goal#end-stated")


def make_parts(goal: Goal, check: ToolResultPart | None) -> tuple[Part, ...]:
    """Return the message that begins the goal's next turn; the first one is in the user's words."""
    if goal.turns == 1:
        return TextPart(goal.text), ContextPart({KEY: fill_prompt("goal#begin", end=_describe_end(goal))})
    why = _describe_end(goal)
    if check is not None:
        code = check.details.get("exit_code")
        ended = f"exit code {code}" if code is not None and "timeout" not in check.details else "no exit code"
        lines = "\n".join(line[:LONGEST_LINE] for line in check.content.rstrip().split("\n")[-LAST_LINES:])
        why = fill_prompt("goal#checked", until=goal.until, exit=ended, lines=lines)
    text = fill_prompt("goal#go-on", turn=str(goal.turns), turns=str(goal.max_turns), why=why)
    return ContextPart({KEY: text}), MarkerPart(KEY, f"turn {goal.turns} of {goal.max_turns}")


# --- the goal of the open thread ------------------------------------------------------------------------------


class _CheckApprovals(Approvals):
    """Asks about the check of a goal once; the same answer applies to its later runs."""

    def __init__(self, approvals: Approvals) -> None:
        super().__init__(lambda _event: None, interactive=approvals.interactive)
        self._approvals = approvals
        self._answer: ApprovalAnswer | None = None

    async def ask(
        self, request: ApprovalRequested, decision: Decision, decide: Callable[[], Decision]
    ) -> tuple[ApprovalAnswer, Decision]:
        if self._answer is not None:
            return self._answer, decision
        answer, decision = await self._approvals.ask(request, decision, decide)
        if answer.approved:
            self._answer = replace(answer, grant="once", is_judged=True)
        return answer, decision


class Goals:
    """The goal of the open thread. It is pursued only in the process that began or resumed it.

    `begin` starts a turn with a message, `send_queued` one with the messages that wait in the inbox.
    """

    def __init__(
        self,
        thread: OpenThread,
        begin: Callable[[tuple[Part, ...]], Awaitable[None]],
        send_queued: Callable[[], Awaitable[None]],
    ) -> None:
        self._open, self._begin, self._send_queued = thread, begin, send_queued
        self._pursued = ""  # the thread whose goal is pursued here
        self._approvals: _CheckApprovals | None = None
        self._refused = 0  # calls that were refused before the turn
        self._task: asyncio.Task[None] | None = None

    @property
    def current(self) -> Goal | None:
        """Return the thread's goal; one that a process left active is paused."""
        stored: Any = self._open.thread.metadata.get(KEY) if self._open.thread is not None else None
        if not stored:
            return None
        goal = convert(stored, Goal)
        if goal.state == "active" and not (self._is_pursued(goal) or self._runs_elsewhere(goal)):
            return replace(goal, state="paused", reason="the thread was closed")
        return goal

    def _is_pursued(self, goal: Goal | None) -> bool:
        """Return whether a goal goes on, in this window."""
        return goal is not None and goal.state == "active" and self._pursued == self._open.id

    def _runs_elsewhere(self, goal: Goal | None) -> bool:
        """Return whether another window that is open pursues a goal."""
        if goal is None or goal.state != "active" or self._is_pursued(goal):
            return False
        return goal.owner not in ("", self._open.workspace.owner) and files.is_owner_running(goal.owner)

    def _require_here(self) -> Goal | None:
        """Return the thread's goal. Raises `SaktiError` if another window pursues it."""
        goal = self.current
        if self._runs_elsewhere(goal):
            raise SaktiError("Another window pursues this goal; pause or stop it there.", title="Goal")
        return goal

    @property
    def short(self) -> str:
        """Return the goal for the status line; "" if none is open."""
        goal = self.current
        if goal is None or not goal.is_open:
            return ""
        return f"goal {goal.spent}{' paused' if goal.state == 'paused' else ''}"

    def limit(self, settings: AgentSettings, model: ModelInfo) -> AgentSettings:
        """Return the settings of a turn limited to the goal's remaining cost, if the model's price is known."""
        goal = self.current
        if goal is None or not self._is_pursued(goal) or model.input_price is None:
            return settings
        rest = max(goal.max_usd - goal.usd, 0.0)
        return replace(settings, max_usd=min(rest, settings.max_usd or rest))

    async def start(self, goal: Goal) -> None:
        """Set a goal, in place of an earlier one, and begin. Raises `SaktiError`."""
        self._require_here()
        await self._pursue(replace(goal, index=self._open.last_index + 1))

    async def resume(self) -> None:
        """Go on with the goal. Raises `SaktiError` if it is not paused."""
        goal = self._require_here()
        if goal is None or goal.state != "paused":
            raise SaktiError("No goal is paused in this thread.", title="Goal")
        await self._pursue(replace(goal, state="active", reason="", idle=0))

    async def end(self, state: Literal["paused", "stopped"], reason: str) -> bool:
        """Pause or stop the goal; a running turn goes on to its end. False if no goal goes on.

        Raises `SaktiError` if another window pursues it.
        """
        goal = self._require_here()
        if goal is None or not goal.is_open or goal.state == state:
            return False
        await self._save(replace(goal, state=state, reason=reason))
        return True

    async def pause_after_failure(self, reason: str) -> None:
        """Pause the goal if it is pursued: its turn could not begin, or broke."""
        goal = self.current
        if goal is not None and self._is_pursued(goal):
            await self._settle(replace(goal, state="paused", reason=reason))

    async def follow(self, turn: Turn, end: TurnFinished) -> None:
        """Process the end of a turn; run the check and begin the next turn unless another one has begun."""
        goal = self.current
        if goal is None or goal.state != "active" or self._pursued != turn.thread_id:
            return
        refused = turn.toolbox.approvals.refused
        has_calls = any(step.message.tool_calls for step in turn.steps)
        goal = judge_turn(goal, end, has_calls=has_calls, was_refused=refused > self._refused)
        self._refused = refused
        await self._settle(goal)
        if goal.state == "active" and not self._open.busy:
            self._open.running.task = self._task = asyncio.create_task(self._go_on())

    def _warn_without_price(self, goal: Goal) -> None:
        """Emit a notice that the limit in dollars cannot be enforced if the model's price is unknown."""
        info = self._open.workspace.models.info
        if info is not None and info.input_price is None:
            turns = format_count(goal.max_turns, "turn")
            limit = f"the limit of ${goal.max_usd:.2f} cannot be enforced; that of {turns} is"
            text = f"The price of {info.full_name} is not known, so {limit}."
            self._open.emit(Notice("warning", "Goal", text))

    async def _pursue(self, goal: Goal) -> None:
        if self._open.workspace.models.provider is None:
            raise NoModelError("Name a model with /model first.")
        self._warn_without_price(goal)
        self._pursued = self._open.id
        self._approvals = _CheckApprovals(self._open.toolbox.approvals)
        await self._save(replace(goal, owner=self._open.workspace.owner))
        self._open.running.task = self._task = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        """Run the check, and begin the next turn if the goal goes on."""
        begins = False
        try:
            before = self.current
            check = await self._check(before) if before is not None and before.until else None
            goal = self.current  # it may be paused by now
            if goal is not None and goal.state == "active":
                goal = judge_check(goal, check)
                begins = goal.state == "active"
                goal = replace(goal, turns=goal.turns + 1) if begins else goal
                await self._settle(goal)
                self._refused = self._open.toolbox.approvals.refused
                if begins:
                    await self._begin(make_parts(goal, check))
        except asyncio.CancelledError:
            await self.pause_after_failure("the check was stopped")
        except SaktiError as e:
            begins = False
            await self.pause_after_failure(e.message)
        if not begins:
            self._open.running.task = None
            await self._send_queued()

    async def _check(self, goal: Goal) -> ToolResultPart:
        """Run the check as a command of the model's: judged, in the sandbox, asked about once."""
        thread = self._open
        await thread.load_rules()
        assert self._approvals is not None
        toolbox = replace(thread.toolbox, approvals=self._approvals)
        call = ToolCallPart(thread.workspace.store.ids.new(), "bash", {"command": goal.until})
        return await toolbox.run_single(call, thread.id, lambda _event: None)

    async def _settle(self, goal: Goal) -> None:
        """Store the goal, and emit a notice of its end or the reason of its pause."""
        await self._save(goal)
        if goal.state == "active":
            return
        words = {"limit": "stopped", "blocked": "blocked"}.get(goal.state, goal.state)
        how = "/goal resume continues it." if goal.state == "paused" else ""
        text = f"The goal is {words} ({goal.spent}): {goal.reason.rstrip('.')}. {how}".strip()
        self._open.emit(Notice("information" if goal.state == "met" else "warning", "Goal", text))

    async def _save(self, goal: Goal) -> None:
        if goal.state != "active":
            self._pursued = ""
        block: Json | None = None
        if goal.is_open:
            block = {"text": f"{goal.text}\n\n{_describe_end(goal)}", "index": goal.index}
        stored = mask_value({KEY: to_builtins(goal), thread_store.PINNED_GOAL: block})
        await self._open.add_metadata(stored)
        assert self._open.thread is not None
        self._open.emit(ThreadChanged(self._open.thread))
