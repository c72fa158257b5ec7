"""Define the blocks of a transcript, which draw their text at a given width and ignore scrolling.

Blocks sanitise external text when they receive it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct, field
from rich.segment import Segment
from rich.style import Style

from sakti.core.text import (
    count_lines,
    count_seconds,
    describe_paste,
    format_count,
    format_duration,
    sanitize_text,
    to_one_line,
)
from sakti.tui.palette import Palette
from sakti.tui.transcript.chunks import Chunk
from sakti.tui.transcript.code import draw_code, draw_code_head
from sakti.tui.transcript.links import add_links
from sakti.tui.transcript.markdown import draw_markdown
from sakti.tui.transcript.wrap import (
    COLUMN,
    TAB,
    Line,
    Row,
    attach_source,
    count_cells,
    indent,
    measure_line,
    pad,
    shorten,
    to_row,
    wrap,
)

INDENT = Segment("  ")
SIGN = 4  # width of the indent and symbol before a line's text
NARROW = 40  # cells below which a card has no frame
LONG_TEXT = 60_000  # characters shown of a folded message


class Block(Struct, eq=False):
    """A part of the transcript.

    `message_id`: its message ("" while it streams); `gap`: whether a blank line precedes it.
    """

    message_id: str = ""
    gap: bool = True

    @property
    def is_foldable(self) -> bool:
        return False

    def toggle(self) -> None:
        """Fold or unfold."""

    def get_plain_text(self) -> str:
        """Return the text for copying."""
        return ""

    @property
    def source(self) -> str | None:
        """Return the source text if all of it is shown; None if the drawn lines represent it better."""
        return None

    @property
    def is_stop(self) -> bool:
        """Return whether block navigation stops here."""
        return self.is_foldable

    @property
    def head_line(self) -> int:
        """Return the index of the line that marks the selected block."""
        return int(self.gap)

    def shows_message(self, message_id: str) -> bool:
        """Return whether the block shows the message or a part of it."""
        return self.message_id == message_id

    def render_above(self, width: int, palette: Palette) -> Line:
        """Return the line drawn above a block that has a gap."""
        return []

    def render(self, width: int, palette: Palette) -> list[Line]:
        raise NotImplementedError

    def estimate(self, width: int) -> int:
        """Estimate the number of lines without drawing them."""
        return 1 + self.gap


def limit_column(width: int) -> int:
    """Limit `width` to `COLUMN` cells, since longer lines are hard to read."""
    return min(width, COLUMN)


def estimate_lines(text: str, width: int) -> int:
    """Estimate the number of lines of `text` at `width`."""
    return text.count("\n") + 1 + len(text) // max(1, width)


class Label(Block, eq=False):
    """Heading of a message: the speaker, and the time (0: not shown)."""

    who: Literal["you", "sakti", "main agent"] = "you"
    created_at: int = 0

    @property
    def is_stop(self) -> bool:
        return True

    def render(self, width: int, palette: Palette) -> list[Line]:
        line: Line = [Segment(self.who, palette.user if self.who == "you" else palette.agent)]
        if self.created_at and width > 16:
            clock = datetime.fromtimestamp(self.created_at / 1000).strftime("%H:%M")
            line.append(Segment(f"  {clock}", palette.faint))
        return [line]


class TextBlock(Block, eq=False):
    """Text as typed. A very long text is folded to its beginning.

    `pasted`: spans (start, end) of pasted text, shown as placeholders while the block is folded.
    """

    text: str = ""
    open: bool = False
    gap: bool = False
    pasted: tuple[tuple[int, int], ...] = ()
    _folded: str = ""

    def __post_init__(self) -> None:
        out, at = "", 0
        for start, end in self.pasted:
            out, at = f"{out}{self.text[at:start]}[{describe_paste(self.text[start:end])}]", end
        self._folded = sanitize_text(out + self.text[at:]).strip("\n") if self.pasted else ""
        self.text = sanitize_text(self.text).strip("\n")

    @property
    def is_foldable(self) -> bool:
        return bool(self._folded) or len(self.text) > LONG_TEXT // 10

    def toggle(self) -> None:
        self.open = not self.open

    def get_plain_text(self) -> str:
        return self.text

    @property
    def source(self) -> str | None:
        return self.text if self.open or not self.is_foldable else None

    def render(self, width: int, palette: Palette) -> list[Line]:
        shown = self.text if self.open or not self.is_foldable else (self._folded or self.text)[: LONG_TEXT // 10]
        rows = wrap_prose(shown, palette.text, limit_column(width) - 2, palette.link)
        out = indent(rows, INDENT)
        if len(shown) < len(self.text):
            hidden = f"▸ {describe_size(self.text)} in all"
            out.append([INDENT, Segment(hidden, palette.faint)])
        return out

    def estimate(self, width: int) -> int:
        return estimate_lines((self._folded or self.text)[: LONG_TEXT // 10], limit_column(width) - 2) + self.gap


def wrap_prose(text: str, style: Style, width: int, link: Style | None = None) -> list[Line]:
    """Wrap prose at spaces, keeping the leading spaces of lines.

    Addresses get the style `link`, if it is not None.
    """
    out: list[Line] = []
    for source in text.split("\n"):
        row = source.expandtabs(TAB)
        bare = row.lstrip(" ")
        lead = min(len(row) - len(bare), max(0, width - 8))
        lines = wrap([(bare, style)] if link is None else add_links(bare, style, link), width - lead)
        out += attach_source(indent(lines, Segment(" " * lead)) if lead else lines, source)
    return out


def describe_size(text: str) -> str:
    """Return the size of `text` for display."""
    lines = count_lines(text)
    size = len(text)
    amount = f"{size / 1_000_000:.1f} MB" if size >= 1_000_000 else f"{size / 1000:.0f} kB" if size >= 10_000 else ""
    return format_count(lines, "line") + (f", {amount}" if amount else "")


class ChunkBlock(Block, eq=False):
    """A piece of an answer in Markdown; its text is already sanitised."""

    chunk: Chunk = field(default_factory=lambda: Chunk(""))

    def get_plain_text(self) -> str:
        return self.chunk.source

    @property
    def source(self) -> str | None:
        return self.chunk.source

    @property
    def begins_code(self) -> bool:
        return self.chunk.language is not None and self.chunk.first

    @property
    def is_stop(self) -> bool:
        return self.begins_code

    @property
    def head_line(self) -> int:
        return 0 if self.begins_code else int(self.gap)

    def render_above(self, width: int, palette: Palette) -> Line:
        if not self.begins_code:
            return []
        return indent([draw_code_head(self.chunk.language or "", max(8, width - 2), palette)], INDENT)[0]

    def render(self, width: int, palette: Palette) -> list[Line]:
        chunk = self.chunk
        if chunk.language is not None:
            if not chunk.code and not chunk.first:
                return []
            lines = indent(draw_code(chunk.code, chunk.language, max(8, width - 2), palette), INDENT)
            return lines if self.gap or not chunk.first else [self.render_above(width, palette), *lines]
        if not chunk.source.strip():
            return []
        return indent(draw_markdown(chunk.source, limit_column(width) - 2, palette, code_width=width - 2), INDENT)

    def estimate(self, width: int) -> int:
        room = width if self.chunk.language is not None else limit_column(width)
        return estimate_lines(self.chunk.source.strip("\n"), room - 2) + self.gap


class ThinkingBlock(Block, eq=False):
    """Reasoning of a model, folded to one line."""

    text: str = ""
    open: bool = False
    done: bool = True

    def __post_init__(self) -> None:
        self.text = sanitize_text(self.text)

    @property
    def is_foldable(self) -> bool:
        return True

    def toggle(self) -> None:
        self.open = not self.open

    def get_plain_text(self) -> str:
        return self.text

    def render(self, width: int, palette: Palette) -> list[Line]:
        sign = "▾" if self.open else "▸"
        state = format_count(len(self.text.split()), "word") if self.done else "…"
        head = Row([INDENT, Segment(f"{sign} thinking", palette.muted), Segment(f"  {state}", palette.faint)], SIGN)
        if not self.open:
            return [head]
        style = palette.muted + Style(italic=True)
        return [head, *indent(wrap_prose(self.text.strip(), style, limit_column(width) - 4), Segment("    "))]

    def estimate(self, width: int) -> int:
        return 1 + self.gap + (estimate_lines(self.text, limit_column(width) - 4) if self.open else 0)


class WaitingBlock(Block, eq=False):
    """Placeholder for the coming answer: the current state and how long it has lasted.

    `since` is the start and `elapsed` the time shown last, both in seconds.
    """

    text: str = "thinking"
    since: float = 0.0
    elapsed: int = 0

    def tick(self, now: float) -> bool:
        """Return whether the clock has advanced by a second since it was last drawn."""
        before, self.elapsed = self.elapsed, count_seconds(self.since, now)
        return self.elapsed != before

    def render(self, width: int, palette: Palette) -> list[Line]:
        took = f"  {format_duration(self.elapsed * 1000)}" if self.elapsed else ""
        text = shorten(f"◌ {self.text}", max(1, width - 2 - len(took)))
        return [Row([INDENT, Segment(text, palette.muted), Segment(took, palette.faint)], SIGN)]


Tone = Literal["information", "warning", "error", "good"]


class NoticeBlock(Block, eq=False):
    """A short notice from sakti: a symbol, a title and a text."""

    tone: Tone = "information"
    title: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        self.title, self.text = to_one_line(self.title, 200), sanitize_text(self.text).strip()

    def get_plain_text(self) -> str:
        return f"{self.title} {self.text}".strip()

    def render(self, width: int, palette: Palette) -> list[Line]:
        sign, style = {
            "information": ("·", palette.muted),
            "warning": ("!", palette.warn),
            "error": ("✗", palette.bad),
            "good": ("✓", palette.ok),
        }[self.tone]
        spans = [(f"{self.title}  " if self.text else self.title, style + Style(bold=True))] if self.title else []
        first, _, rest = self.text.partition("\n")
        room = limit_column(width) - 4
        lines = wrap([*spans, (first, palette.muted)], room)
        if rest:
            lines += wrap_prose(rest, palette.muted, room)
        signs = (Segment(f"{sign} ", style), Segment("  ", style))
        return [to_row(line).after_prefix([INDENT, signs[min(n, 1)]], SIGN) for n, line in enumerate(lines)]

    def estimate(self, width: int) -> int:
        return estimate_lines(self.title + self.text, limit_column(width) - 4) + self.gap


class CardBlock(Block, eq=False):
    """A framed result: a title, rows of (name, value), and warnings under them."""

    title: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.title = to_one_line(self.title, 100)
        self.rows = tuple((to_one_line(k, 40), to_one_line(v, 500)) for k, v in self.rows)
        self.warnings = tuple(to_one_line(w, 400) for w in self.warnings)

    def get_plain_text(self) -> str:
        return "\n".join([self.title, *(f"{k}: {v}" for k, v in self.rows), *self.warnings])

    def render(self, width: int, palette: Palette) -> list[Line]:
        if width < NARROW:
            title = wrap([(self.title, palette.bold)], width - 2)
            return indent([*title, *self._draw_rows(width - 2, palette)], INDENT)
        body = self._draw_rows(limit_column(width) - 6, palette)
        title = shorten(self.title, limit_column(width) - 8)
        room = max([measure_line(line) for line in body] + [count_cells(title) + 2])
        top = Row([INDENT, Segment("╭ ", palette.line), Segment(title, palette.bold)], SIGN)
        top.append(Segment(f" {'─' * (room - count_cells(title))}╮", palette.line))
        top.tail = room - count_cells(title) + 2
        out: list[Line] = [top]
        for line in body:
            row = to_row(pad(to_row(line), room)).after_prefix([INDENT, Segment("│ ", palette.line)], SIGN)
            row.append(Segment(" │", palette.line))
            row.tail += 2
            out.append(row)
        bottom = Row([INDENT, Segment(f"╰{'─' * (room + 2)}╯", palette.line)], SIGN)
        bottom.skip = room + SIGN + 2
        return [*out, bottom]

    def _draw_rows(self, width: int, palette: Palette) -> list[Line]:
        out: list[Line] = []
        name = max((len(k) for k, _ in self.rows), default=0)
        for key, value in self.rows:
            lead = Segment(key.ljust(name) + "  ", palette.faint) if key else Segment("")
            first, *rest = wrap([(value, palette.text)], max(4, width - len(lead.text)))
            out += [to_row(first).after_prefix([lead], 0), *indent(rest, Segment(" " * len(lead.text)))]
        for warning in self.warnings:
            out += wrap([("! ", palette.warn), (warning, palette.muted)], width)
        return out

    def estimate(self, width: int) -> int:
        return 2 + len(self.rows) + len(self.warnings) + self.gap


class FindingsBlock(Block, eq=False):
    """Lines that begin with ✓, ! or ✗; the details of a ✓ line are muted."""

    title: str = ""
    findings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.title = to_one_line(self.title, 100)
        self.findings = tuple(to_one_line(f, 500) for f in self.findings)

    def get_plain_text(self) -> str:
        return "\n".join([self.title, *self.findings])

    def render(self, width: int, palette: Palette) -> list[Line]:
        bar = Segment("  ┃ ", palette.agent)
        out = indent(wrap([(self.title, palette.bold)], width - 4), bar)
        for finding in self.findings:
            sign, _, text = finding.partition(" ")
            style = {"✓": palette.ok, "!": palette.warn}.get(sign, palette.bad)
            name, colon, detail = text.partition(": ")
            spans = [(name + colon, palette.text), (detail, palette.muted if sign == "✓" else palette.text)]
            first, *rest = wrap([s for s in spans if s[0]], max(8, width - 6))
            out.append(to_row(first).after_prefix([bar, Segment(f"{sign} ", style)], SIGN))
            out += indent(indent(rest, Segment("  ")), bar)
        return out

    def estimate(self, width: int) -> int:
        return 1 + len(self.findings) + self.gap
