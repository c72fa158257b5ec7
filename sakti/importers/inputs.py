"""Read files and values of other programs, whose types, times and encodings are unreliable.

JSON lines are read from an offset on, with a limit for each line.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sakti.core.text import clean_surrogates
from sakti.core.types import ImagePart, Json, MarkerPart, Part, TextPart, ToolCallPart, ToolResultPart
from sakti.importers.entries import Entry, Findings, ThreadInfo

DEEPEST = 200  # nesting levels of JSON; deeper values are not interpreted

LONGEST = 16 << 20  # bytes of a line that are read
RAW_LIMIT = 100_000  # characters of a text that could not be interpreted


def list_files_below(root: Path, pattern: str, findings: Findings) -> list[Path]:
    """List the regular files of a pattern below a folder; links out of it are reported."""
    listed: list[Path] = []
    try:
        matches = sorted(root.glob(pattern))
    except OSError as e:
        findings.add(root, 0, e.strerror or str(e))
        return []
    for path in matches:
        try:
            if not is_inside(path, root):
                findings.add(path, 0, "it is a link out of the folder")
            elif stat.S_ISREG(path.stat().st_mode):
                listed.append(path)
        except OSError as e:
            findings.add(path, 0, e.strerror or str(e))
    return listed


def is_inside(path: Path, root: Path) -> bool:
    """Return whether a path, with links resolved, is below a folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def is_file(path: Path) -> bool:
    """Return whether a path of another program names a regular file; it may be invalid."""
    status = read_status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def read_json(path: Path, findings: Findings, limit: int = 64 << 20) -> Any:
    """Return the value of a small JSON file, None if it is missing or cannot be read."""
    try:
        with path.open("rb") as file:
            return decode_json(file.read(limit))
    except FileNotFoundError:
        return None
    except OSError as e:
        findings.add(path, 0, e.strerror or str(e))
    except ValueError:
        findings.add(path, 0, "it is not JSON")
    return None


def decode_json(data: bytes | str) -> Any:
    """Decode JSON, also with lone surrogates or bytes that are not UTF-8.

    Raises ValueError, also for values with more than `DEEPEST` levels.
    """
    try:
        value: Any = _decode(data)
    except RecursionError as e:
        raise ValueError("nested too deeply") from e
    brackets = data.count(b"[") + data.count(b"{") if isinstance(data, bytes) else data.count("[") + data.count("{")
    if brackets > DEEPEST and _is_too_deep(value):
        raise ValueError("nested too deeply")
    return value


def _decode(data: bytes | str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
        return _clean_texts(json.loads(text))


def _is_too_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [child for one in level for child in _list_children(one)]
        if not level:
            return False
    return True


def _list_children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("Json", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _clean_texts(value: Any) -> Any:
    if isinstance(value, str):
        return clean_surrogates(value)
    if isinstance(value, dict):
        return {clean_surrogates(k): _clean_texts(v) for k, v in cast("Json", value).items()}
    return [_clean_texts(v) for v in cast("list[Any]", value)] if isinstance(value, list) else value


def read_time(value: Any) -> int:
    """Parse a time (ISO 8601, seconds or milliseconds) to Unix ms; 0 if invalid or before 1970."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, int | float) and 0 < value < 1e14:
        return int(value if value > 1e11 else value * 1000)
    if isinstance(value, str):
        try:
            return max(0, int(datetime.datetime.fromisoformat(value).timestamp() * 1000))
        except (ValueError, OverflowError):
            return 0
    return 0


def to_text(value: Any) -> str:
    """Return a value as text: a text itself, the texts of a list of blocks, else JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(_block_text, cast("list[Any]", value))))
    return json.dumps(value, ensure_ascii=False, default=str)


def _block_text(block: Any) -> str:
    if isinstance(block, dict):
        mapping = cast("Json", block)
        text = mapping.get("text")
        if isinstance(text, str):
            return text
        if mapping.get("type") in ("image", "input_image", "image_url"):
            return ""
    return to_text(block)


def lookup(value: Any, *keys: str) -> Any:
    """Return the value at a path of keys, else None."""
    for key in keys:
        value = cast("Json", value).get(key) if isinstance(value, dict) else None
    return value


def as_dict(value: Any, *keys: str) -> Json:
    """Return the object at a path of keys in a value, else {}."""
    value = lookup(value, *keys)
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: Any, *keys: str) -> list[Any]:
    """Return the list at a path of keys in a value, else []."""
    value = lookup(value, *keys)
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: Any, *keys: str) -> str:
    """Return the text at a path of keys in a value, else ""."""
    value = lookup(value, *keys)
    return value if isinstance(value, str) else ""


