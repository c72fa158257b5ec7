"""Working memory and recall."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.core.clock import shorten_id
from sakti.core.errors import MemoryFailure
from sakti.core.tokens import Estimator
from sakti.core.types import ContextPart, TextPart, ThinkingPart
from sakti.memory import page_content
from sakti.memory import pages as memory_pages
from sakti.memory.recall import PAGE_MESSAGES, AskingThread, RecallRequest, recall
from sakti.store import memory
from sakti.store.database import Store
from sakti.store.memory import records as pages
from tests.fakes.clock import FakeClock
from tests.fakes.memory import Driver

COUNTER = Estimator()


def test_sections_are_replaced_by_heading() -> None:
    page = "# Stack\nPython\n\n# Notes\n- a\n```\n# no heading\n```"
    merged, changed = page_content.merge_sections(page, "## stack\nPython 3.11\n\n# New\nx")
    assert merged == "# Stack\nPython 3.11\n\n# Notes\n- a\n```\n# no heading\n```\n\n# New\nx"
    assert changed == ("stack", "New")
    assert page_content.merge_sections(merged, "# New\nx") == (merged, ())


async def test_every_version_is_kept(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    store = driver.store
    stored = memory_pages.WorkingPage(store=store, counter=COUNTER, owner_id="workspace")
    page, changed = await stored.update("# Tech stack\nPython", actor="agent")
    assert "# Tech stack\nPython" in page and "# Preferences" in page and changed == ("Tech stack",)
    await stored.update("# Only\nthis", replace=True)
    assert await store.read(pages.read_working_memory, "resource", "workspace") == ("# Only\nthis", 2)
    assert (await stored.update("# Only\nthis"))[1] == ()
    assert await store.read(pages.read_working_memory, "resource", "workspace") == ("# Only\nthis", 2), (
        "not written again"
    )
    await stored.add_note("no ORM")
    page = await stored.add_note("use  tabs")
    assert page.endswith("# Notes\n- no ORM\n- use tabs")
    with pytest.raises(MemoryFailure) as raised:
        await store.write(
            pages.put_working_memory,
            pages.PageVersion("late", "resource", "workspace", "workspace", "# Late", 1, "", 1),
            expected_version=3,
        )
    assert raised.value.code == "conflict" and raised.value.retryable
    with pytest.raises(MemoryFailure, match="2000 is the limit"):
        await stored.update("# Long\n" + "word " * 3_000)
    await driver.begin("hello")
    assert "- use tabs" in (await driver.prepare()).blocks[0].text
    await driver.close()


async def test_recall_pages_through_what_a_group_stands_for(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    for number in range(30):
        await driver.begin(f"prompt {number} " + "word " * 100)
        await driver.prepare()
        await driver.engine.wait_idle()
        tool = {
            "name": "read",
            "args": {"path": f"f{number}.py"},
            "result": f"result {number} " + "x = 1\n" * 80,
        }
        await driver.step({"tool": tool}, f"c{number}")
        await driver.prepare()
        await driver.step({"text": "done"}, f"d{number}")
        await driver.engine.end_turn()
    merged = await driver.store.read(memory.list_groups, driver.engine.record_id, "superseded")
    group = next(g for g in merged if g.first_index)  # not the thread's first

    async def ask(**values):
        return await recall(driver.store, COUNTER, AskingThread("workspace", "t1"), RecallRequest(**values))

    page = await ask(id=shorten_id(group.id))
    assert page["messages"][0]["id"] == group.first_message_id
    assert page["has_next"] and page["has_prev"]
    following = await ask(id=shorten_id(group.id), page=1, limit_tokens=100_000)
    assert following["messages"][0]["index"] == page["messages"][0]["index"] + PAGE_MESSAGES
    assert not page["cut"]
    few = await ask(id=shorten_id(group.id), detail="high", limit_tokens=400)
    assert few["cut"] and 0 < len(few["messages"]) < len(page["messages"]) and "limit" in few["note"]
    back = await ask(id=shorten_id(group.id), page=-1)
    assert back["messages"][-1]["index"] == page["messages"][0]["index"] - 1
    tool = next(m for m in driver.said if m.role == "tool")
    low = await ask(id=tool.id)
    assert low["messages"][0]["parts"][0]["kind"] == "result read"
    assert low["messages"][0]["parts"][0]["text"].endswith("…")
    high = await ask(id=tool.id, detail="high")
    assert high["messages"][0]["parts"][0]["text"].startswith("result 0 x = 1\nx = 1")
    part = await ask(id=tool.id, part_index=0, char_offset=9)
    assert part["text"].startswith("x = 1")
    assert (await ask(id=driver.said[0].id))["has_prev"] is False
    assert (await ask(id=driver.said[-1].id))["has_next"] is False
    for values in ({"id": "nothing-here"}, {"id": ""}, {"id": tool.id, "part_index": 7}):
        with pytest.raises(MemoryFailure):
            await ask(**values)
    await driver.close()


async def test_what_the_model_thought_and_was_told_is_not_recalled(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    said = await driver.say("assistant", ThinkingPart("a secret plan"), ContextPart({"now": "noon"}), TextPart("done"))
    asking, request = AskingThread("workspace", "t1"), RecallRequest(said.id, detail="high")
    page = await recall(driver.store, COUNTER, asking, request)
    assert page["messages"][0]["parts"] == [{"part": 2, "kind": "text", "text": "done"}]
    await driver.close()


async def test_a_page_of_json_is_merged_in_depth(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "m.db", clock=FakeClock(), synchronous="NORMAL")
    stored = memory_pages.WorkingPage(store=store, counter=Estimator(), owner_id="w")
    put = stored.update
    page, changed = await put('{"stack": {"db": "sqlite", "ui": "textual"}, "notes": ["a"]}')
    assert set(changed) == {"stack", "notes"}
    page, changed = await put('{"stack": {"db": null, "web": "none"}, "notes": ["b"]}')
    assert page_content.parse_json(page) == {"stack": {"ui": "textual", "web": "none"}, "notes": ["b"]}
    assert await put('{"notes": ["b"]}') == (page, ())
    page, changed = await put('{"notes": null}')
    assert changed == ("notes",)
    with pytest.raises(MemoryFailure):
        await put("# Heading\ntext")
    noted = await stored.add_note("remember  this")
    assert (page_content.parse_json(noted) or {})["Notes"] == ["remember this"]
    page, _ = await put("# Heading\ntext", replace=True)
    assert page == "# Heading\ntext"
    await store.close()
