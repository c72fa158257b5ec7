"""Draw Markdown as lines: markdown-it parses it, and each token is written directly as segments.

Rich's own Markdown builds renderables and measures them; for a stream that is rendered again twenty times a
second this walk over the tokens is several times cheaper. Raw HTML is shown as it was written.
"""

from __future__ import annotations

import html
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from sakti.core.lazy import lazy_pattern
from sakti.tui.palette import Palette
from sakti.tui.transcript.code import draw_code, draw_code_head, warm_lexer
from sakti.tui.transcript.links import add_links, add_target, parse_address, parse_place
from sakti.tui.transcript.wrap import Line, Row, Span, attach_source, draw_plain, measure_line, pad, wrap

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_BOLD = Style(bold=True)
_ITALIC = Style(italic=True)
_STRIKE = Style(strike=True)
_UNDERLINE = Style(underline=True)
_STYLES = {"strong_open": _BOLD, "em_open": _ITALIC, "s_open": _STRIKE}
_BULLETS = "•◦▪"
_BOXES = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}


@lru_cache(maxsize=1)
def _get_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def draw_markdown(source: str, width: int, palette: Palette, *, code_width: int = 0) -> list[Line]:
    """Return `source`, already free of control characters, as lines of at most `width` cells.

    Code and tables may take `code_width`, where that is more. Source that Markdown would not show in full, such as a
    link definition or surplus cells of a table, is shown as it was written.
    """
    width = max(8, width)
    writer = _Writer(source, width, palette, max(0, code_width - width))
    try:
        writer.write_blocks(_get_parser().parse(source))
    except TooNarrow:
        return draw_plain(source.strip("\n"), palette.text, width)
    if _is_shown(source, writer.lines):
        return writer.lines
    return draw_plain(source.strip("\n"), palette.text, width)


# Marks at the start of a line that are drawn as other signs: numbers of lists, checked boxes
_MARKS = lazy_pattern(r"(?m)^([\s>]*)(?:(?:[-*+]|\d{1,9}[.)])\s+)+(?:\[[xX]\]\s)?")


def _is_shown(source: str, lines: list[Line]) -> bool:
    """Return whether `lines` contain every letter and digit of `source`."""
    written = Counter(html.unescape(_MARKS.sub(r"\1", source)))
    drawn = Counter("".join(segment.text for line in lines for segment in line))
    return all(count <= drawn[sign] for sign, count in written.items() if sign.isalnum())


class TooNarrow(Exception):
    """A table has no room for its columns."""


def warm_renderers() -> None:
    """Load the Markdown parser and the most common lexers before the first answer."""
    _get_parser()
    for language in ("python", "bash"):
        warm_lexer(language)


