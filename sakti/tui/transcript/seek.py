"""Find words in blocks: the best matching line of a message, unfolded if it is hidden."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sakti.tui.transcript.blocks import Block, TextBlock, ThinkingBlock
from sakti.tui.transcript.document import Document
from sakti.tui.transcript.tool import ToolBlock

DRAWN = 12  # blocks of one message
UNFOLDED = 200_000  # characters of a text that is unfolded for a word in it


def pattern_of(words: Iterable[str]) -> re.Pattern[str] | None:
    """Return a case-insensitive pattern for any of `words`, longest first; None without words."""
    ordered = sorted({w.lower() for w in words if w.strip()}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered)), re.IGNORECASE) if ordered else None


def seek(document: Document, message_id: str, pattern: re.Pattern[str]) -> tuple[int, int] | None:
    """Return (block, line) with the most words of a message, unfolding the blocks it examines.

    At most `DRAWN` blocks, those with the most words, are examined. None without a match.
    """
    counts = {i: len(_words(_text(b), pattern)) for i, b in enumerate(document.blocks) if b.holds(message_id)}
    best: tuple[int, int] | None = None
    most = 0
    for index in sorted((i for i, n in counts.items() if n), key=lambda i: -counts[i])[:DRAWN]:
        block = document.blocks[index]
        if _is_folded(block):
            block.toggle()
            document.changed(index)
        for number, line in enumerate(document.lines(index)):
            count = len(_words("".join(s.text for s in line), pattern))
            if count > most:
                best, most = (index, number), count
    return best


def rows_with(document: Document, message_id: str, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return the lines of a message, by block and line, in which `pattern` finds something."""
    return [
        (index, number)
        for index, block in enumerate(document.blocks)
        if block.holds(message_id) and pattern.search(_text(block))
        for number, line in enumerate(document.lines(index))
        if pattern.search("".join(s.text for s in line))
    ]


def _words(text: str, pattern: re.Pattern[str]) -> set[str]:
    return {m[0].lower() for m in pattern.finditer(text)}


def _text(block: Block) -> str:
    """Return the full text that a block can show."""
    if isinstance(block, ToolBlock):
        return "\n".join((block.summary, block.output, block.diff, *map(str, block.arguments.values())))
    return block.plain()


def _is_folded(block: Block) -> bool:
    """Return whether a block is folded and short enough to be drawn in full."""
    match block:
        case ToolBlock(open=False) | ThinkingBlock(open=False):
            return True
        case TextBlock(open=False):
            return block.foldable and len(block.text) <= UNFOLDED
        case _:
            return False
