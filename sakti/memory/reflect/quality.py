"""Finish a Reflector's answer: check it against its input, and restore lines that it lost.

An answer without enough of its input is refused, and the log stays as it is. In a shared log, the lines of each
thread are condensed separately, so that they keep their thread.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Sequence

from msgspec import structs

from sakti.core.errors import MemoryFailure
from sakti.core.lazy import lazy_pattern
from sakti.core.text import format_count, quote, to_one_line
from sakti.core.tokens import Counter
from sakti.memory.log import lines, parse
from sakti.memory.observe.faithfulness import is_represented, list_words_by_line
from sakti.memory.protocol import ReflectInput, Reflector, ReflectResult, RunAside, join_results
from sakti.memory.shared import CondensedPart, join_texts, split_by_thread
from sakti.memory.statements.marking import ReplacedWords, mark_replaced
from sakti.memory.statements.sentences import find_speaker
from sakti.store.log.replacements import NOTE, remove_marks
from sakti.store.memory import Group
from sakti.store.memory.group_rows import Section, Span

# Below these shares an answer is no reflection: the share of the input's important lines (after lost lines of the
# user are restored), and of its tokens; a smaller share suffices for an input below SMALL_INPUT tokens.
IMPORTANT_SHARE, TOKEN_SHARE = 0.6, 0.15
SMALL_INPUT, SMALL_SHARE = 1_000, 0.05
# Least share of them in the answer itself: restored lines do not turn junk into a reflection.
ANSWER_SHARE = 0.3
LONGEST, LONGEST_TASK = 4, 10_000  # times the characters of its input; most characters of a task
SEVERAL = 5  # number of important lines from which their share is checked
ENDED_SHARE = 0.6  # share of a line's replaced text from which the line counts as ended


def check_length(text: str, request: ReflectInput) -> None:
    """Raise `MemoryFailure` (not_smaller) for an answer so long that its tokens need not be counted."""
    size = sum(len(group_text) for _, group_text in request.groups)
    if len(text) > LONGEST * size + LONGEST_TASK:
        raise MemoryFailure(
            f"The reflection was not smaller than the log ({len(text):,} of {size:,} characters): the log stays.",
            code="not_smaller",
        )


def check_answer(have: int, important: int, tokens: int, before: int) -> None:
    """Raise `MemoryFailure` (below_floor) for an answer that keeps next to nothing of its input."""
    share = TOKEN_SHARE if before >= SMALL_INPUT else SMALL_SHARE
    if tokens < share * before or (important >= SEVERAL and have < ANSWER_SHARE * important):
        raise _make_floor_error(f"{have} of {important} important lines and {tokens} of {before} tokens")


def check_floor(have: int, important: int) -> None:
    """Raise `MemoryFailure` (below_floor) for a reflection with too few of the important lines."""
    if important >= SEVERAL and have < IMPORTANT_SHARE * important:
        raise _make_floor_error(f"{have} of {important} important lines")


def _make_floor_error(kept: str) -> MemoryFailure:
    return MemoryFailure(f"The reflection kept {kept}: the log stays.", code="below_floor")


def select_important_lines(inputs: Sequence[str], replaced: Sequence[ReplacedWords]) -> list[lines.LogRow]:
    """Return the important lines of a log and lines that replace older ones, without replaced lines."""
    ended = [one.text.casefold() for one in replaced]
    rows = (row for text in inputs for row in lines.iter_rows(text))
    important = (row for row in rows if row.priority == "high" or NOTE.search(row.content))
    return [row for row in important if not _is_ended(remove_marks(row.content).casefold(), ended)]


def _is_ended(content: str, ended: Sequence[str]) -> bool:
    """Return whether most words of a line after its speaker were replaced."""
    least = ENDED_SHARE * len(content.partition(": ")[2] or content)
    return any(len(words) >= least and words in content for words in ended)


def find_lost_lines(
    text: str, important: Sequence[lines.LogRow], replaced: Sequence[ReplacedWords] = ()
) -> list[lines.LogRow]:
    """Return the important lines missing from a reflection, also in other words.

    For a line that replaces an older one, the words that the older one lacks must be present.
    """
    have = list_words_by_line(text)
    contents = [remove_marks(row.content) for row in important]
    counts = collections.Counter(
        word for content in contents for words in list_words_by_line(content) for word in words
    )
    older = {one.by: one.text for one in replaced}
    return [
        row
        for row, content in zip(important, contents, strict=True)
        if not is_represented(content, have, counts) or not _has_new_words(content, older.get(content), have)
    ]


def find_unlike_lines(text: str, lost: Sequence[lines.LogRow]) -> list[lines.LogRow]:
    """Return the lost lines that no line of a reflection resembles: it may combine parallel ones."""
    have = list_words_by_line(text)
    return [row for row in lost if not is_represented(remove_marks(row.content), have)]


def _has_new_words(content: str, older: str | None, have: Sequence[set[str]]) -> bool:
    words, before = (set[str]().union(*list_words_by_line(text)) for text in (content, older or content))
    return older is None or any(words - before <= line for line in have)


def restore_lines(
    text: str,
    lost: Sequence[lines.LogRow],
    replaced: Sequence[ReplacedWords],
    *,
    room: int,
    limit: int,
    count: Callable[[str], int],
) -> tuple[str, list[lines.LogRow]]:
    """Restore lost lines at the front of a reflection.

    Lines that replace older ones are restored as far as `limit` tokens allow, then the user's, newest first, as far
    as `room` does. Also return the important lines that stay lost. Raises `MemoryFailure` (below_floor) if an older
    line would stay without the one that replaces it.
    """
    older = {one.by: one.text for one in replaced}
    restored: list[lines.LogRow] = []
    total = count(text)
    newest_first = lost[::-1]
    for row in sorted(newest_first, key=lambda row: remove_marks(row.content) not in older):
        ended = older.get(remove_marks(row.content), "")
        allowed = limit if ended else room if find_speaker(row.content, row.priority) == "user" else 0
        size = count(_format_line(row)) + count(f"Date: {row.date}") + 2
        if total + size <= allowed:
            total += size
            restored.append(row)
        elif ended and ended.casefold() in text.casefold():
            raise _make_floor_error(f"{quote(ended)} and lost what replaced it")
    front = _with_dates([row for row in lost if row in restored])
    return "\n".join([*front, text]), [row for row in lost if row not in restored]


def _with_dates(rows: Sequence[lines.LogRow]) -> list[str]:
    """Return lines of a log under date headers."""
    out: list[str] = []
    for date, of_day in itertools.groupby(rows, key=lambda row: row.date):
        out += [f"Date: {date}", *map(_format_line, of_day)]
    return out


def restore_weight(text: str, important: Sequence[lines.LogRow]) -> str:
    """Mark lines of a reflection as important if they were important in its input."""
    high = {remove_marks(row.content) for row in important if row.priority == "high"}
    lighter = [
        r.line for r in lines.iter_rows(text) if r.priority not in ("high", "done") and remove_marks(r.content) in high
    ]
    return lines.with_high_priority(text, lighter) if lighter else text


def remove_repeats(text: str) -> str:
    """Remove repeated lines within a day from a reflection."""
    seen: set[tuple[str, str, str]] = set()
    repeated: dict[int, str | None] = {}
    for row in lines.iter_rows(text):
        key = (row.date, row.time, row.content)
        if key in seen:
            repeated[row.line] = None
        seen.add(key)
    return lines.apply_corrections(text, repeated) if repeated else text


def _format_line(row: lines.LogRow) -> str:
    sign = next((sign for sign, name in lines.PRIORITY_SYMBOLS.items() if name == row.priority), "")
    return " ".join(part for part in ("*", sign, f"({row.time})" if row.time else "", row.content) if part)


# --- findings of child threads, and logs of several threads ------------------------------------------------

_LISTED = lazy_pattern(r"([\d,]+) more verified findings? of child threads \(memory-search finds them\): (.+)")
LONGEST_LIST = 600  # most characters of the list of such findings


async def reflect_by_thread(
    reflector: Reflector,
    groups: Sequence[Group],
    request: ReflectInput,
    counter: Counter,
    replaced: Sequence[ReplacedWords],
    aside: RunAside,
) -> tuple[ReflectResult, tuple[Section, ...]]:
    """Condense a log of several threads; return the result and the thread of each of its sections.

    A part that cannot be made smaller stays as it is; if no part can, the Reflector's error is raised. Task and
    response are only taken from the log of a single thread.
    """
    units = split_by_thread(groups, counter.count)
    total = sum(part.tokens for part in units)
    results: list[ReflectResult] = []
    texts: list[tuple[str, tuple[Span, ...]]] = []
    failure = MemoryFailure("There is nothing to condense.", code="not_smaller")
    for part in units:
        text = "\n".join(text for _, text in part.groups)
        if text:
            piece = _request_part(request, part, text, total)
            try:
                results.append(await reflector.reflect(piece))
                text = await aside(finish_answer, results[-1].text, piece.pinned, replaced)
            except MemoryFailure as e:
                failure = e
        texts.append((text, part.spans))
    if not results:
        raise failure
    joined_text, sections = join_texts(texts)
    result = join_results(results, joined_text)
    if len(units) > 1 or len(units[0].spans) != 1:
        result = structs.replace(result, current_task=None, suggested_response=None)
    return result, sections


def _request_part(whole: ReflectInput, part: CondensedPart, text: str, total: int) -> ReflectInput:
    limit, have = whole.limit_tokens, {_strip_line(line) for line in text.split("\n")}
    return structs.replace(
        whole,
        groups=part.groups,
        labels=part.labels,
        target_tokens=max(1, whole.target_tokens * part.tokens // max(1, total)),
        limit_tokens=None if limit is None else max(1, limit * part.tokens // max(1, total)),
        pinned=tuple(p for p in whole.pinned if _strip_line(p) in have),
    )


def finish_answer(text: str, pinned: Sequence[str], replaced: Sequence[ReplacedWords] = ()) -> str:
    """Prepare a Reflector's answer for storing: cleaned, without repeats, marked, with pinned lines."""
    contents = frozenset(row.content for line in pinned for row in lines.iter_rows(line))
    clean = remove_repeats(parse.clean(parse.sanitize_observation_lines(text)))
    return restore_pinned(mark_replaced(clean, replaced, contents), pinned)


