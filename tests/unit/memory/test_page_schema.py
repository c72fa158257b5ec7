"""Working memory that follows a JSON schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sakti.agent.tools.catalog import make_tools
from sakti.core.config import MemorySettings, WorkingMemorySettings
from sakti.core.errors import ConfigError, MemoryFailure
from sakti.core.tokens import Estimator
from sakti.core.types import Json
from sakti.memory import page_content
from sakti.memory import pages as memory_pages
from sakti.memory.pages import Pages
from sakti.store.database import Store
from sakti.store.memory import records as pages
from tests.fakes.clock import FakeClock

COUNTER = Estimator()
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "stack": {
            "type": "object",
            "properties": {"db": {"enum": ["sqlite", "postgres"]}, "port": {"type": "integer"}},
        },
        "Notes": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
    "additionalProperties": False,
}


def put(tmp_path: Path, schema: object = SCHEMA) -> str:
    (tmp_path / "page.json").write_text(json.dumps(schema))
    return "page.json"


async def opened(tmp_path: Path) -> Store:
    return await Store.open(tmp_path / "m.db", clock=FakeClock(), synchronous="NORMAL")


def stored_page(store: Store, owner_id: str = "w", schema: Json | None = SCHEMA) -> memory_pages.WorkingPage:
    return memory_pages.WorkingPage(store=store, counter=COUNTER, owner_id=owner_id, schema=schema)


async def change(store: Store, content: str, *, replace: bool = False) -> Json:
    page, _ = await stored_page(store).update(content, replace=replace)
    return json.loads(page)


async def test_an_update_is_checked_after_the_merge_and_names_the_place(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert await change(store, '{"stack": {"db": "sqlite"}}') == {"stack": {"db": "sqlite"}}
    assert await change(store, '{"stack": {"port": 5432}}') == {"stack": {"db": "sqlite", "port": 5432}}
    for wrong, place in (
        ('{"stack": {"db": "mysql"}}', r"at \$\.stack\.db: 'mysql' is not one of"),
        ('{"stack": {"port": "many"}}', r"at \$\.stack\.port: 'many' is not of type 'integer'"),
        ('{"other": 1}', r"at \$: Additional properties"),
        ("# Stack\nPython", "give a JSON object"),
    ):
        with pytest.raises(MemoryFailure, match=place):
            await change(store, wrong)
        with pytest.raises(MemoryFailure):
            await change(store, wrong, replace=True)
    assert await store.read(pages.read_working_memory, "resource", "w") == (
        json.dumps({"stack": {"db": "sqlite", "port": 5432}}, indent=2),
        2,
    )
    assert await change(store, '{"stack": {"port": null}}') == {"stack": {"db": "sqlite"}}
    await store.close()


async def test_notes_and_a_page_that_was_markdown(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await stored_page(store, schema=None).update("# Stack\nPython")
    with pytest.raises(MemoryFailure, match="replace the whole page"):
        await change(store, '{"stack": {"db": "sqlite"}}')
    await change(store, '{"stack": {"db": "sqlite"}}', replace=True)
    for note in ("one", "two"):
        await stored_page(store).add_note(note)
    with pytest.raises(MemoryFailure, match=r"\$\.Notes"):
        await stored_page(store).add_note("three")
    await stored_page(store, "new").add_note("first")
    assert json.loads((await stored_page(store, "new").read())[0]) == {"Notes": ["first"]}
    await store.close()


def test_a_file_that_is_no_schema_is_refused(tmp_path: Path) -> None:
    assert page_content.load_schema(None, tmp_path) is None
    assert page_content.load_schema(put(tmp_path), tmp_path) == SCHEMA
    for wrong in ({"type": "anything"}, [], {"description": "x" * 30_000}):
        with pytest.raises(ConfigError, match="page.json"):
            page_content.load_schema(put(tmp_path, wrong), tmp_path)
    (tmp_path / "page.json").write_text("{")
    with pytest.raises(ConfigError, match="JSON"):
        page_content.load_schema("page.json", tmp_path)
    with pytest.raises(ConfigError):
        page_content.load_schema("missing.json", tmp_path)


def test_an_address_in_a_schema_is_not_fetched() -> None:
    schema: Json = {"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    with pytest.raises(MemoryFailure, match="127"):
        page_content.check_schema('{"a": 1}', schema)


async def test_the_model_is_told_the_schema_and_refused_by_it(tmp_path: Path) -> None:
    store = await opened(tmp_path)

    def tools(schema: str | None) -> dict[str, object]:
        made = make_tools(
            store,
            resource_id=str(tmp_path),
            owner="s",
            pages=Pages(store, COUNTER, MemorySettings(working_memory=WorkingMemorySettings(schema)), str(tmp_path)),
            emit=lambda _: None,
            in_window=set,
        )
        return {t.name: t for t in made}

    plain, ruled = (tools(s)["task-mutate"] for s in (None, put(tmp_path)))
    assert "schema" not in plain.description  # pyright: ignore
    assert json.dumps(SCHEMA, separators=(",", ":")) in ruled.description  # pyright: ignore
    run = type("Run", (), {"thread_id": "t", "message_id": "m"})()
    arguments = {"action": "update_context", "content": '{"stack": {"db": "mysql"}}'}
    outcome = await ruled(run, arguments)  # pyright: ignore
    assert outcome.is_error
    assert json.loads(outcome.content)["code"] == "schema"
    await store.close()


def test_it_is_not_imported_where_no_schema_is_set() -> None:
    code = "import sys, sakti.agent.tools.catalog, sakti.memory.engine; print('jsonschema' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
