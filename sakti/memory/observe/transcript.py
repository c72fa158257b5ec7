"""Format messages for an Observer: `**Role (time):**` blocks, tools by name, long results cut. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from msgspec import structs

from sakti.core.lazy import lazy_pattern
from sakti.core.text import clean_surrogates
from sakti.core.types import (
    ContextPart,
    FilePart,
    ImagePart,
    MarkerPart,
    Message,
    OutputPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from sakti.memory.log import dates
from sakti.memory.observe.quoting import iter_pieces, split_shell_report

RESULT_TOKENS = 10_000
_ROLES = {"user": "User", "assistant": "Assistant", "tool": "Tool result", "main agent": "Main agent, not the user"}
# Base64, keys and encrypted messages, on one or several lines, and control characters: no information, but a great
# many tokens.
_ENCODED = lazy_pattern(
    r"-----BEGIN (?P<name>[A-Z0-9 ]+)-----(?:(?!-----).)*-----END (?P=name)-----|"
    r"(?:^[ \t]*(?=[^\n]{0,75}[0-9+])[A-Za-z0-9+/]{60,76}[ \t\r]*\n){5,}[A-Za-z0-9+/=]*|"
    r"[A-Za-z0-9+/=_-]{400,}|[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]{8,}",
    re.DOTALL | re.MULTILINE,
)
# Marker of a file whose text was loaded as instructions, by a command or a skill: nobody said it.
_LOADED = ('<command name="', '<skill name="')
_RAW = lazy_pattern(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
_RAW_SHARE = 0.05  # share of such characters from which a text counts as binary


def divide(message: Message, limit: int, count: Callable[[str], int]) -> list[Message]:
    """Divide a message into several with texts of at most `limit` tokens; other parts go with the last."""
    if message.tokens <= limit:
        return [message]
    texts = [chunk for part in message.parts if isinstance(part, TextPart) for chunk in _split(part.text, limit, count)]
    rest = tuple(part for part in message.parts if not isinstance(part, TextPart))
    pieces = [structs.replace(message, parts=(TextPart(text),), tokens=count(text)) for text in texts]
    if rest and pieces:
        last = pieces[-1]
        tokens = message.tokens - sum(piece.tokens for piece in pieces[:-1])
        pieces[-1] = structs.replace(last, parts=(*last.parts, *rest), tokens=max(tokens, last.tokens))
    return pieces or [message]


def _split(text: str, limit: int, count: Callable[[str], int]) -> list[str]:
    """Split a text between lines; a line that is too long, anywhere."""
    chunks, size = [""], 0
    width = max(1, limit // 3)  # characters; hardly any has more than three tokens
    for line in text.splitlines(keepends=True):
        for piece in (line[start : start + width] for start in range(0, len(line), width)):
            tokens = count(piece)
            if chunks[-1] and size + tokens > limit:
                chunks.append("")
                size = 0
            chunks[-1] += piece
            size += tokens
    return chunks


def format_messages(
    messages: Sequence[Message], timezone: str, count: Callable[[str], int], limit: int = RESULT_TOKENS
) -> str:
    """Format the messages, oldest first, with a `Date:` line before each day.

    Thinking, markers and sakti's own context parts are left out; `count` returns the tokens of a text; `limit` is the
    most tokens of each result, call and file.
    """
    out: list[str] = []
    day, images = "", 0
    for message in messages:
        texts: list[str] = []
        ran = split_shell_report(message) if message.role == "user" else None
        for part in () if ran is not None else message.parts:
            if isinstance(part, ImagePart):
                images += 1
            if text := _part(part, images, count, limit):
                texts.append(_mark_quotations(text) if message.is_by_user and isinstance(part, TextPart) else text)
        if ran is not None:
            texts = [
                f"[Command run by the user] {ran[0]}",
                f"[Its output]\n{cut(_shorten_encoded(ran[1]), limit, count)}",
            ]
        if not texts or message.role == "system":
            continue
        today = dates.format_day(message.created_at, timezone)
        if today != day:
            day = today
            out.append(f"Date: {day}")
        speaker = "main agent" if message.role == "user" and not message.is_by_user else message.role
        role, clock = _ROLES.get(speaker, message.role), dates.format_clock(message.created_at, timezone)
        out.append(f"**{role} ({clock}):**\n" + "\n".join(texts))
    return clean_surrogates("\n\n".join(out))


def _part(part: Part, image: int, count: Callable[[str], int], limit: int) -> str:
    match part:
        case TextPart(text):
            return text.strip()
        case ToolCallPart(name=name, arguments=arguments, raw=raw):
            body = raw if arguments is None else json.dumps(arguments, ensure_ascii=False)
            return f"[Tool call: {name}] {cut(_shorten_encoded(body), limit, count)}"
        case ToolResultPart():
            return _format_result(part, count, limit)
        case ImagePart(name=name):
            return f"[Image #{image}: {name or 'without a name'}]"
        case FilePart(path, text) if text.startswith(_LOADED):
            return f"[Instructions loaded by {path}]"
        case FilePart(path, text):
            return f"[File: {path}]\n{cut(_shorten_encoded(text), limit, count)}"
        case OutputPart(text=text):
            return f"[Its output]\n{cut(_shorten_encoded(text), limit, count)}"
        case ThinkingPart() | MarkerPart() | ContextPart():
            return ""


def _format_result(result: ToolResultPart, count: Callable[[str], int], limit: int) -> str:
    if result.name == "skill" and result.content.startswith(_LOADED):
        return "[Instructions of a skill were loaded]"
    if result.name == "agent" and "child" in result.details:
        marks = result.details.get("marks", "")
        return f"[A child thread reported: {marks}. Its findings are lines of the log already.]"
    kind = "Tool error" if result.is_error else "Tool result"
    return f"[{kind}: {result.name}]\n{cut(_shorten_encoded(result.content), limit, count)}"


def _mark_quotations(text: str) -> str:
    """Mark the lines that a user quotes, so that nothing in them can end the quotation."""
    out: list[str] = []
    for piece in iter_pieces(text):
        if piece.own:
            out.append(piece.text.strip("\n"))
        else:
            out.append("[Quoted by the user]")
            out += [line if line.startswith(">") else f"> {line}" for line in piece.text.strip("\n").split("\n")]
    return "\n".join(out)


def _shorten_encoded(text: str) -> str:
    if len(_RAW.findall(text)) > len(text) * _RAW_SHARE:
        return f"[{len(text)} characters of binary data]"
    return _ENCODED.sub(_note, text)


def _note(match: re.Match[str]) -> str:
    return f"[{len(match[0])} characters of {(match['name'] or 'encoded data').lower()}]"


def cut(text: str, limit: int, count: Callable[[str], int], *, tail: bool = False) -> str:
    """Cut `text` to its first (or last) `limit` tokens, with a note on the missing tokens."""
    if len(text) <= limit or (total := count(text)) <= limit:
        return text  # a token has at least one character
    low, high = 0, len(text)
    while high - low > max(16, len(text) // 500):
        middle = (low + high) // 2
        if count(text[-middle:] if tail else text[:middle]) <= limit:
            low = middle
        else:
            high = middle
    excerpt = text[-low:] if tail and low else text[:low] if not tail else ""
    note = f"[… {total - count(excerpt)} tokens left out …]"
    return f"{note}\n{excerpt}" if tail else f"{excerpt}\n{note}"


def log_tail(log: str, limit: int, count: Callable[[str], int]) -> str:
    """Return the newest complete lines of a log that fit `limit` tokens, under their date."""
    newest: list[str] = []
    tokens = 0
    lines = log.split("\n")
    position = len(lines)
    while position:
        size = count(lines[position - 1]) + 1
        if tokens + size > limit:
            break
        position, tokens = position - 1, tokens + size
        newest.append(lines[position])
    newest.reverse()
    if newest and not newest[0].startswith("Date:"):
        header = next((line for line in reversed(lines[:position]) if line.startswith("Date:")), None)
        if header:
            newest.insert(0, header)
    return "\n".join(newest)
