"""Declare the commands that only this chat has: on the screen they are keys, or plain to see."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from sakti.actions import registry
from sakti.actions.scope import Scope
from sakti.actions.search import found
from sakti.actions.spec import action, arg
from sakti.actions.values import Done, Refused, Rows, Text, Value
from sakti.core.text import counted, one_line, sanitise
from sakti.plain import words

if TYPE_CHECKING:
    from sakti.agent.session.session import Session
    from sakti.plain.speech import Speech


class PlainHost(Protocol):
    """The chat that commands run in."""

    session: Session
    speech: Speech
    unsent: str  # what was not sent

    def say(self, lines: Iterable[str]) -> None: ...

    async def send(self, text: str) -> None: ...

    def end_of_input(self) -> None: ...

    def leave(self, code: int) -> None: ...


class PlainScope(Scope):
    """`chat` is the plain chat itself."""

    def __init__(
        self, chat: PlainHost, tell: Callable[[Value], None], working: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        super().__init__(chat.session, tell, working)
        self.chat = chat


@action(arg("query", default=""), chat="find", needs="session")
async def find(scope: PlainScope, query: str) -> Value:
    """Search this thread only."""
    return await found(scope.session, query, "thread")


@action(arg("count", default=2, kind="whole", low=1, high=200), chat="last", needs="session",
        summary="repeat the last messages: /last, /last 10")  # fmt: skip
async def last(scope: PlainScope, count: int) -> Value:
    """Repeat the last messages."""
    thread = scope.session.thread
    page = await scope.session.views.transcript(thread.id, limit=count) if thread else []
    return Rows(tuple(m.text for m in page), "messages", tuple(page), "This thread has no messages yet.")


@action(arg("number", default=0, kind="whole", low=1), chat="output", needs="session",
        summary="show the whole output of the last tool call; /output 2 the one before it")  # fmt: skip
async def output(scope: PlainScope, number: int) -> Value:
    """Show the output of a tool call; while a question waits, all its details."""
    speech = scope.chat.speech
    question = speech.question
    if question is not None and not number:
        return Text((*sanitise(question.target).split("\n"), *(words.diff(question.diff) if question.diff else ())))
    at = number or 1
    if at > len(speech.calls):
        raise Refused(f"{counted(len(speech.calls), 'call')} can be shown.", title="Output")
    return Text(tuple(speech.calls[-at].lines()))


@action(chat="retry", needs="session")
async def retry(scope: PlainScope) -> None:
    """Ask again after a failed answer."""
    await scope.session.retry()


@action(chat="queue", needs="session", summary="list queued messages; /queue remove removes the newest")
async def queue(scope: PlainScope) -> Value:
    """List queued messages."""
    queued = scope.session.queued
    return Rows(tuple(f"{n}. {one_line(q, 300)}" for n, q in enumerate(queued, 1)), empty="Nothing is queued.")


@action(chat="queue remove", needs="session")
async def queue_remove(scope: PlainScope) -> Value:
    """Remove the newest queued message."""
    queued = scope.session.queued
    if not queued:
        return Done("Nothing is queued.")
    return Text((f"removed: {scope.session.unqueue(len(queued) - 1)}",))


@action(chat="send", needs="session")
async def send(scope: PlainScope) -> Value | None:
    """Send the unsent draft."""
    text, scope.chat.unsent = scope.chat.unsent, ""
    if not text:
        return Done("There is no unsent draft.")
    await scope.chat.send(text)
    return None


@action(chat="drop", needs="session")
async def drop(scope: PlainScope) -> Value:
    """Discard the unsent draft."""
    text = "Dropped." if scope.chat.unsent else "There is no unsent draft."
    scope.chat.unsent = ""
    return Done(text)


OWN = {a.chat: a for a in registry.subject_of(sys.modules[__name__]).actions}
