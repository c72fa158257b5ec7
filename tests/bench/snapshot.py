"""Represent a memory at one moment, as stored, and what was really said in its threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct, field, structs

from sakti.core.types import Message
from sakti.store.connection import Database
from tests.bench import oracle, raw_rows
from tests.bench.raw_rows import GroupRow, LineRow, RecordRow

Spans: TypeAlias = tuple[tuple[str, int, int], ...]  # (thread, first, last index), one a thread


class Ledger:
    """Record of what was said, by thread.

    `words`: the meaning of each word that a line of the log may contain.
    """

    def __init__(self) -> None:
        self._said: dict[str, list[Message]] = {}
        self._first: dict[str, int] = {}
        self._results: dict[str, tuple[str, int]] = {}  # of a call: where its result stands
        self.words: dict[str, str] = {}

    def begin(self, thread_id: str, first: int = 0) -> None:
        """Follow a thread from index `first` on."""
        self._said.setdefault(thread_id, [])
        self._first.setdefault(thread_id, first)

    def add(self, message: Message) -> None:
        said, first = self._said[message.thread_id], self._first[message.thread_id]
        if message.index < first + len(said):
            return
        said.append(message)
        self._results |= {r.call_id: (message.thread_id, message.index) for r in message.tool_results}
        self.words[oracle.tag(message)] = f"{message.thread_id} {message.index}"

    def change(self, thread_id: str, ids: set[str], **values: object) -> None:
        """Change some messages: another state, other parts."""
        said = self._said[thread_id]
        said[:] = [structs.replace(m, **values) if m.id in ids else m for m in said]  # pyright: ignore[reportArgumentType]

    def threads(self) -> list[str]:
        return list(self._said)

    def said(self, thread_id: str) -> Sequence[Message]:
        return self._said.get(thread_id, ())

    def newest(self, thread_id: str) -> int:
        return self._first[thread_id] + len(self._said[thread_id]) - 1

    def after(self, thread_id: str, index: int) -> Sequence[Message]:
        """Return the messages after an index; those before this ledger begins are left out."""
        return self._said[thread_id][max(0, index + 1 - self._first[thread_id]) :]

    def between(self, thread_id: str, first: int, last: int) -> Sequence[Message]:
        start = self._first[thread_id]
        return self._said[thread_id][max(0, first - start) : max(0, last + 1 - start)]

    def missing(self, thread_id: str, first: int, last: int) -> list[int]:
        """Return the indexes in a range that must be covered: all that were not withheld."""
        before = range(first, min(last + 1, self._first.get(thread_id, 0)))
        return [*before, *(m.index for m in self.between(thread_id, first, last) if m.state != "withheld")]

    def result(self, call_id: str) -> tuple[str, int] | None:
        return self._results.get(call_id)

    def knows(self, thread_id: str, first: int) -> bool:
        """Return whether a range that begins there is all in this ledger."""
        return first >= self._first.get(thread_id, 0)


class Snapshot(Struct, frozen=True, dict=True):
    """One record of memory; `groups` and `lines` in the order of creation.

    `window` wrote it last; `log` is the number of the newest snapshot in which log or cursors differ from the one
    before.
    """

    number: int
    record: RecordRow
    groups: Mapping[str, GroupRow]
    lines: Mapping[str, Sequence[LineRow]]
    cursors: Mapping[str, int]
    compactions: tuple[str, ...] = ()
    window: int | None = None
    log: int = 0
    known_words: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    @cached_property
    def active(self) -> list[GroupRow]:
        found = [g for g in self.groups.values() if g.state == "active"]
        return sorted(found, key=lambda g: g.kind == "observation")

    def buffered(self, thread_id: str) -> list[GroupRow]:
        """Return the buffered observations of a thread, by position."""
        found = [
            g
            for g in self.groups.values()
            if g.state == "buffered" and g.kind == "observation" and g.thread_id == thread_id
        ]
        return sorted(found, key=lambda g: g.first_index or 0)

    def waiting_reflections(self) -> list[GroupRow]:
        return [g for g in self.groups.values() if g.kind == "reflection" and g.state == "buffered"]

    def stale(self, reflection: GroupRow) -> bool:
        """Return whether a source of the reflection is no longer in the log."""
        return any(i not in self.groups or self.groups[i].state != "active" for i in reflection.merged_group_ids)

    @cached_property
    def live(self) -> list[GroupRow]:
        """Return the observations that the log covers: in it, or merged into what is."""
        return [g for g in self.standing if g.kind == "observation"]

    @cached_property
    def standing(self) -> list[GroupRow]:
        """Return the groups in the log, and all that were merged into them."""
        return [g for one in self.active for g in self._merged(one)]

    def _merged(self, group: GroupRow) -> Iterator[GroupRow]:
        yield group
        for merged in group.merged_group_ids:
            if merged in self.groups:
                yield from self._merged(self.groups[merged])

    def cursor(self, thread_id: str) -> int:
        return self.cursors.get(thread_id, -1)

    def shown(self, group: GroupRow) -> list[str]:
        """Return the lines of a group with corrections."""
        return [line.shown for line in self.lines[group.id] if line.shown]

    def words(self, group: GroupRow, ledger: Ledger) -> list[str]:
        """Return the words of a group as the log has it now, in order."""
        found = self.known_words.get(group.id)
        if found is None:
            text = "\n".join(self.shown(group)) if group.id in self.lines else group.text
            found = self.known_words[group.id] = oracle.words(text, ledger.words)
        return found

    def parts(self, group: GroupRow, ledger: Ledger) -> list[tuple[list[str], Spans]]:
        """Return the words of each section of a group as the log has it now, with the messages that it covers."""
        if not group.sections:
            there = group.first_index is not None and group.last_index is not None
            own = ((group.thread_id, group.first_index or 0, group.last_index or 0),) if there else ()
            return [(self.words(group, ledger), own)]
        out: list[tuple[list[str], Spans]] = []
        rest = self.lines[group.id]
        for section in group.sections:
            out.append(
                (oracle.words("\n".join(line.shown for line in rest[: section.lines]), ledger.words), section.spans)
            )
            rest = rest[section.lines :]
        return out

    def pending(self, thread_id: str, ledger: Ledger) -> int:
        """Return the tokens of the messages after the cursor that were not withheld."""
        return sum(m.tokens for m in ledger.after(thread_id, self.cursor(thread_id)) if m.state != "withheld")

    def ready(self, thread_id: str, ledger: Ledger) -> list[GroupRow]:
        """Return the groups that could be activated now: right behind the cursor, without a gap."""
        out: list[GroupRow] = []
        last = self.cursor(thread_id)
        for group in self.buffered(thread_id):
            first = group.first_index or 0
            if first <= last or ledger.missing(thread_id, last + 1, first - 1):
                break
            out.append(group)
            last = group.last_index or 0
        return out

    def uncovered(self, thread_id: str, ledger: Ledger) -> list[Message]:
        """Return the first messages that no group covers, up to one that may not be observed yet."""
        ready = self.ready(thread_id, ledger)
        last = (ready[-1].last_index or 0) if ready else self.cursor(thread_id)
        following = next((g.first_index or 0 for g in self.buffered(thread_id)[len(ready) :]), None)
        out: list[Message] = []
        for message in ledger.after(thread_id, last):
            if message.state == "provisional" or (following is not None and message.index >= following):
                break
            if message.state == "saved":
                out.append(message)
        return out


def take(
    db: Database, record_id: str, before: Snapshot | None = None, *, window: int | None = None, whole: bool = True
) -> Snapshot | None:
    """Take a snapshot; return `before` itself where nothing has changed, None where there is no such memory.

    Not `whole`: only new groups and those in another state are read.
    """
    record = raw_rows.record(db, record_id)
    if record is None:
        return None
    states = raw_rows.states(db, record_id)
    cursors = raw_rows.cursors(db, record_id)
    compactions = raw_rows.compactions(db, record_id)
    old = before.groups if before else dict[str, GroupRow]()
    if (
        before is not None
        and not whole
        and (record, cursors, compactions) == (before.record, before.cursors, before.compactions)
        and states == tuple((g.id, g.state) for g in old.values())
    ):
        return before
    fresh = [i for i, state in states if whole or i not in old or old[i].state != state]
    groups: dict[str, GroupRow] = {**old, **{g.id: g for g in raw_rows.groups(db, fresh)}}
    groups = {i: groups[i] for i, _ in states}
    kept: Mapping[str, Sequence[LineRow]] = before.lines if before and not whole else {}
    rows = raw_rows.lines(db, [i for i in groups if i not in kept])
    lines: dict[str, Sequence[LineRow]] = {i: kept.get(i) or rows.get(i) or [] for i in groups}
    if before is None:
        return Snapshot(0, record, groups, lines, cursors, compactions, window)
    changed = {i for i in groups if i in old and lines[i] != before.lines[i]}
    after = Snapshot(before.number + 1, record, groups, lines, cursors, compactions, window)
    if (
        not changed
        and groups == old
        and (record, cursors, compactions) == (before.record, before.cursors, before.compactions)
    ):
        return before
    moved = changed or cursors != before.cursors or [g.id for g in after.active] != [g.id for g in before.active]
    words = {i: w for i, w in before.known_words.items() if i in groups and i not in changed}
    return structs.replace(after, log=after.number if moved else before.log, known_words=words)
