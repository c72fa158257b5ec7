"""Wrap styled text into lines of terminal cells: lists of Rich segments, no control characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style

from sakti.core.lazy import lazy_pattern

Line: TypeAlias = list[Segment]
Span: TypeAlias = tuple[str, Style]


class Leaf:
    """Source of one or more drawn lines: `source` as written, drawn as `rows` lines."""

    __slots__ = ("rows", "source")

    def __init__(self, source: str, rows: int = 1) -> None:
        self.source = source
        self.rows = rows


class Row(list[Segment]):
    """A drawn line with a reference to its source.

    `skip` and `tail`: numbers of layout characters at its start and end; `join`: the text between it and the line above
    if both belong to one source line (None: a separate line); `copies`: the code that a click on this line copies, ""
    if its block has it.
    """

    __slots__ = ("copies", "join", "leaf", "skip", "tail")

    def __init__(self, segments: Iterable[Segment] = (), skip: int = 0, join: str | None = None) -> None:
        super().__init__(segments)
        self.skip, self.tail, self.join = skip, 0, join
        self.leaf: Leaf | None = None
        self.copies: str | None = None

    def after_prefix(self, prefix: Line, skip: int) -> Row:
        """Return the line after `prefix`, whose `skip` characters are layout only."""
        row = Row((*prefix, *self), self.skip + skip, self.join)
        row.tail, row.leaf, row.copies = self.tail, self.leaf, self.copies
        return row


def continue_line(line: Line, join: str) -> Row:
    """Return `line` as a continuation of the line above; `join` is the text between them."""
    return Row(line, 0, join)


def attach_source(lines: list[Line], source: str) -> list[Line]:
    """Attach the `source` to the lines drawn from it."""
    leaf = Leaf(source, len(lines))
    out: list[Line] = []
    for line in lines:
        row = line if isinstance(line, Row) else Row(line)
        row.leaf = leaf
        out.append(row)
    return out


COLUMN = 100  # readable line length in cells: the limit of prose, cards and tool lines
_PIECES = lazy_pattern(r"\n|[^\S\n]+|[^\s]+")
TAB = 4


def count_cells(text: str) -> int:
    """Count the cells of `text`, which has no control characters."""
    return len(text) if text.isascii() else cell_len(text)


def measure_line(line: Iterable[Segment]) -> int:
    return sum(count_cells(s.text) for s in line)


def wrap(spans: Iterable[Span], width: int) -> list[Line]:
    """Fold `spans` at spaces into lines of at most `width` cells.

    A newline ends a line. A word that is too long, or has wide characters (which are written without spaces), is cut
    at the end of the line.
    """
    filler = _LineFiller(max(1, width))
    for text, style in spans:
        for match in _PIECES.finditer(text):
            piece = match[0]
            if piece == "\n":
                filler.end_line()
            elif piece.isspace():
                filler.end_word()
                filler.space = (piece.expandtabs(TAB), style)
            else:
                filler.word.append((piece, style))
                filler.word_width += count_cells(piece)
    return filler.finish()


class _LineFiller:
    """The finished lines, the open line, and the next word with the space before it."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lines: list[Line] = []
        self._line: Line = []
        self._used = 0
        self.word: list[Span] = []
        self.word_width = 0
        self.space: Span | None = None

    def end_line(self) -> None:
        self.end_word()
        self._start_line([])
        self.space = None

    def finish(self) -> list[Line]:
        self.end_word()
        if self._line or not self._lines:
            self._lines.append(self._line)
        return self._lines

    def end_word(self) -> None:
        """Place the word at the end of the open line, in a new line, or cut into several lines."""
        if not self.word:
            return
        gap = len(self.space[0]) if self.space is not None and self._used else 0
        if self._used + gap + self.word_width <= self._width:
            self._add_space(gap)
            for text, style in self.word:
                _append(self._line, text, style)
            self._used += self.word_width
        elif self.word_width > self._width or any(len(text) != count_cells(text) for text, _ in self.word):
            self._cut_word(gap)
        else:
            self._wrap_word()
        self.word, self.word_width, self.space = [], 0, None

    def _cut_word(self, gap: int) -> None:
        """Place a word that is too long for a line, or has wide characters, in several lines."""
        if self._used + gap < self._width:
            self._add_space(gap)
        for text, style in self.word:
            self._add_cut(text, style)

    def _wrap_word(self) -> None:
        """Place the word in a new line."""
        join = self.space[0] if self.space is not None else ""
        self._start_line(continue_line([Segment(text, style) for text, style in self.word], join))
        self._used = self.word_width

    def _start_line(self, line: Line) -> None:
        self._lines.append(self._line)
        self._line, self._used = line, 0

    def _add_space(self, gap: int) -> None:
        if gap and self.space is not None:
            _append(self._line, *self.space)
            self._used += gap

    def _add_cut(self, text: str, style: Style) -> None:
        """Add `text`, cut at the end of each line."""
        while text:
            if self._used >= self._width:
                self._start_line(continue_line([], ""))
            head = _take_head(text, self._width - self._used)
            if not head:  # a wide character with one cell left
                if self._used:
                    self._start_line(continue_line([], ""))
                    continue
                head = text[:1]
            _append(self._line, head, style)
            self._used += cell_len(head)
            text = text[len(head) :]


