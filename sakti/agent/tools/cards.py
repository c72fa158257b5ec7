"""Ask the user by a card: questions with choices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, to_builtins

from sakti.agent.judge.decide import Decision
from sakti.agent.tools.approvals import Answer, Approvals
from sakti.agent.tools.base import Tool, tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core.events import ApprovalRequested, CardQuestion
from sakti.core.types import Json

ASK_USER = "ask_user"
NOBODY_ANSWERS = "Nobody can answer: there is no terminal. Decide yourself, and state your assumption in the answer."
DECLINED = "The user declined to answer. Do not ask the same again; decide, and state your assumption."


def make_ask_user(approvals: Approvals) -> Tool:
    """Make the tool of one session."""

    @tool(effect="own", name=ASK_USER)
    async def ask_user(
        run: ToolContext, questions: Annotated[list[CardQuestion], Meta(min_length=1, max_length=4)]
    ) -> Outcome:
        """Ask the user to choose."""
        if not approvals.interactive:
            return Outcome(NOBODY_ANSWERS, is_error=True)
        target = questions[0].question
        answer = await _ask(run, approvals, ApprovalRequested(
            run.state.ids.new(), ASK_USER, "", target, ".", call_id=run.call_id, questions=tuple(questions)
        ))  # fmt: skip
        if not answer.approved:
            return Outcome(DECLINED, details={"declined": True})
        return Outcome(
            json.dumps({"answers": [_leave_out_empty(to_builtins(a)) for a in answer.answers]}, ensure_ascii=False),
            details={"answers": _describe(questions, answer)},
        )

    return ask_user


async def _ask(run: ToolContext, approvals: Approvals, request: ApprovalRequested) -> Answer:
    """Show a card and wait for its answer, however long it takes; no approval mode answers it."""
    decision = Decision("ask", "")
    answer, _ = await approvals.ask(request, decision, lambda: decision)
    return answer


def _leave_out_empty(answer: Json) -> Json:
    return {name: value for name, value in answer.items() if name != "text" or value}


def _describe(questions: Sequence[CardQuestion], answer: Answer) -> list[Json]:
    """Return each question with its answer, for the screen and the Observer."""
    by_header = {a.header: a for a in answer.answers}
    return [
        {"question": q.question, "choices": list(a.choices), "text": a.text}
        for q in questions
        if (a := by_header.get(q.header)) is not None
    ]
