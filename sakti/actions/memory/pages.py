"""Declare the actions on files and pages of memory: working memory, all of a thread, a recording."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from sakti.actions.memory.log import log_lines
from sakti.actions.memory.windows import WHERE, open_memory
from sakti.actions.spec import SET, action, arg, flag, option
from sakti.actions.values import Done, Refused, Text, Value
from sakti.core.errors import SaktiError
from sakti.core.lazy import lazy_imports
from sakti.core.streams import read_input
from sakti.core.text import counted

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

with lazy_imports:
    from sakti.agent import titles as thread_titles
    from sakti.core import events as core_events
    from sakti.core import ids, tokens
    from sakti.memory import capture as recording
    from sakti.memory import modes as memory_modes
    from sakti.memory.working import pages as memory_pages
    from sakti.store import memory as stored_memory
    from sakti.store import secrets
    from sakti.store.log import lines as memory_log
    from sakti.store.threads import messages as stored_messages
    from sakti.store.threads import threads as stored_threads

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
        found = await scope.store.read(stored_threads.find, scope.resource, thread)
        if not found:
            elsewhere = await scope.store.read(stored_threads.find, None, thread)
            raise Refused(thread_titles.explain_missing(thread, elsewhere))
        owner = found[0].id
    where = "thread" if thread else "resource"
    if text is None:
        page, changed = await pages.read(owner or None), ()
    else:
        page, changed = await pages.update(owner, text, scope=where, replace=replace, actor="user")
    return Text((page,), json={"scope": where, "content": page, "changed": list(changed)})


@action(*WHERE, shell="memory export", needs="store")
async def export(scope: Scope, **where: Any) -> Value:
    """Export everything that memory holds about a thread, secrets masked, as Markdown or one JSON object."""
    async with open_memory(scope, **where) as session:
        record, read, named = session.current.engine.record_id, session.workspace.store.read, session.thread
        assert named is not None
        groups = [g for state in STATES for g in await read(stored_memory.groups, record, state)]
        lines = await read(memory_log.log_lines, record, states=STATES)
        page, own_page = await session.pages().read(), await session.pages().own(named.id)
        status = session.current.engine.status()
    shown = secrets.masked("\n\n".join(p for p in (page, own_page) if p))
    active = [replace(x, content=secrets.masked(x.content)) for x in lines if x.state == "active" and not x.forgotten]
    head = f"# {secrets.masked(named.title) or named.id}\n\n## Working memory\n\n{shown}\n\n## Observations"
    told = {
        "thread": to_builtins(named),
        "status": core_events.to_json(status),
        "working_memory": page,
        "thread_working_memory": own_page,
        "groups": [to_builtins(g) for g in groups],
        "lines": [to_builtins(x) for x in lines],
    }
    return Text((head, *(log_lines(active) or ("No observations yet.",))), json=secrets.mask_output(told))


@action(
    arg("file", "A new file; - for standard output.", default=None, offers="files"),
    flag("--blank", help="Leave out all text: each message becomes filler of the same number of tokens."),
    *WHERE,
    shell="memory capture",
    needs="store",
)
async def capture(scope: Scope, file: str | None, blank: bool, **where: Any) -> Value | None:
    """Write a thread, secrets masked, to a file that the replay benchmark plays."""
    redactor = recording.Redactor(tokens.O200k() if blank else None, str(Path.home()))
    async with open_memory(scope, **where) as session:
        assert session.thread is not None
        read, name = session.workspace.store.read, session.thread.id
        said = await read(stored_messages.after, name, -1)
        settings = memory_modes.settings_for(session.workspace.config.memory, session.current.mode)
        bundle = recording.bundle(said, await read(memory_log.actors, name), settings, redactor)
        lines = [json.dumps(x, ensure_ascii=False) for x in bundle]
    text = ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
    if file == "-":
        sys.stdout.buffer.write(text)
        return None
    path = Path(file or f"sakti-capture-{ids.short(name)}.jsonl")
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as out:
            out.write(text)
    except FileExistsError as e:
        raise SaktiError(f"{path} already exists; name another file.", title="Capture") from e
    except OSError as e:
        raise SaktiError(f"{path} cannot be written: {e.strerror}.", title="Capture") from e
    turns = len(lines) - 1
    return Done(
        f"{counted(turns, 'turn')} in {path}, {counted(redactor.found, 'secret')} masked. Read it before you share it; "
        f"`python -m tests.bench replay {path}` plays it in a checkout of sakti.",
        json={"path": str(path), "turns": turns, "masked": redactor.found},
    )
