"""Declare the actions on threads: `/threads`, `/resume`, `/new`, `/rename`, `sakti threads`."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from sakti.actions.spec import CHAT, IMPORT_PROGRAMS, CommandGroup, action, arg, flag, limit, option
from sakti.actions.values import USAGE, Done, Open, Refused, Rows, Text, Value, pick_numbered
from sakti.core.lazy import lazy_imports
from sakti.core.text import format_count, format_minute, quote

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.agent.session.queries import ThreadSummary
    from sakti.core.types import Thread


with lazy_imports:
    from sakti.agent import moved_folder
    from sakti.agent import titles as thread_titles
    from sakti.agent.session import queries as session_queries
    from sakti.agent.threads import actions as thread_actions
    from sakti.agent.threads import export as thread_export
    from sakti.agent.threads import history
    from sakti.core import calls
    from sakti.core import types as core_types
    from sakti.store import imports, secrets, user_state
    from sakti.store.log import lines as memory_log
    from sakti.store.threads import messages as stored_messages
    from sakti.store.threads import removal as thread_removal
    from sakti.store.threads import threads as stored_threads

GROUP = CommandGroup("threads", "The threads of this workspace.", CHAT)
FORMS = ("md", "json", "html")
SHORTEST = 6  # minimum characters of a message's id
WHICH = arg("thread", "Id, the end of it, or part of the title.", offers="threads")
WHAT = "continues a thread; /threads rename, fork, delete, restore, export act on one"


def _describe_summary(summary: ThreadSummary) -> dict[str, Any]:
    return {
        **to_builtins(summary.thread),
        "preview": summary.preview,
        "messages": summary.messages,
        "tokens": summary.tokens,
        "undone": [b.thread.id for b in summary.undone],
        "children": [c.thread.id for c in summary.children],
        "state": summary.state,
    }


@action(limit(20), flag("--deleted", help="Only deleted threads."),
        flag("--all-workspaces", help="Threads of all workspaces."),
        option("--origin", metavar="NAME", choices=IMPORT_PROGRAMS, help="Only threads imported from a program."),
        shell="threads list", chat="threads",
        needs="store", summary="list threads; those of `sakti run` are marked")  # fmt: skip
async def list_(scope: Scope, limit: int, deleted: bool, all_workspaces: bool, origin: str | None = None) -> Value:
    """List threads, newest first."""
    if deleted:
        return await _list_deleted(scope)

    async def list_rows() -> Value:
        live = scope.live
        where = None if all_workspaces else scope.resource
        rows = await scope.store.read(
            stored_threads.list_summaries, where, limit if live is None else 100, origin or ""
        )
        listed = [session_queries.ThreadSummary.of(row) for row in rows]
        titles = thread_titles.number_equal_titles(s.thread for s in listed)
        summaries = [each for s in listed for each in (s, *s.children)]

        async def go_on(number: int) -> None:
            if live is not None:
                await live.open_thread(pick_numbered(summaries, number).thread.id)

        return Rows(
            tuple(_format_row(s, titles.get(s.thread.id, s.thread.title), all_workspaces) for s in summaries),
            "threads",
            tuple(summaries),
            "No thread yet." if all_workspaces else "No thread in this workspace yet.",
            what=WHAT,
            pick=go_on if live is not None else None,
            json={"threads": [_describe_summary(s) for s in summaries]},
        )

    return Open("threads", fallback=list_rows)


def _format_row(summary: ThreadSummary, title: str, with_workspace: bool) -> str:
    thread = summary.thread
    origin = imports.get_origin(thread.metadata)
    run = "run: " if thread.metadata.get(thread_titles.HEADLESS) else f"{origin}: " if origin else ""
    where = f"  ({thread.resource_id})" if with_workspace else ""
    size = f"{format_count(summary.messages, 'message'):>14} {summary.tokens:>8} tokens"
    undone = f"  ↶ {format_count(len(summary.undone), 'undone branch', 'undone branches')}" if summary.undone else ""
    indent = f"  └ {core_types.STATE_SYMBOLS[summary.state]} " if summary.state else "  └ " if thread.parent_id else ""
    state = f"  ({core_types.describe_state(summary.state)})" if summary.state else ""
    return f"{thread.id[-8:]}  {format_minute(thread.updated_at)}  {size}  {indent}{run}{title}{state}{undone}{where}"


async def _list_deleted(scope: Scope) -> Value:
    deleted = await scope.store.read(thread_removal.list_deleted, scope.resource)
    lines = tuple(f"{c.thread.id[-8:]}  deleted {format_minute(c.deleted_at or 0)}  {c.in_words()}" for c in deleted)
    empty = "No deleted thread in this workspace."
    return Rows(lines, empty=empty, json={"threads": [c.as_json() for c in deleted]})


@action(arg("old", "Path of the folder before it was moved.", metavar="OLD"), shell="threads adopt",
        chat="threads adopt", needs="store")  # fmt: skip
async def adopt(scope: Scope, old: str) -> Value:
    """Take over threads, tasks and page of this folder's old path, but not trust, rules and checkpoints."""
    root = os.path.normpath(scope.workspace / Path(old).expanduser())
    if root == scope.resource:
        raise Refused(f"{root} is this workspace.", code=USAGE)
    stored = await scope.store.read(user_state.count_holdings, root)
    if stored.is_empty:
        raise Refused(f"Nothing is stored under {root}. `sakti threads list --all-workspaces` shows all threads.")
    if Path(root).exists():
        raise Refused(f"{root} still exists and keeps its threads. Adopting is for folders that were moved.")
    moved = await scope.store.write(user_state.adopt_workspace, root, scope.resource)
    return Done(f"Adopted {moved_folder.describe(moved)} of {root}.", json=to_builtins(moved))


