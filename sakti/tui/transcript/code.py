"""Draw code and unified diffs as lines of styled spans.

Pygments is imported with the first block of code.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from sakti.core.lazy import lazy_pattern
from sakti.core.text import format_count
from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import (
    COLUMN,
    TAB,
    Line,
    Row,
    Span,
    attach_source,
    count_cells,
    fold_words,
    indent,
    pad,
    shorten,
)

if TYPE_CHECKING:
    from pygments.lexer import Lexer

HIGHLIGHT_CAP = 60_000  # maximum characters of highlighted code; longer code is shown plain
_SPACE = Segment(" ")
COPY = "copy"


@lru_cache(maxsize=64)
def _get_lexer(language: str) -> Lexer | None:
    import pygments.lexers
    from pygments.util import ClassNotFound

    try:
        find = cast("Callable[..., Lexer]", pygments.lexers.get_lexer_by_name)  # pyright: ignore[reportUnknownMemberType]
        return find(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=256)
def detect_language(path: str) -> str:
    """Return the language for a file name, or ""."""
    every = cast("Callable[..., Iterable[tuple[str, tuple[str, ...], tuple[str, ...], object]]]", _load_lexers())
    name = path.rpartition("/")[2]
    for _, aliases, patterns, _ in every(plugins=False):
        if aliases and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            return aliases[0]
    return ""


def _load_lexers() -> object:
    import pygments.lexers

    return pygments.lexers.get_all_lexers  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]


def warm_lexer(language: str) -> None:
    """Load a lexer: its first token takes as long as thousands of later ones."""
    if (lexer := _get_lexer(language)) is not None:
        next(iter(lexer.get_tokens("x")), None)


def highlight(code: str, language: str, palette: Palette) -> list[list[Span]]:
    """Return the lines of `code`, tabs as spaces, each a list of spans.

    The spans are plain if `language` is unknown or its lexer changes the text.
    """
    code = code.expandtabs(TAB)
    tokens = _tokenize(code, language)
    if tokens is None:
        return [[(row, palette.text)] if row else [] for row in code.split("\n")]
    styles: dict[Any, Style] = {}
    lines: list[list[Span]] = [[]]
    for token, value in tokens:
        if (style := styles.get(token)) is None:
            style = styles[token] = _get_token_style(token, palette)
        first, *more = value.split("\n")
        if first:
            lines[-1].append((first, style))
        for row in more:
            lines.append([(row, style)] if row else [])
    return lines[:-1]


def _tokenize(code: str, language: str) -> list[tuple[Any, str]] | None:
    """Return the tokens of `code` and a line end; None without a lexer, or if it changes the text."""
    lexer = _get_lexer(language.lower()) if language and len(code) <= HIGHLIGHT_CAP else None
    if lexer is None:
        return None
    tokens = list(lexer.get_tokens(code + "\n"))  # some lexers need the last line end
    return tokens if "".join(value for _, value in tokens) == code + "\n" else None


def _get_token_style(token: Any, palette: Palette) -> Style:
    """Return the style of a type of Pygments tokens."""
    from pygments.token import Comment, Generic, Keyword, Name, Number, String

    styles: tuple[tuple[tuple[Any, ...], Style], ...] = (
        ((Comment,), palette.comment),
        ((String,), palette.string),
        ((Keyword,), palette.keyword),
        ((Number,), palette.number),
        ((Name.Function, Name.Class, Name.Decorator, Name.Tag), palette.name),
        ((Generic.Inserted,), Style(color=palette.added.color)),
        ((Generic.Deleted,), Style(color=palette.removed.color)),
        ((Generic.Heading, Generic.Subheading), palette.muted),
    )
    return next((style for kinds, style in styles if any(token in kind for kind in kinds)), palette.text)


def draw_code(code: str, info: str, width: int, palette: Palette) -> list[Line]:
    """Return a block of code on its own background, with a cell of padding and long lines folded.

    The first word of `info` is its language.
    """
    language = info.partition(" ")[0]
    background = Style(bgcolor=palette.code_block.bgcolor)
    inner = max(1, width - 2)
    out: list[Line] = []
    for source, spans in zip(code.split("\n"), highlight(code, language, palette), strict=True):
        lines = [pad(line, width, background) for line in indent(fold_words(spans, inner, hang=True), _SPACE)]
        for line in lines:
            line[:] = [Segment(s.text, background + s.style if s.style else background) for s in line]
        out += attach_source(lines, source) if "\t" in source else lines
    return out


def draw_code_head(language: str, width: int, palette: Palette, copies: str = "") -> Line:
    """Return the right-aligned head of a code block: its language and the clickable word for copying.

    `copies`: the code, "" if the block knows it.
    """
    label = shorten(language, max(0, width - len(COPY) - 4))
    text = f"{label} · {COPY} " if label else f"{COPY} "
    row = Row([Segment(" " * max(0, width - cell_len(text))), Segment(text, palette.faint)])
    row.skip, row.copies = sum(len(s.text) for s in row), copies
    return row


_HUNK = lazy_pattern(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_DIFF_SYMBOLS = {"+": "+", "-": "−", " ": " "}
MAX_LINE = 4_000  # characters shown of one line


class DiffRow(Struct, frozen=True):
    """A row of a diff: `kind` is "+", "-", " ", or "@" for omitted lines.

    `number` is the line number after the change, or before it for a removed line (0: unknown); `source` is the line as
    in the diff.
    """

    kind: str
    number: int
    text: str
    source: str
    language: str = ""


def count_changes(diff: str) -> tuple[int, int]:
    """Count the lines that `diff` adds and removes."""
    kinds = [row.kind for row in parse_diff(diff)]
    return kinds.count("+"), kinds.count("-")


def parse_diff(diff: str) -> list[DiffRow]:
    """Return the lines of `diff`.

    Lines that name files are left out, as are blank context lines at the end of a hunk.
    """
    out: list[DiffRow] = []
    at, end = (0, 0), (0, 0)  # the next line numbers of both files, and those after the hunk
    language = ""
    for row in diff.rstrip("\n").split("\n"):
        inside = at[0] < end[0] or at[1] < end[1]  # a removed line `-- x` looks like a file header
        if not inside and row.startswith("@@"):
            at, end = _parse_hunk(row)
            _drop_blank(out)
            out += [DiffRow("@", 0, "", row)] if out or not end[1] else []
        elif not inside and row.startswith("+++ "):
            language = detect_language(row[4:].split("\t")[0].strip())
        elif not row.startswith("\\") and (inside or not row.startswith(HEADS)):
            out.append(_parse_diff_row(row, at, language))
            at = at[0] + (at[0] > 0 and row[:1] != "+"), at[1] + (at[1] > 0 and row[:1] != "-")
    _drop_blank(out)
    return out


HEADS = ("+++", "---", "diff ", "index ")  # lines between hunks


def _parse_hunk(row: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the first line numbers of a hunk in both files, and those after it; else zeros."""
    hunk = _HUNK.match(row)
    if hunk is None:
        return (0, 0), (0, 0)
    old, new = int(hunk[1]), int(hunk[3])
    return (old, new), (old + int(hunk[2] or 1), new + int(hunk[4] or 1))


