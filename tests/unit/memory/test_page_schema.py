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
from sakti.memory.working import pages as working_pages
from sakti.memory.working import schema as page_schema
from sakti.memory.working.pages import Pages
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


async def change(store: Store, content: str, *, replace: bool = False, schema: Json | None = SCHEMA) -> Json:
    page, _ = await working_pages.update(
        store, COUNTER, scope="resource", owner_id="w", content=content, replace=replace, schema=schema
    )
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
    assert await store.read(pages.working_memory, "resource", "w") == (
        json.dumps({"stack": {"db": "sqlite", "port": 5432}}, indent=2),
        2,
    )
    assert await change(store, '{"stack": {"port": null}}') == {"stack": {"db": "sqlite"}}
    await store.close()


async def test_notes_and_a_page_that_was_markdown(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await working_pages.update(store, COUNTER, scope="resource", owner_id="w", content="# Stack\nPython")
    with pytest.raises(MemoryFailure, match="replace the whole page"):
        await change(store, '{"stack": {"db": "sqlite"}}')
    await change(store, '{"stack": {"db": "sqlite"}}', replace=True)
    for note in ("one", "two"):
        await working_pages.add_note(store, COUNTER, owner_id="w", note=note, schema=SCHEMA)
    with pytest.raises(MemoryFailure, match=r"\$\.Notes"):
        await working_pages.add_note(store, COUNTER, owner_id="w", note="three", schema=SCHEMA)
    await working_pages.add_note(store, COUNTER, owner_id="new", note="first", schema=SCHEMA)
    assert json.loads(await working_pages.read(store, scope="resource", owner_id="new")) == {"Notes": ["first"]}
    await store.close()


def test_a_file_that_is_no_schema_is_refused(tmp_path: Path) -> None:
    assert page_schema.load(None, tmp_path) is None
    assert page_schema.load(put(tmp_path), tmp_path) == SCHEMA
    for wrong in ({"type": "anything"}, [], {"description": "x" * 30_000}):
        with pytest.raises(ConfigError, match="page.json"):
            page_schema.load(put(tmp_path, wrong), tmp_path)
    (tmp_path / "page.json").write_text("{")
    with pytest.raises(ConfigError, match="JSON"):
        page_schema.load("page.json", tmp_path)
    with pytest.raises(ConfigError):
        page_schema.load("missing.json", tmp_path)


def test_an_address_in_a_schema_is_not_fetched() -> None:
    schema: Json = {"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    with pytest.raises(MemoryFailure, match="127"):
        page_schema.check('{"a": 1}', schema)


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