@action(WHICH, shell="threads show", needs="store")
async def show(scope: Scope, thread: str) -> Value:
    """Show the messages of a thread."""
    shown = (await _find_threads(scope, thread))[0]
    rows = thread_removal.skip_deleted(await scope.store.read(stored_messages.list_after, shown.id, -1))
    lines = tuple(
        f"── {m.role} · {format_minute(m.created_at)} · {m.id[-8:]}\n{calls.format_parts(m.parts)}\n" for m in rows
    )
    messages = [thread_export.message_to_json(m) for m in rows]
    return Text(lines, json={"thread": to_builtins(shown), "messages": messages})


@action(WHICH, arg("step", "Number of the model call (default: the newest).", kind="whole", default=None, low=1),
        shell="threads request", needs="store")  # fmt: skip
async def request(scope: Scope, thread: str, step: int | None) -> Value:
    """Show the request that a past step sent: tools, blocks, messages."""
    target = await _find_thread(scope, thread)
    past = await scope.store.read(history.read_request, target.id, step)
    if past is None:
        raise Refused(history.explain_no_request(step))
    past = secrets.mask_output(past)
    at = past.step
    head = f"Step {at.number} · {at.model} · {format_minute(at.created_at)} · {at.input_tokens:,} tokens in\n"
    lines = (f"── {p.kind}{'' if p.index is None else f' {p.index}'}\n{p.text}\n" for p in past.pieces)
    described = {"step": at.number, "model": at.model, "created_at": at.created_at, **past.settings}
    return Text((head, *lines), json={**described, "pieces": [to_builtins(p) for p in past.pieces]})


@action(WHICH, arg("title"), shell="threads rename", chat="threads rename", needs="store")
async def rename(scope: Scope, thread: str, title: str) -> Value:
    """Set a thread's title."""
    async with _open_actions(scope) as actions:
        target = await _find_thread(scope, thread)
        sentence = await actions.rename(target.id, title)
        return Done(sentence, json={"thread": to_builtins((await actions.contents(target.id)).thread)})


@action(arg("title"), chat="rename", hint="TITLE", needs="session")
async def rename_open(scope: Scope, title: str) -> Value:
    """Write a title for this thread."""
    await scope.session.rename(title)
    return Done(f"Renamed to {quote(title, 200)}.")


@action(
    WHICH,
    option("--upto", kind="whole", low=0, metavar="N", help="Index of the last message to copy."),
    shell="threads fork",
    chat="threads fork",
    needs="store",
)
async def fork(scope: Scope, thread: str, upto: int | None) -> Value | None:
    """Start a new thread from the messages of another one and their observations."""
    async with _open_actions(scope) as actions:
        copied = await actions.fork((await _find_thread(scope, thread)).id, upto)
    if scope.live is not None:
        await scope.live.open_thread(copied.id)
        return None
    text = f"{copied.id[-8:]}  {copied.title}: {format_count(copied.metadata['forked_at'] + 1, 'message')}."
    return Done(f"{text} `sakti -r {copied.id[-8:]}` continues it.", json={"thread": to_builtins(copied)})