class _Writer:
    """Writes the tokens in one pass.

    `_prefixes`: the prefixes [first line, later lines] of the open containers; the marker of a list item is used by its
    first line only.
    """

    def __init__(self, source: str, width: int, palette: Palette, more: int = 0) -> None:
        self._more = more  # cells that code and tables may take beyond the width
        self.lines: list[Line] = []
        self._source = source.split("\n")
        self.width = width
        self.palette = palette
        self._prefixes: list[list[Segment | None]] = []
        self._lists: list[tuple[int | None, bool, int]] = []  # the next number (None: bullets), tight, last written
        self._gap = False

    def write_blocks(self, tokens: list[Token]) -> None:
        index = 0
        while index < len(tokens):
            index = self._write_block(tokens, index)

    def _write_block(self, tokens: list[Token], index: int) -> int:
        token = tokens[index]
        match token.type:
            case "heading_open" | "paragraph_open":
                self._write_paragraph(token, tokens[index + 1])
                return index + 3
            case "fence" | "code_block":
                self._write_code(token)
            case "bullet_list_open" | "ordered_list_open":
                self._open_list(tokens, index)
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
                self._gap = True
            case "list_item_open":
                self._open_item(token)
            case "list_item_close" | "blockquote_close":
                self._close_container(token)
            case "blockquote_open":
                self._add_gap()
                bar = Segment("▌ ", self.palette.line)
                self._prefixes.append([bar, bar])
                self._gap = False
            case "hr":
                self._add_gap()
                self._append([[Segment("─" * self._get_room(), self.palette.line)]], token)
            case "table_open":
                return self._write_table(tokens, index)
            case "html_block":
                self._add_gap()
                self._append(wrap([(token.content.rstrip("\n"), self.palette.muted)], self._get_room()), token)
            case _:
                pass
        return index + 1

    def _write_paragraph(self, opening: Token, text: Token) -> None:
        if opening.type == "paragraph_open":
            self._write_text(text, self.palette.text, tight=opening.hidden)
        else:
            heading = self.palette.heading
            self._write_text(text, heading + _UNDERLINE if opening.tag == "h1" else heading, whole=opening)

    def _write_code(self, token: Token) -> None:
        self._add_gap(blank=False)
        code, info = token.content.removesuffix("\n"), token.info.strip()
        room = self._get_room() + self._more
        self._append([draw_code_head(info, room, self.palette, code), *draw_code(code, info, room, self.palette)])

    def _open_list(self, tokens: list[Token], index: int) -> None:
        tight = _is_tight(tokens, index)
        if not (self._lists and tight):
            self._add_gap()
        self._lists.append((0 if tokens[index].type == "ordered_list_open" else None, tight, -1))

    def _close_container(self, token: Token) -> None:
        prefix = self._prefixes[-1]
        if token.type == "list_item_close" and prefix[0] is not prefix[1]:
            self._append([[]])  # an empty item still shows its marker
        self._prefixes.pop()

    def _open_item(self, item: Token) -> None:
        """Begin an item, numbered as written; a repeated number is counted on."""
        number, tight, before = self._lists[-1]
        if number is None:
            marker = _BULLETS[(len(self._lists) - 1) % len(_BULLETS)] + " "
        else:
            written = int(item.info)
            number = number if written == before else written
            marker = f"{number}{item.markup} "
            self._lists[-1] = (number + 1, tight, written)
        if not tight:
            self._add_gap()
        self._prefixes.append([Segment(marker, self.palette.faint), Segment(" " * len(marker))])
        self._gap = False

    def _get_room(self) -> int:
        return max(4, self.width - sum(cell_len(p[1].text) for p in self._prefixes if p[1]))

    def _add_gap(self, *, blank: bool = True) -> None:
        """Add a blank line before the next element; not if `blank` is False, as its own line suffices."""
        if self._gap and self.lines and blank:
            row = Row([p[1] for p in self._prefixes if p[1] and p[1].text.strip()])
            row.skip = sum(len(s.text) for s in row)
            self.lines.append(row)
        self._gap = False

    def _append(self, lines: list[Line], token: Token | None = None) -> None:
        """Append `lines` behind the prefixes of open containers; `token` gives their source."""
        if token is not None and token.map:
            lines = attach_source(lines, "\n".join(self._source[slice(*token.map)]).rstrip())
        for line in lines:
            before: Line = []
            for prefix in self._prefixes:
                first, later = prefix
                if first is not None:
                    before.append(first)
                prefix[0] = later
            if before:
                row = line if isinstance(line, Row) else Row(line)
                self.lines.append(row.after_prefix(before, sum(len(s.text) for s in before)))
            else:
                self.lines.append(line)
        self._gap = True

    def _write_text(self, token: Token, style: Style, *, tight: bool = False, whole: Token | None = None) -> None:
        if not tight:
            self._add_gap()
        spans = self._make_spans(token, style)
        if self._prefixes and spans and (box := _BOXES.get(spans[0][0][:4])):
            marker, rest = self._prefixes[-1]
            if marker is not rest and marker is not None and marker.text in {f"{b} " for b in _BULLETS}:
                self._prefixes[-1][0] = Segment(box, marker.style)
                spans[0] = (spans[0][0][4:], spans[0][1])
        self._append(wrap(spans, self._get_room()), whole or token)

    def _make_spans(self, token: Token, base: Style) -> list[Span]:
        inline = _InlineWriter(base, self.palette)
        children = token.children or []
        literal = _find_literal_marks(children)
        for number, child in enumerate(children):
            if number in literal:
                inline.add(child.markup)
            else:
                inline.write(child)
        return inline.spans

    def _write_table(self, tokens: list[Token], index: int) -> int:
        rows: list[list[list[Span]]] = []
        sources: list[str] = []
        aligns: list[str] = []
        header = True
        while tokens[index].type != "table_close":
            token = tokens[index]
            if token.type == "tr_open":
                rows.append([])
                sources += self._list_source_lines(token, 2 if header else 1)
            elif token.type == "tbody_open":
                header = False
            elif token.type in ("th_open", "td_open"):
                if header:
                    aligns.append(str(token.attrGet("style") or "").rpartition(":")[2])
                base = self.palette.bold if header else self.palette.text
                rows[-1].append(self._make_spans(tokens[index + 1], base))
            index += 1
        self._add_gap()
        self._append(_draw_table(rows, sources, aligns, self._get_room() + self._more, self.palette))
        return index + 1

    def _list_source_lines(self, token: Token, count: int) -> list[str]:
        start = token.map[0] if token.map else 0
        return [line.strip() for line in self._source[start : start + count]]


