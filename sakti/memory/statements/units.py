"""Split a log line into speaker and sentences. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.core.patterns import lazy_pattern
from sakti.memory.statements.lexicon import BETWEEN_SENTENCES

Speaker: TypeAlias = Literal["user", "agent", ""]

LEAD = lazy_pattern(
    r"(User (?:stated|said|asked for|asked|quoted|ran|attached(?: the image)?)|Agent(?: asked| said)?):\s+"
)
TOOL = lazy_pattern(r"Agent (?:ran (?P<command>`[^`]*`)|used |changed (?P<files>.+))")
_SPOKEN = lazy_pattern(
    r"(?:the )?(?:user|agent|assistant)\b(?: (?:stated|said|noted|decided|confirmed|wants|asked|reported)\b)?"
    r"(?: that\b)?\s*",
    re.IGNORECASE,
)
# What is passed on, looked at, asked or told of the log itself says nothing that holds or that replaces anything.
_NOTHING = lazy_pattern(
    r"(?:the )?user (?:quoted|ran|attached|asked (?!for|to|that)|asked:)|agent asked|times are in ", re.IGNORECASE
)
_BOUNDARY = lazy_pattern(rf"{BETWEEN_SENTENCES}|(?<!\[earlier); |(?<=[。！？]) ")
_REQUEST = lazy_pattern(r"(?:the )?user (?:asked (?:for|to)|asks|requested|wants the agent to)\b", re.IGNORECASE)


class Unit(Struct, frozen=True):
    """Sentence at `start` of its line."""

    text: str
    start: int


def speaker(content: str, priority: str) -> Speaker:
    """Return the speaker of a line; empty if it states nothing that could last.

    An important line that names nobody counts as the user's.
    """
    low = content[:20].casefold()
    if _NOTHING.match(content) or TOOL.match(content):
        return ""
    if low.startswith(("user ", "the user ")):
        return "user"
    if low.startswith(("agent", "the agent", "assistant", "the assistant")):
        return "agent"
    return "user" if priority == "high" else "agent"


def is_request(content: str) -> bool:
    """Return whether a line reports that the user asked for something to be done."""
    return _REQUEST.match(content) is not None


def units(content: str) -> Iterator[Unit]:
    """Yield the sentences of a line after its attribution."""
    lead = LEAD.match(content) or _SPOKEN.match(content)
    start = lead.end() if lead else 0
    at = start
    for text, behind in sentences(content[start:]):
        yield Unit(text, at)
        at += len(text) + len(behind)


def sentences(text: str) -> Iterator[tuple[str, str]]:
    """Yield sentences with the text after each; joined they are the text."""
    at = 0
    for match in _BOUNDARY.finditer(text):
        yield text[at : match.start()], match[0]
        at = match.end()
    if at < len(text):
        yield text[at:], ""
