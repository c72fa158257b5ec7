"""Declare the actions on the token windows: their state and cost, and manual changes."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from sakti.actions.scope import confirm, show_progress_bar
from sakti.actions.spec import SET, action, arg, flag, option
from sakti.actions.values import USAGE, Card, Done, Open, Refused, Rows, Text, Value, pick_numbered
from sakti.core.errors import MemoryFailure
from sakti.core.lazy import lazy_imports
from sakti.core.text import count_k, format_count, quote, to_one_line

if TYPE_CHECKING:
    from sakti.actions.scope import Models, Scope
    from sakti.agent.session.session import Session
    from sakti.core.config import MemorySettings
    from sakti.store.imports import UnobservedThread


with lazy_imports:
    from sakti.agent.reports import memory_report
    from sakti.agent.threads import history
    from sakti.core import events as core_events
    from sakti.memory import policy
    from sakti.memory import status as memory_status
    from sakti.store import imports


THREAD = option("--thread", metavar="THREAD", help="Id or part of the title (default: the last thread).",
                offers="threads")  # fmt: skip
WHERE = (THREAD, SET)  # the arguments that a run passes on as `**where`
NO_THREAD = "There is no thread in this workspace yet."


@asynccontextmanager
async def open_memory(
    scope: Scope, *, thread: str | None = None, overrides: Sequence[str] = (), models: Models = "none"
) -> AsyncGenerator[Session]:
    """Open a session on a thread to read or change its memory. Raises Refused without a thread."""
    async with scope.memory(thread, overrides, models) as session:
        if session.thread is None:
            raise Refused(NO_THREAD)
        yield session


EXTRACTIVE = "extractive"  # the Observer that needs no model
EVENTS = 20  # number of newest memory events shown


@action(
    *WHERE,
    shell="memory status",
    chat="memory",
    needs="store",
    summary="show the token windows; `undo` the last reflection, `pause` and `resume` observing",
    hint="[undo | pause | resume]",
)
async def status(scope: Scope, **where: Any) -> Value:
    """Show the token windows (as in `data-om-status`), who observes and why, and the results so far."""
    async with scope.memory(**where, models="chosen") as session:
        windows = session.current.status
        if windows is None and scope.live is None:
            raise Refused(NO_THREAD)
        if windows is None:
            return Done("No thread yet: the windows fill as you chat.")
        figures = await session.views.memory_figures()
    rows = tuple(memory_report.list_status(windows, figures))
    return Card("Memory", rows, json={**core_events.to_json(windows), "figures": to_builtins(figures)})


@action(chat="memory events", needs="session")
async def events(scope: Scope) -> Value:
    """List what happened to this thread's memory."""
    newest = tuple(reversed((await scope.session.views.memory_events())[:EVENTS]))
    lines = tuple(memory_report.describe_event(e) for e in newest)
    return Rows(lines, "events", newest, "No events yet.")


@action(
    arg("focus", "Special focus of the observation.", default=""),
    flag("--imported", help="All of the imported threads of this workspace; the price is shown first."),
    option("--model", metavar="MODEL", help="With --imported: PROVIDER/NAME (default: extractive, without a model)."),
    flag("--yes", help="With --imported: do not ask for confirmation."),
    *WHERE,
    shell="memory observe",
    needs="store",
)
async def observe(scope: Scope, focus: str, imported: bool, model: str | None, yes: bool, **where: Any) -> Value:
    """Observe everything but the last exchange now."""
    if imported:
        return await observe_imports(scope, model or EXTRACTIVE, yes, focus, where)
    if model is not None or yes:
        raise Refused("--model and --yes go with --imported.", code=USAGE)
    async with open_memory(scope, **where, models="called") as session:
        done = await session.compact(focus)
    text = "Nothing was observed." if done.warnings else "Nothing to observe."
    if done.messages:
        sizes = f"{count_k(done.tokens_before)} → {count_k(done.tokens_after)} tokens"
        text = f"{format_count(done.messages, 'message')} observed in {format_count(done.lines, 'line')}: {sizes}"
    failed = bool(done.warnings) and not done.messages
    return Text((text, *done.warnings), json=to_builtins(done), exit=int(failed))


def _check_imported(model: str, choice: str | None) -> None:
    """Refuse a model without a price, and a `choice` of threads or a focus."""
    if choice:
        raise Refused("--imported observes all imported threads: leave out the focus and --thread.", code=USAGE)
    if model != EXTRACTIVE and "/" not in model:
        raise Refused(f"--model takes PROVIDER/NAME or {EXTRACTIVE}, not {quote(model)}.", code=USAGE)


