"""Working memory: pages of stable facts of a workspace or a thread, with all versions.

A page begins as a template and is Markdown or, with a schema, JSON. `Pages` decides which pages a request carries and
who may write which; `WorkingPage` merges an update into one of them.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from sakti.core import json_schema
from sakti.core.config import MemorySettings
from sakti.core.errors import ConfigError, MemoryFailure
from sakti.core.lazy import lazy_pattern
from sakti.core.resources import config_home, fill_prompt, read_prompt
from sakti.core.tokens import Counter
from sakti.core.types import Json
from sakti.store.database import Store
from sakti.store.memory import records as rows
from sakti.store.secrets import mask_secrets

TEMPLATE_SETTING = "memory.working_memory.template"
TEMPLATE_CHARACTERS = 8_000  # characters: about what a page may have
_MARKDOWN = (".md", ".markdown")


def resolve_path(setting: str, name: str, workspace: Path) -> Path:
    """Return the path of file `name`, relative to the workspace, with links resolved.

    Raises `ConfigError` where it is outside of the workspace and of the user's configuration.
    """
    path = (workspace / Path(name).expanduser()).resolve()
    if not any(path.is_relative_to(folder.resolve()) for folder in (workspace, config_home())):
        raise ConfigError(f"{setting}: {path} must be in the workspace or in {config_home()}.")
    return path


def read_file(setting: str, path: Path, longest: int) -> str:
    """Read a file of at most `longest` characters. Raises `ConfigError`."""
    try:
        if not path.is_file():
            raise ConfigError(f"{setting}: there is no file {path}.")
        with path.open(encoding="utf-8") as file:
            text = file.read(longest + 1)
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{setting}: {path} cannot be read: {e}.") from e
    if len(text) > longest:
        raise ConfigError(f"{setting}: {path} has more than {longest} characters.")
    return text


def load_template(name: str | None, workspace: Path) -> str:
    """Return the initial page: the Markdown file `name`, or the built-in one for None.

    Raises `ConfigError`.
    """
    if name is None:
        return read_prompt("working-memory")
    path = resolve_path(TEMPLATE_SETTING, name, workspace)
    if path.suffix.lower() not in _MARKDOWN:
        raise ConfigError(f"{TEMPLATE_SETTING}: {path} must be a Markdown file ({' or '.join(_MARKDOWN)}).")
    return read_file(TEMPLATE_SETTING, path, TEMPLATE_CHARACTERS).strip()


SCHEMA_SETTING = "memory.working_memory.schema"
SCHEMA_CHARACTERS = 20_000  # characters: the prompt contains all of it


def load_schema(name: str | None, workspace: Path) -> Json | None:
    """Load the schema in the file `name`, relative to the workspace; None if none is set.

    Raises `ConfigError` for a file without a schema, and for one outside of workspace and configuration.
    """
    if name is None:
        return None
    path = resolve_path(SCHEMA_SETTING, name, workspace)
    text = read_file(SCHEMA_SETTING, path, SCHEMA_CHARACTERS)
    try:
        schema: Any = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{SCHEMA_SETTING}: {path} cannot be read as JSON: {e}.") from e
    try:
        json_schema.check_schema(schema)
    except json_schema.UnusableSchema as e:
        raise ConfigError(f"{SCHEMA_SETTING}: {path} {e}.") from e
    if not isinstance(schema, dict):
        raise ConfigError(f"{SCHEMA_SETTING}: {path} must hold a JSON object.")
    return cast("Json", schema)


def check_schema(page: str, schema: Json) -> None:
    """Raise `MemoryFailure` (schema), which names the place, for a page that violates `schema`."""
    try:
        value: Any = json.loads(page)
    except ValueError:
        raise MemoryFailure("The page follows a JSON schema: give a JSON object.", code="schema") from None
    try:
        violations = json_schema.find_violations(value, schema)
    except json_schema.UnusableSchema as e:
        raise MemoryFailure(f"The page's schema {e}.", code="schema") from e
    for path, message in violations[:1]:
        raise MemoryFailure(f"Working memory would break its schema at {path}: {message}.", code="schema")


def schema_instructions(schema: Json | None) -> str:
    """Return the instructions on the schema, empty without one."""
    if schema is None:
        return ""
    return fill_prompt("working-memory#schema", schema=json.dumps(schema, ensure_ascii=False, separators=(",", ":")))


LIMIT_TOKENS = 2_000
_HEADING = lazy_pattern(r"^(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*$")
_FENCE = lazy_pattern(r"^[ \t]*(```|~~~)")


def split_sections(page: str) -> list[tuple[str, str]]:
    """Split a page into (heading line, body); text before the first heading has an empty one.

    Headings inside code fences are text.
    """
    out: list[tuple[str, list[str]]] = [("", [])]
    fenced = False
    for line in page.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        if not fenced and _HEADING.match(line):
            out.append((line.rstrip(), []))
        else:
            out[-1][1].append(line)
    return [(heading, "\n".join(body).strip("\n")) for heading, body in out if heading or "".join(body).strip()]


def _title(heading: str) -> str:
    match = _HEADING.match(heading)
    return match[2] if match else ""


def _name(heading: str) -> str:
    return _title(heading).strip().casefold()


def merge_sections(page: str, update: str) -> tuple[str, tuple[str, ...]]:
    """Merge the sections of `update` into `page`; return it and the headings that changed.

    A section replaces the one with the same heading (whatever its level or case), new ones are appended; text before
    the first heading replaces that of the page ("" among the headings).
    """
    out = split_sections(page)
    changed: list[str] = []
    for heading, body in split_sections(update):
        place = next((i for i, (other, _) in enumerate(out) if _name(other) == _name(heading)), None)
        if place is None:
            out.insert(0 if not heading else len(out), (heading, body))
        elif out[place][1] == body:
            continue
        else:
            out[place] = (out[place][0], body)
        changed.append(_title(heading))
    return "\n\n".join(f"{heading}\n{body}".strip("\n") for heading, body in out), tuple(changed)


def merge_json(page: Json, update: Json) -> tuple[Json, tuple[str, ...]]:
    """Merge `update` into `page` in depth; return it and the top-level keys that changed.

    Null deletes a key, anything but an object replaces.
    """
    out = dict(page)
    for key, value in update.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            old: Any = out.get(key)
            out[key] = merge_json(cast("Json", old) if isinstance(old, dict) else {}, cast("Json", value))[0]
        else:
            out[key] = value
    return out, tuple(k for k in {**page, **out} if page.get(k) != out.get(k) or (k in page) != (k in out))


def as_json(text: str) -> Json | None:
    """Parse a page or an update as a JSON object; None for Markdown."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    return cast("Json", value) if isinstance(value, dict) else None


