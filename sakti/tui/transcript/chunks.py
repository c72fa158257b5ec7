"""Split streaming Markdown into finished chunks, so that only the open end is rendered again.

A chunk ends at a blank line outside a code fence, if the next line does not belong to the same list item.
An endless fence, paragraph or line is cut as well, so that the open end never exceeds `CAP` characters and the cost
of an answer is linear in its length. All chunks and the tail together equal the input.
"""

from __future__ import annotations

from re import Match

from msgspec import Struct

from sakti.core.lazy import lazy_pattern

CAP = 4_000
FENCE_LINES = 24

_FENCE = lazy_pattern(r"^( {0,3})(`{3,}|~{3,})(.*)$")
_ITEM = lazy_pattern(r"^ {0,3}(?:[-*+]|\d{1,9}[.)])\s")
_NESTED_FENCE = lazy_pattern(r"^\s*(?:(?:[-*+]|\d{1,9}[.)])\s+)*(`{3,}|~{3,})")


class Chunk(Struct, frozen=True):
    """A piece of an answer; `source` is its Markdown.

    For code inside a top-level fence, `language` is the text after the fence's mark (it may be empty), else None, and
    `code` is the text to show; `first` and `last`: whether the fence begins and ends here. `gap`: whether a blank line
    precedes it.
    """

    source: str
    language: str | None = None
    code: str = ""
    first: bool = True
    last: bool = True
    gap: bool = True


class Splitter:
    """Splits streamed text into finished chunks; `tail()` is the open one."""

    def __init__(self) -> None:
        self._lines: list[str] = []  # complete lines of the open chunk
        self._size = 0
        self._partial: list[str] = []  # pieces of the unfinished line
        self._partial_size = 0
        self._fence: str | None = None  # marker of the open fence
        self._is_top_level = False  # whether that fence is at the top level
        self._margin = 0  # indent of the fence and its lines in spaces
        self._is_list = False  # whether the open chunk begins with a list
        self._language = ""
        self._fence_first = True
        self._ends_blank = False  # whether the open chunk ends with a blank line
        self._has_content = False  # whether the open chunk has more than blank lines
        self._gap = True

    def feed(self, text: str) -> list[Chunk]:
        """Add `text`; returns the chunks that it finished, in order."""
        done: list[Chunk] = []
        head, newline, rest = text.partition("\n")
        while newline:
            self._partial.append(head + "\n")
            line = "".join(self._partial)
            self._partial.clear()
            self._partial_size = 0
            self._add_line(line, done)
            head, newline, rest = rest.partition("\n")
        if head:
            self._partial.append(head)
            self._partial_size += len(head)
            if self._partial_size > CAP:
                self._cut_line(done)
        return done

    def tail(self) -> Chunk | None:
        """Return the displayable part of the open chunk; None if nothing is open."""
        if not self._lines and not self._partial:
            return None
        return self._make_chunk(self._lines, "".join(self._partial), last=False)

    def finish(self) -> list[Chunk]:
        """End the stream and return the remaining chunks."""
        done: list[Chunk] = []
        if self._partial:
            line = "".join(self._partial)
            self._partial.clear()
            self._partial_size = 0
            self._add_line(line, done)
        if self._lines:
            self._close(done, gap=True)
        self._fence = None
        return done

    def _add_line(self, line: str, done: list[Chunk]) -> None:
        if self._fence is not None:
            self._add_code_line(line, done)
        elif not line.strip():
            self._push(line)
            self._ends_blank = True
            if self._size > CAP:
                self._close(done, gap=True)
        else:
            self._add_text_line(line, done)

    def _add_code_line(self, line: str, done: list[Chunk]) -> None:
        self._push(line)
        if self._is_fence_end(line):
            if self._is_top_level:
                self._close(done, gap=True, last=True)
            self._fence = None
            self._ends_blank = False
        elif (self._is_top_level and len(self._lines) >= FENCE_LINES) or self._size > CAP:
            self._close(done, gap=False, last=False)

    def _add_text_line(self, line: str, done: list[Chunk]) -> None:
        self._close_before(line, done)
        match = _FENCE.match(line.rstrip("\n"))
        if match and not (self._is_list and self._has_content and len(match[1]) > 1):
            if "`" in match[2] and "`" in match[3]:  # inline code
                self._push(line)
                return
            self._open_fence(match, done)
        elif match := _NESTED_FENCE.match(line):
            self._fence, self._is_top_level = match[1], False
        if not self._has_content:
            self._is_list = _ITEM.match(line) is not None
        self._has_content = True
        self._push(line)

    def _close_before(self, line: str, done: list[Chunk]) -> None:
        """End the open chunk if `line` begins another one."""
        if self._ends_blank and self._has_content and not line[0].isspace():
            self._close(done, gap=True)
        elif self._size > CAP:
            self._close(done, gap=self._ends_blank)
        self._ends_blank = False

    def _open_fence(self, match: Match[str], done: list[Chunk]) -> None:
        if self._has_content:
            self._close(done, gap=True)
        self._fence, self._is_top_level, self._fence_first = match[2], True, True
        self._margin = len(match[1])
        self._language = match[3].strip()

    def _push(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)

    def _cut_line(self, done: list[Chunk]) -> None:
        """Cut an overlong line, at a space if possible; its first part becomes a chunk."""
        text = "".join(self._partial)
        cut = text.rfind(" ", CAP // 2) + 1 or len(text)
        if self._ends_blank and self._has_content and self._fence is None:
            self._close(done, gap=True)
        self._ends_blank = False
        self._push(text[:cut])
        self._close(done, gap=False, last=False)
        self._partial = [text[cut:]] if text[cut:] else []
        self._partial_size = len(text) - cut

    def _close(self, done: list[Chunk], *, gap: bool, last: bool = True) -> None:
        if self._lines:
            done.append(self._make_chunk(self._lines, "", last=last))
        self._lines = []
        self._size = 0
        self._has_content = False
        self._gap = gap
        self._fence_first = False

    def _make_chunk(self, lines: list[str], partial: str, *, last: bool) -> Chunk:
        source = "".join(lines) + partial
        if self._fence is None or not self._is_top_level:
            return Chunk(source, gap=self._gap)
        code = "".join(self._list_fenced_lines([*lines, partial] if partial else list(lines)))
        code = code.rstrip("\n") if last else code.removesuffix("\n")  # in a cut block, a blank line is content
        return Chunk(source, self._language, code, self._fence_first, last, self._gap)

    def _list_fenced_lines(self, body: list[str]) -> list[str]:
        """Return the lines of code in `body`, without the fences and their indent."""
        if self._fence_first:
            while body and not body.pop(0).strip():  # blank lines may precede the fence
                pass
        if body and self._is_fence_end(body[-1]):
            body = body[:-1]
        if self._margin:
            margin = self._margin
            body = [line[min(margin, len(line) - len(line.lstrip(" "))) :] for line in body]
        return body

    def _is_fence_end(self, line: str) -> bool:
        """Return whether `line` ends the open fence; at the top level, an indented one is code."""
        fence, bare = self._fence or "", line.strip()
        indented = self._is_top_level and len(line) - len(line.lstrip(" ")) > 3
        return not indented and len(bare) >= len(fence) and not bare.strip(fence[:1])


def split(text: str) -> list[Chunk]:
    """Split a complete answer into chunks."""
    splitter = Splitter()
    return [*splitter.feed(text), *splitter.finish()]
