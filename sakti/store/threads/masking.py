"""Mask secrets in the parts of a message, both stored and sent to models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from msgspec import structs

from sakti.core.types import (
    ContextPart,
    FilePart,
    ImagePart,
    Json,
    MarkerPart,
    Message,
    OutputPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from sakti.store.secrets import has_secret, masked, masked_value

SEALED = ("signature", "encrypted_content", "redacted", "data", "id")  # of a reasoning item: a provider's own, no words


def part(given: Part) -> Part | None:
    """Return a part without secrets; None for reasoning with one, which must not be changed."""
    match given:
        case TextPart(text):
            return _replace_changed(given, text=masked(text))
        case ThinkingPart(text, _, opaque):
            return None if has_secret(text) or any(map(has_secret, _words(opaque))) else given
        case ToolCallPart(_, _, arguments, raw):
            return _replace_changed(given, arguments=masked_value(arguments), raw=masked(raw))
        case ToolResultPart(content=content, details=details):
            return _replace_changed(given, content=masked(content), details=masked_value(details))
        case FilePart(path, text):
            return _replace_changed(given, path=masked(path), text=masked(text))
        case OutputPart(command, text):
            return _replace_changed(given, command=masked(command), text=masked(text))
        case MarkerPart(_, text):
            return _replace_changed(given, text=masked(text))
        case ContextPart(facts):
            return _replace_changed(given, facts={name: masked(text) for name, text in facts.items()})
        case ImagePart(name=name):
            return _replace_changed(given, name=masked(name))


def parts(given: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts without secrets."""
    return tuple(clean for one in given if (clean := part(one)) is not None)


def message(given: Message, count: Callable[[tuple[Part, ...]], tuple[int, ...]] | None = None) -> Message:
    """Return a message without secrets; `count` counts the tokens of changed parts.

    Without `count` the parts that stay keep their tokens.
    """
    clean = [part(one) for one in given.parts]
    if all(new is old for new, old in zip(clean, given.parts, strict=True)):
        return given
    masked_parts = tuple(one for one in clean if one is not None)
    if count is not None:
        tokens = count(masked_parts)
    elif len(given.part_tokens) == len(clean):
        tokens = tuple(n for n, one in zip(given.part_tokens, clean, strict=True) if one is not None)
    else:
        tokens = given.part_tokens
    total = max(0, given.tokens - sum(given.part_tokens) + sum(tokens))
    return structs.replace(given, parts=masked_parts, part_tokens=tokens, tokens=total)


def _words(opaque: Any) -> Iterator[str]:
    """Yield the texts of a reasoning item that are not sealed."""
    if isinstance(opaque, str):
        yield opaque
    elif isinstance(opaque, dict):
        for name, value in cast("Json", opaque).items():
            if name not in SEALED:
                yield from _words(value)
    elif isinstance(opaque, list):
        for value in cast("list[Any]", opaque):
            yield from _words(value)


def _replace_changed(given: Any, **values: Any) -> Any:
    """Return `given` with these values, or `given` itself if nothing changes."""
    same = all(getattr(given, name) == value for name, value in values.items())
    return given if same else structs.replace(given, **values)
