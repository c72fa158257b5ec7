"""Read files of JSON lines from an offset on, with a bound for each line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from msgspec import Struct
from msgspec.structs import replace

from sakti.core.types import Json, MarkerPart
from sakti.importers import fields
from sakti.importers.entries import Entry, Findings, ThreadInfo

LONGEST = 16 << 20  # bytes of a line that are kept
RAW_LIMIT = 100_000  # characters of a text that could not be interpreted


class Line(Struct, frozen=True):
    """Line of a file.

    `number` counts from 1 at the offset where reading began; `start` and `end` are offsets. `value` is None if it is no
    JSON object; then `text` is what it says. `is_cut`: the file ends in it.
    """

    number: int
    start: int
    end: int
    value: Json | None
    text: str = ""
    is_cut: bool = False


def read_lines(path: Path, offset: int, findings: Findings) -> Iterator[Line]:
    """Yield the lines of a file; those that are no JSON objects are reported."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            yield from _lines(file, path, findings)
    except OSError as e:
        findings.add(path, 0, e.strerror or str(e))


def _lines(file: BinaryIO, path: Path, findings: Findings) -> Iterator[Line]:
    number, start = 0, file.tell()
    while data := file.readline(LONGEST):
        number += 1
        dropped = _skip_rest(file) if len(data) == LONGEST and not data.endswith(b"\n") else 0
        end = file.tell()
        if dropped:
            findings.add(path, number, f"the line is longer than 16 MB; {dropped:,} bytes were left out")
        is_cut = not data.endswith(b"\n") and not dropped
        if data.strip():
            yield _read(data, dropped, Line(number, start, end, None, is_cut=is_cut), path, findings)
        if is_cut:  # what is written behind it meanwhile belongs to this line
            return
        findings.read_to = start = end


def _skip_rest(file: BinaryIO) -> int:
    """Skip the rest of a line; return its length."""
    skipped = 0
    while data := file.readline(1 << 20):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped


def _read(data: bytes, dropped: int, line: Line, path: Path, findings: Findings) -> Line:
    try:
        value: Any = None if dropped else fields.decode_json(data)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return replace(line, value=cast("Json", value))
    if not dropped:
        findings.add(
            path, line.number, "the last line is incomplete" if line.is_cut else "the line is not a JSON object"
        )
    return replace(line, text=data[: RAW_LIMIT * 4].decode("utf-8", "replace")[:RAW_LIMIT])


def raw_entry(thread: ThreadInfo, line: Line, path: Path, text: str = "") -> Entry:
    """Return the entry of a line that could not be interpreted: its text is found by search."""
    return Entry(
        thread,
        raw_id(path, line.start),
        parts=(MarkerPart("raw", text or line.text),),
        kind="raw",
        counted=False,
        is_open=line.is_cut,
        end=line.end,
    )


def raw_id(path: Path, offset: int) -> str:
    """Return the id of a line that could not be interpreted."""
    return f"raw:{fields.short_hash(path, offset)}"
