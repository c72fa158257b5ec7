"""Read the history of claude-code: JSON lines for each session and child, and typed prompts.

A line is a block of an answer, a prompt, a result, or internal. Lines form a tree by `uuid` and `parentUuid`; a
forked session repeats the lines of its parent with their ids. This is the format of version 2.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from sakti.core.lazy import lazy_pattern
from sakti.core.text import to_one_line
from sakti.core.types import Json, MarkerPart, Part, Role, TextPart, ThinkingPart
from sakti.importers import entries, inputs
from sakti.importers.entries import Entry, Findings, Importer, Source, ThreadInfo, TodoItem

PROMPTS = "history.jsonl"
_SESSIONS = "projects/*/*.jsonl"
_CHILDREN = "projects/*/*/subagents/agent-*.jsonl"
# texts in a prompt that were written by the program
_NOTICE = lazy_pattern(
    r"\s*(?:<(?:local-command-\w+|command-\w+|bash-\w+|system-reminder|task-notification|user-memory-input)\b"
    r"|Caveat: The messages below were generated|\[Request interrupted)"
)
_REMINDER = lazy_pattern(r"<system-reminder>.*?</system-reminder>", 16)  # re.DOTALL
# lines for internal use
_METADATA = frozenset(
    "queue-operation last-prompt mode permission-mode file-history-snapshot agent-name agent-color tag pr-link progress"
    " attachment system saved_hook_context content-replacement bridge-session worktree-state".split()
)
_NOT_TYPED = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly")
_BLOCKS = frozenset(("text", "image", "document", "tool_result"))
_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
COMPACTED = MarkerPart("compaction", "claude-code compacted the conversation here.")
_STATUS = {"pending": "open", "in_progress": "in_progress", "completed": "closed"}


class ClaudeCode(Importer):
    program = "claude-code"

    def place(self, home: Path, workspace: Path) -> Path | None:
        return home / ".claude"

    def find(self, root: Path, findings: Findings) -> Iterable[Source]:
        if root.is_file():
            yield Source(self.program, root, root.parent)
            return
        for pattern in (_SESSIONS, _CHILDREN):
            for path in inputs.list_files_below(root, pattern, findings):
                session = path.parent.parent.name if pattern is _CHILDREN else path.stem
                side = (
                    tuple(inputs.list_files_below(root, f"tasks/{session}/*.json", findings))
                    if pattern is _SESSIONS
                    else ()
                )
                yield Source(self.program, path, root, side)
        for path in inputs.list_files_below(root, PROMPTS, findings):
            yield Source(self.program, path, root)

    def entries(self, source: Source, offset: int, findings: Findings) -> Iterator[Entry]:
        if source.path.name == PROMPTS:
            yield from _read_prompts(source, offset, findings)
        elif offset:
            yield from _read_session(source.path, offset, findings)
        else:
            yield from entries.iter_newest_first(lambda some: _read_session(source.path, 0, some), findings)

    def todos(self, source: Source, findings: Findings) -> Iterator[TodoItem]:
        info = ThreadInfo(source.path.stem)
        for path in source.side:
            task = inputs.as_dict(inputs.read_json(path, findings))
            if title := inputs.as_text(task, "subject"):
                number = inputs.as_text(task, "id") or path.stem
                yield TodoItem(
                    info,
                    number,
                    title,
                    inputs.as_text(task, "description"),
                    _STATUS.get(inputs.as_text(task, "status"), "open"),
                    tuple(map(str, inputs.as_list(task, "blocks"))),
                    tuple(map(str, inputs.as_list(task, "blockedBy"))),
                )


def _make_thread(path: Path, findings: Findings) -> ThreadInfo:
    """Return the thread of a file, without the fields found in its lines."""
    if path.parent.name != "subagents":
        return ThreadInfo(path.stem, file=str(path))
    session = path.parent.parent.name
    meta = inputs.as_dict(inputs.read_json(path.with_name(f"{path.stem}.meta.json"), findings))
    title = to_one_line(inputs.as_text(meta, "description"), 60)
    return ThreadInfo(f"{session}/{path.stem}", file=str(path), title=title, parent=session)


def _read_session(path: Path, offset: int, findings: Findings) -> Iterator[Entry]:
    thread, is_first = _make_thread(path, findings), True
    for line in inputs.read_lines(path, offset, findings):
        value = line.value
        if value is None:
            yield inputs.make_raw_entry(thread, line, path)
            continue
        if is_first and value.get("cwd"):
            is_first = False
            thread = ThreadInfo(
                thread.id,
                inputs.as_text(value, "cwd"),
                thread.title,
                inputs.as_text(value, "version"),
                thread.file,
                thread.parent,
            )
        yield from _line_entries(_find_thread(thread, value), line, value, path, findings)


def _find_thread(thread: ThreadInfo, value: Json) -> ThreadInfo:
    """Return the thread of a line: older versions wrote children into their parent's file."""
    if not value.get("isSidechain") or thread.parent:
        return thread
    child = inputs.as_text(value, "agentId") or "sidechain"
    return ThreadInfo(f"{thread.id}/{child}", thread.cwd, "", thread.version, thread.file, thread.id)


