"""Say why a hit is listed where its text does not show the words that were typed: from what the ranking found.

Raw SQL: the message before a hit, by the index's own rows.
"""

from __future__ import annotations

from sakti.core.text import one_line
from sakti.store.connection import Connection
from sakti.store.search.features import Pattern
from sakti.store.search.query import TOKEN
from sakti.store.search.rank import Ranked
from sakti.store.search.stems import stems

QUOTED = 60  # characters of the message before that are shown


def reason_of(db: Connection, ranked: Ranked, text: str, lower: str, pattern: Pattern) -> tuple[str, list[str]]:
    """Return why a text is listed ("" where it shows), and the words of it to mark besides the typed ones."""
    features = ranked.features
    if not pattern.rarities or not features.own:
        return "", []
    if ranked.answers:
        return _answer(db, ranked), []
    matched = [t for t, own in zip(pattern.terms, features.own, strict=False) if own]
    parts = [p for (p, _), own in zip(pattern.parts, features.own[len(pattern.terms) :], strict=True) if own]
    if any(p not in pattern.meant for p in parts) or any(t.text in lower for t in matched):
        return "", []
    if parts:
        return f"similar: {parts[0]}", [parts[0]]
    wanted = {stem: t for t in matched for stem in t.stem}
    for token in TOKEN.findall(text):
        for stem in stems(token):
            if stem in wanted:
                return f"same stem: {token}", [token]
    for term in matched:
        for form in (f for f in term.forms if f.how != "word"):
            word = form.phrase.strip('"')
            if word in lower:
                return f"{'similar' if form.how == 'similar' else 'short form'}: {word}", [word]
            if token := next((t for t in TOKEN.findall(text) if set(stems(word)) & set(stems(t))), ""):
                return f"similar: {token}", [token]
    return "in its summary" if matched else "", []


def _answer(db: Connection, ranked: Ranked) -> str:
    row = ranked.features.row
    before = db.execute_sql(
        "SELECT text FROM search_texts WHERE thread_id = ? AND kind = 'message' AND position = ?",
        (row.thread_id, row.position - 1),
    ).fetchone()
    if before is None or not before[0].strip():
        return "next to a match"
    return f"answer to “{one_line(before[0].strip(), QUOTED)}”"
