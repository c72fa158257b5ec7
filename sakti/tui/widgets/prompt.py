"""Edit the user's input. Enter sends; long pastes are folded into placeholders but sent in full."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from sakti.actions.line import Choice, CompletionQuery, query_at
from sakti.agent.mentions import LONGEST_PATHS, find_pasted_images, format_mention
from sakti.core import content as core_content
from sakti.core.text import FOLD_LINES, clean_surrogates, describe_paste, sanitize_typed, to_one_line
from sakti.tui.host import get_app
from sakti.tui.keys import is_text
from sakti.tui.widgets.vim import VimArea, iter_editing_keys

FOLD_CHARACTERS = 20_000
_IMAGE = "[image "


class Placeholders:
    """Labels of folded pastes and images, such as `[40 lines]`, and the full text of each."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def copy(self) -> Placeholders:
        other = Placeholders()
        other._texts = dict(self._texts)
        return other

    def clear(self) -> None:
        self._texts.clear()

    def pasted_in(self, text: str) -> tuple[str, ...]:
        """Return the folded pastes whose labels are in `text`."""
        return tuple(w for sign, w in self._texts.items() if sign in text and not sign.startswith(_IMAGE))

    def fold(self, text: str) -> str:
        """Return the displayed form of `text`: sanitised, or a label if it is long."""
        lines = text.count("\n") + 1
        if len(text) < FOLD_CHARACTERS and lines <= FOLD_LINES:
            return sanitize_typed(text)  # the editor would pass control characters to the terminal
        return self._sign(describe_paste(text), text)

    def image(self, path: Path, size: int) -> str:
        """Return the label of an image of `size` bytes, which is sent as its `@path`."""
        return self._sign(f"image {to_one_line(path.name, 40)} {core_content.format_size(size)}", format_mention(path))

    def _sign(self, what: str, whole: str) -> str:
        sign, number = f"[{what}]", 1
        while sign in self._texts:
            number += 1
            sign = f"[{what} #{number}]"
        self._texts[sign] = whole
        return sign

    def unfold(self, text: str) -> str:
        """Return `text` with all labels replaced, as it is sent."""
        if not self._texts:
            return text
        return self._pattern().sub(lambda m: self._expand(m, text), text)

    def _expand(self, match: re.Match[str], text: str) -> str:
        content, follows = self._texts[match[0]], text[match.end() : match.end() + 1]
        apart = match[0].startswith(_IMAGE) and bool(follows) and not follows.isspace()
        return f"{content} " if apart else content  # a space ends a path

    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self._texts, key=len, reverse=True))))

    def around(self, line: str, column: int) -> tuple[int, int] | None:
        """Return the (start, end) of the label in `line` that contains `column`, excluding its ends."""
        return self._find(line, lambda start, end: start < column < end)

    def before(self, line: str, column: int) -> tuple[int, int] | None:
        """Return the (start, end) of the label that ends at `column`, including the space after an image."""
        span = self._find(line, lambda start, end: end == column)
        if span is None and line[column - 1 : column] == " ":
            span = self._find(line, lambda start, end: end == column - 1 and line.startswith(_IMAGE, start))
        return span and (span[0], column)

    def after(self, line: str, column: int) -> tuple[int, int] | None:
        """Return the (start, end) of the label that begins at `column`."""
        return self._find(line, lambda start, end: start == column)

    def _find(self, line: str, fits: Callable[[int, int], bool]) -> tuple[int, int] | None:
        if not self._texts:
            return None
        return next((m.span() for m in self._pattern().finditer(line) if fits(*m.span())), None)


class HistorySearch(Struct, frozen=True):
    """`entries` oldest first; `at` counts the matches from the newest."""

    entries: Sequence[str]
    query: str = ""
    at: int = 0

    @property
    def matches(self) -> list[str]:
        """Return the distinct matching entries, newest first; a lower-case query ignores case."""
        fold = self.query == self.query.lower()
        hits = (e for e in reversed(self.entries) if self.query in (e.lower() if fold else e))
        return list(dict.fromkeys(hits)) if self.query else []

    @property
    def current(self) -> str | None:
        """Return the selected entry; None without a match or a query."""
        matches = self.matches
        return matches[min(self.at, len(matches) - 1)] if matches else None

    def type(self, text: str) -> HistorySearch:
        return replace(self, query=self.query + text, at=0)

    def erase(self) -> HistorySearch:
        return replace(self, query=self.query[:-1], at=0)

    def step(self, step: int) -> HistorySearch:
        """Go to the next older (1) or newer (-1) match, up to the ends."""
        return replace(self, at=max(0, min(self.at + step, len(self.matches) - 1)))

    def describe(self) -> str:
        """Return the text for the status line."""
        keys = "ctrl+r older · enter use · esc cancel"
        count = len(self.matches)
        if not self.query:
            return f"search previous prompts: type a word · {keys}"
        where = f"{min(self.at, count - 1) + 1} of {count}" if count else "nothing"
        return f"history “{self.query}”: {where} · {keys}"


