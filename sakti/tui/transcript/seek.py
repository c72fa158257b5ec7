"""Finding words in blocks: which line of a message holds most of them, what has to unfold for it to be seen."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sakti.tui.transcript.blocks import Block, TextBlock, ThinkingBlock, ToolBlock
from sakti.tui.transcript.document import Document


def pattern_of(words: Iterable[str]) -> re.Pattern[str] | None:
    """Any of `words`, in either case, the longest first; None where there are none."""
    wanted = sorted({w.lower() for w in words if w.strip()}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, wanted)), re.IGNORECASE) if wanted else None


def seek(document: Document, message_id: str, pattern: re.Pattern[str]) -> tuple[int, int] | None:
    """The block of a message and the line in it with most of the words; blocks that hide them are unfolded."""
    best: tuple[int, int] | None = None
    most = 0
    for index, block in enumerate(document.blocks):
        if not block.holds(message_id):
            continue
        if _hides(block, pattern):
            block.toggle()
            document.changed(index)
        for number, line in enumerate(document.lines(index)):
            found = {m[0].lower() for m in pattern.finditer("".join(s.text for s in line))}
            if len(found) > most:
                best, most = (index, number), len(found)
    return best


def _hides(block: Block, pattern: re.Pattern[str]) -> bool:
    """Is it folded over something that matches?"""
    match block:
        case ToolBlock(open=False):
            texts = (block.output, block.diff, *map(str, block.arguments.values()))
            return any(pattern.search(t) for t in texts)
        case TextBlock(open=False) | ThinkingBlock(open=False):
            return block.foldable and pattern.search(block.plain()) is not None
        case _:
            return False
