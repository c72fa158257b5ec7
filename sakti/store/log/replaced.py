"""What newer lines of a log replace: marks that are computed from the stored rows, so that no older text changes.

A newer line keeps in its metadata what it replaces, by the words that stand in the older line. Marks and notes also
stand in texts that were written later than both, in the same form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sakti.core.types import Json

KEY = "replaces"  # of a line's metadata: a list of {"text", "date", "time"}
NOTED = 100  # characters of what is replaced that a newer line repeats
MARK = re.compile(r" ?\[earlier; see [^\[\]\n]{1,60}\]")
NOTE = re.compile(r" ?\[replaces (?P<when>[^\[\]\n:]{1,40}(?::\d\d)?): (?P<text>[^\[\]\n]{1,200})\]")
_YEAR = re.compile(r",?\s+\d{4}$")


@dataclass(frozen=True, slots=True)
class Earlier:
    """`text` of a line holds no more since a newer one, of that date and time."""

    text: str
    date: str
    time: str


@dataclass(frozen=True, slots=True)
class Row:
    """What of a line decides about marks; `dead`: it counts no more."""

    id: str
    content: str
    date: str
    time: str
    metadata: Json
    dead: bool = False


def unmarked(text: str) -> str:
    """A text without marks and notes."""
    return NOTE.sub("", MARK.sub("", text))


def when(date: str, time: str, seen_from: str) -> str:
    """A moment as a line of the date `seen_from` names it: "12:29", "Jan 16, 12:29"."""
    day = "" if date == seen_from else _YEAR.sub("", date)
    return ", ".join(p for p in (day, time) if p) or "below"


def mark(date: str, time: str, seen_from: str) -> str:
    """What stands behind words that hold no more."""
    return f" [earlier; see {when(date, time, seen_from)}]"


def note(replaced: Earlier, seen_from: str) -> str:
    """What a newer line says of the words it replaces; `replaced` with the older line's date and time."""
    words = " ".join(replaced.text.translate({ord("["): "(", ord("]"): ")"}).split())
    short = words if len(words) <= NOTED else words[: NOTED - 1].rstrip() + "…"
    return f" [replaces {when(replaced.date, replaced.time, seen_from)}: {short}]"


def with_marks(content: str, earlier: Iterable[Earlier], date: str) -> str:
    """A line's text with a mark behind each part that holds no more; once where several newer lines say so."""
    plain = MARK.sub("", content)
    ends = ((place(plain, one.text), mark(one.date, one.time, date)) for one in earlier)
    return insert(content, {end: words for end, words in ends if end is not None})


def place(content: str, text: str) -> int | None:
    """Where in a line the words of `text` end; None where they do not stand there."""
    found = re.search(re.escape(text), content, re.IGNORECASE) if text else None
    note_at = NOTE.search(content)
    if found is None or (note_at is not None and found.start() > note_at.start()):
        return None
    return found.end()


def insert(text: str, marks: Mapping[int, str]) -> str:
    """A text with marks behind some places of it, which are counted as if no mark stood in it yet; where one stands, it
    stays alone."""
    moved: list[tuple[int, str]] = []
    for end, words in marks.items():
        at = end
        for known in MARK.finditer(text):
            if known.start() >= at:
                break
            at += len(known[0])
        if not MARK.match(text, at):
            moved.append((at, words))
    for at, words in sorted(moved, reverse=True):
        text = text[:at] + words + text[at:]
    return text


def found(rows: Sequence[Row]) -> dict[str, tuple[Earlier, ...]]:
    """What of each row (in the log's order) a later one replaces, by the row's id."""
    out: dict[str, tuple[Earlier, ...]] = {}
    plain = [MARK.sub("", row.content) for row in rows]
    folded = [text.casefold() for text in plain]
    for number, newer in enumerate(rows):
        for one in () if newer.dead else newer.metadata.get(KEY, ()):
            words = one["text"].casefold()
            for n in (n for n in range(number) if words in folded[n]):
                if place(plain[n], one["text"]) is not None:
                    known = out.get(rows[n].id, ())
                    said = Earlier(one["text"], newer.date, newer.time)
                    out[rows[n].id] = (*(e for e in known if e.text != said.text), said)
    return out