def merge_update(page: str, update: str, *, needs_json: bool) -> tuple[str, tuple[str, ...]]:
    """Merge JSON into a page of JSON, or Markdown into a page of Markdown; return it and what changed.

    Raises `MemoryFailure` (bad_json) if the two differ, or the page `needs_json`.
    """
    old, new = as_json(page), as_json(update)
    if needs_json and old is None:
        raise MemoryFailure(
            "The page is Markdown, but its schema requires JSON: replace the whole page.", code="bad_json"
        )
    if old is None:
        return merge_sections(page, update)
    if new is None:
        raise MemoryFailure("The page is JSON: give a JSON object, or replace the whole page.", code="bad_json")
    return _merge_objects(old, new)


def _merge_objects(old: Json, new: Json) -> tuple[str, tuple[str, ...]]:
    merged, changed = merge_json(old, new)
    return json.dumps(merged, ensure_ascii=False, indent=2), changed


def start_page(template: str, content: str) -> tuple[str, tuple[str, ...]]:
    """Return a new page, of JSON or of Markdown over its `template`, and its headings or keys."""
    values = as_json(content)
    return merge_sections(template, content) if values is None else _merge_objects({}, values)


def check_size(page: str, counter: Counter) -> int:
    """Return the tokens of `page`; raises `MemoryFailure` (too_long) above 2,000."""
    tokens = counter.count(page)
    if tokens > LIMIT_TOKENS:
        raise MemoryFailure(
            f"Working memory would have {tokens} tokens; {LIMIT_TOKENS} is the limit. "
            "Shorten a section, or keep details in a file or a task.",
            code="too_long",
        )
    return tokens


