"""Which pages of working memory are sent and written, as `memory.working_memory` says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.agent.tools.catalog import make_tools
from sakti.core.config import MemorySettings, WorkingMemorySettings, flatten, load
from sakti.core.errors import ConfigError, MemoryFailure
from sakti.core.tokens import Estimator
from sakti.memory import page_content
from sakti.memory.pages import Pages
from sakti.store.database import Store
from sakti.store.memory import records as rows
from sakti.store.search import search
from tests.fakes.clock import FakeClock
from tests.fakes.memory import Driver, settings

COUNTER = Estimator()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "m.db", clock=FakeClock(), synchronous="NORMAL")
    yield opened
    await opened.close()


def pages(store: Store, work: Path, **values: Any) -> Pages:
    return Pages(store, COUNTER, MemorySettings(working_memory=WorkingMemorySettings(**values)), str(work))


def mutate(store: Store, work: Path, **values: Any) -> Any:
    memory = MemorySettings(working_memory=WorkingMemorySettings(**values))
    tools = make_tools(
        store,
        resource_id=str(work),
        owner=None,
        pages=Pages(store, COUNTER, memory, str(work)),
        emit=lambda _: None,
        in_window=set,
    )
    tool = next(t for t in tools if t.name == "task-mutate")
    run = type("Run", (), {"thread_id": "t1", "message_id": "m"})()

    async def update(content: str, **more: Any) -> Any:
        outcome = await tool(run, {"action": "update_context", "content": content, **more})
        return json.loads(outcome.content)

    return update


async def test_both_pages_are_sent_the_workspaces_first(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings())
    both = Pages(driver.store, COUNTER, driver.settings, "workspace")
    await both.update("t1", "# Mine\nof the thread", scope="thread", actor="agent")
    await both.update("t1", "# Ours\nof the workspace", actor="agent")
    await both.update("t2", "# Other\nof another thread", scope="thread", actor="agent")
    await driver.begin("hello")
    blocks = [b for b in (await driver.prepare()).blocks if b.kind == "working_memory"]
    assert [b.text.split("\n")[0] for b in blocks] == [
        '<working-memory scope="resource">',
        '<working-memory scope="thread">',
    ]
    assert "of the workspace" in blocks[0].text and "of the thread" in blocks[1].text
    assert [b.edge for b in blocks] == [False, True], "the cached part ends behind the last"
    driver.settings = replace(driver.settings, working_memory=WorkingMemorySettings(enabled=False))
    await driver.engine.close()
    await driver.open()
    await driver.begin("and now")
    assert [b for b in (await driver.prepare()).blocks if b.kind == "working_memory"] == []
    await driver.close()


async def test_switched_off_it_is_said_and_nothing_is_written(store: Store, tmp_path: Path) -> None:
    off = pages(store, tmp_path, enabled=False)
    assert await off.read_for_request("t1") == ()
    with pytest.raises(MemoryFailure, match="switched off"):
        await off.add_note("t1", "use tabs")
    refused = await mutate(store, tmp_path, enabled=False)("# A\nb")
    assert (refused["success"], refused["code"]) == (False, "off")
    assert await store.read(rows.read_working_memory, "resource", str(tmp_path)) is None


async def test_the_scope_decides_which_page_is_written_unless_one_is_named(store: Store, tmp_path: Path) -> None:
    where = str(tmp_path)
    own = pages(store, tmp_path, scope="thread")
    await own.add_note("t1", "only here")
    assert await store.read(rows.read_working_memory, "resource", where) is None
    assert "- only here" in (await own.read_thread_page("t1"))
    assert (await mutate(store, tmp_path, scope="thread")("# Stack\nPython"))["success"]
    assert "Python" in await own.read_thread_page("t1")
    assert (await mutate(store, tmp_path, scope="thread")("# Stack\nRust", scope="resource"))["success"]
    assert "Rust" in await own.read() and "Rust" not in await own.read_thread_page("t1")
    assert (await mutate(store, tmp_path)("# Stack\nGo"))["success"]
    assert "Go" in await own.read()
    hits = (await store.read(search.search, "Python", search.Scope(where))).hits
    assert [h.thread_id for h in hits] == ["t1"], "a thread's page is found in its workspace"


async def test_a_template_is_what_a_page_begins_as(store: Store, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# Team\n\n# Deadlines\n")
    made = pages(store, tmp_path, template="page.md")
    (text,) = await made.read_for_request("t1")
    assert "# Deadlines" in text, "the model is told what to fill in"
    await made.update("t1", "# Team\nAda", actor="agent")
    assert await made.read() == "# Team\nAda\n\n# Deadlines"
    assert await pages(store, tmp_path).read_for_request("t1") == await made.read_for_request("t1")
    thread = pages(store, tmp_path, template="page.md", scope="thread")
    assert [t.split("\n")[1] for t in await thread.read_for_request("t1")] == ["# Team", "# Team"]
    plain = pages(store, tmp_path / "elsewhere")
    assert await plain.read_for_request("t1") == (), "without one an empty page is not sent"
    assert "# Tech stack" in await plain.read()


@pytest.mark.parametrize("name", ["../secret.md", "/etc/passwd", "link.md", "~/secret.md", "deep/../../secret.md"])
async def test_a_file_elsewhere_is_not_read(store: Store, tmp_path: Path, home: Path, name: str) -> None:
    work = tmp_path / "work"
    (work / "deep").mkdir(parents=True)
    for secret in (tmp_path / "secret.md", home / "secret.md"):
        secret.write_text('{"token": "abc"}')
    (work / "link.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(ConfigError, match="must be in the workspace or in"):
        await pages(store, work, template=name).template()
    with pytest.raises(ConfigError, match="must be in the workspace or in"):
        page_content.load_schema(name, work)


def test_the_users_own_configuration_may_hold_them(tmp_path: Path, home: Path) -> None:
    folder = home / "config" / "sakti"
    folder.mkdir(parents=True)
    (folder / "page.md").write_text("# Mine")
    (folder / "page.json").write_text('{"type": "object"}')
    assert page_content.load_template(str(folder / "page.md"), tmp_path) == "# Mine"
    assert page_content.load_schema(str(folder / "page.json"), tmp_path) == {"type": "object"}


def test_what_is_no_template_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long.md").write_text("x" * (page_content.TEMPLATE_CHARACTERS + 1))
    (tmp_path / "bytes.md").write_bytes(b"\xff\xfe\x00")
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "folder.md").mkdir()
    for name, words in (
        ("long.md", "more than 8000 characters"),
        ("bytes.md", "cannot be read"),
        (".env", "must be a Markdown file"),
        ("missing.md", "there is no file"),
        ("folder.md", "there is no file"),
    ):
        with pytest.raises(ConfigError, match=words):
            page_content.load_template(name, tmp_path)
    (tmp_path / "deep.json").write_text("[" * 15_000)
    with pytest.raises(ConfigError, match="cannot be read as JSON"):
        page_content.load_schema("deep.json", tmp_path)


def test_the_settings_are_checked_and_shown() -> None:
    shown = flatten(load().config)
    assert (shown["memory.working_memory.enabled"], shown["memory.working_memory.scope"]) == (True, "resource")
    assert shown["memory.working_memory.template"] is None
    with pytest.raises(ConfigError, match="'resource' or 'thread'"):
        load(overrides=("memory.working_memory.scope=project",))
    with pytest.raises(ConfigError, match=r"schema and memory\.working_memory\.template are both set"):
        load(overrides=("memory.working_memory.schema=a.json", "memory.working_memory.template=b.md"))
