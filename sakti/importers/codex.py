"""Read the history of codex: a rollout of JSON lines for each session.

Only lines of type `response_item` are imported, since events repeat them. A fork names the session that it continues
and the line at which it begins; older versions copied the earlier lines. This is the format of version 0.169.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from sakti.core.lazy import lazy_pattern
from sakti.core.text import to_one_line
from sakti.core.types import Json, MarkerPart, Part, Role, ThinkingPart, ToolCallPart
from sakti.importers import inputs
from sakti.importers.entries import Entry, Findings, Importer, Source, ThreadInfo

_SESSIONS = ("sessions/**/rollout-*.jsonl", "archived_sessions/**/rollout-*.jsonl")
_IMPORTED = "external_agent_session_imports.json"  # sessions of other programs that codex imported itself
_NOTICE = lazy_pattern(
    r"\s*(?:<(?:environment_context|user_instructions|INSTRUCTIONS|turn_aborted|skill|user_shell_command"
    r"|subagent\w*|permissions|collaboration_mode)\b|# AGENTS\.md instructions)"
)
_LINES = frozenset(
    "session_meta response_item event_msg turn_context world_state token_usage_record compacted ghost_snapshot"
    " session_state".split()
)
_CALLS = frozenset(("function_call", "custom_tool_call", "local_shell_call"))
_RESULTS = frozenset(("function_call_output", "custom_tool_call_output", "local_shell_call_output"))
COMPACTED = MarkerPart("compaction", "codex compacted the conversation here.")
_ENDS = ("task_complete", "turn_complete", "turn_aborted")  # events that end an answer
_DEEPEST = 20  # most nested forks
_ID = lazy_pattern(r"[\w-]+")
_IGNORED = frozenset(("web_search_call", "ghost_snapshot", "compaction", "other"))


class Codex(Importer):
    program = "codex"

    def place(self, home: Path, workspace: Path) -> Path | None:
        return home / ".codex"

    def find(self, root: Path, findings: Findings) -> Iterable[Source]:
        if root.is_file():
            yield Source(self.program, root, root.parent)
            return
        copies = _find_copies(root, findings)
        paths = [path for pattern in _SESSIONS for path in inputs.list_files_below(root, pattern, findings)]
        for path in sorted(paths, key=lambda path: path.name):  # by time: parents first
            if not any(session in path.name for session in copies):
                yield Source(self.program, path, root)

    def entries(self, source: Source, offset: int, findings: Findings) -> Iterator[Entry]:
        rollout = _Rollout(source.path, findings)
        entries = rollout.entries(offset)
        originals = iter(()) if offset or rollout.thread.parent else _read_originals(rollout, source.root)
        yield from _join_fork(entries, originals, rollout.has_copies)


def _find_copies(root: Path, findings: Findings) -> set[str]:
    """Return the ids of sessions that codex imported from files that still exist."""
    value = inputs.read_json(root / _IMPORTED, findings)
    records = inputs.as_list(value) or inputs.as_list(value, "imports") or inputs.as_list(value, "records")
    copies: set[str] = set()
    for record in map(inputs.as_dict, records):
        source = inputs.as_text(record, "source_path") or inputs.as_text(record, "path")
        session = inputs.as_text(record, "imported_thread_id") or inputs.as_text(record, "thread_id")
        if source and session and inputs.is_file(Path(source)):
            copies.add(session)
    return copies


def _read_originals(rollout: _Rollout, root: Path, depth: int = 0) -> Iterator[Entry]:
    """Yield the entries of the session that a fork continues, up to the fork."""
    name, base = inputs.as_text(rollout.head, "forked_from_id"), inputs.as_dict(rollout.head, "history_base")
    if not name or depth > _DEEPEST or not _ID.fullmatch(name):
        return
    for pattern in _SESSIONS:
        for path in inputs.list_files_below(root, pattern.replace(".jsonl", f"{name}.jsonl"), Findings()):
            before, end = _Rollout(path, Findings()), base.get("end_ordinal_exclusive")
            originals = _read_originals(before, root, depth + 1)
            entries = before.entries(0, end if isinstance(end, int) else math.inf)
            if not before.has_copies:
                yield from originals
                originals = iter(())
            yield from _join_fork(entries, originals, before.has_copies)
            return


def _join_fork(entries: Iterator[Entry], originals: Iterator[Entry], has_copies: bool) -> Iterator[Entry]:
    """Yield the entries of a fork: copied ones under their original ids, then the rest."""
    last = ""
    originals = (original for original in originals if original.kind != "end")
    for original in () if has_copies else originals:
        last = original.id
    for entry in entries:
        if entry.kind == "end":
            yield entry
            continue
        original = next(originals, None)
        if original is not None and (original.role, original.parts) == (entry.role, entry.parts):
            last = original.id
            yield replace(entry, id=last)
        else:
            yield replace(entry, parent=last) if last else entry
            last, originals = "", iter(())


class _Rollout:
    def __init__(self, path: Path, findings: Findings) -> None:
        self._path, self._findings = path, findings
        self.thread = ThreadInfo(path.stem[-36:], file=str(path))
        self._step = 0  # number of the current run of lines by the model
        self.head = self._read_head()

    @property
    def has_copies(self) -> bool:
        """Return whether a fork repeats the earlier lines."""
        return "history_base" not in self.head

    def entries(self, offset: int, end: float = math.inf) -> Iterator[Entry]:
        """Yield the entries from an offset on, up to a line with the ordinal `end`."""
        for line in inputs.read_lines(self._path, offset, self._findings):
            value = line.value
            if value is None:
                yield inputs.make_raw_entry(self.thread, line, self._path)
                continue
            ordinal = value.get("ordinal")
            if isinstance(ordinal, int) and ordinal >= end:
                return
            yield from self._line_entries(line, value)

    def _line_entries(self, line: inputs.Line, value: Json) -> Iterator[Entry]:
        kind, payload = inputs.as_text(value, "type"), inputs.as_dict(value, "payload")
        if kind == "session_meta" and not self.head:  # later ones were copied from the session before a fork
            self.head = self._read_meta(payload)
        elif kind == "compacted":
            yield self._make_entry(line, value, "system", (COMPACTED,))
        elif kind == "response_item":
            yield from self._read_item(line, value, payload)
        elif kind == "event_msg" and payload.get("type") in _ENDS:
            yield Entry(self.thread, f"end:{line.start}", kind="end", end=line.end)
        elif kind not in _LINES:
            yield from self._report_unknown(line, value, kind)

    def _read_head(self) -> Json:
        """Return the session's data from the first line."""
        for line in inputs.read_lines(self._path, 0, Findings()):
            if line.value is not None and line.value.get("type") == "session_meta":
                return self._read_meta(inputs.as_dict(line.value, "payload"))
            break
        return {}

    def _read_meta(self, payload: Json) -> Json:
        session = inputs.as_text(payload, "id") or self.thread.id
        spawn = inputs.as_dict(payload, "source", "subagent", "thread_spawn")
        parent = inputs.as_text(spawn, "parent_thread_id")
        cwd, version = inputs.as_text(payload, "cwd"), inputs.as_text(payload, "cli_version")
        self.thread = ThreadInfo(session, cwd, "", version, str(self._path), parent)
        return payload

    def _make_entry(self, line: inputs.Line, value: Json, role: Role, parts: tuple[Part, ...]) -> Entry:
        thread = self.thread
        number = value.get("ordinal")
        entry_id = f"{thread.id}:{number if isinstance(number, int) else f'@{line.start}'}"
        if role != "assistant":
            self._step += 1
        is_answer = role == "assistant"
        return Entry(
            thread,
            entry_id,
            role,
            parts,
            inputs.read_time(value.get("timestamp")),
            answer=f"{thread.id}:{self._step}" if is_answer else "",
            kind="boundary" if role == "system" else "message",
            counted=role in ("user", "assistant"),
            is_open=is_answer,
            end=line.end,
        )

    def _read_item(self, line: inputs.Line, value: Json, payload: Json) -> Iterator[Entry]:
        kind = inputs.as_text(payload, "type")
        if kind == "message":
            parts, role = _read_message(payload), inputs.to_role(payload.get("role"))
            if parts and role is not None:  # other roles are internal
                yield self._make_entry(line, value, role, parts)
        elif kind == "reasoning":
            blocks = (*inputs.as_list(payload, "summary"), *inputs.as_list(payload, "content"))
            text = "\n\n".join(filter(None, (inputs.as_text(block, "text") for block in blocks)))
            self._findings.dropped_thinking += bool(not text.strip() and payload.get("encrypted_content"))
            if text.strip():
                yield self._make_entry(line, value, "assistant", (ThinkingPart(text),))
        elif kind in _CALLS:
            yield self._make_entry(line, value, "assistant", (_read_call(payload),))
        elif kind in _RESULTS:
            yield self._make_entry(line, value, "tool", (_read_result(payload),))
        elif kind not in _IGNORED:
            yield from self._report_unknown(line, payload, f"item {kind}")

    def _report_unknown(self, line: inputs.Line, value: Json, kind: str) -> Iterator[Entry]:
        self._findings.add(self._path, line.number, f"unknown type {to_one_line(kind, 40)}")
        payload = inputs.as_dict(value, "payload") or value
        if text := inputs.join_texts(payload, "text", "message", "content"):
            yield inputs.make_raw_entry(self.thread, line, self._path, text)


