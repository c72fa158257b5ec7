"""Mark what new lines of a log replace: noted on the new line, marked on the old one wherever it is rewritten.

The text of older groups stays byte for byte the same. When they are shown, marks are added from the stored rows (see
`store.log.replaced`); a reflection rewrites its lines and marks them in its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sakti.core.types import Json
from sakti.memory.log import lines
from sakti.memory.statements.reading import figures
from sakti.memory.statements.superseding import replaced
from sakti.memory.statements.units import Speaker, Unit, speaker, units
from sakti.store.log.lines import LogLine
from sakti.store.log.replaced import KEY, Earlier, insert, mark, note, unmarked, with_marks

REMEMBERED = 1_500  # lines of the log that new ones are compared with, the newest


@dataclass(frozen=True, slots=True)
class _Line:
    content: str
    date: str
    time: str
    priority: str
    new: int  # its number among the new lines; -1 for one that is stored


@dataclass(slots=True)
class Marked:
    """Text of a new group, and the metadata for its lines, by number."""

    text: str
    metadata: dict[int, Json] = field(default_factory=dict[int, Json])


def mark_new(text: str, before: Sequence[LogLine]) -> Marked:
    """Add notes and marks to new observations.

    A line notes what it replaces in the log before it; what it replaces among the new lines is marked. Marks and
    notes that the model wrote are removed: only this function writes them.
    """
    text = unmarked(text)
    new = list(lines.rows(text))
    stored = [x for x in before if not x.forgotten and x.depth == 0 and x.priority != "low"][-REMEMBERED:]
    log = [
        *(_Line(unmarked(x.content), x.date, x.time, x.priority, -1) for x in stored),
        *(_Line(r.content, r.date, r.time, r.priority, n) for n, r in enumerate(new)),
    ]
    changes: dict[int, str] = {}
    out = Marked(text)
    said: dict[int, list[Earlier]] = {}
    marks: dict[int, dict[int, str]] = {}
    for old, words, end, newer in _replaced(log):
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


def _replaced(log: Sequence[_Line]) -> Iterator[tuple[_Line, str, int, _Line]]:
    """Yield (older line, its replaced words, their end offset, newer line)."""
    statements: list[tuple[_Line, Unit, Speaker]] = []
    echoes: dict[int, int] = {}  # what the agent says after the user, and where the user began to
    asked: frozenset[str] = frozenset()
    began = 0
    for line in log:
        who = speaker(line.content, line.priority)
        if line.content.startswith("User") and not (statements and _one_message(statements[-1], line, who)):
            asked, began = frozenset[str](), len(statements)
        for unit in units(line.content) if who else ():
            if who == "user":
                asked |= figures(unit.text)
            elif (said := figures(unit.text)) and said <= asked:
                echoes[len(statements)] = began
            statements.append((line, unit, who))
    first = next((n for n, (line, _, _) in enumerate(statements) if line.new >= 0), len(statements))
    whose = [who for _, _, who in statements]

    def may(old: int, new: int) -> bool:  # the agent does not take back what the user says, but may say it again
        return whose[new] == "user" or whose[old] == "agent" or old < echoes.get(new, 0)

    def follows(place: int) -> bool:
        (line, _, who) = statements[place]
        if place == 0 or who != "user":
            return False
        before = statements[place - 1]
        return before[0] is line or (line.content.startswith("User") and _one_message(before, line, who))

    texts = [unit.text for _, unit, _ in statements]
    for one in replaced(texts, since=first, may=may, follows=follows):
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


@dataclass(frozen=True, slots=True)
class Known:
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
    for row in rows:
        older = [k for k in replaced_words if row.line < said.get(k.by, len(rows))]
        earlier = [Earlier(k.text, k.date, k.time) for k in older]
        content = with_marks(row.content, earlier, row.date) if row.content not in pinned else row.content
        if content != row.content:
            changes[row.line] = content
    return lines.corrected(text, changes) if changes else text
