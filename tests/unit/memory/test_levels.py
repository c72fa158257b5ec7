"""Summaries of older messages by tens: what is in them, when they are made, what search and requests do with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from sakti.core.text import clean_surrogates
from sakti.core.types import Message, Part, TextPart, ToolCallPart, ToolResultPart
from sakti.memory import summaries
from sakti.memory.engine import Prepared
from sakti.store.connection import Database
from sakti.store.maintenance import upkeep
from sakti.store.search import search
from sakti.store.threads import messages as message_store
from tests.fakes.memory import Driver, settings

CODE = "```ts\nimport { z } from 'zod'\nexport const LoginSchema = z.object({\n  email: z.string(),\n})\n```"
TALK: tuple[tuple[str, Part], ...] = (
    ("user", TextPart("I prefer zod for validation. Please add a login form.")),
    ("assistant", TextPart(f"Let's go with server actions instead of an API route.\n{CODE}")),
    ("assistant", ToolCallPart("c1", "write", {"path": "src/auth.ts", "content": "// x\nfunction signIn() {\n}\n"})),
    ("tool", ToolResultPart("c1", "write", "EACCES: permission denied, open 'src/auth.ts'", is_error=True)),
    ("assistant", TextPart("I added the form in src/login.tsx. It still waits for the database password.")),
    ("user", TextPart("Should sessions last a week?")),
)


def made(talk: tuple[tuple[str, Part], ...] = TALK) -> list[Message]:
    return [Message(f"m{i}", "t", "r", role, (part,), 1, i) for i, (role, part) in enumerate(talk)]  # pyright: ignore


def test_a_summary_names_what_matters_in_the_messages_own_words() -> None:
    found = summaries.summarize(made(), 1)
    text, _, code = found.text.partition("\n```\n")
    assert text == (
        "Done: I added the form in src/login.tsx; files: src/auth.ts, src/login.tsx."
        " Decided: Let's go with server actions instead of an API route; preferred: I prefer zod for validation."
        " Blocked: EACCES: permission denied, open 'src/auth.ts'; It still waits for the database password;"
        " open: Should sessions last a week?."
    )
    assert code.split("\n")[:-1] == ["export const LoginSchema = z.object({", "function signIn() {"]
    assert found.taken["m1"].endswith("export const LoginSchema = z.object({")
    assert "m5" in found.taken
    short = summaries.summarize(made(), 2)
    assert len(short.text) < len(found.text) * 0.75
    assert "```" not in short.text
    assert "src/login.tsx" in short.text


def test_of_what_says_nothing_the_tools_are_named() -> None:
    talk: tuple[tuple[str, Part], ...] = (
        ("assistant", ToolCallPart("c", "bash", {"command": "ls"})),
        ("tool", ToolResultPart("c", "bash", "a b c")),
    )
    assert summaries.summarize(made(talk), 1).text == "Tools: bash."


def test_what_the_program_said_itself_is_no_part_of_a_summary() -> None:
    said = [*made(), structs.replace(made()[0], id="p", role="user", metadata={"synthetic": True})]
    said[-1] = structs.replace(said[-1], parts=(TextPart("I prefer tabs in program.py."),))
    assert summaries.summarize(said, 1) == summaries.summarize(made(), 1)


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=300)), max_size=12))
def test_nothing_is_invented(talk: list[tuple[str, str]]) -> None:
    messages = [
        Message(f"m{i}", "t", "r", role, (TextPart(text),), 1, i)  # pyright: ignore
        for i, (role, text) in enumerate(talk)
    ]
    whole = " ".join(" ".join(clean_surrogates(text).split()) for _, text in talk)
    for level in (1, 2):
        found = summaries.summarize(messages, level)
        assert found.text
        for taken in found.taken.values():
            for line in taken.split("\n"):
                assert " ".join(line.removesuffix("…").split()) in whole


@given(st.integers(0, 400), st.integers(0, 400))
def test_level_by_count(count: int, seen: int) -> None:
    marks = (0, 0)
    for _ in range(200):
        level = summaries.find_due_level(marks, count, seen)
        if not level:
            break
        marks = (marks[0] + 10, marks[1]) if level == 1 else (marks[0], marks[1] + 10)
    assert marks[0] == max(0, min((count - 20) // 10, seen // 10) * 10) if count >= 30 else marks[0] == 0
    assert marks[1] <= marks[0]
    assert marks[1] + 90 > count or marks[1] == marks[0]


async def talk(driver: Driver, turns: int, size: int = 40) -> Prepared:
    prepared: Any = None
    for _ in range(turns):
        number = len(driver.said)
        await driver.begin(f"question {number}: I prefer variant{number} of it. " + "word " * size)
        prepared = await driver.prepare()
        await driver.step({"text": f"I added part{number} in src/part{number}.py. " + "more " * size}, f"c{number}")
        await driver.engine.end_turn()
        await driver.engine.wait_idle()
    return prepared


def row(db: Database, index: int) -> tuple[Any, ...]:
    return db.execute_sql(
        "SELECT compaction_level, summary, injection_text, sakti_text(raw_content, parts) FROM messages"
        " WHERE message_index = ?",
        (index,),
    ).fetchone()


def found_by_summary(db: Database, word: str) -> int:
    sql = "SELECT count(*) FROM search_words WHERE search_words MATCH ?"
    return db.execute_sql(sql, (f"summary : {word}",)).fetchone()[0]


async def test_with_memory_on_it_only_adds_to_what_search_looks_at(tmp_path: Path) -> None:
    plain = await Driver.make(tmp_path / "plain.db", settings(observation_tokens=100_000))
    driver = await Driver.make(tmp_path / "m.db", settings(observation_tokens=100_000))
    plain.engine._request._levels.start = lambda *_: None  # type: ignore[method-assign]
    for one in (plain, driver):
        await talk(one, 16)
    assert [m.text for m in driver.requests[-1].messages] == [m.text for m in plain.requests[-1].messages]
    assert [b.kind for b in driver.requests[-1].blocks] == [b.kind for b in plain.requests[-1].blocks]

    assert driver.engine.state.window.cursor >= 9
    assert (await driver.store.read(row, 0))[2].startswith("Done: ")
    level, summary, block, raw = await driver.store.read(row, 8)
    assert (level, block) == (1, None)
    assert summary.startswith("question 8: I prefer variant8 of it")
    assert raw == driver.said[8].text
    assert (await driver.store.read(row, driver.engine.state.window.cursor + 1))[0] == 0
    scope = search.Scope("workspace", None, ("message",))
    found = await driver.store.read(search.search, "variant8", scope)
    assert found.hits[0].id == driver.said[8].id
    assert found.hits[0].text == driver.said[8].text
    assert await driver.store.read(found_by_summary, "variant8") == 1
    await driver.store.write(lambda db: db.execute_sql("DELETE FROM search_docs WHERE kind = 'message'"))
    await upkeep.rebuild_index(driver.store)
    assert await driver.store.read(found_by_summary, "variant8") == 1
    for one in (plain, driver):
        await one.close()


async def test_a_long_thread_comes_to_level_two_a_few_tens_behind_each_turn(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", replace(settings(), enabled=False))
    driver.check = lambda _: None  # type: ignore[method-assign]
    for number in range(100):
        await driver.say("user" if number % 2 == 0 else "assistant", TextPart(f"I added x{number}.py. " + "y " * 30))
    for expected in ((30, 0), (60, 0), (80, 10), (80, 20)):
        await driver.begin("go on")
        await driver.engine.end_turn()
        await driver.engine.wait_idle()
        assert tuple(driver.engine.state.window.thread.metadata["levels"]) == expected
    first = await driver.store.read(row, 0)
    second = await driver.store.read(row, 20)
    assert (first[0], second[0]) == (2, 1)
    assert len(first[2]) < len(second[2])
    await driver.close()


async def test_ten_of_which_one_is_still_being_written_wait(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", replace(settings(), enabled=False))
    driver.check = lambda _: None  # type: ignore[method-assign]
    for number in range(40):
        await driver.say("user" if number % 2 == 0 else "assistant", TextPart(f"I added x{number}.py."))
    thread = driver.engine.state.window.thread.id

    async def due_while(state: str) -> bool:
        change = "UPDATE messages SET state = ? WHERE message_index = 3"
        await driver.store.write(lambda db: db.execute_sql(change, (state,)))
        return await driver.store.read(summaries.find_next_due, thread, 40) is not None

    assert not await due_while("provisional")
    assert await due_while("saved")
    await driver.close()


async def test_without_memory_ten_large_messages_are_sent_as_one_block_once(tmp_path: Path) -> None:
    off = replace(settings(), enabled=False, last_messages=200)
    driver = await Driver.make(tmp_path / "m.db", off)
    driver.check = lambda _: None  # type: ignore[method-assign]
    await talk(driver, 15, 300)
    assert len(driver.requests[-1].messages) == 29
    prepared = await talk(driver, 1, 300)
    block, *raw = prepared.messages
    assert block.metadata == {"synthetic": "earlier"}
    assert block.text.startswith('<earlier-messages from="0" to="9">\nA summary of older messages')
    assert "Done: I added part" in block.text
    assert [m.index for m in raw] == list(range(10, 31))
    size = sum(m.tokens for m in driver.said[:10])
    assert size > summaries.WORTH_TOKENS
    assert block.tokens < size / 5
    # until the next ten are due the request only grows behind
    texts = [m.text for m in prepared.messages]
    for _ in range(4):
        more = [m.text for m in (await talk(driver, 1, 300)).messages]
        assert more[: len(texts)] == texts
        texts = more
    prepared = await talk(driver, 1, 300)
    assert prepared.messages[0].text == texts[0]
    assert sum(m.metadata == {"synthetic": "earlier"} for m in prepared.messages) == 2
    await driver.engine.close()
    await driver.open()  # another start sends the same
    await driver.begin("and now?")
    again = await driver.prepare()
    assert [m.text for m in again.messages[:10]] == [m.text for m in prepared.messages[:10]]
    await driver.close()


async def test_small_messages_stay_as_they_are_and_tool_exchanges_whole(tmp_path: Path) -> None:
    off = replace(settings(), enabled=False, last_messages=200)
    driver = await Driver.make(tmp_path / "m.db", off)
    driver.check = lambda _: None  # type: ignore[method-assign]
    prepared = await talk(driver, 18, 2)
    assert not any(m.metadata for m in prepared.messages)
    for number in range(20):
        await driver.begin("look " * 100)
        prepared = await driver.prepare()
        await driver.step({"tool": {"name": "read", "args": {"path": "a.py"}, "result": "z " * 500}}, f"r{number}")
        await driver.step({"text": "done " * 100}, f"d{number}")
        await driver.engine.end_turn()
        await driver.engine.wait_idle()
    assert any(m.metadata for m in prepared.messages)
    called = {c.id for m in prepared.messages for c in m.tool_calls}
    assert called == {r.call_id for m in prepared.messages for r in m.tool_results}
    await driver.close()


async def test_a_summary_that_cannot_be_stored_is_made_after_the_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sakti.core.errors import StoreError

    driver = await Driver.make(tmp_path / "m.db", replace(settings(), enabled=False))
    driver.check = lambda _: None  # type: ignore[method-assign]

    def full(*_: object) -> None:
        raise StoreError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(message_store, "put_summaries", full)
        await talk(driver, 16)
    assert "levels" not in driver.engine.state.window.thread.metadata
    assert (await driver.store.read(row, 0))[0] == 0
    await talk(driver, 1)
    assert driver.engine.state.window.thread.metadata["levels"] == [10, 0]
    assert (await driver.store.read(message_store.list_page, "t1", limit=1))[0].index == 33
    await driver.close()