def _take_head(text: str, room: int) -> str:
    """Return the beginning of `text` that fits into `room` cells; "" if not even one character fits."""
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
            size = count_cells(rest)
            if size <= room:
                lines[-1].append(Segment(rest, style))
                used += size
                break
            head = _take_head(rest, room)
            if head:
                lines[-1].append(Segment(head, style))
                rest = rest[len(head) :]
            elif not used:  # not even one character fits
                rest = rest[1:]
                continue
            lines.append(continue_line([], ""))
            used = 0
    return lines


def fold_words(spans: Sequence[Span], width: int, *, hang: bool = False) -> list[Line]:
    """Return one line of code or output as lines of at most `width` cells, broken at words.

    A line ends after a space or punctuation in its second half; otherwise it is cut anywhere. Spaces are kept, so that
    the joined lines equal the text. `hang`: continued lines are indented further.
    """
    width = max(1, width)
    text = "".join(t for t, _ in spans)
    size = sum(count_cells(t) for t, _ in spans)
    if size <= width or size != count_cells(text):  # an emoji that is split between spans is wider in pieces
        return fold_line(spans, width)
    inset = _measure_hanging_indent(text, width) if hang else 0
    lines: list[Line] = []
    rest = list(spans)
    room = width
    while count_cells(text) > room:
        cut = _find_break(_take_head(text, room))
        if not 0 < cut < len(text):
            break
        first, rest = _split_spans(rest, cut)
        lines.append(_make_piece(first, inset) if lines else [Segment(t, s) for t, s in first])
        text, room = text[cut:], width - inset
    for line in fold_line(rest, room):
        lines.append(_continue_row(line, inset) if lines else line)
    return lines


HANGING_INDENT = 2  # extra indent in cells of continued lines of code


def _measure_hanging_indent(text: str, width: int) -> int:
    """Return the indent in cells of lines that continue `text`; 0 if it would take half the width."""
    inset = len(text) - len(text.lstrip(" ")) + HANGING_INDENT
    return inset if inset <= width // 2 else 0


def _make_piece(spans: Sequence[Span], inset: int) -> Row:
    return _continue_row([Segment(text, style) for text, style in spans], inset)


def _continue_row(line: Line, inset: int) -> Row:
    row = continue_line(line, "")
    return row.after_prefix([Segment(" " * inset)], inset) if inset else row


_SPACES, _PUNCTUATION = re.compile(r"\s+"), re.compile(r"[,;)\]}/|&=]+")


def _find_break(head: str) -> int:
    """Return where to break a line that starts with `head`: after a space or punctuation, or at its end."""
    for pattern in (_SPACES, _PUNCTUATION):
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


