"""Declare `/btw`: ask the model beside the thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg
from sakti.actions.values import USAGE, Refused, Value

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


@action(arg("question", default="", metavar="QUESTION"), chat="btw", hint="QUESTION", needs="session",
        summary="ask beside the thread: nothing of it stays there")  # fmt: skip
async def btw(scope: Scope, question: str) -> Value | None:
    """Ask the model a question beside the thread, also while it works."""
    if not question.strip():
        raise Refused("Write the question after /btw.", code=USAGE)
    scope.session.turns.aside.ask(question.strip())
    return None
