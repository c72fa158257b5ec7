"""Deleting one message of the open thread: it is named first, and goes when that is confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.agent.threads.actions import ThreadActions
from sakti.core.errors import SaktiError
from sakti.core.text import counted, one_line

if TYPE_CHECKING:
    from sakti.agent.session.session import Session
    from sakti.core.types import Message

CONFIRMED = "yes"
NAME = "/delete-message"
_LOOKED_AT = 500  # newest messages that are counted from the end
_SHOWN = 80  # characters of a message that are said


class OneMessage:
    """`/delete-message [N | yes]`: N counts messages from the end, 1 is the last."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._named: Message | None = None

    async def run(self, argument: str) -> str:
        """Remove a message; return what to say. Raises `SaktiError` without one, or while a turn is under way."""
        argument = argument.strip()
        if argument == CONFIRMED:
            return await self._delete()
        if argument and not (argument.isdecimal() and int(argument)):
            raise SaktiError(f"{NAME} takes a number, 1 for the last message.", title="Delete a message")
        messages = await self._read_messages()
        number = int(argument or 1)
        if number > len(messages):
            raise SaktiError(f"This thread has {counted(len(messages), 'message')}.", title="Delete a message")
        self._named = messages[-number]
        who = "your message" if self._named.role == "user" else "the answer"
        text = one_line(self._named.text, _SHOWN)
        return f"{NAME} {CONFIRMED} deletes {who} {text!r} (a call with its result): this cannot be undone."

    async def _read_messages(self) -> list[Message]:
        thread = self._session.thread
        page = await self._session.views.transcript(thread.id, limit=_LOOKED_AT) if thread else []
        return [m for m in page if m.role in ("user", "assistant") and m.text.strip()]

    async def _delete(self) -> str:
        named, self._named = self._named, None
        thread = self._session.thread
        if named is None or thread is None or named.thread_id != thread.id:
            raise SaktiError(f"Name a message first: {NAME}, or {NAME} 3 for the third last.", title="Delete a message")
        if self._session.busy:
            raise SaktiError("The agent is working; stop it with Esc first.", title="Delete a message")
        gone = await ThreadActions(self._session).delete_message(named.id)
        await self._session.open_thread(thread.id)
        lines = f" {gone.lines} log lines were made from it and the messages around it; they stay until they are"
        return "Deleted for good." + (f"{lines} forgotten." if gone.lines else "")
