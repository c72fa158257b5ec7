"""Read and merge the texts of working memory: templates, schemas, sections, JSON. Needs no store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from sakti.core import json_schema
from sakti.core.errors import ConfigError, MemoryFailure
from sakti.core.lazy import lazy_pattern
from sakti.core.resources import config_home, fill_prompt, read_prompt
from sakti.core.tokens import Counter
from sakti.core.types import Json

TEMPLATE_SETTING = "memory.working_memory.template"
TEMPLATE_CHARACTERS = 8_000  # characters: about the limit of a page
_MARKDOWN = (".md", ".markdown")


def resolve_path(setting: str, name: str, workspace: Path) -> Path:
    """Return the path of file `name`, relative to the workspace, with links resolved.

    Raises `ConfigError` if it is outside the workspace and the user's configuration.
    """
    path = (workspace / Path(name).expanduser()).resolve()
    if not any(path.is_relative_to(folder.resolve()) for folder in (workspace, config_home())):
        raise ConfigError(f"{setting}: {path} must be in the workspace or in {config_home()}.")
    return path


def read_file(setting: str, path: Path, longest: int) -> str:
    """Read a file of up to `longest` characters.

    Raises `ConfigError`.
    """
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
SCHEMA_CHARACTERS = 20_000  # characters: the prompt contains the complete schema


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
        raise ConfigError(f"{SCHEMA_SETTING}: {path} must contain a JSON object.")
    return cast("Json", schema)


def check_schema(page: str, schema: Json) -> None:
    """Raise `MemoryFailure` (schema), naming the place, if a page violates `schema`."""
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


def make_schema_instructions(schema: Json | None) -> str:
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


def _get_title(heading: str) -> str:
    match = _HEADING.match(heading)
    return match[2] if match else ""


def normalize_heading(heading: str) -> str:
    return _get_title(heading).strip().casefold()


def merge_sections(page: str, update: str) -> tuple[str, tuple[str, ...]]:
    """Merge the sections of `update` into `page`; return it and the headings that changed.

    A section replaces the one with the same heading (whatever its level or case), new ones are appended; text before
    the first heading replaces that of the page ("" among the headings).
    """
    out = split_sections(page)
    changed: list[str] = []
    for heading, body in split_sections(update):
        place = next(
            (i for i, (other, _) in enumerate(out) if normalize_heading(other) == normalize_heading(heading)), None
        )
        if place is None:
            out.insert(0 if not heading else len(out), (heading, body))
        elif out[place][1] == body:
            continue
        else:
            out[place] = (out[place][0], body)
        changed.append(_get_title(heading))
    return "\n\n".join(f"{heading}\n{body}".strip("\n") for heading, body in out), tuple(changed)


def merge_json(page: Json, update: Json) -> tuple[Json, tuple[str, ...]]:
    """Merge `update` into `page` recursively; return it and the top-level keys that changed.

    Null deletes a key; values other than objects replace the old ones.
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


def parse_json(text: str) -> Json | None:
    """Parse a page or an update as a JSON object; None for Markdown."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    return cast("Json", value) if isinstance(value, dict) else None


def merge_update(page: str, update: str, *, needs_json: bool) -> tuple[str, tuple[str, ...]]:
    """Merge an update into a page of the same format; return it and what changed.

    Raises `MemoryFailure` (bad_json) if one is JSON and the other Markdown, or if the page `needs_json`.
    """
    old, new = parse_json(page), parse_json(update)
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
    values = parse_json(content)
    return merge_sections(template, content) if values is None else _merge_objects({}, values)


def check_size(page: str, counter: Counter) -> int:
    """Return the tokens of `page`.

    Raises `MemoryFailure` (too_long) above 2,000.
    """
    tokens = counter.count(page)
    if tokens > LIMIT_TOKENS:
        raise MemoryFailure(
            f"Working memory would have {tokens} tokens; {LIMIT_TOKENS} is the limit. "
            "Shorten a section, or keep details in a file or a task.",
            code="too_long",
        )
    return tokens
