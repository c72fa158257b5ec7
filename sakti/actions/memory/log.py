"""Declare the actions on the log and the pages of memory: past states, corrections, recordings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import to_builtins
from msgspec.structs import replace

from sakti.actions.memory.windows import THREAD, WHERE, open_memory
from sakti.actions.scope import find_thread
from sakti.actions.spec import SET, Arg, action, arg, flag, option
from sakti.actions.values import USAGE, Done, Open, Refused, Rows, Text, Value, pick_numbered
from sakti.core.errors import SaktiError
from sakti.core.lazy import lazy_imports
from sakti.core.streams import read_input
from sakti.core.text import format_count, quote

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.agent.session.session import Session
    from sakti.store.log.lines import LogLine


with lazy_imports:
    from sakti.agent import repository
    from sakti.agent.threads import erasure
    from sakti.core import clock, tokens
    from sakti.core import events as core_events
    from sakti.memory import capture as recording
    from sakti.memory import corrections
    from sakti.memory import modes as memory_modes
    from sakti.memory import pages as memory_pages
    from sakti.store import memory as stored_memory
    from sakti.store import secrets
    from sakti.store.log import corrections as memory_corrections
    from sakti.store.log import lines as memory_log
    from sakti.store.threads import messages as stored_messages

SHORTEST_ID = 6  # minimum characters of an id; a shorter number refers to the list
SHOWN = 60  # number of newest log lines listed in a chat
LINE = arg("line", "Id of a log line, or the end of it.")
WHEN = "2026-01-15, 2026-01-15T14:30, yesterday, 90m, 2d …"
NO_OBSERVATIONS = "No observations yet. They appear as you chat; /compact writes them now."
SOURCES = "shows the messages a line was made from"
CATEGORY = "Only lines in this section of the mode: attempts, findings …"


@action(THREAD, option("--category", help=CATEGORY), SET, shell="memory log", needs="store")
async def log(scope: Scope, thread: str | None, category: str | None, overrides: list[str]) -> Value:
    """Show the observation log; other commands take the last eight characters of a line's id."""
    async with scope.memory(thread, overrides) as session:
        every = await session.views.observations() if session.thread else []
    lines = [x for x in every if not x.forgotten]
    if category is not None:
        if lines:
            _require_category(category, every if scope.json else lines)
        every = [x for x in every if x.category == category]
    shown = [x for x in every if not x.forgotten]
    return Rows(format_log(shown), empty="No observations yet.", json={"lines": to_builtins(every)})


def _require_category(category: str, lines: Sequence[LogLine]) -> None:
    """Raise `Refused` if no line is in that section of the log."""
    categories = sorted({x.category for x in lines if x.category})
    if category not in categories:
        others = f"the log has lines in {', '.join(categories)}" if categories else "no line of this log is in one"
        raise Refused(f"No line is in the section {quote(category)}; {others}.")


def format_log(lines: Sequence[LogLine]) -> tuple[str, ...]:
    """Format lines of the log for a shell, each date above its lines."""
    out: list[str] = []
    day = None
    for x in lines:
        if x.date != day:
            day = x.date
            out.append(f"\n{day}" if day else "")
        sign = {"high": "●", "medium": "○", "done": "✓"}.get(x.priority, "·")
        marks = f"{f' #{x.category}' if x.category else ''}{' pinned' if x.pinned else ''}"
        marks += f" ?{len(x.flags)}" if x.flags else ""
        out.append(f"{clock.shorten_id(x.id)} {'  ' * x.depth}{sign} {x.time} {x.text_beside_flags}{marks}")
    return tuple(out)


@action(arg("filter", default="", metavar="WORDS"), chat="observations", needs="session")
async def observations(scope: Scope, filter: str) -> Value:
    """Show the observation log."""

    async def list_rows() -> Value:
        lines = await _load_lines(scope.session)
        if filter:
            return _offer_lines(scope.session, lines, "No line matches.", words=tuple(filter.lower().split()))
        newest = f"The newest {SHOWN} of {len(lines)} lines; /observations WORDS filters all of them."
        changes = "; /observations pin, edit, forget, undo change it"
        head = newest if len(lines) > SHOWN else ""
        return _offer_lines(scope.session, lines, NO_OBSERVATIONS, SOURCES + changes, head)

    return Open("log", fallback=list_rows)


def _offer_lines(
    session: Session,
    lines: Sequence[LogLine],
    empty: str,
    what: str = SOURCES,
    head: str = "",
    *,
    words: tuple[str, ...] = (),
    json: Any = None,
) -> Rows:
    """Return numbered log lines, those with all the words or the newest; a number shows the messages."""

    async def sources(number: int) -> Value:
        messages = await session.views.sources(pick_numbered(lines, number).group_id)
        return Rows(tuple(m.text for m in messages), "messages", tuple(messages), "Its messages are not available.")

    return Rows(format_log(lines), "log", (tuple(lines), words), empty, head, what=what, pick=sources, json=json)