def _line_entries(
    thread: ThreadInfo, line: inputs.Line, value: Json, path: Path, findings: Findings
) -> Iterator[Entry]:
    kind, uuid = inputs.as_text(value, "type"), inputs.as_text(value, "uuid")
    parent = inputs.as_text(value, "parentUuid") or inputs.as_text(value, "logicalParentUuid")
    base = Entry(thread, uuid, parent=parent, time=inputs.read_time(value.get("timestamp")), kind="note", end=line.end)
    if kind in _TITLES:
        title = to_one_line(inputs.as_text(value, _TITLES[kind]), 60)
        yield Entry(
            thread, f"title:{inputs.compute_short_hash(path, line.start)}", kind="note", title=title, end=line.end
        )
    elif kind == "system" and value.get("subtype") == "compact_boundary" and uuid:
        yield _with_parts(base, "system", (COMPACTED,))
    elif kind == "assistant" and uuid:
        yield from _read_answer(base, value, findings)
    elif kind == "user" and uuid:
        yield from _read_user(base, value, line, path, findings)
    elif uuid:
        yield base
    elif kind not in _METADATA:
        yield from _report_unknown_line(thread, line, value, path, findings)


def _with_parts(base: Entry, role: Role, parts: tuple[Part, ...]) -> Entry:
    """Return the entry of a line with its parts."""
    kind = "boundary" if role == "system" else "message"
    return replace(base, role=role, parts=parts, kind=kind, counted=role in ("user", "assistant"))


def _read_answer(base: Entry, value: Json, findings: Findings) -> Iterator[Entry]:
    message = inputs.as_dict(value, "message")
    content = message.get("content")
    parts = tuple(part for block in inputs.read_blocks(content) for part in _read_answer_part(block, findings))
    if not parts or value.get("isApiErrorMessage") or value.get("isMeta"):
        yield base
        return
    is_open = message.get("stop_reason") is None
    answer = inputs.as_text(message, "id") or base.id
    yield replace(_with_parts(base, "assistant", parts), answer=answer, is_open=is_open)


def _read_answer_part(block: Json, findings: Findings) -> tuple[Part, ...]:
    kind, text = block.get("type"), inputs.as_text(block, "text")
    if kind == "text":
        return inputs.make_text_part(text)
    if kind in ("thinking", "redacted_thinking"):
        thought = inputs.as_text(block, "thinking")
        findings.dropped_thinking += not thought.strip()
        return (ThinkingPart(thought),) if thought.strip() else ()
    if kind in ("tool_use", "server_tool_use"):
        return (inputs.call_part(block.get("id"), block.get("name"), block.get("input")),)
    return (MarkerPart("raw", f"{kind}: {text}" if text else str(kind)),)


