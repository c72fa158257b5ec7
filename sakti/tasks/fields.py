"""Validate task values from people, models and files. Errors are TaskErrors with a code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from sakti.core.errors import TaskError
from sakti.core.patterns import lazy_pattern
from sakti.core.types import Json
from sakti.store.tasks.rows import SOURCE_KEYS
from sakti.store.text_registry import entering

STATUSES, TYPES = ("open", "in_progress", "closed"), ("bug", "feature", "task", "epic", "chore")
REASONS = ("completed", "wontfix", "duplicate")
METADATA_LIMIT = 10_000  # characters of its JSON
_BAD = lazy_pattern("[\x00\ud800-\udfff]")


def check_text(name: str, value: Any) -> None:
    """Refuse text that cannot be stored, anywhere in a value."""
    if isinstance(value, str):
        if match := _BAD.search(value):
            what = "a NUL character" if match[0] == "\x00" else "half of a surrogate pair"
            raise TaskError(f"{name} has {what} at position {match.start()}; send it without.", code="bad_text")
    elif isinstance(value, dict):
        for key, each in cast("dict[Any, Any]", value).items():
            check_text(name, key)
            check_text(f"{name}.{key}", each)
    elif isinstance(value, list | tuple):
        for each in cast("list[Any]", value):
            check_text(name, each)


def clean_title(value: Any) -> str:
    """Return a title as one line of 1 to 500 characters, without secrets: as it is stored."""
    title = " ".join(str(value or "").split())
    if not title:
        raise TaskError("A task needs a title.", code="empty_title")
    if len(title) > 500:
        raise TaskError(f"The title has {len(title)} characters; at most 500.", code="title_too_long")
    check_text("title", title)
    return entering("tasks", "title", title)


def check_priority(priority: Any) -> None:
    """Refuse a priority that is not 0 to 4."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 4:
        raise TaskError(f"Priority {priority} is not 0 (most urgent) to 4.", code="bad_priority")


def check(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuse a value that is not in `allowed`."""
    if value not in allowed:
        raise TaskError(f"{name} must be one of {', '.join(allowed)}, not {value!r}.", code=f"bad_{name}")


def clean_labels(values: Sequence[Any]) -> list[str]:
    """Return the labels on one line each, sorted, without duplicates."""
    check_text("labels", list(values))
    return sorted({label for v in values if (label := " ".join(str(v).split())[:60])})


def merged_metadata(before: Json, changes: Any) -> Json:
    """Return metadata with `changes` in it; a value of None removes its key."""
    if not isinstance(changes, dict):
        raise TaskError("metadata must be an object of keys and values.", code="invalid")
    new = cast("Json", changes)
    check_text("metadata", new)
    if taken := sorted(set(new) & set(SOURCE_KEYS)):
        raise TaskError(f"metadata.{taken[0]} is reserved for imports; choose another key.", code="invalid")
    merged = {k: v for k, v in {**before, **new}.items() if v is not None}
    size = len(json.dumps(merged, ensure_ascii=False))
    if size > METADATA_LIMIT:
        raise TaskError(f"metadata has {size:,} characters; at most {METADATA_LIMIT:,}.", code="invalid")
    return merged
