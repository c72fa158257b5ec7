"""Replace long pastes and images in the prompt by short signs. Pure; each sign moves as a unit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from sakti.agent.mentions import mention
from sakti.core import content as core_content
from sakti.core.text import FOLD_LINES, one_line, pasted_size, sanitise_typed

FOLD_CHARACTERS = 20_000
_IMAGE = "[image "


class Placeholders:
    """The full text for each sign."""

    def __init__(self) -> None:
        self._whole: dict[str, str] = {}

    def copy(self) -> Placeholders:
        other = Placeholders()
        other._whole = dict(self._whole)
        return other

    def clear(self) -> None:
        self._whole.clear()

    def pasted_in(self, text: str) -> tuple[str, ...]:
        """Return the folded pastes that `text` has a sign of."""
        return tuple(w for sign, w in self._whole.items() if sign in text and not sign.startswith(_IMAGE))

    def fold(self, text: str) -> str:
        """Return the displayed form of `text`: sanitised, or a sign if it is long."""
        lines = text.count("\n") + 1
        if len(text) < FOLD_CHARACTERS and lines <= FOLD_LINES:
            return sanitise_typed(text)  # the editor would pass control characters to the terminal
        return self._sign(pasted_size(text), text)

    def image(self, path: Path, size: int) -> str:
        """Return a sign for an image of `size` bytes, which is sent as its `@path`."""
        return self._sign(f"image {one_line(path.name, 40)} {core_content.in_words(size)}", mention(path))

    def _sign(self, what: str, whole: str) -> str:
        sign, number = f"[{what}]", 1
        while sign in self._whole:
            number += 1
            sign = f"[{what} #{number}]"
        self._whole[sign] = whole
        return sign

    def unfold(self, text: str) -> str:
        """Return `text` as it is sent."""
        if not self._whole:
            return text
        return self._pattern().sub(lambda m: self._expand(m, text), text)

    def _expand(self, match: re.Match[str], text: str) -> str:
        content, follows = self._whole[match[0]], text[match.end() : match.end() + 1]
        apart = match[0].startswith(_IMAGE) and bool(follows) and not follows.isspace()
        return f"{content} " if apart else content  # a blank ends a path

    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self._whole, key=len, reverse=True))))

    def around(self, line: str, column: int) -> tuple[int, int] | None:
        """Return (start, end) of the sign in `line` that strictly contains `column`."""
        return self._find(line, lambda start, end: start < column < end)

    def before(self, line: str, column: int) -> tuple[int, int] | None:
        """Return (start, end) of the sign that ends at `column`, including the blank after an image."""
        span = self._find(line, lambda start, end: end == column)
        if span is None and line[column - 1 : column] == " ":
            span = self._find(line, lambda start, end: end == column - 1 and line.startswith(_IMAGE, start))
        return span and (span[0], column)

    def after(self, line: str, column: int) -> tuple[int, int] | None:
        """Return (start, end) of the sign that begins at `column`."""
        return self._find(line, lambda start, end: start == column)

    def _find(self, line: str, fits: Callable[[int, int], bool]) -> tuple[int, int] | None:
        if not self._whole:
            return None
        return next((m.span() for m in self._pattern().finditer(line) if fits(*m.span())), None)
