"""Mark what new lines of a log replace: noted on the new line, marked on the old one wherever it is rewritten.

The text of older groups stays byte for byte the same. When they are shown, marks are added from the stored rows (see
`store.log.replaced`); a reflection rewrites its lines and marks them in its text.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct, field

from sakti.core.types import Json
from sakti.memory.log import lines
from sakti.memory.statements.reading import figures, read
from sakti.memory.statements.superseding import Heard, replaced
from sakti.memory.statements.units import Speaker, Unit, speaker, units
from sakti.store.log.lines import LogLine
from sakti.store.log.replaced import KEY, MARK, Earlier, insert, mark, note, unmarked, with_marks

REMEMBERED = 1_500  # lines of the log that new ones are compared with at least, the newest


class _Line(Struct, frozen=True):
    content: str
    date: str
    time: str
    priority: str
    new: int  # its number among the new lines; -1 for one that is stored


class Marked(Struct):
    """Text of a new group, and the metadata for its lines, by number."""

    text: str
    metadata: dict[int, Json] = field(default_factory=dict[int, Json])


def mark_new(text: str, before: Sequence[LogLine], remembered: Remembered | None = None) -> Marked:
    """Add notes and marks to new observations.

    A line notes what it replaces in the log before it; what it replaces among the new lines is marked. Marks and
    notes that the model wrote are removed: only this function writes them. `remembered`: the log as it was read for
    the observations before.
    """
    text = unmarked(text)
    new = list(lines.rows(text))
    changes: dict[int, str] = {}
    out = Marked(text)
    said: dict[int, list[Earlier]] = {}
    marks: dict[int, dict[int, str]] = {}
    with (remembered or Remembered()).reading(before) as (stored, heard):
        for number, row in enumerate(new):
            stored.add(_Line(row.content, row.date, row.time, row.priority, number))
        replacements = list(_replaced(stored, heard))
    for old, words, end, newer in replacements:
        if old.new >= 0:
            marks.setdefault(old.new, {})[end] = mark(newer.date, newer.time, old.date)
        else:
            said.setdefault(newer.new, []).append(Earlier(words, old.date, old.time))
    for number, row in enumerate(new):
        content = insert(row.content, marks.get(number, {}))
        for one in _once(said.get(number, ())):
            content += note(one, row.date)
            out.metadata.setdefault(number, {KEY: []})[KEY].append(
                {"text": one.text, "date": one.date, "time": one.time}
            )
        if content != row.content:
            changes[row.line] = content
    out.text = lines.corrected(text, changes) if changes else text
    return out


class _Said(Struct):
    """Statements of a log in order.

    `echoes`: what the agent says after the user, and where the user began to; `asked`: the figures that the user named
    since the message `began`.
    """

    statements: list[tuple[_Line, Unit, Speaker]] = field(default_factory=list[tuple[_Line, Unit, Speaker]])
    echoes: dict[int, int] = field(default_factory=dict[int, int])
    asked: frozenset[str] = frozenset()
    began: int = 0

    def add(self, line: _Line) -> None:
        statements = self.statements
        who = speaker(line.content, line.priority)
        if line.content.startswith("User") and not (statements and _one_message(statements[-1], line, who)):
            self.asked, self.began = frozenset(), len(statements)
        for unit in units(line.content) if who else ():
            if who == "user":
                self.asked |= figures(unit.text)
            elif (said := figures(unit.text)) and said <= self.asked:
                self.echoes[len(statements)] = self.began
            statements.append((line, unit, who))


class Remembered:
    """Stored lines of a log, parsed once: the next observation finds them as they were and reads what is new."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first = 0  # of the stored lines, the first that is remembered
        self._lines: list[tuple[str, str]] = []
        self._said, self._heard = _Said(), Heard()

    @contextmanager
    def reading(self, before: Sequence[LogLine]) -> Generator[tuple[_Said, Heard]]:
        """Yield what the log says, to add to, and the index of that, for the time of the block."""
        stored = [x for x in before if not x.forgotten and x.depth == 0 and x.priority != "low"]
        with self._lock:
            self._read(stored)
            said = self._said
            yield _Said(said.statements.copy(), said.echoes.copy(), said.asked, said.began), self._heard

    def _read(self, stored: Sequence[LogLine]) -> None:
        known = [(x.id, x.content) for x in stored[self._first :]]
        same = bool(self._lines) and known[: len(self._lines)] == self._lines
        if not same or len(known) > 2 * REMEMBERED:
            self._first = max(0, len(stored) - REMEMBERED)
            known = [(x.id, x.content) for x in stored[self._first :]]
            self._lines, self._said, self._heard = [], _Said(), Heard()
        for line in stored[self._first + len(self._lines) :]:
            self._said.add(_Line(unmarked(line.content), line.date, line.time, line.priority, -1))
        for _, unit, _ in self._said.statements[self._heard.places :]:
            self._heard.add(read(unit.text))
        self._lines = known


