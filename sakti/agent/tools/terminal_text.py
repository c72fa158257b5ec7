"""Turn a terminal's output into plain text, each line as it is after its last redraw.

Progress bars redraw a line by carriage returns, backspaces and erase sequences, or several lines by moving the cursor
up. The last lines are held back until they cannot change any more. Pure.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from sakti.core.lazy import lazy_pattern

ROWS = 50  # lines that the cursor can go back to, as on a screen
LONGEST = 65_536  # characters of a line that is held back
WIDTH = 1_000  # columns that the cursor can be moved to
LONGEST_ESCAPE = 4_096  # characters, such as those of a window's title

_CURSOR = "[0-9;]*[A-HJKf]"  # the control sequences that move the cursor or erase
# A string such as a title ends with its line at the latest: one without an end must not hide the lines after it.
_STRING = rf"[\]PX^_][^\x07\x1b\n]{{0,{LONGEST_ESCAPE}}}"
_CONTROL = lazy_pattern("[\x00-\x08\x0d-\x1f\x7f\x9b]")
_IGNORED = lazy_pattern(
    "[\x00-\x07\x0e-\x1f\x7f](?:(?<!\x1b)|(?:"
    rf"{_STRING}(?:\x07|\x1b\\|(?=\n))"
    rf"|\[(?!{_CURSOR})[0-?]*[ -/]*[@-~]"
    r"|(?!\[)[ -/]*[0-~]"
    rf"|(?!\[{_CURSOR})))"
)
_UNFINISHED = lazy_pattern(rf"\x1b(?:\[[0-?]*[ -/]*|{_STRING}\x1b?|[ -/]*)\Z|\x9b[0-?]*[ -/]*\Z")
_TOKEN = lazy_pattern(rf"[^\x08\r\x1b]+|[\x08\r]|\x1b\[({_CURSOR})")
_REDRAWN = lazy_pattern("[\x08\x1b]")
# Letters, signs and bars that take one column, so that columns are positions; anything else is measured.
_NARROW = lazy_pattern(
    "[\t-\x7e\xa0-\u02ff\u0370-\u0482\u2010-\u2027\u2030-\u205e\u2190-\u2319\u2500-\u25fc\u2800-\u28ff]*"
)


class TerminalText:
    """Screen of one output that is fed in pieces.

    A line of more than `LONGEST` characters is passed on before it ends; a later redraw cannot change that part. A
    cleared screen stays in the text, as in a terminal's scrollback. Tabs take one column.
    """

    def __init__(self) -> None:
        self._rows: list[str] = [""]
        self._row = 0
        self._column: int | None = None  # None: after the end of the row, whatever its width
        self._unfinished = ""
        self._cleared = ""  # settled by clearing the screen

    def feed(self, text: str) -> str:
        """Return the text that no later output can change."""
        text = self._unfinished + text
        start = _find_unfinished(text)
        text, self._unfinished = text[:start], text[start:]
        if _CONTROL.search(text):
            text = _IGNORED.sub("", text.replace("\r\n", "\n").replace("\x9b", "\x1b["))
            if _CONTROL.search(text):
                return self._draw(text)
        if self._column is not None or self._row != len(self._rows) - 1:
            return self._draw(text)
        first, *more = text.split("\n")
        self._rows[-1] += first
        self._rows += more
        self._row = len(self._rows) - 1
        return self._take_settled()

    @property
    def pending(self) -> str:
        """Return the lines that later output may still change."""
        return self._cleared + "\n".join(self._rows)

    def flush(self) -> str:
        """Return the lines that were held back; later output begins a new screen."""
        text = self.pending
        self._rows, self._row, self._column, self._cleared = [""], 0, None, ""
        return text

    def _draw(self, text: str) -> str:
        out = ""
        for number, line in enumerate(text.split("\n")):
            if number:
                if self._row == len(self._rows) - 1:
                    self._rows.append("")
                self._go_to(self._row + 1, 0)
                out += self._take_settled()
            self._draw_line(line)
        return out + self._take_settled()

    def _take_settled(self) -> str:
        if len(self._rows[self._row]) > LONGEST:
            return self.flush()
        settled, self._cleared = self._cleared, ""
        count = len(self._rows) - ROWS
        if count > 0:
            settled += "\n".join(self._rows[:count]) + "\n"
            del self._rows[:count]
            self._row = max(0, self._row - count)
        return settled

    def _draw_line(self, line: str) -> None:
        if "\r" in line and not _REDRAWN.search(line) and _is_narrow(line):
            before, *redraws = line.split("\r")
            self._put(before)
            self._column = 0
            self._put(_overlay(redraws))
            self._column = len(redraws[-1])
            return
        for token in _TOKEN.finditer(line):
            if token[0] == "\r":
                self._column = 0
            elif token[0] == "\b":
                self._column = max(0, self._measure_column() - 1)
            elif token[1]:
                self._control(token[1])
            else:
                self._put(token[0])

    def _put(self, text: str) -> None:
        if not text:
            return
        row = self._rows[self._row]
        if self._column is None:
            self._rows[self._row] = row + text
            return
        end = self._column + _measure(text)
        self._rows[self._row] = (_split(row, self._column)[0] + text + _split(row, end)[1]).rstrip(" ")
        self._column = end

    def _control(self, sequence: str) -> None:
        """Apply a sequence that moves the cursor or erases; numbers left out are 1, or 0 for erasing."""
        kind, numbers = sequence[-1], sequence[:-1].split(";")
        count = max(1, min(int(numbers[0] or 1), WIDTH))
        column = self._measure_column()
        match kind:
            case "A" | "B" | "E" | "F":
                down = count if kind in "BE" else -count
                self._go_to(self._row + down, 0 if kind in "EF" else column)
            case "C" | "D":
                self._column = max(column, min(column + count, WIDTH)) if kind == "C" else max(0, column - count)
            case "G":
                self._column = count - 1
            case "H" | "f":
                self._go_to(count - 1, min(int((numbers[1:] or ["1"])[0] or 1), WIDTH) - 1)
            case _:
                self._erase(kind, numbers[0] or "0", column)

    def _erase(self, kind: str, part: str, column: int) -> None:
        if part not in ("0", "1"):
            if kind == "J":
                self._cleared = self.flush().rstrip("\n")
                self._cleared += "\n" if self._cleared else ""
            else:
                self._rows[self._row], self._column = "", column
            return
        row = self._rows[self._row]
        if part == "0":
            self._rows[self._row] = _split(row, min(column, _measure(row)))[0].rstrip(" ")
            if kind == "J":
                del self._rows[self._row + 1 :]
        else:
            self._rows[self._row] = (" " * (column + 1) + _split(row, column + 1)[1]).rstrip(" ")
            if kind == "J":
                self._rows[: self._row] = [""] * self._row
        self._column = column

    def _go_to(self, row: int, column: int) -> None:
        self._row = max(0, min(row, max(ROWS, len(self._rows)) - 1))  # moving down does not scroll
        self._rows += [""] * (self._row + 1 - len(self._rows))
        self._column = column or (0 if self._rows[self._row] else None)

    def _measure_column(self) -> int:
        return _measure(self._rows[self._row]) if self._column is None else self._column


def to_plain_text(output: str) -> str:
    """Return a complete output as plain text."""
    screen = TerminalText()
    return screen.feed(output) + screen.flush()


def split_unfinished(output: str) -> tuple[str, str]:
    """Split off an escape sequence whose end has not arrived yet."""
    start = _find_unfinished(output)
    return output[:start], output[start:]


def _find_unfinished(text: str) -> int:
    match = _UNFINISHED.search(text, max(0, len(text) - LONGEST_ESCAPE - 4))
    return match.start() if match else len(text)


def _overlay(redraws: list[str]) -> str:
    """Return a line drawn several times from its start, with the visible rest of longer ones."""
    text = redraws[-1]
    for earlier in reversed(redraws):
        if len(earlier) > len(text):
            text += earlier[len(text) :]
    return text


def _is_narrow(text: str) -> bool:
    return text.isascii() or _NARROW.fullmatch(text) is not None


def _measure(text: str) -> int:
    return len(text) if _is_narrow(text) else sum(map(_count_columns, text))


@lru_cache(maxsize=4096)
def _count_columns(sign: str) -> int:
    """Return the columns of a character: 0 for one that joins the character before it, 2 for a wide one."""
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def _split(row: str, column: int) -> tuple[str, str]:
    """Split a row at a column, padded up to it; half a wide character becomes a space."""
    if _is_narrow(row):
        return row[:column].ljust(column), row[column:]
    at = 0
    for index, sign in enumerate(row):
        columns = _count_columns(sign)
        if at >= column and columns:
            return row[:index], row[index:]
        if at + columns > column:
            return row[:index] + " ", " " + row[index + 1 :]
        at += columns
    return row + " " * (column - at), ""
