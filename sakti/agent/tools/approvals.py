"""Ask the user: each question waits until the screen or a policy answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from sakti.core.events import ApprovalRequested, ApprovalResolved, Event, Grant

NOBODY = "approval is needed and there is no terminal"


class Answer(Struct, frozen=True):
    """User's answer.

    `grant`: how far a yes goes; `edited` replaces the command in question; `note` goes to the agent with a refusal.
    """

    approved: bool
    grant: Grant = "once"
    note: str = ""
    edited: str | None = None


class Approvals:
    """Open questions of one session; if not `interactive`, every answer is no."""

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
        """Answer an open question; one that is no longer open is ignored."""
        entry = self._open.get(request_id)
        if entry is not None and not entry[1].done():
            entry[1].set_result(answer)
