"""Fold copies of a text into one row. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from msgspec import Struct

from sakti.core.patterns import lazy_pattern
from sakti.store.search.features import SHORT, TOOL, Features
from sakti.store.search.rank import MESSAGE, Ranked
from sakti.store.search.retrieve import LOG_LINES
from sakti.store.search.rows import Row

# Who said it, and what a relative date means: what a line adds to a sentence.
_ATTRIBUTION = lazy_pattern(r"^(?:User|Agent)\b[^:]{0,40}: | \(meaning [^()]*\)$")
_BETWEEN_SENTENCES = lazy_pattern(r"; |(?<=[.!?…。]) ")  # as a line joins sentences of a message, not always all


class Folded(Struct, frozen=True):
    """Each text once: its first candidate, and the number of its copies."""

    kept: list[Ranked]
    copies: list[int]


def fold(ranked: Sequence[Ranked], read: Callable[[Sequence[int]], Mapping[int, str]]) -> Folded:
    """Return each text of the candidates once.

    What tools print counts as the same where only numbers (times, sizes, addresses) differ. `read` returns texts by
    key: of long ones that may be copies.
    """
    sizes = Counter((r.features.row.role, r.features.size) for r in ranked)
    keys = [_key(r.features) if sizes[r.features.row.role, r.features.size] > 1 else r.features.row.pk for r in ranked]
    often = Counter(keys)
    long = [
        r.features.row.pk for r, key in zip(ranked, keys, strict=True) if often[key] > 1 and not _is_read(r.features)
    ]
    texts = read(long) if long else {}
    first: dict[Hashable, int] = {}
    uniques: list[Ranked] = []
    copies: list[int] = []
    for r, key in zip(ranked, keys, strict=True):
        pk = r.features.row.pk
        same = (key, _normalized_text(texts[pk], r.features.row.role)) if pk in texts else key
        if same in first:
            copies[first[same]] += 1
        else:
            first[same] = len(uniques)
            uniques.append(r)
            copies.append(0)
    return _fold_quotations(uniques, copies)


def _fold_quotations(uniques: Sequence[Ranked], copies: Sequence[int]) -> Folded:
    """Return the texts without log lines that quote another candidate.

    That candidate takes the better of the two places. A log without a model quotes
    the messages of its thread word for word: each would be listed twice.
    """
    messages: dict[str | None, list[tuple[int, str]]] = {}
    for at, r in enumerate(uniques):
        if r.features.row.kind == MESSAGE and _is_read(r.features):
            messages.setdefault(r.features.row.thread_id, []).append((at, r.features.beginning))
    place = list(range(len(uniques)))
    gone: set[int] = set()
    for at, r in enumerate(uniques):
        row, text = r.features.row, r.features.beginning
        if row.kind not in LOG_LINES or not text:
            continue
        pieces = _BETWEEN_SENTENCES.split(_ATTRIBUTION.sub("", text))
        listed = messages.get(row.thread_id, ())
        quoted = next((n for n, message in listed if all(piece in message for piece in pieces)), None)
        if quoted is not None:
            gone.add(at)
            place[quoted] = min(place[quoted], at)
    remaining = sorted((at for at in range(len(uniques)) if at not in gone), key=place.__getitem__)
    return Folded([uniques[at] for at in remaining], [copies[at] for at in remaining])


def fold_rest(
    folded: Folded, rest: Sequence[Row], texts: Mapping[int, str]
) -> tuple[list[tuple[Ranked, int]], list[tuple[Row, int]]]:
    """Fold the copies among unmeasured rows with a text in `texts`: keep the first of each.

    Return the candidates with those that are copies of one of them, and the others with their copies.
    """
    measured = {_key(r.features): i for i, r in enumerate(folded.kept)} if texts else {}
    more = list(folded.copies)
    first: dict[Hashable, int] = {}
    uniques: list[Row] = []
    copies: list[int] = []
    for row in rest:
        key = (row.kind, row.role, _normalized_text(texts[row.pk], row.role)) if row.pk in texts else row.pk
        if key in measured:
            more[measured[key]] += 1
        elif key in first:
            copies[first[key]] += 1
        else:
            first[key] = len(uniques)
            uniques.append(row)
            copies.append(0)
    return list(zip(folded.kept, more, strict=True)), list(zip(uniques, copies, strict=True))


def _is_read(f: Features) -> bool:
    return bool(f.beginning) and f.size <= SHORT


def _normalized_text(text: str, role: str) -> bytes:
    """Normalise a text for comparison: no numbers in tools' output, no outer white space."""
    encoded = text.encode("utf-8", "replace")
    return (encoded.translate(None, b"0123456789") if role == TOOL else encoded).strip()


def _key(f: Features) -> Hashable:
    """Return what copies have in common.

    Short texts: the text. Long ones, which are not read: their length, and where the query's words stand in them; not
    the message before, of which `length` and `counts` tell, too.
    """
    row = f.row
    if _is_read(f):
        return (row.kind, row.role, _normalized_text(f.beginning, row.role))
    return (row.kind, row.role, f.size, f.own, f.adjacent, f.near)
