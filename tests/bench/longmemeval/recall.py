"""Measure which evidence of a question is in reach: in the context, or among the first results of search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from sakti.store.search import search
from tests.bench.longmemeval.formats import BenchConversation, BenchQuestion, BenchTurn
from tests.bench.longmemeval.ingest import WORKSPACE, Ingested

QUOTE = 60  # consecutive characters of a turn that a line of the log quotes; a shorter turn is quoted whole
HITS = 10


class Reach(Struct, frozen=True):
    """Share of evidence in one place: whether any and whether all of it is there."""

    any: bool
    all: bool


class TurnPlaces(Struct, frozen=True):
    """Ids of the turns of a conversation by where they are: raw, quoted in the log, behind a line of the log."""

    raw: frozenset[str]
    quoted: frozenset[str]
    in_range: frozenset[str]


def place_turns(conversation: BenchConversation, ingested: Ingested) -> TurnPlaces:
    lines = [_flat(line) for block in ingested.blocks for line in block.text.split("\n")]
    index = {id: n for n, id in enumerate(ingested.order)}
    sent = {m.id for m in ingested.messages}
    raw, quoted, in_range = set[str](), set[str](), set[str]()
    for turn in conversation.turns:
        stored = ingested.stored[turn.id]
        if stored in sent:
            raw.add(turn.id)
        if is_quoted(turn, lines):
            quoted.add(turn.id)
        if any(first <= index[stored] <= last for first, last in ingested.ranges):
            in_range.add(turn.id)
    return TurnPlaces(frozenset(raw), frozenset(quoted), frozenset(in_range))


def is_quoted(turn: BenchTurn, lines: Sequence[str]) -> bool:
    """Return whether a line of a log quotes a turn."""
    spoken = _flat(turn.spoken)
    if not spoken:
        return False
    pieces = {spoken[at : at + QUOTE] for at in range(max(1, len(spoken) - QUOTE + 1))}
    return any(piece in line for line in lines if len(line) >= min(QUOTE, len(spoken)) for piece in pieces)


def _flat(text: str) -> str:
    return " ".join(text.split())


async def search_turns(question: BenchQuestion, ingested: Ingested) -> frozenset[str]:
    """Return the ids of the turns among the first results of a search for the question."""
    page = await ingested.store.read(
        search.search, question.text, search.Scope(WORKSPACE), limit=HITS, now=question.asked_at
    )
    turns = {message: turn for turn, message in ingested.stored.items()}
    return frozenset(turns[h.id] for h in page.hits if h.id in turns)


def measure(
    question: BenchQuestion, places: TurnPlaces, hits: Set[str] | None, *, by_quotes: bool, by_range: bool
) -> Mapping[str, Reach]:
    """Return the reach of a question's evidence by place; `hits`: None where nothing is searched.

    `by_quotes`: a quotation in the log counts as in the context. `by_range`: there is a column for evidence behind a
    line of the log, whose words no check of texts can find.
    """
    context = places.raw | places.quoted if by_quotes else places.raw
    reach: dict[str, Set[str]] = {"context": context}
    if by_range:
        reach |= {"source_range": places.in_range | places.raw}
    if hits is not None:
        reach |= {"search": hits, "either": context | hits}
    return {name: _reach(question.evidence, ids) for name, ids in reach.items()}


def _reach(evidence: Sequence[Sequence[str]], ids: Set[str]) -> Reach:
    present = [any(id in ids for id in piece) for piece in evidence]
    return Reach(any(present), bool(present) and all(present))
