"""Extract pastes from terminal input before it is parsed by character. Pure; times are passed in.

Textual's parser handles a paste character by character (10 MB take over half a minute) and loses the start of an escape
sequence within one. This module only searches a paste for its end.
"""

from __future__ import annotations

from msgspec import Struct

START = "\x1b[200~"
END = "\x1b[201~"
PATIENCE = 3.0  # seconds without a byte after which an incomplete paste is shown
AGAIN = 0.25  # the same for later input, which may be typed
# ctrl+c and Esc, as characters and as the keyboard protocol writes them: they end a paste whose end was lost
_WAYS_OUT = ("\x03", "\x1b", "\x1b[99;5u", "\x1b[27u", "\x1b[27;1u")


class Pasted(Struct, frozen=True):
    """The text of a paste, exactly as it came."""

    text: str


class Pastes:
    """Splits the decoded input of a terminal into text for the parser of keys and `Pasted`.

    A start marker goes to the parser as well, since its beginning may have gone there already; so does the end marker.
    Between the two the parser sees nothing.
    """

    def __init__(self) -> None:
        self._matched = 0  # characters of START that the text so far ended in
        self._inside = False
        self._parts: list[str] = []
        self._carry = ""  # the end of the last part: the end marker may begin there
        self._last = 0.0
        self._stalled = False

    def feed(self, text: str, now: float) -> list[str | Pasted]:
        """Yield `text` in its order. `now` in seconds, of a clock that only goes forward."""
        out: list[str | Pasted] = []
        if self._inside and self._stalled and not self._parts and text in _WAYS_OUT:
            self._leave(out)
        self._last = now
        while text:
            text = self._content(text, out) if self._inside else self._keys(text, out)
        return out

    def silence(self, now: float) -> list[str | Pasted]:
        """Return the content of a paste that has paused, if no input arrived until `now`; else []."""
        if not self._inside or not self._parts or now - self._last < (AGAIN if self._stalled else PATIENCE):
            return []
        text = "".join(self._parts)
        overlap = 0 if self._stalled else _overlap(text, END)
        shown = text[: len(text) - overlap]
        self._carry = text[len(shown) :]
        self._parts = [self._carry] if overlap else []
        self._stalled = True
        return [Pasted(shown)] if shown else []

    def forget(self) -> None:
        """Drop the beginning of a marker: the parser of keys gave up waiting, so it was a key."""
        self._matched = 0

    def _keys(self, text: str, out: list[str | Pasted]) -> str:
        """Take text up to the end of a start marker; returns the rest."""
        before, self._matched = self._matched, 0
        if before and text.startswith(START[before:]):
            end = len(START) - before
        elif before and START[before:].startswith(text):
            self._matched = before + len(text)
            out.append(text)
            return ""
        else:
            at = text.find(START)
            end = at + len(START) if at >= 0 else 0
        if not end:
            self._matched = _overlap(text, START)
            out.append(text)
            return ""
        out.append(text[:end])
        self._inside, self._stalled, self._carry = True, False, ""
        return text[end:]

    def _content(self, text: str, out: list[str | Pasted]) -> str:
        """Take text up to the end of an end marker; returns the rest."""
        carried = len(self._carry)
        looked = self._carry + text
        at = looked.find(END)
        if at < 0:
            self._parts.append(text)
            self._carry = looked[-(len(END) - 1) :]
            return ""
        rest = looked[at + len(END) :]
        self._parts.append(looked[carried : at + len(END)])
        content = "".join(self._parts)
        self._parts = [content[: -len(END)]]
        self._leave(out)
        return rest

    def _leave(self, out: list[str | Pasted]) -> None:
        """End the paste; the end marker goes first, so that the key parser returns to its normal state."""
        text = "".join(self._parts)
        out.append(END)
        if text or not self._stalled:
            out.append(Pasted(text))
        self._inside, self._stalled, self._parts, self._carry = False, False, [], ""


def _overlap(text: str, marker: str) -> int:
    """Return how many characters at the end of `text` are the beginning of `marker`."""
    return next((n for n in range(min(len(text), len(marker) - 1), 0, -1) if text.endswith(marker[:n])), 0)
