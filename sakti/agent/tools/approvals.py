"""Ask the user: each question waits until the screen, a policy or another approval mode answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.judge.decide import Decision
from sakti.core.events import ApprovalAnswer, ApprovalRequested, ApprovalResolved, Event

NOBODY = "approval is needed and there is no terminal"


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
        """Return the answer, and the decision as it is by then."""
        if not self.interactive:
            self.refused += 1
            return ApprovalAnswer(False, note=NOBODY), decision
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
        """Answer the open questions that the rules or the approval mode of now answer; keep the others."""
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
