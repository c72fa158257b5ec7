"""Make text from outside safe to show: no control sequence reaches the terminal.

Models, tools, files, titles, branch names and errors all pass through `sanitize_text` before a widget or a print.
Control characters become visible symbols: ESC is shown as ␛. `show_hidden` does the same for hidden characters, long
runs of spaces and lookalike letters in a command.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
from pathlib import Path
from typing import Any

from sakti.core.lazy import lazy_pattern

# C0 without tab and newline, DEL, C1, and lone surrogates (which no terminal encoding supports)
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
# Characters without width or that reorder text: a reader would not see them.
_UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSAFE = lazy_pattern(f"[{_CONTROLS}{_UNSEEN}]")
_CONTROL = lazy_pattern(f"[{_CONTROLS}\u2028\u2029]")
_REORDERING = lazy_pattern("[\u202a-\u202e\u2066-\u2069]")
WITHOUT_WIDTH = lazy_pattern(f"(?![\u2028\u2029])[{_UNSEEN}]")
_UNSAFE_IN_JSON = lazy_pattern(f"[\x7f-\x9f\ud800-\udfff{_UNSEEN}]")
_CARRIAGE = lazy_pattern(r"\r\n?")
_JOINER = "\u200d"
_LOOSE_JOINER = lazy_pattern(rf"(?<![^\s{_JOINER}]){_JOINER}")
_FLAG = "\U0001f3f4"  # flag of England, Scotland or Wales, if these tags follow; no other flags use tags
_FLAG_TAGS = tuple(
    "".join(chr(0xE0000 + ord(c)) for c in f"{part}\x7f") for part in ("gbeng", "gbsct", "gbwls")
)  # Unicode's tag characters, including the end tag


def _show(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code in (0x2028, 0x2029):
        return "\n"
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's control pictures
    if code == 0x7F:
        return "\u2421"
    if code < 0xA0 or 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return match[0] if _has_effect(match.string, match.start()) else f"⟨U+{code:04X}⟩"


def _has_effect(text: str, at: int) -> bool:
    """Return whether a zero-width character changes the shape of its neighbours."""
    sign, before = text[at], text[at - 1 : at]
    if "\U000e0020" <= sign <= "\U000e007f":
        flag = text.rfind(_FLAG, max(0, at - len(_FLAG_TAGS[0])), at)
        return flag >= 0 and text.startswith(_FLAG_TAGS, flag + 1)
    if not before:  # it may belong to the text before
        return "\ufe00" <= sign <= "\ufe0f"
    return _joins(text, at) if sign in "\u200c\u200d" else _varies(sign, before)


def _joins(text: str, at: int) -> bool:
    """Return whether a joiner or non-joiner follows a letter of a joining script, or is between emoji."""
    before, behind = text[at - 1], text[at + 1 : at + 2]
    if before in "\ufe0e\ufe0f" and at > 1 and _has_effect(text, at - 1):
        before = text[at - 2]
    if _UNSAFE.match(before) or _UNSAFE.match(behind):
        return False
    if unicodedata.category(before) in ("Lo", "Lm", "Mn", "Mc"):  # letters without case, and marks
        return True
    return _is_symbol(before) and (not behind or _is_symbol(behind))


def _varies(sign: str, before: str) -> bool:
    """Return whether a selector chooses a variant of the character before it."""
    if _UNSAFE.match(before) or before.isspace():
        return False
    if sign in "\u180b\u180c\u180d\u180f":
        return "\u1800" <= before <= "\u18af"  # Mongolian
    if "\ufe00" <= sign <= "\ufe0d" or "\U000e0100" <= sign <= "\U000e01ef":
        return unicodedata.category(before) in ("Lo", "Sm")
    return sign in "\ufe0e\ufe0f"


def _is_symbol(sign: str) -> bool:
    return unicodedata.category(sign) in ("So", "Sm", "Sk")


def sanitize_text(text: str) -> str:
    r"""Return `text` with \n as line ends; tabs and newlines stay, other control characters become visible.

    So do zero-width characters, as ⟨U+200B⟩, except joiners and variants that change letters or emoji.
    """
    if "\r" in text:
        text = _CARRIAGE.sub("\n", text)
    if text.startswith(_JOINER):  # the width of the next character would be unknown
        text = text.lstrip(_JOINER)
    return _UNSAFE.sub(_show, text) if _UNSAFE.search(text) else text


def sanitize_typed(text: str) -> str:
    """Sanitise text for an editor: invisible characters stay, those that reorder text are dropped."""
    text = _LOOSE_JOINER.sub("", _CARRIAGE.sub("\n", text))
    return _CONTROL.sub(_show, _REORDERING.sub("", text))


def remove_invisible(text: str) -> tuple[str, int]:
    """Return text without zero-width characters that have no effect, and their number."""
    clean = WITHOUT_WIDTH.sub(lambda m: m[0] if _has_effect(text, m.start()) else "", text)
    return clean, len(text) - len(clean)


def encode_json_line(value: object) -> str:
    """Encode `value` as JSON on one line that is safe to print.

    Control characters, invisible characters and lone surrogates are escaped inside its strings.
    """
    text = json.dumps(value, ensure_ascii=False)  # escapes C0 by itself
    return _UNSAFE_IN_JSON.sub(lambda m: json.dumps(m[0])[1:-1], text)


def to_one_line(text: str, limit: int = 80) -> str:
    """Return the first `limit` characters of `text` on one safe line, with … if it was cut."""
    flat = " ".join(sanitize_text(text[: limit * 4]).split())
    return flat if len(flat) <= limit and len(text) <= limit * 4 else flat[: limit - 1].rstrip() + "…"


def quote(text: str, limit: int = 200) -> str:
    """Quote `text` as it is, on one safe line, with … if it was cut to `limit` characters."""
    line = " ".join(sanitize_text(text if len(text) <= limit else text[: limit - 1]).splitlines())
    return f"'{line}'" if len(text) <= limit else f"'{line}…'"


def display_path(path: Path, workspace: Path | None = None) -> str:
    """Return a path in short form: relative to the workspace, or with `~` for the home folder."""
    for root, prefix in ((workspace, ""), (Path.home(), "~/")):
        if root is not None and path.is_relative_to(root):
            return to_one_line(prefix + path.relative_to(root).as_posix(), 200)
    return to_one_line(path.as_posix(), 200)


def clean_surrogates(text: str) -> str:
    """Make `text` storable as UTF-8: lone surrogates become U+FFFD, NUL becomes a visible symbol."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\u2400")


