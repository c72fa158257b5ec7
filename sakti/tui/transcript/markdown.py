"""Markdown as lines: markdown-it parses, this writes each token straight as segments.

Rich's own Markdown builds renderables and measures them; for a stream that is rendered again twenty times a
second this walk over the tokens is several times cheaper. Raw HTML is shown as it was written.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from sakti.tui.palette import Palette
from sakti.tui.transcript.code import code_lines
from sakti.tui.transcript.wrap import Line, Span, line_width, pad, wrap

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_BOLD = Style(bold=True)
_ITALIC = Style(italic=True)
_STRIKE = Style(strike=True)
_UNDERLINE = Style(underline=True)
_BULLETS = "•◦▪"


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def markdown_lines(source: str, width: int, palette: Palette) -> list[Line]:
    """`source`, already free of control characters, as lines of at most `width` cells."""
    writer = _Writer(max(8, width), palette)
    writer.blocks(_parser().parse(source))
    return writer.lines


def warm_renderers() -> None:
    """Import what the first answer needs: the parser of Markdown and the lexers of code."""
    import pygments.lexers  # noqa: F401  # pyright: ignore[reportUnusedImport]

    _parser()


class _Writer:
    """One walk over the tokens. `_prefixes` is what stands before a line in the containers that are open:
    [first line, later lines] each; a list item's marker is used up by its first line."""

    def __init__(self, width: int, palette: Palette) -> None:
        self.lines: list[Line] = []
        self.width = width
        self.palette = palette
        self._prefixes: list[list[Segment | None]] = []
        self._lists: list[tuple[int | None, bool]] = []  # the next number (None: bullets), tight
        self._gap = False

    def blocks(self, tokens: list[Token]) -> None:
        index = 0
        while index < len(tokens):
            index = self._block(tokens, index)

    def _block(self, tokens: list[Token], index: int) -> int:
        token = tokens[index]
        match token.type:
            case "heading_open":
                self._text(tokens[index + 1], self.palette.heading)
                return index + 3
            case "paragraph_open":
                self._text(tokens[index + 1], self.palette.text, tight=token.hidden)
                return index + 3
            case "fence" | "code_block":
                self._space()
                code = token.content.removesuffix("\n")
                language = token.info.strip().split(" ")[0] if token.info else ""
                self._emit(code_lines(code, language, self._room(), self.palette))
            case "bullet_list_open" | "ordered_list_open":
                tight = _is_tight(tokens, index)
                if not (self._lists and tight):
                    self._space()
                number = int(token.attrGet("start") or 1) if token.type == "ordered_list_open" else None
                self._lists.append((number, tight))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
                self._gap = True
            case "list_item_open":
                self._open_item()
            case "list_item_close" | "blockquote_close":
                prefix = self._prefixes[-1]
                if token.type == "list_item_close" and prefix[0] is not prefix[1]:
                    self._emit([[]])  # an empty item still shows its marker
                self._prefixes.pop()
            case "blockquote_open":
                self._space()
                bar = Segment("▌ ", self.palette.line)
                self._prefixes.append([bar, bar])
                self._gap = False
            case "hr":
                self._space()
                self._emit([[Segment("─" * self._room(), self.palette.line)]])
            case "table_open":
                return self._table(tokens, index)
            case "html_block":
                self._space()
                self._emit(wrap([(token.content.rstrip("\n"), self.palette.muted)], self._room()))
            case _:
                pass
        return index + 1

    def _open_item(self) -> None:
        number, tight = self._lists[-1]
        if number is None:
            marker = _BULLETS[(len(self._lists) - 1) % len(_BULLETS)] + " "
        else:
            marker = f"{number}. "
            self._lists[-1] = (number + 1, tight)
        if not tight:
            self._space()
        self._prefixes.append([Segment(marker, self.palette.faint), Segment(" " * len(marker))])
        self._gap = False

    def _room(self) -> int:
        return max(4, self.width - sum(cell_len(p[1].text) for p in self._prefixes if p[1]))

    def _space(self) -> None:
        if self._gap and self.lines:
            self.lines.append([p[1] for p in self._prefixes if p[1] and p[1].text.strip()])
        self._gap = False

    def _emit(self, lines: list[Line]) -> None:
        for line in lines:
            before: Line = []
            for prefix in self._prefixes:
                first, later = prefix
                if first is not None:
                    before.append(first)
                prefix[0] = later
            self.lines.append(before + line)
        self._gap = True

    def _text(self, token: Token, style: Style, *, tight: bool = False) -> None:
        if not tight:
            self._space()
        self._emit(wrap(self._spans(token, style), self._room()))

    def _spans(self, token: Token, base: Style) -> list[Span]:
        spans: list[Span] = []
        stack = [base]
        link: str | None = None
        shown = 0
        for child in token.children or []:
            match child.type:
                case "text":
                    spans.append((child.content, stack[-1]))
                case "code_inline":
                    spans.append((child.content, stack[-1] + self.palette.code))
                case "strong_open":
                    stack.append(stack[-1] + _BOLD)
                case "em_open":
                    stack.append(stack[-1] + _ITALIC)
                case "s_open":
                    stack.append(stack[-1] + _STRIKE)
                case "link_open":
                    link, shown = str(child.attrGet("href") or ""), len(spans)
                    stack.append(stack[-1] + self.palette.link + _UNDERLINE)
                case "link_close":
                    stack.pop()
                    if link and "".join(t for t, _ in spans[shown:]) != link:
                        spans.append((f" ({link})", self.palette.faint))
                case "strong_close" | "em_close" | "s_close":
                    stack.pop()
                case "image":
                    spans.append((f"▣ {child.content or child.attrGet('src')}", self.palette.muted))
                case "softbreak":
                    spans.append((" ", stack[-1]))
                case "hardbreak":
                    spans.append(("\n", stack[-1]))
                case _:
                    spans.append((child.content, self.palette.muted))
        return spans

    def _table(self, tokens: list[Token], index: int) -> int:
        rows: list[list[list[Span]]] = []
        aligns: list[str] = []
        header = True
        while tokens[index].type != "table_close":
            token = tokens[index]
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "tbody_open":
                header = False
            elif token.type in ("th_open", "td_open"):
                if header:
                    aligns.append(str(token.attrGet("style") or "").rpartition(":")[2])
                base = self.palette.bold if header else self.palette.text
                rows[-1].append(self._spans(tokens[index + 1], base))
            index += 1
        self._space()
        self._emit(_table_lines(rows, aligns, self._room(), self.palette))
        return index + 1


