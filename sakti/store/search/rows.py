"""Read the rows of search, their stored texts, and the fields that a hit shows.

Raw SQL: hundreds of texts for each query.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from sakti.store import archive_file
from sakti.store.connection import Connection
from sakti.store.search.folding import fold_text, match_all, remove_accents, split_trigrams
from sakti.store.search.index import TEXT_LIMIT
from sakti.store.search.query import CJK_SIGNS, is_cjk
from sakti.store.search.terms import split_words, stem_words
from sakti.store.threads.codec import read_text


class Row(Struct, frozen=True):
    """Row of search without its text; `position` is that of a message in its thread."""

    pk: int
    kind: str
    thread_id: str | None
    position: int
    role: str
    created_at: int


LOG_LINES = ("observation", "reflection")  # kinds of rows that are log lines
ROW = "d.pk, d.kind, d.thread_id, d.position, d.role, d.created_at"


def to_json_list(keys: Iterable[int]) -> str:
    """Return keys as JSON for `json_each`: the statement stays the same, so it is prepared once."""
    return f"[{','.join(map(str, keys))}]"


def build_values_table(rows: Sequence[tuple[object, ...]]) -> tuple[str, list[object]]:
    """Return a table of `rows` (at least one) for FROM, with columns `column1` …, and its values.

    It is padded with NULL rows to a power of two, so that the statement is mostly the same and prepared once.
    """
    width, count = len(rows[0]), 1 << (len(rows) - 1).bit_length()
    row = f"({', '.join('?' * width)})"
    missing = [None] * (width * (count - len(rows)))
    return f"(VALUES {', '.join([row] * count)})", [*itertools.chain.from_iterable(rows), *missing]


class Stored(Struct, frozen=True):
    """Stored text of a row: its own, or in the columns of its message."""

    own: str
    said: str | None
    raw: str
    parts: str | bytes | None

    def read(self) -> str:
        return _build_row_text(self.own, self.said, self.raw, self.parts)


def _build_row_text(own: str, said: str | None, raw: str, parts: str | bytes | None) -> str:
    """Return the text of a row, computed like the view `search_texts` but without SQL functions."""
    if parts is None:
        return own
    return (read_text(raw, parts) if said is None else said)[:TEXT_LIMIT]


_STORED = "d.text, m.search_text, m.raw_content, m.parts"
_MESSAGE = "LEFT JOIN messages m ON m.pk = d.message_pk AND d.text = ''"


def load_texts(db: Connection, keys: Sequence[int]) -> dict[int, str]:
    """Return the texts of rows."""
    if not keys:
        return {}
    sql = f"SELECT d.pk, {_STORED} FROM search_docs d {_MESSAGE} WHERE d.pk IN (SELECT value FROM json_each(?))"
    # SQL: one statement for all ids, which are one parameter
    rows = db.execute_sql(sql, (to_json_list(keys),)).fetchall()
    return {pk: _build_row_text(text, search_text, raw, parts) for pk, text, search_text, raw, parts in rows}


def load_texts_before(db: Connection, rows: Sequence[Row]) -> dict[int, Stored]:
    """Load the texts of the messages before those of `rows`, by the keys of `rows`."""
    if not rows:
        return {}
    table, values = build_values_table([(r.pk, r.thread_id, r.position - 1) for r in rows])
    # SQL: a search runs it for its candidates in one statement
    records = db.execute_sql(
        f"SELECT w.column1, {_STORED} FROM {table} w CROSS JOIN search_docs d"
        f" ON d.thread_id = w.column2 AND d.kind = 'message' AND d.position = w.column3 {_MESSAGE}",
        values,
    ).fetchall()
    return {pk: _to_stored(*columns) for pk, *columns in records}


def _to_stored(own: str, said: str | None, raw: str, parts: str | bytes | None) -> Stored:
    """Return a text that can be decoded later; archived texts are read now."""
    if parts is not None and archive_file.is_reference(parts):
        return Stored(_build_row_text(own, said, raw, parts), None, "", None)
    return Stored(own, said, raw, parts)


def find_excluded(db: Connection, rows: Sequence[Row], words: Sequence[str], match: str) -> set[int]:
    """Return the keys of the rows whose text has one of `words`.

    `match`: the FTS5 query of texts that may have one. A text that contains the word with its dash or after NOT is
    kept: `java -jar` finds itself. If the index lacks one of the words, all texts are read.
    """
    if not words or not rows:
        return set()
    keys = [r.pk for r in rows]
    spelled = "|".join(_build_word_pattern(w) for w in words if not is_unindexed(w))
    inside = "|".join(re.escape(remove_accents(w)) for w in words if is_unindexed(w))
    if not inside:
        glued = " OR ".join(
            f"({match_all(pieces)})" for w in words if (pieces := split_trigrams(w.rstrip("*")))
        )  # 重启nginx
        keys = [
            *{*_find_matching(db, "search_words", match, keys), *_find_matching(db, "search_trigrams", glued, keys)}
        ]
    letter = rf"[^\W_{CJK_SIGNS}]"
    unwanted = re.compile(
        "|".join([rf"(?<!{letter})(?:{spelled})(?!{letter})"] * bool(spelled) + [inside] * bool(inside))
    )
    typed = _build_exclusion_pattern(words)
    texts = load_texts(db, keys)
    return {pk for pk, text in texts.items() if unwanted.search(remove_accents(text)) and not typed.search(text)}


def find_quoting_exclusion(db: Connection, rows: Sequence[Row], words: Sequence[str]) -> set[int]:
    """Return the keys of rows whose text has one of `words` with its dash or after NOT."""
    typed = _build_exclusion_pattern(words)
    return {pk for pk, text in load_texts(db, [r.pk for r in rows]).items() if typed.search(text)}


def _build_exclusion_pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Build the pattern of `words` as typed in an exclusion."""
    as_typed = "|".join(re.escape(w.rstrip("*")) for w in words)
    return re.compile(rf"(?:(?<!\S)-|(?<!\w)NOT[\s(\"'`{{]+)(?i:{as_typed})(?!\w)")


