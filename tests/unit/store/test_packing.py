"""A text stands in the file once; what an earlier sakti wrote is packed in pieces, and is found all the while."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from sakti.core.errors import StoreError
from sakti.core.types import Message, TextPart, Thread, ToolCallPart, ToolResultPart, join_plain_text
from sakti.store import migrate, packing, secrets
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import checks, purging, recovery, redacting, upkeep
from sakti.store.search import index as search_index
from sakti.store.search import search
from sakti.store.threads import codec, fork, messages, threads
from sakti.store.threads import removal as thread_removal
from tests.fakes.clock import FakeClock
from tests.unit.store.test_migrate import as_of

SECRET = "AKIA" + "ABCDEFGH12345678"
MASKED = "[secret]"  # as earlier versions masked it, in the index alone
LOG = "\n".join(f"2026-01-01 ERROR worker {n}: the gimbal solver overflowed at step {n * 7}" for n in range(60))
# role, parts, what replaces their text in the index
SAID: tuple[tuple[str, tuple[Any, ...], str | None], ...] = (
    ("user", (TextPart("where is the walrus of getUserId kept?"),), None),
    ("assistant", (TextPart("In walrus.py."), ToolCallPart("c", "read", {"path": "src/walrus.py"})), None),
    ("tool", (ToolResultPart("c", "read", LOG, False, {}),), None),
    ("user", (TextPart(f"the key is {SECRET} for the heron"),), None),
    ("assistant", (TextPart("noted, the heron has it"),), None),
    ("user", (TextPart("Die Straße nach ＴＯＫＹＯ, Función"),), None),
    ("assistant", (TextPart("the pelican, with password=hunter2secret99"),), "the pelican, with a word"),
    ("user", (TextPart("  "),), None),
    ("assistant", (TextPart("after the blank one comes the zebra"),), None),
)  # fmt: skip
WORDS = {
    "walrus": 2, "getUserId": 1, "gimbal solver": 1, "heron": 2, "pelican": 1, "zebra": 1,
    "Straße": 1, "Función": 1, "overflo": 1, "alrus.p": 1, "src/walrus.py": 1,
}  # fmt: skip


BEFORE_PACKING = 9  # version of the schema


def older(path: Path, copies: int = 1) -> None:
    """A database as the schema before wrote it: a text is in `parts`, `raw_content`, `text`, the next row's `prev`."""
    as_of(path, BEFORE_PACKING)
    db = apsw.Connection(str(path))
    db.execute("BEGIN")
    for n in range(copies):
        db.execute("INSERT INTO threads (id, resource_id, created_at, updated_at) VALUES (?, '/new', 1, 1)", (f"n{n}",))
        prev = ""
        for i, (role, parts, replaced) in enumerate(SAID):
            raw = join_plain_text(parts)
            stored = json.dumps([codec.encode(p) for p in parts], ensure_ascii=False, separators=(",", ":"))
            db.execute(
                "INSERT INTO messages (id, thread_id, resource_id, role, message_index, parts, raw_content,"
                " search_text, created_at) VALUES (?, ?, '/new', ?, ?, ?, ?, ?, ?)",
                (f"n{n}-{i}", f"n{n}", role, i, stored, raw, replaced, i),
            )
            said = raw if replaced is None else replaced
            text = said.replace(SECRET, MASKED)
            if text.strip():
                db.execute(
                    "INSERT INTO search_docs (kind, doc_id, resource_id, thread_id, role, position, created_at, text,"
                    " idents, prev) VALUES ('message', ?, '/new', ?, ?, ?, ?, ?, ?, ?)",
                    (f"n{n}-{i}", f"n{n}", role, i, i, text, search_index.list_identifier_parts(text),
                     prev[:1000].replace(SECRET, MASKED)),
                )  # fmt: skip
            prev = said
    db.execute("COMMIT")
    db.close()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    older(tmp_path / "s.db")
    return tmp_path / "s.db"


def terms(db: Database) -> list[tuple[Any, ...]]:
    return db.execute_sql("SELECT pk, text, idents, prev FROM search_texts ORDER BY pk").fetchall()


async def found(store: Store, words: str) -> list[str]:
    page = await store.read(search.search, words, search.Scope("/new"), now=1)
    return sorted(h.id for h in page.hits if words.lower() in h.text.lower())


async def all_found(store: Store) -> dict[str, int]:
    """What is found of WORDS; ß stands for ss as soon as the rows are packed."""
    rows = await store.read(lambda db: db.execute_sql("SELECT 1 FROM packing WHERE step = 'rows'").fetchone())
    later = {"Straße": 1} if rows else {}
    return {words: len(await found(store, words)) for words in WORDS} | later


