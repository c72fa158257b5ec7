"""Imitate what the golden vectors take from JavaScript: white space, line ends, UTF-16 lengths."""

from __future__ import annotations

import re

# The characters that \s and String.trim know there. Python's \s also has 0x1c-0x1f and 0x85, and not 0xfeff.
SPACE = "\t\n\x0b\x0c\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
S = f"[{SPACE}]"
_SPACES = re.sub(r"\u2000-\u200a", "".join(map(chr, range(0x2000, 0x200B))), SPACE)
# ^ and $ with the m flag
BOL = r"(?:\A|(?<=[\n\r\u2028\u2029]))"
EOL = r"(?=[\n\r\u2028\u2029]|\Z)"


def trim(text: str) -> str:
    return text.strip(_SPACES)


def length(text: str) -> int:
    """Return the length in UTF-16 units."""
    return len(text) if text.isascii() else len(units(text)) // 2


def units(text: str) -> bytes:
    """Encode as UTF-16 code units, two bytes each, for slicing."""
    return text.encode("utf-16-le", "surrogatepass")


def cut(text: str, limit: int) -> str:
    """Return the first `limit` UTF-16 units; drop a surrogate pair across the end."""
    if length(text) <= limit:
        return text
    head = units(text)[: 2 * limit].decode("utf-16-le", "surrogatepass")
    return head[:-1] if "\ud800" <= head[-1:] <= "\udbff" else head
