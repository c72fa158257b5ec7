"""Asking the user: each question waits in its place until it is answered, from the screen or by a policy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sakti.core.events import ApprovalRequested, ApprovalResolved, Event

NOBODY = "approval is needed and there is no terminal"


@dataclass(frozen=True, slots=True)
class Answer:
    """`edited` replaces the command that was asked about; `note` is told to the agent with a no."""

    approved: bool
    always: bool = False
    note: str = ""
    edited: str | None = None


class Approvals:
    """The open questions of one session. Without anybody to ask (`interactive` false) every answer is no."""

    def __init__(self, emit: Callable[[Event], None], *, interactive: bool) -> None:
        self.interactive = interactive
        self.refused = 0
        self._emit = emit
        self._open: dict[str, tuple[ApprovalRequested, asyncio.Future[Answer]]] = {}

    @property
    def pending(self) -> tuple[ApprovalRequested, ...]:
        return tuple(request for request, _ in self._open.values())

    async def ask(self, request: ApprovalRequested) -> Answer:
        if not self.interactive:
            self.refused += 1
            return Answer(False, note=NOBODY)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[request.id] = (request, future)
        self._emit(request)
        answer = Answer(False, note="interrupted")
        try:
            answer = await future
            return answer
        finally:
            del self._open[request.id]
            self.refused += not answer.approved
            self._emit(ApprovalResolved(request.id, answer.approved, answer.note, request.call_id))

    def resolve(self, request_id: str, answer: Answer) -> None:
        """Answer an open question; one that is no longer open is left alone."""
        entry = self._open.get(request_id)
        if entry is not None and not entry[1].done():
            entry[1].set_result(answer)
