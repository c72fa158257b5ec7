"""What a transcript is made of. A block knows its text and how to draw itself at a width, nothing of scrolling.

Everything that comes from outside is sanitised when a block takes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from rich.segment import Segment
from rich.style import Style

from sakti.core.text import one_line, sanitise
from sakti.core.types import Json, ToolCallPart, ToolResultPart
from sakti.tui.palette import Palette
from sakti.tui.transcript.code import code_head, code_lines
from sakti.tui.transcript.diff import diff_counts, diff_lines
from sakti.tui.transcript.links import linked
from sakti.tui.transcript.markdown import markdown_lines
from sakti.tui.transcript.split import Chunk
from sakti.tui.transcript.wrap import (
    TAB,
    Line,
    Row,
    fold_line,
    indent,
    made_from,
    plain_lines,
    row_of,
    shorten,
    wrap,
)

INDENT = Segment("  ")
SIGN = 4  # characters of a line before its text: the indent and a sign
KEEP_OUTPUT = 64_000  # characters of a running tool's output that the screen keeps
SHOW_OUTPUT = 200  # lines of output that an open tool shows
GLANCE = 8  # lines of output whose number is not worth saying
SHOW_DIFF = 14  # lines of a diff that show before it is unfolded
LONG_TEXT = 60_000  # characters of one message that show before it is unfolded


@dataclass(slots=True, eq=False)
class Block:
    """`message_id` says whose it is ("" while it streams). `gap`: a blank line stands before it."""

    message_id: str = ""
    gap: bool = True

    @property
    def foldable(self) -> bool:
        return False

    def toggle(self) -> None:
        """Fold or unfold."""

    def plain(self) -> str:
        """The text that copying gives."""
        return ""

    @property
    def source(self) -> str | None:
        """What was written, where all of it is shown; None where its lines say better what is."""
        return None

    @property
    def stop(self) -> bool:
        """Does going from block to block stop here?"""
        return self.foldable

    @property
    def head(self) -> int:
        """The line that is marked when it is chosen."""
        return int(self.gap)

    def holds(self, message_id: str) -> bool:
        """Does it show that message, or a part of it?"""
        return self.message_id == message_id

    def above(self, width: int, palette: Palette) -> Line:
        """The line before it, where it has a gap."""
        return []

    def render(self, width: int, palette: Palette) -> list[Line]:
        raise NotImplementedError

    def estimate(self, width: int) -> int:
        """Lines that it will take, about, without drawing it."""
        return 1 + self.gap


def estimate_text(text: str, width: int) -> int:
    """Lines of `text` at `width`, about."""
    return text.count("\n") + 1 + len(text) // max(1, width)


@dataclass(slots=True, eq=False)
class Label(Block):
    """Who speaks, and when (local time; 0 leaves it out)."""

    who: Literal["you", "sakti"] = "you"
    created_at: int = 0

    @property
    def stop(self) -> bool:
        return True

    def render(self, width: int, palette: Palette) -> list[Line]:
        line: Line = [Segment(self.who, palette.user if self.who == "you" else palette.agent)]
        if self.created_at and width > 16:
            clock = datetime.fromtimestamp(self.created_at / 1000).strftime("%H:%M")
            line.append(Segment(f"  {clock}", palette.faint))
        return [line]


@dataclass(slots=True, eq=False)
class TextBlock(Block):
    """Text as it was typed. Very long text shows its beginning until it is unfolded."""

    text: str = ""
    open: bool = False
    gap: bool = False

    def __post_init__(self) -> None:
        self.text = sanitise(self.text).strip("\n")

    @property
    def foldable(self) -> bool:
        return len(self.text) > LONG_TEXT // 10

    def toggle(self) -> None:
        self.open = not self.open

    def plain(self) -> str:
        return self.text

    @property
    def source(self) -> str | None:
        return self.text if self.open or not self.foldable else None

    def render(self, width: int, palette: Palette) -> list[Line]:
        shown = self.text if self.open or not self.foldable else self.text[: LONG_TEXT // 10]
        rows = wrap_rows(shown, palette.text, width - 2, palette.link)
        out = indent(rows, INDENT)
        if len(shown) < len(self.text):
            hidden = f"▸ {size_text(self.text)} in all"
            out.append([INDENT, Segment(hidden, palette.faint)])
        return out

    def estimate(self, width: int) -> int:
        return estimate_text(self.text[: LONG_TEXT // 10], width - 2) + self.gap


def wrap_rows(text: str, style: Style, width: int, link: Style | None = None) -> list[Line]:
    """Fold prose at spaces, with the spaces that a line begins with kept.

    Addresses in it are in the style of a `link`, where there is one.
    """
    out: list[Line] = []
    for source in text.split("\n"):
        row = source.expandtabs(TAB)
        bare = row.lstrip(" ")
        lead = min(len(row) - len(bare), max(0, width - 8))
        lines = wrap([(bare, style)] if link is None else linked(bare, style, link), width - lead)
        out += made_from(indent(lines, Segment(" " * lead)) if lead else lines, source)
    return out


def size_text(text: str) -> str:
    """How much `text` is, for people."""
    lines = text.count("\n") + 1
    size = len(text)
    amount = f"{size / 1_000_000:.1f} MB" if size >= 1_000_000 else f"{size / 1000:.0f} kB" if size >= 10_000 else ""
    return f"{lines} line{'s' * (lines != 1)}" + (f", {amount}" if amount else "")


@dataclass(slots=True, eq=False)
class ChunkBlock(Block):
    """A piece of an answer in Markdown; its text is already sanitised."""

    chunk: Chunk = field(default_factory=lambda: Chunk(""))

    def plain(self) -> str:
        return self.chunk.source

    @property
    def source(self) -> str | None:
        return self.chunk.source

    @property
    def begins_code(self) -> bool:
        return self.chunk.language is not None and self.chunk.first

    @property
    def stop(self) -> bool:
        return self.begins_code

    @property
    def head(self) -> int:
        return 0 if self.begins_code else int(self.gap)

    def above(self, width: int, palette: Palette) -> Line:
        if not self.begins_code:
            return []
        return indent([code_head(self.chunk.language or "", max(8, width - 2), palette)], INDENT)[0]

    def render(self, width: int, palette: Palette) -> list[Line]:
        chunk = self.chunk
        if chunk.language is not None:
            if not chunk.code and not chunk.first:
                return []
            lines = indent(code_lines(chunk.code, chunk.language, max(8, width - 2), palette), INDENT)
            return lines if self.gap or not chunk.first else [self.above(width, palette), *lines]
        if not chunk.source.strip():
            return []
        return indent(markdown_lines(chunk.source, width - 2, palette), INDENT)

    def estimate(self, width: int) -> int:
        return estimate_text(self.chunk.source.strip("\n"), width - 2) + self.gap


@dataclass(slots=True, eq=False)
class ThinkingBlock(Block):
    """What a model thought, folded to one line."""

    text: str = ""
    open: bool = False
    done: bool = True

    def __post_init__(self) -> None:
        self.text = sanitise(self.text)

    @property
    def foldable(self) -> bool:
        return True

    def toggle(self) -> None:
        self.open = not self.open

    def plain(self) -> str:
        return self.text

    def render(self, width: int, palette: Palette) -> list[Line]:
        sign = "▾" if self.open else "▸"
        state = f"{len(self.text.split()):,} words" if self.done else "…"
        head = Row([INDENT, Segment(f"{sign} thinking", palette.muted), Segment(f"  {state}", palette.faint)], SIGN)
        if not self.open:
            return [head]
        style = palette.muted + Style(italic=True)
        return [head, *indent(wrap_rows(self.text.strip(), style, width - 4), Segment("    "))]

    def estimate(self, width: int) -> int:
        return 1 + self.gap + (estimate_text(self.text, width - 4) if self.open else 0)


@dataclass(slots=True, eq=False)
class ToolBlock(Block):
    """One tool call: a line that unfolds to arguments, output and diff. `result_id` is the message of its result."""

    call_id: str = ""
    result_id: str = ""
    name: str = ""
    summary: str = ""
    state: Literal["writing", "running", "ok", "error", "stopped"] = "writing"
    arguments: Json = field(default_factory=dict[str, object])
    raw: str = ""
    output: str = ""
    dropped: int = 0  # characters of output that were not kept
    diff: str = ""
    duration_ms: int | None = None
    detail: str = ""
    whole_path: str = ""
    size: str = ""  # of an output that is more than a glance, or what a failure says
    open: bool = False
    gap: bool = False

    @property
    def foldable(self) -> bool:
        return True

    def toggle(self) -> None:
        self.open = not self.open

    def plain(self) -> str:
        return self.diff or self.output

    def holds(self, message_id: str) -> bool:
        return message_id in (self.message_id, self.result_id)

    def write(self, text: str) -> None:
        """The model writes its arguments."""
        self.raw = (self.raw + text)[-2_000:]

    def start(self, call: ToolCallPart) -> None:
        self.name = one_line(call.name, 40)
        self.state = "running"
        self.arguments = call.arguments or {}
        self.raw = sanitise(call.raw)[:KEEP_OUTPUT] if call.arguments is None else ""
        self.summary = summarise(call)

    def add_output(self, text: str) -> None:
        """A piece of what it prints; the newest `KEEP_OUTPUT` characters are kept."""
        text = sanitise(text[-KEEP_OUTPUT:])
        joined = self.output + text
        if len(joined) > KEEP_OUTPUT:
            self.dropped += len(joined) - KEEP_OUTPUT
            joined = joined[-KEEP_OUTPUT:]
        self.output = joined

    def finish(self, result: ToolResultPart, duration_ms: int | None) -> None:
        details = result.details
        self.state = "error" if result.is_error else "ok"
        self.output = sanitise(result.content)[:KEEP_OUTPUT]
        self.diff = sanitise(str(details.get("diff") or ""))
        stored = details.get("duration_ms")
        self.duration_ms = duration_ms if duration_ms is not None else stored if isinstance(stored, int) else None
        code = details.get("exit_code")
        self.detail = f"exit {code}" if isinstance(code, int) and code else ""
        lines = details.get("lines")
        if isinstance(lines, str) and "-" in lines and "(" not in self.summary:
            self.summary = f"{self.summary}  ({one_line(lines, 20)})"
        self.whole_path = one_line(str(details.get("output_file") or ""), 200)
        self.size = output_size(self.output, details)
        if result.is_error and not self.detail and not self.size:
            self.size = one_line(self.output, 40)  # why it failed

    def render(self, width: int, palette: Palette) -> list[Line]:
        head = self._head(width, palette)
        body: list[Line] = []
        room = max(4, width - 4)
        if self.diff:
            body += diff_lines(self.diff, room, palette, None if self.open else SHOW_DIFF)
        if self.open:
            body = [*self._arguments(room, palette), *body, *self._output(room, palette)]
        return [head, *indent(body, Segment("    "))]

    def _head(self, width: int, palette: Palette) -> Line:
        sign = "▾" if self.open or self.diff else "▸"
        status, style = self._status(palette)
        name = f"{sign} {self.name or 'tool'}"
        size = f" · {self.size}" if self.size and not self.open else ""
        room = width - 2 - len(name) - len(status) - len(size) - 4
        line = Row([INDENT, Segment(name, palette.name)], SIGN)
        if room > 4:
            raw = "" if self.state == "writing" else one_line(self.raw, 200)  # half a JSON object says nothing
            text = shorten(self.summary or raw, room)
            line.append(Segment(f"  {text}", palette.muted))
        line.append(Segment(f"  {status}", style))
        if size:
            line.append(Segment(size, palette.faint))
        return line

    def _status(self, palette: Palette) -> tuple[str, Style]:
        took = f" {duration(self.duration_ms)}" if self.duration_ms is not None and self.duration_ms >= 100 else ""
        match self.state:
            case "writing":
                return "…", palette.faint
            case "running":
                return "running", palette.warn
            case "stopped":
                return "■ stopped", palette.warn
            case "error":
                return f"✗ {self.detail or 'failed'}{took}", palette.bad
            case "ok":
                if self.diff:
                    added, removed = diff_counts(self.diff)
                    return f"✓ +{added} −{removed}", palette.ok
                return (f"✗ {self.detail}{took}", palette.bad) if self.detail else (f"✓{took}", palette.ok)

    def _arguments(self, width: int, palette: Palette) -> list[Line]:
        out: list[Line] = []
        if self.raw and not self.arguments:
            return plain_lines(self.raw, palette.muted, width, 40)
        for key, value in self.arguments.items():
            if self.diff and key not in ("path", "file", "file_path"):
                continue  # the diff says it better
            name = one_line(str(key), 24)
            lines = plain_lines(sanitise(str(value))[:4_000], palette.text, width - len(name) - 2, 12)
            for number, line in enumerate(lines):
                lead = f"{name}: " if number == 0 else " " * (len(name) + 2)
                out.append(row_of(line).behind([Segment(lead, palette.faint)], 0 if number == 0 else len(lead)))
        return out

    def _output(self, width: int, palette: Palette) -> list[Line]:
        if self.diff and self.state == "ok":
            return []
        rows = self.output.rstrip("\n").split("\n") if self.output.strip() else []
        out: list[Line] = []
        if len(rows) > SHOW_OUTPUT or self.dropped:
            note = f"… {len(rows) - SHOW_OUTPUT:,} lines above" if len(rows) > SHOW_OUTPUT else "…"
            if self.dropped:
                note = f"… {self.dropped + len(self.output):,} characters so far, the last {SHOW_OUTPUT} lines:"
            out.append([Segment(note, palette.faint)])
        style = palette.bad if self.state == "error" else palette.muted
        for row in rows[-SHOW_OUTPUT:]:
            row = row[:4_000]
            if ":" in row and "\t" not in row:
                out += fold_line(linked(row, style, palette.link), width)[:20]
            else:
                out += plain_lines(row, style, width, 20)
        if self.whole_path:
            out += plain_lines(f"whole output: {self.whole_path}", palette.faint, width)
        if not rows and self.state == "ok":
            out.append([Segment("(no output)", palette.faint)])
        return out

    def estimate(self, width: int) -> int:
        return 1 + self.gap + (min(SHOW_DIFF, self.diff.count("\n") + 1) if self.diff else 0)


def output_size(output: str, details: Json) -> str:
    """How much a tool gave, where that is more than a glance."""
    total = details.get("characters")
    if isinstance(total, int) and total >= 100_000:
        return f"{total / 1_000_000:.1f} MB"
    for key, one in (("matches", "match"), ("entries", "entry")):
        count = details.get(key)
        if isinstance(count, int) and count:
            return f"{count:,} {key if count > 1 else one}"
    lines = output.rstrip("\n").count("\n") + 1
    return f"{lines:,} lines" if lines > GLANCE and "lines" not in details else ""


def summarise(call: ToolCallPart) -> str:
    """The one argument that says most about a call."""
    arguments = call.arguments
    if arguments is None:
        return one_line(call.raw, 300)
    for key in ("command", "pattern", "path", "file_path", "file", "query", "url", "title", "prompt"):
        value = arguments.get(key)
        if isinstance(value, str) and value:
            where = arguments.get("path") if key == "pattern" else None
            start, end = arguments.get("start", arguments.get("offset")), arguments.get("end", arguments.get("limit"))
            suffix = f"  ({start or 1}-{end or ''})" if key.endswith(("path", "file")) and (start or end) else ""
            return one_line(value, 300) + (f"  in {one_line(str(where), 100)}" if where else "") + suffix
    return one_line(", ".join(f"{k}={v}" for k, v in arguments.items()), 300)


def duration(ms: int) -> str:
    """1900 → "1.9s", 75000 → "1m15s"."""
    seconds = ms / 1000
    return f"{seconds:.1f}s" if seconds < 60 else f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"


Tone = Literal["information", "warning", "error", "good"]


@dataclass(slots=True, eq=False)
class NoticeBlock(Block):
    """A line or two from sakti itself: a sign, a title, and what to know or do."""

    tone: Tone = "information"
    title: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        self.title, self.text = one_line(self.title, 200), sanitise(self.text).strip()

    def plain(self) -> str:
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
        lines = wrap([*spans, (first, palette.muted)], width - 4)
        if rest:
            lines += wrap_rows(rest, palette.muted, width - 4)
        signs = (Segment(f"{sign} ", style), Segment("  ", style))
        return [row_of(line).behind([INDENT, signs[min(n, 1)]], SIGN) for n, line in enumerate(lines)]

    def estimate(self, width: int) -> int:
        return estimate_text(self.title + self.text, width - 4) + self.gap


@dataclass(slots=True, eq=False)
class CardBlock(Block):
    """A framed result: a title, rows of (name, value), and warnings under them."""

    title: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.title = one_line(self.title, 100)
        self.rows = tuple((one_line(k, 40), one_line(v, 500)) for k, v in self.rows)
        self.warnings = tuple(one_line(w, 400) for w in self.warnings)

    def plain(self) -> str:
        return "\n".join([self.title, *(f"{k}: {v}" for k, v in self.rows), *self.warnings])

    def render(self, width: int, palette: Palette) -> list[Line]:
        bar = Segment("  ┃ ", palette.agent)
        name = max((len(k) for k, _ in self.rows), default=0)
        out = indent(wrap([(self.title, palette.bold)], width - 4), bar)
        for key, value in self.rows:
            lead = Segment(key.ljust(name) + "  ", palette.faint) if key else Segment("")
            lines = wrap([(value, palette.text)], max(4, width - 4 - len(lead.text)))
            blank = Segment(" " * len(lead.text))
            first, *rest = lines
            out += [row_of(first).behind([bar, lead], SIGN), *indent(indent(rest, blank), bar)]
        for warning in self.warnings:
            lines = wrap([("! ", palette.warn), (warning, palette.muted)], width - 4)
            out += indent(lines, bar)
        return out

    def estimate(self, width: int) -> int:
        return 1 + len(self.rows) + len(self.warnings) + self.gap
