"""Check the working-memory page against a JSON schema, where one is set."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, cast

from sakti.core.errors import ConfigError, MemoryFailure
from sakti.core.resources import fill_prompt
from sakti.core.text import one_line
from sakti.core.types import Json
from sakti.memory.working import files as page_files

SETTING = "memory.working_memory.schema"
LONGEST = 20_000  # characters: the model is told the whole of it


def _library(name: str) -> Any:
    """Import a module of jsonschema, which has no types; only where a schema is set."""
    return importlib.import_module(name)


def load(name: str | None, workspace: Path) -> Json | None:
    """Load the schema in the file `name`, relative to the workspace; None where none is set.

    Raises `ConfigError` for a file without a schema, and for one outside of workspace and configuration.
    """
    if name is None:
        return None
    validators, errors = _library("jsonschema.validators"), _library("jsonschema.exceptions")
    path = page_files.find(SETTING, name, workspace)
    text = page_files.read(SETTING, path, LONGEST)
    try:
        schema: Any = json.loads(text)
        validators.validator_for(schema).check_schema(schema)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{SETTING}: {path} cannot be read as JSON: {e}.") from e
    except errors.SchemaError as e:
        why = one_line(e.message, 200)
        raise ConfigError(f"{SETTING}: {path} is not a JSON schema: {why} at {e.json_path}.") from e
    if not isinstance(schema, dict):
        raise ConfigError(f"{SETTING}: {path} must hold a JSON object.")
    return cast("Json", schema)


def check(page: str, schema: Json) -> None:
    """Raise `MemoryFailure` (schema), which names the place, for a page that violates `schema`."""
    validators, errors, referencing = map(_library, ("jsonschema.validators", "jsonschema.exceptions", "referencing"))
    unresolvable = _library("referencing.exceptions").Unresolvable
    try:
        value: Any = json.loads(page)
    except ValueError:
        raise MemoryFailure("The page follows a JSON schema: give a JSON object.", code="schema") from None
    # an empty registry: nothing is fetched from an address that a schema names
    validator = validators.validator_for(schema)(schema, registry=referencing.Registry())
    try:
        error = errors.best_match(validator.iter_errors(value))
    except unresolvable as e:
        raise MemoryFailure(f"The page's schema refers to {e.ref}, which is not in it.", code="schema") from e
    if error is not None:
        raise MemoryFailure(
            f"Working memory would break its schema at {error.json_path}: {one_line(error.message, 300)}.",
            code="schema",
        )


def told(schema: Json | None) -> str:
    """Return the instructions on the schema, empty without one."""
    if schema is None:
        return ""
    return fill_prompt("working-memory#schema", schema=json.dumps(schema, ensure_ascii=False, separators=(",", ":")))
