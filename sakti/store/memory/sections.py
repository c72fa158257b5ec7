"""Whose each part of a group's text is. In a log for several threads a reflection stands for messages of more than one.

The parts and their ranges stand in the group's metadata, written once with the group; its text has no sign of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sakti.core.types import Json
from sakti.store.memory.group_rows import Group

SECTIONS = "sections"
TITLE = "thread_title"  # what a group's thread was called when it was made: a later name changes no earlier block


@dataclass(frozen=True, slots=True)
class Span:
    """Messages `first` to `last` (indexes) of a thread, and what it was called."""

    thread_id: str
    first: int
    last: int
    title: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Some consecutive lines of a group's text: so many, as many of the log's rows among them, and the messages they
    stand for, one span a thread."""

    lines: int
    rows: int
    spans: tuple[Span, ...]


def stored(sections: Sequence[Section]) -> Json:
    """The sections of a group that is made, as its metadata keeps them."""
    return {SECTIONS: [[s.lines, s.rows, [[x.thread_id, x.first, x.last, x.title] for x in s.spans]] for s in sections]}


def sections(group: Group) -> tuple[Section, ...]:
    """The sections of a group, empty for one whose whole text is of its own thread."""
    return tuple(
        Section(lines, rows, tuple(Span(*span) for span in spans))
        for lines, rows, spans in group.metadata.get(SECTIONS, ())
    )


def own_span(group: Group) -> tuple[Span, ...]:
    """The messages of its own thread that a group stands for; none for what a report or an import brought."""
    if group.first_index is None or group.last_index is None:
        return ()
    return (Span(group.thread_id, group.first_index, group.last_index, str(group.metadata.get(TITLE, ""))),)


def spans(group: Group) -> tuple[Span, ...]:
    """All messages that a group stands for, one span a thread."""
    found = sections(group)
    return union(x for s in found for x in s.spans) if found else own_span(group)


def spans_of_row(group: Group, row: int) -> tuple[Span, ...]:
    """The messages that one line of a group's log stands for."""
    for section in sections(group):
        if row < section.rows:
            return section.spans
        row -= section.rows
    return own_span(group)


def thread_of_row(group: Group, row: int) -> str:
    """The thread that one line of a group's log is of; the group's own where it is of several."""
    found = spans_of_row(group, row)
    return found[0].thread_id if len(found) == 1 else group.thread_id


def union(found: Iterable[Span]) -> tuple[Span, ...]:
    """One span a thread, over all of its own, in the order in which they come; the last title holds."""
    out: dict[str, Span] = {}
    for span in found:
        before = out.get(span.thread_id, span)
        first, last = min(before.first, span.first), max(before.last, span.last)
        out[span.thread_id] = Span(span.thread_id, first, last, span.title or before.title)
    return tuple(out.values())
