"""Read the history of vibe: for each session a snapshot in chunks and the journal behind it.

Hashes of chunks and records are not checked. Written by version 3.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sakti.core.types import Json, MarkerPart, Part, ThinkingPart
from sakti.importers import lines
from sakti.importers.entries import (
    Entry,
    Findings,
    Source,
    ThreadInfo,
    TodoItem,
    as_dict,
    as_list,
    as_text,
    call_part,
    files_below,
    image_part,
    read_json,
    read_time,
    result_part,
    speaker,
    text_part,
)

_CHANGES = frozenset(("append_entry", "update_entry", "replace_entry", "upsert_entry", "set_entry"))
_DONE = frozenset(("completed", "failed", "cancelled", "interrupted"))


class Vibe:
    program = "vibe"

    def place(self, home: Path, workspace: Path) -> Path | None:
        return home / ".vibe" / "logs" / "session"

    def find(self, root: Path, findings: Findings) -> Iterable[Source]:
        for pattern in ("unified/*/CURRENT", "*/CURRENT", "CURRENT"):
            paths = files_below(root, pattern, findings)
            for path in paths:
                folder = path.parent
                journals = (*sorted(folder.glob("journal/*.jsonl")), folder / "meta.json")
                yield Source(self.program, path, root, journals)
            if paths:
                return

    def entries(self, source: Source, offset: int, findings: Findings) -> Iterator[Entry]:
        folder = source.path.parent
        current = as_dict(read_json(source.path, findings))
        meta = as_dict(read_json(folder / "meta.json", findings))
        thread = ThreadInfo(
            as_text(current.get("session_id")) or folder.name,
            as_text(as_dict(meta.get("environment")).get("working_directory")),
            as_text(meta.get("title")),
            as_text(current.get("store_format")),
            str(source.path),
            as_text(meta.get("parent_session_id")),
        )
        items = _items(folder, current, findings)
        for item in items.values():
            yield from _item_entries(thread, item, source.path, findings)

    def todos(self, source: Source, findings: Findings) -> Iterator[TodoItem]:
        return iter(())


def _items(folder: Path, current: Json, findings: Findings) -> dict[str, Json]:
    """Return the entries of a session in their order: those of the snapshot, changed by the journal."""
    items: dict[str, Json] = {}
    generation = as_text(current.get("generation"))
    manifest = as_dict(read_json(folder / "generations" / generation / "manifest.json", findings)) if generation else {}
    for chunk in as_list(as_dict(manifest.get("projection_state")).get("chunks")):
        name = Path(as_text(chunk)).name
        value = read_json(folder / "chunks" / f"{name}.json", findings)
        if value is None:
            findings.add(folder / "chunks" / f"{name}.json", 0, "the chunk is missing")
        for item in map(as_dict, as_list(value)):
            items[as_text(item.get("id"))] = item
    end = current.get("snapshot_sequence")
    after = end if manifest and isinstance(end, int) else 0
    for path in files_below(folder, "journal/*.jsonl", findings):
        for line in lines.read_lines(path, 0, findings):
            record = line.value or {}
            number = record.get("sequence")
            if record.get("type") == "projection_delta" and isinstance(number, int) and number > after:
                _apply(items, as_dict(record.get("payload")).get("delta"))
    return items


def _apply(items: dict[str, Json], delta: Any) -> None:
    for change in map(as_dict, as_list(delta)):
        item = as_dict(change.get("entry"))
        if change.get("op") in _CHANGES and item.get("id"):
            items[as_text(item.get("id"))] = item


def _item_entries(thread: ThreadInfo, item: Json, path: Path, findings: Findings) -> Iterator[Entry]:
    item_id, time = as_text(item.get("id")), read_time(item.get("createdAt"))
    step = as_text(item.get("turnId"))
    is_open = as_text(item.get("generationStatus")) not in _DONE
    if item.get("type") == "message":
        role = speaker(item.get("role"))
        parts = _parts(item, findings)
        if parts and role is not None and item.get("source") != "injected":
            answer = step if role == "assistant" else ""
            yield Entry(thread, item_id, role, parts, time, answer=answer, is_open=is_open)
    elif item.get("type") == "effect":
        detail, state = as_dict(item.get("detail")), as_dict(item.get("state"))
        name = as_text(detail.get("toolName")) or as_text(item.get("title"))
        call = call_part(item_id, name, detail.get("input"))
        yield Entry(thread, item_id, "assistant", (call,), time, answer=step, is_open=is_open)
        if not is_open:
            failed = (
                as_dict(state.get("display")).get("success") is False or item.get("generationStatus") != "completed"
            )
            result = result_part(item_id, name, _output(state), failed)
            yield Entry(thread, f"{item_id}#result", "tool", (result,), time, counted=False)
    elif text := "\n".join(as_text(as_dict(b).get("text")) for b in as_list(item.get("content"))).strip():
        findings.add(path, 0, f"unknown entry {item.get('type')}")
        yield Entry(thread, item_id, parts=(MarkerPart("raw", text),), time=time, kind="raw", counted=False)


def _parts(item: Json, findings: Findings) -> tuple[Part, ...]:
    parts: list[Part] = []
    for block in map(as_dict, as_list(item.get("content"))):
        match block.get("type"):
            case "text":
                parts += text_part(as_text(block.get("text")))
            case "thinking" | "reasoning":
                text = as_text(block.get("text")) or as_text(block.get("thinking"))
                findings.dropped_thinking += not text.strip()
                parts += (ThinkingPart(text),) if text.strip() else ()
            case _:
                parts += image_part(block.get("mimeType") or block.get("media_type"), block.get("data"))
    return tuple(parts)


def _output(state: Json) -> Any:
    output = as_dict(state.get("output"))
    structured = output.get("structured_content")
    if structured is not None:
        values = as_dict(structured)
        return (
            "\n".join(v if isinstance(v, str) else f"{k}: {v}" for k, v in values.items() if v not in ("", None))
            or structured
        )
    return output.get("content") or state.get("outputText") or output or ""