PLACEHOLDER = "Message sakti"


class Prompt(VimArea):
    """A multi-line editor with history, completion and folded pastes."""

    HELP = "Enter sends, shift+Enter, ctrl+j or \\ and Enter start a new line. / commands, @ files, ! shell, # note."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Send", show=False, id="prompt.send"),
        Binding("shift+enter,ctrl+j,alt+enter", "newline", "New line", show=False, id="prompt.newline"),
        Binding("up", "up", "Line up, or previous prompt", show=False, id="prompt.up"),
        Binding("down", "down", "Line down, or next prompt", show=False, id="prompt.down"),
        Binding("tab", "complete", "Complete", show=False, id="prompt.complete"),
        Binding("ctrl+r", "search_history", "Search previous prompts", show=False, id="prompt.history"),
        Binding("ctrl+g", "screen.edit_prompt", "Write in $VISUAL or $EDITOR", show=False, id="prompt.editor"),
        Binding("pageup", "screen.scroll_chat(-1)", "Scroll up", show=False, id="prompt.pageup"),
        Binding("pagedown", "screen.scroll_chat(1)", "Scroll down", show=False, id="prompt.pagedown"),
        Binding("end", "end", "End of the line; in an empty prompt, newest", show=False, id="prompt.end"),
        Binding("ctrl+home", "screen.scroll_chat(-2)", "Oldest", show=False, id="prompt.oldest"),
        Binding("ctrl+end", "screen.scroll_chat(2)", "Newest", show=False, id="prompt.newest"),
        Binding("ctrl+c,super+c", "screen.stop", "Copy, stop, clear, quit", show=False, id="prompt.stop"),
        Binding("ctrl+y", "screen.copy_answer", "Copy the last answer", show=False, id="prompt.copy"),
        Binding(
            "ctrl+x,super+x",
            "cut_or_unqueue",
            "Cut; with nothing typed, return queued messages to the prompt",
            show=False,
            id="prompt.cut",
        ),
        Binding("ctrl+v,super+v", "paste", "Paste text or an image", show=False, id="prompt.paste"),
        Binding("f6", "screen.browse", "Browse the messages", show=False, id="prompt.browse"),
        Binding("ctrl+underscore,super+z", "undo", "Undo", show=False, id="prompt.undo"),
        *iter_editing_keys(),
    ]

    class Submitted(Message):
        """`text` is ready to send, with pastes unfolded; `pasted` lists them."""

        def __init__(self, text: str, pasted: tuple[str, ...] = ()) -> None:
            super().__init__()
            self.text = text
            self.pasted = pasted

    class EmptySubmitted(Message):
        """Enter in an empty prompt."""

    class CompletionRequested(Message):
        """The word at the cursor can be completed; None: it no longer can."""

        def __init__(self, query: CompletionQuery | None) -> None:
            super().__init__()
            self.query = query

    class Moved(Message):
        """Up or down in the list of completions."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    class Accepted(Message):
        """Take the chosen completion. `send`: Enter was pressed."""

        def __init__(self, send: bool) -> None:
            super().__init__()
            self.send = send

    class Searching(Message):
        """The user searches previous input; `text` describes the state, "" at the end."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class ClipboardWanted(Message):
        """ctrl+v."""

    class FirstKey(Message):
        """The user began to type."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, compact=True, placeholder=PLACEHOLDER, highlight_cursor_line=False)
        self.history_entries: list[str] = []  # oldest first
        self.completing = False
        self._at: int | None = None  # position in the history
        self._draft = ""
        self._placeholders = Placeholders()
        self._search: HistorySearch | None = None
        self._before_search: tuple[str, Placeholders, tuple[int, int]] = ("", Placeholders(), (0, 0))
        self._touched = False
        self._gives_way = ""  # returned text that is still unchanged: a command replaces it

    @property
    def value(self) -> str:
        """Return the text that sending would submit now."""
        return self._placeholders.unfold(self.text)

    def set_text(self, text: str, *, gives_way: bool = False) -> None:
        """Replace the text and put the cursor at its end; with `gives_way`, a `/` typed next replaces it."""
        self._placeholders.clear()
        self.load_text(self._placeholders.fold(text))
        self.move_cursor(self.document.end)
        self._gives_way = self.text if gives_way else ""

    def insert_text(self, text: str) -> None:
        """Insert `text` at the cursor, folded if it is long."""
        self._leave_sign()
        self.insert(self._placeholders.fold(text))

    def insert_image(self, path: Path, size: int) -> None:
        """Insert the label of an image, which is sent as its `@path`, at the cursor."""
        self._leave_sign()
        sign = self._placeholders.image(path, size)
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        self.insert(f"{'' if not before or before[-1].isspace() else ' '}{sign} ")

    def apply(self, query: CompletionQuery, choice: Choice) -> None:
        """Replace the query's text by a completion."""
        row, column = self.cursor_location
        self.replace(choice.insert, (row, query.start), (row, column))
        self.move_cursor((row, query.start + len(choice.insert)))

    async def _on_key(self, event: events.Key) -> None:
        if not self._touched:
            self._touched = True
            self.post_message(self.FirstKey())
        if self._is_taken(event):
            event.stop()
            event.prevent_default()
            return
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            # handled here to keep the order of keys: a binding could run before or after letters typed around it
            event.stop()
            event.prevent_default()
            self._gives_way = ""
            if event.key in ("backspace", "delete", "ctrl+w", "ctrl+u"):
                self.completing = False
            await self.run_action(binding.action)
            return
        if is_text(event):
            self._give_way(event)
            self._leave_sign()
            self.completing = False  # the offered completions belong to the previous text
        if is_text(event) and not event.is_printable:
            event.stop()
            event.prevent_default()
            self._replace_via_keyboard(event.character or "", *self.selection)
            return
        await super()._on_key(event)

    def _give_way(self, event: events.Key) -> None:
        """Clear returned text if the first letter typed after it begins a command; the up key restores it."""
        if event.character == "/" and self._gives_way and self._gives_way == self.text:
            self.clear_text()
        self._gives_way = ""

    def _is_taken(self, event: events.Key) -> bool:
        """Let the search, the completions or Vim handle a key; False if none of them does."""
        if self._search is not None and self._search_key(event):
            return True
        if event.key == "escape" and self.completing:
            self.post_message(self.CompletionRequested(None))
            return True
        return self.vim_key(event)

    def use_keys(self, keys: Mapping[str, str]) -> None:
        """Apply the user's own keys, by binding id."""
        self._bindings.apply_keymap(dict(keys))

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = clean_surrogates(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        if self._search is not None:
            self._look(self._search.type(to_one_line(text, 200)))
            return
        files = await asyncio.to_thread(_find_images, event.text) if len(text) < LONGEST_PATHS else []
        for path, size in files:
            self.insert_image(path, size)
        if not files:
            self.insert_text(text)

    def on_text_area_changed(self) -> None:
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column] if self.selection.is_empty else ""
        offers = self._search is None and not self._is_recalled() and (row == 0 or "@" in before)
        query = query_at(before) if offers else None
        if query is not None and query.kind != "file" and row:
            query = None
        self.post_message(self.CompletionRequested(query))

    def _is_recalled(self) -> bool:
        """Return whether the text is unchanged older input, so that up and down continue in the history."""
        return self._at is not None and self.value == self.history_entries[self._at]

    # --- labels, which are edited as one character ----------------------------------------------------------------

    def _leave_sign(self) -> None:
        """Move the cursor out of a label: typing inside would break its link to the paste."""
        row, column = self.cursor_location
        if self.selection.is_empty and (span := self._placeholders.around(self.document.get_line(row), column)):
            self.move_cursor((row, span[1]))

    def _delete_sign(self, left: bool) -> bool:
        """Delete the label to the left or right of the cursor; False without one."""
        self._leave_sign()
        row, column = self.cursor_location
        find = self._placeholders.before if left else self._placeholders.after
        span = find(self.document.get_line(row), column) if self.selection.is_empty else None
        if span is not None:
            self.replace("", (row, span[0]), (row, span[1]))
        return span is not None

    def action_delete_left(self) -> None:
        if not self._delete_sign(True):
            super().action_delete_left()

    def action_delete_word_left(self) -> None:
        if not self._delete_sign(True):
            super().action_delete_word_left()

    def action_delete_right(self) -> None:
        if not self._delete_sign(False):
            super().action_delete_right()

    def action_delete_word_right(self) -> None:
        if not self._delete_sign(False):
            super().action_delete_word_right()

    def action_delete_to_start_of_line(self) -> None:
        self._leave_sign()
        super().action_delete_to_start_of_line()

    async def action_delete_to_end_of_line_or_delete_line(self) -> None:
        self._leave_sign()
        await super().action_delete_to_end_of_line_or_delete_line()

    def action_paste(self) -> None:
        """Request a paste: an image from the system clipboard, or the text copied in this window."""
        self.post_message(self.ClipboardWanted())

    @property
    def own_clipboard(self) -> str:
        """Return the text copied in this window."""
        return get_app(self).clipboard

    def paste_own(self) -> bool:
        """Insert the text copied in this window; False if there is none."""
        if not self.own_clipboard:
            return False
        super().action_paste()
        return True

    async def action_end(self) -> None:
        if self.text:
            self.action_cursor_line_end()
        else:
            await self.run_action("screen.scroll_chat(2)")

    def action_newline(self) -> None:
        self._leave_sign()
        self.insert("\n")

    async def action_cut_or_unqueue(self) -> None:
        if self.text:
            self.action_cut()
        else:
            await self.run_action("screen.unqueue")

    def action_submit(self) -> None:
        if self.completing:
            self.post_message(self.Accepted(send=True))
            return
        row, column = self.cursor_location
        line = self.document.get_line(row)
        if line.endswith("\\") and column == len(line) and not line.endswith("\\\\"):
            self.replace("\n", (row, column - 1), (row, column))
            return
        self.send()

    def clear_text(self) -> None:
        """Clear the prompt; the up key brings the text back."""
        text = self.value
        if text.strip() and self.history_entries[-1:] != [text]:
            self.history_entries.append(text)
        self._at = None
        self.set_text("")

    def send(self) -> None:
        """Submit the text and clear the prompt; posts `EmptySubmitted` if the text is blank."""
        text = self.value
        if not text.strip():
            self.post_message(self.EmptySubmitted())
            return
        if not self.history_entries or self.history_entries[-1] != text:
            self.history_entries.append(text)
        self._at = None
        pasted = self._placeholders.pasted_in(self.text)
        self._placeholders.clear()
        self.load_text("")
        self.return_to_insert()
        # with the prompt as sender: a message sent while another is handled would not bubble above its handler
        self.post_message(self.Submitted(text, pasted).set_sender(self))

    async def action_complete(self) -> None:
        if self.completing:
            self.post_message(self.Accepted(send=False))
        else:
            await self.run_action("screen.tab")

    def action_up(self) -> None:
        if self.completing:
            self.post_message(self.Moved(-1))
        elif self.cursor_location[0] == 0 and self.get_cursor_up_location() == (0, 0):
            self._recall(-1)
        else:
            self.action_cursor_up()

    def action_down(self) -> None:
        if self.completing:
            self.post_message(self.Moved(1))
        elif self.cursor_at_last_line and self.get_cursor_down_location() == self.document.end:
            self._recall(1)
        else:
            self.action_cursor_down()

    def _recall(self, step: int) -> None:
        """Show older (-1) or newer (1) input; after the newest, the unfinished text returns."""
        if self._at is None:
            if step > 0 or not self.history_entries:
                return
            self._draft, self._at = self.value, len(self.history_entries)
        at = max(0, self._at + step)
        if at >= len(self.history_entries):
            self._at = None
            self.set_text(self._draft)
            return
        self._at = at
        self.set_text(self.history_entries[at])
        self.completing = False

    # --- searching the history --------------------------------------------------------------------------------

    def action_search_history(self) -> None:
        """Search previous input incrementally, newest first; Esc restores the prompt."""
        self._before_search = (self.text, self._placeholders.copy(), self.cursor_location)
        self._look(HistorySearch(self.history_entries))

    def _look(self, search: HistorySearch) -> None:
        self._search = search
        if (entry := search.current) is not None:
            self.set_text(entry)
        self.post_message(self.Searching(search.describe()))

    def _search_key(self, event: events.Key) -> bool:
        """Handle a key of the search; returns False for a key that ends the search and is handled as usual."""
        assert self._search is not None
        match event.key:
            case "ctrl+r" | "up":
                self._look(self._search.step(1))
            case "ctrl+s" | "down":
                self._look(self._search.step(-1))
            case "backspace":
                self._look(self._search.erase())
            case "escape" | "ctrl+g" | "ctrl+c":
                text, folds, place = self._before_search
                self._placeholders = folds
                self.load_text(text)
                self.move_cursor(place)
                self._end_search()
            case "enter":
                self._end_search()
            case _ if is_text(event) and event.character:
                self._look(self._search.type(event.character))
            case _:
                self._end_search()
                return False
        return True

    def _end_search(self) -> None:
        if self._search is not None:
            self._search = None
            self.post_message(self.Searching(""))

    def on_blur(self) -> None:
        self._end_search()


def _find_images(text: str) -> list[tuple[Path, int]]:
    """Return the image files that a paste names, with their sizes in bytes."""
    return [(path, path.stat().st_size) for path in find_pasted_images(text)]
