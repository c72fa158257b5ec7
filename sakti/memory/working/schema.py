"""Check the working-memory page against a JSON schema, where one is set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from sakti.core import json_schema
from sakti.core.errors import ConfigError, MemoryFailure
from sakti.core.resources import fill_prompt
from sakti.core.types import Json
from sakti.memory.working import files as page_files

SETTING = "memory.working_memory.schema"
LONGEST = 20_000  # characters: the prompt contains all of it


def load(name: str | None, workspace: Path) -> Json | None:
    """Load the schema in the file `name`, relative to the workspace; None if none is set.

    Raises `ConfigError` for a file without a schema, and for one outside of workspace and configuration.
    """
    if name is None:
        return None
    path = page_files.find(SETTING, name, workspace)
    text = page_files.read(SETTING, path, LONGEST)
    try:
        schema: Any = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{SETTING}: {path} cannot be read as JSON: {e}.") from e
    try:
        json_schema.verify(schema)
    except json_schema.UnusableSchema as e:
        raise ConfigError(f"{SETTING}: {path} {e}.") from e
    if not isinstance(schema, dict):
        raise ConfigError(f"{SETTING}: {path} must hold a JSON object.")
    return cast("Json", schema)


def check(page: str, schema: Json) -> None:
    """Raise `MemoryFailure` (schema), which names the place, for a page that violates `schema`."""
    try:
        value: Any = json.loads(page)
    except ValueError:
        raise MemoryFailure("The page follows a JSON schema: give a JSON object.", code="schema") from None
    try:
        violations = json_schema.violations(value, schema)
    except json_schema.UnusableSchema as e:
        raise MemoryFailure(f"The page's schema {e}.", code="schema") from e
    for path, message in violations[:1]:
        raise MemoryFailure(f"Working memory would break its schema at {path}: {message}.", code="schema")


def told(schema: Json | None) -> str:
    """Return the instructions on the schema, empty without one."""
    if schema is None:
        return ""
    return fill_prompt("working-memory#schema", schema=json.dumps(schema, ensure_ascii=False, separators=(",", ":")))