async def observe_imports(scope: Scope, model: str, yes: bool, focus: str, where: Mapping[str, Any]) -> Value:
    """Show the price, ask if there is one, and observe one thread after the other."""
    _check_imported(model, focus or where["thread"])
    overrides = [*where["overrides"], f"memory.model={model}"]
    threads = await scope.store.read(imports.list_unobserved_threads, scope.resource)
    if not threads:
        return Text(("Nothing to observe in the imported threads of this workspace.",), json={"threads": 0})
    work = estimate_work(threads, scope.settings(overrides).config.memory, model)
    price = describe_price(len(threads), work, model)
    must_ask = model != EXTRACTIVE and not yes
    if must_ask and (scope.json or not sys.stdin.isatty()):
        declined: dict[str, Any] = {"threads": len(threads), "observed": 0, "price": to_builtins(work)}
        return Text((price, "Nothing was observed; --yes observes them."), json=declined, exit=1)
    scope.tell(Text((price,)))
    if must_ask and not confirm("Observe them?"):
        raise Refused("Nothing was observed.")
    problems = await _observe_all(scope, threads, overrides)
    observed = len(threads) - len(problems)
    described = {"threads": len(threads), "observed": observed, "price": to_builtins(work), "problems": problems}
    return Text(
        (*problems, f"{format_count(observed, 'thread')} observed. Their logs are part of search."),
        json=described,
        exit=int(not observed),
    )


def estimate_work(threads: Sequence[UnobservedThread], memory: MemorySettings, model: str) -> core_events.Backlog:
    """Return tokens, model calls and price; a thread is observed in slices of the message threshold."""
    threshold = policy.compute_effective_numbers(memory, 0, None).threshold
    tokens = sum(thread.tokens for thread in threads)
    calls = 0 if model == EXTRACTIVE else sum(math.ceil(thread.tokens / threshold) for thread in threads)
    rates = memory_status.find_rates(model)
    previous = memory.observation.previous_observer_tokens
    cost = None if rates is None else memory_status.estimate_cost(tokens, calls, rates, previous)
    return core_events.Backlog(tokens, calls, cost)


def describe_price(threads: int, work: core_events.Backlog, model: str) -> str:
    """Describe the work: `12 threads, 84.0k tokens, 3 calls of anthropic/x, about $0.12`."""
    head = f"{format_count(threads, 'thread')}, {count_k(work.tokens)} tokens"
    if model == EXTRACTIVE:
        return f"{head}: verbatim excerpts without a model, no cost."
    price = "its price is not known" if work.cost_usd is None else f"about ${work.cost_usd:.2f}"
    return f"{head}, {format_count(work.calls, 'call')} of {model}: {price}."


async def _observe_all(scope: Scope, threads: Sequence[UnobservedThread], overrides: Sequence[str]) -> list[str]:
    """Observe the threads; return the reasons for those that were not observed."""
    problems: list[str] = []
    with show_progress_bar("observing", "count") as show:
        for number, thread in enumerate(threads):
            show(number, len(threads))
            try:
                async with open_memory(scope, thread=thread.id, overrides=overrides, models="called") as session:
                    engine = session.current.engine
                    if not await engine.observe_rest():
                        problems.append(f"{quote(thread.title)}: {engine.status().note or 'nothing was observed'}")
            except MemoryFailure as e:  # another window uses it
                problems.append(f"{quote(thread.title)}: {e.message}")
        show(len(threads), len(threads))
    return problems


@action(*WHERE, shell="memory reflect", needs="store")
async def reflect(scope: Scope, **where: Any) -> Value:
    """Condense the whole log now."""
    async with open_memory(scope, **where, models="called") as session:
        before = session.current.engine.status()
        done = await session.current.engine.reflect_now()
        after = session.current.engine.status()
    now, earlier = after.observations.tokens, before.observations.tokens
    text = f"The log now has {now} tokens, before {earlier}."
    return Done(
        text if done else after.note or "Nothing to condense.",
        exit=int(not done and bool(after.note)),
        json={
            "reflected": done,
            "tokens_before": earlier,
            "tokens_after": now,
            "generation_count": after.generation_count,
            "note": after.note,
        },
    )


@action(
    arg("what", "Undo the last one.", choices=("observation", "reflection")),
    option("--generation", kind="whole", metavar="N", help="The reflection to undo (default: the newest)."),
    *WHERE,
    shell="memory undo",
    needs="store",
)
async def undo(scope: Scope, what: str, generation: int | None, **where: Any) -> Value:
    """Undo the last `observe` or /compact, or a reflection: the log is as it was before."""
    if generation is not None and what != "reflection":
        raise Refused("--generation names a reflection.", code=USAGE)
    async with open_memory(scope, **where) as session:
        if what == "reflection":
            gone = await session.current.engine.undo_reflection(generation)
            tokens = session.current.engine.status().observations.tokens
            groups = f"{format_count(gone.groups, 'group')} of observations"
            corrected = format_count(gone.corrected, "corrected line was", "corrected lines were")
            lost = f" {corrected} undone with it." if gone.corrected else ""
            text = f"Generation {gone.generation} is undone: {groups}, {tokens} tokens in the log.{lost}"
            return Done(text, json={**to_builtins(gone), "observation_tokens": tokens})
        done = await session.current.engine.undo_compaction()
        if done is None:
            raise MemoryFailure("There is no manual observation to undo.", code="not_found")
        tokens = session.current.engine.status().observations.tokens
    return Done(
        f"Back in the window: {format_count(done.messages, 'message')}.",
        json={**to_builtins(done), "observation_tokens": tokens},
    )


