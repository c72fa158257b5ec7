"""Code as lines of styled spans, through Pygments, which is imported with the first block of code."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import TAB, Line, Row, Span, fold_words, indent, made_from, pad, shorten

if TYPE_CHECKING:
    from pygments.lexer import Lexer

HIGHLIGHT_CAP = 60_000  # characters; a longer piece is shown plain
_SPACE = Segment(" ")
COPY = "copy"


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    import pygments.lexers
    from pygments.util import ClassNotFound

    try:
        find = cast("Callable[..., Lexer]", pygments.lexers.get_lexer_by_name)  # pyright: ignore[reportUnknownMemberType]
        return find(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=256)
def language_of(path: str) -> str:
    """Return the language for a file name, or ""."""
    every = cast("Callable[..., Iterable[tuple[str, tuple[str, ...], tuple[str, ...], object]]]", _all_lexers())
    name = path.rpartition("/")[2]
    for _, aliases, patterns, _ in every(plugins=False):
        if aliases and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            return aliases[0]
    return ""


def _all_lexers() -> object:
    import pygments.lexers

    return pygments.lexers.get_all_lexers  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]


def warm_lexer(language: str) -> None:
    """Load a lexer: its first token costs as much as thousands later."""
    if (lexer := _lexer(language)) is not None:
        next(iter(lexer.get_tokens("x")), None)


def highlight(code: str, language: str, palette: Palette) -> list[list[Span]]:
    """Return the lines of `code`, tabs as spaces, each a list of spans.

    Plain if `language` is not known, or if its lexer changes the text.
    """
    code = code.expandtabs(TAB)
    lexer = _lexer(language.lower()) if language and len(code) <= HIGHLIGHT_CAP else None
    tokens = list(lexer.get_tokens(code + "\n")) if lexer is not None else []  # some lexers need the last newline
    if "".join(value for _, value in tokens) != code + "\n":
        return [[(row, palette.text)] if row else [] for row in code.split("\n")]
    from pygments.token import Comment, Generic, Keyword, Name, Number, String

    styles: dict[Any, Style] = {}

    def style_of(token: Any) -> Style:
        style = styles.get(token)
        if style is None:
            if token in Comment:
                style = palette.comment
            elif token in String:
                style = palette.string
            elif token in Keyword:
                style = palette.keyword
            elif token in Number:
                style = palette.number
            elif token in Name.Function or token in Name.Class or token in Name.Decorator or token in Name.Tag:
                style = palette.name
            elif token in Generic.Inserted:
                style = Style(color=palette.added.color)
            elif token in Generic.Deleted:
                style = Style(color=palette.removed.color)
            elif token in Generic.Heading or token in Generic.Subheading:
                style = palette.muted
            else:
                style = palette.text
            styles[token] = style
        return style

    lines: list[list[Span]] = [[]]
    for token, value in tokens:
        style = style_of(token)
        first, *more = value.split("\n")
        if first:
            lines[-1].append((first, style))
        for row in more:
            lines.append([(row, style)] if row else [])
    return lines[:-1]


def code_lines(code: str, info: str, width: int, palette: Palette) -> list[Line]:
    """Return a block of code on its own background, one cell of room on each side, long lines folded.

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
        out += made_from(lines, source) if "\t" in source else lines
    return out


def code_head(language: str, width: int, palette: Palette, copies: str = "") -> Line:
    """Return the right-aligned head of a code block: its language and the clickable word for copying.

    `copies`: the code, "" if the block knows it.
    """
    label = shorten(language, max(0, width - len(COPY) - 4))
    text = f"{label} · {COPY} " if label else f"{COPY} "
    row = Row([Segment(" " * max(0, width - cell_len(text))), Segment(text, palette.faint)])
    row.skip, row.copies = sum(len(s.text) for s in row), copies
    return row
