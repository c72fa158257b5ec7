"""Read the database of Mastra: threads, messages of both shapes of content, and its memory.

The new shape is JSON with `"format": 2` and parts, whatever the column `type` says. The old one is a plain string or an
array of parts. This is the format of `@mastra/memory` 1.31 on libSQL.

Working memory is imported as a page. The newest generation of a memory record becomes an active group, older ones
become superseded groups, with their times. Groups cover the messages that Mastra observed, so that they are not
observed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sakti.core.errors import StoreError
from sakti.core.types import FilePart, Json, MarkerPart, Message, Part, ThinkingPart
from sakti.importers import inputs
from sakti.importers.entries import Entry, Findings, Importer, Source, ThreadInfo
from sakti.importers.writer import ImportWriter
from sakti.memory.log import lines
from sakti.store import copies, imports
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.imports import THREAD, EntryOrigin
from sakti.store.memory import group_rows, records
from sakti.store.memory.group_rows import Group, NewLine
from sakti.store.secrets import mask_secrets
from sakti.store.threads import messages

RESOURCE, ONLY = "mastra:", "mastra-only:"  # prefixes of resources in place of a folder
_THREAD = ("id", "resourceId", "title", "metadata", "createdAt", "updatedAt")
_MESSAGE = ("id", "thread_id", "content", "role", "type", "createdAt", "resourceId")
_DONE = frozenset(("result", "output-available", "output-error", "error"))

_RECORD = (
    *("id", "lookupKey", "scope", "resourceId", "threadId", "activeObservations", "generationCount", "lastObservedAt"),
    *("lastReflectionAt", "observedMessageIds", "observedTimezone", "bufferedObservationChunks", "createdAt"),
    *("updatedAt", "originType", "config"),
)


class Mastra(Importer):
    program = "mastra"

    def place(self, home: Path, workspace: Path) -> Path | None:
        return None

    def find(self, root: Path, findings: Findings) -> Iterable[Source]:
        paths = [root] if root.is_file() else sorted(root.glob("*.db"))
        for path in paths:
            yield Source(self.program, path, path.parent, (path.with_name(f"{path.name}-wal"),))

    def entries(self, source: Source, offset: int, findings: Findings) -> Iterator[Entry]:
        with copies.open_foreign(source.path) as db:
            yield from _read_entries(db, source, findings)


def read_threads(db: copies.ForeignDatabase, source: Source) -> dict[str, ThreadInfo]:
    """Return the threads of a database by their ids there. Raises StoreError."""
    if not db.columns("mastra_threads") or not db.columns("mastra_messages"):
        raise StoreError(f"{source.path} is not a database of Mastra: a table is missing.", code="unreadable")
    rows = list(db.table("mastra_threads", _THREAD, "createdAt"))
    resources = {inputs.as_text(row, "resourceId") for row in rows}
    prefix = ONLY if len(resources) == 1 else RESOURCE
    threads: dict[str, ThreadInfo] = {}
    for row in rows:
        metadata = read_metadata(row.get("metadata"))
        om = inputs.as_dict(metadata, "mastra", "om")
        others = {k: v for k, v in metadata.items() if k not in ("mastra", "workingMemory")}
        task = {"current_task": om.get("currentTask"), "suggested_response": om.get("suggestedResponse")}
        threads[str(row["id"])] = ThreadInfo(
            make_thread_key(source, str(row["id"])),
            f"{prefix}{inputs.as_text(row.get('resourceId'))}",
            inputs.as_text(row, "title"),
            file=str(source.path),
            metadata={name: value for name, value in (*task.items(), ("mastra", others)) if value},
        )
    return threads


def make_thread_key(source: Source, thread: str) -> str:
    """Return a thread id that is unique across databases."""
    return f"{source.key or source.path}:{thread}"


def read_metadata(value: Any) -> Json:
    try:
        return inputs.as_dict(inputs.decode_json(value)) if isinstance(value, str) else {}
    except ValueError:
        return {}


def _read_entries(db: copies.ForeignDatabase, source: Source, findings: Findings) -> Iterator[Entry]:
    threads = read_threads(db, source)
    for row in db.table("mastra_messages", _MESSAGE, "thread_id, createdAt, rowid"):
        thread_id = str(row.get("thread_id"))
        thread = threads.get(thread_id)
        if thread is None:
            findings.add(source.path, 0, f"message {row.get('id')} belongs to a missing thread")
            thread = threads[thread_id] = ThreadInfo(
                make_thread_key(source, thread_id), f"{RESOURCE}", file=str(source.path)
            )
        yield from _read_message(thread, row)


def make_entry_id(thread: ThreadInfo, message: str) -> str:
    return f"{thread.id}:{message}"


def make_results_id(thread: ThreadInfo, message: str) -> str:
    """Return the id of the entry for the results of a message's calls."""
    return f"{thread.id}:{message}#results"


