"""Search previous input incrementally, as shells do with ctrl+r. Immutable state with transitions."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace


class HistorySearch(Struct, frozen=True):
    """`entries` oldest first; `at` counts the matches from the newest."""

    entries: Sequence[str]
    query: str = ""
    at: int = 0

    @property
    def matches(self) -> list[str]:
        """Entries that hold the query, newest first, each once. A query in small letters finds capitals too."""
        fold = self.query == self.query.lower()
        hits = (e for e in reversed(self.entries) if self.query in (e.lower() if fold else e))
        return list(dict.fromkeys(hits)) if self.query else []

    @property
    def current(self) -> str | None:
        """Return the selected entry; None without a match or a query."""
        matches = self.matches
        return matches[min(self.at, len(matches) - 1)] if matches else None

    def type(self, text: str) -> HistorySearch:
        return replace(self, query=self.query + text, at=0)

    def erase(self) -> HistorySearch:
        return replace(self, query=self.query[:-1], at=0)

    def step(self, step: int) -> HistorySearch:
        """To the next older (1) or newer (-1) match; it stays at the ends."""
        return replace(self, at=max(0, min(self.at + step, len(self.matches) - 1)))

    def describe(self) -> str:
        """Return the text for the status line."""
        keys = "ctrl+r older · enter use · esc cancel"
        count = len(self.matches)
        if not self.query:
            return f"search previous prompts: type a word · {keys}"
        where = f"{min(self.at, count - 1) + 1} of {count}" if count else "nothing"
        return f"history “{self.query}”: {where} · {keys}"