def _read_message(payload: Json) -> tuple[Part, ...]:
    """Return the parts of a prompt or an answer, without text that the program added to a prompt."""
    parts: list[Part] = []
    is_answer = payload.get("role") == "assistant"
    sources = inputs.as_list(payload, "internal_chat_message_metadata_passthrough", "content_item_metadata")
    for number, block in enumerate(map(inputs.as_dict, inputs.as_list(payload, "content"))):
        source = inputs.as_dict(sources[number]) if number < len(sources) else {}
        written_by = inputs.as_text(source, "provenance", "type") or "user"
        text = inputs.as_text(block, "text")
        if block.get("type") == "input_image":
            parts += inputs.make_image_part("", block.get("image_url"))
        elif is_answer or (written_by == "user" and not _NOTICE.match(text)):
            parts += inputs.make_text_part(text)
    return tuple(parts)


def _read_call(payload: Json) -> ToolCallPart:
    action = inputs.as_dict(payload, "action")
    if payload.get("type") == "local_shell_call":
        return inputs.call_part(payload.get("call_id") or payload.get("id"), "shell", action)
    arguments = payload.get("arguments") if "arguments" in payload else payload.get("input")
    return inputs.call_part(payload.get("call_id"), payload.get("name"), arguments)


def _read_result(payload: Json) -> Part:
    output = payload.get("output")
    if isinstance(output, str) and output.startswith('{"output":'):  # older versions wrap it
        try:
            from_json = inputs.decode_json(output)
        except ValueError:
            from_json = output
        output = from_json
    inner = inputs.as_dict(output)
    failed = inner.get("success") is False
    content = inner.get("content", inner.get("output", output)) if inner else output
    return inputs.make_result_part(payload.get("call_id"), "", content, failed)
