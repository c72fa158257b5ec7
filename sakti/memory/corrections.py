"""Correct lines of the log, and compare the log with earlier states."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.memory.state import MemoryState
from sakti.store.database import Database
from sakti.store.log import corrections as memory_corrections
from sakti.store.log import erasure
from sakti.store.log.corrections import Action, LineCorrection
from sakti.store.log.lines import LogLine
from sakti.store.maintenance import purging

_AGO = lazy_pattern(r"(\d{1,6})\s*([smhdw])(?:\s+ago)?")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


async def correct(state: MemoryState, line: str, action: Action, text: str = "") -> LineCorrection:
    """Correct a log line, named by its id or the end of the id; the window is updated at once.

    Raises `MemoryFailure`: not_found, ambiguous, empty, unchanged.
    """

    def store(db: Database) -> tuple[LineCorrection, list[str]]:
        record = state.window.record.id
        line_id = memory_corrections.find_line(db, record, line)
        done = memory_corrections.correct_line(db, record, line_id, action, text=text, now=state.clock.now())
        state.failpoint("edit.written")
        return done, memory_corrections.list_cleared_tasks(db, line_id) if action == "forget" else []

    done, tasks = await state.write(store, "edit")
    if tasks:
        await _erase_sent_copies(state, purging.Copies((), frozenset(), tasks))
    return done


async def erase(state: MemoryState, line: str) -> purging.Copies:
    """Erase a log line for good, also from tool results; the window is updated at once.

    Returns the erased texts. Raises `MemoryFailure`: not_found, ambiguous.
    """

    def store(db: Database) -> erasure.Erased:
        record = state.window.record.id
        return erasure.erase(db, record, memory_corrections.find_line(db, record, line), state.clock.now())

    erased = await state.write(store, "edit")
    copies = purging.Copies(erased.texts, frozenset(erased.ids), erased.tasks)
    await _erase_sent_copies(state, copies)
    await purging.erase_leftovers(state.store)
    return copies


async def _erase_sent_copies(state: MemoryState, copies: purging.Copies) -> None:
    for message in await purging.erase_copies(state.store, copies):
        state.window.amend(message)


async def undo(state: MemoryState, line: str | None = None) -> LineCorrection:
    """Undo the newest correction of a line, or of the log. Raises `MemoryFailure` (not_found)."""

    def store(db: Database) -> LineCorrection:
        record = state.window.record.id
        line_id = memory_corrections.find_line(db, record, line) if line else None
        done = memory_corrections.undo_correction(db, record, state.clock.now(), line_id=line_id)
        state.failpoint("edit.written")
        return done

    return await state.write(store, "edit")


def parse_time(text: str, now: int, timezone: str) -> int | None:
    """Parse "now", "yesterday", "90m", "2d ago", a date, a date and time, or Unix ms; else None.

    A date without a time means its midnight in `timezone`.
    """
    text, zone = text.strip(), ZoneInfo(timezone)
    if text == "now":
        return now
    if text.isdigit() and len(text) >= 12:
        return int(text)
    if match := _AGO.fullmatch(text):
        return now - int(match[1]) * _SECONDS[match[2]] * 1000
    today = datetime.datetime.fromtimestamp(now / 1000, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    if text in ("today", "yesterday"):
        moment = today - datetime.timedelta(days=text == "yesterday")
        return int(moment.timestamp() * 1000)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1000)


class LogDiff(Struct, frozen=True):
    """Difference between two states of a log.

    Lines only in the newer state, lines only in the older one, and pairs (older, newer) of changed lines.
    """

    added: tuple[LogLine, ...]
    removed: tuple[LogLine, ...]
    changed: tuple[tuple[LogLine, LogLine], ...]


def diff(older: Sequence[LogLine], newer: Sequence[LogLine]) -> LogDiff:
    """Compare two states of a log. Pure."""
    before, after = {x.id: x for x in older}, {x.id: x for x in newer}
    return LogDiff(
        tuple(x for x in newer if x.id not in before),
        tuple(x for x in older if x.id not in after),
        tuple(
            (before[x.id], x)
            for x in newer
            if x.id in before and (before[x.id].content, before[x.id].pinned) != (x.content, x.pinned)
        ),
    )
