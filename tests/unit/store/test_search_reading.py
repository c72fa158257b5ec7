"""What a search reads of its candidates: sizes from the index, texts only of those that are short or shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sakti.core.types import Message, TextPart, Thread
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.search import retrieve, rows, terms
from sakti.store.search.excerpts import cut_snippet
from sakti.store.search.occurrences import COLUMNS, load_sizes
from sakti.store.search.search import Scope, SearchPage, search
from sakti.store.threads import messages, threads


def say(db: Database, texts: list[str], thread: str = "t") -> None:
    threads.create(db, Thread(thread, "/w", "", 1, 1))
    for n, text in enumerate(texts):
        role = "user" if n % 2 == 0 else "assistant"
        messages.append(db, Message(f"{thread}-{n}", thread, "/w", role, (TextPart(text),), n))


async def page(store: Store, text: str, *, offset: int = 0, limit: int = 20) -> SearchPage:
    return await store.read(search, text, Scope("/w"), offset=offset, limit=limit)


async def test_sizes_are_those_of_the_index_however_long(store: Store) -> None:
    said = ["heron", "heron " + "a " * 126, "heron " + "b " * 127, "heron " + "c getUserId " * 20_000]
    await store.write(say, said)

    def both(db: Database) -> tuple[list[list[int]], list[list[int]]]:
        keys = [k for (k,) in db.execute_sql("SELECT pk FROM search_docs ORDER BY pk")]
        looked: list[list[int]] = []

        def measure(api: Any) -> None:
            looked.append([api.column_size(column) for column in range(COLUMNS)])

        db.connection().register_fts5_function("measure", measure)
        sql = "SELECT measure(search_words) FROM search_words WHERE search_words MATCH 'heron' ORDER BY rowid"
        db.execute_sql(sql).fetchall()
        return looked, [list(load_sizes(db, keys)[k]) for k in keys]

    looked, read = await store.read(both)
    assert read == looked
    assert [s[0] for s in read][:3] == [1, 127, 128] and read[3][0] > 1 << 14, "numbers of one, two and three bytes"
    assert await store.read(load_sizes, []) == {}


async def test_a_path_in_the_text_of_a_message_is_found(store: Store) -> None:
    await store.write(say, ["look at src/auth/session.ts", "which one?", "src/other.ts"])
    assert [h.id for h in (await page(store, "path:auth/Session.ts")).hits] == ["t-0"]
    assert {h.id for h in (await page(store, "-path:auth/session.ts")).hits} == {"t-1", "t-2"}


async def test_a_long_neighbour_is_a_candidate_and_is_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.write(say, ["nothing of it " * 400, "where does the gimbal overflow now?", "else", "more"])
    await store.write(say, [f"an overflow, number {n}" for n in range(6)], "other")
    read: list[int] = []

    def texts_of(db: Database, keys: list[int]) -> dict[int, str]:
        read.extend(keys)
        return rows.load_texts(db, keys)

    monkeypatch.setattr("sakti.store.search.candidates.load_texts", texts_of)
    found = await page(store, "where does the gimbal overflow", limit=1)
    assert [h.id for h in found.hits] == ["t-1"] and 1 not in read, "its key"
    shown = {h.id: h.reason for h in (await page(store, "where does the gimbal overflow")).hits}
    assert shown["t-0"] == "next to a match" and 1 not in read, "what is shown of a hit is read when it is"


async def test_pages_go_on_behind_what_is_measured(store: Store) -> None:
    await store.write(say, [f"heron number{n}" for n in range(170)])
    whole = await page(store, "heron", limit=200)
    assert whole.total == 170 and [h.rank for h in whole.hits] == list(range(1, 171))
    pages = [await page(store, "heron", offset=n) for n in range(0, 180, 20)]
    assert [h.id for p in pages for h in p.hits] == [h.id for h in whole.hits]
    assert {p.total for p in pages} == {170}
    without = await page(store, "heron -number3", limit=200)
    assert without.total == 169 and "t-3" not in {h.id for h in without.hits}


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(st.sampled_from("ab İß\n.c"), max_size=400), st.lists(st.text("abcß", max_size=3), max_size=6), st.data()
)
def test_a_snippet_is_of_its_text_whatever_is_known_of_it(text: str, words: list[str], data: st.DataObject) -> None:
    held = [w.lower() for w in data.draw(st.lists(st.sampled_from(words), max_size=4) if words else st.just([]))]
    snippet, marks, start = cut_snippet(text, words, None, [w for w in held if w])
    assert " ".join(snippet.strip("…").split()) in " ".join(text.split())
    assert 0 <= start <= len(text) and (len(text) > 160 or start == 0)
    assert all(snippet[a:b].lower() in {w.lower() for w in words} or not snippet[a:b].isascii() for a, b in marks)


async def test_a_whole_word_is_before_longer_ones_that_hold_it(store: Store) -> None:
    await store.write(
        say, [f"heron{n} " + " ".join(f"x{n}y{i}" for i in range(60)) for n in range(90)]
    )  # those of 70 to 79 are neighbours
    found = await page(store, "heron7")
    assert found.hits[0].text.startswith("heron7 ") and found.total == 11


async def test_a_pasted_text_is_words(store: Store) -> None:
    await store.write(say, ["the gimbal solver overflowed", "a heron"])
    pasted = 'the "gimbal" and "no such phrase" -solver role:assistant ' + "of it " * 40
    assert (await page(store, pasted)).hits[0].id == "t-0"
    assert (await page(store, '"gimbal" "no such phrase" -solver')).total == 0


async def test_words_of_large_stores_are_counted_in_the_newest_texts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.write(say, ["once", *(f"often {'seldom' if n % 40 == 0 else 'else'}" for n in range(400))])
    wanted = ["often", "seldom", "once", "never"]
    exact = await store.read(retrieve.count, wanted, 401)
    assert exact == {"often": 400, "seldom": 20, "once": 2, "never": 0}, "with those it is said before"
    monkeypatch.setattr(retrieve, "SAMPLE", 200)
    monkeypatch.setattr(retrieve, "COUNTED", 50)
    estimated = await store.read(retrieve.count, wanted, 401)
    assert abs(estimated["often"] - 400) <= 2, "a common word is counted up to a bound, the rest by how dense it was"
    assert abs(estimated["seldom"] - 20) <= 2, "one that is less common by its share of the newest"
    assert (estimated["once"], estimated["never"]) == (1, 0), "one that only older texts have is known all the same"


async def test_of_many_words_fewer_texts_are_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.write(say, ["common rare" if n % 10 == 0 else "common" for n in range(400)])
    monkeypatch.setattr(retrieve, "SAMPLE", 200)
    monkeypatch.setattr(retrieve, "COUNTED_OF_MANY", 40)
    many = ["common", "rare", *(f"none{n}" for n in range(terms.MANY))]
    counted = await store.read(retrieve.count, many, 400)
    assert abs(counted["common"] - 400) <= 2 and abs(counted["rare"] - 80) <= 8, "with those it is said before"
    assert [counted[w] for w in many[2:]] == [0] * terms.MANY


@given(st.lists(st.tuples(st.integers(), st.none() | st.text(max_size=3)), min_size=1, max_size=70))
def test_a_table_of_rows_is_one_of_few_statements(given_rows: list[tuple[int, str | None]]) -> None:
    table, values = rows.build_values_table(given_rows)
    count = table.count("(?, ?)")
    assert count.bit_count() == 1 and len(given_rows) <= count < 2 * len(given_rows)
    pairs = list(zip(values[::2], values[1::2], strict=True))
    assert pairs[: len(given_rows)] == given_rows and set(pairs[len(given_rows) :]) <= {(None, None)}


def test_rows_are_measured_that_match_well_or_stand_in_a_thread_with_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [rows.Row(n, "message", f"t{n // 10}" if n < 60 else None, n, "user", n) for n in range(90)]
    matches = retrieve.Matches(found, {r.pk: 1.0 if r.pk < 20 else 0.2 for r in found} | {50: 0.4, 70: 0.9})
    assert [r.pk for r in matches.worth_measuring()] == [*range(20), 50, 70]
    lifted = [replace(row, thread_id="t0") if row.pk in (33, 61) else row for row in found]
    assert [r.pk for r in retrieve.Matches(lifted, matches.shares).worth_measuring()] == [*range(20), 33, 50, 61, 70]
    alone = {r.pk: 0.35 if r.pk == 61 else 0.25 if r.pk > 61 else 0.0 for r in found}
    few = retrieve.Matches(found[64:54:-1], alone)
    assert few.worth_measuring() == few.rows, "few all"
    monkeypatch.setattr(retrieve, "BEST", 10)
    many = replace(few, rows=[*few.rows, *found[:10]])
    strong = [r.pk for r in many.worth_measuring()]
    assert strong == [61, 59, 58, 57, 56, 55], "a weak one of the best only beside others of them"
    assert replace(many, required=True).worth_measuring() == few.rows, "but where a phrase decides who is weak"
    assert retrieve.Matches(found).worth_measuring() == found, "of texts that were read one by one all"
    assert many.worth_measuring(9) == many.worth_measuring()
    assert many.worth_measuring(10) == [r for r in many.worth_measuring() if r in many.rows[:10]], "behind many others"


async def test_what_is_not_measured_is_listed_behind(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def say_apart(db: Database) -> None:
        for n in range(30):
            say(db, ["the lantern flickers" if n < 2 else "a lantern " + f"of word{n} and more " * 40], f"t{n}")

    await store.write(say_apart)
    monkeypatch.setattr(retrieve, "BEST", 2)
    found = await page(store, "lantern flickers", limit=50)
    assert found.total == len(found.hits) == len({h.id for h in found.hits}) == 29, "the copy is folded"
    assert {h.parts.words for h in found.hits[1:]} == {0.0} and found.hits[0].copies == 1
