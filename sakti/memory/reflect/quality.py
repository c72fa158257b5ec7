"""Check a reflection against its input, and put back lines of the user that it lost. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sakti.core.errors import MemoryFailure
from sakti.memory.log import lines
from sakti.memory.observe.faithfulness import is_represented, words_by_line
from sakti.memory.statements.marking import ReplacedWords
from sakti.memory.statements.units import speaker
from sakti.store.log.replaced import NOTE, unmarked

# Below these shares an answer is no reflection: of the input's important lines, with lost lines of the user put back,
# and of its tokens; of an input below SMALL_INPUT tokens a smaller share is enough.
IMPORTANT_SHARE, TOKEN_SHARE = 0.6, 0.15
SMALL_INPUT, SMALL_SHARE = 1_000, 0.05
# An answer itself has at least this share of them: what is put back makes no reflection of junk.
ANSWER_SHARE = 0.3
SEVERAL = 5  # important lines whose share is looked at
ENDED_SHARE = 0.6  # of a line's text that is replaced: the line has ended


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
        low = unmarked(row.content).casefold()
        is_ended = any(
            words in low and len(words) >= ENDED_SHARE * len(low.partition(": ")[2] or low) for words in ended
        )
        if (row.priority == "high" or NOTE.search(row.content)) and not is_ended:
            out.append(row)
    return out


def lost_lines(text: str, important: Sequence[lines.LogRow]) -> list[lines.LogRow]:
    """Return the important lines that no line of a reflection has, in these or in other words."""
    have = words_by_line(text)
    return [row for row in important if not is_represented(unmarked(row.content), have)]


def with_user_lines(
    text: str, lost: Sequence[lines.LogRow], room: int, count: Callable[[str], int]
) -> tuple[str, list[lines.LogRow]]:
    """Put lost lines of the user back to the front of a reflection, the newest first.

    As many as `room` tokens allow. Also return the important lines that stay lost.
    """
    back: list[lines.LogRow] = []
    total = count(text)
    for row in reversed(lost):
        size = count(_as_line(row)) + count(f"Date: {row.date}") + 2
        if speaker(row.content, row.priority) == "user" and total + size <= room:
            total += size
            back.append(row)
    out: list[str] = []
    date = ""
    for row in reversed(back):
        if row.date != date:
            date = row.date
            out.append(f"Date: {date}")
        out.append(_as_line(row))
    return "\n".join([*out, text]), [row for row in lost if row not in back]


def _as_line(row: lines.LogRow) -> str:
    sign = next((sign for sign, name in lines.SIGNS.items() if name == row.priority), "")
    return " ".join(part for part in ("*", sign, f"({row.time})" if row.time else "", row.content) if part)