def _read_user(base: Entry, value: Json, line: inputs.Line, path: Path, findings: Findings) -> Iterator[Entry]:
    """Yield the entries of a line with role user: results, a prompt, or nothing."""
    if any(map(value.get, _NOT_TYPED)):
        yield base
        return
    blocks = inputs.read_blocks(inputs.lookup(value, "message", "content"))
    results = tuple(part for block in blocks for part in _read_result(block))
    parts = tuple(part for block in blocks for part in _read_prompt_part(block))
    _report_unknown(blocks, line, path, findings)
    if results:
        yield _with_parts(base, "tool", results)
        base = replace(base, id=f"{base.id}:text", parent=base.id)
    if parts:
        yield _with_parts(base, "user", parts)
    elif not results:
        yield base


def _report_unknown(blocks: Iterable[Json], line: inputs.Line, path: Path, findings: Findings) -> None:
    for kind in {str(block.get("type")) for block in blocks} - _BLOCKS:
        findings.add(path, line.number, f"unknown block {to_one_line(kind, 40)}")


def _read_prompt_part(block: Json) -> tuple[Part, ...]:
    if block.get("type") == "text":
        return _find_typed(inputs.as_text(block, "text"))
    source = inputs.as_dict(block, "source")
    return inputs.make_image_part(source.get("media_type"), source.get("data"))


def _read_result(block: Json) -> tuple[Part, ...]:
    if block.get("type") != "tool_result":
        return ()
    content = block.get("content")
    images: list[Part] = []
    for one in map(inputs.as_dict, inputs.as_list(content)):
        if one.get("type") == "image":
            where = inputs.as_dict(one, "source")
            images += inputs.make_image_part(where.get("media_type"), where.get("data"))
    return (inputs.make_result_part(block.get("tool_use_id"), "", content, bool(block.get("is_error"))), *images)


def _find_typed(text: str) -> tuple[Part, ...]:
    """Return the text typed by the user as parts; none if the program wrote it."""
    text = _REMINDER.sub("", text)
    return () if _NOTICE.match(text) else inputs.make_text_part(text)


def _report_unknown_line(
    thread: ThreadInfo, line: inputs.Line, value: Json, path: Path, findings: Findings
) -> Iterator[Entry]:
    """Report a line of an unknown type; its text is imported."""
    name = to_one_line(str(value.get("type")), 40)
    findings.add(path, line.number, f"unknown type {name}")
    texts = (
        inputs.join_texts(value, "content", "text", "message", "display"),
        inputs.as_text(value, "message", "content"),
    )
    if text := "\n".join(filter(None, texts)):
        yield inputs.make_raw_entry(thread, line, path, text)


def _read_prompts(source: Source, offset: int, findings: Findings) -> Iterator[Entry]:
    """Yield the typed prompts of sessions whose transcript was deleted."""
    on_disk = {path.stem for path in source.root.glob(_SESSIONS)}
    for line in inputs.read_lines(source.path, offset, findings):
        value = line.value or {}
        session, text = inputs.as_text(value, "sessionId"), inputs.as_text(value, "display")
        if session in on_disk or not text.strip() or text.startswith("/"):
            continue
        yield _make_prompt(source.path, value, line.end)


def _make_prompt(path: Path, value: Json, end: int) -> Entry:
    """Return the entry of a typed prompt; those without a session form a thread per day and project."""
    session, text = inputs.as_text(value, "sessionId"), inputs.as_text(value, "display")
    time, project = inputs.read_time(value.get("timestamp")), inputs.as_text(value, "project")
    name = session or f"{project}:{time // 86_400_000}"
    unless = (session,) if session else ()
    thread = ThreadInfo(f"prompts/{name}", project, file=str(path), unless=unless, metadata={"prompts_only": True})
    pasted = [inputs.as_text(p, "content") for p in inputs.as_dict(value, "pastedContents").values()]
    parts = tuple(TextPart(t) for t in (text, *pasted) if t.strip())
    return Entry(thread, f"prompt:{inputs.compute_short_hash(name, time, text)}", "user", parts, time, end=end)
