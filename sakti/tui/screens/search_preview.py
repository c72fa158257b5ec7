"""Show the messages around a hit with highlighted words, beside the list or on its own screen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from rich.style import Style
from textual.app import ComposeResult

from sakti.core.text import counted, one_line
from sakti.core.types import Message, TextPart
from sakti.tui.screens.panel import BACK, Keys, Panel
from sakti.tui.screens.search_rows import searched_words
from sakti.tui.transcript.blocks import Block, CardBlock, TextBlock
from sakti.tui.transcript.build import message_blocks
from sakti.tui.transcript.seek import pattern_of, seek
from sakti.tui.transcript.wrap import Line
from sakti.tui.widgets.lines import mark
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.agent.session.queries import Views
    from sakti.store.search.search import Hit

LONG = 20_000  # characters of a message above which the passage round the hit is shown alone
BEFORE, AFTER = 1_500, 4_000  # characters of that passage
ABOVE = 3  # lines that stay in sight above the line that matches


class Passage(Struct, frozen=True):
    """Passage around a hit.

    `message_id`: the message of the hit ("" where it is none); `passage`: the text round the hit, for where the
    blocks do not show it.
    """

    blocks: tuple[Block, ...]
    message_id: str
    pattern: re.Pattern[str] | None
    passage: str


async def passage_of(views: Views, hit: Hit, query: str, around: int = 3) -> Passage:
    """Return what to show of a hit: its message between `around` others; for a line of the log its source."""
    pattern = pattern_of(searched_words(hit, query))
    text = hit.text[max(0, hit.start - BEFORE) : hit.start + AFTER]
    passage = ("…" if hit.start > BEFORE else "") + text + ("…" if hit.start + AFTER < len(hit.text) else "")
    if hit.kind == "message" and hit.thread_id:
        messages = await views.around(hit.thread_id, hit.position, around, around)
        return Passage(tuple(_blocks(messages, hit)), hit.id, pattern, passage)
    title = hit.kind.replace("_", " ").capitalize()
    blocks: list[Block] = []
    if hit.kind in ("observation", "reflection"):
        origin = await views.origin(hit.id)
        if origin is not None:
            count = origin.last - origin.first + 1
            title = f"{title}, made from {counted(count, 'message')}"
            blocks = message_blocks(await views.around(origin.thread_id, origin.index, around, around))
    elif hit.kind == "task":
        blocks = message_blocks((await views.task_messages(hit.id))[: 2 * around + 1])
    shown = TextBlock(hit.id, text=passage, open=True)
    return Passage((CardBlock(hit.id, False, title=title), shown, *blocks), hit.id, pattern, passage)


def _cut_texts(message: Message) -> Message:
    """Return a copy with long texts cut to their beginning: drawing a full one takes 0.25 s."""
    cut = (
        TextPart(p.text[:AFTER] + " …") if isinstance(p, TextPart) and len(p.text) > LONG else p for p in message.parts
    )
    return replace(message, parts=tuple(cut))


def _blocks(messages: Sequence[Message], hit: Hit) -> list[Block]:
    messages = [m if m.id == hit.id else _cut_texts(m) for m in messages]
    if len(hit.text) <= LONG:
        return message_blocks(messages)
    at = next((i for i, m in enumerate(messages) if m.id == hit.id), len(messages))
    return [*message_blocks(messages[:at]), *message_blocks(messages[at + 1 :])]


class Preview(Transcript):
    """A passage to read, with the message of the hit highlighted."""

    HELP = "The messages around the hit."

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._message_id = ""
        self._pattern: re.Pattern[str] | None = None

    def show(self, passage: Passage | None) -> None:
        """Show it from a little above the line that matches best; None: nothing."""
        self.document.clear()
        self.forget_strips()
        self._message_id = passage.message_id if passage else ""
        self._pattern = passage.pattern if passage else None
        if passage is not None:
            self.document.append(*passage.blocks)
        self._follow = False
        self._settle(self._landing(passage) if passage is not None else (0, 0))

    def _landing(self, passage: Passage) -> tuple[int, int]:
        document, pattern = self.document, passage.pattern
        hit = seek(document, passage.message_id, pattern) if pattern is not None else None
        first = document.index_of(passage.message_id)
        if hit is None and (pattern is not None or first is None) and passage.passage.strip():
            # it is in a part that is not drawn: an attached file, the middle of a long output
            blocks = document.blocks
            after = 1 + max((i for i, b in enumerate(blocks) if b.holds(passage.message_id)), default=len(blocks) - 1)
            document.insert(after, [TextBlock(passage.message_id, text=passage.passage, open=True, gap=after > 0)])
            first = after if first is None else first
            hit = seek(document, passage.message_id, pattern) if pattern is not None else None
        place = hit or (first or 0, 0)
        y = max(0, document.top(place[0]) + place[1] - ABOVE)
        if first is not None:
            y = max(y, document.top(first) - 1)  # earlier messages can be scrolled to
        return document.locate(y) or place

    def line_at(self, y: int) -> Line | None:
        line = super().line_at(y)
        if line and self._pattern is not None and self._stands_out(y):
            strong = self.palette.bold + self.palette.mark
            for match in self._pattern.finditer("".join(s.text for s in line)):
                line = mark(line, match.span(), strong)
        return line

    def line_style(self, y: int) -> Style | None:
        return self.palette.cursor if self._stands_out(y) else super().line_style(y)

    def _stands_out(self, y: int) -> bool:
        place = self.document.locate(y)
        return place is not None and bool(self._message_id) and self.document.blocks[place[0]].holds(self._message_id)


class PassageScreen(Panel[None]):
    """A passage on its own screen, for hits that cannot be opened in the conversation."""

    AUTO_FOCUS = "Preview"
    HELP = "The messages there. The chat behind this screen continues."
    keys: ClassVar[Keys] = (("↑↓ scroll", ""), ("[ ] and enter unfold", ""), BACK)

    def __init__(self, title: str, passage: Passage) -> None:
        super().__init__(one_line(title, 200))
        self._passage = passage

    def body(self) -> ComposeResult:
        yield Preview()

    def on_mount(self) -> None:
        self.call_after_refresh(self.query_one(Preview).show, self._passage)
