"""Read the database of Mastra's memory: threads, and messages of both shapes of content.

The new shape is JSON with `"format": 2` and parts, whatever the column `type` says. The old one is a plain string or an
array of parts. Written by `@mastra/memory` 1.31 on libSQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sakti.core.errors import StoreError
from sakti.core.types import FilePart, Json, MarkerPart, Part, ThinkingPart
from sakti.importers import fields
from sakti.importers.entries import Entry, Findings, Source, ThreadInfo, TodoItem
from sakti.store import copies

RESOURCE, ONLY = "mastra:", "mastra-only:"  # before a resource that stands for a folder
_THREAD = ("id", "resourceId", "title", "metadata", "createdAt", "updatedAt")
_MESSAGE = ("id", "thread_id", "content", "role", "type", "createdAt", "resourceId")
_DONE = frozenset(("result", "output-available", "output-error", "error"))


class Mastra:
    program = "mastra"

    def place(self, home: Path, workspace: Path) -> Path | None:
        return None

    def find(self, root: Path, findings: Findings) -> Iterable[Source]:
        paths = [root] if root.is_file() else sorted(root.glob("*.db"))
        for path in paths:
            yield Source(self.program, path, path.parent, (path.with_name(f"{path.name}-wal"),))

    def entries(self, source: Source, offset: int, findings: Findings) -> Iterator[Entry]:
        with copies.open_foreign(source.path) as db:
            yield from _entries(db, source, findings)

    def todos(self, source: Source, findings: Findings) -> Iterator[TodoItem]:
        return iter(())


def read_threads(db: copies.ForeignDatabase, source: Source) -> dict[str, ThreadInfo]:
    """Return the threads of a database by their ids there. Raises StoreError."""
    if not db.columns("mastra_threads") or not db.columns("mastra_messages"):
        raise StoreError(f"{source.path} is not a database of Mastra: a table is missing.", code="unreadable")
    rows = list(db.table("mastra_threads", _THREAD, "createdAt"))
    resources = {fields.as_text(row, "resourceId") for row in rows}
    prefix = ONLY if len(resources) == 1 else RESOURCE
    threads: dict[str, ThreadInfo] = {}
    for row in rows:
        metadata = read_metadata(row.get("metadata"))
        om = fields.as_dict(metadata, "mastra", "om")
        others = {k: v for k, v in metadata.items() if k not in ("mastra", "workingMemory")}
        task = {"current_task": om.get("currentTask"), "suggested_response": om.get("suggestedResponse")}
        threads[str(row["id"])] = ThreadInfo(
            thread_key(source, str(row["id"])),
            f"{prefix}{fields.as_text(row.get('resourceId'))}",
            fields.as_text(row, "title"),
            file=str(source.path),
            metadata={name: value for name, value in (*task.items(), ("mastra", others)) if value},
        )
    return threads


def thread_key(source: Source, thread: str) -> str:
    """Return the id of a thread that no other database has."""
    return f"{source.key or source.path}:{thread}"


def read_metadata(value: Any) -> Json:
    try:
        return fields.as_dict(fields.decode_json(value)) if isinstance(value, str) else {}
    except ValueError:
        return {}


def _entries(db: copies.ForeignDatabase, source: Source, findings: Findings) -> Iterator[Entry]:
    threads = read_threads(db, source)
    for row in db.table("mastra_messages", _MESSAGE, "thread_id, createdAt, rowid"):
        thread_id = str(row.get("thread_id"))
        thread = threads.get(thread_id)
        if thread is None:
            findings.add(source.path, 0, f"message {row.get('id')} belongs to a missing thread")
            thread = threads[thread_id] = ThreadInfo(
                thread_key(source, thread_id), f"{RESOURCE}", file=str(source.path)
            )
        yield from _message(thread, row)


def entry_id(thread: ThreadInfo, message: str) -> str:
    return f"{thread.id}:{message}"


def results_id(thread: ThreadInfo, message: str) -> str:
    """Return the id of the entry with the results of a message's calls."""
    return f"{thread.id}:{message}#results"


def _message(thread: ThreadInfo, row: Json) -> Iterator[Entry]:
    message_id, time = str(row["id"]), fields.read_time(row.get("createdAt"))
    content = row.get("content")
    role = fields.as_text(row, "role")
    parts, results = _read_content(content)
    own_id = entry_id(thread, message_id)
    if role == "tool" or (results and not parts):
        yield Entry(thread, own_id, "tool", tuple(results), time)
        return
    speaking = fields.speaker(role)
    if speaking is None:  # a system message: the program's own
        yield Entry(thread, own_id, kind="note", time=time)
        return
    shown = tuple(parts) or (MarkerPart("interrupted"),)
    yield Entry(thread, own_id, speaking, shown, time, answer=own_id)
    if results:
        yield Entry(thread, results_id(thread, message_id), "tool", tuple(results), time, counted=False)


def _read_content(content: Any) -> tuple[list[Part], list[Part]]:
    """Return the parts of a message's content, and the results of its calls."""
    text = content if isinstance(content, str) else str(content or "")
    try:
        value: Any = fields.decode_json(text) if text[:1] in ("{", "[") else text
    except ValueError:
        value = text
    if isinstance(value, dict) and value.get("format") == 2:  # pyright: ignore[reportUnknownMemberType]
        message = fields.as_dict(value)
        blocks = fields.as_list(message, "parts") or [{"type": "text", "text": fields.as_text(message, "content")}]
    elif isinstance(value, list):
        blocks = fields.as_list(value)
    else:
        return list(fields.text_part(text)), []
    return _read_blocks([fields.as_dict(block) for block in blocks])


def _read_blocks(blocks: Sequence[Json]) -> tuple[list[Part], list[Part]]:
    parts: list[Part] = []
    results: list[Part] = []
    for block in blocks:
        kind = fields.as_text(block, "type")
        if kind in ("tool-invocation", "tool-call", "tool-result"):
            call, result = _read_call(block)
            parts += call
            results += result
        else:
            parts += _read_part(kind, block)
    return parts, results


def _read_part(kind: str, block: Json) -> tuple[Part, ...]:
    """Return a text, thought, image or file; not the notes that Mastra's memory adds."""
    if kind == "text":
        return fields.text_part(fields.as_text(block, "text"))
    if kind == "reasoning":
        details = "".join(fields.as_text(d, "text") for d in fields.as_list(block, "details"))
        text = fields.as_text(block, "reasoning") or fields.as_text(block, "text") or details
        return (ThinkingPart(text),) if text.strip() else ()
    return _read_file(block) if kind in ("image", "file") else ()


def _read_file(block: Json) -> tuple[Part, ...]:
    name = fields.as_text(block, "filename")
    data = block.get("data") or block.get("image") or block.get("url")
    image = fields.image_part(block.get("mimeType") or block.get("mediaType"), data, name)
    return image or (FilePart(name or fields.as_text(data)[:200], ""),)


def _read_call(block: Json) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Return a call and its result, each as parts; a block may be only one of them."""
    value = fields.as_dict(block, "toolInvocation") or block
    call_id, name = value.get("toolCallId"), value.get("toolName")
    call = fields.call_part(call_id, name, value.get("args", value.get("input")))
    if block.get("type") == "tool-call":
        return (call,), ()
    failed = "error" in fields.as_text(value, "state") or bool(value.get("isError"))
    content = value.get("errorText") or value.get("error") if failed else value.get("result", value.get("output"))
    result = fields.result_part(call_id, name, content, failed)
    if block.get("type") == "tool-result":
        return (), (result,)
    return (call,), (result,) if value.get("state") in _DONE else ()
