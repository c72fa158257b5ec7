"""`sakti threads`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sakti.cli import common

app = typer.Typer(help="The conversations of this workspace.", no_args_is_help=True, rich_markup_mode=None)
SHORTEST = 6  # signs of a message's id
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Which = Annotated[str, typer.Argument(metavar="THREAD", help="Id, the end of it, or part of the title.")]


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", min=1)] = 20,
    deleted: Annotated[bool, typer.Option("--deleted", help="Those that were deleted.")] = False,
    json_: Json = False,
) -> None:
    """The newest first."""
    from sakti.store import threads

    if deleted:
        _list_deleted(json_)
        return

    rows = common.with_store(lambda s: s.read(threads.summaries, str(common.workspace()), limit))
    if json_:
        common.say_json(
            {
                "threads": [
                    {**asdict(t), "preview": preview, "messages": n, "tokens": tokens} for t, preview, n, tokens in rows
                ]
            }
        )
        return
    for thread, _, messages, tokens in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(thread.updated_at / 1000))
        common.say(f"{thread.id[-8:]}  {when}  {messages:>5} messages {tokens:>8} tokens  {thread.title}")
    if not rows:
        common.say("No thread in this workspace yet.")


def _list_deleted(as_json: bool) -> None:
    from sakti.store import thread_removal

    found = common.with_store(lambda s: s.read(thread_removal.deleted, str(common.workspace())))
    if as_json:
        common.say_json({"threads": [c.as_json() for c in found]})
        return
    for c in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime((c.deleted_at or 0) / 1000))
        common.say(f"{c.thread.id[-8:]}  deleted {when}  {c.in_words()}")
    if not found:
        common.say("No deleted thread in this workspace.")


@app.command()
def show(thread: Annotated[str, typer.Argument(help="Id, or part of the title.")], json_: Json = False) -> None:
    """The messages of a thread."""
    from sakti.core.types import plain_text
    from sakti.store import message_removal, messages, threads

    found = common.with_store(lambda s: s.read(threads.find, str(common.workspace()), thread))
    if not found:
        common.fail(f"No thread of this workspace matches {thread!r}. `sakti threads list` shows them.")
    rows = message_removal.without(common.with_store(lambda s: s.read(messages.after, found[0].id, -1)))
    if json_:
        from sakti.agent.thread_export import message_json

        common.say_json({"thread": asdict(found[0]), "messages": [message_json(m) for m in rows]})
        return
    for m in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(m.created_at / 1000))
        common.say(f"── {m.role} · {when} · {m.id[-8:]}\n{plain_text(m.parts)}\n")


@app.command()
def rename(thread: Which, title: str, json_: Json = False) -> None:
    """Give a thread a title that stays."""
    from sakti.core.text import one_line
    from sakti.store import threads

    title = one_line(title, 200)
    if not title:
        common.fail("A title cannot be empty.", common.USAGE)
    found = _one(thread)
    now = int(time.time() * 1000)
    renamed = common.with_store(lambda s: s.write(threads.rename, found.id, title, now, by_user=True))
    _done(json_, f"Renamed to {title!r}.", thread=asdict(renamed or found))


@app.command()
def fork(
    thread: Which,
    upto: Annotated[int | None, typer.Option("--upto", help="Index of the last message it has.", min=0)] = None,
    json_: Json = False,
) -> None:
    """Begin a new thread with the messages of another one, and what is remembered of them."""
    from sakti.store import thread_fork

    found = _one(thread)

    async def work(store: Any) -> Any:
        return await store.write(
            thread_fork.fork, found.id, id=store.ids.new(), ids=store.ids, now=store.clock.now(), upto=upto
        )

    made = common.with_store(work)
    text = f"{made.id[-8:]}  {made.title}: {made.metadata['forked_at'] + 1} messages."
    _done(json_, f"{text} `sakti -r {made.id[-8:]}` goes on with it.", thread=asdict(made))


@app.command()
def delete(thread: Which, json_: Json = False) -> None:
    """Take a thread out of lists and search; `restore` brings it back, `sakti db purge` removes it for good."""
    from sakti.store import thread_removal, upkeep

    async def work(store: Any) -> Any:
        gone = await store.read(thread_removal.contents, found.id)
        await store.write(thread_removal.delete, found.id, store.clock.now())
        await upkeep.catch_up(store)
        return gone

    found = _one(thread)
    gone = common.with_store(work)
    back = f"`sakti threads restore {found.id[-8:]}` brings it back."
    _done(json_, f"Deleted {gone.in_words()}. {back}", **gone.as_json())


@app.command("delete-message")
def delete_message(
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Id, or the end of it: `threads show` has them.")],
    json_: Json = False,
) -> None:
    """Remove one message for good, with a call its result: from the thread, search, exports and prompt history."""
    from sakti.store import memory_log, purging

    async def work(store: Any) -> Any:
        found = await store.read(memory_log.find_message, str(common.workspace()), message)
        if found is None:
            common.fail(f"No message of this workspace has an id that ends with {message!r}.")
        return await purging.delete_message(store, found[0])

    if len(message) < SHORTEST:
        common.fail(f"write at least the last {SHORTEST} signs of the message's id.", common.USAGE)
    gone = common.with_store(work)
    text = "Removed." if len(gone.message_ids) == 1 else "Removed, the call with its result."
    if gone.lines:
        text += f" {gone.lines} lines of the log were made of it and of what was said around it:"
        text += " `sakti memory log` shows them, `sakti memory forget` takes one out."
    _done(json_, text, **asdict(gone))


@app.command()
def restore(thread: Which, json_: Json = False) -> None:
    """Bring a deleted thread back, as it was."""
    from sakti.store import thread_removal, upkeep

    async def work(store: Any) -> Any:
        restored = await store.write(thread_removal.restore, found[0].id)
        await upkeep.catch_up(store)
        return restored

    found = common.with_store(lambda s: s.read(thread_removal.find_deleted, str(common.workspace()), thread))
    if len(found) != 1:
        common.fail(f"{thread!r} matches {len(found)} deleted threads; `sakti threads list --deleted` shows them.")
    restored = common.with_store(work)
    _done(json_, f"{restored.title!r} is back.", thread=asdict(restored))


@app.command()
def export(
    thread: Which,
    form: Annotated[str, typer.Option("--format", help="md, json or html.")] = "md",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A new file; standard output without.")] = None,
) -> None:
    """A thread with its observation log as Markdown, JSON, or a page of HTML that needs nothing else."""
    from sakti.agent import thread_actions

    with common.plain_errors():
        chosen = thread_actions.checked(form)
        found = _one(thread)
        text = common.with_store(lambda s: s.read(thread_actions.text_of, found.id, chosen))
        if output is None:
            print(text, end="")
        else:
            thread_actions.write_new(output, text)
            common.say(str(output))


def _one(text: str) -> Any:
    """The thread that is meant."""
    from sakti.store import threads

    found = common.with_store(lambda s: s.read(threads.find, str(common.workspace()), text))
    if not found:
        common.fail(f"No thread of this workspace matches {text!r}. `sakti threads list` shows them.")
    if len(found) > 1:
        some = ", ".join(f"{t.id[-8:]} {t.title!r}" for t in found[:5])
        common.fail(f"{text!r} matches {len(found)} threads ({some}); write an id.")
    return found[0]


def _done(as_json: bool, text: str, **values: Any) -> None:
    if as_json:
        common.say_json(values)
    else:
        common.say(text)
