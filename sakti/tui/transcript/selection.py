"""Find words in a document, and copy the source of a message, a code block or a selection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sakti.core.lazy import lazy_pattern
from sakti.core.text import count_lines, format_count
from sakti.tui.transcript.blocks import Block, ChunkBlock, Label, TextBlock, ThinkingBlock
from sakti.tui.transcript.document import Document
from sakti.tui.transcript.tool import ToolBlock
from sakti.tui.transcript.wrap import Line, Row, get_source_text, to_row

_WORD = lazy_pattern(r"[\w./:@#%+~-]+|\s+|.")


def get_code(document: Document, index: int) -> str | None:
    """Return the code of the block at `index`, or of the first code block nested in it."""
    block = document.blocks[index]
    if isinstance(block, ChunkBlock) and block.chunk.language is not None:
        return _join_fenced_code(document, index, block)
    lines = document.lines(index) if isinstance(block, ChunkBlock) else ()
    return next((row.copies for line in lines if (row := to_row(line)).copies), None)


def _join_fenced_code(document: Document, index: int, block: ChunkBlock) -> str:
    """Return the code of all chunks of the fence that `block` at `index` belongs to."""
    while not block.chunk.first and index and isinstance(before := document.blocks[index - 1], ChunkBlock):
        index, block = index - 1, before
    parts = [block.chunk.code]
    for after in document.blocks[index + 1 :] if not block.chunk.last else ():
        if not isinstance(after, ChunkBlock) or after.chunk.language is None or after.chunk.first:
            break
        parts.append(after.chunk.code)
        if after.chunk.last:
            break
    return "\n".join(parts)


def get_message_text(document: Document, index: int) -> str:
    """Return the text of the message at block `index`; for a label, of everything up to the next one.

    If there is no message text, as for a tool call, return the displayed text.
    """
    here = document.blocks[index]
    is_label = isinstance(here, Label)
    selected = [b for b in _find_labelled(document.blocks, index) if is_label or b.message_id == here.message_id]
    return copy_text(selected) or (
        here.get_plain_text() if not is_label else "\n\n".join(p for b in selected if (p := b.get_plain_text()))
    )


def _find_labelled(blocks: Sequence[Block], index: int) -> Sequence[Block]:
    """Return the blocks under the same label as block `index`, with the label."""
    first = last = index
    while first > 0 and not isinstance(blocks[first], Label):
        first -= 1
    while last + 1 < len(blocks) and not isinstance(blocks[last + 1], Label):
        last += 1
    return blocks[first : last + 1]


def copy_text(blocks: Iterable[Block]) -> str:
    """Return the Markdown of answers and the text of questions among `blocks`."""
    out = ""
    for block in blocks:
        if isinstance(block, ChunkBlock):
            out += block.chunk.source
        elif isinstance(block, TextBlock):
            out += block.text + "\n"
        elif isinstance(block, ToolBlock) and out and not out.endswith("\n\n"):
            out += "\n" if out.endswith("\n") else "\n\n"
    return out.strip("\n")


def get_range_text(document: Document, start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return the text between two places (line, character).

    Blocks that are fully selected are copied as source, partial ones as shown.
    """
    first, last = document.locate(start[0]), document.locate(end[0])
    if first is None or last is None:
        return ""
    if first[0] == last[0]:
        return get_source_text(document.lines(first[0])[first[1] : last[1] + 1], start[1], end[1])
    out: list[str] = []
    goes_on = False  # this block continues the one before
    for index in range(first[0], last[0] + 1):
        lines, block = document.lines(index), document.blocks[index]
        low, begin = (first[1], start[1]) if index == first[0] else (0, 0)
        high, right = (last[1], end[1]) if index == last[0] else (len(lines) - 1, None)
        is_complete = _is_complete(block, lines, (low, high), (begin, right))
        if block.source is not None and is_complete:
            out.append(_get_source(block, block.source, goes_on=goes_on, gap=bool(out) and not low))
            goes_on = _continues(block)
        elif lines:
            out.append(get_source_text(lines[low : high + 1], begin, right) + "\n")
            goes_on = False
    return "".join(out).removesuffix("\n")


def _get_source(block: Block, source: str, *, goes_on: bool, gap: bool) -> str:
    """Return a block's source with one line end, or none if the next block continues it.

    `goes_on`: the block continues the one before. `gap`: the blank line before it is copied, too.
    """
    if not goes_on:
        source = "\n" * (gap and block.gap) + source.lstrip("\n")
    return source if _continues(block) else source.rstrip("\n") + "\n"