@action(arg("time", WHEN), *WHERE, shell="memory at", chat="observations at", needs="store")
async def at(scope: Scope, time: str, **where: Any) -> Value:
    """Show the log as it was at a time."""
    async with open_memory(scope, **where) as session:
        moment = _parse_moment(time, session)
        lines = await session.workspace.store.read(
            memory_corrections.read_log_at, session.current.engine.record_id, moment
        )
        described = {"time": moment, "lines": [to_builtins(x) for x in lines]}
        return _offer_lines(session, lines, "There were no observations.", json=described)


@action(
    arg("older", "A time, written as for `at`.", metavar="FROM"),
    arg("newer", "A time (default: now).", metavar="TO", default="now"),
    *WHERE,
    shell="memory diff",
    needs="store",
)
async def diff(scope: Scope, older: str, newer: str, **where: Any) -> Value:
    """Show what was added to the log, removed or changed between two times."""
    async with open_memory(scope, **where) as session:
        times = [_parse_moment(t, session) for t in (older, newer)]
        record = session.current.engine.record_id
        before, after = [await session.workspace.store.read(memory_corrections.read_log_at, record, t) for t in times]
        changes = corrections.diff(before, after)
    out = [f"+ {x.time} {x.content}" for x in changes.added] + [f"- {x.time} {x.content}" for x in changes.removed]
    for a, b in changes.changed:
        out.append(f"~ {a.content}\n  → {b.content}{' (pinned)' if b.pinned else ''}")
    return Text(
        tuple(out) or ("Nothing changed.",),
        json={
            "from": times[0],
            "to": times[1],
            "added": [to_builtins(x) for x in changes.added],
            "removed": [to_builtins(x) for x in changes.removed],
            "changed": [{"before": to_builtins(a), "after": to_builtins(b)} for a, b in changes.changed],
        },
    )


# --- corrections --------------------------------------------------------------------------------------------


@action(LINE, flag("--off", help="Unpin it."), *WHERE, shell="memory pin", chat="observations pin",
        needs="store")  # fmt: skip
async def pin(scope: Scope, line: str, off: bool, **where: Any) -> Value | None:
    """Keep a line word for word through every reflection."""
    return await _correct(scope, "unpin" if off else "pin", line, **where)


@action(LINE, chat="observations unpin", needs="session")
async def unpin(scope: Scope, line: str) -> Value | None:
    """Unpin a line."""
    return await _correct(scope, "unpin", line)


@action(LINE, arg("text", "The new text."), *WHERE, shell="memory edit", chat="observations edit",
        needs="store")  # fmt: skip
async def edit(scope: Scope, line: str, text: str, **where: Any) -> Value | None:
    """Correct a line; its earlier text is kept."""
    return await _correct(scope, "edit", line, text, **where)


@action(
    LINE,
    flag("--for-good", help="Erase the text, including older groups and copies; nothing restores it."),
    *WHERE,
    shell="memory forget",
    chat="observations forget",
    needs="store",
)
async def forget(scope: Scope, line: str, for_good: bool, **where: Any) -> Value | None:
    """Remove a line and its nested lines from the log and older groups; `restore` undoes it."""
    if not for_good:
        return await _correct(scope, "forget", line, **where)
    if scope.live is not None:
        copies = await scope.live.current.engine.erase(await _resolve_line(scope.live, line))
    else:
        async with open_memory(scope, **where) as session:
            copies = await session.current.engine.erase(line)
    erasure.rewrite_files(copies.without)
    return Text(ERASED)


ERASED = (
    "Erased from the log, older groups, stored requests and tool results; copies of the database were deleted.",
    "A backup that you made elsewhere still has the text.",
    "Nothing restores it: undo and `memory at` show the log without the line.",
    "The message it was made from still has the text: `threads delete-message` erases it.",
)


NEWEST = Arg("line", "Id of a line; the newest correction of any line by default.", default="")


@action(NEWEST, *WHERE, shell="memory restore", needs="store")
async def restore(scope: Scope, line: str, **where: Any) -> Value | None:
    """Undo the newest pin, edit or forget."""
    return await _correct(scope, "restore", line, **where)


@action(chat="observations undo", needs="session")
async def undo_correction(scope: Scope) -> None:
    """Undo the newest pin, edit or forget."""
    await scope.session.correct("undo")


async def _correct(
    scope: Scope,
    what: Literal["pin", "unpin", "edit", "forget", "restore"],
    line: str,
    text: str = "",
    **where: Any,
) -> Value | None:
    if scope.live is not None:
        await scope.live.correct(what, await _resolve_line(scope.live, line), text)
        return None  # the session shows a notice
    async with open_memory(scope, **where) as session:
        if what == "restore":
            done = await session.current.engine.undo_correction(line or None)
        else:
            done = await session.current.engine.correct(line, what, text)
    verb = {"pin": "Pinned", "unpin": "Unpinned", "forget": "Forgotten"}.get(what)
    changed = (done.before or "(forgotten)", f"→ {done.after or '(forgotten)'}")
    return Text((f"{verb}: {done.before}",) if verb else changed, json=to_builtins(done))


