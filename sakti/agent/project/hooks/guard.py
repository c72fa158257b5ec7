"""Let hooks decide on each call of a tool: before it, in place of a question, and after it."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from sakti.agent.project.hooks import answers, fire, payload
from sakti.agent.project.hooks.answers import HookDecision
from sakti.agent.project.hooks.fire import Hooks, HookSubject
from sakti.agent.project.hooks.payload import HookCall
from sakti.agent.tools.call_hooks import DeniedCall, GuardDecision
from sakti.agent.tools.context import Outcome, ToolState
from sakti.core.text import to_one_line
from sakti.core.types import ToolCallPart


class HookGuard:
    """The guard of a toolbox whose session has hooks."""

    def __init__(self, hooks: Hooks, tools: ToolState) -> None:
        self._hooks, self._tools = hooks, tools
        self._stop: str | None = None

    def stop_reason(self) -> str | None:
        """Return why a hook ends the turn, once."""
        reason, self._stop = self._stop, None
        return reason

    async def before(self, call: ToolCallPart) -> GuardDecision:
        """Return the decision of the hooks of PreToolUse. Raises `DeniedCall`."""
        if not self._hooks.listens("PreToolUse"):
            return GuardDecision(call)
        calls = self._convert_call(call)
        fields = [{**_name_call(t), "tool_use_id": call.id} for t in calls]
        decision = await self._hooks.fire("PreToolUse", fields, self._make_subject(call, calls))
        return self._apply_decision("PreToolUse", call, calls, decision)

    async def ask_hooks(self, call: ToolCallPart) -> GuardDecision:
        """Return the answer of the hooks of PermissionRequest in the user's place. Raises `DeniedCall`."""
        if not self._hooks.listens("PermissionRequest"):
            return GuardDecision(call)
        calls = self._convert_call(call)
        decision = await self._hooks.fire(
            "PermissionRequest", [_name_call(t) for t in calls], self._make_subject(call, calls)
        )
        return self._apply_decision("PermissionRequest", call, calls, decision)

    async def after(self, call: ToolCallPart, outcome: Outcome, duration_ms: int) -> Outcome:
        """Add the texts of the hooks of PostToolUse, or PostToolUseFailure, to the outcome of a call."""
        event = "PostToolUseFailure" if outcome.is_error else "PostToolUse"
        if not self._hooks.listens(event):
            return outcome
        calls = self._convert_call(call)
        fields = [self._build_end_fields(call, text, outcome, duration_ms) for text in calls]
        decision = await self._hooks.fire(event, fields, self._make_subject(call, calls))
        if decision.stop is not None:
            self._stop = decision.stop.text
        text = answers.delimit(event, (*decision.reasons, *decision.context))
        return structs.replace(outcome, content=f"{outcome.content}\n\n{text}") if text else outcome

    def _build_end_fields(
        self, call: ToolCallPart, told: HookCall, outcome: Outcome, duration_ms: int
    ) -> dict[str, Any]:
        result = payload.format_response(call.name, told, outcome)
        how = {"error": payload.format_error(outcome), "is_interrupt": False} if outcome.is_error else {}
        about = {"tool_response": result, "tool_use_id": call.id, "duration_ms": duration_ms}
        return {**_name_call(told), **about, **how}

    def _apply_decision(
        self, event: str, call: ToolCallPart, calls: list[HookCall], decision: HookDecision
    ) -> GuardDecision:
        if decision.stop is not None:
            self._stop = decision.stop.text or "A hook ended the turn."
            raise DeniedCall(f"Not run: {self._stop}", self._stop)
        source = decision.reasons[0].hook.source if decision.reasons else ""
        if decision.verdict == "deny":
            text = answers.delimit(event, decision.reasons)
            raise DeniedCall(f"Refused by a hook.\n{text}", f"hook of {source}: {to_one_line(decision.reason, 300)}")
        call, change = _change_input(call, calls, decision)
        reason = f"A hook of {source} asks: {decision.reason}" if decision.reasons else ""
        note = "\n".join(n for n in (answers.delimit(event, decision.context), change) if n)
        return GuardDecision(call, decision.verdict, to_one_line(reason or "A hook asks", 300), note)

    def _convert_call(self, call: ToolCallPart) -> list[HookCall]:
        return payload.translate_call(call.name, call.arguments or {}, lambda path: str(self._tools.resolve(path)))

    def _make_subject(self, call: ToolCallPart, calls: list[HookCall]) -> HookSubject:
        command = (call.arguments or {}).get("command") if call.name == "bash" else None
        paths = [p for each in calls for p in each.paths]
        relative = [self._tools.show(self._tools.resolve(p)) for p in paths]
        return HookSubject(
            fire.list_tool_names(call.name), str(command) if command is not None else None, (*paths, *relative)
        )


def _name_call(told: HookCall) -> dict[str, Any]:
    return {"tool_name": told.name, "tool_input": told.input}


def _change_input(call: ToolCallPart, calls: list[HookCall], decision: HookDecision) -> tuple[ToolCallPart, str]:
    """Return the call with the input that a hook gives it, and the note on that. Raises `DeniedCall`."""
    if decision.input is None or decision.changed_by is None or decision.input == calls[0].input:
        return call, ""
    source = decision.changed_by.source
    if len(calls) > 1 or call.name == "apply_patch":
        why = f"a hook of {source} changes the input of {call.name}, which is not possible"
        raise DeniedCall(f"Refused: {why}.", why)
    call = structs.replace(call, arguments=payload.translate_input(call.name, decision.input))
    return call, f"[A hook of {source} changed the input of this call: {payload.format_input(decision.input)}]"
