"""Mask secrets in a text that comes in pieces. Pure."""

from __future__ import annotations

from sakti.store.secrets import GOES_ON, masked

LONGEST = 16_384  # characters without a blank that are held back


class MaskedStream:
    """Masks secrets in streamed text: a word waits for its end, a multi-line key for its last line."""

    def __init__(self) -> None:
        self._held = ""  # from the line on that is not finished
        self._given = 0  # characters of it, masked, that were given

    def feed(self, piece: str) -> str:
        """Return what may be given now; empty while a secret may have begun."""
        self._held += piece
        end = self._last_blank(len(self._held))
        while end and self._held.endswith(GOES_ON, 0, end):
            end = self._last_blank(end - 1)
        key = self._held.rfind("-----BEGIN ", 0, end)
        if key >= 0 and self._held.count("-----", key, end) < 4:  # two at its first line, two at its last
            end = key
        return self._take(end if len(self._held) - end <= LONGEST else len(self._held))

    def _last_blank(self, end: int) -> int:
        return max(self._held.rfind(blank, 0, end) for blank in " \t\n") + 1

    def end(self) -> str:
        """Return the rest."""
        rest = self._take(len(self._held))
        self._held, self._given = "", 0
        return rest

    def _take(self, end: int) -> str:
        clean = masked(self._held[:end])
        out, self._given = clean[self._given :], max(self._given, len(clean))
        if line := self._held.rfind("\n", 0, end) + 1:
            self._given = len(masked(self._held[line:end]))
            self._held = self._held[line:]
        return out