class _InlineWriter:
    """Collects the spans of a paragraph. `link`: the target of the link that is open, or None."""

    def __init__(self, base: Style, palette: Palette) -> None:
        self.spans: list[Span] = []
        self._palette = palette
        self._styles = [base]
        self._link: str | None = None
        self._link_start, self._link_title = 0, ""

    def add(self, text: str) -> None:
        self.spans.append((text, self._styles[-1]))

    def write(self, token: Token) -> None:
        match token.type:
            case "text" if self._link is None:
                self.spans += add_links(token.content, self._styles[-1], self._palette.link)
            case "text":
                self.add(token.content)
            case "code_inline":
                self._write_code(token.content)
            case "strong_open" | "em_open" | "s_open":
                self._styles.append(self._styles[-1] + _STYLES[token.type])
            case "strong_close" | "em_close" | "s_close":
                self._styles.pop()
            case "link_open":
                self._open_link(token)
            case "link_close":
                self._close_link()
            case "image":
                self.spans.append((_describe_image(token), self._palette.muted))
            case "softbreak" | "hardbreak":
                self.add(" " if token.type == "softbreak" else "\n")
            case _:
                self.spans.append((token.content, self._palette.muted))

    def _write_code(self, text: str) -> None:
        style = self._styles[-1] + self._palette.code
        file = parse_place(text) if self._link is None else None
        self.spans.append((text, add_target(style, "file", file) if file else style))

    def _open_link(self, token: Token) -> None:
        href = str(token.attrGet("href") or "")
        self._link, self._link_start = _get_parser().normalizeLinkText(href), len(self.spans)
        self._link_title = str(token.attrGet("title") or "")
        self._styles.append(_style_link(self._styles[-1] + self._palette.link + _UNDERLINE, href))

    def _close_link(self) -> None:
        """End a link, and show its target and title if its text does not."""
        self._styles.pop()
        link, title = self._link, self._link_title
        text = "".join(t for t, _ in self.spans[self._link_start :])
        if link and (title or text != link.removeprefix("mailto:")):
            self.spans.append((f" ({link}{title and f' {title}'})", self._palette.faint))
        self._link = None


def _describe_image(image: Token) -> str:
    """Return the text of an image: its name, source and title."""
    source = _get_parser().normalizeLinkText(str(image.attrGet("src") or ""))
    parts = (image.content, f"({source})" if image.content else source, image.attrGet("title"))
    return f"▣ {' '.join(str(part) for part in parts if part)}"


