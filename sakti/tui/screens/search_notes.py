"""What a hit needs said beside its text: why it was found without the word, and where else the same stands. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from sakti.store.search.query import STOP_WORDS, TOKEN, parse_query, terms
from sakti.store.search.stems import stems

if TYPE_CHECKING:
    from sakti.store.search.search import Hit

READ = 4_000  # characters of a hit round its snippet that are looked through for a reason
ALIKE = 0.75  # similarity of two words from which one may be a slip of the other


def reason(hit: Hit, query: str) -> str:
    """Why a hit without the words that were typed is listed; empty where it has one of them."""
    asked = parse_query(query)
    words = [w.lower() for w in (*terms(asked.text), *asked.phrases, *asked.prefixes) if w.lower() not in STOP_WORDS]
    text = hit.text[max(0, hit.start - READ // 2) : hit.start + READ]
    if not words or any(word in hit.text.lower() for word in words):
        return ""
    found = list(dict.fromkeys(token.lower() for token in TOKEN.findall(text)))
    wanted = {stem for word in words for stem in stems(word)}
    if same := next((token for token in found if wanted & set(stems(token))), ""):
        return f"same stem: {same}"
    if near := next((t for t in found for w in words if len(w) > 3 and _alike(w, t)), ""):
        return f"similar: {near}"
    return "near: the text before or after it has the word" if hit.kind == "message" else "related"


def _alike(word: str, token: str) -> bool:
    return abs(len(word) - len(token)) < 3 and SequenceMatcher(None, word, token).ratio() >= ALIKE


def folded(hits: Sequence[Hit]) -> tuple[list[Hit], dict[str, int]]:
    """`hits` with what tools showed more than once listed once.

    Behind what people said where it would stand before it; and of each such hit, by its id, how many more there are.
    """
    first: dict[str, Hit] = {}
    more: dict[str, int] = {}
    kept: list[Hit] = []
    for hit in hits:
        key = " ".join(hit.snippet.strip("…").split()) if hit.kind == "message" and hit.role == "tool" else hit.id
        if key in first:
            more[first[key].id] = more.get(first[key].id, 0) + 1
        else:
            first[key] = hit
            kept.append(hit)
    last = max((i for i, h in enumerate(kept) if h.role == "user"), default=-1)
    before, after = kept[: last + 1], kept[last + 1 :]
    return [*(h for h in before if h.id not in more), *(h for h in before if h.id in more), *after], more


def notes(hits: Iterable[Hit], more: Mapping[str, int], query: str) -> dict[str, str]:
    """What to say of each hit that needs it, by its id."""
    found = ((h, reason(h, query), more.get(h.id, 0)) for h in hits)
    told = ((h.id, " · ".join(p for p in (why, f"the same {n} times more" if n else "") if p)) for h, why, n in found)
    return {i: text for i, text in told if text}