@action(WHICH, shell="threads delete", chat="threads delete", needs="store")
async def delete(scope: Scope, thread: str) -> Value:
    """Delete a thread from lists and search; `restore` undoes it, `sakti db purge` removes it for good."""
    async with _open_actions(scope) as actions:
        target = await _find_thread(scope, thread)
        removed = await actions.delete(target.id)
    back = "/threads restore" if scope.live is not None else f"`sakti threads restore {target.id[-8:]}`"
    return Done(f"Deleted {removed.in_words()}. {back} restores it.", json=removed.as_json())


@action(arg("message", "Id, or the end of it: `threads show` has them."), shell="threads delete-message",
        needs="store")  # fmt: skip
async def delete_message(scope: Scope, message: str) -> Value:
    """Delete one message (a call with its result) from thread, search, exports and prompt history."""
    if len(message) < SHORTEST:
        raise Refused(f"write at least the last {SHORTEST} characters of the message's id.", code=USAGE)
    stored = await scope.store.read(memory_log.find_message, scope.resource, message)
    if stored is None:
        raise Refused(f"No message of this workspace has an id that ends with {quote(message)}.")
    async with _open_actions(scope) as actions:
        removed = await actions.delete_message(stored[0])
    text = "Removed" if len(removed.message_ids) == 1 else "Removed, the call with its result"
    if removed.copies:
        text += f", also from {format_count(len(removed.copies), 'forked or undone thread')}"
    text += ", from the database and its copies; undo and time travel do not show it."
    if count := removed.lines + sum(c.lines for c in removed.copies):
        lines = format_count(count, "log line was", "log lines were")
        text += f" {lines} made from it and the messages around it:"
        text += " `sakti memory log` shows them, `sakti memory forget` removes one."
    return Done(text, json=to_builtins(removed))


@action(arg("thread", "Id, the end of it, or part of the title (default: the one deleted last).", default="",
            offers="deleted threads"),
        shell="threads restore", chat="threads restore", needs="store")  # fmt: skip
async def restore(scope: Scope, thread: str) -> Value:
    """Restore a deleted thread."""
    async with _open_actions(scope) as actions:
        if thread:
            deleted = await scope.store.read(thread_removal.find_deleted, scope.resource, thread)
            matches = thread_titles.narrow_matches(thread, deleted)
        else:
            last = await actions.find_last_deleted()
            if last is None:
                raise Refused("This workspace has no deleted thread.")
            matches = [last]
        if len(matches) != 1:
            listed = "`sakti threads list --deleted` shows them."
            raise Refused(f"{quote(thread)} matches {len(matches)} deleted threads; {listed}")
        restored = await actions.restore(matches[0].id)
    return Done(f"Restored {quote(restored.title or 'untitled')}.", json={"thread": to_builtins(restored)})


@action(
    WHICH,
    option("--format", name="form", default="md", choices=FORMS, in_chat=True, help="Format of the file."),
    option("-o", "--output", kind="path", metavar="FILE", help="File to write (default: standard output)."),
    shell="threads export",
    chat="threads export",
    needs="store",
    json=False,
)
async def export(scope: Scope, thread: str, form: str, output: Path | None) -> Value:
    """Export a thread with its observation log as Markdown, JSON or one self-contained HTML page."""
    chosen = thread_actions.check_form(form)
    target = await _find_thread(scope, thread)
    if output is None and scope.live is None:
        text = await scope.store.read(thread_actions.export_text, target.id, chosen)
        return Text((text.removesuffix("\n"),), kind="" if chosen == "md" else "document")
    async with _open_actions(scope) as actions:
        path = await actions.export(target.id, form, output)
    return Done(f"Written to {path}.", shell=(str(path),))


