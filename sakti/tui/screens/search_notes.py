"""Say beside a hit why it was found without the word, and how often the same was said. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sakti.store.search.search import Hit


def notes(hits: Iterable[Hit]) -> dict[str, str]:
    """Return the notes on hits, by hit id; hits without a note are omitted."""
    texts = {h.id: " · ".join(filter(None, (h.reason, h.others))) for h in hits}
    return {i: text for i, text in texts.items() if text}
