"""Show search hits: rows of the list, filters in the query, and the messages around a hit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult

from sakti.core.text import format_count, sanitize_text, to_one_line
from sakti.core.types import Message, TextPart
from sakti.store.search.query import list_terms, parse_query
from sakti.tui.palette import Palette
from sakti.tui.screens.panel import BACK, Keys, Panel
from sakti.tui.transcript.blocks import Block, CardBlock, TextBlock
from sakti.tui.transcript.build import make_message_blocks
from sakti.tui.transcript.selection import find_best_match, make_pattern
from sakti.tui.transcript.wrap import Line, Span, fit_width, measure_line, shorten, wrap
from sakti.tui.widgets.lines import mark
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.agent.session.queries import UnfinishedCall, Views
    from sakti.store.search.search import Hit, SearchPage

SNIPPET_LINES = 2
CONTEXT_BEFORE = 20  # characters kept before a match that is scrolled into view
Marks: TypeAlias = tuple[tuple[int, int], ...]

# The values that a key cycles through, by query operator, with their display names.
FILTERS: dict[str, dict[str, str]] = {
    "kind": {
        "": "all kinds",
        "message": "messages",
        "observation": "observations",
        "reflection": "reflections",
        "task": "tasks",
        "working_memory": "working memory",
    },
    "role": {"": "anyone", "user": "you", "assistant": "sakti", "tool": "tools"},
    "after": {"": "any time", "today": "today", "7d": "7 days"},
}
ROLE_NAMES = {"user": "you", "assistant": "sakti", "tool": "tool"}
_HEADINGS = {"task": "Tasks", "working_memory": "Working memory", "reflection": "Reflections"}


class Heading(Struct, frozen=True):
    """Heading of a group of hits: `time` (Unix ms) of the best one, and their `count`."""

    key: str
    title: str
    time: int
    count: int


Row: TypeAlias = "Heading | Hit"


def find_rule(page: SearchPage) -> tuple[int, str]:
    """Return the rank of the first hit without all words, and the rule above it; 0 for no rule."""
    if not page.with_all or page.with_all >= page.total:
        return 0, ""
    return page.with_all + 1, f"── {page.total - page.with_all} with some of the words ──"


def group_hits(hits: Iterable[Hit], after: str = "", rule: tuple[int, str] = (0, "")) -> list[Row]:
    """Group `hits`, best first, by thread; the thread of the best hit comes first.

    `after`: the key of the last heading above, which is not repeated. `rule`: see `find_rule`.
    """
    listed, (rank, title) = list(hits), rule
    at = next((i for i, hit in enumerate(listed) if hit.rank == rank), None)
    if at is None:
        return _group(listed, after)
    return [*_group(listed[:at], after), Heading("", title, 0, 0), *_group(listed[at:], "")]


def _group(hits: Iterable[Hit], after: str) -> list[Row]:
    groups: dict[str, list[Hit]] = {}
    for hit in hits:
        groups.setdefault(_get_group_key(hit), []).append(hit)
    rows: list[Row] = []
    for number, (key, members) in enumerate(groups.items()):
        if number or key != after:
            rows.append(Heading(key, _get_group_title(members[0]), members[0].time, len(members)))
        rows += members
    return rows


def get_last_key(rows: Sequence[Row]) -> str:
    """Return the key of the last heading."""
    return next((r.key for r in reversed(rows) if isinstance(r, Heading)), "")


def _get_group_key(hit: Hit) -> str:
    in_thread = hit.thread_id and hit.kind in ("message", "observation", "reflection")
    return f"thread {hit.thread_id}" if in_thread else hit.kind


def _get_group_title(hit: Hit) -> str:
    if _get_group_key(hit).startswith("thread "):
        title = hit.thread_title or "untitled"
        return f"{title} · {hit.origin}" if hit.origin else title
    return _HEADINGS.get(hit.kind, "Observations")


def draw_row(row: Row, width: int, palette: Palette, note: str = "") -> list[Line]:
    """Draw a heading, or a hit: author, time, a `note` on the match, and the marked snippet."""
    width -= 1  # the last cell is the scroll bar's
    if isinstance(row, Heading):
        return _draw_heading(row, width, palette)
    who = ROLE_NAMES.get(row.role, row.role) if row.kind == "message" else row.kind.replace("_", " ")
    head: Line = [
        Segment(f"  {to_one_line(who, 20)}", palette.user if row.role == "user" else palette.agent),
        Segment(f"  {_format_time(row.time)}", palette.faint),
        Segment("  compacted" if row.source == "compacted" else "", palette.faint),
    ]
    note = to_one_line(note, 120)
    beside = bool(note) and measure_line(head) + len(note) + 2 <= width
    if beside:
        head.append(Segment(f"  {note}", palette.faint))
    under: list[Line] = [] if beside or not note else [[Segment(f"    {shorten(note, width - 4)}", palette.faint)]]
    room = max(8, width - 4)
    snippet, marks = _crop_to_match(row.snippet, row.marks, SNIPPET_LINES * room)
    body = wrap(mark_snippet(snippet, marks, palette), room)[:SNIPPET_LINES]
    return [head, *under, *([Segment("    "), *line] for line in body)]


def _draw_heading(row: Heading, width: int, palette: Palette) -> list[Line]:
    right = f"{row.count} · {_format_time(row.time)}" if row.count > 1 else _format_time(row.time)
    room = max(4, width - len(right) - 2)
    title = Segment(fit_width(to_one_line(row.title, 200), room), palette.heading)
    return [[], [title, Segment(f"  {right}", palette.faint)]]


def _crop_to_match(snippet: str, marks: Marks, room: int) -> tuple[str, Marks]:
    """Return a snippet, cut to start shortly before its first match if that would not be visible."""
    if not marks or marks[0][1] < room * 3 // 4:
        return snippet, marks
    start = snippet.rfind(" ", 0, max(0, marks[0][0] - CONTEXT_BEFORE)) + 1
    return "…" + snippet[start:], tuple((a - start + 1, b - start + 1) for a, b in marks)


def _format_time(time: int) -> str:
    return datetime.fromtimestamp(time / 1000).strftime("%Y-%m-%d %H:%M") if time else ""


def mark_snippet(snippet: str, marks: Marks, palette: Palette) -> list[Span]:
    """Return `snippet` as spans, the `marks` (start, end) highlighted; safe to show."""
    spans: list[Span] = []
    at = 0
    strong = palette.bold + palette.mark
    for start, end in marks:
        if start < at or end > len(snippet):
            continue
        spans += [(_to_one_line(snippet[at:start]), palette.muted), (_to_one_line(snippet[start:end]), strong)]
        at = end
    spans.append((_to_one_line(snippet[at:]), palette.muted))
    return [(text, style) for text, style in spans if text]


def _to_one_line(text: str) -> str:
    return sanitize_text(text).replace("\n", " ").replace("\t", " ")


def list_search_words(hit: Hit, query: str) -> list[str]:
    """Return the words to highlight in a hit: the matches in its snippet, and the query's words."""
    parsed = parse_query(query)
    words = [hit.snippet[a:b] for a, b in hit.marks]
    words += [*parsed.phrases, *parsed.prefixes, *(w for w in list_terms(parsed.text) if len(w) > 2)]
    return [to_one_line(w, 200) for w in words]