async def unpacked_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An older database just after its migration, with everything left to pack."""
    monkeypatch.setattr(migrate, "PACK_S", 0.0)
    return await Store.open(path)


async def is_packed(store: Store, path: Path) -> None:
    assert await store.read(packing.read_progress) is None
    assert all(f.ok for f in await store.read(checks.check))
    assert await all_found(store) == WORDS
    rows: Any = await store.read(
        lambda db: db.execute_sql(
            "SELECT m.id, m.raw_content, typeof(m.parts), d.text, d.prev FROM messages m"
            " JOIN search_docs d ON d.kind = 'message' AND d.doc_id = m.id WHERE m.resource_id = '/new'"
        ).fetchall()
    )
    assert {raw for _, raw, *_ in rows} == {""}
    assert {i.rpartition("-")[2] for i, _, kind, *_ in rows if kind == "blob"} == {"2"}
    # what is kept beside a message is what had to be masked
    assert {secrets.MARK.sub(MASKED, text) for *_, text, _ in rows} == {"", f"the key is {MASKED} for the heron"}
    assert {secrets.MARK.sub(MASKED, prev) for *_, prev in rows} == {"", f"the key is {MASKED} for the heron"}
    for n, (_, parts, _) in enumerate(SAID):
        assert (await store.read(messages.get, f"n0-{n}")).parts == parts
    connection = apsw.Connection(str(path))
    (sql,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'search_trigrams'").fetchone()
    assert "detail = none" in sql
    assert (
        connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name LIKE '%trigrams%'").get
        == 5
    )
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'packing_%'").get == 0
    connection.close()


async def test_a_small_database_is_packed_when_it_is_opened(old: Path) -> None:
    store = await Store.open(old)
    assert len(store.notices) == 2  # its mode, its copy
    await is_packed(store, old)
    await store.close()


async def test_everything_is_found_after_every_piece(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_ROWS", 1)
    store = await unpacked_store(old, monkeypatch)
    assert "0 % packed" in store.notices[-1]
    before, pieces, told = await store.read(terms), 0, set[str]()
    while await store.write(packing.pack_some):
        pieces += 1
        assert await all_found(store) == WORDS
        assert await store.read(terms) == before
        told.add(str(await store.read(packing.read_progress)))
    assert pieces > 3 * len(SAID) and len(told) > 20
    await is_packed(store, old)
    await store.close()


@pytest.mark.parametrize("when", [0, 3, 8, 15, 22, 30, 40])
async def test_what_is_said_and_removed_meanwhile(old: Path, when: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_ROWS", 1)
    store = await unpacked_store(old, monkeypatch)
    for _ in range(when):
        await store.write(packing.pack_some)
    await store.write(messages.append, Message("new", "n0", "/new", "user", (TextPart("a curlew at last"),), 50))
    await store.write(thread_removal.delete_messages, "n0-5", 60)
    await store.write(thread_removal.delete_messages, "n0-0", 60)
    await store.write(search_index.summarize, "message", "n0-8", "it was about an ostrich")
    assert await found(store, "curlew") == ["new"]
    assert await found(store, "Straße") == [] and await found(store, "getUserId") == []
    await upkeep.pack(store)
    assert not [f for f in await store.read(checks.check) if not f.ok]
    assert await found(store, "curlew") == ["new"] and len(await found(store, "zebra")) == 1
    assert (await store.read(search.search, "ostrich", search.Scope("/new"))).hits[0].id == "n0-8"
    assert all(f.ok for f in await store.read(checks.check))
    await store.close()


# Opens a database and is killed behind the n-th piece of the packing, before it is committed.
DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from sakti.store import migrate, packing, secrets
from sakti.store.database import Store

left, note = int(sys.argv[2]), packing._save_progress
def dying(*arguments):
    global left
    left -= 1
    note(*arguments)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
packing._ROWS, packing._save_progress, migrate.PACK_S = 2, dying, 0
async def main():
    store = await Store.open(Path(sys.argv[1]))
    while await store.write(packing.pack_some):
        pass
asyncio.run(main())
"""


async def killed(path: Path, piece: int) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, str(path), str(piece))
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL


async def test_killed_anywhere_the_next_one_goes_on(old: Path) -> None:
    for piece in (3, 3, 5, 5, 1, 7):  # each goes on where the one before was killed
        await killed(old, piece)
        findings = {f.name: f for f in checks.inspect(old)}
        assert all(f.ok for name, f in findings.items() if name not in ("space", "access")), findings
    store = await Store.open(old)
    await upkeep.pack(store)
    await is_packed(store, old)
    await store.close()


