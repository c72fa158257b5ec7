"""Build the notice for a turn that ended without an answer, live and when it is loaded again."""

from __future__ import annotations

from sakti.core.types import Message
from sakti.tui.transcript.blocks import NoticeBlock

ENDS = {
    "interrupted": "Interrupted",
    "limit": "Stopped at a limit",
    "length": "The answer was cut",
    "repetition": "Stopped",
    "tripwire": "Withheld",
    "refused": "Refused",
    "no_model": "No model",
    "error": "No answer",
}


def ended_notice(status: str, title: str, text: str, message_id: str = "") -> NoticeBlock:
    tone = "error" if status in ("error", "no_model") else "warning"
    return NoticeBlock(message_id, tone=tone, title=title or ENDS.get(status, status), text=text)


def stored_notice(message: Message) -> NoticeBlock | None:
    """Return the stored notice of a turn that ended without an answer, else None."""
    ended = message.metadata.get("ended")
    if not isinstance(ended, dict):
        return None
    status, title, text = (str(ended.get(k) or "") for k in ("status", "title", "text"))  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]
    return ended_notice(status, title, text, message.id) if status else None
