"""Arrange blocks vertically: heights, line positions, and a cache of drawn lines.

A block that was never drawn at this width has an estimated height; `measure` draws it and returns the error of the
estimate, so that the widget can keep the visible content in place. The time to open or resize a
thread therefore depends on one screen, not on its length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from sakti.tui.palette import Palette
from sakti.tui.transcript.blocks import Block
from sakti.tui.transcript.wrap import Line

CACHED_LINES = 4_000


class Document:
    """`width` in cells. Positions `y` count lines from the top of the first block."""

    def __init__(self, palette: Palette, width: int = 80) -> None:
        self.palette = palette
        self.width: int = width
        self.blocks: list[Block] = []
        self._heights: list[int] = []
        self._exact: list[bool] = []
        self._tops: list[int] = []  # _tops[i] is valid for i < _clean
        self._clean = 0
        self._total: int = 0
        self._drawn: OrderedDict[int, list[Line]] = OrderedDict()  # by id() of the block, oldest use first
        self._drawn_lines = 0
        self._changed = 0  # the first block that may have changed

    @property
    def height(self) -> int:
        return self._total

    def top(self, index: int) -> int:
        """Return the first line of block `index`."""
        self._update_tops(index)
        return self._tops[index]

    def block_height(self, index: int) -> int:
        return self._heights[index]

    def locate(self, y: int) -> tuple[int, int] | None:
        """Return the block at line `y` and the line inside it; None outside."""
        if not 0 <= y < self._total:
            return None
        while not self._clean or self._tops[self._clean - 1] + self._heights[self._clean - 1] <= y:
            self._update_tops(min(self._clean + 64, len(self.blocks) - 1))
        index = bisect_right(self._tops, y, 0, self._clean) - 1
        return index, y - self._tops[index]

    def take_changed(self) -> int:
        """Return the first line that may have changed since the last call."""
        first, self._changed = min(self._changed, len(self.blocks)), len(self.blocks)
        return self.top(first) if first < len(self.blocks) else self._total

    def append(self, *blocks: Block) -> None:
        self._changed = min(self._changed, len(self.blocks))
        for block in blocks:
            self.blocks.append(block)
            self._heights.append(block.estimate(self.width))
            self._total += self._heights[-1]
            self._exact.append(False)
            self._tops.append(0)

    def insert(self, index: int, blocks: Sequence[Block]) -> None:
        """Insert `blocks` before block `index`, their heights estimated."""
        self._changed = min(self._changed, index)
        heights = [b.estimate(self.width) for b in blocks]
        self.blocks[index:index] = blocks
        self._heights[index:index] = heights
        self._exact[index:index] = [False] * len(heights)
        self._tops[index:index] = [0] * len(heights)
        self._total += sum(heights)
        self._clean = min(self._clean, index)

    def truncate(self, count: int) -> None:
        """Remove all blocks after the first `count`."""
        self.remove(count, len(self.blocks))

    def remove(self, start: int, stop: int) -> None:
        """Remove the blocks from `start` up to, but not including, `stop`."""
        if start >= stop:
            return
        self._changed = min(self._changed, start)
        for block in self.blocks[start:stop]:
            self._forget(block)
        self._total -= sum(self._heights[start:stop])
        for values in (self.blocks, self._heights, self._exact, self._tops):
            del values[start:stop]
        self._clean = min(self._clean, start)

    def clear(self) -> None:
        self.truncate(0)

    def redraw(self, index: int) -> int:
        """Draw block `index` again after a change; returns by how many lines its height changed."""
        self._forget(self.blocks[index])
        self._changed = min(self._changed, index)
        self._exact[index] = False
        return self.measure(index)

    def measure(self, index: int) -> int:
        """Measure the exact height of block `index`; returns by how many lines it changed."""
        if self._exact[index]:
            return 0
        height = len(self.lines(index))
        difference = height - self._heights[index]
        self._exact[index] = True
        if difference:
            self._changed = min(self._changed, index)
            self._heights[index] = height
            self._total += difference
            self._clean = min(self._clean, index + 1)
        return difference

    def is_exact(self, index: int) -> bool:
        return self._exact[index]

    def lines(self, index: int) -> list[Line]:
        """Return the drawn lines of block `index`, including its gap."""
        return self._draw(self.blocks[index])

    def restyle(self, palette: Palette | None = None, width: int | None = None) -> None:
        """Apply new colours or a new width: drop all drawn lines; a new width resets heights to estimates."""
        self._drawn.clear()
        self._drawn_lines = self._changed = 0
        if palette is not None:
            self.palette = palette
        if width is not None and width != self.width:
            self.width = width
            self._heights = [block.estimate(width) for block in self.blocks]
            self._exact = [False] * len(self.blocks)
            self._total = sum(self._heights)
            self._clean = 0

    def index_of(self, message_id: str) -> int | None:
        """Return the first block of a message."""
        return next((i for i, b in enumerate(self.blocks) if b.shows_message(message_id)), None)

    def list_stops(self) -> Iterable[int]:
        """Return the indexes of the blocks at which block navigation stops."""
        return (i for i, b in enumerate(self.blocks) if b.is_stop)

    def _draw(self, block: Block) -> list[Line]:
        key = id(block)
        lines = self._drawn.get(key)
        if lines is not None:
            self._drawn.move_to_end(key)
            return lines
        lines = block.render(self.width, self.palette)
        if block.gap and lines:
            lines = [block.render_above(self.width, self.palette), *lines]
        self._drawn[key] = lines
        self._drawn_lines += len(lines)
        while self._drawn_lines > CACHED_LINES and len(self._drawn) > 1:
            _, dropped = self._drawn.popitem(last=False)
            self._drawn_lines -= len(dropped)
        return lines

    def _forget(self, block: Block) -> None:
        lines = self._drawn.pop(id(block), None)
        if lines is not None:
            self._drawn_lines -= len(lines)

    def _update_tops(self, index: int) -> None:
        """Update `_tops` up to block `index`; later blocks are not examined."""
        at = self._clean
        if index < at:
            return
        y = self._tops[at - 1] + self._heights[at - 1] if at else 0
        for i in range(at, index + 1):
            self._tops[i] = y
            y += self._heights[i]
        self._clean = index + 1
