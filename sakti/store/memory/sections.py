"""Map each part of a group's text to its thread: a reflection of a shared log covers several.

The parts and their ranges stand in the group's metadata, written once with the group; its text has no sign of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from sakti.core.types import Json
from sakti.store.memory.group_rows import Group

SECTIONS = "sections"
TITLE = "thread_title"  # what a group's thread was called when it was made: a later name changes no earlier block


class Span(Struct, frozen=True):
    """Messages `first` to `last` (indexes) of a thread, and its title then."""

    thread_id: str
    first: int
    last: int
    title: str = ""


class Section(Struct, frozen=True):
    """Consecutive lines of a group's text.

    Their number, how many rows of the log are among them, and the messages that they stand for, one span per thread.
    """

    lines: int
    rows: int
    spans: tuple[Span, ...]


def section_metadata(sections: Sequence[Section]) -> Json:
    """Convert the sections of a new group to the form in its metadata."""
    return {SECTIONS: [[s.lines, s.rows, [[x.thread_id, x.first, x.last, x.title] for x in s.spans]] for s in sections]}


def sections(group: Group) -> tuple[Section, ...]:
    """Return the sections of a group; empty if all its text belongs to its own thread."""
    return tuple(
        Section(lines, rows, tuple(Span(*span) for span in spans))
        for lines, rows, spans in group.metadata.get(SECTIONS, ())
    )


def own_span(group: Group) -> tuple[Span, ...]:
    """Return the group's messages from its own thread; empty for a report or an import."""
    if group.first_index is None or group.last_index is None:
        return ()
    return (Span(group.thread_id, group.first_index, group.last_index, str(group.metadata.get(TITLE, ""))),)


def spans(group: Group) -> tuple[Span, ...]:
    """Return all messages that a group covers, one span per thread."""
    parts = sections(group)
    return union(x for s in parts for x in s.spans) if parts else own_span(group)


def spans_of_row(group: Group, row: int) -> tuple[Span, ...]:
    """Return the messages that one line of a group's log covers."""
    for section in sections(group):
        if row < section.rows:
            return section.spans
        row -= section.rows
    return own_span(group)


def thread_of_row(group: Group, row: int) -> str:
    """Return the thread of one line of a group's log; the group's thread if it covers several."""
    covered = spans_of_row(group, row)
    return covered[0].thread_id if len(covered) == 1 else group.thread_id


def union(found: Iterable[Span]) -> tuple[Span, ...]:
    """Merge spans into one per thread, in order of appearance, with the last title."""
    out: dict[str, Span] = {}
    for span in found:
        before = out.get(span.thread_id, span)
        first, last = min(before.first, span.first), max(before.last, span.last)
        out[span.thread_id] = Span(span.thread_id, first, last, span.title or before.title)
    return tuple(out.values())