# --- filters ------------------------------------------------------------------------------------------------


def _compile_operator(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\S)(?<!NOT ){name}:(\"[^\"]*\"|\S+)\s*", re.IGNORECASE)


def get_filter(query: str, name: str) -> str:
    """Return the value of the filter `name` in a query, or ""."""
    values = _compile_operator(name).findall(query)
    value = str(values[-1]).strip('"').lower() if values else ""
    return value.rstrip("s") if name == "kind" else value


def set_filter(query: str, name: str, value: str) -> str:
    """Return `query` with that filter at its start; an empty `value` removes the filter."""
    rest = _compile_operator(name).sub("", query)
    return f"{name}:{value} {rest}" if value else rest


def choose_next_filter(query: str, name: str) -> str:
    """Return `query` with the next value of the filter `name`; a custom value is removed."""
    values = list(FILTERS[name])
    now = get_filter(query, name)
    return set_filter(query, name, values[(values.index(now) + 1) % len(values)] if now in values else "")


def describe_filter(query: str, name: str) -> str:
    """Return the display text of a filter's value."""
    value = get_filter(query, name)
    return FILTERS[name].get(value) or to_one_line(f"since {value}" if name == "after" else value, 20)


def collect_notes(hits: Iterable[Hit]) -> dict[str, str]:
    """Return the notes on hits, by hit id; hits without a note are omitted."""
    texts = {h.id: " · ".join(filter(None, (h.reason, h.others))) for h in hits}
    return {i: text for i, text in texts.items() if text}


LONG_MESSAGE = 20_000  # characters from which on only the passage around the hit is shown
PASSAGE_BEFORE, PASSAGE_AFTER = 1_500, 4_000  # characters of that passage
LINES_ABOVE = 3  # lines of context above the matching line


class Passage(Struct, frozen=True):
    """Passage around a hit.

    `message_id`: the message of the hit, or ""; `passage`: the text around the hit, if the blocks do not show it.
    """

    blocks: tuple[Block, ...]
    message_id: str
    pattern: re.Pattern[str] | None
    passage: str