def join_texts(value: Json, *keys: str) -> str:
    """Return the texts of several keys, one line each."""
    return "\n".join(filter(None, (as_text(value, key) for key in keys)))


def read_blocks(content: Any) -> list[Json]:
    """Return the blocks of a message's content, which may be plain text."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
    return [as_dict(block) for block in blocks]


def to_role(value: Any) -> Literal["user", "assistant"] | None:
    """Return a role if it is user or assistant."""
    return value if value in ("user", "assistant") else None


def make_text_part(text: str) -> tuple[Part, ...]:
    """Return a text as parts; none if it is blank."""
    return (TextPart(text),) if text.strip() else ()


def call_part(call_id: Any, name: Any, arguments: Any) -> ToolCallPart:
    """Return a tool call; its arguments may be an object or JSON text."""
    if isinstance(arguments, str):
        try:
            read: Any = decode_json(arguments) if arguments.strip() else {}
        except ValueError:
            read = None
        arguments = cast("Any", read) if isinstance(read, dict) else {"input": arguments}
    return ToolCallPart(str(call_id or ""), str(name or ""), as_dict(arguments))


def make_result_part(call_id: Any, name: Any, content: Any, is_error: bool = False) -> ToolResultPart:
    return ToolResultPart(str(call_id or ""), str(name or ""), to_text(content), is_error)


def make_image_part(media_type: Any, data: Any, name: str = "") -> tuple[Part, ...]:
    """Return an image of base64 or a data URL as parts; none for anything else."""
    text = as_text(data)
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0]
    is_image = as_text(media_type).startswith("image/") and text and not text.startswith(("http:", "https:"))
    return (ImagePart(str(media_type), text, name),) if is_image else ()


def compute_short_hash(*pieces: object) -> str:
    """Return a short hash of values, for ids."""
    return hashlib.sha256("\0".join(map(str, pieces)).encode("utf-8", "replace")).hexdigest()[:24]


def read_status(path: Path) -> os.stat_result | None:
    """Return the status of a file, None if it is missing or its name is invalid."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


class Line(Struct, frozen=True):
    """Line of a file.

    `number` counts from 1 at the offset where reading began; `start` and `end` are offsets. If it is no JSON object,
    `value` is None and `text` is its content. `is_cut`: the file ends within it.
    """

    number: int
    start: int
    end: int
    value: Json | None
    text: str = ""
    is_cut: bool = False


def read_lines(path: Path, offset: int, findings: Findings) -> Iterator[Line]:
    """Yield the lines of a file; lines that are no JSON objects are reported."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            yield from _read_lines(file, path, findings)
    except OSError as e:
        findings.add(path, 0, e.strerror or str(e))


def _read_lines(file: BinaryIO, path: Path, findings: Findings) -> Iterator[Line]:
    number, start = 0, file.tell()
    while data := file.readline(LONGEST):
        number += 1
        dropped = _skip_rest(file) if len(data) == LONGEST and not data.endswith(b"\n") else 0
        end = file.tell()
        if dropped:
            findings.add(path, number, f"the line is longer than 16 MB; {dropped:,} bytes were left out")
        is_cut = not data.endswith(b"\n") and not dropped
        if data.strip():
            yield _parse_line(data, dropped, Line(number, start, end, None, is_cut=is_cut), path, findings)
        if is_cut:  # the program may be writing the rest of this line
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


def _parse_line(data: bytes, dropped: int, line: Line, path: Path, findings: Findings) -> Line:
    try:
        value: Any = None if dropped else decode_json(data)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return replace(line, value=cast("Json", value))
    if not dropped:
        findings.add(
            path, line.number, "the last line is incomplete" if line.is_cut else "the line is not a JSON object"
        )
    return replace(line, text=data[: RAW_LIMIT * 4].decode("utf-8", "replace")[:RAW_LIMIT])


def make_raw_entry(thread: ThreadInfo, line: Line, path: Path, text: str = "") -> Entry:
    """Return the entry of a line that could not be interpreted; search finds its text."""
    return Entry(
        thread,
        make_raw_id(path, line.start),
        parts=(MarkerPart("raw", text or line.text),),
        kind="raw",
        counted=False,
        is_open=line.is_cut,
        end=line.end,
    )


def make_raw_id(path: Path, offset: int) -> str:
    """Return the id of a line that could not be interpreted."""
    return f"raw:{compute_short_hash(path, offset)}"