def _read_message(thread: ThreadInfo, row: Json) -> Iterator[Entry]:
    message_id, time = str(row["id"]), inputs.read_time(row.get("createdAt"))
    content = row.get("content")
    role = inputs.as_text(row, "role")
    parts, results = _read_content(content)
    own_id = make_entry_id(thread, message_id)
    if role == "tool" or (results and not parts):
        yield Entry(thread, own_id, "tool", tuple(results), time)
        return
    speaking = inputs.to_role(role)
    if speaking is None:  # a system message: internal
        yield Entry(thread, own_id, kind="note", time=time)
        return
    shown = tuple(parts) or (MarkerPart("interrupted"),)
    yield Entry(thread, own_id, speaking, shown, time, answer=own_id)
    if results:
        yield Entry(thread, make_results_id(thread, message_id), "tool", tuple(results), time, counted=False)


def _read_content(content: Any) -> tuple[list[Part], list[Part]]:
    """Return the parts of a message's content, and the results of its calls."""
    text = content if isinstance(content, str) else str(content or "")
    try:
        value: Any = inputs.decode_json(text) if text[:1] in ("{", "[") else text
    except ValueError:
        value = text
    if isinstance(value, dict) and value.get("format") == 2:  # pyright: ignore[reportUnknownMemberType]
        message = inputs.as_dict(value)
        blocks = inputs.as_list(message, "parts") or [{"type": "text", "text": inputs.as_text(message, "content")}]
    elif isinstance(value, list):
        blocks = inputs.as_list(value)
    else:
        return list(inputs.make_text_part(text)), []
    return _read_blocks([inputs.as_dict(block) for block in blocks])


def _read_blocks(blocks: Sequence[Json]) -> tuple[list[Part], list[Part]]:
    parts: list[Part] = []
    results: list[Part] = []
    for block in blocks:
        kind = inputs.as_text(block, "type")
        if kind in ("tool-invocation", "tool-call", "tool-result"):
            call, result = _read_call(block)
            parts += call
            results += result
        else:
            parts += _read_part(kind, block)
    return parts, results


def _read_part(kind: str, block: Json) -> tuple[Part, ...]:
    """Return a text, thought, image or file; notes added by Mastra's memory are left out."""
    if kind == "text":
        return inputs.make_text_part(inputs.as_text(block, "text"))
    if kind == "reasoning":
        details = "".join(inputs.as_text(d, "text") for d in inputs.as_list(block, "details"))
        text = inputs.as_text(block, "reasoning") or inputs.as_text(block, "text") or details
        return (ThinkingPart(text),) if text.strip() else ()
    return _read_file(block) if kind in ("image", "file") else ()


def _read_file(block: Json) -> tuple[Part, ...]:
    name = inputs.as_text(block, "filename")
    data = block.get("data") or block.get("image") or block.get("url")
    image = inputs.make_image_part(block.get("mimeType") or block.get("mediaType"), data, name)
    return image or (FilePart(name or inputs.as_text(data)[:200], ""),)


