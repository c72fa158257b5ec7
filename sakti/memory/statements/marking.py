"""Note on new lines which older lines they replace, and mark those in rewritten texts.

The text of older groups never changes. When they are shown, marks are added from the stored rows (see
`store.log.replacements`); a reflection rewrites its lines and marks them in its text.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from sakti.core.types import Json
from sakti.memory.log import lines
from sakti.memory.statements.sentences import classify_agent_sentence, find_speaker, is_request, iter_units
from sakti.memory.statements.superseding import Statement, StatementIndex, find_ended_parts, is_cancelled
from sakti.store.log.lines import LogLine
from sakti.store.log.replacements import KEY, MARK, Earlier, add_marks, format_note, remove_marks

REMEMBERED = 1_500  # least number of the newest log lines that new ones are compared with
NOTED = 8  # most older lines that a new one names, the newest: it may make several statements

Named = Mapping[str, Sequence[Earlier]]  # by a new line's content: the lines that it replaces according to a model


class Marked(Struct):
    """Text of a new group, and the metadata for its lines, by number."""

    text: str
    metadata: dict[int, Json] = field(default_factory=dict[int, Json])


class _MarkedLine(Struct, frozen=True):
    content: str
    date: str
    time: str
    priority: str


class _Index:
    """User's statements of log lines, parsed once."""

    def __init__(self) -> None:
        self._statements = StatementIndex()
        self._lines: list[_MarkedLine] = []
        self.replaced: set[Earlier] = set()

    def add(self, line: _MarkedLine) -> list[Statement]:
        """Index the statements of a line and return them; none for the agent's words and work."""
        if line.priority == "low" or find_speaker(line.content, line.priority) != "user":
            return []
        out: list[Statement] = []
        for unit in iter_units(line.content):
            out.append(self._statements.add(unit.text, asked=is_request(line.content)))
            self._lines.append(line)
        return out

    def ended_by(self, new: Statement) -> Iterator[Earlier]:
        """Yield the statements replaced by a new one."""
        for old in self._statements.sharing(new) if new.can_end else ():
            line = self._lines[old.place]
            for span in find_ended_parts(old, new) if line.priority != "done" else ():
                yield Earlier(old.text[slice(*span)].strip(), line.date, line.time)


