"""Implement functions that only the golden vectors need.

Their cursor is an index, not a time; an absolute number of tokens to keep stays one; the ranges of a reflection are
kept beside its text, not in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import structs

from sakti.core.types import Message
from sakti.memory import policy
from sakti.memory.log import dates, parse
from sakti.memory.log.dates import BOL, EOL

# --- thresholds -------------------------------------------------------------------------------------------


def activation_ratio(activation: float, threshold: float) -> float:
    """Return the share of the threshold that an activation removes."""
    return max(0, min(1, 1 - activation / threshold if activation >= 1000 else activation))


# --- which messages ---------------------------------------------------------------------------------------


def safe_buffer_prefix(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the oldest messages that no running tool call touches, for a cursor that is a time.

    A call without a result runs while nothing newer follows it, and a cut lies between messages more than a
    millisecond apart.
    """
    if not messages:
        return ()
    waiting, newest = policy.open_calls(messages), messages[-1].created_at
    running = (m.created_at >= newest and any(c.id in waiting for c in m.tool_calls) for m in messages)
    cut = next((number for number, runs in enumerate(running) if runs), len(messages))
    while 0 < cut < len(messages) and messages[cut - 1].created_at + 1 >= messages[cut].created_at:
        cut -= 1
    return tuple(messages[:cut])


# --- anchors ----------------------------------------------------------------------------------------------

_ANCHOR = re.compile(r"\[(O[0-9]+(?:-N[0-9]+)?)\]")


def anchor_id(line: str) -> str | None:
    """Return the anchor at the beginning of a line, without its brackets."""
    match = _ANCHOR.match(line)
    return match[1] if match else None


# --- groups -----------------------------------------------------------------------------------------------


def reflector_output(text: str, source: str, new_id: str) -> parse.Parsed:
    """Parse a Reflector's answer, with what it kept of the groups of `source` in groups with their ranges."""
    parsed = parse.parse_reflector_output(text)
    if parsed.degenerate or not source:
        return parsed
    return structs.replace(parsed, observations=regroup(parsed.observations, source, new_id))


_GROUP = re.compile(r"<observation-group\b([^>]*)>(.*?)</observation-group>", re.DOTALL)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_HEADING = re.compile(rf"{BOL}## Group (?:`([^`\n]+)`|[^\n]*){EOL}")
_RANGE_LINE = re.compile(r"^_range: `[^`]*`_$")


def regroup(text: str, source: str, new_id: str) -> str:
    """Regroup a Reflector's text.

    The text under a `## Group` heading gets the ranges of the source groups whose lines it repeats (else of the group
    at its position), a text without headings gets the union.
    """
    groups = [(dict(_ATTRIBUTE.findall(m[1])).get("range", ""), _lines(m[2])) for m in _GROUP.finditer(source)]
    if not groups or not dates.trim(text):
        return text
    headings = list(_HEADING.finditer(text))
    if not headings:
        return _wrap(new_id, _union([r for r, _ in groups]), dates.trim(text))
    sections = [
        (h[1], text[h.end() : following.start() if following else len(text)])
        for h, following in zip(headings, [*headings[1:], None], strict=True)
    ]
    lead = dates.trim(text[: headings[0].start()])
    if lead:
        sections.insert(0, (None, lead))
    out: list[str] = []
    for number, (name, raw) in enumerate(sections):
        body = dates.trim("\n".join(line for line in raw.split("\n") if not _RANGE_LINE.match(dates.trim(line))))
        lines = _lines(body)
        kept = [r for r, known in groups if lines & known] or [groups[min(number, len(groups) - 1)][0]]
        out.append(_wrap(name or f"derived-group-{number + 1}", _union(kept), body))
    return "\n\n".join(out)


def _lines(text: str) -> set[str]:
    return {t for line in text.split("\n") if (t := dates.trim(line))}


def _union(ranges: list[str]) -> str:
    pieces = [p for r in ranges for p in r.split(",") if p]
    return f"{pieces[0].split(':')[0]}:{pieces[-1].split(':')[-1]}" if pieces else ""


def _wrap(identifier: str, span: str, body: str) -> str:
    head = f'<observation-group id="{identifier}" range="{span}" kind="reflection">'
    return f"{head}\n{body}\n</observation-group>"
