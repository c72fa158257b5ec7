"""Check the invariants of memory in the database: of one state, and from one commit to the next.

Each check gives its number in the specification and a sentence. Pure: `Snapshot` is what the database says, `Ledger`
what was really said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from sakti.core.types import Message
from sakti.memory.reflect.extractive import NAME as EXTRACTIVE
from tests.bench import oracle, shared_checks
from tests.bench.raw_rows import GroupRow
from tests.bench.shared_checks import Answer, Finding
from tests.bench.snapshot import Ledger, Snapshot

_FORWARD = {
    ("observation", "buffered", "active"),
    ("observation", "active", "superseded"),
    ("observation", "buffered", "superseded"),  # of two commits that were seen as one
    ("reflection", "buffered", "active"),
    ("reflection", "buffered", "discarded"),
    ("reflection", "active", "superseded"),
    ("reflection", "buffered", "superseded"),
}
_UNREFLECT = {
    ("observation", "superseded", "active"),
    ("reflection", "superseded", "active"),
    ("reflection", "active", "discarded"),
    ("reflection", "buffered", "discarded"),
}


class Violation(Struct, frozen=True):
    invariant: int
    turn: int
    step: int
    message: str


class Undo(Struct, frozen=True):
    """Undone operation.

    A compaction (`made`: the groups that are its own, `ready`: those it only activated), a reflection, or `anything`
    where it was not watched.
    """

    made: frozenset[str] = frozenset()
    ready: frozenset[str] = frozenset()
    thread_id: str = ""
    reflection: bool = False
    anything: bool = False


NOTHING = Undo()


# --- a state ------------------------------------------------------------------------------------------------


def coverage(now: Snapshot, ledger: Ledger) -> Iterator[Finding]:
    """Check 1 and 3: up to the cursor every message is in the log once, after it none is."""
    for thread in ledger.threads():
        spans = sorted((g.first_index or 0, g.last_index or 0) for g in now.live if g.thread_id == thread)
        cursor, expected = now.cursor(thread), 0
        for first, last in spans:
            if first < expected:
                yield 3, f"messages {first}–{min(last, expected - 1)} of {thread} are in the log twice"
            if missing := ledger.missing(thread, expected, first - 1):
                yield 1, f"messages {_some(missing)} of {thread} are behind the cursor and in no group of the log"
            expected = max(expected, last + 1)
        if expected - 1 > cursor:
            yield 3, f"the log stands for {thread} up to {expected - 1}, its cursor is at {cursor}"
        if missing := ledger.missing(thread, expected, cursor):
            yield 1, f"messages {_some(missing)} of {thread} are behind the cursor and in no group of the log"


def stale_inputs(now: Snapshot) -> Iterator[Finding]:
    """Check 8 and 11: a buffered reflection is made of lines that are in the log."""
    for group in now.waiting_reflections():
        if now.stale(group):
            yield 11, f"the reflection {group.id[-8:]} waits, which was made of what is not in the log any more"


def figures(now: Snapshot) -> Iterator[Finding]:
    """Check 2: the record's figures are those of its groups."""
    generations = sum(g.kind == "reflection" and g.state in ("active", "superseded") for g in now.groups.values())
    if now.record.generation_count != generations:
        yield 2, f"the record counts {now.record.generation_count} generations, there are {generations}"
    observed = sum(g.message_tokens for g in now.live)
    if now.record.total_tokens_observed != observed:
        yield 2, f"the record counts {now.record.total_tokens_observed} observed tokens, there are {observed}"


def searchable(now: Snapshot, searched: Mapping[str, str], ledger: Ledger) -> Iterator[Finding]:
    """Check 10: a line is found by its present text, as long as it is not removed from the log."""
    for group in now.groups.values():
        for line in now.lines[group.id]:
            due = "" if group.state == "discarded" else line.shown
            if oracle.words(searched.get(line.id, ""), ledger.words) != oracle.words(due, ledger.words):
                yield 10, f"search has {searched.get(line.id, '')[:40]!r} for the line {due[:40]!r} of {_named(group)}"
                return


