"""Make text from outside safe to show: no control sequence reaches the terminal.

Models, tools, files, titles, branch names and errors all pass through `sanitise` before a widget or a print. Control
characters become visible signs, so what was there can still be seen: ESC is shown as ␛.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from sakti.core.patterns import lazy_pattern

# C0 without tab and newline, DEL, C1, and lone surrogates (which no terminal encoding can carry)
_CONTROL = lazy_pattern("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_BIDI = {0x2028: "\n", 0x2029: "\n"}
_CARRIAGE = lazy_pattern(r"\r\n?")
_JOINER = "\u200d"
_LOOSE_JOINER = lazy_pattern(rf"(?<![^\s{_JOINER}]){_JOINER}")


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code in _BIDI:
        return _BIDI[code]
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's control pictures
    if code == 0x7F:
        return "\u2421"
    if code < 0xA0 or 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return ""  # bidirectional overrides reorder what stands around them and show nothing themselves


def sanitise(text: str) -> str:
    r"""Return `text` with \n as line ends and every control character made visible; tabs and newlines stay.

    Without joiners that join nothing: of what stands behind them, nobody knows how wide it is.
    """
    if "\r" in text:
        text = _CARRIAGE.sub("\n", text)
    if _JOINER in text:
        text = _LOOSE_JOINER.sub("", text)
    return _CONTROL.sub(_visible, text) if _CONTROL.search(text) else text


# DEL and C1, lone surrogates, and what has no width or reorders other text: a reader would not see what is there
_UNSAFE_IN_JSON = lazy_pattern(
    "[\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def json_line(value: object) -> str:
    """Encode `value` as JSON on one line that is safe to print.

    Control characters, invisible ones and what no encoding can carry are escaped inside its strings.
    """
    text = json.dumps(value, ensure_ascii=False)  # escapes C0 by itself
    return _UNSAFE_IN_JSON.sub(lambda m: json.dumps(m[0])[1:-1], text)


def one_line(text: str, limit: int = 80) -> str:
    """Return the first `limit` characters of `text` on one safe line, with … where something was cut."""
    flat = " ".join(sanitise(text[: limit * 4]).split())
    return flat if len(flat) <= limit and len(text) <= limit * 4 else flat[: limit - 1].rstrip() + "…"


def display_path(path: Path, workspace: Path | None = None) -> str:
    """Return a path as people write it: relative to the workspace, or with `~` for the home folder."""
    for root, prefix in ((workspace, ""), (Path.home(), "~/")):
        if root is not None and path.is_relative_to(root):
            return one_line(prefix + path.relative_to(root).as_posix(), 200)
    return one_line(path.as_posix(), 200)


def clean_surrogates(text: str) -> str:
    """Make `text` storable as UTF-8: lone surrogates become U+FFFD, NUL becomes its visible sign."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\u2400")


def join_surrogates(text: str) -> str:
    """Join the halves of surrogate pairs; a lone half becomes U+FFFD.

    Servers that cut a text inside an emoji send such halves.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def phrase(text: str) -> re.Pattern[str]:
    """Compile a case-insensitive pattern for `text`; white space matches any white space."""
    return re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)


def head_and_tail(text: str, limit: int) -> tuple[str, int]:
    """Cut `text` in the middle to about `limit` characters; return it and how many were left out."""
    if len(text) <= limit:
        return text, 0
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit} characters left out …]\n{text[-tail:]}", len(text) - limit


def count_k(tokens: int) -> str:
    """Format a token count for panes: 840 → "840", 21_400 → "21.4k", 1_250_000 → "1.25M"."""
    if tokens < 1000:
        return str(tokens)
    if tokens < 1_000_000:
        return f"{tokens / 1000:.1f}k"
    return f"{tokens / 1_000_000:.2f}M"


def byte_size(size: int) -> str:
    """Return a number of bytes for people: "3.1 GB"."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 10 * unit else f"{size / unit:.0f} {name}"
    return f"{size} bytes"


def counted(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun: `1 row`, `1,000 rows`; `many` where the plural is not `one` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
