"""Wrap styled text into lines of terminal cells: lists of Rich segments, no control characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style

from sakti.core.patterns import lazy_pattern

Line: TypeAlias = list[Segment]
Span: TypeAlias = tuple[str, Style]


class Leaf:
    """What one or more drawn lines were made from: `source` as it was written, over `rows` lines."""

    __slots__ = ("rows", "source")

    def __init__(self, source: str, rows: int = 1) -> None:
        self.source = source
        self.rows = rows


class Row(list[Segment]):
    """A drawn line with a reference to its source.

    `skip` and `tail`: numbers of characters at its start and end that only lay it out; `join`: the text between it and
    the line above if both belong to one line of the source (None: a separate line); `copies`: the code that a click on
    this line copies, "" if its block knows it.
    """

    __slots__ = ("copies", "join", "leaf", "skip", "tail")

    def __init__(self, segments: Iterable[Segment] = (), skip: int = 0, join: str | None = None) -> None:
        super().__init__(segments)
        self.skip, self.tail, self.join = skip, 0, join
        self.leaf: Leaf | None = None
        self.copies: str | None = None

    def behind(self, prefix: Line, skip: int) -> Row:
        """Return the line after `prefix`, whose `skip` characters are layout only."""
        row = Row((*prefix, *self), self.skip + skip, self.join)
        row.tail, row.leaf, row.copies = self.tail, self.leaf, self.copies
        return row


def continued(line: Line, join: str) -> Row:
    """Return `line` as a continuation of the line above; `join` is the text between them."""
    return Row(line, 0, join)


def made_from(lines: list[Line], source: str) -> list[Line]:
    """Return `lines` with their `source`, as it was written."""
    leaf = Leaf(source, len(lines))
    out: list[Line] = []
    for line in lines:
        row = line if isinstance(line, Row) else Row(line)
        row.leaf = leaf
        out.append(row)
    return out


COLUMN = 100  # cells in which text is read well: prose, cards and the lines of tools end there
_PIECES = lazy_pattern(r"\n|[^\S\n]+|[^\s]+")
TAB = 4


def cells(text: str) -> int:
    """Cells that `text`, without control characters, takes."""
    return len(text) if text.isascii() else cell_len(text)


def line_width(line: Iterable[Segment]) -> int:
    """Cells that `line` takes."""
    return sum(cells(s.text) for s in line)


def wrap(spans: Iterable[Span], width: int) -> list[Line]:
    """Fold `spans` at spaces into lines of at most `width` cells.

    A newline in them ends a line; a word that is too long, or one with wide characters (which have no spaces between
    them), is cut where the line ends.
    """
    width = max(1, width)
    lines: list[Line] = []
    line: Line = []
    used = 0
    word: list[Span] = []
    word_width = 0
    space: Span | None = None

    def flush_word() -> None:
        nonlocal line, used, word, word_width, space
        if not word:
            return
        gap = len(space[0]) if space is not None and used else 0
        if used + gap + word_width <= width:
            if gap and space is not None:
                _append(line, *space)
            for text, style in word:
                _append(line, text, style)
            used += gap + word_width
        elif word_width > width or any(len(text) != cells(text) for text, _ in word):
            if gap and space is not None and used + gap < width:
                _append(line, *space)
                used += gap
            for text, style in word:
                rest = text
                while rest:
                    if used >= width:
                        lines.append(line)
                        line, used = continued([], ""), 0
                    head = _head(rest, width - used)
                    if not head:  # a wide character where one cell is left
                        if used:
                            lines.append(line)
                            line, used = continued([], ""), 0
                            continue
                        head = rest[:1]
                    _append(line, head, style)
                    used += cell_len(head)
                    rest = rest[len(head) :]
        else:
            lines.append(line)
            line = continued([Segment(text, style) for text, style in word], space[0] if space is not None else "")
            used = word_width
        word, word_width, space = [], 0, None

    for text, style in spans:
        for match in _PIECES.finditer(text):
            piece = match[0]
            if piece == "\n":
                flush_word()
                lines.append(line)
                line, used, space = [], 0, None
            elif piece.isspace():
                flush_word()
                space = (piece.expandtabs(TAB), style)
            else:
                word.append((piece, style))
                word_width += cells(piece)
    flush_word()
    if line or not lines:
        lines.append(line)
    return lines


def _head(text: str, room: int) -> str:
    """Return the beginning of `text` that fits into so many cells, "" where not even one character does."""
    if room <= 0:
        return ""
    if cell_len(text) <= room:
        return text
    head = next(iter(chop_cells(text, room)), "")
    while cell_len(head) > room:  # it counts joiners otherwise
        head = head[:-1]
    return head


def _append(line: Line, text: str, style: Style) -> None:
    if line and line[-1].style is style:
        line[-1] = Segment(line[-1].text + text, style)
    else:
        line.append(Segment(text, style))


def fold_line(spans: Sequence[Span], width: int) -> list[Line]:
    """Return one line of code or output as lines of at most `width` cells, cut anywhere; spaces are kept."""
    width = max(1, width)
    lines: list[Line] = [[]]
    used = 0
    for text, style in spans:
        rest = text
        while rest:
            room = width - used
            size = cells(rest)
            if size <= room:
                lines[-1].append(Segment(rest, style))
                used += size
                break
            head = _head(rest, room)
            if head:
                lines[-1].append(Segment(head, style))
                rest = rest[len(head) :]
            elif not used:  # not even one character fits
                rest = rest[1:]
                continue
            lines.append(continued([], ""))
            used = 0
    return lines


def fold_words(spans: Sequence[Span], width: int, *, hang: bool = False) -> list[Line]:
    """Return one line of code or output as lines of at most `width` cells, broken at words.

    Ended behind a space or a sign where one stands in their second half, else cut anywhere; spaces are kept, so that
    all of them together are the line. `hang`: what goes on stands further in than the line began.
    """
    width = max(1, width)
    text = "".join(t for t, _ in spans)
    if cells(text) <= width:
        return fold_line(spans, width)
    inset = len(text) - len(text.lstrip(" ")) + HANG if hang else 0
    inset = inset if inset <= width // 2 else 0
    lead = [Segment(" " * inset)] if inset else []
    lines: list[Line] = []
    rest = list(spans)
    room = width
    while cells(text) > room:
        cut = _break(_head(text, room))
        if not 0 < cut < len(text):
            break
        first, rest = _split_spans(rest, cut)
        lines.append(_piece(first, lead) if lines else [Segment(t, s) for t, s in first])
        text, room = text[cut:], width - inset
    for line in fold_line(rest, room):
        lines.append(_goes_on(line, lead) if lines else line)
    return lines


HANG = 2  # extra indent in cells of continued lines of code


def _piece(spans: Sequence[Span], lead: Line) -> Row:
    return _goes_on([Segment(text, style) for text, style in spans], lead)


def _goes_on(line: Line, lead: Line) -> Row:
    row = continued(line, "")
    return row.behind(lead, len(lead[0].text)) if lead else row


_SPACES, _SIGNS = re.compile(r"\s+"), re.compile(r"[,;)\]}/|&=]+")


def _break(head: str) -> int:
    """Return where to break a line that begins with `head`: after a space, else a sign, else its end."""
    for pattern in (_SPACES, _SIGNS):
        ends = [m.end() for m in pattern.finditer(head) if m.end() > len(head) // 2]
        if ends:
            return ends[-1]
    return len(head)


def _split_spans(spans: Sequence[Span], at: int) -> tuple[list[Span], list[Span]]:
    """Return `spans` before and after character `at`."""
    first: list[Span] = []
    for number, (text, style) in enumerate(spans):
        if len(text) >= at:
            rest = [(text[at:], style)] if len(text) > at else []
            return [*first, (text[:at], style)], [*rest, *spans[number + 1 :]]
        first.append((text, style))
        at -= len(text)
    return first, []


def plain_lines(text: str, style: Style, width: int, limit: int | None = None) -> list[Line]:
    """Return each line of `text`, tabs as spaces, folded at `width` cells; at most `limit` lines."""
    out: list[Line] = []
    for row in text.split("\n"):
        lines = fold_words([(row.expandtabs(TAB), style)], width)
        out += made_from(lines, row) if "\t" in row else lines
        if limit is not None and len(out) >= limit:
            return out[:limit]
    return out


def fit(text: str, width: int) -> str:
    """Return `text` in exactly `width` cells: cut with …, or filled with spaces."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, width - 1) + "…", width)