def _read_call(block: Json) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Return a call and its result, each as parts; a block may have only one of them."""
    value = inputs.as_dict(block, "toolInvocation") or block
    call_id, name = value.get("toolCallId"), value.get("toolName")
    call = inputs.call_part(call_id, name, value.get("args", value.get("input")))
    if block.get("type") == "tool-call":
        return (call,), ()
    failed = "error" in inputs.as_text(value, "state") or bool(value.get("isError"))
    content = value.get("errorText") or value.get("error") if failed else value.get("result", value.get("output"))
    result = inputs.make_result_part(call_id, name, content, failed)
    if block.get("type") == "tool-result":
        return (), (result,)
    return (call,), (result,) if value.get("state") in _DONE else ()


class Page(Struct, frozen=True):
    thread: ThreadInfo
    content: str
    time: int
    of_thread: bool


class Generations(Struct, frozen=True):
    """Generations of one record, oldest first, and its threads."""

    rows: tuple[Json, ...]
    threads: tuple[tuple[str, ThreadInfo], ...]
    observed_at: dict[str, int]  # by thread id in Mastra: the time up to which it was observed

    @property
    def is_shared(self) -> bool:
        return self.rows[-1].get("scope") == "resource"


async def import_memory(store: Store, writer: ImportWriter, source: Source, findings: Findings) -> None:
    """Import records and pages whose threads are already imported; existing ones are not changed."""
    with copies.open_foreign(source.path) as db:
        threads = read_threads(db, source)
        pages, generations = list(_read_pages(db, threads)), list(_read_records(db, threads))
    for record in generations:
        if problem := await store.write(_write_record, writer, record):
            findings.add(source.path, 0, problem)
    for page in pages:
        if problem := await store.write(_write_page, writer, page):
            findings.add(source.path, 0, problem)


# --- reading ------------------------------------------------------------------------------------------------


def _read_pages(db: copies.ForeignDatabase, threads: dict[str, ThreadInfo]) -> Iterable[Page]:
    by_resource = {thread.cwd.partition(":")[2]: thread for thread in reversed(threads.values())}
    for row in db.table("mastra_resources", ("id", "workingMemory", "updatedAt")):
        thread, content = by_resource.get(str(row["id"])), inputs.as_text(row, "workingMemory")
        if thread is not None and content.strip():
            yield Page(thread, content, inputs.read_time(row.get("updatedAt")), of_thread=False)
    for row in db.table("mastra_threads", ("id", "metadata", "updatedAt")):
        content = inputs.as_text(read_metadata(row.get("metadata")).get("workingMemory"))
        if content.strip():
            yield Page(threads[str(row["id"])], content, inputs.read_time(row.get("updatedAt")), of_thread=True)


def _read_records(db: copies.ForeignDatabase, threads: dict[str, ThreadInfo]) -> Iterable[Generations]:
    by_key: dict[str, list[Json]] = {}
    for row in db.table("mastra_observational_memory", _RECORD, "generationCount, createdAt"):
        by_key.setdefault(str(row["lookupKey"]), []).append(row)
    observed: dict[str, int] = {}
    for row in db.table("mastra_threads", ("id", "metadata")):
        om = inputs.as_dict(inputs.as_dict(read_metadata(row.get("metadata")).get("mastra")).get("om"))
        observed[str(row["id"])] = inputs.read_time(om.get("lastObservedAt"))
    for rows in by_key.values():
        newest = rows[-1]
        if newest.get("scope") == "resource":
            name = inputs.as_text(newest, "resourceId")
            chosen = tuple((i, t) for i, t in threads.items() if t.cwd.partition(":")[2] == name)
            yield Generations(tuple(rows), chosen, observed)
        elif (thread_id := str(newest.get("threadId"))) in threads:
            at = {thread_id: inputs.read_time(newest.get("lastObservedAt"))}
            yield Generations(tuple(rows), ((thread_id, threads[thread_id]),), at)


def page_actor(run: str) -> str:
    """Return the actor name of the pages written by a run."""
    return f"import:{run}"


def _read_list(value: Any) -> list[Any]:
    try:
        return inputs.as_list(inputs.decode_json(value)) if isinstance(value, str) else []
    except ValueError:
        return []


# --- records ------------------------------------------------------------------------------------------------


class _Covered(Struct, frozen=True):
    """Observed messages of a thread: those up to index `last`."""

    thread_id: str
    resource_id: str
    messages: tuple[Message, ...]

    @property
    def last(self) -> int:
        return self.messages[-1].index if self.messages else -1


def _write_record(db: Database, writer: ImportWriter, record: Generations) -> str:
    """Store the groups of a record; return the reason if that is impossible, else ""."""
    newest = record.rows[-1]
    covered = [c for i, t in record.threads if (c := _find_covered(db, writer, record, i, t)) is not None]
    state = inputs.compute_short_hash(newest.get("activeObservations"), newest.get("bufferedObservationChunks"))
    mark = f"log:{record.threads[0][1].id}:{newest.get('id')}:{state}" if record.threads else ""
    if not covered or imports.find_entries(db, writer.program, [mark]):
        return ""
    stored = _open_record(db, writer, record, covered[0])
    if not imports.remove_imported_log(db, stored.id):
        return f"the log of {newest.get('lookupKey')} was continued in sakti; the newer one of the source was left out"
    groups = _Groups(writer, stored.id, record.is_shared)
    log = groups.make_from_generations(record.rows, covered)
    log += groups.make_from_chunks(db, _read_list(newest.get("bufferedObservationChunks")), record, covered[0])
    for group, resource_id in log:
        group_rows.insert_group(db, group, groups.make_lines(group), resource_id)
    tokens = sum(m.tokens for c in covered for m in c.messages)
    _set_figures(db, stored.id, covered[0].thread_id, record.rows, tokens)
    imports.add_origins(db, writer.program, writer.run, {mark: EntryOrigin(covered[0].thread_id, None)})
    return ""


def _open_record(db: Database, writer: ImportWriter, record: Generations, first: _Covered) -> records.Record:
    """Open the record of a thread or a workspace here."""
    newest = record.rows[-1]
    return records.get_or_create(
        db,
        records.RecordOwner(first.resource_id, None if record.is_shared else first.thread_id),
        id=writer.ids.new(),
        timezone=inputs.as_text(newest, "observedTimezone") or "UTC",
        now=inputs.read_time(newest.get("updatedAt")),
    )


def _set_figures(db: Database, record_id: str, thread_id: str, rows: Sequence[Json], tokens: int) -> None:
    newest = rows[-1]
    figures = {
        "generation_count": len(rows) - 1,
        "last_observed_at": inputs.read_time(newest.get("lastObservedAt")) or None,
        "last_reflection_at": inputs.read_time(newest.get("lastReflectionAt")) or None,
        "origin_type": "reflection" if len(rows) > 1 else "observation",
        "total_tokens_observed": tokens,
    }
    imports.set_log_figures(db, record_id, thread_id, inputs.read_time(newest.get("updatedAt")), figures)


def _find_covered(
    db: Database, writer: ImportWriter, record: Generations, thread_id: str, thread: ThreadInfo
) -> _Covered | None:
    """Return the observed messages of a thread: up to its cursor, and later ones without a gap."""
    origin = imports.find_entries(db, writer.program, [THREAD + thread.id]).get(THREAD + thread.id)
    if origin is None:
        return None
    until = record.observed_at.get(thread_id, 0)
    ahead = {str(i) for row in record.rows for i in _read_list(row.get("observedMessageIds"))}
    known_ahead = _find_message_ids(db, writer, thread, ahead)
    listed: list[Message] = []
    resource = ""
    for message in messages.list_after(db, origin.thread_id, -1):
        resource = message.resource_id
        if message.created_at > until and message.id not in known_ahead:
            break
        listed.append(message)
    return _Covered(origin.thread_id, resource, tuple(listed))


def _find_message_ids(db: Database, writer: ImportWriter, thread: ThreadInfo, ids: Iterable[str]) -> set[str]:
    """Return the ids here of Mastra's messages, and of the results of their calls."""
    keys = [key for i in ids for key in (make_entry_id(thread, i), make_results_id(thread, i))]
    return {o.message_id for o in imports.find_entries(db, writer.program, keys).values() if o.message_id}