def _continues(block: Block) -> bool:
    """Return whether the source of a block continues in the next block."""
    return isinstance(block, ChunkBlock) and not block.chunk.last


def _is_complete(block: Block, lines: list[Line], rows: tuple[int, int], columns: tuple[int, int | None]) -> bool:
    """Return whether the selected rows and columns cover all lines of a block."""
    low, high = rows
    return low <= int(block.gap) and bool(lines) and _covers(lines[low : high + 1], len(lines) - low, *columns)


def _covers(lines: list[Line], wanted: int, left: int, right: int | None) -> bool:
    """Return whether there are `wanted` lines and the selection covers them completely."""
    if len(lines) != wanted or left > to_row(lines[0]).skip:
        return False
    return right is None or right >= len("".join(s.text for s in lines[-1])) - to_row(lines[-1]).tail


def find_word(line: Line, x: int) -> tuple[int, int]:
    """Return (start, end) of the word at character `x`, as a double click selects it."""
    text = "".join(s.text for s in line)
    for match in _WORD.finditer(text):
        if match.start() <= x < match.end():
            return match.span()
    return len(text), len(text)


def find_source_line(document: Document, y: int) -> tuple[int, int]:
    """Return the first and last drawn line of the source line at `y`."""

    def join(at: int) -> str | None:
        place = document.locate(at)
        line = document.lines(place[0])[place[1]] if place else []
        return line.join if isinstance(line, Row) else None

    first = last = y
    while first > 0 and join(first) is not None:
        first -= 1
    while join(last + 1) is not None:
        last += 1
    return first, last


def describe_amount(text: str) -> str:
    """Describe how much text was copied."""
    lines = count_lines(text)
    if lines > 1:
        return f"{lines:,} lines"
    return format_count(len(text), "character")


MAX_DRAWN = 12  # maximum blocks of one message to draw
MAX_UNFOLDED = 200_000  # maximum characters of a text that is unfolded to show a match


def make_pattern(words: Iterable[str]) -> re.Pattern[str] | None:
    """Return a case-insensitive pattern for any of `words`, longest first; None without words."""
    ordered = sorted({w.lower() for w in words if w.strip()}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered)), re.IGNORECASE) if ordered else None


def find_best_match(document: Document, message_id: str, pattern: re.Pattern[str]) -> tuple[int, int] | None:
    """Return the (block, line) of a message with the most words, unfolding the examined blocks.

    At most `MAX_DRAWN` blocks, those with the most words, are examined. Returns None without a match.
    """
    counts = {
        i: len(_find_words(_get_full_text(b), pattern))
        for i, b in enumerate(document.blocks)
        if b.shows_message(message_id)
    }
    best: tuple[int, int] | None = None
    most = 0
    for index in sorted((i for i, n in counts.items() if n), key=lambda i: -counts[i])[:MAX_DRAWN]:
        block = document.blocks[index]
        if _is_folded(block):
            block.toggle()
            document.redraw(index)
        for number, line in enumerate(document.lines(index)):
            count = len(_find_words("".join(s.text for s in line), pattern))
            if count > most:
                best, most = (index, number), count
    return best


def find_rows(document: Document, message_id: str, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return the (block, line) of each line of a message that matches `pattern`."""
    return [
        (index, number)
        for index, block in enumerate(document.blocks)
        if block.shows_message(message_id) and pattern.search(_get_full_text(block))
        for number, line in enumerate(document.lines(index))
        if pattern.search("".join(s.text for s in line))
    ]


def _find_words(text: str, pattern: re.Pattern[str]) -> set[str]:
    return {m[0].lower() for m in pattern.finditer(text)}


def _get_full_text(block: Block) -> str:
    """Return the full text of a block, including folded parts."""
    if isinstance(block, ToolBlock):
        return "\n".join((block.summary, block.output, block.diff, *map(str, block.arguments.values())))
    return block.get_plain_text()


def _is_folded(block: Block) -> bool:
    """Return whether a block is folded and short enough to be drawn in full."""
    match block:
        case ToolBlock(open=False) | ThinkingBlock(open=False):
            return True
        case TextBlock(open=False):
            return block.is_foldable and len(block.text) <= MAX_UNFOLDED
        case _:
            return False
