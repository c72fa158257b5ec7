"""Read the files of the working-memory page, and check the page against a JSON schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from sakti.core import json_schema
from sakti.core.errors import ConfigError, MemoryFailure
from sakti.core.resources import config_home, fill_prompt, read_prompt
from sakti.core.types import Json

TEMPLATE = "memory.working_memory.template"
LONGEST_TEMPLATE = 8_000  # characters: about what a page may have
_MARKDOWN = (".md", ".markdown")


def find(setting: str, name: str, workspace: Path) -> Path:
    """Return the path of file `name`, relative to the workspace, with links resolved.

    Raises `ConfigError` where it is outside of the workspace and of the user's configuration.
    """
    path = (workspace / Path(name).expanduser()).resolve()
    if not any(path.is_relative_to(folder.resolve()) for folder in (workspace, config_home())):
        raise ConfigError(f"{setting}: {path} must be in the workspace or in {config_home()}.")
    return path


def read(setting: str, path: Path, longest: int) -> str:
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


def template(name: str | None, workspace: Path) -> str:
    """Return the initial page: the Markdown file `name`, or the built-in one for None.

    Raises `ConfigError`.
    """
    if name is None:
        return read_prompt("working-memory")
    path = find(TEMPLATE, name, workspace)
    if path.suffix.lower() not in _MARKDOWN:
        raise ConfigError(f"{TEMPLATE}: {path} must be a Markdown file ({' or '.join(_MARKDOWN)}).")
    return read(TEMPLATE, path, LONGEST_TEMPLATE).strip()


SETTING = "memory.working_memory.schema"
LONGEST = 20_000  # characters: the prompt contains all of it


def load(name: str | None, workspace: Path) -> Json | None:
    """Load the schema in the file `name`, relative to the workspace; None if none is set.

    Raises `ConfigError` for a file without a schema, and for one outside of workspace and configuration.
    """
    if name is None:
        return None
    path = find(SETTING, name, workspace)
    text = read(SETTING, path, LONGEST)
    try:
        schema: Any = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{SETTING}: {path} cannot be read as JSON: {e}.") from e
    try:
        json_schema.check_schema(schema)
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
