"""`sakti memory`: the windows and the log from a shell."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sakti.cli import common

app = typer.Typer(help="Observational memory: windows and log.", no_args_is_help=True, rich_markup_mode=None)
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Thread = Annotated[str | None, typer.Option("--thread", help="Id or part of the title; the last one by default.")]


Set = Annotated[list[str] | None, typer.Option("-o", "--set", metavar="NAME=VALUE", help="Set any setting for this run.")]


async def _session(store: Any, thread: str | None, overrides: list[str] | None) -> Any:
    """A session on that thread, without a model: it only looks."""
    from sakti.agent.session import Session

    session = Session(common.options(overrides=overrides or (), resume=thread, interactive=False), store=store)
    await session.look()
    return session


@app.command()
def status(thread: Thread = None, set_: Set = None, json_: Json = False) -> None:
    """The token windows, as `data-om-status` has them."""

    async def work(store: Any) -> Any:
        session = await _session(store, thread, set_)
        return session.status

    from sakti.core.events import to_json
    from sakti.core.text import count_k

    found = common.with_store(work)
    if found is None:
        common.fail("There is no thread in this workspace yet.")
    if json_:
        common.say_json(to_json(found))
        return
    b, r = found.buffered_observations, found.buffered_reflection
    common.say(
        f"messages  {count_k(found.messages.tokens)} / {count_k(found.messages.threshold)}\n"
        f"observed  {count_k(found.observations.tokens)} / {count_k(found.observations.threshold)}\n"
        f"buffered  {b.chunks} chunks {count_k(b.message_tokens)} → {count_k(b.observation_tokens)}, "
        f"frees {count_k(b.projected_message_removal)} ({b.status})\n"
        f"reflect   {r.status}, generation {found.generation_count}"
    )


@app.command("log")
def log_(thread: Thread = None, set_: Set = None, json_: Json = False) -> None:
    """The observation log."""
    from dataclasses import asdict

    async def work(store: Any) -> Any:
        session = await _session(store, thread, set_)
        return await session.views.observations() if session.thread else []

    lines = common.with_store(work)
    if json_:
        common.say_json({"lines": [asdict(x) for x in lines]})
        return
    day = None
    for line in lines:
        if line.date != day:
            day = line.date
            common.say(f"\n{day}" if day else "")
        sign = {"high": "●", "medium": "○", "done": "✓"}.get(line.priority, "·")
        common.say(f"{'  ' * line.depth}{sign} {line.time} {line.content}")
    if not lines:
        common.say("No observations yet.")
