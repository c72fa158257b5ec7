"""Read the frontmatter of a Markdown file: YAML between two lines `---`."""

from __future__ import annotations

import importlib
from typing import Any, cast

from sakti.core.patterns import lazy_pattern

_FRONT = lazy_pattern(r"---[ \t]*\n(.*?)(?:\n|^)---[ \t]*(?:\n|\Z)(.*)", 16 | 8)  # re.DOTALL, re.MULTILINE
_PAIR = lazy_pattern(r"^([\w-]+):[ \t]+(\S.*)$", 8)


def parted(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return a text's frontmatter and the rest: {} where there is none, None where it is broken.

    A value that needs quotes is often written without them, as `key: a: b` or `key: [a] [b]`: it is read as if it had
    them.
    """
    found = _FRONT.match(text)
    if found is None:
        return {}, text
    table = _yaml(found[1])
    if table is None:
        table = _yaml(_PAIR.sub(lambda m: m[0] if _yaml(m[0]) is not None else f"{m[1]}: {_quoted(m[2])}", found[1]))
    return table, found[2].strip()


def _quoted(value: str) -> str:
    return "'" + value.strip().replace("'", "''") + "'"


def _yaml(text: str) -> dict[str, Any] | None:
    yaml: Any = importlib.import_module("yaml")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    if value is None:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
