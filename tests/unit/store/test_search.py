"""What is typed is a query, never an error; what was said is found by its words, its pieces and its letters."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from playhouse.apsw_ext import APSWDatabase

from sakti.core.clock import SystemClock
from sakti.store import migrate
from sakti.store.database import Store
from sakti.store.search import index as search_index
from sakti.store.search import query
from sakti.store.search.excerpts import cut_snippet
from sakti.store.search.search import Scope, list_terms, parse_query, search

DAY = 86_400_000
TEXTS = {
    "m0": "We agreed on the LoginSchema: email and password, both required.",
    "m1": "auth.ts now exports getUserId and refresh_tokens; see src/auth/session.ts",
    "m2": "The parser is written in C++ and C#, what's left is Rust.",
    "m3": "部署 服务器 🚀 done",
    "m4": "Deploying the parser to production failed with error E4012.",
    "m5": "The quick brown fox jumps over the lazy dog.",
    "m6": "A brown and quick animal, no fox.",
}


def fill(db: APSWDatabase) -> None:
    for i, (name, text) in enumerate(TEXTS.items()):
        search_index.put(
            db,
            kind="message",
            doc_id=name,
            resource_id="/w",
            thread_id="t1" if i < 4 else "t2",
            role="user" if i % 2 else "assistant",
            position=i,
            created_at=1_700_000_000_000 + i * DAY,
            text=text,
            paths=["src/auth/session.ts"] if name == "m1" else [],
        )
    search_index.put(
        db, kind="observation", doc_id="o1", resource_id="/w", thread_id="t1", created_at=1, text="Uses the LoginSchema"
    )
    search_index.put(db, kind="task", doc_id="k1", resource_id="/other", created_at=1, text="Write the LoginSchema")


@pytest.fixture
async def filled(store: Store) -> AsyncIterator[Store]:
    await store.write(fill)
    yield store


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> APSWDatabase:
    path: Path = tmp_path_factory.mktemp("search") / "s.db"
    opened = APSWDatabase(str(path))
    opened.connect()
    migrate.upgrade(opened, path, SystemClock())
    fill(opened)
    return opened


def ids(db: APSWDatabase, text: str, scope: Scope | None = None, limit: int = 20) -> list[str]:
    return [h.id for h in search(db, text, scope or Scope("/w"), limit=limit).hits]


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("LoginSchema", {"m0", "o1"}),
        ("login schema", {"m0", "o1"}),
        ("login_schema", {"m0", "o1"}),
        ("Schem", {"m0", "o1"}),
        ("LoginShcema", {"m0", "o1"}),
        ("auth.ts", {"m1"}),
        ("refresh_tokens", {"m1"}),
        ("refresh tokens", {"m1"}),
        ("getuserid", {"m1"}),
        ("get user id", {"m1"}),
        ("UserI", {"m1"}),
        ("C++", {"m2"}),
        ("C#", {"m2"}),
        ("what's left", {"m2"}),
        ("服务", {"m3"}),
        ("部署", {"m3"}),
        ("🚀", {"m3"}),
        ("deploy*", {"m4"}),
        ("deployed", {"m4"}),
        ("E4012", {"m4"}),
        ('"quick brown"', {"m5"}),
        ("brown -jumps", {"m6"}),
        ("path:session.ts", {"m1"}),
        ("path:src/* tokens", {"m1"}),
    ],
)
def test_what_was_said_is_found(db: APSWDatabase, typed: str, first: set[str]) -> None:
    found = ids(db, typed)
    assert found and found[0] in first


def test_filters_narrow(db: APSWDatabase) -> None:
    assert set(ids(db, "role:user")) == {"m1", "m3", "m5"}
    assert set(ids(db, "thread:t2 parser")) == {"m4"}
    assert set(ids(db, "kind:observation LoginSchema")) == {"o1"}
    assert set(ids(db, "kind:messages LoginSchema")) == {"m0"}
    assert "m4" not in ids(db, "parser before:2023-11-16")
    assert ids(db, "parser after:2023-11-17") == ["m4"]
    assert set(ids(db, "task:none LoginSchema")) == {"m0", "o1"}, "there is no such task"
    assert set(ids(db, "LoginSchema", Scope(None))) == {"m0", "o1", "k1"}
    assert set(ids(db, "LoginSchema", Scope("/w", "t1", ("message",)))) == {"m0"}


def test_what_is_no_operator_is_text() -> None:
    assert parse_query("before:never").text == "before:never"
    assert parse_query("kind:nonsense").text == "kind:nonsense"
    assert parse_query("-only").text == "-only"
    assert parse_query('say "hello there" -"good bye" -x word*').phrases == ("hello there",)
    assert parse_query('say "hello there" -"good bye" -else word*').excluded == ("else", "good bye")
    assert parse_query("why does rm -i ask, and ls -la not (cp -rf)").excluded == ()
    assert parse_query("say word*").prefixes == ("word",)
    assert list_terms("the and of")[:3] == ["the", "and", "of"]
    assert list_terms("login schema") == ["login", "schema", "loginschema"]
    assert "getuserid" in list_terms("getUserId") and "user" in list_terms("getUserId")
    assert len(list_terms(" ".join(f"w{i}" for i in range(3000)))) <= 32


@pytest.mark.parametrize(
    "typed",
    ["", " ", '"', '""', "NEAR(", "a AND", "OR", "NOT x", "*", "^x", "a:b", "my-component", "{", "%", "_", "\\", "\0",
     "'; DROP TABLE messages; --", "path:[", "thread:%", "before:9999999d", "after:99999999999999-01-01", "x" * 10_000],
)  # fmt: skip
def test_anything_is_a_query(db: APSWDatabase, typed: str) -> None:
    search(db, typed, Scope("/w"), limit=5)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=200) | st.text(alphabet="\"*-:()^+#'%_\\ aoNEARpathrolkindbef01", max_size=60))
@example("\ud800")
def test_no_text_is_an_error(db: APSWDatabase, text: str) -> None:
    page = search(db, text, Scope("/w"), limit=5)
    assert [h.rank for h in page.hits] == list(range(1, len(page.hits) + 1))
    for hit in page.hits:
        assert 0 <= hit.score <= 1
        assert all(0 <= a < b <= len(hit.snippet) for a, b in hit.marks)


@given(st.text(alphabet='"*-:( )（ANDOTR role:toolkindpath日b', max_size=40))
def test_a_query_without_any_sign_is_read_as_with_one(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "_SIGN", re.compile(""))
        slowly = query.parse_query(text)
    assert query.parse_query(text) == slowly


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=600), st.lists(st.text(max_size=12), max_size=6))
def test_marks_lie_in_the_snippet_and_do_not_overlap(text: str, words: list[str]) -> None:
    snippet, marks, _ = cut_snippet(text, words)
    assert all(0 <= a < b <= len(snippet) for a, b in marks)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(marks))


async def test_the_same_text_is_shown_once(filled: Store) -> None:
    def again(db: APSWDatabase) -> None:
        for i in range(3):
            search_index.put(
                db, kind="message", doc_id=f"d{i}", resource_id="/w", created_at=i, text="Zebra crossing ahead"
            )

    await filled.write(again)
    page = await filled.read(search, "zebra", Scope("/w"))
    assert page.total == 1


async def test_what_changes_or_goes_is_found_no_more(filled: Store) -> None:
    await filled.write(
        search_index.put, kind="message", doc_id="m5", resource_id="/w", created_at=1, text="Nothing of that"
    )
    await filled.write(search_index.remove, "message", "m6")
    page = await filled.read(search, "brown", Scope("/w"))
    assert page.hits == ()


async def test_a_hit_says_where_it_comes_from(filled: Store) -> None:
    def compacted(db: APSWDatabase) -> None:
        db.execute_sql("INSERT INTO threads (id, resource_id, created_at, updated_at) VALUES ('t1', '/w', 1, 1)")
        db.execute_sql(
            "INSERT INTO compaction_records (id, thread_id, resource_id, record_id, first_index, last_index,"
            " message_count, original_message_ids, tokens_before, tokens_after, created_at)"
            " VALUES ('c', 't1', '/w', 'r', 0, 0, 1, '[]', 1, 1, 1)"
        )

    await filled.write(compacted)
    page = await filled.read(search, "LoginSchema getUserId", Scope("/w"))
    assert {h.id: h.source for h in page.hits} == {"m0": "compacted", "m1": "raw", "o1": "observation"}


async def test_pages_follow_each_other(filled: Store) -> None:
    whole = await filled.read(search, "role:user", Scope("/w"))
    parts = [await filled.read(search, "role:user", Scope("/w"), limit=1, offset=i) for i in range(3)]
    assert [h.id for p in parts for h in p.hits] == [h.id for h in whole.hits]
    assert [h.rank for p in parts for h in p.hits] == [1, 2, 3]