# --- from one commit to the next ----------------------------------------------------------------------------


def moves(before: Snapshot, after: Snapshot, undo: Undo = NOTHING) -> Iterator[Finding]:
    """Check 2, 3 and 11: rows stay, states move one way, and only an undo moves them back."""
    for old in before.groups.values():
        new = after.groups.get(old.id)
        if new is None:
            yield 2, f"group {old.id[-8:]} is gone"
            continue
        if _made(new) != _made(old):
            yield 2, f"group {old.id[-8:]} was changed"
        if new.state != old.state and not undo.anything and not _may_move(old, new, after, undo):
            number = 2 if new.state == "discarded" else 11
            yield number, f"{_named(old)} is {new.state}, which was {old.state}"
    for thread, cursor in before.cursors.items():
        moved = after.cursor(thread)
        if moved < cursor and not undo.anything and undo.thread_id != thread:
            yield 3, f"the cursor of {thread} went back from {cursor} to {moved}"


def _made(group: GroupRow) -> tuple[object, ...]:
    return group.text, group.first_index, group.last_index, group.merged_group_ids, group.sections


def _may_move(old: GroupRow, new: GroupRow, after: Snapshot, undo: Undo) -> bool:
    move = (old.kind, old.state, new.state)
    if move in _FORWARD:
        return new.state != "superseded" or any(g.id == old.id for g in after.standing)
    if undo.reflection and move in _UNREFLECT:
        return True
    if move == ("observation", "active", "discarded"):
        return old.id in undo.made
    return move == ("observation", "active", "buffered") and old.id in undo.ready


def observation(
    new: GroupRow, before: Snapshot | None, after: Snapshot, ledger: Ledger, asked: Snapshot | None = None
) -> Iterator[Finding]:
    """Check 1, 2, 3, 7 and 12: a new group of observations, its messages and its text.

    `asked`: the memory when its Observer was asked; messages that an undo returned since are observed later.
    """
    first, last, thread = new.first_index, new.last_index, new.thread_id
    if first is None or last is None or not ledger.knows(thread, first):
        return
    messages = ledger.between(thread, first, last)
    name = f"the observation of {thread} {first}–{last}"
    if len(messages) != last + 1 - first:
        yield 2, f"{name} is of messages that nobody said"
        return
    if early := [m.index for m in messages if m.state == "provisional"]:
        yield 12, f"{name} is of messages that have not passed yet: {_some(early)}"
    there = [m for m in messages if m.state != "withheld"]
    if list(new.message_ids) != [m.id for m in there]:
        yield 3, f"{name} names {len(new.message_ids)} messages, there are {len(there)}"
    if new.message_tokens != sum(m.tokens for m in there):
        yield 4, f"{name} counts {new.message_tokens} tokens of messages, there are {sum(m.tokens for m in there)}"
    found, due = after.words(new, ledger), [oracle.tag(m) for m in there if observable(m)]
    if oracle.words(new.text, ledger.words) != found:
        yield 2, f"the lines of {name} are not its text"
    if found != due:
        lacking = [m.index for m in there if oracle.tag(m) in set(due) - set(found)]
        yield 1, f"{name} says nothing of messages {_some(lacking)}" if lacking else f"{name} says what others said"
    if parted := _parted(messages, ledger):
        yield 7, f"{name} parts calls from their results: {parted}"
    for other in after.groups.values():
        if _overlap(new, other):
            yield 3, f"messages {first}–{last} of {thread} were observed twice"
            return
    if before is not None:
        then = {m.id for m in (asked or before).uncovered(thread, ledger)}
        waiting = [m for m in before.uncovered(thread, ledger) if m.id in then]
        if waiting and first > waiting[0].index:
            yield 1, f"{name} leaves out {waiting[0].index}, which is not observed"


