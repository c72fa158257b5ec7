"""`sakti memory`: the windows and the log from a shell."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sakti.cli import common

app = typer.Typer(
    help="Observational memory: windows and log, their past, what to put right in them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Thread = Annotated[str | None, typer.Option("--thread", help="Id or part of the title; the last one by default.")]
Line = Annotated[str, typer.Argument(help="Id of a line of the log, or the end of it.")]
Set = Annotated[
    list[str] | None, typer.Option("-o", "--set", metavar="NAME=VALUE", help="Set any setting for this run.")
]


async def _session(store: Any, thread: str | None, overrides: list[str] | None, *, choose: bool = False) -> Any:
    """A session on that thread that only looks; `choose`: it knows its model, else it has none."""
    from sakti.agent.session import Session

    session = Session(common.options(overrides=overrides or (), resume=thread, interactive=False), store=store)
    if choose:
        await session.models.select(None)
    await session.look()
    return session


@app.command()
def status(thread: Thread = None, set_: Set = None, json_: Json = False) -> None:
    """The token windows, as `data-om-status` has them; who observes and why; what became of it so far."""
    from dataclasses import asdict

    from sakti.agent.figures import in_words, rows
    from sakti.core.events import to_json
    from sakti.core.text import count_k

    async def work(store: Any) -> Any:
        session = await _session(store, thread, set_, choose=True)
        try:
            return session.status, await session.views.memory_figures()
        finally:
            await session.close()

    found, figures = common.with_store(work)
    if found is None:
        common.fail("There is no thread in this workspace yet.")
    if json_:
        common.say_json({**to_json(found), "figures": asdict(figures)})
        return
    b, r = found.buffered_observations, found.buffered_reflection
    common.say(
        f"messages  {count_k(found.messages.tokens)} / {count_k(found.messages.threshold)}\n"
        f"observed  {count_k(found.observations.tokens)} / {count_k(found.observations.threshold)}\n"
        f"buffered  {b.chunks} chunks {count_k(b.message_tokens)} → {count_k(b.observation_tokens)}, "
        f"frees {count_k(b.projected_message_removal)} ({b.status})\n"
        f"reflect   {r.status}, generation {found.generation_count}\n"
        f"observer  {found.observer}{f' ({found.reason})' if found.reason else ''}\n"
        f"reflector {found.reflector}"
    )
    if found.backlog:
        common.say(f"backlog   {in_words(found.backlog)}")
    if found.note:
        common.say(f"note      {found.note}")
    for name, text in rows(figures):
        common.say(f"{name:<9} {text}")


@app.command("log")
def log_(
    thread: Thread = None,
    category: Annotated[
        str | None, typer.Option("--category", help="Only lines of that section of a mode: attempts, findings …")
    ] = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """The observation log; the last eight characters of a line's id name it in other commands."""

    async def work(store: Any) -> Any:
        session = await _session(store, thread, set_)
        return await session.views.observations() if session.thread else []

    lines = [x for x in common.with_store(work) if json_ or not x.forgotten]
    known = sorted({x.category for x in lines if x.category})
    if category is not None and category not in known:
        common.fail(f"No line is in the category {category!r}; there are: {', '.join(known) or 'none'}.")
    _say_lines([x for x in lines if category in (None, x.category)], json_)