Scope: TypeAlias = Literal["resource", "thread"]
SCOPES: tuple[Scope, ...] = ("resource", "thread")  # in the order in which they are sent
NOTES = "Notes"


class WorkingPage(Struct, frozen=True, kw_only=True):
    """One page of working memory: its place in the store, and the rules for its versions.

    A new page begins as `template` (None: the built-in one). A page that is a JSON object is merged in depth, null
    deletes; with a `schema` it must conform.
    """

    store: Store
    counter: Counter
    owner_id: str
    scope: Scope = "resource"
    resource_id: str | None = None
    schema: Json | None = None
    template: str | None = None

    async def read(self) -> tuple[str, int]:
        """Return text and version; before the first version the template and 0."""
        page = await self.store.read(rows.read_working_memory, self.scope, self.owner_id)
        return page or (read_prompt("working-memory") if self.template is None else self.template, 0)

    async def update(self, content: str, *, replace: bool = False, actor: str = "") -> tuple[str, tuple[str, ...]]:
        """Merge `content` into the page, or replace it; return the page and the changed headings.

        A version is stored, if anything changed. Raises `MemoryFailure`: empty, too_long, conflict, bad_json, schema.
        """
        if not content.strip():
            raise MemoryFailure("There is no content: give Markdown sections, each with its heading.", code="empty")
        before, version = await self.read()
        if self.schema is not None and as_json(content) is None:
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
        """Add a line to the section "Notes", creating it if needed; return the page. Raises as `update`."""
        page, _ = await self.read()
        body = next((b for h, b in split_sections(page) if _name(h) == NOTES.casefold()), "")
        line = f"- {' '.join(note.split())}"
        content = f"# {NOTES}\n{f'{body}{chr(10)}{line}' if body else line}"
        facts = as_json(page)
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
        """Return the JSON schema of the pages. Blocks at the first call; raises `ConfigError`."""
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
        """Return what requests of a thread carry: the workspace's page, then the thread's own.

        Without a page, a template of the user's is sent, so that the model knows what to fill in.
        """
        if not self.is_enabled:
            return ()
        usual = self.settings.working_memory
        texts: list[str] = []
        for scope in SCOPES:
            page = await self.store.read(rows.read_working_memory, scope, self._owner(scope, thread_id))
            text = page[0] if page else await self.template() if usual.template and scope == usual.scope else ""
            if text.strip():
                texts.append(f'<working-memory scope="{scope}">\n{mask_secrets(text.strip())}\n</working-memory>')
        return tuple(texts)

    async def read(self, thread_id: str | None = None) -> str:
        """Return the page of the workspace or of a thread; the template before the first version."""
        scope: Scope = "thread" if thread_id else "resource"
        page = await self.store.read(rows.read_working_memory, scope, self._owner(scope, thread_id or ""))
        return page[0] if page else await self.template()

    async def read_thread_page(self, thread_id: str) -> str:
        """Return a thread's own page; empty if it has none."""
        page = await self.store.read(rows.read_working_memory, "thread", thread_id)
        return page[0] if page else ""

    async def update(
        self, thread_id: str, content: str, *, scope: Scope | None = None, replace: bool = False, actor: str
    ) -> tuple[str, tuple[str, ...]]:
        """Update a page as `WorkingPage.update` does: that of the settings' scope unless `scope` names one.

        Raises `MemoryFailure` also for off and read_only.
        """
        self.must_write()
        scope = scope or self.settings.working_memory.scope
        page = await self._page(scope, thread_id)
        return await page.update(content, replace=replace, actor=actor)

    async def add_note(self, thread_id: str, note: str) -> str:
        """Add the user's line to the section "Notes" of the page of the settings' scope; return the page.

        Raises as `update`.
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
            owner_id=self._owner(scope, thread_id),
            scope=scope,
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
        if not self.is_enabled:
            raise MemoryFailure(OFF, code="off")
