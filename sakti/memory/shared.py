"""Share one log between the threads of a workspace: tags of groups, messages of each thread. Pure.

The store determines the thread of a line, never the model: names are added around the text when it is rendered and in
the Reflector's input, but are never stored with it.
"""

from __future__ import annotations

import collections
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, structs

from sakti.core.clock import shorten_id
from sakti.core.lazy import lazy_pattern
from sakti.core.resources import fill_prompt, read_prompt
from sakti.core.text import to_one_line
from sakti.core.tokens import Counter
from sakti.core.types import Thread
from sakti.memory.log import dates, lines
from sakti.store.log.lines import MessageExcerpt
from sakti.store.memory import Group
from sakti.store.memory.group_rows import Section, Span, list_spans, make_section_metadata, merge_spans, read_sections
from sakti.store.threads.lineage import get_lineage

OWN_PART = 0.1  # share of the condensed text: threads with less text are condensed together
_TITLE = 60  # characters
_UNSAFE = lazy_pattern(r'["<>]')


def make_thread_alias(thread_id: str) -> str:
    """Return a stable name for a thread that does not reveal its id."""
    return hashlib.sha256(thread_id.encode()).hexdigest()[:8]


def escape_title(title: str) -> str:
    """Escape a thread's title for use in a tag."""
    return _UNSAFE.sub("'", to_one_line(title, _TITLE))


def format_tag(group: Group, covered: Sequence[Span], *, ranges: bool) -> str:
    """Return the opening tag of a block; `ranges` adds what recall needs."""
    values = {"id": shorten_id(group.id)} if ranges else {}
    values["kind"] = group.kind
    if len(covered) == 1:
        span = covered[0]
        values |= {"thread": make_thread_alias(span.thread_id), "title": escape_title(span.title)}
        values |= {"messages": f"{span.first}-{span.last}"} if ranges else {}
    elif covered:
        places = ((x, f"/{x.first}-{x.last}" if ranges else "") for x in covered)
        named = (f"{make_thread_alias(x.thread_id)}{place} {escape_title(x.title)}".strip() for x, place in places)
        values["threads"] = "; ".join(named)
    attributes = "".join(f' {name}="{value}"' for name, value in values.items() if value)
    return f"<observation-group{attributes}>"


def format_label(covered: Sequence[Span]) -> str:
    """Return the heading that names the thread of the following lines for the Reflector."""
    named = [f"{make_thread_alias(x.thread_id)} {escape_title(x.title)}".strip() for x in covered]
    return f"Thread{'s' * (len(named) > 1)} {'; '.join(named)}" if named else ""


NO_THREAD = "From elsewhere"  # heading of lines without a thread
_LABEL = lazy_pattern(rf"^#+ (?:Threads? [0-9a-f]{{8}}\b|{NO_THREAD}).*\n?", re.MULTILINE)


def remove_labels(text: str) -> str:
    """Remove the headings of the Reflector's input from its answer."""
    return _LABEL.sub("", text)


# --- a thread and its past -------------------------------------------------------------------------------------


def is_of_lineage(covered: Sequence[Span], past: Mapping[str, int | None]) -> bool:
    """Return whether all these messages belong to a thread's own past; False for none."""

    def is_past(span: Span) -> bool:
        last = past.get(span.thread_id, -1)
        return last is None or span.last <= last

    return bool(covered) and all(map(is_past, covered))


def select_lineage_text(group: Group, past: Mapping[str, int | None]) -> str:
    """Return the parts of a group's text about a thread's own past."""
    return "\n".join(text for text, covered in split_sections(group) if is_of_lineage(covered, past))


def build_shared_instructions(thread: Thread, *, recall: bool) -> str:
    """Build the instructions on a shared log; they never change for a thread."""
    forked = "".join(
        f" It was forked from thread {make_thread_alias(parent)}: notes on that thread's messages up to {last}"
        " count as its own."
        for parent, last in get_lineage(thread).items()
        if last is not None
    )
    text = fill_prompt("memory#shared", thread=make_thread_alias(thread.id), forked=forked)
    return f"{text}\n\n{fill_prompt('memory#recall-shared')}" if recall else text


# --- parts of a text --------------------------------------------------------------------------------------


def split_sections(group: Group) -> list[tuple[str, tuple[Span, ...]]]:
    """Split a group's text into sections, each with the messages it covers."""
    ranges = read_sections(group)
    if not ranges:
        return [(group.text, list_spans(group))]
    rest = group.text.split("\n")
    out: list[tuple[str, tuple[Span, ...]]] = []
    for section in ranges:
        out.append(("\n".join(rest[: section.lines]), section.spans))
        rest = rest[section.lines :]
    return out


