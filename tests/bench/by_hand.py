"""Carry out the user's manual operations on memory, and check their results."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from sakti.core.errors import SaktiError
from sakti.core.events import CompactionFinished
from sakti.core.types import Block, Message
from sakti.memory.engine import Prepared
from tests.bench import oracle, request_checks
from tests.bench.bench_store import Killed
from tests.bench.corrections import Wanted
from tests.bench.eyes import numbers
from tests.bench.invariants import Finding
from tests.bench.raw_rows import LineRow
from tests.bench.script import Command, CommandName, Script
from tests.bench.snapshot import Ledger, Snapshot
from tests.bench.windows import Stage, Window

if TYPE_CHECKING:
    from tests.bench.checker import Checker
    from tests.bench.run import Run
    from tests.bench.settling import Work


THERE_AND_BACK: tuple[tuple[CommandName, CommandName], ...] = (
    ("compact", "uncompact"),
    ("reflect", "unreflect"),
    ("edit", "uncorrect"),
)


class Player(Protocol):
    """Part of a replay that manual operations use."""

    script: Script
    run: Run
    stage: Stage
    checker: Checker
    windows: dict[int, Window]
    refused: Counter[tuple[str, str]]

    def find(self, findings: Iterable[Finding]) -> None: ...
    async def revive(self, window: Window) -> Any: ...
    async def settle(self, works: list[Work]) -> Any: ...
    def work(self, window: Window, task: asyncio.Task[Any]) -> Work: ...


def work(player: Player, window: Window, command: Command) -> asyncio.Task[Any] | None:
    """Start a manual operation; None where there is nothing to do it to."""
    engine = window.engine
    match command.name:
        case "compact":
            return window.act("compact", engine.compact())
        case "uncompact":
            return window.act("uncompact", engine.undo_compaction())
        case "reflect":
            return window.act("reflect", engine.reflect_now())
        case "unreflect":
            return window.act("unreflect", engine.undo_reflection())
        case "uncorrect":
            return window.act("uncorrect", engine.undo_correction())
        case "observe":
            return window.act("observe", observe(player, window))
        case "pause":
            return window.act("pause", _pause(player, window))
        case "resume":
            return window.act("resume", _resume(player, window))
        case "pin" | "unpin" | "edit" | "forget":
            return _correct(player, window, command)
        case _:
            raise ValueError(command.name)


async def observe(player: Player, window: Window) -> bool:
    """React to a request that the provider found too long: observe, or send less for the rest of the turn."""
    eye = player.checker.eyes[window.number]
    before = window.engine.status().messages.tokens
    smaller = await window.engine.observe_now()
    if smaller and window.engine.status().messages.tokens >= before:
        eye.room = max(1, (eye.room or before) // 2)
    return smaller


async def _pause(player: Player, window: Window) -> None:
    await window.engine.pause()
    player.checker.paused[window.engine.record_id] = next(player.stage.acts)


async def _resume(player: Player, window: Window) -> None:
    player.checker.paused.pop(window.engine.record_id, None)
    eye = player.checker.eyes[window.number]
    pending = player.checker.at[eye.record_id].pending(eye.thread_id, player.stage.ledger)
    eye.catching_up = pending > numbers(eye, player.script.settings, player.checker.counter).block_after
    await window.engine.resume()


def _correct(player: Player, window: Window, command: Command) -> asyncio.Task[Any] | None:
    now = player.checker.at[window.engine.record_id]
    lines = [line for line in _lines(now) if line.pinned or command.name != "unpin"]
    if not lines:
        return None
    line = lines[int(command.pick * len(lines))]
    text = ""
    if command.name == "edit":
        word = oracle.word("edit", next(player.stage.calls), line.id)
        player.stage.ledger.words.setdefault(word, "an edit")
        text = f"Something else is true,  says {word}."
    player.checker.corrections.wanted[window.number] = Wanted(line.id, text)
    name = command.name
    if name not in ("pin", "unpin", "edit", "forget"):
        raise ValueError(name)
    return window.act(name, window.engine.correct(line.id, name, text))


def _lines(now: Snapshot) -> list[LineRow]:
    """Return the lines that can be corrected: of active and buffered groups."""
    used = [g for g in now.groups.values() if g.state in ("active", "buffered")]
    return [line for g in used for line in now.lines[g.id] if line.shown]


async def do(player: Player, window: Window, command: Command) -> Any:
    """Carry out one operation and check its result; None where it was refused or had nothing to do."""
    record, thread = window.engine.record_id, window.thread.id
    before = player.checker.at[record]
    fresh = window.newest == player.stage.ledger.newest(thread)
    begun = work(player, window, command)
    if begun is None:
        return None
    await player.settle([player.work(window, begun)])
    try:
        outcome = await begun
    except Killed:
        await player.revive(window)
        return None
    except SaktiError as e:
        if window.store.dead:
            await player.revive(window)
        player.refused[command.name, e.code] += 1
        return None
    if window.store.dead:
        await player.revive(window)
        return None
    after = player.checker.at[record]
    player.find(_shown(window, after, player.stage.ledger))
    if command.name == "compact" and fresh:
        player.find(_compacted(player, window, outcome, before, after))
    return outcome


def _shown(window: Window, now: Snapshot, ledger: Ledger) -> Iterator[Finding]:
    """Check 11: after a manual change the window shows the log as it is."""
    blocks = request_checks.log_blocks(window.engine.preview())
    shown = Counter(oracle.words("\n".join(b.text for b in blocks), ledger.words))
    due = Counter(w for g in now.active for w in now.words(g, ledger))
    if shown != due:
        yield (
            11,
            f"after a change by hand the window shows {shown.total()} lines of the log, {(due & shown).total()} of the"
            f" {due.total()} that there are",
        )


def _compacted(
    player: Player, window: Window, told: CompactionFinished, before: Snapshot, after: Snapshot
) -> Iterator[Finding]:
    """Check 11: /compact observes everything but the last exchange, and reports what it did."""
    thread, ledger = window.thread.id, player.stage.ledger
    gone = [m for m in ledger.between(thread, before.cursor(thread) + 1, after.cursor(thread)) if m.state != "withheld"]
    if told.messages != len(gone):
        yield 11, f"/compact says that {told.messages} messages went, {len(gone)} did"
    eye = player.checker.eyes[window.number]
    may = _may_compact(before, thread, ledger, numbers(eye, player.script.settings, player.checker.counter).threshold)
    last = may[-1].index if may else before.cursor(thread)
    made = [g for i, g in after.groups.items() if i not in before.groups and player.checker.makers[i] == "compact"]
    if beyond := [g for g in made if g.kind == "observation" and (g.last_index or 0) > last]:
        yield 11, f"/compact observed up to {beyond[-1].last_index}, the last exchange begins behind {last}"
    left = [m.index for m in after.uncovered(thread, ledger) if m.index <= last]
    if left and not told.warnings:
        yield 11, f"/compact left messages {left[:6]} and does not say why"


def _may_compact(now: Snapshot, thread: str, ledger: Ledger, threshold: int) -> list[Message]:
    """Return what /compact may observe.

    What precedes the newest prompt; if nothing does and much is pending, all but the last exchange.
    """
    pending = [m for m in ledger.after(thread, now.cursor(thread)) if m.state == "saved"]
    messages = oracle.complete(pending)
    prompt = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user"), 0)
    if prompt:
        return messages[:prompt]
    if now.pending(thread, ledger) < threshold:
        return []
    return [m for one in oracle.exchanges(messages)[:-1] for m in one]


# --- there and back -----------------------------------------------------------------------------------------


async def roundtrips(player: Player, window: Window) -> None:
    """Check 11: an undone compaction, reflection or edit leaves no trace in log and window."""
    if player.stage.gate.stopped or any(w.busy for w in player.windows.values()):
        return
    player.stage.gate.release()
    for other in list(player.windows.values()):
        await player.settle([player.work(other, other.act("idle", other.engine.wait_idle()))])
        if other.store.dead:
            await player.revive(other)
    for there, back in THERE_AND_BACK:
        now = player.checker.at[window.engine.record_id]
        shown = window.engine.preview()
        held = player.checker.held(window.engine.record_id, window.thread.id)
        stale = _stale(window, now, player.stage.ledger, held=held)
        outcome = await do(player, window, Command(there, window.number, 0.5))
        if not outcome or (isinstance(outcome, CompactionFinished) and not outcome.messages):
            continue
        undone = await do(player, window, Command(back, window.number))
        if undone is None:
            if not player.run.kills:
                player.find([(11, f"{there} could not be taken back at once")])
            continue
        player.find(_same_log(there, now, player.checker.at[window.engine.record_id]))
        if not stale:
            player.find(compare(11, f"after {there} and its undo", shown, window.engine.preview()))
    window.events.clear()


def _stale(window: Window, now: Snapshot, ledger: Ledger, *, held: bool) -> bool:
    """Return whether the window does not show yet what others did since its last turn.

    `held`: a compaction was undone, in any window.
    """
    thread, status = window.thread.id, window.engine.status()
    told = status.buffered_observations
    ready = [g.message_tokens for g in now.ready(thread, ledger)]
    return (
        any(_shown(window, now, ledger))
        or window.newest != ledger.newest(thread)
        or (told.chunks, told.message_tokens) != (len(ready), sum(ready))
        or (held and status.phase not in ("held", "paused"))
    )


def _same_log(there: str, before: Snapshot, after: Snapshot) -> Iterator[Finding]:
    same = {
        "the log": [g.id for g in before.active] == [g.id for g in after.active],
        "what is buffered": _buffered(before) == _buffered(after),
        "the cursor": _observed(before) == _observed(after),
        "its lines": all(before.lines[i] == after.lines[i] for i in before.lines),
        "how much was observed": before.record.total_tokens_observed == after.record.total_tokens_observed,
    }
    yield from (
        (11, f"{name} is not as before {there}, which was taken back") for name, equal in same.items() if not equal
    )


def _observed(now: Snapshot) -> dict[str, int]:
    return {thread: last for thread, last in now.cursors.items() if last >= 0}


def _buffered(now: Snapshot) -> set[str]:
    return {g.id for g in now.groups.values() if g.state == "buffered" and g.kind == "observation"}


def _lasting(prepared: Prepared) -> list[Block]:
    """Return the blocks that are not reloaded with each turn."""
    return [b for b in prepared.blocks if b.kind != "other_threads"]


def compare(number: int, when: str, before: Prepared, after: Prepared, cursor: int = -1) -> Iterator[Finding]:
    """Check that a window is unchanged; a prompt that is observed (up to `cursor`) belongs to its own turn only."""
    same = {
        "the log": [b.text for b in _lasting(before)] == [b.text for b in _lasting(after)],
        "the messages": [m.id for m in before.messages if not 0 <= m.index <= cursor]
        == [m.id for m in after.messages if not 0 <= m.index <= cursor],
        "the tail": number != 11 or before.tail == after.tail,
        "pending": before.status.messages == after.status.messages,
        "what is buffered": before.status.buffered_observations == after.status.buffered_observations,
    }
    yield from ((number, f"{what} is not the same {when}") for what, equal in same.items() if not equal)