class Remembered:
    """Cached statements of the log's stored lines; the next observation only parses new lines."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._first = 0  # index of the first cached line
        self._lines: list[tuple[str, str]] = []
        self._index = _Index()

    def read(self, before: Sequence[LogLine]) -> _Index:
        """Return the index of the newest lines; anything but a longer log is parsed again."""
        stored = [x for x in before if not x.forgotten and x.depth == 0]
        ids = [(x.id, x.content) for x in stored[self._first :]]
        is_grown = bool(self._lines) and ids[: len(self._lines)] == self._lines
        if not is_grown or len(ids) > 2 * REMEMBERED:
            self._first = max(0, len(stored) - REMEMBERED)
            ids = [(x.id, x.content) for x in stored[self._first :]]
            self._lines, self._index = [], _Index()
        for line in stored[self._first + len(self._lines) :]:
            self._index.add(_MarkedLine(remove_marks(line.content), line.date, line.time, line.priority))
            self._index.replaced |= {Earlier(x["text"], x["date"], x["time"]) for x in line.metadata.get(KEY, ())}
        self._lines = ids
        return self._index


def mark_new(
    text: str, before: Sequence[LogLine], remembered: Remembered | None = None, named: Named | None = None
) -> Marked:
    """Note on new observations which older statements they replace, also in their lines' metadata.

    `named`: the replaced lines according to a model, checked against the log `before`; None: explicit changes are
    searched. `remembered`: cached statements of the log. Existing notes are removed: only this function writes them.
    """
    text = remove_marks(text)
    rows = list(lines.iter_rows(text))
    if named is not None:
        replaced = _resolve_named_lines(rows, before, named)
    else:
        remembered = remembered or Remembered()
        with remembered.lock:
            replaced = _find_explicit_changes(rows, remembered.read(before))
    if not replaced:
        return Marked(text)
    out, changes = Marked(text), dict[int, str]()
    for number, earlier in replaced.items():
        row, once = rows[number], _select_newest(earlier)
        changes[row.line] = row.content + "".join(format_note(one, row.date) for one in once)
        out.metadata[number] = {KEY: [{"text": x.text, "date": x.date, "time": x.time} for x in once]}
    important = [x for x in (*before, *rows) if x.priority == "high"]
    raised = [n for n, earlier in replaced.items() if rows[n].priority == "medium" and _ends_any(earlier, important)]
    out.text = lines.with_high_priority(lines.apply_corrections(text, changes), raised)
    return out


def _ends_any(earlier: Iterable[Earlier], important: Sequence[LogLine | lines.LogRow]) -> bool:
    """Return whether one of these texts is part of an important line; so its replacement is important."""
    return any(
        (e.date, e.time) == (x.date, x.time) and e.text in remove_marks(x.content) for e in earlier for x in important
    )


def _find_explicit_changes(rows: Sequence[lines.LogRow], stored: _Index) -> dict[int, list[Earlier]]:
    """Return which older lines, stored or new, the new ones replace by an explicit change."""
    out: dict[int, list[Earlier]] = {}
    fresh, replaced = _Index(), stored.replaced.copy()
    for number, row in enumerate(rows):
        if row.depth > 0:
            continue
        line = _MarkedLine(row.content, row.date, row.time, row.priority)
        new = _Index().add(line)
        ended = (e for one in new for e in itertools.chain(stored.ended_by(one), fresh.ended_by(one)))
        if earlier := [e for e in ended if e not in replaced]:
            out[number] = earlier
            replaced.update(earlier)
        fresh.add(line)
    return out


def _resolve_named_lines(
    rows: Sequence[lines.LogRow], before: Sequence[LogLine], named: Named
) -> dict[int, list[Earlier]]:
    """Return the older lines named by a model, if they are in the log and may be replaced."""
    older = {Earlier(remove_marks(x.content), x.date, x.time): x for x in before if not x.forgotten}
    out: dict[int, list[Earlier]] = {}
    for number, row in enumerate(rows):
        replaced = [e for e in named.get(row.content, ()) if e in older and _may_replace(row.content, older[e])]
        if replaced:
            out[number] = replaced
    return out


def _may_replace(content: str, line: LogLine) -> bool:
    """Return whether a new line may replace an older one.

    The agent's reports of its work stay, and so do requests that the new line does not cancel.
    """
    if line.priority == "done" or line.content == content:
        return False
    if is_request(line.content) and not is_cancelled(content):
        return False
    return find_speaker(line.content, line.priority) != "agent" or classify_agent_sentence(line.content) != "work"


def _select_newest(earlier: Iterable[Earlier]) -> list[Earlier]:
    """Return a few of the older statements, given newest first, without duplicates."""
    by_words: dict[str, Earlier] = {}
    for one in earlier:
        by_words.setdefault(one.text.casefold(), one)
    return list(by_words.values())[:NOTED]


# --- rewritten texts ----------------------------------------------------------------------------------------


class ReplacedWords(Struct, frozen=True):
    """Words of the log replaced by a line (`by`) of that date and time."""

    text: str
    by: str
    date: str
    time: str


def list_replaced_words(log: Iterable[LogLine]) -> list[ReplacedWords]:
    """Return the words replaced by stored lines, from their metadata."""
    return [
        ReplacedWords(str(one["text"]), remove_marks(x.content), x.date, x.time)
        for x in log
        if not x.forgotten
        for one in x.metadata.get(KEY, ())
    ]


def mark_replaced(text: str, replaced: Sequence[ReplacedWords], pinned: frozenset[str]) -> str:
    """Mark replaced words that are still in a reflection's text.

    Lines after the replacing line are newer and stay. `pinned` contents stay word for word.
    """
    changes: dict[int, str] = {}
    rows = list(lines.iter_rows(text))
    position = {remove_marks(r.content): r.line for r in rows}
    folded = [(one, one.text.casefold()) for one in replaced]
    for row in (row for row in rows if row.content not in pinned):
        low = MARK.sub("", row.content).casefold()
        older = [one for one, words in folded if words in low and row.line < position.get(one.by, len(rows))]
        content = add_marks(row.content, (Earlier(one.text, one.date, one.time) for one in older), row.date)
        if content != row.content:
            changes[row.line] = content
    return lines.apply_corrections(text, changes) if changes else text
