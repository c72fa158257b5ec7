"""Condense a log that several threads share, each thread's lines apart, so they keep their thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from sakti.core.errors import MemoryFailure
from sakti.core.lazy import lazy_pattern
from sakti.core.text import one_line
from sakti.core.tokens import Counter
from sakti.memory.log import lines, parse
from sakti.memory.protocol import ReflectInput, Reflector, ReflectResult, RunAside
from sakti.memory.reflect import quality
from sakti.memory.shared import CondensedPart, join_texts, parts
from sakti.memory.statements.marking import ReplacedWords, mark_replaced
from sakti.store.memory import Group
from sakti.store.memory.group_rows import Section, Span

_LISTED = lazy_pattern(r"(\d+) more verified findings of child threads \(memory-search finds them\): (.+)")
LONGEST_LIST = 600  # characters of the places of such findings


async def reflect(
    reflector: Reflector,
    groups: Sequence[Group],
    request: ReflectInput,
    counter: Counter,
    replaced: Sequence[ReplacedWords],
    aside: RunAside,
) -> tuple[ReflectResult, tuple[Section, ...]]:
    """Condense the log and return the result with the thread of each section.

    A part that cannot be made smaller stays as it is; raises as the Reflector does where none can. Task and response
    are taken from a log of one thread only.
    """
    units = parts(groups, counter.count)
    total = sum(part.tokens for part in units)
    results: list[ReflectResult] = []
    texts: list[tuple[str, tuple[Span, ...]]] = []
    failure: MemoryFailure | None = None
    for part in units:
        text = "\n".join(text for _, text in part.groups)
        if text:
            piece = _request(request, part, text, total)
            try:
                results.append(await reflector.reflect(piece))
                text = await aside(finish_text, results[-1].text, piece.pinned, replaced)
            except MemoryFailure as e:
                failure = e
        texts.append((text, part.spans))
    if not results:
        raise failure or MemoryFailure("There is nothing to condense.", code="not_smaller")
    joined_text, sections = join_texts(texts)
    result = structs.replace(
        results[-1],
        text=joined_text,
        level=max(r.level for r in results),
        calls=tuple(c for r in results for c in r.calls),
        note=next((r.note for r in results if r.note), ""),
    )
    if len(units) > 1 or len(units[0].spans) != 1:
        result = structs.replace(result, current_task=None, suggested_response=None)
    return result, sections


def _request(whole: ReflectInput, part: CondensedPart, text: str, total: int) -> ReflectInput:
    limit, have = whole.limit_tokens, {_bare(line) for line in text.split("\n")}
    return structs.replace(
        whole,
        groups=part.groups,
        labels=part.labels,
        target_tokens=max(1, whole.target_tokens * part.tokens // max(1, total)),
        limit_tokens=None if limit is None else max(1, limit * part.tokens // max(1, total)),
        pinned=tuple(p for p in whole.pinned if _bare(p) in have),
    )


def finish_text(text: str, pinned: Sequence[str], replaced: Sequence[ReplacedWords] = ()) -> str:
    """Prepare a Reflector's answer for storing: clean, without repeats, marked, with pinned lines."""
    contents = frozenset(row.content for line in pinned for row in lines.rows(line))
    clean = quality.without_repeats(parse.clean(parse.sanitize_observation_lines(text)))
    return with_pinned(mark_replaced(clean, replaced, contents), pinned)


def with_pinned(text: str, pinned: Sequence[str]) -> str:
    """Put pinned lines that a reflection lost back to its front, word for word."""
    have = {_bare(line) for line in text.split("\n")}
    lost = [p for p in pinned if _bare(p) not in have]
    return "\n".join([*lost, text]) if lost else text


def with_lost_listed(text: str, before: Iterable[str], findings: Sequence[str]) -> str:
    """Name at the end of a log the places of findings that it no longer has; search finds them.

    `before` are the logs that it condenses, which may name others.
    """
    rows = [line for line in text.split("\n") if not _LISTED.search(line)]
    have = set(map(_bare, rows))
    lost = [row.content.partition(" ")[0] for f in findings if _bare(f) not in have for row in lines.rows(f)]
    earlier = [match for log in before for match in _LISTED.finditer(log)]
    count = len(lost) + sum(int(match[1]) for match in earlier)
    if not count:
        return text
    places = one_line(", ".join([*lost, *(match[2] for match in earlier)]), LONGEST_LIST)
    return "\n".join(
        [*rows, f"* 🟡 {count} more verified findings of child threads (memory-search finds them): {places}"]
    )


def _bare(line: str) -> str:
    return line.strip().lstrip("*-> ").strip()  # a nested line begins with an arrow
