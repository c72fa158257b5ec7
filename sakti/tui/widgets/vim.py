"""Vim keys for short texts: key, text and position map to a `Step`; the editor that applies it.

Positions are offsets in code points. Supported: h j k l w b e 0 $ gg G, x r D C u p P and the dot; d, c and y with a
motion or doubled; v and V with d, c, y, p, r, o and motions; i a I A o O; and counts before them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from sakti.tui.keys import is_text

Mode: TypeAlias = Literal["insert", "normal", "visual", "visual line"]
MAX_COUNT = 999  # maximum count
OPERATORS = "dcy"
VISUAL: dict[str, Mode] = {"v": "visual", "V": "visual line"}


class Register(Struct, frozen=True):
    """The last cut or copied text; `lines`: complete lines without their final line break."""

    text: str = ""
    lines: bool = False


class Vim(Struct, frozen=True):
    """The mode and the state that later keys depend on.

    `pending`: the keys of an incomplete command such as `2d` or `g`; `anchor`: the start of the selection, `head`: its
    other end, on a character; `last` and `typed`: the keys of the last change and the text typed after them; `before`
    and `began`: the text and the position when typing began.
    """

    mode: Mode = "insert"
    pending: str = ""
    register: Register = Register()
    anchor: int = 0
    head: int = 0
    last: str = ""
    typed: str = ""
    before: str = ""
    began: int = 0

    @property
    def selects(self) -> bool:
        return self.mode in VISUAL.values()


class Step(Struct, frozen=True):
    """The effect of a key.

    `state` is the new state, `at` the cursor, `insert` the replacement for the text from `start` to `end` (None: no
    change); `undo`: undo the last change; `register`: the cut or copied text.
    """

    state: Vim
    at: int
    start: int = 0
    end: int = 0
    insert: str | None = None
    undo: bool = False
    register: Register | None = None


def get_offset(text: str, place: tuple[int, int]) -> int:
    """Return the offset of a row and a column."""
    return sum(len(line) + 1 for line in text.split("\n")[: place[0]]) + place[1]


def get_place(text: str, at: int) -> tuple[int, int]:
    """Return the row and the column of an offset."""
    return text.count("\n", 0, at), at - _line_start(text, at)


def get_selection(state: Vim, text: str) -> tuple[int, int]:
    """Return the start and end of the selection, without a final line break in line mode."""
    start, end = min(state.anchor, state.head), max(state.anchor, state.head)
    if state.mode == "visual line":
        return _line_start(text, start), _line_end(text, end)
    return start, min(len(text), end + 1)


def press_escape(state: Vim, text: str, at: int) -> Step:
    """Handle Escape: leave insert mode, or drop the selection or unfinished command."""
    state, typing = replace(state, mode="normal", pending=""), state.mode == "insert"
    if not typing:
        return Step(state, at)
    begun, typed = state.began, text[state.began : at]
    if state.before[:begun] + typed + state.before[begun:] == text:
        state = replace(state, typed=typed)
    return Step(state, at if at == _line_start(text, at) else at - 1)


def press(state: Vim, key: str, text: str, at: int) -> Step:
    """Return the effect of the character `key` in normal mode or on a selection."""
    if key == "." and state.mode == "normal" and not state.pending:
        return _repeat(state, text, at)
    keys = state.pending + key
    step = (_press_on_selection if state.selects else _press_normal)(state, keys, text, at)
    behind = replace(state, mode=step.state.mode, pending=step.state.pending, anchor=step.state.anchor, head=step.at)
    if step.register is not None:
        behind = replace(behind, register=step.register)
    if step.insert is not None or behind.mode == "insert":
        after = text if step.insert is None else text[: step.start] + step.insert + text[step.end :]
        last = "" if state.selects else keys  # the selected text is not available for a repeat
        behind = replace(behind, last=last, typed="", before=after, began=step.at)
    return replace(step, state=behind)


def _repeat(state: Vim, text: str, at: int) -> Step:
    """Repeat the last change, including the text typed after it."""
    step, now = Step(state, at), replace(state, pending="")
    for key in state.last:
        step = press(now, key, text, at)
        now = step.state
    if step.state.mode != "insert":
        return step
    start, end = (step.at, step.at) if step.insert is None else (step.start, step.end)
    inserted, typing = step.insert or "", step.at - start
    insert = inserted[:typing] + state.typed + inserted[typing:]
    back = max(start, step.at + len(state.typed) - 1)
    behind = replace(step.state, mode="normal", typed=state.typed)
    return replace(step, state=behind, at=back, start=start, end=end, insert=insert)


def _press_normal(state: Vim, keys: str, text: str, at: int) -> Step:
    count, command = _split_count(keys)
    still = Step(Vim("normal"), at)
    operator, rest = command[:1], command[1:]
    if command in ("", "g", "r", *OPERATORS) or (operator and operator in OPERATORS and _is_unfinished(rest)):
        return replace(still, state=Vim("normal", keys))
    if operator in OPERATORS:
        more, what = _split_count(rest)
        return _operate(operator, what, min(count * more, MAX_COUNT), text, at) or still
    if operator == "r":
        return _overwrite(rest, text, at, at + count) if at + count <= _line_end(text, at) else still
    if command in VISUAL:
        return Step(Vim(VISUAL[command], anchor=at), at)
    if command in ("p", "P"):
        return _put(state.register, count, text, at, before=command == "P")
    if (target := find_target(command, count, text, at)) is not None:
        return replace(still, at=_to_character(text, target))
    return _run_single(command, count, text, at) or still


def _is_unfinished(keys: str) -> bool:
    """Return whether the keys after an operator are an incomplete motion such as `2`, `g` or `2g`."""
    return _split_count(keys)[1] in ("", "g") and keys[:1] != "0"


def _press_on_selection(state: Vim, keys: str, text: str, at: int) -> Step:
    count, command = _split_count(keys)
    here = Vim(state.mode, anchor=state.anchor)
    start, end = get_selection(state, text)
    lines = state.mode == "visual line"
    match command:
        case "" | "g" | "r":
            return Step(replace(here, pending=keys), at)
        case "v" | "V":
            return Step(Vim("normal") if VISUAL[command] == state.mode else replace(here, mode=VISUAL[command]), at)
        case "o":
            return Step(replace(here, anchor=at), state.anchor)
        case "y":
            return Step(Vim("normal"), start, register=Register(text[start:end], lines))
        case "d" | "x" | "c":
            return _cut("c" if command == "c" else "d", text, start, end, lines=lines)
        case "p" | "P":
            put = state.register.text
            return Step(Vim("normal"), start, start, end, put, register=Register(text[start:end], lines))
        case _ if command[0] == "r":
            return _overwrite(command[1:], text, start, end)
        case _:
            target = find_target(command, count, text, at)
            return Step(here, at if target is None else _to_character(text, target))


def _split_count(keys: str) -> tuple[int, str]:
    """Split `12dw` into its count and the rest; 0 alone is a motion."""
    digits = 0
    while digits < len(keys) and keys[digits].isdecimal() and (digits or keys[digits] != "0"):
        digits += 1
    return min(int(keys[:digits] or "1"), MAX_COUNT), keys[digits:]


def _run_single(command: str, count: int, text: str, at: int) -> Step | None:
    """Return the effect of a single-key command that is not a motion; None for another key."""
    begin, end = _line_start(text, at), _line_end(text, at)
    insert = Vim("insert")
    match command:
        case "x" if at < end:
            return _cut("d", text, at, min(end, at + count))
        case "D":
            return _cut("d", text, at, end)
        case "C":
            return _cut("c", text, at, end)
        case "u":
            return Step(Vim("normal"), at, undo=True)
        case "i":
            return Step(insert, at)
        case "a":
            return Step(insert, min(end, at + 1))
        case "I":
            return Step(insert, _find_first_word(text, begin))
        case "A":
            return Step(insert, end)
        case "o":
            return Step(insert, end + 1, end, end, "\n")
        case "O":
            return Step(insert, begin, begin, begin, "\n")
        case _:
            return None


def _operate(operator: str, what: str, count: int, text: str, at: int) -> Step | None:
    """Apply `d`, `c` or `y` with a motion, or doubled to entire lines; None for an invalid motion."""
    if what == operator:
        end = _line_end(text, at)
        for _ in range(count - 1):
            end = _line_end(text, min(end + 1, len(text)))
        return _cut(operator, text, _line_start(text, at), end, lines=True, at=at)
    if operator == "c" and what == "w" and at < len(text) and not text[at].isspace():
        what = "e"  # as in Vim, the space after the word stays
    target = find_target(what, count, text, at)
    if target is None:
        return None
    if what in ("j", "k", "G", "gg"):
        start, end = _line_start(text, min(at, target)), _line_end(text, max(at, target))
        return _cut(operator, text, start, end, lines=True, at=min(at, target))
    if what == "w":
        target = min(target, _line_end(text, at)) if count == 1 else target
    start, end = min(at, target), max(at, target) + (what == "e")
    return _cut(operator, text, start, min(len(text), end))


def _cut(operator: str, text: str, start: int, end: int, *, lines: bool = False, at: int | None = None) -> Step:
    """Copy `start` to `end`, and cut it unless the operator is `y`.

    With `lines`, `d` also removes a line break and `c` keeps an empty line.
    """
    taken = Register(text[start:end], lines)
    if operator == "y":
        return Step(Vim("normal"), start if at is None else at, register=taken)
    if operator == "c":
        return Step(Vim("insert"), start, start, end, "", register=taken)
    if lines and end < len(text):
        end += 1
    elif lines and start:
        start -= 1  # delete the last line with the line break before it
    rest = text[:start] + text[end:]
    at = _line_start(rest, min(start, len(rest))) if lines and not at else min(start, len(rest))
    return Step(Vim("normal"), _to_character(rest, at), start, end, "", register=taken)


def _put(register: Register, count: int, text: str, at: int, *, before: bool) -> Step:
    """Put the register after (`p`) or before (`P`) the cursor; lines go below or above its line."""
    begin, end = _line_start(text, at), _line_end(text, at)
    if register.lines:
        lines = "\n".join([register.text] * count)
        start = begin if before else end
        return Step(Vim("normal"), begin if before else end + 1, start, start, f"{lines}\n" if before else f"\n{lines}")
    if not register.text:
        return Step(Vim("normal"), at)
    start, put = at if before else min(end, at + 1), register.text * count
    return Step(Vim("normal"), start + len(put) - 1, start, start, put)


def _overwrite(character: str, text: str, start: int, end: int) -> Step:
    """Replace every character except line breaks by `character`."""
    put = "".join("\n" if c == "\n" else character for c in text[start:end])
    return Step(Vim("normal"), start, start, end, put)


# --- motions ------------------------------------------------------------------------------------------------


def find_target(key: str, count: int, text: str, at: int) -> int | None:
    """Return the target of a motion, possibly a line's end; None if `key` is not a motion."""
    match key:
        case "h":
            return max(_line_start(text, at), at - count)
        case "l":
            return min(_line_end(text, at), at + count)
        case "0":
            return _line_start(text, at)
        case "$":
            return _line_end(text, at)
        case "gg" | "G":
            lines = text.split("\n")
            row = count - 1 if key == "gg" or count > 1 else len(lines) - 1
            return _find_first_word(text, sum(len(line) + 1 for line in lines[: min(row, len(lines) - 1)]))
        case "j" | "k":
            for _ in range(count):
                at = _move_line(text, at, 1 if key == "j" else -1)
            return at
        case "w" | "b" | "e":
            step = {"w": _find_next_word, "b": _find_word_before, "e": _find_word_end}[key]
            for _ in range(count):
                at = step(text, at)
            return at
        case _:
            return None


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _to_character(text: str, at: int) -> int:
    """Return the position for normal mode, on a character unless the line is empty."""
    return max(_line_start(text, at), at - 1) if at == _line_end(text, at) else at


