"""Search over everything that was ever said: results as you type, Enter goes to the place."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rich.segment import Segment
from textual import on
from textual.binding import Binding, BindingType
from textual.widgets import Input

from sakti.core.text import one_line, sanitise
from sakti.tui.palette import Palette
from sakti.tui.screens.panel import ListPanel
from sakti.tui.transcript.wrap import Line, Span, wrap

if TYPE_CHECKING:
    from sakti.store.search import Hit

Scope = Literal["workspace", "thread", "all"]
SCOPES: tuple[Scope, ...] = ("workspace", "thread", "all")
NAMES = {"workspace": "this workspace", "thread": "this thread", "all": "everything"}
DEBOUNCE = 0.12  # seconds without a key before a query runs
SNIPPET_LINES = 3


class SearchScreen(ListPanel):
    """Dismisses with the `Hit` to go to, or with its text for the prompt (ctrl+o)."""

    HELP = 'Words, "phrases", -not, path:FILE, role:user, before:DATE. tab changes where to look.'
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "scope", "Where", show=False, priority=True, id="search.scope"),
        Binding("ctrl+o", "use", "Into the prompt", show=False, id="search.use"),
    ]
    placeholder = "search messages, observations, tasks"
    empty = ""
    keys = "enter go there · ctrl+o into the prompt · tab where · esc back"

    def __init__(self, query: str = "") -> None:
        super().__init__("Search")
        self._query = query
        self._scope: Scope = "workspace"

    def on_mount(self) -> None:
        self.result_list.cursor_always = True
        if self._query:
            self.input.value = self._query
        self._show_title(None)

    def rows(self, text: str) -> list[Hit]:
        return []

    def refresh_rows(self) -> None:
        """Results come later, from the store."""

    @on(Input.Changed, "#panel-input")
    def _search_soon(self) -> None:
        self.sakti.go(self._search, group="search", exclusive=True)

    async def _search(self) -> None:
        await asyncio.sleep(DEBOUNCE)
        text = self.input.value.strip()
        if not text:
            self.result_list.set_rows(())
            self._show_title(None)
            return
        page = await self.sakti.session.views.search(text, scope=self._scope)
        if self.is_attached:
            self.result_list.set_rows(page.hits, cursor=0)
            self._show_title(page.total)

    def _show_title(self, total: int | None) -> None:
        found = "" if total is None else f"  {total} found" if total else "  nothing found"
        self.set_title(f"Search {NAMES[self._scope]}{found}")

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        return hit_lines(row, width, palette)

    def action_scope(self) -> None:
        self._scope = SCOPES[(SCOPES.index(self._scope) + 1) % len(SCOPES)]
        self._show_title(None)
        self._search_soon()

    def action_use(self) -> None:
        hit = self.result_list.current
        if hit is not None:
            self.dismiss(sanitise(str(hit.text)))


def hit_lines(hit: Hit, width: int, palette: Palette) -> list[Line]:
    """Where a hit is, and its snippet with what matched marked."""
    when = datetime.fromtimestamp(hit.time / 1000).strftime("%Y-%m-%d %H:%M") if hit.time else ""
    what = one_line(hit.role or hit.kind, 20) if hit.kind == "message" else one_line(hit.kind, 20)
    title = one_line(hit.thread_title or "", 60)
    head: Line = [
        Segment(what, palette.agent if what != "user" else palette.user),
        Segment(f"  {title}" if title else "", palette.muted),
        Segment(f"  {when}", palette.faint),
    ]
    body = wrap(marked(hit.snippet, hit.marks, palette), max(8, width - 3))[:SNIPPET_LINES]
    return [head, *([Segment("  "), *line] for line in body), []]


def marked(snippet: str, marks: tuple[tuple[int, int], ...], palette: Palette) -> list[Span]:
    """`snippet` as spans, the `marks` (start, end) highlighted; safe to show."""
    spans: list[Span] = []
    at = 0
    strong = palette.bold + palette.mark
    for start, end in marks:
        if start < at or end > len(snippet):
            continue
        spans += [(_flat(snippet[at:start]), palette.muted), (_flat(snippet[start:end]), strong)]
        at = end
    spans.append((_flat(snippet[at:]), palette.muted))
    return [(text, style) for text, style in spans if text]


def _flat(text: str) -> str:
    return sanitise(text).replace("\n", " ").replace("\t", " ")
