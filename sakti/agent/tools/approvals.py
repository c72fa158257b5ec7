"""Ask the user: approvals of calls, and cards with questions or a plan to approve.

Each question waits until the screen, a policy or another approval mode answers it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import replace

from sakti.agent import plans
from sakti.agent.judge.decide import Decision
from sakti.agent.plans import PlanStep, ProposedPlan
from sakti.agent.tools.base import Tool, tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core.config import SessionMode
from sakti.core.events import ApprovalAnswer, ApprovalRequested, ApprovalResolved, CardQuestion, Event
from sakti.core.types import Json

ASK_USER, PRESENT_PLAN = "ask_user", "present_plan"
PLAN_IS_THE_RESULT = "The plan is the result of this run: it cannot be approved here."
NO_ANSWER = "No one can answer: there is no terminal. Decide yourself, and state your assumption in the answer."
DECLINED = "The user declined to answer. Do not ask the same again; decide, and state your assumption."
NO_TERMINAL = "approval is needed and there is no terminal"


class _Question(Struct):
    """Open question: the decision that asks, and the function that makes it again."""

    request: ApprovalRequested
    decision: Decision
    decide: Callable[[], Decision]
    future: asyncio.Future[ApprovalAnswer]


class Approvals:
    """Open questions of one session; if not `interactive`, every answer is no."""

    def __init__(self, emit: Callable[[Event], None], *, interactive: bool) -> None:
        self.interactive = interactive
        self.refused = 0
        self._emit = emit
        self._open: dict[str, _Question] = {}

    @property
    def pending(self) -> tuple[ApprovalRequested, ...]:
        return tuple(question.request for question in self._open.values())

    async def ask(
        self, request: ApprovalRequested, decision: Decision, decide: Callable[[], Decision]
    ) -> tuple[ApprovalAnswer, Decision]:
        """Ask the user; return the answer, and the decision at that time."""
        if not self.interactive:
            self.refused += 1
            return ApprovalAnswer(False, note=NO_TERMINAL), decision
        question = _Question(request, decision, decide, asyncio.get_running_loop().create_future())
        self._open[request.id] = question
        self._emit(request)
        answer = ApprovalAnswer(False, note="interrupted")
        try:
            answer = await question.future
            return answer, question.decision
        finally:
            del self._open[request.id]
            self.refused += not answer.approved and not request.is_card
            self._emit(ApprovalResolved(request.id, answer.approved, answer.note, request.call_id))

    def resolve(self, request_id: str, answer: ApprovalAnswer) -> None:
        """Answer an open question; one that is no longer open is ignored."""
        question = self._open.get(request_id)
        if question is not None and not question.future.done():
            question.future.set_result(answer)

    def judge_again(self) -> None:
        """Answer the open questions that the current rules or approval mode decide; keep the others."""
        for question in self._open.values():
            if question.future.done():
                continue
            decision = question.decision = question.decide()
            if decision.verdict != "ask":
                answer = ApprovalAnswer(decision.verdict == "allow", note=decision.reason, is_judged=True)
                question.future.set_result(answer)
                continue
            question.request = replace(
                question.request,
                reason=decision.reason,
                rule=" and ".join(decision.rules),
                is_edit=decision.is_edit,
            )


def make_ask_user(approvals: Approvals) -> Tool:
    """Make the tool of one session."""

    @tool(effect="own", name=ASK_USER)
    async def ask_user(
        run: ToolContext, questions: Annotated[list[CardQuestion], Meta(min_length=1, max_length=4)]
    ) -> Outcome:
        """Ask the user to choose."""
        if not approvals.interactive:
            return Outcome(NO_ANSWER, is_error=True)
        target = questions[0].question
        answer = await _ask(run, approvals, ApprovalRequested(
            run.state.ids.new(), ASK_USER, "", target, ".", call_id=run.call_id, questions=tuple(questions)
        ))  # fmt: skip
        if not answer.approved:
            return Outcome(DECLINED, details={"declined": True})
        return Outcome(
            json.dumps({"answers": [_leave_out_empty(to_builtins(a)) for a in answer.answers]}, ensure_ascii=False),
            details={"answers": _describe_answers(questions, answer)},
        )

    return ask_user


def make_cards(approvals: Approvals, approve: PlanApproval) -> list[Tool]:
    """Make the tools that ask the user by a card."""
    return [make_ask_user(approvals), make_present_plan(approvals, approve)]


class PlanApproval(Protocol):
    """Function that carries an approved plan to the board and the thread."""

    async def __call__(self, plan: ProposedPlan, message_id: str, mode: SessionMode, *, fresh: bool) -> None: ...


def make_present_plan(approvals: Approvals, approve: PlanApproval) -> Tool:
    """Make the tool of one session."""

    @tool(effect="own", name=PRESENT_PLAN)
    async def present_plan(
        run: ToolContext,
        title: Annotated[str, Meta(min_length=1, max_length=200)],
        steps: Annotated[list[PlanStep], Meta(min_length=1, max_length=50)],
        summary: Annotated[str, Meta(max_length=4_000)] = "",
    ) -> Outcome:
        """Show a plan to the user for approval."""
        plan = ProposedPlan(" ".join(title.split()), summary.strip(), tuple(steps))
        plan.require_order()
        text = plans.to_markdown(plan)
        if not approvals.interactive:
            return Outcome(PLAN_IS_THE_RESULT, details={"plan": to_builtins(plan), "ends_turn": True})
        request = ApprovalRequested(run.state.ids.new(), PRESENT_PLAN, "", text, ".", call_id=run.call_id)
        answer = await _ask(run, approvals, request)
        edited = answer.edited if answer.edited is not None and answer.edited.strip() != text.strip() else None
        if not answer.approved:
            return _report_refusal(answer.note, edited)
        plan = plans.from_markdown(edited) if edited is not None else plan
        await approve(plan, run.message_id, answer.mode, fresh=answer.fresh)
        return _report_approval(plan, answer, edited)

    return present_plan


def _report_refusal(note: str, edited: str | None) -> Outcome:
    """Return the result of a plan that was not approved, with the user's note and changes."""
    words = f" They say: {note}" if note else ""
    if edited is None:
        return Outcome(f"The user wants to keep planning.{words}", details={"note": note})
    text = f"The user changed the plan and wants to keep planning.{words}\n\n{edited}"
    return Outcome(text, details={"note": note, "edited": edited})


