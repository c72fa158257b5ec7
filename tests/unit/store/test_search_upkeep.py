"""The index is mended where it is out of step, and never holds a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sakti.core.types import Message, TextPart, Thread
from sakti.store import database
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import checks, upkeep
from sakti.store.search import index as search_index
from sakti.store.search import index_upkeep
from sakti.store.search.search import Scope, search
from sakti.store.secrets import MARK, mask_secrets
from sakti.store.threads import messages, threads


def say(db: Database, texts: list[str]) -> None:
    threads.create(db, Thread("t", "/w", "", 1, 1))
    for i, text in enumerate(texts):
        messages.append(db, Message(f"m{i}", "t", "/w", "user", (TextPart(text),), i + 1))


async def found(store: Store, text: str) -> list[str]:
    return [h.id for h in (await store.read(search, text, Scope("/w"))).hits][:1]


async def test_what_search_lost_is_added_again(store: Store) -> None:
    await store.write(say, ["the walrus", "and the carpenter"])
    await store.write(search_index.remove, "message", "m0")
    assert await found(store, "walrus") == []
    findings = await upkeep.check(store)
    assert all(f.ok for f in findings)
    assert "1 message was not searchable: added" in [f.detail for f in findings]
    assert await found(store, "walrus") == ["m0"]


@pytest.mark.parametrize("table", search_index.TABLES)
async def test_an_index_out_of_step_is_rebuilt(store: Store, table: str) -> None:
    await store.write(say, ["the walrus", "and the carpenter"])

    def damage(db: Database) -> None:
        db.execute_sql(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")

    await store.write(damage)
    assert not {f.name: f for f in await store.read(checks.check)}[table].ok
    by_name = {f.name: f for f in await upkeep.check(store)}
    assert by_name[table].ok and "2 texts are missing" in by_name[table].detail
    assert {f.name: f.detail for f in await store.read(checks.check)}[table] == "consistent"
    assert await found(store, "walrus") == ["m0"]


async def test_rebuild_and_optimize_change_no_answer(store: Store) -> None:
    await store.write(say, ["the walrus", "and the carpenter", "LoginSchema"])
    await store.write(search_index.remove, "message", "m2")
    assert await upkeep.rebuild_index(store) == {"texts": 3, "added": 1}
    await upkeep.optimize_indexes(store)
    assert await found(store, "login schema") == ["m2"]
    assert await found(store, "carpenters") == ["m1"]


def segments(db: Database) -> list[int]:
    """Return how many segments each index has."""
    return [
        db.execute_sql(f"SELECT count(DISTINCT segid) FROM {table}_idx").fetchone()[0] for table in search_index.TABLES
    ]


async def test_where_nobody_writes_the_indexes_are_merged_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"the walrus {number}" for number in range(9)]
    await store.write(say, [])
    for number, text in enumerate(texts):
        await store.write(messages.append, Message(f"m{number}", "t", "/w", "user", (TextPart(text),), number + 1))
    assert all(count > 1 for count in await store.read(segments))
    monkeypatch.setattr(database, "IDLE_S", 0.01)
    await store.write(messages.append, Message("m9", "t", "/w", "user", (TextPart("and the carpenter"),), 10))
    while await store.read(segments) != [1, 1]:
        await asyncio.sleep(0.01)
    assert await found(store, "carpenter") == ["m9"]
    assert len((await store.read(search, "walrus", Scope("/w"))).hits) == 9
    assert await store.read(index_upkeep.may_hold_deleted_words) is False


async def test_a_large_index_is_merged_whole_only_for_what_has_grown_by_much(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_upkeep, "_SMALL", 0)
    (table, *_) = search_index.TABLES
    await store.write(say, [" ".join(f"word{n}x{i}" for i in range(400)) for n in range(200)])
    await upkeep.optimize_indexes(store)
    await store.write(messages.append, Message("n0", "t", "/w", "user", (TextPart("one more"),), 900))
    assert not await store.read(index_upkeep.is_scattered, table)
    more = [" ".join(f"more{n}x{i}" for i in range(400)) for n in range(20)]
    for number, text in enumerate(more, 1):
        await store.write(messages.append, Message(f"n{number}", "t", "/w", "user", (TextPart(text),), 900 + number))
    assert await store.read(index_upkeep.is_scattered, table)
    await upkeep.merge_indexes(store)
    assert (await store.read(segments))[0] == 1


def forget(db: Database, table: str) -> None:
    db.execute_sql(f"DELETE FROM {table}_docsize WHERE id = 1")


def invent(db: Database, table: str) -> None:
    db.execute_sql("DROP TRIGGER search_docs_deleted")
    db.execute_sql("DELETE FROM search_docs WHERE pk = 2")


def rewrite(db: Database, table: str) -> None:
    for name in ("words_outdated", "words_updated", "trigrams_outdated", "trigrams_updated"):
        db.execute_sql(f"DROP TRIGGER search_{name}")
    db.execute_sql("UPDATE search_docs SET text = 'a walrus and many more words' WHERE pk = 2")


def ruin(db: Database, table: str) -> None:
    db.execute_sql(f"DELETE FROM {table}_data WHERE id > 10")


@pytest.mark.parametrize("table", search_index.TABLES)
@pytest.mark.parametrize("damage", [forget, invent, rewrite, ruin])
async def test_however_it_came_out_of_step_it_is_found_and_mended(
    store: Store, table: str, damage: Callable[[Database, str], None]
) -> None:
    await store.write(say, ["the walrus", "and the carpenter", "were walking close at hand"])
    await store.write(damage, table)
    mended = {f.name: f for f in await upkeep.check(store)}
    assert mended[table].detail != "consistent" and all(f.ok for f in mended.values())
    assert all(f.ok for f in await store.read(checks.check))
    assert await found(store, "walking") == ["m2"]


async def test_a_rebuild_that_was_killed_is_finished_and_holds_nobody_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "PIECE_S", 0.0)
    await store.write(say, [f"walrus number {n} of forty" for n in range(40)])
    before = store.written
    for table in search_index.TABLES:
        await store.write(index_upkeep.replace_by_empty, table)  # and then the power goes
    await store.write(search_index.remove, "message", "m3")
    await store.write(lambda db: messages.append(db, Message("new", "t", "/w", "user", (TextPart("a heron"),), 50)))
    assert await found(store, "heron") == ["new"]
    assert not all(f.ok for f in await store.read(checks.check))
    assert all(f.ok for f in await upkeep.check(store))
    assert {f.name: f.detail for f in await store.read(checks.check)}["search_words"] == "consistent"
    assert await store.read(index_upkeep.list_replaced) == []
    assert (await store.read(search, "walrus", Scope("/w"))).total == 40
    assert store.written - before > 20  # so many times another window could write


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-" + "a1B2" * 10,
        "sk-proj-" + "Zz09" * 8,
        "ghp_" + "a1B2c3D4" * 4,
        "AKIA" + "ABCDEFGH12345678",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----",
    ],
)
async def test_no_secret_is_indexed(store: Store, secret: str) -> None:
    await store.write(say, [f"the key is {secret} for now", "and the next"])
    (docs,) = await store.read(
        lambda db: db.execute_sql("SELECT group_concat(text || prev) FROM search_texts").fetchone()
    )
    assert secret not in docs and MARK.search(docs)
    assert await found(store, "the key") == ["m0"]
    (raw,) = await store.read(
        lambda db: db.execute_sql("SELECT sakti_text(raw_content, parts) FROM messages WHERE id = 'm0'").fetchone()
    )
    assert secret not in raw and MARK.search(raw)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('API_KEY="abcd1234efgh"', 'API_KEY="[secret]"'),
        ("password: hunter2hunter2", "password: [secret]"),
        ("Authorization: Bearer abcdefghijklmnop123", "Authorization: Bearer [secret]"),
        ("postgres://ann:s3cret@db/x", "postgres://ann:[secret]@db/x"),
        ("password = getPassword(user)", "password = getPassword(user)"),
        ("const risk-assessment-of-the-whole-project", "const risk-assessment-of-the-whole-project"),
        ("http://localhost:8080/path", "http://localhost:8080/path"),
    ],
)
def test_what_is_masked(text: str, shown: str) -> None:
    assert MARK.sub("[secret]", mask_secrets(text)) == shown
