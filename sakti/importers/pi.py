"""Read the history of pi: JSON lines for each session, a tree by `id` and `parentId`; version 3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from sakti.core.text import to_one_line
from sakti.core.types import Json, MarkerPart, OutputPart, Part, ThinkingPart, ToolCallPart
from sakti.importers import entries, inputs
from sakti.importers.entries import Entry, Findings, Importer, Source, ThreadInfo

COMPACTED = MarkerPart("compaction", "pi compacted the conversation here.")
_DEEPEST = 20  # most nested forks
_NOTES = frozenset(
    "model_change thinking_level_change branch_summary custom custom_message label session_info leaf".split()
)


class Pi(Importer):
    program = "pi"

    def place(self, home: Path, workspace: Path) -> Path | None:
        return home / ".pi" / "agent"

    def find(self, root: Path, findings: Findings) -> Iterable[Source]:
        if root.is_file():
            yield Source(self.program, root, root.parent)
            return
        for path in inputs.list_files_below(root, "sessions/*/*.jsonl", findings):
            yield Source(self.program, path, root)

    def entries(self, source: Source, offset: int, findings: Findings) -> Iterator[Entry]:
        if offset:
            yield from _read_session(source, offset, findings)
        else:
            yield from entries.iter_newest_first(lambda some: _read_session(source, 0, some), findings)


def _read_header(path: Path) -> Json:
    for line in inputs.read_lines(path, 0, Findings()):
        return line.value if line.value is not None and line.value.get("type") == "session" else {}
    return {}


def _find_prefix(source: Source, header: Json) -> str:
    """Return the prefix that makes entry ids unique: the session that first wrote them.

    A forked session repeats the entries of its parent with their ids. The parent may be deleted; its file is named
    after its id.
    """
    session = inputs.as_text(header, "id") or source.path.stem
    for _ in range(_DEEPEST):
        parent = Path(inputs.as_text(header, "parentSession"))
        session = parent.stem.partition("_")[2] or session
        path = _find_session(parent, source.root)
        if path is None:
            break
        header = _read_header(path)
        session = inputs.as_text(header, "id") or session
    return session


def _find_session(path: Path, root: Path) -> Path | None:
    """Return the path of a session, even if the folder of the sessions was moved."""
    for place in (path, root / "sessions" / path.parent.name / path.name):
        if path.name and inputs.is_file(place) and inputs.is_inside(place, root):
            return place
    return None


def _read_session(source: Source, offset: int, findings: Findings) -> Iterator[Entry]:
    path = source.path
    header = _read_header(path)
    version = header.get("version")
    thread = ThreadInfo(
        inputs.as_text(header, "id") or path.stem,
        inputs.as_text(header, "cwd"),
        version=str(version or ""),
        file=str(path),
    )
    prefix = _find_prefix(source, header)
    for line in inputs.read_lines(path, offset, findings):
        value = line.value
        if value is None:
            yield inputs.make_raw_entry(thread, line, path)
        elif value.get("type") != "session":
            yield from _line_entries(thread, prefix, line, value, path, findings)


def _line_entries(
    thread: ThreadInfo, prefix: str, line: inputs.Line, value: Json, path: Path, findings: Findings
) -> Iterator[Entry]:
    kind, own_id, parent = (inputs.as_text(value, key) for key in ("type", "id", "parentId"))
    base = Entry(
        thread,
        f"{prefix}:{own_id or f'@{line.start}'}",
        parent=f"{prefix}:{parent}" if parent else "",
        time=inputs.read_time(value.get("timestamp")),
        kind="note",
        end=line.end,
    )
    if kind == "message":
        yield _read_message(base, inputs.as_dict(value, "message"), findings)
    elif kind == "compaction":
        yield replace(base, kind="boundary", parts=(COMPACTED,), counted=False)
    elif kind in _NOTES:
        yield (replace(base, title=to_one_line(inputs.as_text(value, "name"), 60)) if kind == "session_info" else base)
    else:
        findings.add(path, line.number, f"unknown type {to_one_line(kind, 40)}")
        if text := inputs.join_texts(value, "text", "content", "summary", "message"):
            yield replace(base, kind="raw", parts=(MarkerPart("raw", text),), counted=False)
        else:
            yield base


def _read_message(base: Entry, message: Json, findings: Findings) -> Entry:
    role = inputs.as_text(message, "role")
    content = message.get("content")
    blocks = inputs.read_blocks(content)
    time = inputs.read_time(message.get("timestamp")) or base.time
    if role == "toolResult":
        result = inputs.make_result_part(
            message.get("toolCallId"), message.get("toolName"), content, bool(message.get("isError"))
        )
        images = [p for b in blocks for p in inputs.make_image_part(b.get("mimeType"), b.get("data"))]
        return replace(base, role="tool", parts=(result, *images), time=time, kind="message", counted=False)
    if role == "bashExecution":
        output = OutputPart(inputs.as_text(message, "command"), inputs.as_text(message, "output"))
        return replace(base, role="user", parts=(output,), time=time, kind="message", counted=False)
    parts, own_role = _read_parts(blocks, findings), inputs.to_role(role)
    if own_role is None or not parts:
        return base
    is_open = role == "assistant" and any(isinstance(p, ToolCallPart) for p in parts)
    return replace(base, role=own_role, parts=parts, time=time, kind="message", is_open=is_open)


def _read_parts(blocks: Sequence[Json], findings: Findings) -> tuple[Part, ...]:
    parts: list[Part] = []
    for block in blocks:
        match block.get("type"):
            case "text":
                parts += inputs.make_text_part(inputs.as_text(block, "text"))
            case "thinking" if inputs.as_text(block, "thinking").strip():
                parts.append(ThinkingPart(inputs.as_text(block, "thinking")))
            case "thinking":
                findings.dropped_thinking += 1
            case "toolCall":
                parts.append(inputs.call_part(block.get("id"), block.get("name"), block.get("arguments")))
            case _:
                parts += inputs.make_image_part(block.get("mimeType"), block.get("data"))
    return tuple(parts)
