"""Mark words of log lines that newer lines replace; stored text never changes.

The metadata of the newer line has the replaced words of the older one. Reflections repeat marks and notes in the same
form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.core.types import Json

KEY = "replaces"  # key in a line's metadata: a list of {"text", "date", "time"}
NOTE_LIMIT = 60  # characters of replaced words that a newer line repeats
MARK = lazy_pattern(r" ?\[earlier; see (?P<when>[^\[\]\n]{1,60})\]")
NOTE = lazy_pattern(r" ?\[replaces (?P<when>[^\[\]\n:]{1,40}(?::\d\d)?): (?P<text>[^\[\]\n]{1,200})\]")
_YEAR = lazy_pattern(r",?\s+\d{4}$")


class Earlier(Struct, frozen=True):
    """`text` of a line replaced by a newer line of that date and time."""

    text: str
    date: str
    time: str


class MarkRow(Struct, frozen=True):
    """Fields of a line that determine marks; `dead`: it is ignored."""

    id: str
    content: str
    date: str
    time: str
    metadata: Json
    dead: bool = False


def remove_marks(text: str) -> str:
    """Remove marks and notes from a text."""
    return NOTE.sub("", MARK.sub("", text))


def format_moment(date: str, time: str, seen_from: str) -> str:
    """Format a moment as seen from a line of the date `seen_from`: "12:29", "Jan 16, 12:29"."""
    day = "" if date == seen_from else _YEAR.sub("", date)
    return ", ".join(p for p in (day, time) if p) or "below"


def format_mark(date: str, time: str, seen_from: str) -> str:
    """Format the mark after replaced words."""
    return f" [earlier; see {format_moment(date, time, seen_from)}]"


def format_note(replaced: Earlier, seen_from: str) -> str:
    """Format the note of a newer line about the words it replaces.

    `replaced` has the older line's date and time.
    """
    words = " ".join(replaced.text.translate({ord("["): "(", ord("]"): ")"}).split())
    short = words if len(words) <= NOTE_LIMIT else words[: NOTE_LIMIT - 1].rstrip() + "…"
    return f" [replaces {format_moment(replaced.date, replaced.time, seen_from)}: {short}]"


def add_marks(content: str, earlier: Iterable[Earlier], date: str) -> str:
    """Return a line's text with one mark behind each replaced part."""
    plain = MARK.sub("", content)
    ends = ((find_end(plain, one.text), format_mark(one.date, one.time, date)) for one in earlier)
    return insert_marks(content, {end: words for end, words in ends if end is not None})


def find_end(content: str, text: str) -> int | None:
    """Return the offset in a line at which the words of `text` end; None if it lacks them."""
    match = re.search(re.escape(text), content, re.IGNORECASE) if text else None
    note_at = NOTE.search(content)
    if match is None or (note_at is not None and match.start() > note_at.start()):
        return None
    return match.end()


def insert_marks(text: str, marks: Mapping[int, str]) -> str:
    """Insert marks into a text at offsets that ignore existing marks, never two at one place."""
    moved: list[tuple[int, str]] = []
    for end, words in marks.items():
        at = end
        for mark in MARK.finditer(text):
            if mark.start() >= at:
                break
            at += len(mark[0])
        if not MARK.match(text, at):
            moved.append((at, words))
    for at, words in sorted(moved, reverse=True):
        text = text[:at] + words + text[at:]
    return text


def find_replacements(rows: Sequence[MarkRow]) -> dict[str, tuple[Earlier, ...]]:
    """Find the words of each row (in the log's order) replaced by later rows, by the row's id."""
    out: dict[str, tuple[Earlier, ...]] = {}
    plain = [MARK.sub("", row.content) for row in rows]
    folded = [text.casefold() for text in plain]
    for number, newer in enumerate(rows):
        for one in () if newer.dead else newer.metadata.get(KEY, ()):
            entry, words = Earlier(one["text"], newer.date, newer.time), one["text"].casefold()
            for n in range(number):
                if words in folded[n] and find_end(plain[n], entry.text) is not None:
                    out[rows[n].id] = _with_entry(out.get(rows[n].id, ()), entry)
    return out


def _with_entry(earlier: Iterable[Earlier], entry: Earlier) -> tuple[Earlier, ...]:
    """Return what replaces a row with a newer entry in the place of one with the same text."""
    return (*(e for e in earlier if e.text != entry.text), entry)
