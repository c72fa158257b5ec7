"""Search files for a regular expression, as a separate program for platforms without ripgrep.

Reads a JSON object on standard input and prints as `rg --null --line-number` does. Python's expressions may need
exponential time and block the interpreter: the parent kills this program at a deadline.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import BinaryIO

from sakti.core.lazy import lazy_pattern

HEAD = 8_192
AT_ONCE = 50_000_000  # bytes of a file that is held in memory
ANCHOR = lazy_pattern(r"[\^$]|\\[AZ]")  # patterns that may match in a line but not in the text of all
ENCODED = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))


def main() -> int:
    task = json.load(sys.stdin)
    flags = (re.IGNORECASE if task["ignore_case"] else 0) | (re.MULTILINE if task["multiline"] else 0)
    try:
        expression = re.compile(task["pattern"], flags)
    except re.error as e:
        sys.stderr.write(f"regex parse error: {e}\n")
        return 2
    out = sys.stdout.buffer
    for name in task["files"]:
        try:
            for row in search(name, expression, task):
                out.write(row)
        except OSError as e:
            sys.stderr.write(f"rg: {name}: {e.strerror}\n")
        out.flush()
    return 0


def search(name: str, expression: re.Pattern[str], wanted: dict[str, object]) -> Iterator[bytes]:
    """Yield the rows of one file."""
    path, multiline = os.fsencode(name), bool(wanted["multiline"])
    with open(name, "rb") as file:  # noqa: PTH123 - a program of few imports
        head = file.read(HEAD)
        mark, encoding = next(((m, e) for m, e in ENCODED if head.startswith(m)), (b"", "utf-8"))
        file.seek(len(mark))
        rows = _read_rows(file, expression, encoding, at_once=multiline)
        if rows is None:
            return
        marked = _mark_hits(rows, expression, multiline=multiline)
        if encoding == "utf-8" and b"\0" in head:
            if any(hit for _, _, hit in marked):
                yield path + b': binary file matches (found "\\0" byte)\n'
        elif wanted["files_only"]:
            count = sum(hit for _, _, hit in marked)
            if count:
                yield path + b"\0" + str(count).encode() + b"\n"
        else:
            yield from list_shown(path, marked, int(str(wanted["context"])), int(str(wanted["columns"])))


def _read_rows(file: BinaryIO, expression: re.Pattern[str], encoding: str, *, at_once: bool) -> Iterator[str] | None:
    """Read the lines of a file, one by one if it is large; None if nothing in it can match."""
    if not at_once and encoding == "utf-8" and os.fstat(file.fileno()).st_size > AT_ONCE:
        return (line.decode("utf-8", "surrogateescape").removesuffix("\n") for line in file)
    text = file.read().decode(encoding, "surrogateescape" if encoding == "utf-8" else "replace")
    if not ANCHOR.search(expression.pattern) and not expression.search(text):
        return None  # what matches a line matches in the text of all lines
    return iter(text.removesuffix("\n").split("\n"))


def _mark_hits(rows: Iterator[str], expression: re.Pattern[str], *, multiline: bool) -> Iterator[tuple[int, str, bool]]:
    """Yield number and text of each line, and whether a match is in it."""
    if not multiline:
        return ((i, line, bool(expression.search(line))) for i, line in enumerate(r.rstrip("\r") for r in rows))
    lines = list(rows)
    hits = set(find_lines("\n".join(lines), expression))
    return ((i, line.rstrip("\r"), i in hits) for i, line in enumerate(lines))


def find_lines(text: str, expression: re.Pattern[str]) -> Iterator[int]:
    """Yield the lines touched by matches in the entire text."""
    for match in expression.finditer(text):
        first = text.count("\n", 0, match.start())
        yield from range(first, first + match[0].removesuffix("\n").count("\n") + 1)


def list_shown(path: bytes, rows: Iterator[tuple[int, str, bool]], context: int, columns: int) -> Iterator[bytes]:
    """Yield matches and the lines around them."""
    before: list[tuple[int, str]] = []
    after = 0
    for i, line, hit in rows:
        if hit:
            for n, text in before:
                yield format_row(path, n, text, b"-", columns)
            before.clear()
            yield format_row(path, i, line, b":", columns)
            after = context
        elif after:
            yield format_row(path, i, line, b"-", columns)
            after -= 1
        elif context:
            before = [*before[-context + 1 :], (i, line)] if context > 1 else [(i, line)]


def format_row(path: bytes, index: int, line: str, sign: bytes, columns: int) -> bytes:
    text = line[:columns] + (" [... omitted end of long line]" if len(line) > columns else "")
    return b"%s\0%d%s%s\n" % (path, index + 1, sign, text.encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    sys.exit(main())
