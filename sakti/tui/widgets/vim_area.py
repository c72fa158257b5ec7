"""Extend Textual's editor with ids for its keys and optional Vim keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from sakti.tui.keys import is_text
from sakti.tui.widgets import vim
from sakti.tui.widgets.vim import Vim

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


def editing_keys() -> Iterator[Binding]:
    """Yield the editing keys of Textual's editor that the prompt keeps, with new ids."""
    for binding in TextArea.BINDINGS:
        if isinstance(binding, Binding) and binding.action in EDITING:
            name = binding.action.replace("(True)", "-selecting").replace("_", "-")
            yield dataclasses.replace(binding, id=f"prompt.{name}", description=EDITING[binding.action], show=False)


class VimArea(TextArea):
    """An editor that may have vim's keys. Who inherits asks `vim_key` first."""

    class VimMode(Message):
        """The prompt is in this mode of vim's keys; "": it has none."""

        def __init__(self, mode: str) -> None:
            super().__init__()
            self.mode = mode

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._vim: Vim | None = None  # None: no vim keys

    def _recompute_cursor_offset(self) -> None:
        """Wait for the cursor while an undo or redo has changed the text and not moved it yet."""
        if self.cursor_location[0] < self.document.line_count:
            super()._recompute_cursor_offset()

    def use_vim(self, on: bool) -> None:
        """Turn Vim keys on or off; they start in insert mode."""
        self._into(Vim() if on else None)

    def _into(self, state: Vim | None) -> None:
        before, self._vim = self._vim, state
        mode = state.mode if state is not None else ""
        if mode != (before.mode if before is not None else ""):
            self.post_message(self.VimMode(mode))

    def type_again(self) -> None:
        """Return to insert mode if Vim keys are on."""
        if self._vim is not None:
            self._into(replace(self._vim, mode="insert", pending=""))

    def vim_key(self, event: events.Key) -> bool:
        """Handle a key with Vim's meaning; returns whether it has one.

        Escape has one in insert mode, a selection or an unfinished command; every character has one in normal mode.
        """
        state = self._vim
        if state is None:
            return False
        text = self.text
        at = vim.offset_of(text, self.cursor_location)
        if state.selects:
            if self.selection == self._selection_of(state, text):
                at = state.head  # the editor's cursor is after the last character
            else:  # an arrow key or the mouse chose another place
                state = replace(state, mode="normal")
        if event.key == "escape":
            if state.mode == "normal" and not state.pending:
                self._into(state)
                return False
            self._vim_step(vim.leave(state, text, at))
        elif state.mode != "insert" and is_text(event) and event.character:
            self._vim_step(vim.press(state, event.character, text, at))
        else:
            return False
        return True

    def _selection_of(self, state: Vim, text: str) -> Selection:
        start, end = vim.get_selection(state, text)
        return Selection(vim.place_of(text, start), vim.place_of(text, end))

    def _vim_step(self, step: vim.Step) -> None:
        text = self.text
        if step.undo:
            self.action_undo()
        elif step.insert is not None:
            self.replace(step.insert, vim.place_of(text, step.start), vim.place_of(text, step.end))
            self.move_cursor(vim.place_of(self.text, step.at))
        elif step.state.selects:
            self.selection = self._selection_of(step.state, text)
        else:
            self.move_cursor(vim.place_of(text, step.at))
        self._into(step.state)