def shorten(text: str, width: int) -> str:
    """Return `text` in at most `width` cells, with … where something was cut."""
    return fit(text, width) if cell_len(text) > width else text


def pad(line: Line, width: int, style: Style | None = None) -> Line:
    """Return `line` filled with spaces to `width` cells."""
    missing = width - line_width(line)
    if missing <= 0:
        return line
    filled = Segment(" " * missing, style)
    if isinstance(line, Row):
        row = line.behind([], 0)
        row.append(filled)
        row.tail += missing
        return row
    return [*line, filled]


def indent(lines: Iterable[Line], prefix: Segment) -> list[Line]:
    """Return every line after `prefix`, which is layout only."""
    skip = len(prefix.text)
    out: list[Line] = []
    for line in lines:
        out.append(line.behind([prefix], skip) if isinstance(line, Row) else Row((prefix, *line), skip))
    return out


def row_of(line: Line) -> Row:
    """Return `line` as a `Row`."""
    return line if isinstance(line, Row) else Row(line)


def rows_text(lines: Sequence[Line], start: int = 0, end: int | None = None) -> str:
    """Return the source text of `lines`.

    From character `start` of the first to `end` of the last line: folded lines are joined, and characters that only lay
    out the text are dropped.
    """
    out: list[str] = []
    rows = [row_of(line) for line in lines]
    at = 0
    while at < len(rows):
        leaf, after = rows[at].leaf, at + 1
        while leaf is not None and after < len(rows) and rows[after].leaf is leaf:
            after += 1
        texts = ["".join(s.text for s in row) for row in rows[at:after]]
        begin = start if at == 0 else 0
        right = end if after == len(rows) and end is not None else len(texts[-1])
        if leaf is not None and after - at == leaf.rows and begin <= rows[at].skip and right >= len(texts[-1].rstrip()):
            out += ["\n" if out else "", leaf.source]
        else:
            for number, (row, text) in enumerate(zip(rows[at:after], texts, strict=True)):
                first, last = at + number == 0, at + number == len(rows) - 1
                stop = min(len(text) - row.tail, end if last and end is not None else len(text))
                piece = text[max(row.skip, begin if first else 0) : stop]
                goes_on = not last and rows[at + number + 1].join == ""
                out += ["" if first else "\n" if row.join is None else row.join, piece if goes_on else piece.rstrip()]
        at = after
    return "".join(out)