def join_texts(texts: Sequence[tuple[str, tuple[Span, ...]]]) -> tuple[str, tuple[Section, ...]]:
    """Join texts into one, with its sections."""
    out = [
        Section(text.count("\n") + 1 if text else 0, sum(1 for _ in lines.iter_rows(text)), covered)
        for text, covered in texts
    ]
    return "\n".join(text for text, _ in texts if text), tuple(out)


def correct_group(group: Group, changes: Mapping[int, str | None]) -> Group:
    """Apply corrections (line number → text) to a group, section by section, never across sections."""
    ranges = read_sections(group)
    if not ranges:
        return structs.replace(group, text=lines.apply_corrections(group.text, changes))
    start = 0
    out: list[tuple[str, tuple[Span, ...]]] = []
    for section, (text, owned) in zip(ranges, split_sections(group), strict=True):
        local_changes = {n - start: change for n, change in changes.items() if start <= n < start + section.rows}
        out.append((lines.apply_corrections(text, local_changes) if local_changes else text, owned))
        start += section.rows
    text, new_sections = join_texts(out)
    return structs.replace(group, text=text, metadata={**group.metadata, **make_section_metadata(new_sections)})


class CondensedPart(Struct, frozen=True):
    """Unit of condensing: texts, each with id and label, and all messages that they cover."""

    groups: tuple[tuple[str, str], ...]
    labels: Mapping[str, str]
    spans: tuple[Span, ...]
    tokens: int


def split_by_thread(groups: Sequence[Group], count: Callable[[str], int]) -> list[CondensedPart]:
    """Split groups by thread, so that no reflection mixes threads; the newest notes come last.

    Threads with little text share one part; each part is a call of the Reflector. A group without text, whose
    messages are noted elsewhere, is a part without groups if its thread has none.
    """
    named = [
        _NamedSection(f"{group.id}/{number}", text, covered, count(text) if text else 0)
        for group in groups
        for number, (text, covered) in enumerate(split_sections(group))
    ]
    sizes = collections.Counter[str]()
    for section in named:
        if section.thread_id:
            sizes[section.thread_id] += section.tokens
    least = OWN_PART * sum(section.tokens for section in named)
    parted: dict[str | None, list[_NamedSection]] = {}

    def part_of(section: _NamedSection) -> str | None:
        size = sizes[section.thread_id]
        if not section.text and not size:
            return None
        return section.thread_id if size >= least else ""

    for section in named:
        key = part_of(section)
        parted[key] = [*parted.pop(key, []), section]  # the newest comes last
    return [_part(members) for members in parted.values()]


class _NamedSection(Struct, frozen=True):
    """Section of a group, named for the Reflector."""

    name: str
    text: str
    spans: tuple[Span, ...]
    tokens: int

    @property
    def thread_id(self) -> str:
        """Return the only thread of the section; empty for several or none."""
        return self.spans[0].thread_id if len(self.spans) == 1 else ""


def _part(members: Sequence[_NamedSection]) -> CondensedPart:
    with_text = [member for member in members if member.text]
    return CondensedPart(
        tuple((member.name, member.text) for member in with_text),
        {member.name: format_label(member.spans) for member in with_text},
        merge_spans(span for member in members for span in member.spans),
        sum(member.tokens for member in members),
    )


OTHERS_SHARE = 0.2  # largest share of the message threshold for messages of other threads
LINE_CHARACTERS = 600
_ROLES = {"user": "User", "assistant": "Assistant", "tool": "Tool result"}


def format_other_threads(excerpts: Sequence[MessageExcerpt], counter: Counter, limit: int, timezone: str) -> str:
    """Return a delimited block of the newest messages that fit `limit` tokens, by thread.

    The thread used last comes last. The block is empty if nothing fits.
    """
    head = read_prompt("memory#other-threads")
    used = counter.count(head) + 20
    by_thread: dict[str, list[str]] = {}
    titles = {one.thread_id: f' title="{escape_title(one.title)}"' if one.title.strip() else "" for one in excerpts}
    for one in sorted(excerpts, key=lambda s: (s.created_at, s.index), reverse=True):
        words = to_one_line(one.text, LINE_CHARACTERS)
        if not words:
            continue
        line = f"{_ROLES.get(one.role, one.role)} ({dates.format_clock(one.created_at, timezone)}): {words}"
        size = counter.count(line) + (1 if one.thread_id in by_thread else 20 + counter.count(titles[one.thread_id]))
        if used + size > limit:
            break
        by_thread.setdefault(one.thread_id, []).append(line)
        used += size
    if not by_thread:
        return ""
    parts = [
        "\n".join([f'<thread id="{make_thread_alias(thread)}"{titles[thread]}>', *reversed(lines), "</thread>"])
        for thread, lines in reversed(by_thread.items())
    ]
    return "\n".join(["<other-threads>", head, *parts, "</other-threads>"])
