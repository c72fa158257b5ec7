"""Check a log that threads share: each line is observed and condensed as its own thread's. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from tests.bench import oracle
from tests.bench.raw_rows import GroupRow
from tests.bench.snapshot import Ledger, Snapshot

Finding: TypeAlias = tuple[int, str]
_BLOCK = re.compile(r"<observation-group([^>]*)>(.*?)</observation-group>", re.DOTALL)


class Answer(Struct, frozen=True):
    """Reflector's input by group (in a shared log by part of one: `ID/NUMBER`), and its answer."""

    inputs: Mapping[str, str]
    text: str


def own_words(group: GroupRow, now: Snapshot, ledger: Ledger, thread_id: str) -> list[str]:
    """Return the words of a group that a thread's Observer gets: in a shared log only its own."""
    if now.record.scope != "resource":
        return now.words(group, ledger)
    own = [words for words, spans in now.parts(group, ledger) if {t for t, _, _ in spans} == {thread_id}]
    return [w for words in own for w in words]


def named(shown: str, ledger: Ledger) -> Iterator[Finding]:
    """Check 3: each line of the log stands in a block that names its thread."""
    for attributes, text in _BLOCK.findall(shown):
        threads = {t for t, _ in _said_in(oracle.words(text, ledger.words), ledger)}
        if strange := sorted(t for t in threads if hashlib.sha256(t.encode()).hexdigest()[:8] not in attributes):
            yield 3, f"lines of {', '.join(strange)} are in a block that does not name it:{attributes[:120]}"
    outside = oracle.words(_BLOCK.sub("", shown), ledger.words)
    if outside:
        yield 3, f"{len(outside)} lines of the log are in no block"


def reflection(
    new: GroupRow,
    merged: Sequence[GroupRow],
    after: Snapshot,
    ledger: Ledger,
    answers: Sequence[Answer],
    count: Callable[[str], int],
) -> Iterator[Finding]:
    """Check 3 and 8: sections of a reflection are a Reflector's answers, or the lines as they were.

    It covers all that was merged, and its lines are of the messages it covers.
    """
    if _whole(new, after, ledger) != _whole_of(merged, after, ledger):
        yield 3, "a reflection does not stand for the messages of what it merges"
    pieces = {f"{g.id}/{n}": words for g in merged for n, (words, _) in enumerate(after.parts(g, ledger)) if words}
    pinned = [line.shown for g in merged for line in after.lines[g.id] if line.pinned and line.shown]
    kept = {w for text in pinned for w in oracle.words(text, ledger.words)}
    fresh = [
        a
        for a in answers
        if a.inputs and all(oracle.words(t, ledger.words) == pieces.get(i, []) for i, t in a.inputs.items())
    ]
    used, left, tokens = set[str](), set[str](), 0
    for words, spans in after.parts(new, ledger):
        if strange := [s for s in _said_in(words, ledger) if not _within(s, spans)]:
            yield 3, f"{len(strange)} lines of a reflection are of messages that their part does not stand for"
        found = next((a for a in reversed(fresh) if words and _answers(a, words, kept, ledger)), None)
        if found is None:
            left |= set(words)
            continue
        used |= found.inputs.keys()
        tokens += sum(map(count, found.inputs.values()))
    if left != {w for i, words in pieces.items() if i not in used for w in words}:
        yield 8, f"{len(left)} lines of a reflection are nobody's answer, and not what it merges"
    if not left and new.observation_tokens >= tokens:
        yield 8, f"a reflection of {new.observation_tokens} tokens is not smaller than what it merges"


def _answers(answer: Answer, words: Sequence[str], kept: set[str], ledger: Ledger) -> bool:
    given = {w for text in answer.inputs.values() for w in oracle.words(text, ledger.words)}
    return set(words) == (kept & given) | set(oracle.words(answer.text, ledger.words))


def _whole(group: GroupRow, now: Snapshot, ledger: Ledger) -> dict[str, tuple[int, int]]:
    return _joined(spans for _, spans in now.parts(group, ledger))


def _whole_of(groups: Sequence[GroupRow], now: Snapshot, ledger: Ledger) -> dict[str, tuple[int, int]]:
    return _joined(spans for group in groups for _, spans in now.parts(group, ledger))


def _joined(found: Iterator[Sequence[tuple[str, int, int]]]) -> dict[str, tuple[int, int]]:
    out: dict[str, tuple[int, int]] = {}
    for spans in found:
        for thread, first, last in spans:
            before = out.get(thread, (first, last))
            out[thread] = (min(before[0], first), max(before[1], last))
    return out


def _said_in(words: Sequence[str], ledger: Ledger) -> list[tuple[str, int]]:
    """Return (thread, index) of the messages that words stand for; the user's own corrections have none."""
    found = (ledger.words[w].rpartition(" ") for w in words)
    return [(thread, int(index)) for thread, _, index in found if index.isdecimal()]


def _within(said: tuple[str, int], spans: Sequence[tuple[str, int, int]]) -> bool:
    return any(said[0] == thread and first <= said[1] <= last for thread, first, last in spans)
