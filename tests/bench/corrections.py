"""Correct single lines of a log as the user does, and check the lines afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct, structs

from sakti.store.log.corrections import SAME_SHARE
from sakti.store.log.replacements import remove_marks
from tests.bench.invariants import Finding
from tests.bench.raw_rows import LineRow
from tests.bench.script import CommandName
from tests.bench.snapshot import Snapshot

ACTS: tuple[CommandName, ...] = ("pin", "unpin", "edit", "forget", "uncorrect")


class Wanted(Struct, frozen=True):
    """Correction that a window was told to make."""

    line_id: str
    text: str = ""


class Corrections:
    """History of all corrections of a replay, with its own undo."""

    def __init__(self) -> None:
        self.wanted: dict[int, Wanted] = {}
        self._done: list[dict[str, LineRow]] = []  # what the lines of each were before

    def check(self, window: int, name: str, before: Snapshot, after: Snapshot) -> Iterator[Finding]:
        """Check 11: a commit changes the lines that it should, and no other; other commits change none."""
        old, new = _lines(before), _lines(after)
        changed = {i: row for i, row in new.items() if i in old and old[i] != row}
        if name not in ACTS:
            if changed:
                yield 11, f"{len(changed)} lines of the log were changed, which nobody asked for"
            return
        due = self._taken_back(before) if name == "uncorrect" else self._made(window, name, before, old)
        for line_id in sorted(changed.keys() | due.keys()):
            if new.get(line_id) != due.get(line_id, old.get(line_id)):
                yield 11, f"after {name} a line is not as it should be: {old[line_id].shown[:50]!r}"

    def _made(self, window: int, name: str, before: Snapshot, old: Mapping[str, LineRow]) -> dict[str, LineRow]:
        wanted = self.wanted[window]
        line = old[wanted.line_id]
        match name:
            case "pin" | "unpin":
                due = [structs.replace(line, pinned=name == "pin")]
            case "edit":
                due = [structs.replace(line, edited=" ".join(wanted.text.split()))]
            case _:
                due = [structs.replace(one, forgotten=True) for one in (line, *_nested(before, line))]
                due += [structs.replace(one, forgotten=True) for one in _merged_copies(before, line)]
        made = {one.id: one for one in due}
        self._done.append({i: old[i] for i in made})
        return made

    def _taken_back(self, before: Snapshot) -> dict[str, LineRow]:
        """Undo the newest correction of active or buffered lines; return the lines as they must be."""
        usable = {r.id for g, rows in before.lines.items() for r in rows if _in_use(before, g)}
        for number in reversed(range(len(self._done))):
            if usable & self._done[number].keys():
                return self._done.pop(number)
        return {}


def _in_use(now: Snapshot, group_id: str) -> bool:
    return now.groups[group_id].state in ("active", "buffered")


def _lines(now: Snapshot) -> dict[str, LineRow]:
    return {row.id: row for rows in now.lines.values() for row in rows}


def _merged_copies(now: Snapshot, line: LineRow) -> Iterator[LineRow]:
    """Yield the lines that say the same in groups that a reflection merged, each with what is nested below it."""
    words = _words(line)
    for group_id in _merged(now, line.group_id):
        for row in now.lines.get(group_id, ()):
            line_words = _words(row)
            if line_words and len(line_words & words) >= SAME_SHARE * len(line_words):
                yield row
                yield from _nested(now, row)


def _merged(now: Snapshot, group_id: str) -> set[str]:
    """Return the groups that a reflection was made from, through all generations."""
    sources = now.groups[group_id].merged_group_ids if group_id in now.groups else ()
    return set(sources).union(*(_merged(now, i) for i in sources))


def _words(row: LineRow) -> set[str]:
    return set(re.findall(r"\w+", remove_marks(row.shown).casefold()))


def _nested(now: Snapshot, line: LineRow) -> Iterator[LineRow]:
    rows = now.lines[line.group_id]
    for row in rows[rows.index(line) + 1 :]:
        if row.depth <= line.depth:
            return
        if not row.forgotten:
            yield row
