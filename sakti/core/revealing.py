"""Reveal hidden characters, long runs of spaces and lookalike letters in a command."""

from __future__ import annotations

import unicodedata

from sakti.core.patterns import lazy_pattern

SPACES = 8  # in a row, from which on they are counted
_RUN = lazy_pattern(rf"[ \t]{{{SPACES},}}(?=\S)")
_WORD = lazy_pattern(r"[^\W\d_]+")
_HIDDEN = ("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp", "Zs")
_LIKE_LATIN = ("CYRILLIC", "GREEK", "FULLWIDTH", "ARMENIAN", "CHEROKEE", "MATHEMATICAL")


def revealed(text: str) -> str:
    """Show hidden characters as `⟨U+200B⟩` and long runs of spaces as `␠×600`; line feeds remain.

    A run at the beginning of a line is its indentation and stays, too, up to 40 columns.
    """
    shown = "".join(c if c in "\n\t" or " " <= c <= "~" else _sign(c) for c in text)
    return "\n".join(_count_spaces(line) for line in shown.split("\n"))


def _sign(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩" if unicodedata.category(character) in _HIDDEN else character


def _count_spaces(line: str) -> str:
    indent = len(line) - len(line.lstrip(" \t"))
    width = indent if indent <= 40 else 0
    return line[:width] + _RUN.sub(lambda m: f"␠×{len(m[0])} ", line[width:])


def lookalikes(text: str) -> tuple[str, ...]:
    """Return words with letters that only look Latin: wide forms and mixed scripts."""
    words: list[str] = []
    for word in _WORD.findall(text):
        if word.isascii():
            continue
        scripts = {unicodedata.name(c, "?").partition(" ")[0] for c in word}
        wide = any(s in ("FULLWIDTH", "MATHEMATICAL") for s in scripts)
        if wide or ("LATIN" in scripts and scripts & set(_LIKE_LATIN)):
            words.append(word)
    return tuple(dict.fromkeys(words))