async def test_two_pack_at_once(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_ROWS", 1)
    one = await unpacked_store(old, monkeypatch)
    two = await Store.open(old)
    more = True
    while more:
        more = await one.write(packing.pack_some) and await two.write(packing.pack_some)
        assert await all_found(one) == await all_found(two) == WORDS
    await is_packed(two, old)
    await two.close()
    await one.close()


async def test_without_room_nothing_is_changed(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    size = old.stat().st_size
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 40, 0, size))
    before = old.read_bytes()
    with pytest.raises(StoreError, match="of free disk space") as raised:
        await Store.open(old)
    assert raised.value.code == "full" and old.read_bytes() == before
    assert not list(old.parent.glob("*.before-*"))


async def test_check_packs_the_rest(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await unpacked_store(old, monkeypatch)
    (space,) = [f for f in await store.read(checks.check) if not f.ok]
    assert space.name == "space" and space.detail == "0 % packed"
    assert all(f.ok for f in await upkeep.check(store))
    await is_packed(store, old)
    await store.close()


async def test_purged_while_half_is_packed_leaves_no_word(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_ROWS", 2)
    store = await unpacked_store(old, monkeypatch)
    for _ in range(7):
        await store.write(packing.pack_some)
    await store.write(thread_removal.delete_thread, "n0", 5)
    await purging.purge_thread(store, "n0")
    await purging.clean(store)
    assert await store.read(lambda db: db.execute_sql("SELECT term FROM search_vocabulary").fetchall()) == [
        (word,) for word in sorted({"the", "walru", "zebra", "heron", "sing"})
    ]
    await upkeep.pack(store)
    assert all(f.ok for f in await store.read(checks.check))
    await store.close()


async def test_an_older_database_that_is_damaged_is_recovered_and_packed(old: Path) -> None:
    recovery.recover(old, FakeClock(9))
    assert all(f.ok for f in checks.inspect(old))
    store = await Store.open(old)
    await is_packed(store, old)
    await store.close()


# --- in its new form ----------------------------------------------------------------------------------------


async def say(store: Store, *texts: str, thread: str = "t") -> None:
    if await store.read(threads.get, thread) is None:
        await store.write(threads.create, Thread(thread, "/w", "", 1, 1))
    for n, text in enumerate(texts):
        said = Message(f"{thread}-{n}", thread, "/w", "user", (TextPart(text),), n)
        await store.write(messages.append, said)


async def hits(store: Store, words: str) -> list[str]:
    return sorted(h.id for h in (await store.read(search.search, words, search.Scope("/w"))).hits)


@pytest.mark.parametrize(
    ("said", "sought"),
    [
        ("die Straße", "STRASSE"),
        ("die STRASSE", "straße"),
        ("ＬｏｇｉｎＳｃｈｅｍａ", "loginschema"),
        ("the ﬁle", "file"),
    ],
)
async def test_texts_are_folded_when_they_are_indexed(store: Store, said: str, sought: str) -> None:
    await say(store, said, "something else")
    page = await store.read(search.search, sought, search.Scope("/w"))
    assert page.hits[0].text == said  # as it was said


async def test_all_trigrams_of_a_word_do_not_make_the_word(store: Store) -> None:
    await say(store, "klmnop xx lmnopq yy mnopqr", "xklmnopqrx")
    assert await hits(store, '"klmnopqr"') == await hits(store, "klmnopqr") == ["t-1"]


async def test_a_long_part_is_packed_and_comes_back(store: Store) -> None:
    await say(store, LOG, "short")
    assert [m.text for m in await store.read(messages.list_page, "t")] == [LOG, "short"]
    stored = await store.read(lambda db: db.execute_sql("SELECT parts, raw_content FROM messages").fetchall())
    assert [type(parts) for parts, _ in stored] == [bytes, str] and {raw for _, raw in stored} == {""}
    assert len(stored[0][0]) < len(LOG) / 3


async def test_a_damaged_packed_part_is_found_and_said(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "s.db")
    await say(store, LOG, "short")
    await store.write(
        lambda db: db.execute_sql("UPDATE messages SET parts = CAST(substr(parts, 1, 40) AS BLOB) WHERE id = 't-0'")
    )
    (contents,) = [f for f in await store.read(checks.check) if f.name == "contents"]
    assert not contents.ok and "1 of messages: parts cannot be read" in contents.detail
    await store.close()
    recovery.recover(store.path, FakeClock(9))
    again = await Store.open(store.path)
    assert all(f.ok for f in await again.read(checks.check))
    assert await hits(again, "short") == ["t-1"]
    await again.close()


async def test_a_fork_does_not_lean_on_its_parent(store: Store) -> None:
    await say(store, "the walrus", f"the key is {SECRET}", "a zebra")
    thread = await store.write(fork.fork, "t", id="f", ids=store.ids, now=9)
    await store.write(thread_removal.delete_thread, "t", 5)
    await purging.purge_thread(store, "t")
    page = await store.read(search.search, "zebra", search.Scope("/w"))
    assert page.hits[0].thread_id == thread.id
    assert all(f.ok for f in await store.read(checks.check))
    await store.write(thread_removal.delete_thread, thread.id, 6)
    await purging.purge_thread(store, thread.id)
    await purging.clean(store)
    assert await store.read(lambda db: db.execute_sql("SELECT count(*) FROM search_vocabulary").fetchone()) == (0,)


async def test_a_message_behind_a_late_one_forgets_what_is_deleted(store: Store) -> None:
    await say(store, "the quagga")
    late = Message("late", "t", "/w", "user", (TextPart("said late"),), 5, state="provisional")
    await store.write(messages.append, late)
    await store.write(messages.append, Message("next", "t", "/w", "user", (TextPart("and next"),), 6))
    await store.write(messages.confirm, ["late"])
    await store.write(thread_removal.delete_messages, "t-0", 9)
    words = await store.read(lambda db: db.execute_sql("SELECT term FROM search_vocabulary").fetchall())
    assert ("quagga",) not in words and ("late",) in words
    assert all(f.ok for f in await store.read(checks.check))


async def test_a_message_that_is_masked_later_is_indexed_again(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await unpacked_store(old, monkeypatch)
    for _ in range(2):  # the second time all is packed
        clear = f"{LOG}\nexport GIMBAL_TOKEN={SECRET}"
        message = Message("", "n0", "/new", "user", (TextPart(clear),), 50)
        with monkeypatch.context() as patched:
            patched.setattr("sakti.store.secrets.find_secrets", lambda _text: [])
            said = await store.write(messages.append, replace(message, id=store.ids.new()))
            await store.write(messages.append, replace(message, id=store.ids.new(), parts=(TextPart("a zebra"),)))
        secrets.use_environment({})  # forgets what passed as masked
        assert await found(store, SECRET)
        await redacting.redact(store)
        assert not await found(store, SECRET) and said.id in await found(store, "GIMBAL_TOKEN")
        assert all(f.ok or f.name == "space" for f in await store.read(checks.check))
        await store.write(messages.append, replace(message, id=store.ids.new(), parts=(TextPart("between"),)))
        await upkeep.pack(store)
    await upkeep.optimize_indexes(store)
    await store.close()
    connection = apsw.Connection(str(old))
    rows = connection.execute("SELECT sakti_unpacked(parts), raw_content, search_text FROM messages").fetchall()
    assert not [row for row in rows if SECRET in str(row)]
    assert connection.execute("SELECT count(*) FROM search_vocabulary WHERE term LIKE ?", (SECRET,)).get == 0
    connection.close()


async def test_what_is_not_packed_yet_is_found_as_it_was_typed(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await unpacked_store(old, monkeypatch)
    for words in ("Straße", "straße", "ＴＯＫＹＯ"):
        page = await store.read(search.search, words, search.Scope("/new"))
        assert page.hits[0].id == "n0-5" and page.suggestion == "", words
    await upkeep.pack(store)
    for words in ("Straße", "STRASSE", "tokyo"):
        assert (await store.read(search.search, words, search.Scope("/new"))).hits[0].id == "n0-5"
    await store.close()


async def test_a_secret_in_two_parts_of_one_message_is_masked_in_search(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = "-----BEGIN OPENSSH PRIVATE KEY-----\nblbnnzagtlexdhbhjcwq"
    second = "agvybhqhdcvbnmklpoiu\n-----END OPENSSH PRIVATE KEY-----"
    await store.write(threads.create, Thread("t", "/w", "", 1, 1))
    with monkeypatch.context() as patched:
        patched.setattr("sakti.store.secrets.find_secrets", lambda _text: [])
        parts = (TextPart(f"a heron {first}"), TextPart(second))
        await store.write(messages.append, Message("t-0", "t", "/w", "user", parts, 1))
        await store.write(messages.append, Message("t-1", "t", "/w", "assistant", (TextPart("and what now"),), 2))
    secrets.use_environment({})  # forgets what passed as masked
    assert await hits(store, "blbnnzagtlexdhbhjcwq") == ["t-0"]
    counted = await redacting.count(store)
    assert counted.texts == {"search_docs": 1} and counted.kinds == {"private_key": 1}
    assert (await redacting.redact(store)).texts == {"search_docs": 1}
    assert not await hits(store, "blbnnzagtlexdhbhjcwq") and "t-0" in await hits(store, "heron")
    assert not (await redacting.count(store)).texts
    await upkeep.optimize_indexes(store)
    words = await store.read(lambda db: db.execute_sql("SELECT term FROM search_vocabulary").fetchall())
    assert not [word for (word,) in words if word.startswith(("blbnnz", "agvybh"))]
    assert all(f.ok for f in await store.read(checks.check))
