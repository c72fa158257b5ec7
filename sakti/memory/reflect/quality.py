"""Check a reflection against its input, and put back lines of the user that it lost. Pure."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence

from sakti.core.errors import MemoryFailure
from sakti.memory.log import lines
from sakti.memory.observe.faithfulness import is_represented, words_by_line
from sakti.memory.protocol import ReflectInput
from sakti.memory.statements.marking import ReplacedWords
from sakti.memory.statements.sentences import speaker
from sakti.store.log.replacements import NOTE, remove_marks

# Below these shares an answer is no reflection: of the input's important lines, with lost lines of the user put back,
# and of its tokens; of an input below SMALL_INPUT tokens a smaller share is enough.
IMPORTANT_SHARE, TOKEN_SHARE = 0.6, 0.15
SMALL_INPUT, SMALL_SHARE = 1_000, 0.05
# An answer itself has at least this share of them: what is put back makes no reflection of junk.
ANSWER_SHARE = 0.3
LONGEST, LONGEST_TASK = 4, 10_000  # times the characters of its input, and those of a task besides
SEVERAL = 5  # important lines whose share is looked at
ENDED_SHARE = 0.6  # of a line's text that is replaced: the line has ended


def check_length(text: str, request: ReflectInput) -> None:
    """Raise `MemoryFailure` (not_smaller) for an answer so long that its tokens need not be counted."""
    size = sum(len(group_text) for _, group_text in request.groups)
    if len(text) > LONGEST * size + LONGEST_TASK:
        raise MemoryFailure(
            f"The reflection was not smaller than the log ({len(text):,} of {size:,} characters): the log stays.",
            code="not_smaller",
        )


def check_answer(have: int, important: int, tokens: int, before: int) -> None:
    """Raise `MemoryFailure` (below_floor) for a Reflector's answer with next to nothing of its input."""
    share = TOKEN_SHARE if before >= SMALL_INPUT else SMALL_SHARE
    if tokens < share * before or (important >= SEVERAL and have < ANSWER_SHARE * important):
        raise _below_floor(f"{have} of {important} important lines and {tokens} of {before} tokens")


def check_floor(have: int, important: int) -> None:
    """Raise `MemoryFailure` (below_floor) for a reflection with too few of the important lines."""
    if important >= SEVERAL and have < IMPORTANT_SHARE * important:
        raise _below_floor(f"{have} of {important} important lines")


def _below_floor(kept: str) -> MemoryFailure:
    return MemoryFailure(f"The reflection kept {kept}: the log stays.", code="below_floor")


def important_lines(inputs: Sequence[str], replaced: Sequence[ReplacedWords]) -> list[lines.LogRow]:
    """Return the important lines of a log and what ends older ones, without those that were replaced."""
    ended = [one.text.casefold() for one in replaced]
    out: list[lines.LogRow] = []
    for row in (row for text in inputs for row in lines.rows(text)):
        low = remove_marks(row.content).casefold()
        is_ended = any(
            words in low and len(words) >= ENDED_SHARE * len(low.partition(": ")[2] or low) for words in ended
        )
        if (row.priority == "high" or NOTE.search(row.content)) and not is_ended:
            out.append(row)
    return out


def lost_lines(
    text: str, important: Sequence[lines.LogRow], replaced: Sequence[ReplacedWords] = ()
) -> list[lines.LogRow]:
    """Return the important lines that no line of a reflection has, in these or in other words.

    Of a line that replaces an older one, the words that the older one does not have must be there.
    """
    have = words_by_line(text)
    contents = [remove_marks(row.content) for row in important]
    counts = Counter(word for content in contents for words in words_by_line(content) for word in words)
    older = {one.by: one.text for one in replaced}
    return [
        row
        for row, content in zip(important, contents, strict=True)
        if not is_represented(content, have, counts) or not _has_new_words(content, older.get(content), have)
    ]


def unlike_lines(text: str, lost: Sequence[lines.LogRow]) -> list[lines.LogRow]:
    """Return the lost lines to which no line of a reflection comes near: it may sum up parallel ones."""
    have = words_by_line(text)
    return [row for row in lost if not is_represented(remove_marks(row.content), have)]


def _has_new_words(content: str, older: str | None, have: Sequence[set[str]]) -> bool:
    words, before = (set[str]().union(*words_by_line(text)) for text in (content, older or content))
    return older is None or any(words - before <= line for line in have)


def put_back(
    text: str,
    lost: Sequence[lines.LogRow],
    replaced: Sequence[ReplacedWords],
    *,
    room: int,
    limit: int,
    count: Callable[[str], int],
) -> tuple[str, list[lines.LogRow]]:
    """Put lost lines back to the front of a reflection.

    Those that replace older lines as far as `limit` tokens allow, the user's, newest first, as far as `room` does.
    Also return the important lines that stay lost. Raises `MemoryFailure` (below_floor) if an older line would stay
    without the one that replaces it.
    """
    older = {one.by: one.text for one in replaced}
    back: list[lines.LogRow] = []
    total = count(text)
    newest_first = lost[::-1]
    for row in sorted(newest_first, key=lambda row: remove_marks(row.content) not in older):
        ended = older.get(remove_marks(row.content), "")
        size = count(_as_line(row)) + count(f"Date: {row.date}") + 2
        if (ended or speaker(row.content, row.priority) == "user") and total + size <= (limit if ended else room):
            total += size
            back.append(row)
        elif ended and ended.casefold() in text.casefold():
            raise _below_floor(f"{ended!r} and lost what replaced it")
    return "\n".join([*_with_dates([row for row in lost if row in back]), text]), [x for x in lost if x not in back]


def _with_dates(rows: Sequence[lines.LogRow]) -> list[str]:
    """Return lines of a log under headers with their days."""
    out: list[str] = []
    for date, of_day in itertools.groupby(rows, key=lambda row: row.date):
        out += [f"Date: {date}", *map(_as_line, of_day)]
    return out


def with_weight(text: str, important: Sequence[lines.LogRow]) -> str:
    """Give important lines that a reflection repeats their weight back."""
    high = {remove_marks(row.content) for row in important if row.priority == "high"}
    lighter = [
        r.line for r in lines.rows(text) if r.priority not in ("high", "done") and remove_marks(r.content) in high
    ]
    return lines.with_high_priority(text, lighter) if lighter else text


def without_repeats(text: str) -> str:
    """Remove repeated lines of a day from a reflection."""
    seen: set[tuple[str, str, str]] = set()
    repeated: dict[int, str | None] = {}
    for row in lines.rows(text):
        key = (row.date, row.time, row.content)
        if key in seen:
            repeated[row.line] = None
        seen.add(key)
    return lines.apply_corrections(text, repeated) if repeated else text


def _as_line(row: lines.LogRow) -> str:
    sign = next((sign for sign, name in lines.SIGNS.items() if name == row.priority), "")
    return " ".join(part for part in ("*", sign, f"({row.time})" if row.time else "", row.content) if part)
