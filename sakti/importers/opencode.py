"""Read the database of opencode 1.18: sessions, messages, parts and todo lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from sakti.core.errors import StoreError
from sakti.core.types import FilePart, Json, MarkerPart, Part, TextPart, ThinkingPart
from sakti.importers import inputs
from sakti.importers.entries import Entry, Findings, Importer, Source, ThreadInfo, TodoItem
from sakti.store import copies

_NAME = "opencode.db"
_SESSION = ("id", "parent_id", "directory", "title", "version", "time_created")
_STATUS = {"pending": "open", "in_progress": "in_progress", "completed": "closed", "cancelled": "closed"}
COMPACTED = MarkerPart("compaction", "opencode compacted the conversation here.")
_METADATA = frozenset(("step-start", "step-finish", "patch", "snapshot", "agent", "retry", "subtask"))


class OpenCode(Importer):
    program = "opencode"

    def place(self, home: Path, workspace: Path) -> Path | None:
        return home / ".local" / "share" / "opencode"

    def find(self, root: Path, findings: Findings) -> Iterable[Source]:
        path = root if root.is_file() else root / _NAME
        if path.is_file():
            yield Source(self.program, path, path.parent, (path.with_name(f"{path.name}-wal"),))

    def entries(self, source: Source, offset: int, findings: Findings) -> Iterator[Entry]:
        with copies.open_foreign(source.path) as db:
            yield from _read_entries(db, source.path, findings)

    def todos(self, source: Source, findings: Findings) -> Iterator[TodoItem]:
        with copies.open_foreign(source.path) as db:
            names = ("session_id", "content", "status", "position")
            for row in db.table("todo", names, "session_id, position"):
                if title := inputs.as_text(row, "content"):
                    status = _STATUS.get(inputs.as_text(row, "status"), "open")
                    yield TodoItem(ThreadInfo(str(row["session_id"])), str(row.get("position")), title, status=status)


def _read_entries(db: copies.ForeignDatabase, path: Path, findings: Findings) -> Iterator[Entry]:
    if not db.columns("session") or not db.columns("message") or not db.columns("part"):
        raise StoreError(f"{path} is not a database of opencode: a table is missing.", code="unreadable")
    order = "parent_id IS NOT NULL, time_created, id" if "parent_id" in db.columns("session") else "id"
    for row in db.table("session", _SESSION, order):
        title = inputs.as_text(row, "title")
        thread = ThreadInfo(
            str(row["id"]),
            inputs.as_text(row, "directory"),
            title,
            inputs.as_text(row, "version"),
            str(path),
            inputs.as_text(row, "parent_id"),
        )
        yield from _read_messages(db, thread, path, findings)


def _read_messages(db: copies.ForeignDatabase, thread: ThreadInfo, path: Path, findings: Findings) -> Iterator[Entry]:
    sql = "SELECT id, time_created, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    for row in db.rows(sql, (thread.id,)):
        message_id = str(row["id"])
        parts = list(db.rows("SELECT id, data FROM part WHERE message_id = ? ORDER BY id", (message_id,)))
        try:
            data = inputs.as_dict(inputs.decode_json(row["data"]))
            read = [(str(p["id"]), inputs.as_dict(inputs.decode_json(p["data"]))) for p in parts]
        except (ValueError, TypeError):
            findings.add(path, 0, f"message {message_id} is not JSON")
            texts = "\n".join(str(text) for text in (row["data"], *(p["data"] for p in parts)))
            yield Entry(thread, f"raw:{message_id}", parts=(MarkerPart("raw", texts),), kind="raw", counted=False)
            continue
        time = inputs.read_time(row["time_created"])
        if data.get("role") == "user":
            yield from _read_prompt(Entry(thread, message_id, "user", time=time, answer=message_id), read)
        else:
            yield from _read_answer(Entry(thread, message_id, "assistant", time=time, answer=message_id), data, read)


def _read_prompt(base: Entry, parts: list[tuple[str, Json]]) -> Iterator[Entry]:
    shown: list[Part] = []
    for _, part in parts:
        if part.get("type") == "text" and not part.get("synthetic") and not part.get("ignored"):
            shown += inputs.make_text_part(_unquote(inputs.as_text(part, "text")))
        elif part.get("type") == "file":
            url, name = inputs.as_text(part, "url"), inputs.as_text(part, "filename")
            shown += inputs.make_image_part(part.get("mime"), url, name) or (FilePart(name or url[:200], ""),)
    if shown:
        yield _make_entry(base, base.id, tuple(shown))


def _read_answer(base: Entry, data: Json, parts: list[tuple[str, Json]]) -> Iterator[Entry]:
    """Yield the entries of an answer: its parts in order, each result after its call."""
    is_open = not inputs.lookup(data, "time", "completed") and not data.get("error")
    if data.get("summary") is True:
        yield Entry(base.thread, base.id, parts=(COMPACTED,), time=base.time, kind="boundary", counted=False)
        return
    shown = [(part_id, own_parts) for part_id, part in parts if (own_parts := _read_part(part)) is not None]
    for part_id, own_parts in shown:
        yield _make_entry(base, part_id, own_parts, is_open)
    if not shown:
        error = inputs.as_dict(data, "error")
        text = inputs.as_text(error, "data", "message") or inputs.as_text(error, "name")
        yield _make_entry(base, base.id, (MarkerPart("error" if text else "interrupted", text),), is_open)
    for part_id, part in parts:
        if result := _read_result(part):
            entry_id = f"{part_id}#result"
            yield Entry(base.thread, entry_id, "tool", result, base.time, counted=False, is_open=is_open)


def _read_result(part: Json) -> tuple[Part, ...]:
    """Return the result of a part that is a finished call."""
    state = inputs.as_dict(part, "state")
    if part.get("type") != "tool" or state.get("status") not in ("completed", "error"):
        return ()
    failed = state.get("status") == "error"
    content = state.get("error") if failed else state.get("output")
    return (inputs.make_result_part(part.get("callID"), part.get("tool"), content, failed),)


def _read_part(part: Json) -> tuple[Part, ...] | None:
    """Return a part of an answer; None if it has no content."""
    kind, text = part.get("type"), inputs.as_text(part, "text")
    if kind == "text":
        return (TextPart(text),) if text.strip() else None
    if kind == "reasoning":
        return (ThinkingPart(text),) if text.strip() else None
    if kind == "tool":
        return (inputs.call_part(part.get("callID"), part.get("tool"), inputs.lookup(part, "state", "input")),)
    if kind in _METADATA or not text.strip():
        return None
    return (MarkerPart("raw", text),)


def _make_entry(base: Entry, entry_id: str, parts: tuple[Part, ...], is_open: bool = False) -> Entry:
    return Entry(base.thread, entry_id, base.role, parts, base.time, answer=base.answer, is_open=is_open)


def _unquote(text: str) -> str:
    """Return a prompt as typed: `opencode run` stores it quoted, as JSON."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            value = inputs.decode_json(text)
        except ValueError:
            return text
        return value if isinstance(value, str) else text
    return text
