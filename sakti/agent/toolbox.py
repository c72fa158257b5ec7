"""Running what the model calls: validation, approval, parallel reads, bounded results, the repetition guard."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sakti.agent.approvals import Approvals
from sakti.agent.permissions import Place, Rules, judge
from sakti.agent.tools.base import Outcome, Tool, ToolRun, Workbench
from sakti.agent.tools.files import preview_diff
from sakti.core.config import ApprovalMode
from sakti.core.errors import SaktiError, ToolError
from sakti.core.events import ApprovalRequested, Event, ToolFinished, ToolOutput, ToolStarted
from sakti.core.tokens import Counter, count_tools
from sakti.core.types import Json, Message, ToolCallPart, ToolResultPart, ToolSpec

log = logging.getLogger(__name__)

TOLD_AFTER, STOPPED_AFTER = 3, 5
MAX_PARALLEL = 8
MAX_CALLS = 64  # of one answer; the rest is refused, not run


@dataclass(slots=True)
class Repetition:
    """Counts equal calls in a row."""

    last: str = ""
    count: int = 0

    def see(self, call: ToolCallPart) -> int:
        signature = (
            f"{call.name}:{json.dumps(call.arguments, sort_keys=True) if call.arguments is not None else call.raw}"
        )
        self.count = self.count + 1 if signature == self.last else 1
        self.last = signature
        return self.count


@dataclass(slots=True)
class Toolbox:
    """The tools of a session and what it takes to run them. `own` are folders that no tool may touch."""

    tools: dict[str, Tool]
    bench: Workbench
    approvals: Approvals
    mode: ApprovalMode = "ask"
    rules: Rules = field(default_factory=Rules)
    own: tuple[Path, ...] = ()
    save_rule: Callable[[str], None] = lambda _rule: None
    _specs: dict[bool, tuple[ToolSpec, ...]] = field(default_factory=dict[bool, tuple[ToolSpec, ...]])
    _counted: tuple[tuple[ToolSpec, ...], int] = ((), 0)

    def specs(self, *, small: bool = False) -> tuple[ToolSpec, ...]:
        """Sorted, so that the request's prefix never moves; a small model gets the six that matter most."""
        if small not in self._specs:
            names = sorted(SMALL_TOOLS & self.tools.keys()) if small else sorted(self.tools)
            self._specs[small] = tuple(self.tools[n].spec() for n in names)
        return self._specs[small]

    def count(self, counter: Counter, tools: tuple[ToolSpec, ...]) -> int:
        """Tokens of `tools`, counted once as long as they stay the same."""
        if self._counted[0] is not tools:
            self._counted = tools, count_tools(counter, tools)
        return self._counted[1]

    async def run(
        self, message: Message, calls: Sequence[ToolCallPart], results: list[ToolResultPart], repetition: Repetition
    ) -> AsyncGenerator[Event, None]:
        """Run all calls of one answer: neighbouring reads at once, everything else in order.

        Yields what happens and appends one result for every call to `results`, in the calls' order; cancelled, it
        has a result for each call that ended and none for the others.
        """
        done: dict[str, ToolResultPart] = {}
        try:
            for number, batch in enumerate(_batches(self.tools, calls)):
                queue: asyncio.Queue[Event | None] = asyncio.Queue()
                tasks = [
                    asyncio.create_task(
                        self._one(message, c, queue.put_nowait, repetition.see(c), over=number > MAX_CALLS)
                    )
                    for c in batch
                ]
                gathered = asyncio.ensure_future(asyncio.gather(*tasks))
                gathered.add_done_callback(lambda _f, q=queue: q.put_nowait(None))
                try:
                    while (event := await queue.get()) is not None:
                        if isinstance(event, ToolFinished):
                            done[event.result.call_id] = event.result
                        yield event
                    await gathered
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.wait([*tasks, gathered])
                    while not queue.empty():
                        event = queue.get_nowait()
                        if isinstance(event, ToolFinished):
                            done[event.result.call_id] = event.result
        finally:
            results.extend(done[c.id] for c in calls if c.id in done)

    async def _one(
        self, message: Message, call: ToolCallPart, emit: Callable[[Event], None], repeated: int, *, over: bool
    ) -> None:
        clock = self.bench.clock
        started = clock.monotonic()
        emit(ToolStarted(call))
        try:
            if over:
                raise ToolError(f"More than {MAX_CALLS} groups of calls in one answer; call again with fewer.")
            outcome = await self._checked(message, call, emit)
        except SaktiError as e:
            outcome = Outcome(e.message, is_error=True)
        except OSError as e:
            outcome = Outcome(f"{call.name} failed: {e.strerror or e}.", is_error=True)
        except Exception as e:  # the worker's root: a fault of a tool is the model's to see, not the end of the chat
            log.exception("tool %s failed", call.name)
            outcome = Outcome(f"{call.name} failed: {type(e).__name__}: {e}", is_error=True)
        outcome = self.bench.bounded(outcome, call.id)
        content = outcome.content
        if repeated >= TOLD_AFTER:
            content += f"\n[This is the same call for the {repeated}th time in a row. Do something else.]"
        duration = round((clock.monotonic() - started) * 1000)
        result = ToolResultPart(
            call.id, call.name, content, outcome.is_error, {**outcome.details, "duration_ms": duration}
        )
        emit(ToolFinished(result, duration))

    async def _checked(self, message: Message, call: ToolCallPart, emit: Callable[[Event], None]) -> Outcome:
        found = self.tools.get(call.name)
        if found is None:
            raise ToolError(f"There is no tool {call.name}. There are: {', '.join(sorted(self.tools))}.")
        if call.arguments is None:
            raise ToolError(f"The arguments of {call.name} are not a JSON object; write the call again.")
        arguments = await self._approved(found, call, call.arguments)
        run = ToolRun(self.bench, call.id, message.thread_id, message.id, lambda text: emit(ToolOutput(call.id, text)))
        return await found(run, arguments)

    async def _approved(self, found: Tool, call: ToolCallPart, arguments: Json) -> Json:
        """The arguments to run with. Raises `ToolError` where it is refused."""
        place = Place(self.bench.workspace, self.bench.cwd, self.own)
        decision = judge(call.name, arguments, mode=self.mode, rules=self.rules, place=place, internal=found.internal)
        if decision.verdict == "allow":
            return arguments
        if decision.verdict == "deny":
            raise ToolError(f"Refused: {decision.target or call.name}: {decision.reason}.", code="refused")
        diff = preview_diff(self.bench, call.name, arguments) if call.name in ("write", "edit") else ""
        answer = await self.approvals.ask(
            ApprovalRequested(
                self.bench.ids.new(),
                call.name,
                decision.reason,
                decision.target,
                self.bench.show(self.bench.cwd),
                diff,
                decision.rule,
            )
        )
        if not answer.approved:
            note = f" They say: {answer.note}" if answer.note else ""
            raise ToolError(f"The user refused this call.{note}", code="refused")
        if answer.always and decision.rule:
            self.rules = dataclasses.replace(self.rules, allow=(*self.rules.allow, decision.rule))
            self.save_rule(decision.rule)
        if answer.edited is not None and call.name == "bash":
            changed = {**arguments, "command": answer.edited}
            again = judge("bash", changed, mode=self.mode, rules=self.rules, place=place)
            if again.verdict == "deny":
                raise ToolError(f"Refused: {again.target}: {again.reason}.", code="refused")
            return changed
        return arguments


SMALL_TOOLS = frozenset({"bash", "edit", "grep", "ls", "read", "write"})


def _batches(tools: dict[str, Tool], calls: Sequence[ToolCallPart]) -> list[list[ToolCallPart]]:
    """Calls in order, neighbouring read-only ones together (at most eight at once)."""
    batches: list[list[ToolCallPart]] = []
    for call in calls:
        parallel = call.name in tools and tools[call.name].read_only
        if (
            parallel
            and batches
            and len(batches[-1]) < MAX_PARALLEL
            and all(tools[c.name].read_only for c in batches[-1] if c.name in tools)
            and batches[-1][-1].name in tools
        ):
            batches[-1].append(call)
        else:
            batches.append([call])
    return batches
