"""Define what importers yield: sources, and entries of threads, parents first."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct, field

from sakti.core.text import clean_surrogates
from sakti.core.types import ImagePart, Json, Part, Role, TextPart, ToolCallPart, ToolResultPart

Kind: TypeAlias = Literal["message", "boundary", "raw", "note", "end"]
DEEPEST = 200  # levels of JSON; deeper values are not interpreted


class ThreadInfo(Struct, frozen=True):
    """Thread of a source; its entries share it.

    `id` is unique within the program. `parent` is the id of the thread that started this one. `unless`: ids of threads
    of which one that was imported makes this one superfluous.
    """

    id: str
    cwd: str = ""
    title: str = ""
    version: str = ""
    file: str = ""
    parent: str = ""
    unless: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Entry(Struct, frozen=True):
    """One entry of a source.

    `id` is unique within the program. `parent` is the entry before it, "" if that is the last one of the thread.
    Entries of one role with the same `answer` that follow each other are one message. `kind`: a note is no message; it
    only stands for a line on which others hang. An end says that the answer before it is finished. `counted`: it is a
    message of its own in the source. `is_open`: the source may still change it.
    """

    thread: ThreadInfo
    id: str
    role: Role = "system"
    parts: tuple[Part, ...] = ()
    time: int = 0
    parent: str = ""
    answer: str = ""
    kind: Kind = "message"
    counted: bool = True
    title: str = ""
    is_open: bool = False
    end: int = 0  # offset in the source behind it, where the source is read in its order


class Problem(Struct, frozen=True):
    """Part of a source that could not be imported as it is."""

    file: str
    line: int
    why: str


class Source(Struct, frozen=True):
    """File or database to import from; `root` is the folder that it may not lead out of."""

    program: str
    path: Path
    root: Path
    side: tuple[Path, ...] = ()  # files whose change is a change of the source
    key: str = ""  # its path after --map, for ids that are unique only in it


class TodoItem(Struct, frozen=True):
    """Task that another program kept for a thread; `blocks`: ids of tasks that wait for it."""

    thread: ThreadInfo
    id: str
    title: str
    description: str = ""
    status: str = "open"
    blocks: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()


class Findings(Struct):
    """Results of reading besides entries; `read_to`: the end of the last complete line."""

    problems: list[Problem] = field(default_factory=list[Problem])
    dropped_thinking: int = 0
    read_to: int = 0

    def add(self, file: Path, line: int, why: str) -> None:
        self.problems.append(Problem(clean_surrogates(str(file)), line, why))


class Importer(Protocol):
    """Reader of one program's history.

    `find` yields the sources below a folder of the program, parents before children. `entries` yields the entries of a
    source from an offset on (0: all of it). `todos` yields the tasks of a source.
    """

    program: str

    def place(self, home: Path, workspace: Path) -> Path | None: ...

    def find(self, root: Path, findings: Findings) -> Iterable[Source]: ...

    def entries(self, source: Source, offset: int, findings: Findings) -> Iterator[Entry]: ...

    def todos(self, source: Source, findings: Findings) -> Iterator[TodoItem]: ...


# --- helpers of the readers ---------------------------------------------------------------------------------


def files_below(root: Path, pattern: str, findings: Findings) -> list[Path]:
    """Return the regular files of a pattern below a folder; links out of it are reported."""
    listed: list[Path] = []
    try:
        matches = sorted(root.glob(pattern))
    except OSError as e:
        findings.add(root, 0, e.strerror or str(e))
        return []
    for path in matches:
        try:
            if not leads_inside(path, root):
                findings.add(path, 0, "it is a link out of the folder")
            elif stat.S_ISREG(path.stat().st_mode):
                listed.append(path)
        except OSError as e:
            findings.add(path, 0, e.strerror or str(e))
    return listed


def leads_inside(path: Path, root: Path) -> bool:
    """Return whether a path, after links, is below a folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def is_file(path: Path) -> bool:
    """Return whether a path of another program names a regular file; it may be no path at all."""
    status = state_of(path)
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
    """Decode JSON, also with halves of surrogate pairs or bytes that are no UTF-8.

    Raises ValueError, also for values that nest more than `DEEPEST` levels.
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
        return _clean(json.loads(text))


def _is_too_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [child for one in level for child in _children(one)]
        if not level:
            return False
    return True


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("Json", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_surrogates(value)
    if isinstance(value, dict):
        return {clean_surrogates(k): _clean(v) for k, v in cast("Json", value).items()}
    return [_clean(v) for v in cast("list[Any]", value)] if isinstance(value, list) else value


def read_time(value: Any) -> int:
    """Return a time as Unix ms, 0 if it is none or before 1970: ISO 8601, seconds or milliseconds."""
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


def text_of(value: Any) -> str:
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
    return text_of(block)


def as_dict(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def speaker(value: Any) -> Literal["user", "assistant"] | None:
    """Return a role if it is the user's or the model's."""
    return value if value in ("user", "assistant") else None


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def text_part(text: str) -> tuple[Part, ...]:
    """Return a text as parts: none if it is blank."""
    return (TextPart(text),) if text.strip() else ()


def call_part(call_id: Any, name: Any, arguments: Any) -> ToolCallPart:
    """Return a tool call; its arguments may be an object, or text of JSON."""
    if isinstance(arguments, str):
        try:
            read: Any = decode_json(arguments) if arguments.strip() else {}
        except ValueError:
            read = None
        arguments = cast("Any", read) if isinstance(read, dict) else {"input": arguments}
    return ToolCallPart(str(call_id or ""), str(name or ""), as_dict(arguments))


def result_part(call_id: Any, name: Any, content: Any, is_error: bool = False) -> ToolResultPart:
    return ToolResultPart(str(call_id or ""), str(name or ""), text_of(content), is_error)


def image_part(media_type: Any, data: Any, name: str = "") -> tuple[Part, ...]:
    """Return an image of base64 or a data URL as parts: none if it is something else."""
    text = as_text(data)
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0]
    is_image = as_text(media_type).startswith("image/") and text and not text.startswith(("http:", "https:"))
    return (ImagePart(str(media_type), text, name),) if is_image else ()


def short_hash(*pieces: object) -> str:
    """Return a hash of some values, for ids."""
    return hashlib.sha256("\0".join(map(str, pieces)).encode("utf-8", "replace")).hexdigest()[:24]


def state_of(path: Path) -> os.stat_result | None:
    """Return the status of a file, None if it is missing or its name is none."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None