async def _load_lines(session: Session) -> list[LogLine]:
    return [x for x in await session.views.observations() if not x.forgotten]


async def _resolve_line(session: Session, line: str) -> str:
    """Return the id of a log line, given by its id or by its number in the list."""
    if line.isdecimal() and len(line) < SHORTEST_ID:
        return pick_numbered(await _load_lines(session), int(line)).id
    return line


def _parse_moment(text: str, session: Session) -> int:
    moment = corrections.parse_time(text.strip(), session.workspace.clock.now(), repository.find_local_timezone())
    if moment is None:
        times = "2026-01-15, 2026-01-15T14:30, yesterday, 90m, 2d or now"
        raise Refused(f"write a time as {times}, not {quote(text, 40)}.", code=USAGE)
    return moment


STATES = ("active", "buffered", "superseded", "discarded")


@action(
    option("--update", metavar="TEXT", help="Sections to write; - for standard input."),
    flag("--replace", help="Replace the whole page with TEXT."),
    option("--thread", metavar="THREAD", help="That thread's own page instead of the workspace's.", offers="threads"),
    SET,
    shell="memory working",
    needs="store",
)
async def working(scope: Scope, update: str | None, replace: bool, thread: str | None, overrides: list[str]) -> Value:
    """Show or change the page of stable facts: the workspace's, or a thread's own."""
    memory = scope.settings(overrides).config.memory
    text = read_input().decode("utf-8", "replace") if update == "-" else update
    pages, owner = memory_pages.Pages(scope.store, tokens.O200k(), memory, scope.board), ""
    if thread:
        owner = (await find_thread(scope, thread, scope.resource)).id
    where = "thread" if thread else "resource"
    if text is None:
        page, changed = await pages.read(owner or None), ()
    else:
        page, changed = await pages.update(owner, text, scope=where, replace=replace, actor="user")
    return Text((page,), json={"scope": where, "content": page, "changed": list(changed)})


@action(*WHERE, shell="memory export", needs="store")
async def export(scope: Scope, **where: Any) -> Value:
    """Export the memory of a thread, with secrets masked, as Markdown or one JSON object."""
    async with open_memory(scope, **where) as session:
        record, read, named = session.current.engine.record_id, session.workspace.store.read, session.thread
        assert named is not None
        groups = [g for state in STATES for g in await read(stored_memory.list_groups, record, state)]
        lines = await read(memory_log.read_lines, record, states=STATES)
        page, own_page = await session.pages().read(), await session.pages().read_thread_page(named.id)
        status = session.current.engine.status()
    shown = secrets.mask_secrets("\n\n".join(p for p in (page, own_page) if p))
    active = [
        replace(x, content=secrets.mask_secrets(x.content)) for x in lines if x.state == "active" and not x.forgotten
    ]
    head = f"# {secrets.mask_secrets(named.title) or named.id}\n\n## Working memory\n\n{shown}\n\n## Observations"
    described = {
        "thread": to_builtins(named),
        "status": core_events.to_json(status),
        "working_memory": page,
        "thread_working_memory": own_page,
        "groups": [to_builtins(g) for g in groups],
        "lines": [to_builtins(x) for x in lines],
    }
    return Text((head, *(format_log(active) or ("No observations yet.",))), json=secrets.mask_output(described))


@action(
    arg("file", "A new file; - for standard output.", default=None, offers="files"),
    flag("--blank", help="Leave out all text: each message becomes filler of the same number of tokens."),
    *WHERE,
    shell="memory capture",
    needs="store",
)
async def capture(scope: Scope, file: str | None, blank: bool, **where: Any) -> Value | None:
    """Write a thread, secrets masked, to a file that the replay benchmark can replay."""
    redactor = recording.Redactor(tokens.O200k() if blank else None, str(Path.home()))
    async with open_memory(scope, **where) as session:
        assert session.thread is not None
        read, name = session.workspace.store.read, session.thread.id
        messages = await read(stored_messages.list_after, name, -1)
        settings = memory_modes.apply_mode(session.workspace.config.memory, session.current.mode)
        bundle = recording.iter_bundle(messages, await read(memory_log.list_actor_calls, name), settings, redactor)
        lines = [json.dumps(x, ensure_ascii=False) for x in bundle]
    text = ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
    if file == "-":
        sys.stdout.buffer.write(text)
        return None
    path = Path(file or f"sakti-capture-{clock.shorten_id(name)}.jsonl")
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as out:
            out.write(text)
    except FileExistsError as e:
        raise SaktiError(f"{path} already exists; name another file.", title="Capture") from e
    except OSError as e:
        raise SaktiError(f"{path} cannot be written: {e.strerror}.", title="Capture") from e
    turns, secrets = len(lines) - 1, redactor.secrets
    return Done(
        f"{format_count(turns, 'turn')} in {path}, {format_count(secrets, 'secret')} masked. Read it before you share"
        f" it; `python -m tests.bench replay {path}` plays it in a checkout of sakti.",
        json={"path": str(path), "turns": turns, "masked": secrets},
    )