class _Groups:
    """Builder of the groups of one record."""

    def __init__(self, writer: ImportWriter, record_id: str, is_shared: bool) -> None:
        self._writer, self._record_id, self._is_shared = writer, record_id, is_shared

    def make_from_generations(self, rows: Sequence[Json], covered: Sequence[_Covered]) -> list[tuple[Group, str]]:
        """Return a group for each generation; in a shared log also an empty group per thread."""
        first = covered[0]
        span = first.messages if not self._is_shared else ()
        out: list[tuple[Group, str]] = []
        for number, row in enumerate(rows):
            is_newest = number == len(rows) - 1
            ended = None if is_newest else inputs.read_time(rows[number + 1].get("createdAt"))
            group = self._make_group(row, inputs.as_text(row, "activeObservations"), first.thread_id, span)
            changes: dict[str, Any] = {
                "state": "active" if is_newest else "superseded",
                "kind": "reflection" if number else "observation",
                "generation": number,
                "merged_group_ids": (out[-1][0].id,) if out else (),
                "activated_at": group.created_at,
                "superseded_at": ended,
            }
            out.append((replace(group, **changes), first.resource_id))
        if self._is_shared:
            for one in covered:
                if one.messages:
                    group = self._make_group(rows[-1], "", one.thread_id, one.messages)
                    out.append((replace(group, activated_at=group.created_at), one.resource_id))
        return out

    def make_from_chunks(
        self, db: Database, chunks: Sequence[Any], record: Generations, covered: _Covered
    ) -> list[tuple[Group, str]]:
        """Return buffered groups of the chunks that follow the observed messages without a gap."""
        out: list[tuple[Group, str]] = []
        end = covered.last
        thread = record.threads[0][1]
        for chunk in map(inputs.as_dict, chunks if not self._is_shared else ()):
            ids = _find_message_ids(db, self._writer, thread, map(str, inputs.as_list(chunk, "messageIds")))
            span = tuple(sorted(messages.get_many(db, list(ids)), key=lambda m: m.index))
            if not span or any(m.index != end + 1 + n for n, m in enumerate(span)):
                break
            end = span[-1].index
            group = self._make_group(chunk, inputs.as_text(chunk, "observations"), covered.thread_id, span)
            task = {"current_task": chunk.get("currentTask"), "suggested_response": chunk.get("suggestedContinuation")}
            out.append((replace(group, state="buffered", **task), covered.resource_id))
        return out

    def _make_group(self, row: Json, text: str, thread_id: str, span: Sequence[Message]) -> Group:
        stored = mask_secrets(text)
        return Group(
            self._writer.ids.new(),
            self._record_id,
            thread_id,
            "observation",
            "active",
            stored,
            inputs.read_time(row.get("createdAt")),
            first_message_id=span[0].id if span else None,
            last_message_id=span[-1].id if span else None,
            first_index=span[0].index if span else None,
            last_index=span[-1].index if span else None,
            message_ids=tuple(m.id for m in span),
            message_tokens=sum(m.tokens for m in span),
            observation_tokens=self._writer.counter.count(stored) if stored else 0,
            metadata={"origin": "mastra", "imported": self._writer.run},
            origin="import",
        )

    def make_lines(self, group: Group) -> list[NewLine]:
        return [
            NewLine(self._writer.ids.new(), r.line, r.depth, r.date, r.time, r.priority, r.content, r.metadata)
            for r in lines.iter_rows(group.text)
            if not r.content.startswith(("<thread", "</thread"))
        ]


# --- pages --------------------------------------------------------------------------------------------------


def _write_page(db: Database, writer: ImportWriter, page: Page) -> str:
    """Store a page of working memory; return the reason if another one exists, else ""."""
    origin = imports.find_entries(db, writer.program, [THREAD + page.thread.id]).get(THREAD + page.thread.id)
    if origin is None:
        return ""
    resource = writer.workspace_of(page.thread.cwd)
    scope, owner = ("thread", origin.thread_id) if page.of_thread else ("resource", resource)
    current = records.read_working_memory(db, scope, owner)
    content = mask_secrets(page.content)
    if current is not None:
        return "" if content.strip() == current[0].strip() else f"a page of {scope} {owner} already exists and was kept"
    version = records.PageVersion(
        id=writer.ids.new(),
        scope=scope,
        owner_id=owner,
        resource_id=resource,
        content=content,
        tokens=writer.counter.count(content),
        actor=page_actor(writer.run),
        now=page.time,
    )
    records.put_working_memory(db, version, expected_version=0)
    return ""
