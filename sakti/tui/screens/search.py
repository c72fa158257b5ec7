"""Search all messages, observations and tasks as you type, with results grouped by thread.

A preview beside the list shows the context of a hit; Enter goes there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.getters import query_one
from textual.message import Message
from textual.widgets import Input, Static

from sakti.core.errors import SaktiError
from sakti.core.text import sanitize_text, to_one_line
from sakti.store.search.query import MAX_TEXT
from sakti.tui.host import STYLES
from sakti.tui.palette import Palette
from sakti.tui.screens.panel import Panel
from sakti.tui.screens.search_preview import (
    FILTERS,
    Heading,
    Preview,
    Row,
    choose_next_filter,
    collect_notes,
    describe_filter,
    draw_row,
    find_rule,
    get_filter,
    get_last_key,
    group_hits,
    load_passage,
)
from sakti.tui.screens.text import open_sources
from sakti.tui.transcript.wrap import Line
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.safe_input import SafeInput
from sakti.tui.widgets.status import Chip

if TYPE_CHECKING:
    from sakti.store.search.search import Hit, SearchPage

Scope = Literal["workspace", "thread", "all"]
SCOPES: dict[Scope, str] = {"workspace": "this workspace", "thread": "this thread", "all": "everything"}
DEBOUNCE_S = 0.12  # seconds without a key before a query runs
PREVIEW_DELAY_S = 0.05  # seconds on a hit before its context is loaded
PAGE = 50  # hits per page
SYNTAX = 'words, "phrases", -not, word*, path:FILE, thread:TITLE, task:ID, role:, kind:, after:, before:DATE'
PREFETCH_ROWS = 6  # rows before the end at which the next page is loaded


class SearchState(Struct, frozen=True):
    """State of a closed search: query, scope, number of loaded hits, and the selected hit."""

    text: str
    scope: Scope
    loaded: int
    chosen: str


class ResultList(LineList):
    """Headings and hits; posts `EndNear` when the end comes into sight."""

    class EndNear(Message):
        """The end is near: load more."""

    def add_rows(self, rows: list[Row]) -> None:
        """Append rows without moving those on the screen."""
        self.rows = [*self.rows, *rows]
        self._layout()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value > old_value and new_value + 2 * self.size.height >= self.virtual_size.height:
            self.post_message(self.EndNear())


class SearchScreen(Panel[Any]):
    """Dismisses with the `Hit` to open, or with text for the prompt (ctrl+o); `kept` resumes a search."""

    HELP = SYNTAX
    CSS_PATH: ClassVar[Any] = [*Panel.CSS_PATH, STYLES / "search.tcss"]
    AUTO_FOCUS = "#panel-input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "list(1)", "Down", show=False, id="search.down"),
        Binding("up", "list(-1)", "Up", show=False, id="search.up"),
        Binding("pagedown", "list(8)", "Page down", show=False, id="search.pagedown"),
        Binding("pageup", "list(-8)", "Page up", show=False, id="search.pageup"),
        Binding("ctrl+down,alt+down", "read(1)", "Read on", show=False, priority=True, id="search.read"),
        Binding("ctrl+up,alt+up", "read(-1)", "Read back", show=False, priority=True, id="search.readback"),
        Binding("tab", "scope", "Where", show=False, priority=True, id="search.scope"),
        Binding("alt+k", "filter('kind')", "Kind", show=False, priority=True, id="search.kind"),
        Binding("ctrl+r", "filter('role')", "Who", show=False, priority=True, id="search.role"),
        Binding("ctrl+t", "filter('after')", "When", show=False, priority=True, id="search.after"),
        Binding("ctrl+o", "use", "Into the prompt", show=False, id="search.use"),
        Binding("ctrl+s", "sources", "All sources", show=False, id="search.sources"),
    ]
    input = query_one("#panel-input", Input)
    result_list = query_one("#panel-list", ResultList)
    preview = query_one("#search-preview", Preview)

    def __init__(self, query: str = "", kept: SearchState | None = None) -> None:
        super().__init__("Search")
        self._scope: Scope = kept.scope if kept else "workspace"
        self._first_text = kept.text if kept else to_one_line(query, MAX_TEXT)
        self._restored = kept
        self._hits: list[Hit] = []
        self._notes: dict[str, str] = {}  # notes beside hits, by hit id
        self._total = 0
        self._shown: tuple[str, Scope] | None = None  # the request whose results are shown

    def compose(self) -> ComposeResult:
        with Vertical(id="panel"):
            yield Static(self._title, id="panel-title", markup=False)
            yield SafeInput(placeholder="search messages, observations, tasks", id="panel-input", compact=True)
            with Horizontal(id="search-chips"):
                yield Chip("tab", SCOPES[self._scope], "screen.scope", id="chip-scope")
                for key, name in (("alt+k", "kind"), ("^r", "role"), ("^t", "after")):
                    yield Chip(key, FILTERS[name][""], f"screen.filter('{name}')", id=f"chip-{name}")
            with Container(id="search-body"):
                yield ResultList(self._draw_row, selectable=_is_hit, empty=SYNTAX, id="panel-list")
                yield Preview(id="search-preview")
            with Horizontal(id="search-keys"):
                yield Chip("enter", "go there", "screen.open")
                yield Chip("^o", "into the prompt", "screen.use", behind=True)
                yield Chip("^s", "sources", "screen.sources", behind=True, id="chip-sources")
                yield Chip("^↓ ^↑", "read on", "screen.read(1)", behind=True, id="chip-read")
                yield Chip("esc", "back", "screen.close", behind=True)

    def on_mount(self) -> None:
        self.result_list.can_focus = self.preview.can_focus = False  # typing always goes to the query
        self.result_list.cursor_always = True
        self.query_one("#chip-sources", Chip).display = False
        self.input.value = self._first_text
        self.input.cursor_position = len(self._first_text)
        if self._restored is not None:
            self.call_after_refresh(self.input.select_all)
        self._show_chips()

    @property
    def state(self) -> SearchState:
        """Return the state to continue this search; the initial one if the screen was never drawn."""
        if not self.query("#panel-list"):
            return SearchState(self._first_text, self._scope, 0, "")
        chosen = self.result_list.current
        return SearchState(self.input.value, self._scope, len(self._hits), chosen.id if chosen else "")

    # --- searching --------------------------------------------------------------------------------------------

    def _get_request(self) -> tuple[str, Scope]:
        return self.input.value.strip(), self._scope

    @on(Input.Changed, "#panel-input")
    def _handle_input(self) -> None:
        self._show_chips()
        self._search_soon()

    def _search_soon(self) -> None:
        self.host.start_worker(self._search, DEBOUNCE_S, group="search", exclusive=True)

    async def _search(self, wait: float, then_open: bool = False) -> None:
        """Search for the current input; old results stay visible until new ones arrive."""
        await asyncio.sleep(wait)
        if not self.is_open:
            return
        request = self._get_request()
        restored, self._restored = self._restored, None
        if not request[0]:
            self._shown, self._hits = None, []
            self.result_list.set_rows(())
            self.set_title("Search")
            self._show_hit(None)
            return
        size = max(PAGE, restored.loaded if restored else 0)
        page = await self._load_page(request, size, 0, first=not then_open)
        if page is None:
            return
        self._show(request, page, restored.chosen if restored else "")
        if page.partial:
            page = await self._load_page(request, size, 0)
            if page is None:
                return
            chosen = self.result_list.current
            self._show(request, page, chosen.id if chosen else "")
        if then_open:
            self.action_open()

    def _show(self, asked: tuple[str, Scope], page: SearchPage, chosen: str) -> None:
        self._shown, self._hits, self._total = asked, list(page.hits), page.total
        self._notes = {}
        rows = self._group_page(page)
        at = next((i for i, r in enumerate(rows) if chosen and not isinstance(r, Heading) and r.id == chosen), 0)
        self.result_list.set_rows(rows, cursor=at)
        summary = [page.found] if page.total else [] if page.partial else ["nothing found"]
        remarks = [*summary, *page.notes, *["still searching …"] * page.partial]
        self.set_title("  ".join(("Search", *(to_one_line(note, 80) for note in remarks))))
        self._show_hit(self.result_list.current)

    async def _load_page(
        self, asked: tuple[str, Scope], limit: int, offset: int, *, first: bool = False
    ) -> SearchPage | None:
        """Return hits for `question`; None if the query changed or the search failed, which is reported."""
        try:
            page = await self.host.session.views.search(
                asked[0], scope=asked[1], limit=limit, offset=offset, first=first
            )
        except SaktiError as e:
            if self.is_open:
                self.set_title(f"Search  {e.message}")
            return None
        return page if self.is_open and asked == self._get_request() else None

    @on(ResultList.EndNear)
    def _end_near(self, event: ResultList.EndNear) -> None:
        event.stop()
        self._load_more_soon()

    def _load_more_soon(self) -> None:
        if self._hits and len(self._hits) < self._total and self._shown == self._get_request():
            self.host.start_worker(self._load_more, group="search", exclusive=True)

    async def _load_more(self) -> None:
        """Append the next page of hits."""
        page = await self._load_page(self._get_request(), PAGE, len(self._hits))
        if page is not None:
            self._hits += page.hits
            self._total = page.total if page.hits else len(self._hits)
            self.result_list.add_rows(self._group_page(page, get_last_key(self.result_list.rows)))

    def _group_page(self, page: SearchPage, after: str = "") -> list[Row]:
        self._notes |= collect_notes(page.hits)
        return group_hits(page.hits, after, find_rule(page))

    def _draw_row(self, row: Row, width: int, palette: Palette) -> list[Line]:
        return draw_row(row, width, palette, "" if isinstance(row, Heading) else self._notes.get(row.id, ""))

    # --- filters ----------------------------------------------------------------------------------------------

    def _show_chips(self) -> None:
        self.query_one("#chip-scope", Chip).set_text(SCOPES[self._scope], on=self._scope != "workspace")
        for name in FILTERS:
            text = self.input.value
            self.query_one(f"#chip-{name}", Chip).set_text(describe_filter(text, name), on=bool(get_filter(text, name)))

    def action_scope(self) -> None:
        scopes = list(SCOPES)
        self._scope = scopes[(scopes.index(self._scope) + 1) % len(scopes)]
        self._show_chips()
        self._search_soon()

    def action_filter(self, name: str) -> None:
        self.input.value = choose_next_filter(self.input.value, name)
        self.input.cursor_position = len(self.input.value)

    # --- moving and reading -----------------------------------------------------------------------------------

    @on(LineList.Moved, "#panel-list")
    def _handle_move(self, event: LineList.Moved) -> None:
        event.stop()
        self._show_hit(self.result_list.current)
        if self.result_list.cursor >= len(self.result_list.rows) - PREFETCH_ROWS:
            self._load_more_soon()

    def _show_hit(self, hit: Hit | None) -> None:
        has_sources = hit is not None and hit.kind in ("observation", "reflection")
        self.query_one("#chip-sources", Chip).display = has_sources
        self.host.start_worker(self._preview, hit, group="preview", exclusive=True)

    async def _preview(self, hit: Hit | None) -> None:
        query = self.input.value
        await asyncio.sleep(PREVIEW_DELAY_S)
        passage = await load_passage(self.host.session.views, hit, query) if hit is not None else None
        if self.is_open:
            self.preview.show(passage)

    def action_list(self, step: int) -> None:
        self.result_list.action_move(step)

    def action_read(self, step: int) -> None:
        self.preview.scroll_relative(y=step * max(1, self.preview.size.height // 2), animate=False)

    # --- opening a hit ----------------------------------------------------------------------------------------

    @on(Input.Submitted, "#panel-input")
    def _submit_query(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_open()

    @on(LineList.Opened, "#panel-list")
    def _open_row(self, event: LineList.Opened) -> None:
        event.stop()
        self.dismiss(event.row)

    def action_open(self) -> None:
        """Open the selected hit; if no results are shown yet, the first hit of the current query."""
        if self._shown == self._get_request():
            hit = self.result_list.current
            if hit is not None and _is_hit(hit):
                self.dismiss(hit)
        elif self._get_request()[0]:
            self.host.start_worker(self._search, 0.0, True, group="search", exclusive=True)

    def action_use(self) -> None:
        hit = self.result_list.current
        if hit is not None:
            self.dismiss(sanitize_text(str(hit.text)))

    def action_sources(self) -> None:
        """Show every message that an observation was made from, over this screen."""
        hit = self.result_list.current
        if hit is not None and hit.kind in ("observation", "reflection"):
            self.host.start_worker(self._open_sources, hit, group="sources", exclusive=True)

    async def _open_sources(self, hit: Hit) -> None:
        origin = await self.host.session.views.origin(hit.id)
        await open_sources(self.host, origin.group_id if origin else hit.id, hit.text)


def _is_hit(row: Any) -> bool:
    return not isinstance(row, Heading)
