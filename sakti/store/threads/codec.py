"""Convert parts of messages to JSON and back (format 1: `{"t": kind, …}` with fields), and mask them.

JSON from `PACKED_FROM` characters on is stored as zlib's bytes if they are shorter: a BLOB in a column of texts. An
archived message has a reference instead (see `archive_file`). Secrets are masked in parts both stored and sent to
models.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
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
    join_plain_text,
)
from sakti.store import archive_file
from sakti.store.secrets import has_secret, mask_value

FORMAT = 1
PACKED_FROM = 200  # characters: compressing less saves hardly anything

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

_MISSING = json.dumps([{"t": "marker", "kind": "withheld", "text": archive_file.MISSING}], separators=(",", ":"))
SEALED = ("signature", "encrypted_content", "redacted", "data", "id")  # fields of a reasoning item without words


def encode(part: Part) -> Json:
    fields = structs.asdict(part)
    if isinstance(part, TextPart) and part.opaque is None:
        del fields["opaque"]  # older versions read texts without it
    return {"t": NAMES[type(part)], **fields}


def decode(data: Json) -> Part:
    """Decode a part. Raises KeyError or TypeError for an unknown format."""
    fields: dict[str, Any] = dict(data)
    return KINDS[fields.pop("t")](**fields)


def pack(text: str) -> str | bytes:
    """Return the stored form of the JSON of parts: unchanged, or compressed."""
    if len(text) < PACKED_FROM:
        return text
    plain = text.encode()
    # clearing the memory of the usual window takes longer than compressing a short text
    stream = zlib.compressobj(wbits=12, memLevel=5) if len(plain) <= 1 << 12 else zlib.compressobj()
    small = stream.compress(plain) + stream.flush()
    return small if len(small) < len(plain) else text


def unpack(stored: str | bytes) -> str:
    """Return the JSON given to `pack`; for a missing archive, a part that says so.

    Raises `zlib.error` or `UnicodeDecodeError` for damaged bytes.
    """
    if isinstance(stored, str):
        return stored
    if archive_file.is_reference(stored):
        archived = archive_file.read(stored)
        return _MISSING if archived is None else unpack(archived)
    return zlib.decompress(stored).decode()


def is_readable(stored: str | bytes) -> bool:
    """Return whether stored parts can be read, also those in an archive."""
    return unpack_or_empty(stored) not in ("", _MISSING)


def unpack_or_empty(stored: str | bytes | None) -> str:
    """Return the JSON of a stored value, "" if it cannot be read."""
    try:
        return unpack(stored) if stored else ""
    except (zlib.error, UnicodeDecodeError, TypeError):
        return ""


class _Texts:
    """Cache of the texts of stored parts.

    Both indexes need the text of a new message, and the next message needs it again. A search reads a hundred texts
    to rank them, those of its page twice, and most of them again with the next key.
    """

    MOST, CHARACTERS = 512, 2 << 20

    def __init__(self) -> None:
        self._texts: OrderedDict[str | bytes, str] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def get(self, value: str | bytes) -> str | None:
        return self._texts.get(value)

    def put(self, value: str | bytes, text: str) -> None:
        if len(text) > self.CHARACTERS // 16:
            return
        with self._lock:
            if value in self._texts:
                return
            self._texts[value] = text
            self._characters += len(text)
            while len(self._texts) > self.MOST or self._characters > self.CHARACTERS:
                _, oldest = self._texts.popitem(last=False)
                self._characters -= len(oldest)


_texts = _Texts()


def encode_parts(parts: Sequence[Part]) -> str | bytes:
    """Return the stored form of parts."""
    value = pack(json.dumps([encode(part) for part in parts], ensure_ascii=False, separators=(",", ":")))
    _texts.put(value, join_plain_text(parts))
    return value


def _parse(stored: str | bytes) -> list[Json]:
    """Parse stored parts. Raises ValueError."""
    text = unpack_or_empty(stored)
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):  # halves of surrogate pairs, which the standard library accepts
        return json.loads(text)


def read_text(raw_content: str, parts: str | bytes) -> str:
    """Return a stored message's plain text: `raw_content`, else that of its parts.

    Parts that cannot be read have none.
    """
    if raw_content:
        return raw_content
    if (cached := _texts.get(parts)) is not None:
        return cached
    try:
        text = join_plain_text([decode(part) for part in _parse(parts)])
    except (ValueError, KeyError, TypeError):
        return ""
    if text or not archive_file.is_reference(parts):  # a missing archive may come back
        _texts.put(parts, text)
    return text


# The fields with words of each kind of part but reasoning, which is dropped instead: its provider signed it.
_WORD_FIELDS: dict[type[Part], tuple[str, ...]] = {
    TextPart: ("text",),
    ToolCallPart: ("arguments", "raw"),
    ToolResultPart: ("content", "details"),
    FilePart: ("path", "text"),
    OutputPart: ("command", "text"),
    MarkerPart: ("text",),
    ContextPart: ("facts",),
    ImagePart: ("name",),
}


def mask_part(part: Part) -> Part | None:
    """Return a part without secrets; None for reasoning with one, which must not be changed."""
    if isinstance(part, ThinkingPart):
        return None if has_secret(part.text) or any(map(has_secret, _find_words(part.opaque))) else part
    values = {name: getattr(part, name) for name in _WORD_FIELDS[type(part)]}
    clean = mask_value(values)
    return part if clean == values else structs.replace(part, **clean)


def mask_parts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts without secrets."""
    return tuple(clean for part in parts if (clean := mask_part(part)) is not None)


def mask_message(message: Message, count: Callable[[tuple[Part, ...]], tuple[int, ...]] | None = None) -> Message:
    """Return a message without secrets; `count` counts the tokens of changed parts.

    Without `count`, unchanged parts keep their tokens.
    """
    clean = [mask_part(part) for part in message.parts]
    if all(new is old for new, old in zip(clean, message.parts, strict=True)):
        return message
    masked_parts = tuple(part for part in clean if part is not None)
    if count is not None:
        tokens = count(masked_parts)
    elif len(message.part_tokens) == len(clean):
        tokens = tuple(n for n, part in zip(message.part_tokens, clean, strict=True) if part is not None)
    else:
        tokens = message.part_tokens
    total = max(0, message.tokens - sum(message.part_tokens) + sum(tokens))
    return structs.replace(message, parts=masked_parts, part_tokens=tokens, tokens=total)


def _find_words(opaque: Any) -> Iterator[str]:
    """Yield the texts of a reasoning item that are not sealed."""
    if isinstance(opaque, str):
        yield opaque
    elif isinstance(opaque, dict):
        for name, value in cast("Json", opaque).items():
            if name not in SEALED:
                yield from _find_words(value)
    elif isinstance(opaque, list):
        for value in cast("list[Any]", opaque):
            yield from _find_words(value)
