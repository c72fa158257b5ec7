"""Read the frontmatter of a Markdown file: YAML between two lines `---`."""

from __future__ import annotations

import importlib
from typing import Any, cast

from sakti.core.lazy import lazy_pattern

_FRONT = lazy_pattern(r"---[ \t]*\n(.*?)(?:\n|^)---[ \t]*(?:\n|\Z)(.*)", 16 | 8)  # re.DOTALL, re.MULTILINE
_PAIR = lazy_pattern(r"^([\w-]+:|[ \t]*-)[ \t]+(\S.*)$", 8)
LONGEST = 16_000  # characters of it
DEEPEST = 20  # lists and tables in one another


def split_frontmatter(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return a text's frontmatter and the rest: {} without a frontmatter, None if it is broken.

    A value that needs quotes is often written without them, as `key: a: b` or `key: [a] [b]`: it is read as if it had
    them. One that is very long is broken.
    """
    match = _FRONT.match(text)
    if match is None:
        return {}, text
    table = _yaml(match[1]) if len(match[1]) <= LONGEST else None
    if table is None and len(match[1]) <= LONGEST:
        table = _yaml(_PAIR.sub(lambda m: m[0] if _is_yaml(m[0]) else f"{m[1]} {_quote(m[2])}", match[1]))
    return table, match[2].strip()


def _quote(value: str) -> str:
    return "'" + value.strip().replace("'", "''") + "'"


def _yaml(text: str) -> dict[str, Any] | None:
    """Return the table that a text is; None for any other."""
    try:
        value = _load(text)
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _is_yaml(text: str) -> bool:
    try:
        _load(text)
    except (ValueError, RecursionError):
        return False
    return True


def _load(text: str) -> Any:
    """Return the value of a YAML text. Raises `ValueError` if it is invalid or too costly to read."""
    yaml: Any = importlib.import_module("yaml")
    try:
        if "*" in text or sum(map(text.count, "[{")) > DEEPEST:
            _check(yaml, text)
        return yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise ValueError("not YAML") from e


def _check(yaml: Any, text: str) -> None:
    """Refuse aliases and deeply nested lists.

    A few lines of aliases may expand beyond any memory.
    """
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if isinstance(token, yaml.tokens.AliasToken):
            raise ValueError("it has aliases")
        if isinstance(token, yaml.tokens.FlowSequenceStartToken | yaml.tokens.FlowMappingStartToken):
            depth += 1
            if depth > DEEPEST:
                raise ValueError("it is nested too deep")
        if isinstance(token, yaml.tokens.FlowSequenceEndToken | yaml.tokens.FlowMappingEndToken):
            depth -= 1