@action(chat="memory undo", needs="session")
async def undo_reflection(scope: Scope) -> None:
    """Undo the last reflection."""
    await scope.session.undo_reflection()


@action(*WHERE, shell="memory pause", chat="memory pause", needs="store")
async def pause(scope: Scope, **where: Any) -> Value | None:
    """Stop observing in the background, in every window; only the newest messages that fit are sent."""
    return await _pause(scope, True, **where)


@action(*WHERE, shell="memory resume", chat="memory resume", needs="store")
async def resume(scope: Scope, **where: Any) -> Value | None:
    """Observe again, oldest messages first, from the thread's next turn on."""
    return await _pause(scope, False, **where)


async def _pause(scope: Scope, paused: bool, **where: Any) -> Value | None:
    if scope.live is not None:
        await scope.live.pause_memory(pause=paused)
        return None  # the session shows a notice
    async with open_memory(scope, **where) as session:
        await (session.current.engine.pause() if paused else session.current.engine.resume(start=False))
        after = session.current.engine.status()
    return Done(
        "Memory is paused." if paused else "Memory resumes with the thread's next turn.",
        json=core_events.to_json(after),
    )


@action(arg("step", kind="whole", default=None, low=1), chat="context", hint="[STEP]", needs="session",
        summary="show the request that would be sent now, or the one that a past step sent")  # fmt: skip
async def context(scope: Scope, step: int | None) -> Value:
    """Show the request that would be sent now, or the one that a past step sent."""
    views = scope.session.views
    blocks = await (views.context() if step is None else views.past_request(step))
    if not blocks:
        raise Refused(history.explain_no_request(step), title="Context")

    async def show(number: int) -> Value:
        return Text((pick_numbered(blocks, number).text,))

    async def list_rows() -> Value:
        lines = tuple(f"{b.label}  {b.tokens:,} tokens" for b in blocks)
        total = sum(b.tokens for b in blocks)
        what = "What would be sent now" if step is None else f"What step {step} sent"
        head = f"{what}: {format_count(len(blocks), 'block')}, {total:,} tokens"
        return Rows(lines, "context", tuple(blocks), head=head, what="shows a block's text", pick=show)

    return Open("context" if step is None else "request", blocks, list_rows)


@action(chat="cost", needs="session")
async def cost(scope: Scope) -> Value:
    """Show tokens and cost of this thread."""
    return Card("Cost of this thread", tuple(memory_report.list_spent(await scope.session.views.spent())))


@action(
    arg("focus", default=""),
    chat="compact",
    needs="session",
    summary="compact older messages now; `undo` restores them, `diff` shows the last compaction",
    hint="[focus | diff | undo]",
)
async def compact(scope: Scope, focus: str) -> Value | None:
    """Compact older messages now: observe everything but the last exchange."""
    session = scope.session
    await session.require_thread()
    await session.follow()
    messages, before, after = session.compact_preview()
    if not messages:
        status = session.current.status
        if status is None or not status.observations.tokens:
            return Done("Nothing to compact yet: the last exchange is kept as it is.")
        return Done("Nothing to compact: everything but the last exchange is already observed.")
    scope.tell(
        Done(f"{format_count(messages, 'message')}, {count_k(before)} → ~{count_k(after)} tokens", title="Compacting")
    )
    status = session.current.status
    who = to_one_line(status.observer, 40) if status is not None else "memory"
    with scope.working(f"compacting: {who} reads {format_count(messages, 'message')}"):
        await session.compact(focus)
    return None  # the event reports the result


@action(chat="compact diff", needs="session")
async def diff(scope: Scope) -> Value:
    """Show the log before and after the last compaction."""
    thread, store = scope.session.thread, scope.session.workspace.store
    last = await store.read(history.read_compaction, thread.id) if thread is not None else None
    if last is None:
        return Done("No compaction in this thread, or it was undone.")

    async def text() -> Value:
        return Text((last.diff(),), kind="diff")

    return Open("compaction", last, text)


@action(chat="compact undo", needs="session")
async def undo_compaction(scope: Scope) -> Value | None:
    """Undo the last compaction: its messages return to the window."""
    return None if await scope.session.undo_compaction() else Done("There is no compaction to undo.")
