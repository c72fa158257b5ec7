"""Read the history of vibe: per session a snapshot in chunks, and a journal of later changes.

Hashes of chunks and records are not checked. This is the format of version 3.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sakti.core.types import Json, MarkerPart, Part, ThinkingPart
from sakti.importers import inputs
from sakti.importers.entries import Entry, Findings, Importer, Source, ThreadInfo

_CHANGES = frozenset(("append_entry", "update_entry", "replace_entry", "upsert_entry", "set_entry"))
_DONE = frozenset(("completed", "failed", "cancelled", "interrupted"))


class Vibe(Importer):
    program = "vibe"

    def place(self, home: Path, workspace: Path) -> Path | None:
        return home / ".vibe" / "logs" / "session"

    def find(self, root: Path, findings: Findings) -> Iterable[Source]:
        for pattern in ("unified/*/CURRENT", "*/CURRENT", "CURRENT"):
            paths = inputs.list_files_below(root, pattern, findings)
            for path in paths:
                folder = path.parent
                journals = (*sorted(folder.glob("journal/*.jsonl")), folder / "meta.json")
                yield Source(self.program, path, root, journals)
            if paths:
                return

    def entries(self, source: Source, offset: int, findings: Findings) -> Iterator[Entry]:
        folder = source.path.parent
        current = inputs.as_dict(inputs.read_json(source.path, findings))
        meta = inputs.as_dict(inputs.read_json(folder / "meta.json", findings))
        thread = ThreadInfo(
            inputs.as_text(current, "session_id") or folder.name,
            inputs.as_text(meta, "environment", "working_directory"),
            inputs.as_text(meta, "title"),
            inputs.as_text(current, "store_format"),
            str(source.path),
            inputs.as_text(meta, "parent_session_id"),
        )
        items = _read_items(folder, current, findings)
        for item in items.values():
            yield from _iter_item_entries(thread, item, source.path, findings)


def _read_items(folder: Path, current: Json, findings: Findings) -> dict[str, Json]:
    """Return the entries of a session in order: the snapshot with the changes of the journal."""
    generation = inputs.as_text(current, "generation")
    manifest: Json = {}
    if generation:
        manifest = inputs.as_dict(inputs.read_json(folder / "generations" / generation / "manifest.json", findings))
    items = _read_snapshot(folder, manifest, findings)
    end = current.get("snapshot_sequence")
    after = end if manifest and isinstance(end, int) else 0
    for path in inputs.list_files_below(folder, "journal/*.jsonl", findings):
        for line in inputs.read_lines(path, 0, findings):
            record = line.value or {}
            number = record.get("sequence")
            if record.get("type") == "projection_delta" and isinstance(number, int) and number > after:
                _apply(items, inputs.lookup(record, "payload", "delta"))
    return items


def _read_snapshot(folder: Path, manifest: Json, findings: Findings) -> dict[str, Json]:
    """Return the entries of the chunks listed in a snapshot."""
    items: dict[str, Json] = {}
    for chunk in inputs.as_list(manifest, "projection_state", "chunks"):
        path = folder / "chunks" / f"{Path(inputs.as_text(chunk)).name}.json"
        value = inputs.read_json(path, findings)
        if value is None:
            findings.add(path, 0, "the chunk is missing")
        for item in map(inputs.as_dict, inputs.as_list(value)):
            items[inputs.as_text(item, "id")] = item
    return items


def _apply(items: dict[str, Json], delta: Any) -> None:
    for change in map(inputs.as_dict, inputs.as_list(delta)):
        item = inputs.as_dict(change, "entry")
        if change.get("op") in _CHANGES and item.get("id"):
            items[inputs.as_text(item, "id")] = item


def _iter_item_entries(thread: ThreadInfo, item: Json, path: Path, findings: Findings) -> Iterator[Entry]:
    item_id, time = inputs.as_text(item, "id"), inputs.read_time(item.get("createdAt"))
    step = inputs.as_text(item, "turnId")
    is_open = inputs.as_text(item, "generationStatus") not in _DONE
    if item.get("type") == "message":
        role = inputs.to_role(item.get("role"))
        parts = _read_parts(item, findings)
        if parts and role is not None and item.get("source") != "injected":
            answer = step if role == "assistant" else ""
            yield Entry(thread, item_id, role, parts, time, answer=answer, is_open=is_open)
    elif item.get("type") == "effect":
        call, result = _call_and_result(item_id, item)
        yield Entry(thread, item_id, "assistant", (call,), time, answer=step, is_open=is_open)
        if not is_open:
            yield Entry(thread, f"{item_id}#result", "tool", (result,), time, counted=False)
    elif text := "\n".join(inputs.as_text(b, "text") for b in inputs.as_list(item, "content")).strip():
        findings.add(path, 0, f"unknown entry {item.get('type')}")
        yield Entry(thread, item_id, parts=(MarkerPart("raw", text),), time=time, kind="raw", counted=False)


def _call_and_result(item_id: str, item: Json) -> tuple[Part, Part]:
    detail, state = inputs.as_dict(item, "detail"), inputs.as_dict(item, "state")
    name = inputs.as_text(detail, "toolName") or inputs.as_text(item, "title")
    failed = inputs.lookup(state, "display", "success") is False or item.get("generationStatus") != "completed"
    call = inputs.call_part(item_id, name, detail.get("input"))
    return call, inputs.make_result_part(item_id, name, _read_output(state), failed)


def _read_parts(item: Json, findings: Findings) -> tuple[Part, ...]:
    parts: list[Part] = []
    for block in map(inputs.as_dict, inputs.as_list(item, "content")):
        match block.get("type"):
            case "text":
                parts += inputs.make_text_part(inputs.as_text(block, "text"))
            case "thinking" | "reasoning":
                text = inputs.as_text(block, "text") or inputs.as_text(block, "thinking")
                findings.dropped_thinking += not text.strip()
                parts += (ThinkingPart(text),) if text.strip() else ()
            case _:
                parts += inputs.make_image_part(block.get("mimeType") or block.get("media_type"), block.get("data"))
    return tuple(parts)


def _read_output(state: Json) -> Any:
    output = inputs.as_dict(state, "output")
    structured = output.get("structured_content")
    if structured is not None:
        values = inputs.as_dict(structured)
        return (
            "\n".join(v if isinstance(v, str) else f"{k}: {v}" for k, v in values.items() if v not in ("", None))
            or structured
        )
    return output.get("content") or state.get("outputText") or output or ""
