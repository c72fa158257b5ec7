"""Manage the pages of working memory of one workspace: what requests carry, who may write which."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal, TypeAlias

from sakti.core.config import MemorySettings
from sakti.core.errors import MemoryFailure
from sakti.core.tokens import Counter
from sakti.core.types import Json
from sakti.memory.working import schema as page_schema
from sakti.memory.working import working_memory
from sakti.store.database import Store
from sakti.store.memory import records as rows
from sakti.store.secrets import masked

Scope: TypeAlias = Literal["resource", "thread"]
SCOPES: tuple[Scope, ...] = ("resource", "thread")  # in the order in which they are sent

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
    def enabled(self) -> bool:
        return self.settings.working_memory.enabled

    def schema(self) -> Json | None:
        """Return the JSON schema of the pages. Blocks at the first call; raises `ConfigError`."""
        if self._schema is None:
            self._schema = page_schema.load(self.settings.working_memory.schema, Path(self.resource_id))
        return self._schema

    async def template(self) -> str:
        """Return the initial page. Raises `ConfigError`."""
        if self._template is None:
            name, workspace = self.settings.working_memory.template, Path(self.resource_id)
            self._template = await asyncio.to_thread(page_schema.template, name, workspace)
        return self._template

    async def sent(self, thread_id: str) -> tuple[str, ...]:
        """Return what requests of a thread carry: the workspace's page, then the thread's own.

        Without a page, a template of the user's is sent, so that the model knows what to fill in.
        """
        if not self.enabled:
            return ()
        usual = self.settings.working_memory
        texts: list[str] = []
        for scope in SCOPES:
            page = await self.store.read(rows.working_memory, scope, self._owner(scope, thread_id))
            text = page[0] if page else await self.template() if usual.template and scope == usual.scope else ""
            if text.strip():
                texts.append(f'<working-memory scope="{scope}">\n{masked(text.strip())}\n</working-memory>')
        return tuple(texts)

    async def read(self, thread_id: str | None = None) -> str:
        """Return the page of the workspace or of a thread; the template before the first version."""
        scope: Scope = "thread" if thread_id else "resource"
        page = await self.store.read(rows.working_memory, scope, self._owner(scope, thread_id or ""))
        return page[0] if page else await self.template()

    async def own(self, thread_id: str) -> str:
        """Return a thread's own page; empty if it has none."""
        page = await self.store.read(rows.working_memory, "thread", thread_id)
        return page[0] if page else ""

    async def update(
        self, thread_id: str, content: str, *, scope: Scope | None = None, replace: bool = False, actor: str
    ) -> tuple[str, tuple[str, ...]]:
        """Merge `content` into a page, or replace it; return the page and the changed headings.

        A version is stored.

        The page is that of the settings' scope unless one is named. Raises `MemoryFailure`: off, read_only, and as
        `working_memory.update`.
        """
        self.must_write()
        scope = scope or self.settings.working_memory.scope
        return await working_memory.update(
            self.store,
            self.counter,
            scope=scope,
            owner_id=self._owner(scope, thread_id),
            content=content,
            replace=replace,
            actor=actor,
            resource_id=self.resource_id,
            schema=await asyncio.to_thread(self.schema),
            template=await self.template(),
        )

    async def add_note(self, thread_id: str, note: str) -> str:
        """Add the user's line to the section "Notes" of the page of the settings' scope; return the page.

        Raises as `update`.
        """
        self.must_write()
        scope = self.settings.working_memory.scope
        return await working_memory.add_note(
            self.store,
            self.counter,
            scope=scope,
            owner_id=self._owner(scope, thread_id),
            note=note,
            resource_id=self.resource_id,
            schema=await asyncio.to_thread(self.schema),
            template=await self.template(),
        )

    def _owner(self, scope: Scope, thread_id: str) -> str:
        return self.resource_id if scope == "resource" else thread_id

    def must_write(self) -> None:
        """Raise `MemoryFailure` (off, read_only) where no page may be written."""
        if self.settings.read_only:
            raise MemoryFailure(READ_ONLY, code="read_only")
        if not self.enabled:
            raise MemoryFailure(OFF, code="off")