def _report_approval(plan: ProposedPlan, answer: ApprovalAnswer, edited: str | None) -> Outcome:
    """Return the result of an approved plan; with the plan if the user changed it."""
    details: Json = {"plan": to_builtins(plan), "approved": answer.mode}
    changed = f"The user changed the plan:\n\n{plans.to_markdown(plan)}\n\n" if edited is not None else ""
    if edited is not None:
        details["edited"] = plans.to_markdown(plan)
    if answer.fresh:
        text = f"{changed}The user approved the plan; it continues in a new thread."
        return Outcome(text, details={**details, "ends_turn": True})
    return Outcome(
        f"{changed}The user approved the plan. Its steps are tasks on the board, below one epic: claim each "
        f"task before you work on it and close it when it is done. The approval mode is {answer.mode}.",
        details=details,
    )


async def _ask(run: ToolContext, approvals: Approvals, request: ApprovalRequested) -> ApprovalAnswer:
    """Show a card and wait for its answer, however long it takes; no approval mode answers it."""
    decision = Decision("ask", "")
    answer, _ = await approvals.ask(request, decision, lambda: decision)
    return answer


def _leave_out_empty(answer: Json) -> Json:
    return {name: value for name, value in answer.items() if name != "text" or value}


def _describe_answers(questions: Sequence[CardQuestion], answer: ApprovalAnswer) -> list[Json]:
    """Return each question with its answer, for the screen and the Observer."""
    by_header = {a.header: a for a in answer.answers}
    return [
        {"question": q.question, "choices": list(a.choices), "text": a.text}
        for q in questions
        if (a := by_header.get(q.header)) is not None
    ]
