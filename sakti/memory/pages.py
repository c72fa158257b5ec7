"""Working memory: pages of stable facts about a workspace or a thread, with all versions.

A page begins as a template and is Markdown or, with a schema, JSON. `Pages` decides which pages a request includes
and which may be written; `WorkingPage` merges an update into one of them.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from sakti.core.config import MemorySettings
from sakti.core.errors import MemoryFailure
from sakti.core.resources import read_prompt
from sakti.core.tokens import Counter
from sakti.core.types import Json
from sakti.memory.page_content import (
    check_schema,
    check_size,
    load_schema,
    load_template,
    merge_update,
    normalize_heading,
    parse_json,
    split_sections,
    start_page,
)
from sakti.store.database import Store
from sakti.store.memory import records as rows
from sakti.store.secrets import mask_secrets

Scope: TypeAlias = Literal["resource", "thread"]
SCOPES: tuple[Scope, ...] = ("resource", "thread")  # in the order of the request
NOTES = "Notes"


class WorkingPage(Struct, frozen=True, kw_only=True):
    """Page of working memory: its place in the store, and the rules for its versions.

    A new page begins as `template` (None: the built-in one). A JSON page is merged recursively, null deletes; it must
    conform to the `schema`, if any.
    """

    store: Store
    counter: Counter
    owner_id: str
    scope: Scope = "resource"
    resource_id: str | None = None
    schema: Json | None = None
    template: str | None = None

    async def read(self) -> tuple[str, int]:
        """Return text and version; before the first version, the template and 0."""
        page = await self.store.read(rows.read_working_memory, self.scope, self.owner_id)
        return page or (read_prompt("working-memory") if self.template is None else self.template, 0)

    async def update(self, content: str, *, replace: bool = False, actor: str = "") -> tuple[str, tuple[str, ...]]:
        """Merge `content` into the page, or replace it; return the page and the changed headings.

        A new version is stored if anything changed. Raises `MemoryFailure`: empty, too_long, conflict, bad_json,
        schema.
        """
        if not content.strip():
            raise MemoryFailure("There is no content: give Markdown sections, each with its heading.", code="empty")
        before, version = await self.read()
        if self.schema is not None and parse_json(content) is None:
            raise MemoryFailure("The page follows a JSON schema: give a JSON object.", code="bad_json")
        if replace or not version:
            page, changed = start_page("" if replace else before, content)
        else:
            page, changed = merge_update(before, content, needs_json=self.schema is not None)
        if not changed or (replace and page == before):
            return before, ()
        tokens = check_size(page, self.counter)
        if self.schema is not None:
            check_schema(page, self.schema)
        await self.store.write(
            rows.put_working_memory,
            rows.PageVersion(
                id=self.store.ids.new(),
                scope=self.scope,
                owner_id=self.owner_id,
                resource_id=self.resource_id or self.owner_id,
                content=page,
                tokens=tokens,
                actor=actor,
                now=self.store.clock.now(),
            ),
            expected_version=version,
        )
        return page, changed

    async def add_note(self, note: str, *, actor: str = "user") -> str:
        """Add a line to the section "Notes", creating it if needed; return the page. Raises like `update`."""
        page, _ = await self.read()
        body = next((b for h, b in split_sections(page) if normalize_heading(h) == NOTES.casefold()), "")
        line = f"- {' '.join(note.split())}"
        content = f"# {NOTES}\n{f'{body}{chr(10)}{line}' if body else line}"
        facts = parse_json(page)
        if facts is not None or self.schema is not None:
            old: Any = (facts or {}).get(NOTES)
            notes = [*(cast("list[Any]", old) if isinstance(old, list) else []), " ".join(note.split())]
            content = json.dumps({NOTES: notes}, ensure_ascii=False)
        return (await self.update(content, actor=actor))[0]


OFF = "Working memory is switched off (memory.working_memory.enabled = false): nothing was written."
READ_ONLY = "Memory is read-only here (memory.read_only, --no-save): no page of working memory is written."


class Pages:
    """Pages of the workspace `resource_id` (its folder), and of its threads."""

    def __init__(self, store: Store, counter: Counter, settings: MemorySettings, resource_id: str) -> None:
        self.store, self.counter, self.settings = store, counter, settings
        self.resource_id = resource_id
        self._template: str | None = None
        self._schema: Json | None = None

    @property
    def is_enabled(self) -> bool:
        return self.settings.working_memory.enabled

    def schema(self) -> Json | None:
        """Return the JSON schema of the pages.

        Blocks on the first call; raises `ConfigError`.
        """
        if self._schema is None:
            self._schema = load_schema(self.settings.working_memory.schema, Path(self.resource_id))
        return self._schema

    async def template(self) -> str:
        """Return the initial page. Raises `ConfigError`."""
        if self._template is None:
            name, workspace = self.settings.working_memory.template, Path(self.resource_id)
            self._template = await asyncio.to_thread(load_template, name, workspace)
        return self._template

    async def read_for_request(self, thread_id: str) -> tuple[str, ...]:
        """Return the pages for a thread's requests: the workspace's page, then the thread's own.

        Without a page, a custom template is sent, so that the model knows what to fill in.
        """
        if not self.is_enabled:
            return ()
        usual = self.settings.working_memory
        texts: list[str] = []
        for scope in SCOPES:
            page = await self.store.read(rows.read_working_memory, scope, self._get_owner(scope, thread_id))
            text = page[0] if page else await self.template() if usual.template and scope == usual.scope else ""
            if text.strip():
                texts.append(f'<working-memory scope="{scope}">\n{mask_secrets(text.strip())}\n</working-memory>')
        return tuple(texts)

    async def read(self, thread_id: str | None = None) -> str:
        """Return the page of the workspace or of a thread; the template before the first version."""
        scope: Scope = "thread" if thread_id else "resource"
        page = await self.store.read(rows.read_working_memory, scope, self._get_owner(scope, thread_id or ""))
        return page[0] if page else await self.template()

    async def read_thread_page(self, thread_id: str) -> str:
        """Return a thread's own page; empty if it has none."""
        page = await self.store.read(rows.read_working_memory, "thread", thread_id)
        return page[0] if page else ""

    async def update(
        self, thread_id: str, content: str, *, scope: Scope | None = None, replace: bool = False, actor: str
    ) -> tuple[str, tuple[str, ...]]:
        """Merge `content` into the page of `scope` (default: that of the settings), or replace the page.

        Return the page and the changed headings. Raises `MemoryFailure` as `WorkingPage.update`, and: off, read_only.
        """
        self.must_write()
        scope = scope or self.settings.working_memory.scope
        page = await self._page(scope, thread_id)
        return await page.update(content, replace=replace, actor=actor)

    async def add_note(self, thread_id: str, note: str) -> str:
        """Add the user's line to the section "Notes" of the page of the settings' scope; return the page.

        Raises the errors of `update`.
        """
        self.must_write()
        scope = self.settings.working_memory.scope
        page = await self._page(scope, thread_id)
        return await page.add_note(note)

    async def _page(self, scope: Scope, thread_id: str) -> WorkingPage:
        """Return one of these pages with the settings' schema and template. Raises `ConfigError`."""
        return WorkingPage(
            store=self.store,
            counter=self.counter,
            owner_id=self._get_owner(scope, thread_id),
            scope=scope,
            resource_id=self.resource_id,
            schema=await asyncio.to_thread(self.schema),
            template=await self.template(),
        )

    def _get_owner(self, scope: Scope, thread_id: str) -> str:
        return self.resource_id if scope == "resource" else thread_id

    def must_write(self) -> None:
        """Raise `MemoryFailure` (off, read_only) if no page may be written."""
        if self.settings.read_only:
            raise MemoryFailure(READ_ONLY, code="read_only")
        if not self.is_enabled:
            raise MemoryFailure(OFF, code="off")