def _parse_diff_row(row: str, at: tuple[int, int], language: str) -> DiffRow:
    kind = row[:1] if row[:1] in ("+", "-") else " "
    text = row[1:].expandtabs(TAB)
    return DiffRow(kind, at[kind != "-"], text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…", row, language)


def _drop_blank(rows: list[DiffRow]) -> None:
    while rows and rows[-1].kind == " " and not rows[-1].text.strip():
        rows.pop()


def draw_diff(diff: str, width: int, palette: Palette, limit: int | None = None, more: str = "") -> list[Line]:
    """Return the sanitised `diff` as lines of at most `width` cells.

    With `limit`, at most that many lines and a note on the rest, which ends with `more`. File names are omitted: the
    line above shows them.
    """
    rows = parse_diff(diff)
    digits = len(str(max((r.number for r in rows), default=0)))
    lead = digits + 3 if width >= digits + 16 else 2  # without room for the number, only the + or - is shown
    colours = _highlight_rows(rows if limit is None else rows[: limit + 1], palette)
    longest = max((count_cells(r.text) for r in rows), default=0) + lead
    full = min(width, max(longest, COLUMN - DIFF_INDENT))
    out: list[Line] = []
    for number, row in enumerate(rows):
        remaining = len(rows) - number
        if limit is not None and len(out) >= limit and remaining > 1:  # a note would take as much room as the last line
            out.append([Segment(f"… {format_count(remaining, 'more line')}{more}", palette.faint)])
            break
        if row.kind == "@":
            out.append([Segment("⋯".rjust(digits) if lead > 2 else "⋯", palette.faint)])
        else:
            out += _draw_diff_row(row, colours[number], (digits if lead > 2 else 0, full), palette)
    return out


DIFF_INDENT = 6  # indent of a diff in the conversation, in cells


def _highlight_rows(rows: list[DiffRow], palette: Palette) -> list[list[Span]]:
    """Return the code of `rows`, syntax-highlighted.

    The old and the new lines are each highlighted as one text, so that multi-line strings and comments are recognised.
    """
    out: list[list[Span]] = [[(r.text, palette.text)] if r.text else [] for r in rows]
    for sides in ("- ", "+ "):
        side = (n for n, r in enumerate(rows) if r.kind in sides)
        for language, run in groupby(side, lambda n: rows[n].language):
            numbers = list(run)
            if language:
                highlighted = highlight("\n".join(rows[n].text for n in numbers), language, palette)
                for n, spans in zip(numbers, highlighted, strict=True):
                    out[n] = spans
    return out


def _draw_diff_row(row: DiffRow, spans: list[Span], room: tuple[int, int], palette: Palette) -> list[Line]:
    """Return one folded line of a diff; `room`: digits of its number (0: none), total cells."""
    digits, width = room
    style = {"+": palette.added, "-": palette.removed}.get(row.kind, Style.null())
    ground = Style(bgcolor=style.bgcolor) if style.bgcolor else Style.null()
    number = f"{row.number or '':>{digits}} " if digits else ""
    lead = [Segment(number, palette.faint + ground), Segment(f"{_DIFF_SYMBOLS[row.kind]} ", style)]
    blank = [Segment(" " * (len(number) + 2), ground)]
    out: list[Line] = []
    for line in fold_words(spans, width - len(number) - 2, hang=True):
        coloured = Row([Segment(s.text, (s.style or Style.null()) + ground) for s in line])
        if isinstance(line, Row):
            coloured.join, coloured.skip = line.join, line.skip
        code_line = coloured.after_prefix(blank if out else lead, len(number) + 2)
        out.append(pad(code_line, width, ground) if row.kind != " " else code_line)
    return attach_source(out, row.source)