def _replaced(said: _Said, heard: Heard) -> Iterator[tuple[_Line, str, int, _Line]]:
    """Yield (older line, its replaced words, their end offset, newer line)."""
    statements, echoes = said.statements, said.echoes

    def may(old: int, new: int) -> bool:  # the agent does not take back what the user says, but may say it again
        earlier, later = statements[old][2], statements[new][2]
        return later == "user" or earlier == "agent" or old < echoes.get(new, 0)

    def follows(place: int) -> bool:
        (line, _, who) = statements[place]
        if place == 0 or who != "user":
            return False
        before = statements[place - 1]
        return before[0] is line or (line.content.startswith("User") and _one_message(before, line, who))

    texts = [unit.text for _, unit, _ in statements]
    for one in replaced(texts, since=heard.places, may=may, follows=follows, heard=heard):
        (old, unit, _), (newer, _, _) = statements[one.old], statements[one.new]
        words = unit.text[one.start : one.end].strip()
        if words and old.priority != "done":
            yield old, words, unit.start + one.end, newer


def _one_message(before: tuple[_Line, Unit, Speaker], line: _Line, who: Speaker) -> bool:
    """Return whether a line continues what the same speaker said in the same minute."""
    return who == before[2] and (line.date, line.time) == (before[0].date, before[0].time)


def _once(found: Iterable[Earlier]) -> list[Earlier]:
    """Return the same words once, the newest of them, though several lines had them."""
    newest_last = reversed(list(found))
    return list({one.text.casefold(): one for one in newest_last}.values())


# --- what is written anew -----------------------------------------------------------------------------------


class Known(Struct, frozen=True):
    """Words of the log that a line (`by`) of that date and time replaces."""

    text: str
    by: str
    date: str
    time: str


def known(log: Iterable[LogLine]) -> list[Known]:
    """Return what stored lines replace, from their metadata."""
    return [
        Known(str(one["text"]), unmarked(x.content), x.date, x.time)
        for x in log
        if not x.forgotten
        for one in x.metadata.get(KEY, ())
    ]


def mark_known(text: str, replaced_words: Sequence[Known], pinned: frozenset[str]) -> str:
    """Mark replaced words that a reflection's text still contains.

    Lines after the replacing line are newer and stay. `pinned` contents stay word for word.
    """
    changes: dict[int, str] = {}
    rows = list(lines.rows(text))
    said = {unmarked(r.content): r.line for r in rows}
    folded = [(k, k.text.casefold()) for k in replaced_words]
    for row in rows:
        low = MARK.sub("", row.content).casefold()
        older = [k for k, words in folded if words in low and row.line < said.get(k.by, len(rows))]
        earlier = [Earlier(k.text, k.date, k.time) for k in older]
        content = with_marks(row.content, earlier, row.date) if row.content not in pinned else row.content
        if content != row.content:
            changes[row.line] = content
    return lines.corrected(text, changes) if changes else text