def _find_matching(db: Connection, table: str, match: str, keys: Sequence[int]) -> list[int]:
    """Return those of `keys` whose row in an index matches."""
    sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ? AND rowid BETWEEN ? AND ?"
    among = " AND +rowid IN (SELECT value FROM json_each(?))"
    # SQL: a search runs it for its candidates in one statement
    rows = db.execute_sql(sql + among, (match, min(keys), max(keys), to_json_list(keys))) if match else ()
    return [key for (key,) in rows]


def _build_word_pattern(word: str) -> str:
    """Build the pattern of a word, a prefix (`word*`), or a phrase that a line break may split."""
    pattern = r"\s+".join(re.escape(w) for w in remove_accents(word.rstrip("*")).split())
    return pattern + r"\w*" * word.endswith("*")


def is_unindexed(word: str) -> bool:
    """Return whether the word index cannot distinguish a word: 数据库, 🚀, C#."""
    letters = sum(map(len, stem_words(fold_text(word))))
    return is_cjk(word) or (letters <= 1 and letters < len(word.rstrip("*")))


def find_having(db: Connection, rows: Sequence[Row], alternatives: Sequence[Sequence[str]]) -> set[int]:
    """Return the keys of the rows whose own text has all words of one of the `alternatives`."""
    required = [
        [_RequiredWord(fold_text(w.rstrip("*")).lower(), w.endswith("*")) for w in group] for group in alternatives
    ]
    matching: set[int] = set()
    for pk, text in load_texts(db, [r.pk for r in rows]).items():
        lower = fold_text(text).lower()
        forms = {*stem_words(lower), *split_words(lower)}
        if any(all(word.stands_in(lower, forms) for word in group) for group in required):
            matching.add(pk)
    return matching


class _RequiredWord(Struct, frozen=True):
    """Word that a text must have.

    Words of an alphabet match in any form or with any ending, others anywhere in the text.
    """

    word: str
    prefix: bool

    def stands_in(self, lower: str, known: Collection[str]) -> bool:
        if is_unindexed(self.word):
            return self.word in lower
        if self.prefix:
            return any(w.startswith(self.word) for w in known)
        return all(s in known for s in stem_words(self.word)) or (self.word in lower and is_cjk(lower))  # 重启nginx


class HitFields(Struct, frozen=True):
    """Fields of a hit besides its `Row`; `origin`: the program its thread was imported from."""

    doc_id: str
    title: str
    task_id: str | None
    source: str
    text: Stored
    origin: str = ""


# a child's title follows its parent's
_TITLE = (
    "coalesce(CASE WHEN t.parent_id IS NULL THEN t.title ELSE"
    " (SELECT title FROM threads WHERE id = t.parent_id) || ' › ' || t.title END, '')"
)
_SHOWN = (
    f"d.pk, d.doc_id, {_TITLE}, d.task_id,"
    " CASE WHEN d.kind != 'message' THEN d.kind WHEN EXISTS (SELECT 1 FROM compaction_records c"
    " WHERE c.thread_id = d.thread_id AND c.undone_at IS NULL AND d.position BETWEEN c.first_index AND c.last_index)"
    " THEN 'compacted' ELSE 'raw' END, coalesce(json_extract(t.metadata, '$.origin.program'), '')"
)


def load_hit_fields(db: Connection, keys: Sequence[int]) -> dict[int, HitFields]:
    """Load the fields of the hits for these rows."""
    if not keys:
        return {}
    # SQL: one statement for all ids, which are one parameter
    rows = db.execute_sql(
        f"SELECT {_SHOWN}, {_STORED} FROM search_docs d LEFT JOIN threads t ON t.id = d.thread_id {_MESSAGE}"
        " WHERE d.pk IN (SELECT value FROM json_each(?))",
        (to_json_list(keys),),
    ).fetchall()
    return {
        pk: HitFields(doc_id, title, task, source, _to_stored(text, search_text, raw, parts), origin)
        for pk, doc_id, title, task, source, origin, text, search_text, raw, parts in rows
    }