def draw_plain(text: str, style: Style, width: int, limit: int | None = None) -> list[Line]:
    """Return each line of `text`, tabs as spaces, folded at `width` cells; at most `limit` lines."""
    out: list[Line] = []
    for row in text.split("\n"):
        lines = fold_words([(row.expandtabs(TAB), style)], width)
        out += attach_source(lines, row) if "\t" in row else lines
        if limit is not None and len(out) >= limit:
            return out[:limit]
    return out


def fit_width(text: str, width: int) -> str:
    """Return `text` in exactly `width` cells: cut with …, or filled with spaces."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, width - 1) + "…", width)


def shorten(text: str, width: int) -> str:
    """Return `text` in at most `width` cells, with … if it was cut."""
    return fit_width(text, width) if cell_len(text) > width else text


def pad(line: Line, width: int, style: Style | None = None) -> Line:
    """Return `line` filled with spaces to `width` cells."""
    missing = width - measure_line(line)
    if missing <= 0:
        return line
    filled = Segment(" " * missing, style)
    if isinstance(line, Row):
        row = line.after_prefix([], 0)
        row.append(filled)
        row.tail += missing
        return row
    return [*line, filled]


def indent(lines: Iterable[Line], prefix: Segment) -> list[Line]:
    """Return every line after `prefix`, which is layout only."""
    skip = len(prefix.text)
    out: list[Line] = []
    for line in lines:
        out.append(line.after_prefix([prefix], skip) if isinstance(line, Row) else Row((prefix, *line), skip))
    return out


def join_lines(lines: Iterable[Line]) -> str:
    """Return the words of folded lines as one line."""
    return " ".join("".join(s.text for s in line).strip() for line in lines)


def to_row(line: Line) -> Row:
    """Return `line` as a `Row`."""
    return line if isinstance(line, Row) else Row(line)


def get_source_text(lines: Sequence[Line], start: int = 0, end: int | None = None) -> str:
    """Return the source text of `lines`.

    From character `start` of the first line to `end` of the last: folded lines are joined and layout characters are
    dropped.
    """
    rows = [to_row(line) for line in lines]
    texts = ["".join(s.text for s in row) for row in rows]
    begins = [start, *[0] * (len(rows) - 1)]
    ends = [len(text) for text in texts]
    if end is not None:
        ends[-1:] = [end]
    out: list[str] = []
    at = 0
    while at < len(rows):
        after = _find_leaf_end(rows, at)
        to_end = ends[after - 1] >= len(texts[after - 1].rstrip())
        source = _get_leaf_source(rows[at:after], begins[at]) if to_end else None
        if source is not None:
            out += ["\n" if out else "", source]
        else:
            for n in range(at, after):
                piece = texts[n][max(rows[n].skip, begins[n]) : min(len(texts[n]) - rows[n].tail, ends[n])]
                out += [_get_joint(rows, n), _trim_piece(rows, n, piece)]
        at = after
    return "".join(out)


def _find_leaf_end(rows: Sequence[Row], at: int) -> int:
    """Return the index after the rows that share the source of row `at`."""
    leaf, after = rows[at].leaf, at + 1
    while leaf is not None and after < len(rows) and rows[after].leaf is leaf:
        after += 1
    return after


def _get_leaf_source(rows: Sequence[Row], begin: int) -> str | None:
    """Return the source of `rows` from character `begin` on if they are all of its rows."""
    leaf = rows[0].leaf
    if leaf is None or len(rows) != leaf.rows or begin > rows[0].skip:
        return None
    return leaf.source


def _get_joint(rows: Sequence[Row], at: int) -> str:
    """Return the source text between row `at` and the one before."""
    join = rows[at].join if at else ""
    return "\n" if join is None else join


def _trim_piece(rows: Sequence[Row], at: int, piece: str) -> str:
    """Return the selected `piece` of row `at`, without trailing blanks of a source line."""
    goes_on = at + 1 < len(rows) and rows[at + 1].join == ""
    return piece if goes_on else piece.rstrip()
