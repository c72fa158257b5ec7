"""Say beside a hit why it was found without the word, and where else the same text stands. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sakti.core.text import counted

if TYPE_CHECKING:
    from sakti.store.search.search import Hit


def folded(hits: Sequence[Hit]) -> tuple[list[Hit], dict[str, int]]:
    """Return `hits` with what tools showed more than once listed once.

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


def notes(hits: Iterable[Hit], more: Mapping[str, int]) -> dict[str, str]:
    """Return what to say of each hit that needs it, by its id."""
    found = ((h, h.copies + more.get(h.id, 0)) for h in hits)
    told = {h.id: (h.reason, f"{counted(n, 'identical text')} not listed" if n else "") for h, n in found}
    return {i: " · ".join(filter(None, pieces)) for i, pieces in told.items() if any(pieces)}
