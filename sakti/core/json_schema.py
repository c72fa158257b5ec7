"""Validate values against JSON Schemas, without network access and with bounded patterns."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

from sakti.core.text import to_one_line

LIMIT = 10.0  # seconds for a check with patterns, which may backtrack endlessly and so run in a separate process
_PATTERNS = frozenset({"pattern", "patternProperties"})


class UnusableSchema(ValueError):
    """A schema that cannot be used for validation; the text gives the reason as the end of a sentence."""


def check_schema(schema: Any) -> None:
    """Raise UnusableSchema if `schema` is not a JSON Schema."""
    errors = _import_library("jsonschema.exceptions")
    try:
        _import_library("jsonschema.validators").validator_for(schema).check_schema(schema)
    except errors.SchemaError as e:
        raise UnusableSchema(f"is not a JSON schema: {to_one_line(e.message, 200)} at {e.json_path}") from e
    except RecursionError as e:
        raise UnusableSchema("is not a JSON schema: nested too deep") from e


def find_violations(value: Any, schema: Any) -> list[tuple[str, str]]:
    """Return the violations of `schema` in `value` as (JSON path, text), ordered by path.

    Raises `UnusableSchema` if the schema has external references, its patterns take longer than `LIMIT` seconds, or the
    check fails.
    """
    if not _has_patterns(schema):
        return list(_iter_violations(value, schema))
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(command, input=json.dumps([value, schema]).encode(), capture_output=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise UnusableSchema(f"has a pattern that takes longer than {LIMIT:.0f} s") from None
    if done.returncode == _UNUSABLE:
        raise UnusableSchema(done.stdout.decode("utf-8", "replace"))
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise UnusableSchema(f"cannot be checked: {to_one_line(last, 200) or f'exit code {done.returncode}'}")
    return [(path, message) for path, message in json.loads(done.stdout)]


def _iter_violations(value: Any, schema: Any) -> Iterator[tuple[str, str]]:
    best_match, referencing = _import_library("jsonschema.exceptions").best_match, _import_library("referencing")
    # an empty registry: no reference of a schema is fetched
    validator = _import_library("jsonschema.validators").validator_for(schema)(schema, registry=referencing.Registry())
    try:
        for error in sorted(validator.iter_errors(value), key=lambda e: e.json_path):
            nearest = best_match([error])  # the most relevant part of "not valid under any of the given schemas"
            yield nearest.json_path, to_one_line(nearest.message, 300)
    except _import_library("referencing.exceptions").Unresolvable as e:
        raise UnusableSchema(f"refers to {e.ref}, which is not in it") from e
    except RecursionError:
        yield "$", "It is nested too deep."


def _has_patterns(schema: Any) -> bool:
    """Return whether a schema contains a pattern."""
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            table = cast("dict[str, Any]", part)
            if _PATTERNS & table.keys():
                return True
            pending += table.values()
        elif isinstance(part, list):
            pending += cast("list[Any]", part)
    return False


def _import_library(name: str) -> Any:
    """Import a module of jsonschema, which is untyped, when a schema is used."""
    return importlib.import_module(name)


# --- the process for checks with patterns ---------------------------------------------------------------------------

_UNUSABLE = 3


def _main() -> None:
    value, schema = json.load(sys.stdin.buffer)
    try:
        print(json.dumps(list(_iter_violations(value, schema))))
    except UnusableSchema as e:
        print(e, end="")
        sys.exit(_UNUSABLE)


if __name__ == "__main__":
    _main()