def _find_first_word(text: str, begin: int) -> int:
    end = _line_end(text, begin)
    return begin + len(text[begin:end]) - len(text[begin:end].lstrip())


def _move_line(text: str, at: int, step: int) -> int:
    """Return the same column one line down or up, limited to that line's length; `at` at the edge."""
    begin, end = _line_start(text, at), _line_end(text, at)
    if (step > 0 and end == len(text)) or (step < 0 and not begin):
        return at
    other = end + 1 if step > 0 else _line_start(text, begin - 1)
    return min(other + at - begin, _line_end(text, other))


def _classify(character: str) -> int:
    return 0 if character.isspace() else 1 if character.isalnum() or character == "_" else 2


def _find_next_word(text: str, at: int) -> int:
    if at >= len(text):
        return at
    kind = _classify(text[at])
    while at < len(text) and kind and _classify(text[at]) == kind:
        at += 1
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _find_word_before(text: str, at: int) -> int:
    while at and text[at - 1].isspace():
        at -= 1
    kind = _classify(text[at - 1]) if at else 0
    while at and _classify(text[at - 1]) == kind:
        at -= 1
    return at


def _find_word_end(text: str, at: int) -> int:
    at += 1
    while at < len(text) and text[at].isspace():
        at += 1
    if at >= len(text):
        return max(0, len(text) - 1)
    while at + 1 < len(text) and _classify(text[at + 1]) == _classify(text[at]):
        at += 1
    return at


