"""Styled text into lines of terminal cells. A line is a list of Rich segments without control characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style

Line: TypeAlias = list[Segment]
Span: TypeAlias = tuple[str, Style]

_PIECES = re.compile(r"\n|[^\S\n]+|[^\s]+")
TAB = 4


def line_width(line: Iterable[Segment]) -> int:
    """Cells that `line` takes."""
    return sum(cell_len(s.text) for s in line)


def wrap(spans: Iterable[Span], width: int) -> list[Line]:
    """Fold `spans` at spaces into lines of at most `width` cells. A newline in them ends a line; a word that
    is too long, or one with wide characters (which have no spaces between them), is cut where the line ends."""
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
        gap = 1 if space is not None and used else 0
        wide = any(len(text) != cell_len(text) for text, _ in word)
        if used + gap + word_width <= width:
            if gap and space is not None:
                _append(line, " ", space[1])
            for text, style in word:
                _append(line, text, style)
            used += gap + word_width
        elif word_width > width or wide:
            if gap and space is not None and used + gap < width:
                _append(line, " ", space[1])
                used += gap
            for text, style in word:
                rest = text
                while rest:
                    if used >= width:
                        lines.append(line)
                        line, used = [], 0
                    head = chop_cells(rest, width - used)[0] if cell_len(rest) > width - used else rest
                    if not head or cell_len(head) > width - used:  # a wide character where one cell is left
                        if used:
                            lines.append(line)
                            line, used = [], 0
                            continue
                        head = head or rest[:1]
                    _append(line, head, style)
                    used += cell_len(head)
                    rest = rest[len(head) :]
        else:
            lines.append(line)
            line = [Segment(text, style) for text, style in word]
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
                space = (" ", style)
            else:
                word.append((piece, style))
                word_width += cell_len(piece)
    flush_word()
    if line or not lines:
        lines.append(line)
    return lines


def _append(line: Line, text: str, style: Style) -> None:
    if line and line[-1].style is style:
        line[-1] = Segment(line[-1].text + text, style)
    else:
        line.append(Segment(text, style))


def fold_line(spans: Sequence[Span], width: int) -> list[Line]:
    """One line of code or output into lines of at most `width` cells, cut anywhere; spaces are kept."""
    width = max(1, width)
    lines: list[Line] = [[]]
    used = 0
    for text, style in spans:
        rest = text
        while rest:
            room = width - used
            size = cell_len(rest)
            if size <= room:
                lines[-1].append(Segment(rest, style))
                used += size
                break
            head = chop_cells(rest, room)[0] if room > 0 else ""
            if head and cell_len(head) <= room:
                lines[-1].append(Segment(head, style))
                rest = rest[len(head) :]
            elif not used:  # not even one character fits
                rest = rest[max(1, len(head)) :]
                continue
            lines.append([])
            used = 0
    return lines


def plain_lines(text: str, style: Style, width: int, limit: int | None = None) -> list[Line]:
    """Each line of `text`, tabs as spaces, folded at `width` cells; at most `limit` lines."""
    out: list[Line] = []
    for row in text.expandtabs(TAB).split("\n"):
        out += fold_line([(row, style)], width)
        if limit is not None and len(out) >= limit:
            return out[:limit]
    return out


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` cells: cut with …, or filled with spaces."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, width - 1) + "…", width)


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` cells, with … where something was cut."""
    return fit(text, width) if cell_len(text) > width else text


def pad(line: Line, width: int, style: Style | None = None) -> Line:
    """`line` filled with spaces to `width` cells."""
    missing = width - line_width(line)
    return [*line, Segment(" " * missing, style)] if missing > 0 else line


def indent(lines: Iterable[Line], prefix: Segment) -> list[Line]:
    """Every line behind `prefix`."""
    return [[prefix, *line] for line in lines]