def restore_pinned(text: str, pinned: Sequence[str]) -> str:
    """Restore lost pinned lines at the front of a reflection, word for word."""
    have = {_strip_line(line) for line in text.split("\n")}
    lost = [p for p in pinned if _strip_line(p) not in have]
    return "\n".join([*lost, text]) if lost else text


def list_lost_findings(text: str, before: Iterable[str], findings: Sequence[str]) -> str:
    """List the places of lost findings at the end of a log; search finds them.

    `before` are the logs that it condenses, which may list others.
    """
    rows = [line for line in text.split("\n") if not _LISTED.search(line)]
    have = set(map(_strip_line, rows))
    lost = "\n".join(finding for finding in findings if _strip_line(finding) not in have)
    places = [row.content.partition(" ")[0] for row in lines.iter_rows(lost)]
    listed = [match for log in before for match in _LISTED.finditer(log)]
    count = len(places) + sum(int(match[1].replace(",", "")) for match in listed)
    if not count:
        return text
    names = to_one_line(", ".join([*places, *(match[2] for match in listed)]), LONGEST_LIST)
    more = format_count(count, "more verified finding")
    return "\n".join([*rows, f"* 🟡 {more} of child threads (memory-search finds them): {names}"])


def _strip_line(line: str) -> str:
    return line.strip().lstrip("*-> ").strip()  # a nested line begins with an arrow
