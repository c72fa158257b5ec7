"""Measure which evidence of a question is in reach: in the context, or in the first results of search."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from sakti.agent.tools.memory_search import HitRequest, find_hits
from sakti.core.clock import shorten_id
from sakti.core.tokens import Counter
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


class SearchedTurns(Struct, frozen=True):
    """Ids of the turns that a search brings.

    `hits`: the best ten. `shown`: all turns in the first ten results of memory-search, which leave out what the
    context has raw and bring the turns around short ones; `tokens`: of these results as sent.
    """

    hits: frozenset[str]
    shown: frozenset[str]
    tokens: int


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


async def search_turns(question: BenchQuestion, ingested: Ingested, counter: Counter) -> SearchedTurns:
    """Search for the words of a question."""
    scope = search.Scope(WORKSPACE)
    page = await ingested.store.read(search.search, question.text, scope, limit=HITS, now=question.asked_at)
    sent = {m.id for m in ingested.messages}
    answer = await ingested.store.read(find_hits, HitRequest(question.text, scope, HITS), counter, sent)
    turns = {message: turn for turn, message in ingested.stored.items()}
    by_short_id = {shorten_id(id): id for id in ingested.order}
    shown = {hit["id"] for hit in answer["results"]}
    for hit in answer["results"]:
        shown |= {by_short_id[n["id"]] for n in hit.get("neighbours", ()) if "cut" not in n}
    return SearchedTurns(
        frozenset(turns[h.id] for h in page.hits if h.id in turns),
        frozenset(turns[id] for id in shown if id in turns),
        counter.count(json.dumps(answer, ensure_ascii=False)),
    )


def measure(
    question: BenchQuestion, places: TurnPlaces, searched: SearchedTurns | None, *, by_quotes: bool, by_range: bool
) -> Mapping[str, Reach]:
    """Return the reach of a question's evidence by place; `searched`: None if nothing is searched.

    `by_quotes`: a quotation in the log counts as in the context. `by_range`: there is a column for evidence behind a
    line of the log, whose words no check of texts can find.
    """
    context = places.raw | places.quoted if by_quotes else places.raw
    reach: dict[str, Set[str]] = {"context": context}
    if by_range:
        reach |= {"source_range": places.in_range | places.raw}
    if searched is not None:
        reach |= {"search": searched.hits, "either": context | searched.hits}
        reach |= {"results": searched.shown, "in_reach": context | searched.shown}
    return {name: _reach(question.evidence, ids) for name, ids in reach.items()}


def _reach(evidence: Sequence[Sequence[str]], ids: Set[str]) -> Reach:
    present = [any(id in ids for id in piece) for piece in evidence]
    return Reach(any(present), bool(present) and all(present))
