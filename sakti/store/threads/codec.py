"""Convert parts of messages to JSON and back (format 1): `{"t": kind, …}` with the fields of the part."""

from __future__ import annotations

import dataclasses
from typing import Any

from sakti.core.types import (
    ContextPart,
    FilePart,
    ImagePart,
    Json,
    MarkerPart,
    OutputPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

FORMAT = 1

KINDS: dict[str, type[Part]] = {
    "text": TextPart,
    "thinking": ThinkingPart,
    "call": ToolCallPart,
    "result": ToolResultPart,
    "image": ImagePart,
    "file": FilePart,
    "output": OutputPart,
    "marker": MarkerPart,
    "context": ContextPart,
}
NAMES = {kind: name for name, kind in KINDS.items()}


def encode(part: Part) -> Json:
    return {"t": NAMES[type(part)], **dataclasses.asdict(part)}


def decode(data: Json) -> Part:
    """Decode a part. Raises KeyError or TypeError for an unknown format."""
    fields: dict[str, Any] = dict(data)
    return KINDS[fields.pop("t")](**fields)
