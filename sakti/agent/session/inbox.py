"""Messages and news that wait for a thread's next request."""

from __future__ import annotations

from msgspec import Struct, field

from sakti.core.types import Part, TextPart


class Inbox(Struct):
    """Messages that wait for the running turn's next step, oldest first.

    `window` is the name under which unsent texts are stored, `sent_as` maps a typed prompt to the one that processors
    made of it. `pasted` are the blocks that were pasted into prompts of this window and not sent yet.
    """

    queued: list[tuple[Part, ...]] = field(default_factory=list[tuple[Part, ...]])
    window: str = ""
    pasted: list[str] = field(default_factory=list[str])
    sent_as: dict[str, str] = field(default_factory=dict[str, str])

    def take_pasted(self, text: str) -> list[list[int]]:
        """Return the positions of pasted blocks in `text` as [start, end], and forget the blocks."""
        spans: list[list[int]] = []
        for block in list(self.pasted):
            if (start := text.find(block)) >= 0:
                spans.append([start, start + len(block)])
                self.pasted.remove(block)
        return sorted(spans)

    def texts(self) -> tuple[str, ...]:
        return tuple("\n".join(p.text for p in parts if isinstance(p, TextPart)) for parts in self.queued)


class PromptNews(Struct):
    """News for the next requests: changed instructions by file, changed skill list, texts of hooks."""

    instructions: dict[str, str] = field(default_factory=dict[str, str])
    skills: str = ""
    hooks: str = ""
