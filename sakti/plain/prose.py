"""Turn a model's Markdown into lines to be read aloud, as it streams in. Pure but for the open line."""

from __future__ import annotations

from sakti.core.lazy import lazy_pattern
from sakti.core.text import sanitize_text

SENTENCE = 160  # characters after which a long line is spoken up to its last complete sentence
LONGEST = 800  # characters after which a line without sentences is spoken up to a space

_HEADING = lazy_pattern(r"#{1,6}\s+(.*?)\s*#*$")
_RULE = lazy_pattern(r"([-*_=]\s*){3,}$")
_SEPARATOR = lazy_pattern(r"\|?[\s:|-]*-[\s:|-]*\|[\s:|-]*$")
_FENCE = lazy_pattern(r"\s{0,3}(?:```+|~~~+)\s*([\w+#.-]*)")
_CODE = lazy_pattern(r"(`+[^`]*`+)")
_STRONG = lazy_pattern(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
_EMPHASIS = lazy_pattern(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])")
_LINK = lazy_pattern(r"!?\[([^\]]*)\]\((\S+?)\)")
_END = lazy_pattern(r"[.!?:;。！？](?:[\"')\]*_`]*)\s")


class Prose:
    """Line splitter: `add` takes chunks and returns the complete lines, `end` returns the rest."""

    def __init__(self) -> None:
        self._open = ""
        self._in_code = False

    def add(self, text: str) -> list[str]:
        *complete, self._open = (self._open + text).split("\n")
        lines = [spoken_line for line in complete for spoken_line in self._format_line(line)]
        if not self._in_code and len(self._open) > SENTENCE and not _FENCE.match(self._open):
            lines += self._take_sentences()
        return lines

    def _take_sentences(self) -> list[str]:
        """Return the complete sentences of an unfinished line."""
        text = self._open
        at = max((m.end() for m in _END.finditer(text)), default=0)
        if not at and len(text) > LONGEST:
            at = text.rfind(" ") + 1 or len(text)
        if not at or text.lstrip().startswith("|"):  # a table row is spoken as a whole
            return []
        self._open = text[at:]
        return self._format_line(text[:at])

    def end(self) -> list[str]:
        lines = self._format_line(self._open) if self._open.strip() else []
        if self._in_code:
            lines.append("end of code")
        self._open, self._in_code = "", False
        return lines

    def _format_line(self, line: str) -> list[str]:
        line = sanitize_text(line).rstrip()
        if fence := _FENCE.match(line):
            self._in_code = not self._in_code
            return [f"code {fence[1]}:" if fence[1] else "code:"] if self._in_code else ["end of code"]
        if self._in_code:
            return [line]
        spoken_line = speak_line(line)
        return [spoken_line] if spoken_line else []


def speak_line(line: str) -> str:
    """Return one line of Markdown without its markup; "" for a purely decorative line."""
    text = line.strip()
    if not text or _RULE.fullmatch(text) or _SEPARATOR.fullmatch(text):
        return ""
    if heading := _HEADING.fullmatch(text):
        return f"heading: {_format_inline(heading[1])}"
    if text.startswith("|"):
        cells = [_format_inline(c.strip()) for c in text.strip("|").split("|")]
        return f"row: {'; '.join(cells)}"
    if text.startswith(">"):
        return f"quote: {_format_inline(text.lstrip('> '))}"
    indent = line[: len(line) - len(line.lstrip())]
    return indent + _format_inline(text)


def _format_inline(text: str) -> str:
    pieces = _CODE.split(text)
    return "".join(p.strip("`") if p.startswith("`") else _strip_decoration(p) for p in pieces)


def _strip_decoration(text: str) -> str:
    return _LINK.sub(r"\1 (\2)", _EMPHASIS.sub(r"\1", _STRONG.sub(r"\2", text)))


def format_all(text: str) -> list[str]:
    """Return the lines of a complete text."""
    prose = Prose()
    return [*prose.add(text), *prose.end()]