EDITING = {
    "cursor_left": "Left",
    "cursor_right": "Right",
    "cursor_word_left": "A word left",
    "cursor_word_right": "A word right",
    "cursor_line_start": "Start of the line",
    "cursor_line_end": "End of the line",
    "delete_left": "Delete to the left",
    "delete_word_left": "Delete the word to the left",
    "delete_right": "Delete to the right",
    "delete_word_right": "Delete the word to the right",
    "delete_to_start_of_line": "Delete to the start of the line",
    "delete_to_end_of_line_or_delete_line": "Delete to the end of the line",
    "select_all": "Select everything",
}


def iter_editing_keys() -> Iterator[Binding]:
    """Yield the editing keys of Textual's editor that the prompt keeps, with new ids."""
    for binding in TextArea.BINDINGS:
        if isinstance(binding, Binding) and binding.action in EDITING:
            name = binding.action.replace("(True)", "-selecting").replace("_", "-")
            yield dataclasses.replace(binding, id=f"prompt.{name}", description=EDITING[binding.action], show=False)


class VimArea(TextArea):
    """An editor with optional vim keys. Subclasses pass keys to `vim_key` first."""

    class VimMode(Message):
        """The mode of the vim keys changed; "" if they are off."""

        def __init__(self, mode: str) -> None:
            super().__init__()
            self.mode = mode

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._vim: Vim | None = None  # None: Vim keys are off

    def _recompute_cursor_offset(self) -> None:
        """Skip the update while an undo or redo has changed the text but not the cursor yet."""
        if self.cursor_location[0] < self.document.line_count:
            super()._recompute_cursor_offset()

    def use_vim(self, on: bool) -> None:
        """Turn Vim keys on or off; they start in insert mode."""
        self._set_state(Vim() if on else None)

    def _set_state(self, state: Vim | None) -> None:
        before, self._vim = self._vim, state
        mode = state.mode if state is not None else ""
        if mode != (before.mode if before is not None else ""):
            self.post_message(self.VimMode(mode))

    def return_to_insert(self) -> None:
        """Return to insert mode if Vim keys are on."""
        if self._vim is not None:
            self._set_state(replace(self._vim, mode="insert", pending=""))

    def vim_key(self, event: events.Key) -> bool:
        """Handle a key as in Vim; returns whether it has a meaning there.

        Escape has one in insert mode, a selection or an unfinished command; every character has one in normal mode.
        """
        state = self._vim
        if state is None:
            return False
        text = self.text
        at = get_offset(text, self.cursor_location)
        if state.selects:
            if self.selection == self._make_selection(state, text):
                at = state.head  # the editor's cursor is after the last character
            else:  # an arrow key or the mouse moved the cursor
                state = replace(state, mode="normal")
        if event.key == "escape":
            if state.mode == "normal" and not state.pending:
                self._set_state(state)
                return False
            self._apply_step(press_escape(state, text, at))
        elif state.mode != "insert" and is_text(event) and event.character:
            self._apply_step(press(state, event.character, text, at))
        else:
            return False
        return True

    def _make_selection(self, state: Vim, text: str) -> Selection:
        start, end = get_selection(state, text)
        return Selection(get_place(text, start), get_place(text, end))

    def _apply_step(self, step: Step) -> None:
        text = self.text
        if step.undo:
            self.action_undo()
        elif step.insert is not None:
            self.replace(step.insert, get_place(text, step.start), get_place(text, step.end))
            self.move_cursor(get_place(self.text, step.at))
        elif step.state.selects:
            self.selection = self._make_selection(step.state, text)
        else:
            self.move_cursor(get_place(text, step.at))
        self._set_state(step.state)