@app.command()
def at(
    time: Annotated[str, typer.Argument(help="2026-01-15, 2026-01-15T14:30, yesterday, 90m, 2d …")],
    thread: Thread = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """The log as it was at a time."""

    async def work(engine: Any, session: Any) -> Any:
        from sakti.store import memory_corrections

        moment = _moment(time, session)
        return moment, await session.store.read(memory_corrections.as_of, engine.record_id, moment)

    moment, lines = _with_engine(work, thread, set_)
    _say_lines(lines, json_, time=moment)


@app.command()
def diff(
    older: Annotated[str, typer.Argument(metavar="FROM", help="A time as for `at`.")],
    newer: Annotated[str, typer.Argument(metavar="[TO]", help="Now by default.")] = "now",
    thread: Thread = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """What came into the log, left it or was changed between two times."""
    from dataclasses import asdict

    async def work(engine: Any, session: Any) -> Any:
        from sakti.memory import corrections
        from sakti.store import memory_corrections

        times = [_moment(t, session) for t in (older, newer)]
        logs = [await session.store.read(memory_corrections.as_of, engine.record_id, t) for t in times]
        return times, corrections.diff(*logs)

    times, found = _with_engine(work, thread, set_)
    if json_:
        common.say_json(
            {
                "from": times[0],
                "to": times[1],
                "added": [asdict(x) for x in found.added],
                "removed": [asdict(x) for x in found.removed],
                "changed": [{"before": asdict(a), "after": asdict(b)} for a, b in found.changed],
            }
        )
        return
    for sign, lines in (("+", found.added), ("-", found.removed)):
        for line in lines:
            common.say(f"{sign} {line.time} {line.content}")
    for before, after in found.changed:
        common.say(f"~ {before.content}\n  → {after.content}{' (pinned)' if after.pinned else ''}")
    if not (found.added or found.removed or found.changed):
        common.say("Nothing changed.")


@app.command()
def observe(
    focus: Annotated[str, typer.Argument(help="What to pay special attention to.")] = "",
    thread: Thread = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Observe everything that is pending but the last exchange, now."""
    from dataclasses import asdict

    from sakti.core.text import count_k

    async def work(engine: Any, session: Any) -> Any:
        return await engine.compact(focus)

    done = _with_engine(work, thread, set_, with_model=True)
    if json_:
        common.say_json(asdict(done))
    elif done.messages:
        before, after = count_k(done.tokens_before), count_k(done.tokens_after)
        common.say(f"{done.messages} messages observed in {done.lines} lines: {before} → {after} tokens")
    else:
        common.say("Nothing to observe.")
    for warning in () if json_ else done.warnings:
        common.say(warning)
    raise SystemExit(common.FAILED if done.warnings and not done.messages else common.OK)


@app.command()
def reflect(thread: Thread = None, set_: Set = None, json_: Json = False) -> None:
    """Condense the whole log, now."""

    async def work(engine: Any, session: Any) -> Any:
        before = engine.status()
        done = await engine.reflect_now()
        return done, before, engine.status()

    done, before, after = _with_engine(work, thread, set_, with_model=True)
    if json_:
        common.say_json(
            {
                "reflected": done,
                "tokens_before": before.observations.tokens,
                "tokens_after": after.observations.tokens,
                "generation_count": after.generation_count,
                "note": after.note,
            }
        )
    elif done:
        common.say(f"The log has {after.observations.tokens} tokens now, it had {before.observations.tokens}.")
    else:
        common.say(after.note or "There is nothing to condense.")
    raise SystemExit(common.FAILED if not done and after.note else common.OK)


@app.command()
def undo(
    what: Annotated[str, typer.Argument(metavar="observation|reflection", help="What was done last of its kind.")],
    generation: Annotated[
        int | None, typer.Option("--generation", metavar="N", help="This reflection; the newest by default.")
    ] = None,
    thread: Thread = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Take back the last `observe` or /compact, or a reflection: the log is what it was before."""
    from dataclasses import asdict

    from sakti.core.errors import MemoryFailure

    if what not in ("observation", "reflection"):
        common.fail(f"{what!r} cannot be taken back: write observation or reflection.", common.USAGE)
    if generation is not None and what != "reflection":
        common.fail("--generation names a reflection.", common.USAGE)

    async def work(engine: Any, session: Any) -> Any:
        if what == "reflection":
            return await engine.undo_reflection(generation), engine.status()
        done = await engine.undo_compaction()
        if done is None:
            raise MemoryFailure("There is no observation by hand that can be taken back.", code="not_found")
        return done, engine.status()

    done, after = _with_engine(work, thread, set_)
    if json_:
        common.say_json({**asdict(done), "observation_tokens": after.observations.tokens})
    elif what == "reflection":
        common.say(_reflection_undone(done, after))
    else:
        common.say(f"{done.messages} messages are back in the window.")


def _reflection_undone(done: Any, after: Any) -> str:
    groups = f"{done.groups} group{'s' * (done.groups != 1)} of observations"
    lost = f" Changes to {done.corrected} of its lines went with it." if done.corrected else ""
    return f"Generation {done.generation} is taken back: {groups}, {after.observations.tokens} tokens in the log.{lost}"


@app.command()
def pause(thread: Thread = None, set_: Set = None, json_: Json = False) -> None:
    """Observe nothing more in the background, in any window; the newest messages that fit are sent."""
    _pause(True, thread, set_, json_)


@app.command()
def resume(thread: Thread = None, set_: Set = None, json_: Json = False) -> None:
    """Go on observing: what is pending, oldest first, from the thread's next turn on."""
    _pause(False, thread, set_, json_)


def _pause(paused: bool, thread: str | None, overrides: list[str] | None, as_json: bool) -> None:
    from sakti.core.events import to_json

    async def work(engine: Any, session: Any) -> Any:
        await (engine.pause() if paused else engine.resume(start=False))
        return engine.status()

    after = _with_engine(work, thread, overrides)
    if as_json:
        common.say_json(to_json(after))
    else:
        common.say("Memory is paused." if paused else "Memory goes on at the thread's next turn.")


@app.command()
def pin(
    line: Line,
    off: Annotated[bool, typer.Option("--off", help="Unpin it.")] = False,
    thread: Thread = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Keep a line word for word through every reflection."""
    _correct("unpin" if off else "pin", line, "", thread, set_, json_)


@app.command()
def edit(
    line: Line,
    text: Annotated[str, typer.Argument(help="What it should say.")],
    thread: Thread = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Put a line right; what it said before is kept."""
    _correct("edit", line, text, thread, set_, json_)


@app.command()
def forget(line: Line, thread: Thread = None, set_: Set = None, json_: Json = False) -> None:
    """Take a line out of the log, with what is nested under it; `restore` brings it back."""
    _correct("forget", line, "", thread, set_, json_)


@app.command()
def restore(
    line: Annotated[str, typer.Argument(help="Id of a line; the newest correction of any line by default.")] = "",
    thread: Thread = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Take back the newest pin, edit or forget."""
    _correct("restore", line, "", thread, set_, json_)


@app.command()
def working(
    update: Annotated[
        str | None, typer.Option("--update", metavar="TEXT", help="Sections to put in; - reads standard input.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Put TEXT in place of the whole page.")] = False,
    thread: Annotated[
        str | None, typer.Option("--thread", help="That thread's own page instead of the workspace's.")
    ] = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """The pages of stable facts: the workspace's, or a thread's own."""
    import sys

    from sakti.core.tokens import O200k
    from sakti.memory.pages import Pages

    with common.plain_errors():
        memory = common.settings(set_ or ()).config.memory
    text = sys.stdin.read() if update == "-" else update
    scope = "thread" if thread else "resource"

    async def work(store: Any) -> Any:
        pages = Pages(store, O200k(), memory, str(common.workspace()))
        owner = await _thread_id(store, thread) if thread else ""
        if text is None:
            return await pages.read(owner or None), ()
        return await pages.update(owner, text, scope=scope, replace=replace, actor="user")

    page, changed = common.with_store(work)
    if json_:
        common.say_json({"scope": scope, "content": page, "changed": list(changed)})
    else:
        common.say(page)


async def _thread_id(store: Any, text: str) -> str:
    from sakti.store import threads

    found = await store.read(threads.find, str(common.workspace()), text)
    if not found:
        common.fail(f"No thread of this workspace matches {text!r}. `sakti threads list` shows them.")
    return found[0].id


@app.command()
def export(thread: Thread = None, set_: Set = None, json_: Json = False) -> None:
    """Everything that memory holds of a thread, secrets masked: Markdown, or one JSON object."""
    from dataclasses import asdict, replace

    async def work(engine: Any, session: Any) -> Any:
        from sakti.store import memory, memory_log

        record = engine.record_id
        states = ("active", "buffered", "superseded", "discarded")
        read = session.store.read
        groups = [g for state in states for g in await read(memory.groups, record, state)]
        pages = [await session.pages().read(), await session.pages().own(session.thread.id)]
        return groups, await read(memory_log.log_lines, record, states=states), pages, engine.status(), session.thread

    from sakti.store.text_registry import leaving, leaving_all

    groups, lines, (page, own_page), status, named = _with_engine(work, thread, set_)
    if json_:
        from sakti.core.events import to_json

        common.say_json(
            leaving_all(
                {
                    "thread": asdict(named),
                    "status": to_json(status),
                    "working_memory": page,
                    "thread_working_memory": own_page,
                    "groups": [asdict(g) for g in groups],
                    "lines": [asdict(x) for x in lines],
                }
            )
        )
        return
    shown = leaving("\n\n".join(p for p in (page, own_page) if p))
    common.say(f"# {leaving(named.title) or named.id}\n\n## Working memory\n\n{shown}\n\n## Observations")
    _say_lines(
        [replace(x, content=leaving(x.content)) for x in lines if x.state == "active" and not x.forgotten], False
    )


@app.command()
def capture(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="A new file; - is standard output.", show_default=False)
    ] = None,
    blank: Annotated[
        bool, typer.Option("--blank", help="No text at all: each becomes filler of as many tokens.")
    ] = False,
    thread: Thread = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Write a thread without its secrets into a file that `sakti bench replay` plays."""
    import json
    import os
    import sys
    from pathlib import Path

    from sakti.core.errors import SaktiError
    from sakti.core.ids import short
    from sakti.core.tokens import O200k
    from sakti.memory import capture as recording
    from sakti.memory import modes

    redactor = recording.Redactor(O200k() if blank else None, str(Path.home()))

    async def work(engine: Any, session: Any) -> Any:
        from sakti.store import memory_log, messages

        read, name = session.store.read, session.thread.id
        said = await read(messages.after, name, -1)
        settings = modes.settings_for(session.config.memory, session.mode)
        lines = recording.bundle(said, await read(memory_log.actors, name), settings, redactor)
        return [json.dumps(x, ensure_ascii=False) for x in lines], name

    lines, name = _with_engine(work, thread, set_)
    text = "\n".join(lines) + "\n"
    if file == "-":
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        return
    path = Path(file or f"sakti-capture-{short(name)}.jsonl")
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as out:
            out.write(text.encode("utf-8", "backslashreplace"))
    except FileExistsError as e:
        raise SaktiError(f"{path} exists already; name another file.", title="Capture") from e
    except OSError as e:
        raise SaktiError(f"{path} cannot be written: {e.strerror}.", title="Capture") from e
    if json_:
        common.say_json({"path": str(path), "turns": len(lines) - 1, "masked": redactor.found})
        return
    common.say(f"{len(lines) - 1} turns in {path}, {redactor.found} secrets masked. Read it before you pass it on;")
    common.say(f"`sakti bench replay {path}` plays it.")


# --- shared -------------------------------------------------------------------------------------------------


def _with_engine(work: Any, thread: str | None, overrides: list[str] | None, *, with_model: bool = False) -> Any:
    """Run `work(engine, session)` on a thread's memory. `with_model`: with the configured models, else nothing
    is asked of any."""

    async def run(store: Any) -> Any:
        session = await _session(store, thread, overrides)
        if session.thread is None:
            common.fail("There is no thread in this workspace yet.")
        if with_model and not session.config.memory.read_only:  # else the engine says that it may not
            from sakti.agent.session import Session

            found = session.thread.id
            await session.close()
            session = Session(common.options(overrides=overrides or (), resume=found, interactive=False), store=store)
            await session.start()
        try:
            return await work(session.engine, session)
        finally:
            await session.close()

    return common.with_store(run)


def _correct(action: str, line: str, text: str, thread: str | None, overrides: list[str] | None, as_json: bool) -> None:
    from dataclasses import asdict

    async def work(engine: Any, session: Any) -> Any:
        if action == "restore":
            return await engine.undo_correction(line or None)
        return await engine.correct(line, action, text)

    done = _with_engine(work, thread, overrides)
    if as_json:
        common.say_json(asdict(done))
        return
    said = {"pin": "Pinned", "unpin": "Unpinned", "forget": "Forgotten"}.get(action)
    if said:
        common.say(f"{said}: {done.before}")
    else:
        common.say(f"{done.before or '(forgotten)'}\n→ {done.after or '(forgotten)'}")


def _moment(text: str, session: Any) -> int:
    from sakti.agent.workspace import local_timezone
    from sakti.memory import corrections

    moment = corrections.parse_time(text, session.clock.now(), local_timezone())
    if moment is None:
        common.fail(f"a time is 2026-01-15, 2026-01-15T14:30, yesterday, 90m, 2d or now, not {text!r}.", common.USAGE)
    return moment


def _say_lines(lines: Any, as_json: bool, **more: Any) -> None:
    from dataclasses import asdict

    from sakti.core.ids import short

    if as_json:
        common.say_json({**more, "lines": [asdict(x) for x in lines]})
        return
    day = None
    for line in lines:
        if line.date != day:
            day = line.date
            common.say(f"\n{day}" if day else "")
        sign = {"high": "●", "medium": "○", "done": "✓"}.get(line.priority, "·")
        marks = f"{' pinned' if line.pinned else ''}{f' ?{len(line.flags)}' if line.flags else ''}"
        common.say(f"{short(line.id)} {'  ' * line.depth}{sign} {line.time} {line.marked}{marks}")
    if not lines:
        common.say("No observations yet." if not more else "There were no observations.")