async def load_passage(views: Views, hit: Hit, query: str, around: int = 3) -> Passage:
    """Load the context of a hit: `around` messages on each side, or the sources of a log line."""
    pattern = make_pattern(list_search_words(hit, query))
    text = hit.text[max(0, hit.start - PASSAGE_BEFORE) : hit.start + PASSAGE_AFTER]
    passage = (
        ("…" if hit.start > PASSAGE_BEFORE else "") + text + ("…" if hit.start + PASSAGE_AFTER < len(hit.text) else "")
    )
    if hit.kind == "message" and hit.thread_id:
        messages = await views.around(hit.thread_id, hit.position, around, around)
        blocks = _make_blocks(messages, hit, await views.unfinished_calls(messages))
        return Passage(tuple(blocks), hit.id, pattern, passage)
    title = hit.kind.replace("_", " ").capitalize()
    messages: Sequence[Message] = ()
    if hit.kind in ("observation", "reflection"):
        origin = await views.origin(hit.id)
        if origin is not None:
            count = origin.last - origin.first + 1
            title = f"{title}, made from {format_count(count, 'message')}"
            messages = await views.around(origin.thread_id, origin.index, around, around)
    elif hit.kind == "task":
        messages = (await views.task_messages(hit.id))[: 2 * around + 1]
    blocks = make_message_blocks(messages, await views.unfinished_calls(messages))
    shown = TextBlock(hit.id, text=passage, open=True)
    return Passage((CardBlock(hit.id, False, title=title), shown, *blocks), hit.id, pattern, passage)


def _cut_texts(message: Message) -> Message:
    """Return a copy with long texts shortened: drawing a full one takes 0.25 s."""
    cut = (
        TextPart(p.text[:PASSAGE_AFTER] + " …") if isinstance(p, TextPart) and len(p.text) > LONG_MESSAGE else p
        for p in message.parts
    )
    return replace(message, parts=tuple(cut))


def _make_blocks(messages: Sequence[Message], hit: Hit, unfinished: Mapping[str, UnfinishedCall]) -> list[Block]:
    messages = [m if m.id == hit.id else _cut_texts(m) for m in messages]
    if len(hit.text) <= LONG_MESSAGE:
        return make_message_blocks(messages, unfinished)
    at = next((i for i, m in enumerate(messages) if m.id == hit.id), len(messages))
    return [*make_message_blocks(messages[:at]), *make_message_blocks(messages[at + 1 :], unfinished)]


class Preview(Transcript):
    """A passage to read, with the message of the hit highlighted."""

    HELP = "The messages around the hit."

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._message_id = ""
        self._pattern: re.Pattern[str] | None = None

    def show(self, passage: Passage | None) -> None:
        """Show a passage from just above its best match; None clears the preview."""
        self.document.clear()
        self.forget_strips()
        self._message_id = passage.message_id if passage else ""
        self._pattern = passage.pattern if passage else None
        if passage is not None:
            self.document.append(*passage.blocks)
        self._follow = False
        self._scroll_to_place(self._find_landing(passage) if passage is not None else (0, 0))

    def _find_landing(self, passage: Passage) -> tuple[int, int]:
        document, pattern = self.document, passage.pattern
        hit = find_best_match(document, passage.message_id, pattern) if pattern is not None else None
        first = document.index_of(passage.message_id)
        if hit is None and (pattern is not None or first is None) and passage.passage.strip():
            after = self._add_passage(passage)
            first = after if first is None else first
            hit = find_best_match(document, passage.message_id, pattern) if pattern is not None else None
        place = hit or (first or 0, 0)
        y = max(0, document.top(place[0]) + place[1] - LINES_ABOVE)
        if first is not None:
            y = max(y, document.top(first) - 1)  # earlier messages can be scrolled to
        return document.locate(y) or place

    def _add_passage(self, passage: Passage) -> int:
        """Add text that the blocks do not show, such as an attached file or the middle of a long output."""
        blocks = self.document.blocks
        after = 1 + max(
            (i for i, b in enumerate(blocks) if b.shows_message(passage.message_id)), default=len(blocks) - 1
        )
        self.document.insert(after, [TextBlock(passage.message_id, text=passage.passage, open=True, gap=after > 0)])
        return after

    def line_at(self, y: int) -> Line | None:
        line = super().line_at(y)
        if line and self._pattern is not None and self._is_of_hit(y):
            strong = self.palette.bold + self.palette.mark
            for match in self._pattern.finditer("".join(s.text for s in line)):
                line = mark(line, match.span(), strong)
        return line

    def line_style(self, y: int) -> Style | None:
        return self.palette.cursor if self._is_of_hit(y) else super().line_style(y)

    def _is_of_hit(self, y: int) -> bool:
        place = self.document.locate(y)
        return (
            place is not None
            and bool(self._message_id)
            and self.document.blocks[place[0]].shows_message(self._message_id)
        )


class PassageScreen(Panel[None]):
    """A passage on its own screen, for hits that cannot be opened in the conversation."""

    AUTO_FOCUS = "Preview"
    HELP = "The messages around the hit. The chat behind this screen continues."
    keys: ClassVar[Keys] = (("↑↓ scroll", ""), ("[ ] and enter unfold", ""), BACK)

    def __init__(self, title: str, passage: Passage) -> None:
        super().__init__(to_one_line(title, 200))
        self._passage = passage

    def compose_body(self) -> ComposeResult:
        yield Preview()

    def on_mount(self) -> None:
        self.call_after_refresh(self.query_one(Preview).show, self._passage)
