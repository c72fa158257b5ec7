"""`sakti threads`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer

from sakti.cli import common

app = typer.Typer(help="The conversations of this workspace.", no_args_is_help=True, rich_markup_mode=None)
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.command("list")
def list_(limit: Annotated[int, typer.Option("--limit", min=1)] = 20, json_: Json = False) -> None:
    """The newest first."""
    from sakti.store import threads

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


@app.command()
def show(thread: Annotated[str, typer.Argument(help="Id, or part of the title.")], json_: Json = False) -> None:
    """The messages of a thread."""
    from sakti.core.types import plain_text
    from sakti.store import messages, threads
    from sakti.store.codec import encode

    found = common.with_store(lambda s: s.read(threads.find, str(common.workspace()), thread))
    if not found:
        common.fail(f"No thread of this workspace matches {thread!r}. `sakti threads list` shows them.")
    rows = common.with_store(lambda s: s.read(messages.after, found[0].id, -1))
    if json_:
        common.say_json(
            {
                "thread": asdict(found[0]),
                "messages": [
                    {
                        "id": m.id,
                        "index": m.index,
                        "role": m.role,
                        "time": m.created_at,
                        "tokens": m.tokens,
                        "parts": [encode(p) for p in m.parts],
                    }
                    for m in rows
                ],
            }
        )
        return
    for m in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(m.created_at / 1000))
        common.say(f"── {m.role} · {when}\n{plain_text(m.parts)}\n")


@app.command()
def rename(thread: str, title: str) -> None:
    """Give a thread a title that stays."""
    from sakti.store import threads

    found = common.with_store(lambda s: s.read(threads.find, str(common.workspace()), thread))
    if len(found) != 1:
        common.fail(f"{thread!r} matches {len(found)} threads; write its id.")
    now = int(time.time() * 1000)
    common.with_store(lambda s: s.write(threads.rename, found[0].id, title, now, by_user=True))