def _is_tight(tokens: list[Token], index: int) -> bool:
    level = tokens[index].level
    for token in tokens[index + 1 :]:
        if token.type == "paragraph_open" and token.level == level + 2:
            return token.hidden
        if token.level <= level:
            break
    return True


def _table_lines(rows: list[list[list[Span]]], aligns: list[str], room: int, palette: Palette) -> list[Line]:
    columns = max((len(r) for r in rows), default=0)
    natural = [
        max((sum(cell_len(t) for t, _ in r[c]) for r in rows if c < len(r)), default=1) or 1 for c in range(columns)
    ]
    widths = _shrink(natural, room - 3 * (columns - 1))
    out: list[Line] = []
    for number, row in enumerate(rows):
        cells = [wrap(row[c] if c < len(row) else [], widths[c]) for c in range(columns)]
        for y in range(max(len(c) for c in cells)):
            line: Line = []
            for c, cell in enumerate(cells):
                if c:
                    line.append(Segment(" │ ", palette.line))
                text = cell[y] if y < len(cell) else []
                missing = widths[c] - line_width(text)
                left = (
                    missing
                    if aligns[c : c + 1] == ["right"]
                    else missing // 2
                    if aligns[c : c + 1] == ["center"]
                    else 0
                )
                line += [Segment(" " * left), *pad(text, widths[c] - left)] if left > 0 else pad(text, widths[c])
            out.append(line)
        if number == 0:
            out.append([Segment("─┼─".join("─" * w for w in widths), palette.line)])
    return out


def _shrink(natural: list[int], room: int) -> list[int]:
    """Column widths that fit: the widest columns give way first."""
    widths = list(natural)
    room = max(room, len(widths))
    while sum(widths) > room:
        widest = max(widths)
        second = max((w for w in widths if w < widest), default=1)
        many = [i for i, w in enumerate(widths) if w == widest]
        step = min(widest - second, -(-(sum(widths) - room) // len(many))) or 1
        for i in many:
            widths[i] -= min(step, max(0, sum(widths) - room)) or 0
        if widest <= 1:
            break
    return [max(1, w) for w in widths]