@action(
    arg("form", default="md", offers=FORMS),
    arg("file", kind="path", default=None),
    chat="export",
    hint="[md | json | html] [FILE]",
    needs="session",
    summary="export this thread as Markdown, JSON or HTML to a file, by default in the workspace",
)
async def export_open(scope: Scope, form: str, file: Path | None) -> Value:
    """Export the open thread to a file; its name may choose the format."""
    if file is None and "." in form:
        file = Path(form)
        form = file.suffix.removeprefix(".").lower()
    chosen = {"markdown": "md", "htm": "html"}.get(form, form)
    if chosen not in FORMS:
        raise Refused(
            f"{quote(form)} is not one of {', '.join(FORMS)}: /export {FORMS[-1]}, or a file name with such an ending."
        )
    session = scope.session
    if session.thread is None or session.current.is_new:
        raise Refused("This thread has no messages yet.")
    target = session.workspace.root / file.expanduser() if file else None
    path = await thread_actions.ThreadActions(session).export(
        session.thread.id, thread_actions.check_form(chosen), target
    )
    return Done(f"Written to {path}.", title="Export")


@action(
    arg("what", default="answer", choices=("answer", "code")),
    chat="copy",
    hint="[code]",
    needs="session",
    summary="copy the last answer, or its last code block, to the clipboard",
)
async def copy(scope: Scope, what: str) -> Value:
    """Copy the last answer, or its last code block, to the clipboard."""
    session = scope.session
    page = await session.views.transcript(session.thread.id) if session.thread is not None else []
    answers = [m.text for m in page if m.role == "assistant" and m.text.strip()]
    if not answers:
        raise Refused("This thread has no answer yet.")
    text = secrets.mask_secrets(answers[-1])
    if what == "code":
        blocks = thread_export.list_code_blocks(text)
        if not blocks:
            raise Refused("The last answer has no code block.")
        text = blocks[-1]
    missing = "Plain mode has no clipboard; /last repeats the answer, /export writes the thread to a file."
    return Open("copy", text, missing=missing)


@action(chat="new", needs="session", after_turn="start a new thread")
async def new(scope: Scope) -> None:
    """Start a new thread."""
    await scope.session.new_thread()


@action(
    arg("which", default="", offers=("yes",)),
    chat="delete-message",
    summary="delete the last message for good (3: the third last); a preview comes first, `yes` deletes it",
    hint="[N | yes]",
    needs="session",
    after_turn="delete the message",
)
async def delete_newest(scope: Scope, which: str) -> Value:
    """Delete a message of this thread for good; a preview comes first."""
    deletion = scope.state.setdefault("delete-message", thread_actions.OneMessage(scope.session))
    return Done(await deletion.run(which), title="Delete a message")


@action(arg("thread", default=""), chat="resume", hint="[THREAD]", needs="session", after_turn="open another thread")
async def resume(scope: Scope, thread: str) -> Value | None:
    """Switch to another thread."""
    if not thread:
        return await list_.run(scope, limit=100, deleted=False, all_workspaces=False)
    await scope.session.open_thread((await _find_threads(scope, thread))[0].id)
    return None


async def _find_threads(scope: Scope, text: str) -> Sequence[Thread]:
    """Return the selected threads, newest first; in a chat also by list number. Raises Refused."""
    if scope.live is None:
        matches = await scope.store.read(stored_threads.find, scope.resource, text)
    else:
        listed = [s.thread for s in await scope.live.views.threads()]
        if text.isdecimal() and len(text) < SHORTEST:
            return [pick_numbered(listed, int(text))]
        matches = [t for t in listed if text.lower() in t.title.lower() or t.id.endswith(text)]
    if not matches:
        listing = "/threads" if scope.live is not None else "`sakti threads list`"
        elsewhere = await scope.store.read(stored_threads.find, None, text)
        raise Refused(thread_titles.explain_missing(text, elsewhere, listing))
    return thread_titles.narrow_matches(text, matches)


async def _find_thread(scope: Scope, text: str) -> Thread:
    """Return the only thread that `text` selects. Raises `Refused` for none or several."""
    threads = await _find_threads(scope, text)
    if len(threads) > 1:
        some = ", ".join(f"{t.id[-8:]} {quote(t.title)}" for t in threads[:5])
        raise Refused(f"{quote(text)} matches {len(threads)} threads ({some}); write an id.")
    return threads[0]


@asynccontextmanager
async def _open_actions(scope: Scope) -> AsyncGenerator[thread_actions.ThreadActions]:
    """Yield the thread operations; in a shell, wait for the search index at the end."""
    if scope.live is not None:
        yield thread_actions.ThreadActions(scope.live)
        return
    alone = thread_actions.NoSession(scope.store, scope.resource, scope.workspace)
    yield thread_actions.ThreadActions(alone)
    await alone.indexing.wait()