def join_surrogates(text: str) -> str:
    """Join the halves of surrogate pairs; a lone half becomes U+FFFD.

    Servers send such halves if they cut a text inside an emoji.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def compile_phrase(text: str) -> re.Pattern[str]:
    """Compile a case-insensitive pattern for `text`; white space matches any white space."""
    return re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)


def cut_middle(text: str, limit: int) -> tuple[str, int]:
    """Cut `text` in the middle to about `limit` characters; return it and the number left out."""
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


def format_bytes(size: int) -> str:
    """Return a number of bytes for people: "3.1 GB"."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 10 * unit else f"{size / unit:.0f} {name}"
    return f"{size} bytes"


def format_duration(ms: int) -> str:
    """Format milliseconds for people: 1900 → "1.9 s", 12000 → "12 s", 75000 → "1 m 15 s"."""
    seconds = ms / 1000
    if seconds >= 60:
        return f"{int(seconds) // 60} m {int(seconds) % 60:02d} s"
    return f"{seconds:.0f} s" if seconds >= 10 or not ms % 1000 else f"{seconds:.1f} s"


def count_seconds(since: float, now: float) -> int:
    """Return the seconds of a running clock; clocks that differ by some milliseconds agree."""
    return max(0, int(now - since + 0.05))


def format_minute(time_ms: int) -> str:
    """Format a Unix time in ms as local date and time: `2026-01-15 14:30`."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_ms / 1000))


FOLD_LINES = 50  # longer pasted blocks are folded to a label


def count_lines(text: str) -> int:
    """Return the number of lines of a text; trailing line breaks do not count."""
    return text.rstrip("\n").count("\n") + 1 if text.strip() else 0


def describe_paste(text: str) -> str:
    """Return the label of a folded pasted block."""
    lines = count_lines(text)
    return f"pasted {lines} lines" if lines > 1 else f"pasted {len(text):,} characters"


def format_count(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun: `1 row`, `1,000 rows`; `many` is an irregular plural."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


SPACES = 8  # spaces in a row from which on they are counted
_RUN = lazy_pattern(rf"[ \t]{{{SPACES},}}(?=\S)")
_WORD = lazy_pattern(r"[^\W\d_]+")
_HIDDEN = ("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp", "Zs")
_LIKE_LATIN = ("CYRILLIC", "GREEK", "FULLWIDTH", "ARMENIAN", "CHEROKEE", "MATHEMATICAL")


def show_hidden(text: str) -> str:
    """Show hidden characters as `⟨U+200B⟩` and long runs of spaces as `␠×600`; line feeds remain.

    A run of up to 40 columns at the beginning of a line is kept as indentation.
    """
    shown = "".join(c if c in "\n\t" or " " <= c <= "~" else _sign(c) for c in text)
    return "\n".join(_count_spaces(line) for line in shown.split("\n"))


def _sign(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩" if unicodedata.category(character) in _HIDDEN else character


def _count_spaces(line: str) -> str:
    indent = len(line) - len(line.lstrip(" \t"))
    width = indent if indent <= 40 else 0
    return line[:width] + _RUN.sub(lambda m: f"␠×{len(m[0])} ", line[width:])


def find_lookalikes(text: str) -> tuple[str, ...]:
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


def show_value(value: Any) -> str:
    """Format any value for a message on one short line."""
    if isinstance(value, str):
        return quote(value, 80)
    try:
        return to_one_line(repr(value), 80)
    except (ValueError, RecursionError):  # a number with thousands of digits, a deeply nested list
        return "that"
