"""Vim's keys for a text of a few lines. Pure: a key, a text and a place in it give what becomes of them.

Places are offsets in code points. Known are h j k l w b e 0 $ gg G, x D C u, d and c with a motion or twice, i a I A
o O, and counts before them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["insert", "normal"]
MOST = 999  # a count goes no further
CHANGES = "dc"


@dataclass(frozen=True, slots=True)
class Vim:
    """The mode, and what was pressed of a command that is not whole yet, as `2d` or `g`."""

    mode: Mode = "insert"
    pending: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What a key does.

    The state behind it, the place of the cursor, what takes the place of the text from `start` to `end` (None: nothing
    is changed), and whether the last change is undone.
    """

    state: Vim
    at: int
    start: int = 0
    end: int = 0
    insert: str | None = None
    undo: bool = False


def offset_of(text: str, place: tuple[int, int]) -> int:
    """Give the offset of a row and a column."""
    return sum(len(line) + 1 for line in text.split("\n")[: place[0]]) + place[1]


def place_of(text: str, at: int) -> tuple[int, int]:
    """Give the row and the column of an offset."""
    return text.count("\n", 0, at), at - _begin(text, at)


def leave_insert(text: str, at: int) -> Step:
    """Escape while typing: the cursor goes onto the character before it."""
    return Step(Vim("normal"), at if at == _begin(text, at) else at - 1)


def press(state: Vim, key: str, text: str, at: int) -> Step:
    """Give what the character `key` does in normal mode."""
    pending = state.pending + key
    count, command = _counted(pending)
    still = Step(Vim("normal"), at)
    if command in ("", "g", *CHANGES) or (command[0] in CHANGES and command[1:] in ("g", *"123456789")):
        return replace(still, state=Vim("normal", pending))
    if command[0] in CHANGES:
        more, what = _counted(command[1:])
        return _change(command[0], what, min(count * more, MOST), text, at) or still
    if (target := motion(command, count, text, at)) is not None:
        return replace(still, at=_onto(text, target))
    return _single(command, count, text, at) or still


def _counted(keys: str) -> tuple[int, str]:
    """Split `12dw` into its count and the rest; 0 alone is a motion."""
    digits = 0
    while digits < len(keys) and keys[digits].isdecimal() and (digits or keys[digits] != "0"):
        digits += 1
    return min(int(keys[:digits] or "1"), MOST), keys[digits:]


def _single(command: str, count: int, text: str, at: int) -> Step | None:
    """Commands of one key that are no motion."""
    begin, end = _begin(text, at), _end(text, at)
    insert = Vim("insert")
    match command:
        case "x" if at < end:
            return _cut(Vim("normal"), text, at, min(end, at + count))
        case "D":
            return _cut(Vim("normal"), text, at, end)
        case "C":
            return _cut(insert, text, at, end)
        case "u":
            return Step(Vim("normal"), at, undo=True)
        case "i":
            return Step(insert, at)
        case "a":
            return Step(insert, min(end, at + 1))
        case "I":
            return Step(insert, _first_word(text, begin))
        case "A":
            return Step(insert, end)
        case "o":
            return Step(insert, end + 1, end, end, "\n")
        case "O":
            return Step(insert, begin, begin, begin, "\n")
        case _:
            return None


def _change(operator: str, what: str, count: int, text: str, at: int) -> Step | None:
    """`d` or `c` with a motion, or twice for whole lines; None where it means nothing."""
    state = Vim("insert" if operator == "c" else "normal")
    if what == operator:
        begin, end = _begin(text, at), _end(text, at)
        for _ in range(count - 1):
            end = _end(text, min(end + 1, len(text)))
        if operator == "c":
            return _cut(state, text, begin, end)
        if end < len(text):
            end += 1
        elif begin:
            begin -= 1  # the last line goes with the break before it
        return _cut(state, text, begin, end)
    if operator == "c" and what == "w" and at < len(text) and not text[at].isspace():
        what = "e"  # as Vim does: the space behind the word stays
    target = motion(what, count, text, at)
    if target is None:
        return None
    if what in ("j", "k", "G", "gg"):
        begin, end = _begin(text, min(at, target)), _end(text, max(at, target))
        return _cut(state, text, begin, end if operator == "c" else min(len(text), end + 1))
    if what == "w":
        target = min(target, _end(text, at)) if count == 1 else target
    start, end = min(at, target), max(at, target) + (what == "e")
    return _cut(state, text, start, min(len(text), end))


def _cut(state: Vim, text: str, start: int, end: int) -> Step:
    left = text[:start] + text[end:]
    return Step(state, start if state.mode == "insert" else _onto(left, min(start, len(left))), start, end, "")


# --- motions ------------------------------------------------------------------------------------------------


def motion(key: str, count: int, text: str, at: int) -> int | None:
    """Give where a motion leads from `at`; None for what is none. May be the end of a line or of the text."""
    match key:
        case "h":
            return max(_begin(text, at), at - count)
        case "l":
            return min(_end(text, at), at + count)
        case "0":
            return _begin(text, at)
        case "$":
            return _end(text, at)
        case "gg" | "G":
            lines = text.split("\n")
            row = count - 1 if key == "gg" or count > 1 else len(lines) - 1
            return _first_word(text, sum(len(line) + 1 for line in lines[: min(row, len(lines) - 1)]))
        case "j" | "k":
            for _ in range(count):
                at = _line(text, at, 1 if key == "j" else -1)
            return at
        case "w" | "b" | "e":
            step = {"w": _next_word, "b": _word_before, "e": _word_end}[key]
            for _ in range(count):
                at = step(text, at)
            return at
        case _:
            return None


def _begin(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _onto(text: str, at: int) -> int:
    """In normal mode the cursor stands on a character, where the line has one."""
    return max(_begin(text, at), at - 1) if at == _end(text, at) else at


def _first_word(text: str, begin: int) -> int:
    end = _end(text, begin)
    return begin + len(text[begin:end]) - len(text[begin:end].lstrip())


def _line(text: str, at: int, step: int) -> int:
    """The same column a line below or above, as far as that line goes; `at` where there is none."""
    begin, end = _begin(text, at), _end(text, at)
    if (step > 0 and end == len(text)) or (step < 0 and not begin):
        return at
    other = end + 1 if step > 0 else _begin(text, begin - 1)
    return min(other + at - begin, _end(text, other))


def _kind(character: str) -> int:
    return 0 if character.isspace() else 1 if character.isalnum() or character == "_" else 2


def _next_word(text: str, at: int) -> int:
    if at >= len(text):
        return at
    kind = _kind(text[at])
    while at < len(text) and kind and _kind(text[at]) == kind:
        at += 1
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _word_before(text: str, at: int) -> int:
    while at and text[at - 1].isspace():
        at -= 1
    kind = _kind(text[at - 1]) if at else 0
    while at and _kind(text[at - 1]) == kind:
        at -= 1
    return at


def _word_end(text: str, at: int) -> int:
    at += 1
    while at < len(text) and text[at].isspace():
        at += 1
    if at >= len(text):
        return max(0, len(text) - 1)
    while at + 1 < len(text) and _kind(text[at + 1]) == _kind(text[at]):
        at += 1
    return at