def _find_literal_marks(children: list[Token]) -> set[int]:
    """Return the marks that are part of a word, as in `a*b*c` and `__init__`, and are shown as text."""
    out: set[int] = set()
    opened: list[int] = []
    for at, child in enumerate(children):
        if child.type in ("em_open", "strong_open"):
            opened.append(at)
        elif child.type in ("em_close", "strong_close"):
            start = opened.pop()
            if _is_within_word(children, start, at):
                out |= {start, at}
    return out


def _is_within_word(children: list[Token], start: int, end: int) -> bool:
    """Return whether the marks at `start` and `end` belong to a word."""
    mark = children[end].markup
    if mark == "__":
        return "".join(c.content for c in children[start + 1 : end]).isidentifier()
    before = children[start - 1].content[-1:] if start else ""
    after = children[end + 1].content[:1] if end + 1 < len(children) else ""
    return mark == "*" and before.isalnum() and after.isalnum()


def _style_link(style: Style, href: str) -> Style:
    """Return the style of a link, with its target if that is an address or a file."""
    if (target := parse_address(href)) is not None:
        return add_target(style, "url", target)
    return add_target(style, "file", file) if (file := parse_place(href)) else style


def _is_tight(tokens: list[Token], index: int) -> bool:
    level = tokens[index].level
    for token in tokens[index + 1 :]:
        if token.type == "paragraph_open" and token.level == level + 2:
            return token.hidden
        if token.level <= level:
            break
    return True


def _draw_table(
    rows: list[list[list[Span]]], sources: list[str], aligns: list[str], room: int, palette: Palette
) -> list[Line]:
    """Return a table's lines; `sources`: how each row, and the rule below the first of them, was written."""
    columns = max((len(r) for r in rows), default=0)
    natural = [_measure_column(rows, column) for column in range(columns)]
    widths = _shrink(natural, room - 3 * (columns - 1))
    if sum(widths) + 3 * (columns - 1) > room or any(w < min(n, 2) for w, n in zip(widths, natural, strict=True)):
        raise TooNarrow  # a wide character takes two cells
    aligns = [*aligns, *[""] * (columns - len(aligns))]
    out: list[Line] = []
    written = iter(sources)
    for number, row in enumerate(rows):
        out += attach_source(_draw_table_row(row, widths, aligns, palette), next(written, ""))
        if number == 0:
            rule: Line = [Segment("─┼─".join("─" * w for w in widths), palette.line)]
            out += attach_source([rule], next(written, ""))
    return out


def _measure_column(rows: list[list[list[Span]]], column: int) -> int:
    """Return the cells that a column takes without folds, at least 1."""
    return max((sum(cell_len(t) for t, _ in r[column]) for r in rows if column < len(r)), default=1) or 1


def _draw_table_row(row: list[list[Span]], widths: list[int], aligns: list[str], palette: Palette) -> list[Line]:
    folded = [wrap(row[c] if c < len(row) else [], width) for c, width in enumerate(widths)]
    lines: list[Line] = []
    for y in range(max(map(len, folded))):
        line: Line = []
        for c, cell in enumerate(folded):
            if c:
                line.append(Segment(" │ ", palette.line))
            line += _align_cell(cell[y] if y < len(cell) else [], widths[c], aligns[c])
        lines.append(line)
    return lines


def _align_cell(text: Line, width: int, alignment: str) -> Line:
    """Pad `text` to `width` cells on the left, on the right, or on both sides."""
    missing = width - measure_line(text)
    before = missing if alignment == "right" else missing // 2 if alignment == "center" else 0
    return [Segment(" " * before), *pad(text, width - before)] if before > 0 else pad(text, width)


def _shrink(natural: list[int], room: int) -> list[int]:
    """Return column widths that fit, shrinking the widest columns first."""
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
