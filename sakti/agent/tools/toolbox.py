"""Run the model's calls: validation, approval, parallel reads, bounded results, repetition guard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field, structs

from sakti.agent.judge.decide import Decision, judge
from sakti.agent.judge.execution import runs_later
from sakti.agent.judge.policy import ModeTools, Rules
from sakti.agent.judge.workspace_view import WorkspaceView
from sakti.agent.limits import TOLD_AFTER, Repetition
from sakti.agent.tools import arguments as forms
from sakti.agent.tools import call_hooks, tool_search
from sakti.agent.tools.approvals import PRESENT_PLAN, Approvals
from sakti.agent.tools.base import Tool
from sakti.agent.tools.call_hooks import CallAnnouncer, DeniedCall, GuardDecision
from sakti.agent.tools.context import Outcome, ToolContext, ToolState
from sakti.agent.tools.patch import knows_patches
from sakti.agent.tools.read import read
from sakti.core import types as core_types
from sakti.core.config import SESSION_MODES, SessionMode
from sakti.core.errors import SaktiError, ToolError
from sakti.core.events import ApprovalRequested, Event, Grant, ToolFinished, ToolOutput
from sakti.core.text import clean_surrogates
from sakti.core.tokens import Counter, count_tools
from sakti.core.types import ImagePart, Json, Message, ModelInfo, ToolCallPart, ToolResultPart, ToolSpec
from sakti.store.secrets import mask_secrets, mask_value

MAX_PARALLEL = 8
# Tools that a small model gets if its window has room for them.
MEMORY_TOOLS = (
    *("ask_user", "call_tool", "load_tool", "memory-search", "present_plan", "search_tools", "skill", "task-mutate"),
    *("task-query", "wait", "webfetch", "websearch"),
)
PLAN_ENDS = "Plan mode changes nothing. Call present_plan when the plan is ready."
MAX_CALLS = 64  # of one answer; the rest is refused, not run


class Toolbox(Struct):
    """Tools of an open thread and their state.

    `rules` are those of the settings; `granted` allow for the thread that is open, `saved` for the workspace.
    `may_edit`: the mode is `edits` for this thread, until it is changed. `mode_tools`: those of the agent mode. `model`
    names the model that calls; `images` are those of results, by call, until they are saved with them. `parent` is that
    of a child thread, whose rules, grants and mode apply, `mode` being the widest; `agent` names its mode or agent,
    `asker` also its goal, for questions; `only` are the rules for calls of a tool that is only partly its own. `later`
    are the calls of an answer after those that run now.
    """

    tools: dict[str, Tool]
    state: ToolState
    approvals: Approvals
    mode: SessionMode = "ask"
    rules: Rules = field(default_factory=Rules)
    save_rule: Callable[[str], None] = lambda _rule: None
    model: Callable[[], str] = lambda: ""
    granted: tuple[str, ...] = ()
    may_edit: bool = False
    saved: tuple[str, ...] = ()
    hooks: tuple[call_hooks.CallHook, ...] = ()
    searched: frozenset[str] = frozenset()  # our own tools that are found by search and run by `call_tool`
    remote: Callable[[], Mapping[str, Tool]] = dict[str, Tool]  # tools of servers, found by search
    explain_missing: Callable[[str], str] = lambda _name: ""  # why a server's tool cannot be called now
    guard: call_hooks.Guard | None = None
    removed: frozenset[str] = frozenset()  # tools that this step's processors took out: a call of one is refused
    mode_tools: ModeTools = ModeTools()
    images: dict[str, tuple[ImagePart, ...]] = field(default_factory=dict[str, tuple[ImagePart, ...]])
    parent: Toolbox | None = None
    agent: str = ""
    asker: str = ""
    only: tuple[dict[str, Rules], ...] = ()  # of a child: by tool, what all of its rules must allow
    withheld: frozenset[str] = frozenset()  # tools of sakti that the settings take away
    sent: Callable[[ModelInfo], tuple[ToolSpec, ...]] = (
        lambda _model: ()
    )  # tools of earlier requests, which later ones repeat
    later: tuple[ToolCallPart, ...] = ()
    _specs: dict[tuple[bool, bool, bool], tuple[ToolSpec, ...]] = field(
        default_factory=dict[tuple[bool, bool, bool], tuple[ToolSpec, ...]]
    )
    _counted: tuple[tuple[ToolSpec, ...], int] = ((), 0)

    def specs(self, model: ModelInfo | None = None) -> tuple[ToolSpec, ...]:
        """Return the tools in a fixed order, so that the request's prefix is stable.

        A model with a small window gets the most useful ones, one that was trained to write patches `apply_patch`
        instead of `edit`.
        """
        if model is not None and (sent := self.sent(model)):
            return sent
        small = model is not None and model.brief
        memory = model is None or model.has_memory_tools
        patches = not small and knows_patches(self.model())
        if (small, memory, patches) not in self._specs:
            left_out = "edit" if patches else "apply_patch"
            names = self._list_names(small=small, memory=memory, left_out=left_out)
            self._specs[small, memory, patches] = self._describe(names, small=small)
        return self._specs[small, memory, patches]

    def _describe(self, names: Iterable[str], *, small: bool) -> tuple[ToolSpec, ...]:
        tools = [self.tools[name] for name in names]
        return tuple(t.short_spec() if small else t.spec() for t in tools)

    def _list_names(self, *, small: bool, memory: bool, left_out: str) -> list[str]:
        """Return the names of the tools for a model, in order."""
        if not small:
            return sorted(self.tools.keys() - {left_out} - self.searched)
        ranked = sorted((t.small, t.name) for t in self.tools.values() if t.small is not None)
        more = [name for name in MEMORY_TOOLS if memory and name in self.tools.keys() - self.searched]
        return [*(name for _, name in ranked), *more]

    def forget_specs(self) -> None:
        """Describe the tools again: they have changed."""
        self._specs = {}

    def count(self, counter: Counter, tools: tuple[ToolSpec, ...]) -> int:
        """Return the tokens of `tools`, counted once as long as they stay the same."""
        if self._counted[0] is not tools:
            self._counted = tools, count_tools(counter, tools)
        return self._counted[1]

    def offer_search(
        self, always: Collection[str] | None, top_k: Callable[[], int], notes: tool_search.Notes = tool_search.no_notes
    ) -> None:
        """Offer the tools of servers by search, and our own except for `always` (None: servers' tools only)."""
        self.searched = frozenset(self.tools.keys() - set(always)) if always is not None else frozenset()
        self.tools |= {
            t.name: t
            for t in tool_search.make_search_tools(
                self.list_deferred, top_k, notes, lambda name: self.explain_missing(name)
            )
        }

    def load_always(self, tools: Sequence[Tool]) -> None:
        """Add tools of servers to those of every request, before the first one; a child gets only its own."""
        added = {t.name: t for t in tools if self.parent is None or t.name in self.remote()}
        if added:
            self.tools |= added
            self.forget_specs()

    def find(self, name: str) -> Tool | None:
        """Return our own tool or a server's tool of this name, or None."""
        return self.remote().get(name) or self.tools.get(name)

    def list_deferred(self) -> dict[str, ToolSpec]:
        """Return the tools that are found by search, by name."""
        local = {name: self.tools[name] for name in sorted(self.searched & self.tools.keys())}
        remote = {name: t for name, t in self.remote().items() if name not in self.tools}
        return {name: t.spec() for name, t in (local | remote).items()}

    def list_touched(self, call: ToolCallPart) -> list[str]:
        """Return the paths in a call, relative to the workspace; raises nothing."""
        call = self._translate(call, self.state.cwd)
        tool = self.find(call.name)
        paths = tool.list_paths(call.arguments or {}) if tool is not None else ()
        return [self.state.show(self.state.resolve(p)) for p in paths if p]

    async def run(
        self,
        message: Message,
        calls: Sequence[ToolCallPart],
        emit: Callable[[Event], None],
        repetition: Repetition,
    ) -> list[ToolResultPart]:
        """Run all calls of one answer: neighbouring reads in parallel, everything else in order.

        Returns one result for every call, in order. If cancelled, each call that ended has emitted its result.
        """
        results: list[ToolResultPart] = []
        batches = _group_calls(self.find, [self._translate(c, self.state.cwd) for c in calls])
        for number, batch in enumerate(batches):
            self.later = tuple(c for each in batches[number + 1 :] for c in each)
            tasks = [
                asyncio.create_task(
                    self._run_one(message, c, CallAnnouncer(c, emit), repetition.see(c), over=number > MAX_CALLS)
                )
                for c in batch
            ]
            try:
                results += await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
        return results

    async def run_single(self, call: ToolCallPart, thread_id: str, emit: Callable[[Event], None]) -> ToolResultPart:
        """Run one call that no model made; permissions apply as for a model's call."""
        message = Message("", thread_id, "", "assistant", (call,), self.state.clock.now())
        announced = CallAnnouncer(call, emit)
        announced.begin()
        return await self._run_one(message, call, announced, 0, over=False)

    async def runs_freely(self, call: ToolCallPart, thread_id: str) -> bool:
        """Return whether a call would run now without a question."""
        return (decision := await self._foresee(call, thread_id)) is not None and decision.verdict == "allow"

    async def _name_questions(self, calls: Iterable[ToolCallPart], thread_id: str) -> AsyncIterator[str]:
        """Name the calls that will ask, with their targets."""
        for call in calls:
            if (decision := await self._foresee(call, thread_id)) is not None and decision.verdict == "ask":
                yield f"{core_types.display_name(call.name)}  {decision.target}"

    async def _foresee(self, call: ToolCallPart, thread_id: str) -> Decision | None:
        """Judge a call by the present permissions, without asking; None if it cannot run."""
        tool = self.find(call.name)
        if tool is None or call.arguments is None:
            return None
        run = self.state.make_context(call.id, thread_id, "")
        with contextlib.suppress(SaktiError):  # running it reports the error
            tool.check(call.arguments, run.cwd)
            decision, _ = await self._judge(run, tool, call.arguments, GuardDecision(call))
            return decision
        return None

    async def may_read(self, path: str, thread_id: str) -> bool:
        """Return whether a file may be read now without a question."""
        call = ToolCallPart("", "read", {"path": path})
        run = self.state.make_context("", thread_id, "")
        decision, _ = await self._judge(run, read, {"path": path}, GuardDecision(call))
        return decision.verdict == "allow"

    async def _run_one(
        self, message: Message, call: ToolCallPart, emit: CallAnnouncer, repeated: int, *, over: bool
    ) -> ToolResultPart:
        clock = self.state.clock
        emit.begin_soon()
        outcome, started = await self._run_with_hooks(message, call, emit, over=over)
        outcome = self.state.limit_output(outcome, call.id)
        content = outcome.content
        if repeated >= TOLD_AFTER:
            content += f"\n[The same call was made {repeated} times in a row. Do something else.]"
        if outcome.images:
            self.images[call.id] = outcome.images
        duration = round((clock.monotonic() - started) * 1000)
        details = {k: clean_surrogates(v) if isinstance(v, str) else v for k, v in outcome.details.items()}
        details = mask_value(details)
        result = ToolResultPart(call.id, call.name, content, outcome.is_error, {**details, "duration_ms": duration})
        emit(ToolFinished(result, duration))
        return result

    async def _run_with_hooks(
        self, message: Message, call: ToolCallPart, emit: CallAnnouncer, *, over: bool
    ) -> tuple[Outcome, float]:
        """Run a call with its hooks; return the outcome and the time when it began to run."""
        clock = self.state.clock
        started = clock.monotonic()
        judged, ran = GuardDecision(call), False
        run = self.state.make_context(
            call.id, message.thread_id, message.id, lambda text: emit(ToolOutput(call.id, mask_secrets(text)))
        )
        run.show_progress = lambda text: emit(ToolOutput(call.id, "", mask_secrets(text)))
        try:
            if over:
                raise ToolError(f"More than {MAX_CALLS} groups of calls in one answer; call again with fewer.")
            call = await call_hooks.run_before(self.hooks, call)
            judged = await self._run_hooks(run, call)
            call = judged.call
            emit.change(call)
            tool, arguments, decision = await self._admit(run, judged)
            run.is_planning = self._choose_mode(tool) == "plan"
            run.read_only = run.is_planning or decision.only_reads
            run.is_alone, run.hosts = decision.is_alone, decision.redirect_hosts
            call = structs.replace(call, arguments=arguments)
            emit.change(call)
            started, ran = clock.monotonic(), True  # without the time that the user took to answer
            async with self.state.recorder.record_call(*_describe_for_recorder(tool, arguments), run.place()) as record:
                earlier = self.state.background.keys() | ()
                outcome = await tool(run, arguments)
                record.jobs += [job for number, job in self.state.background.items() if number not in earlier]
            outcome = call_hooks.add_notes(outcome, decision, record.lost)
            if tool.effect == "write" and not outcome.is_error:
                self._note_changes(run, tool, arguments, outcome)
        except DeniedCall as e:
            started = clock.monotonic()
            outcome = Outcome(e.message, is_error=True, details={"denied": e.why})
        except Exception as e:  # the worker's root: the model sees the error, and the chat continues
            outcome = call_hooks.describe_failure(call, e)
        return await self._run_hooks_after(call, outcome, judged.note, started if ran else None), started

    async def _run_hooks_after(self, call: ToolCallPart, outcome: Outcome, note: str, started: float | None) -> Outcome:
        """Return an outcome after its hooks; `started` is when the tool began, None if it did not run."""
        try:
            if note:
                outcome = structs.replace(outcome, content=f"{outcome.content}\n\n{note}")
            if started is not None and self.guard is not None:
                took = round((self.state.clock.monotonic() - started) * 1000)
                outcome = await self.guard.after(call, outcome, took)
            return await call_hooks.run_after(self.hooks, call, outcome)
        except Exception as e:  # a failed hook must not reveal text that it should hide
            return call_hooks.describe_failure(call, e)

    def _note_changes(self, run: ToolContext, tool: Tool, arguments: Json, outcome: Outcome) -> None:
        """Remember changed files that run later, with diffs, until a command that runs them is approved."""
        place = run.place()
        for path in map(place.resolve, tool.list_paths(arguments)):
            if runs_later(path, place):
                before = self.state.changed.get(path, "")
                self.state.changed[path] = f"{before}\n{outcome.details.get('diff', '')}".strip("\n")

    def _translate(self, call: ToolCallPart, cwd: Path) -> ToolCallPart:
        """Translate `call` to our tool and argument names, if its meaning is clear."""
        if call.name == core_types.CALL and call.arguments is not None:
            name, inner = call.arguments.get("name"), call.arguments.get("arguments")
            if isinstance(name, str) and isinstance(inner, dict) and (real := self._find_deferred(name)):
                call = structs.replace(call, name=real, arguments=inner)
        arguments = call.arguments if call.arguments is not None else forms.parse_leniently(call.raw)
        name = call.name if self.find(call.name) is not None else forms.translate_name(call.name)
        if arguments is not None:
            with contextlib.suppress(SaktiError):  # errors are reported when it is run
                name, arguments = forms.translate_call(call.name, arguments, cwd)
        return structs.replace(call, name=name if self.find(name) else call.name, arguments=arguments)

    def _find_deferred(self, name: str) -> str:
        """Return the full name of the only deferred tool whose name is, or ends in, `name`; else ""."""
        names = [*self.searched, *self.remote()]
        ending = [n for n in names if n.endswith(f"__{name}")]
        return name if name in names else ending[0] if len(ending) == 1 else ""

    async def _run_hooks(self, run: ToolContext, call: ToolCallPart) -> GuardDecision:
        """Return a call after the guard's changes, if it could run. Raises `DeniedCall`."""
        call = self._translate(call, run.cwd)
        tool = self.find(call.name)
        if self.guard is None or tool is None or call.arguments is None or call.name in self.removed:
            return GuardDecision(call)
        try:
            tool.check(call.arguments, run.cwd)
        except ToolError:
            return GuardDecision(call)  # running it reports the error
        judged = await self.guard.before(call)
        return structs.replace(judged, call=self._translate(judged.call, run.cwd))

    async def _admit(self, run: ToolContext, judged: GuardDecision) -> tuple[Tool, Json, Decision]:
        """Return the tool, the arguments to run it with, and the decision.

        Raises `ToolError` if they are wrong, `DeniedCall` if it must not run.
        """
        call = judged.call
        tool = self.find(call.name)
        if call.name in self.removed:
            raise ToolError(f"The tool {call.name} is not available in this step.")
        if tool is None:
            if why := self.explain_missing(call.name):
                raise ToolError(why)
            forms.translate_call(call.name, call.arguments or {}, run.cwd)  # raises if it can explain more
            raise ToolError(f"There is no tool {call.name}. There are: {', '.join(sorted(self.tools))}.")
        if reason := self.mode_tools.refusal(tool.name, reads=tool.remote is not None and tool.remote.reads_only):
            raise DeniedCall(f"Refused: {reason}", reason)
        if call.arguments is None:
            raise ToolError(f"The arguments of {call.name} {forms.explain_unreadable(call.raw)}; write the call again.")
        _, values = forms.translate_call(call.name, call.arguments, run.cwd)  # raises if they cannot be read
        return tool, *await self._approve(run, tool, structs.replace(judged, call=call), values)

    @property
    def current_mode(self) -> SessionMode:
        """Return the approval mode in force: of a child never a wider one than its parent's."""
        if self.parent is None:
            return self.mode
        return SESSION_MODES[min(map(SESSION_MODES.index, (self.mode, self.parent.current_mode)))]

    @property
    def _all_rules(self) -> Rules:
        if self.parent is not None:
            return self.parent._all_rules
        return structs.replace(self.rules, allow=(*self.rules.allow, *self.saved, *self.granted))

    @property
    def _reads_only(self) -> bool:
        return self.mode_tools.reads_only or (self.parent is not None and self.parent._reads_only)

    def _choose_mode(self, tool: Tool) -> SessionMode:
        """Return the approval mode for a tool: `plan` for tools that may change things if the mode only reads."""
        return "plan" if tool.effect in ("run", "remote") and self._reads_only else self.current_mode

    def _make_place(self, run: ToolContext) -> WorkspaceView:
        """Return the place of a call, with the name of the mode or child that only reads there."""
        top = self.parent or self
        if top.mode == "plan":
            reader = "plan mode"
        elif self.parent is not None and self.mode == "plan":
            reader = f"the read-only child {self.agent}"
        else:
            reader = f"the mode {top.mode_tools.mode}"
        return structs.replace(run.place(), reader=reader)

    def set_mode(self, mode: SessionMode) -> None:
        """Change the approval mode, and judge the open questions again."""
        self.mode = mode
        self.approvals.judge_again()

    def _evaluate(
        self, run: ToolContext, tool: Tool, arguments: Json, judged: GuardDecision, mode: SessionMode
    ) -> Decision:
        """Decide on a call by the permissions, then apply the guard's decision.

        A guard that allows acts like a rule for all calls of the tool: it lifts neither denials and questions of the
        user's rules, nor questions of every mode, nor the question for running outside of the sandbox.
        """
        place = self._make_place(run)

        def decide(rules: Rules) -> Decision:
            decision = judge(tool, arguments, mode=mode, rules=rules, place=place)
            limits = [only[tool.name] for only in self.only if tool.name in only]
            if any(judge(tool, arguments, mode="ask", rules=r, place=place).verdict != "allow" for r in limits):
                return structs.replace(decision, verdict="deny", reason=f"the agent {self.agent} may not do this")
            return call_hooks.ask_about_marks(run, tool, arguments, decision)

        decision = decide(self._all_rules)
        if judged.verdict == "ask" and decision.verdict == "allow":
            return call_hooks.ask_anyway(tool, arguments, decision, judged.reason)
        if judged.verdict == "allow" and decision.verdict == "ask" and not decision.outside:
            rules = self._all_rules
            lifted = decide(structs.replace(rules, allow=(*rules.allow, tool.rule_name)))
            return lifted if lifted.verdict == "allow" and not lifted.outside else decision
        return decision

    async def _judge(
        self, run: ToolContext, tool: Tool, arguments: Json, judged: GuardDecision
    ) -> tuple[Decision, Callable[[], Decision]]:
        """Return the decision on a call, and a function that decides again with later rules and mode."""
        if tool.effect in ("read", "write"):
            run.judged, run.shown = frozenset(map(run.place().resolve, tool.list_paths(arguments))), {}
        loss = ""

        def decide_in(mode: SessionMode) -> Decision:
            return self._evaluate(run, tool, arguments, judged, mode).warn(str(arguments.get("command")), loss)

        def decide() -> Decision:
            decision = decide_in(mode := self._choose_mode(tool))
            is_edit = decision.verdict == "ask" and mode == "ask" and decide_in("edits").verdict == "allow"
            return structs.replace(decision, is_edit=is_edit)

        decision = decide()
        if decision.verdict != "deny" and self.current_mode != "full":
            loss = await self.state.recorder.explain_loss(tool.effect, arguments, run.place())
        return decide() if loss else decision, decide

    async def _approve(
        self, run: ToolContext, tool: Tool, judged: GuardDecision, arguments: Json
    ) -> tuple[Json, Decision]:
        """Return the arguments to run with, and the decision.

        Raises `DeniedCall` if a rule or the user says no, `ToolError` if the call would fail: the user is asked only
        about possible calls.
        """
        call = judged.call
        decision, decide = await self._judge(run, tool, arguments, judged)
        if decision.verdict == "ask" and self.guard is not None:
            tool.check(arguments, run.cwd)
            answered = await self.guard.ask_hooks(structs.replace(call, arguments=arguments))
            if answered.verdict == "allow":
                changed = self._translate(answered.call, run.cwd)
                _, arguments = forms.translate_call(changed.name, changed.arguments or {}, run.cwd)
                if changed.name != call.name:
                    raise ToolError(f"A hook changed the call of {call.name}: {changed.name}. Nothing was run.")
                decision, decide = await self._judge(run, tool, arguments, answered)
        if decision.verdict == "allow":
            if tool.remote is not None:
                tool.remote.note_use(False)
            return decision.apply(arguments), decision
        if decision.verdict == "deny":
            raise self._make_refusal(call, decision)
        return await self._ask(run, tool, call, arguments, decision, decide)

    async def _ask(
        self,
        run: ToolContext,
        tool: Tool,
        call: ToolCallPart,
        arguments: Json,
        decision: Decision,
        decide: Callable[[], Decision],
    ) -> tuple[Json, Decision]:
        """Ask about a call; return its arguments and the decision. Raises `DeniedCall`, `ToolError`."""
        values = tool.check(arguments, run.cwd)
        diff = clean_surrogates(self._make_preview(run, tool, arguments, values))
        request = ApprovalRequested(
            self.state.ids.new(),
            call.name,
            decision.reason,
            decision.target,
            self.state.show(run.cwd),
            diff or clean_surrogates(decision.diff),
            " and ".join(decision.rules),
            call.id,
            decision.is_edit,
            agent=self.asker,
            later=tuple([name async for name in self._name_questions(self.later, run.thread_id)]),
        )
        answer, decision = await self.approvals.ask(request, decision, decide)
        if decision.verdict == "deny":
            raise self._make_refusal(call, decision)
        if not answer.approved:
            raise call_hooks.explain_denial(call, decision, answer.note, interactive=self.approvals.interactive)
        if tool.remote is not None:
            tool.remote.note_use(not answer.is_judged)
        self._grant(answer.grant, decision.rules)
        if decision.diff and not answer.is_judged:
            self.state.changed.clear()  # they were on the screen
        if answer.edited is not None and tool.effect == "run":
            arguments = {**arguments, "command": answer.edited}
            place = self._make_place(run)
            decision = judge(tool, arguments, mode=self._choose_mode(tool), rules=self._all_rules, place=place)
            if decision.verdict == "deny":
                raise self._make_refusal(call, decision)
        return decision.apply(arguments), decision

    def _make_refusal(self, call: ToolCallPart, decision: Decision) -> DeniedCall:
        after = f" {PLAN_ENDS}" if self.current_mode == "plan" and PRESENT_PLAN in self.tools else ""
        return DeniedCall(f"Refused: {decision.target or call.name}: {decision.reason}.{after}", decision.reason)

    def _grant(self, grant: Grant, rules: Sequence[str]) -> None:
        """Apply the grants of an answer beyond its call, also to the other open questions."""
        if self.parent is not None:
            self.parent._grant(grant, rules)
            return
        if grant == "thread":
            self.granted = (*self.granted, *rules)
        elif grant == "workspace":
            self.saved = (*self.saved, *rules)
            for rule in rules:
                self.save_rule(rule)
        else:
            return
        self.approvals.judge_again()

    def _make_preview(self, run: ToolContext, tool: Tool, arguments: Json, values: Json) -> str:
        """Return the diff that a call would make, or "" if it has none to show.

        Raises `ToolError` if it cannot be made. For an unread file outside the project the error says only that it was
        not read: the reason would reveal its content before the user is asked.
        """
        if tool.preview is None:
            return ""
        try:
            return tool.preview(run, **values)
        except OSError:
            return ""  # running it reports the error
        except ToolError:
            hidden = [
                path
                for path in map(run.resolve, tool.list_paths(arguments))
                if not run.place().holds(path) and path not in self.state.files.seen
            ]
            if not hidden:
                raise
            if tool.name == "apply_patch":  # these may change unread files
                return ""
            message = f"{self.state.show(hidden[0])} has not been read yet. Read it, then change it."
            raise ToolError(message) from None


def _describe_for_recorder(tool: Tool, arguments: Json) -> tuple[str, Json]:
    """Return the effect and the arguments of a call for the recorder of file changes."""
    if tool.remote is None:
        return tool.effect, arguments
    if tool.remote.reads_only:
        return "own", {}
    return tool.effect, {"command": core_types.display_name(tool.name), "confined": tool.remote.is_confined}


def _group_calls(find: Callable[[str], Tool | None], calls: Sequence[ToolCallPart]) -> list[list[ToolCallPart]]:
    """Group calls in order: neighbouring parallel ones together, at most eight."""
    batches: list[list[ToolCallPart]] = []
    is_open = False
    for call in calls:
        tool = find(call.name)
        is_parallel = tool is not None and tool.parallel
        if is_parallel and is_open and len(batches[-1]) < MAX_PARALLEL:
            batches[-1].append(call)
        else:
            batches.append([call])
        is_open = is_parallel
    return batches
