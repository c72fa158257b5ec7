"""Convert parts of messages to JSON and back (format 1: `{"t": kind, …}` with fields), and mask them.

JSON from `PACKED_FROM` characters on is stored as zlib's bytes where that is shorter: a BLOB in a column of texts. What
was archived is stored as a reference (see `archive_file`). Secrets are masked in parts both stored and sent to models.
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
    plain_text,
)
from sakti.store import archive_file
from sakti.store.secrets import has_secret, mask_secrets, mask_value

FORMAT = 1
PACKED_FROM = 200  # characters: below, the bytes of zlib are hardly fewer

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
SEALED = ("signature", "encrypted_content", "redacted", "data", "id")  # of a reasoning item: a provider's own, no words


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
    """Return whether stored parts can be read, from the archive if they are there."""
    return unpack_or_empty(stored) not in ("", _MISSING)


def unpack_or_empty(stored: str | bytes | None) -> str:
    """Return the JSON of a stored value, "" if it cannot be read."""
    try:
        return unpack(stored) if stored else ""
    except (zlib.error, UnicodeDecodeError, TypeError):
        return ""


class _Texts:
    """Texts of stored parts that were used last, from any thread.

    A message that is appended is asked for its text by the indexes, and again as what is said before the next one; a
    search asks for a hundred texts to rank them, for those of the page again, and with the next key for most of them.
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
                _, gone = self._texts.popitem(last=False)
                self._characters -= len(gone)


_texts = _Texts()


def encode_parts(parts: Sequence[Part]) -> str | bytes:
    """Return the stored form of parts."""
    value = pack(json.dumps([encode(part) for part in parts], ensure_ascii=False, separators=(",", ":")))
    _texts.put(value, plain_text(parts))
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
        text = plain_text([decode(part) for part in _parse(parts)])
    except (ValueError, KeyError, TypeError):
        return ""
    if text or not archive_file.is_reference(parts):  # a missing archive may come back
        _texts.put(parts, text)
    return text


def mask_part(given: Part) -> Part | None:
    """Return a part without secrets; None for reasoning with one, which must not be changed."""
    match given:
        case TextPart(text):
            return _replace_fields(given, text=mask_secrets(text))
        case ThinkingPart(text, _, opaque):
            return None if has_secret(text) or any(map(has_secret, _find_words(opaque))) else given
        case ToolCallPart(_, _, arguments, raw):
            return _replace_fields(given, arguments=mask_value(arguments), raw=mask_secrets(raw))
        case ToolResultPart(content=content, details=details):
            return _replace_fields(given, content=mask_secrets(content), details=mask_value(details))
        case FilePart(path, text):
            return _replace_fields(given, path=mask_secrets(path), text=mask_secrets(text))
        case OutputPart(command, text):
            return _replace_fields(given, command=mask_secrets(command), text=mask_secrets(text))
        case MarkerPart(_, text):
            return _replace_fields(given, text=mask_secrets(text))
        case ContextPart(facts):
            return _replace_fields(given, facts={name: mask_secrets(text) for name, text in facts.items()})
        case ImagePart(name=name):
            return _replace_fields(given, name=mask_secrets(name))


def mask_parts(given: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts without secrets."""
    return tuple(clean for one in given if (clean := mask_part(one)) is not None)


def mask_message(given: Message, count: Callable[[tuple[Part, ...]], tuple[int, ...]] | None = None) -> Message:
    """Return a message without secrets; `count` counts the tokens of changed parts.

    Without `count` the parts that stay keep their tokens.
    """
    clean = [mask_part(one) for one in given.parts]
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


def _replace_fields(given: Any, **values: Any) -> Any:
    """Return `given` with these values, or `given` itself if nothing changes."""
    same = all(getattr(given, name) == value for name, value in values.items())
    return given if same else structs.replace(given, **values)
