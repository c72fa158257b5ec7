"""Base of the screens over the chat: a frame with a title and a line of keys; Esc goes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.getters import query_one
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from sakti.core.text import to_one_line
from sakti.tui.host import STYLES, Host, get_app, get_host
from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import Line
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.safe_input import AskLine, SafeInput

Result = TypeVar("Result")
Keys: TypeAlias = Sequence[tuple[str, str]]  # label, and the screen's action that a click runs, or ""
BACK = ("esc back", "close")
WRITING: Keys = (("enter save", ""), ("esc cancel", "close"))  # while an input line asks


def make_clickable(keys: Keys, width: int = 0) -> Content:
    """Format clickable keys with descriptions, wrapped between keys at `width` cells (0: no limit).

    The text is markup, so it must not contain external input.
    """
    out, used = "", 0
    for text, do in keys:
        size = cell_len(text)
        folds = used and width and used + 3 + size > width
        out += "\n" if folds else " · " if used else ""
        used = size if folds or not used else used + 3 + size
        out += f"[@click=screen.{do}]{text}[/]" if do else text
    return Content.from_markup(out)


class KeyLine(Static):
    """The clickable keys of a screen."""

    def __init__(self, keys: Keys, *, id: str) -> None:
        super().__init__(make_clickable(keys), id=id, markup=False)
        self._keys = keys

    def show(self, keys: Keys) -> None:
        """Show these keys instead."""
        self._keys = keys
        self.update(make_clickable(keys, self.size.width))

    def on_resize(self) -> None:
        self.show(self._keys)


class Panel(ModalScreen[Result]):
    """A screen over the chat. `title` may be untrusted; it is sanitised here."""

    CSS_PATH: ClassVar[Any] = [STYLES / "panels.tcss"]  # loaded with the first panel
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Back", id="panel.close"),
    ]
    keys: ClassVar[Keys] = (BACK,)
    writing_keys: ClassVar[Keys] = WRITING

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = to_one_line(title, 200)

    @property
    def host(self) -> Host:
        return get_host(self)

    @property
    def is_open(self) -> bool:
        """Return whether the screen is still on the stack; answers may arrive after it was closed."""
        return self in get_app(self).screen_stack

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return False until the widgets are mounted: priority keys may arrive before that."""
        return self.is_mounted or action == "close"

    def compose(self) -> ComposeResult:
        with Vertical(id="panel"):
            yield Static(self._title, id="panel-title", markup=False)
            yield from self.compose_body()
            yield KeyLine(self.list_keys(), id="panel-keys")

    def compose_body(self) -> ComposeResult:
        raise NotImplementedError

    def list_keys(self) -> Keys:
        """Return the keys for the last line."""
        return self.keys

    @on(events.DescendantFocus)
    def _show_active_keys(self) -> None:
        """Show the keys of an open input line instead of those that are text there."""
        if lines := self.query(AskLine):
            keys = self.writing_keys if any(line.question for line in lines) else self.list_keys()
            self.query_one("#panel-keys", KeyLine).show(keys)

    def set_title(self, title: str) -> None:
        """Set the title; does nothing if the screen was closed meanwhile."""
        for line in self.query("#panel-title").results(Static):
            line.update(to_one_line(title, 200))

    def action_close(self) -> None:
        """Close an open input line, else the screen."""
        if not any(line.end() for line in self.query(AskLine)):
            self.leave()

    def leave(self) -> None:
        self.dismiss(None)

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Close the screen; does nothing if it is already closing, so no other screen is closed."""
        return super().dismiss(result) if get_app(self).screen is self else AwaitComplete()


class ListPanel(Panel[Any]):
    """A filter line over a list. Subclasses define `rows(text)` and `draw`; Enter dismisses with the row."""

    AUTO_FOCUS = "#panel-input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "list(1)", "Down", show=False, id="panel.down"),
        Binding("up", "list(-1)", "Up", show=False, id="panel.up"),
        Binding("pagedown", "list(10)", "Page down", show=False, id="panel.pagedown"),
        Binding("pageup", "list(-10)", "Page up", show=False, id="panel.pageup"),
    ]
    placeholder = "filter"
    empty = "nothing found"
    keys: ClassVar[Keys] = (("↑↓ move", ""), ("enter choose", "open"), BACK)
    result_list = query_one("#panel-list", LineList)
    input = query_one("#panel-input", Input)
    _filtered_by = ""

    def compose_body(self) -> ComposeResult:
        yield SafeInput(placeholder=self.placeholder, id="panel-input", compact=True)
        yield LineList(self.draw, empty=self.empty, id="panel-list")

    def on_mount(self) -> None:
        if self.is_open:  # otherwise it was closed while opening
            self.refresh_rows()

    def rows(self, text: str) -> Sequence[Any]:
        raise NotImplementedError

    def describe_empty(self, text: str) -> str:
        """Return the text for an empty list, with the filter `text` ("" if unfiltered)."""
        return self.empty

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        raise NotImplementedError

    def refresh_rows(self) -> None:
        self._filtered_by = self.input.value.strip()
        self.result_list.set_empty_text(self.describe_empty(self._filtered_by))
        self.result_list.set_rows(self.rows(self._filtered_by), cursor=0)
        self.result_list.cursor_always = True

    @on(Input.Changed, "#panel-input")
    def _filter_rows(self) -> None:
        if self.input.value.strip() != self._filtered_by:  # mounting the input sends an empty change
            self.refresh_rows()

    @on(Input.Submitted, "#panel-input")
    def _open_current(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        self.result_list.action_open()

    @on(LineList.Opened, "#panel-list")
    def _choose_row(self, event: LineList.Opened) -> None:
        event.stop()
        self.choose(event.row)

    def choose(self, row: Any) -> None:
        self.dismiss(row)

    def action_list(self, step: int) -> None:
        self.result_list.action_move(step)