def observable(message: Message) -> bool:
    """Return whether an Observer may read a message."""
    return message.role != "system" and message.state == "saved" and "synthetic" not in message.metadata


def _parted(messages: Sequence[Message], ledger: Ledger) -> list[str]:
    inside = {c.id for m in messages for c in m.tool_calls}
    answered = {r.call_id for m in messages for r in m.tool_results}
    late = [i for i in inside - answered if ledger.result(i) is not None]
    return sorted([*late, *(answered - inside)])[:3]


def _overlap(one: GroupRow, other: GroupRow) -> bool:
    return (
        other.id != one.id
        and other.kind == "observation"
        and other.state != "discarded"
        and other.thread_id == one.thread_id
        and (other.first_index or 0) <= (one.last_index or 0)
        and (other.last_index or 0) >= (one.first_index or 0)
    )


def reflection(
    new: GroupRow, after: Snapshot, ledger: Ledger, answers: Sequence[Answer], count: Callable[[str], int]
) -> Iterator[Finding]:
    """Check 8: a new reflection is smaller than its input, made of the present log, and keeps the pinned lines."""
    if new.observation_tokens != count(new.text):
        yield 8, f"a reflection counts {new.observation_tokens} tokens, it has {count(new.text)}"
    merged = [after.groups[i] for i in new.merged_group_ids if i in after.groups]
    pinned = [line for g in merged for line in after.lines[g.id] if line.pinned and line.shown]
    rows = {line.content: line for line in after.lines[new.id]}
    for line in pinned:
        if line.shown not in rows or not rows[line.shown].pinned:
            yield 8, f"a pinned line is not in the reflection as it was: {line.shown[:60]}"
    found = after.words(new, ledger)
    if len(found) != len(set(found)):
        yield 8, "a reflection has a line twice"
    if new.model == EXTRACTIVE:  # it takes over from a Reflector that lost too much
        if not set(found) <= {w for g in merged for w in after.words(g, ledger)}:
            yield 8, "a reflection without a model has lines that were not in the log"
        return
    if after.record.scope == "resource":
        yield from shared_checks.reflection(new, merged, after, ledger, answers, count)
        return
    given = {g.id for g in merged if after.shown(g)}
    fitting = [a for a in answers if set(a.inputs) == given]
    if not fitting:
        yield 8, f"a reflection of {len(given)} groups is nobody's answer to them"
        return
    due = {g.id: after.words(g, ledger) for g in merged}
    fresh = [a for a in fitting if all(oracle.words(t, ledger.words) == due[i] for i, t in a.inputs.items())]
    if not fresh:
        yield 8, "a reflection was made of lines that are no longer in the log"
        return
    kept = {w for line in pinned for w in oracle.words(line.shown, ledger.words)}
    important = [text for g in merged for text in after.shown(g) if "🔴" in g.text]
    back = {w for text in important for w in oracle.words(text, ledger.words)}  # what a Reflector lost is put back
    answered = [(a, kept | set(oracle.words(a.text, ledger.words))) for a in fresh]
    exact = [a for a, words in answered if words <= set(found) <= words | back]
    if not exact:
        yield 8, f"a reflection of {len(found)} lines is not what its Reflector answered"
    elif new.observation_tokens >= max(sum(map(count, a.inputs.values())) for a in exact):
        yield 8, f"a reflection of {new.observation_tokens} tokens is not smaller than what it merges"


def observed_by_itself(made: GroupRow, until: int, pending: int) -> Finding:
    return 3, (
        f"messages {made.first_index}–{made.last_index} went into the log at {pending} pending tokens, although the"
        f" user took an observation back: that waits until {until}"
    )


def _named(group: GroupRow) -> str:
    return f"the {group.kind} {group.id[-8:]} of {group.thread_id} {group.first_index}–{group.last_index}"


def _some(indexes: Sequence[int]) -> str:
    shown = ", ".join(map(str, indexes[:6]))
    return f"{shown} … ({len(indexes)})" if len(indexes) > 6 else shown
