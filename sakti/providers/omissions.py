"""Remove settings, fields and pieces of a conversation that a model rejects from requests.

A piece is content that neither the user nor the model wrote: an image, a file, the result of a tool or a command.
Pieces are identified by their content, so that an omitted piece stays omitted wherever it occurs in its thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, structs

from sakti.core.errors import ProviderError
from sakti.core.lazy import lazy_pattern
from sakti.core.types import (
    FilePart,
    ImagePart,
    Json,
    Message,
    OutputPart,
    Part,
    TextPart,
    ToolResultPart,
)
from sakti.providers import facts, server_words
from sakti.providers.errors import FILTERED, NO_IMAGES
from sakti.providers.history import clean_call_id
from sakti.providers.protocol import StreamEvent
from sakti.providers.server_words import get_text_pattern

log = logging.getLogger(__name__)

Kind: TypeAlias = Literal["image", "result", "file", "output"]

MOST_REFUSALS = 8  # refusals of one request after which every new piece of the refused kind is left out
EVERY_MODEL = ""  # in place of a model's name: the piece itself is refused, not by one model only
_IMAGE = get_text_pattern("about_image")
_PATH = lazy_pattern(r"\b(?:messages|input)(?:\[\d+\]|\.\d+)(?:[.\[]\w+\]?)*")
_CONTAINERS = ("messages", "input", "content", "output")
_CALL_IDS = ("tool_call_id", "tool_use_id", "call_id")


class RefusablePiece(Struct, frozen=True):
    """Piece of a conversation; `key` names its content, `index` its message, `name` is for people."""

    key: str
    kind: Kind
    name: str
    index: int
    part: Part


class Omission(Struct, frozen=True):
    """Pieces left out because of `error`, the first of some `refusals` of a request.

    `no_images`: the model takes no images at all.
    """

    pieces: tuple[RefusablePiece, ...]
    error: ProviderError
    no_images: bool = False
    refusals: int = 1

    def marks(self, model: str) -> dict[str, str]:
        """Return the marks to store: by piece, the model that refused it or `EVERY_MODEL`."""
        return {p.key: model if self.no_images else EVERY_MODEL for p in self.pieces}


def find_node(body: Json, text: str) -> Json | None:
    """Return the part of a request's body that an error text names, as in `messages.5.content.0`."""
    match = _PATH.search(text)
    node: Any = body
    deepest: Json | None = None
    for step in re.findall(r"\w+", match[0]) if match else ():
        if isinstance(node, list) and step.isdecimal() and int(step) < len(cast("list[Any]", node)):
            node = cast("list[Any]", node)[int(step)]
        elif isinstance(node, dict) and step in _CONTAINERS and step in node:
            node = cast("Json", node)[step]
        else:
            break
        if isinstance(node, dict):
            deepest = cast("Json", node)
    return deepest


def is_refusal(error: ProviderError) -> bool:
    """Return whether a server refused a request because of its content."""
    return error.status is not None and (error.code == "invalid_request" or error.status == 413)


def find_omission(
    messages: Sequence[Message], error: ProviderError, accepted: int, earlier: Omission | None = None
) -> Omission | None:
    """Decide what to leave out of a refused request before it is sent once more; None: nothing.

    `accepted`: the newest message that the model accepted in an earlier request; pieces up to it are only suspected if
    no others can be meant. The error's path decides first, then its words, else the newest pieces are meant. `earlier`:
    the pieces already left out of the request; they stay out if the error names another piece.
    """
    if earlier is not None and earlier.refusals >= MOST_REFUSALS:
        return None
    pieces = [piece for m in messages if m.index >= 0 for piece in _list_pieces(m)]
    chosen = _choose(pieces, error, accepted, can_guess=earlier is None)
    if not chosen:
        return None
    images = [p for p in pieces if p.kind == "image"]
    no_images = bool(NO_IMAGES.search(error.server_text)) and len(_select_new(images, accepted)) == len(images)
    if earlier is None:
        return Omission(tuple(chosen), error, no_images)
    refusals = earlier.refusals + 1
    if refusals == MOST_REFUSALS:
        chosen = _add_same_kinds(chosen, pieces, accepted)
    return Omission((*earlier.pieces, *chosen), earlier.error, earlier.no_images or no_images, refusals)


def _list_pieces(message: Message) -> list[RefusablePiece]:
    return [piece for part in message.parts if (piece := _make_piece(part, message.index)) is not None]


def _add_same_kinds(
    chosen: Sequence[RefusablePiece], pieces: Sequence[RefusablePiece], accepted: int
) -> list[RefusablePiece]:
    """Return the chosen pieces and all new ones of the same kinds."""
    kinds = {p.kind for p in chosen}
    return [p for p in pieces if p in chosen or (p.kind in kinds and p.index > accepted)]


def _choose(
    pieces: Sequence[RefusablePiece], error: ProviderError, accepted: int, *, can_guess: bool
) -> Sequence[RefusablePiece]:
    images = [p for p in pieces if p.kind == "image"]
    if error.status == 413:
        return _select_new(images, accepted)
    is_about_image = bool(_IMAGE.search(error.server_text) or NO_IMAGES.search(error.server_text))
    is_filtered = bool(FILTERED.search(error.server_text))
    if error.refused_node is not None:
        named = _select_named(images if is_about_image else pieces, error.refused_node)
        if named or not (is_about_image or is_filtered):
            return _select_new(named, accepted) or named
    if is_about_image:
        return _select_new(images, accepted) or images
    return _select_newest(_select_new(pieces, accepted), with_all=is_filtered) if can_guess else []


def _select_named(pieces: Sequence[RefusablePiece], node: Json) -> list[RefusablePiece]:
    return [p for p in pieces if _occurs(p.part, node)]


def _select_new(pieces: Sequence[RefusablePiece], accepted: int) -> list[RefusablePiece]:
    return [p for p in pieces if p.index > accepted]


def _select_newest(pieces: Sequence[RefusablePiece], *, with_all: bool) -> list[RefusablePiece]:
    """Return the pieces of the newest message with any: its images if it has some, or all."""
    newest = [p for p in pieces if p.index == pieces[-1].index]
    images = [p for p in newest if p.kind == "image"]
    return newest if with_all or not images else images


def omit_pieces(messages: Sequence[Message], left_out: Mapping[str, str], model: str) -> tuple[Message, ...]:
    """Replace pieces by a short text; `left_out` maps keys to the refusing model, or `EVERY_MODEL`."""
    keys = {key for key, refuser in left_out.items() if refuser in (EVERY_MODEL, model)}
    if not keys:
        return tuple(messages)
    return tuple(_omit_keys(m, keys) for m in messages)


def _omit_keys(message: Message, keys: set[str]) -> Message:
    parts = tuple(_make_replacement(p) if _make_key(p) in keys else p for p in message.parts)
    return message if parts == message.parts else structs.replace(message, parts=parts)


def _make_replacement(part: Part) -> Part:
    match part:
        case ToolResultPart():
            return structs.replace(part, content="[result left out: refused by the provider]")
        case FilePart(path):
            return FilePart(path, "[file left out: refused by the provider]")
        case OutputPart(command):
            return OutputPart(command, "[output left out: refused by the provider]")
        case _:
            return TextPart("[image left out: refused by the provider]")


def describe_pieces(pieces: Sequence[RefusablePiece]) -> str:
    """Name pieces for display: "the image a.png", or "3 pieces (a.png, read, ls)"."""
    names = list(dict.fromkeys(p.name for p in pieces))
    if len(pieces) == 1:
        return f"the {_WORDS[pieces[0].kind]} {names[0]}".strip()
    shown = ", ".join(names[:5])
    return f"{len(pieces)} pieces ({shown}{', …' if len(names) > 5 else ''})"


_WORDS: dict[Kind, str] = {
    "image": "image",
    "result": "result of",
    "file": "file",
    "output": "output of the command",
}


def _make_piece(part: Part, index: int) -> RefusablePiece | None:
    """Return a part as a piece; None if it is not one or already left out."""
    if part == _make_replacement(part):
        return None
    key = _make_key(part)
    match part:
        case ImagePart(name=name):
            return RefusablePiece(key, "image", name, index, part)
        case ToolResultPart(name=name):
            return RefusablePiece(key, "result", name, index, part)
        case FilePart(path):
            return RefusablePiece(key, "file", path, index, part)
        case OutputPart(command):
            return RefusablePiece(key, "output", command, index, part)
        case _:
            return None


def _make_key(part: Part) -> str:
    """Return the key of a piece's content, empty for other parts."""
    match part:
        case ImagePart(data=data):
            return f"image:{_hash(data)}"
        case ToolResultPart(call_id):
            return f"result:{_hash(call_id)}"
        case FilePart(path, text):
            return f"file:{_hash(path + text)}"
        case OutputPart(command, text):
            return f"output:{_hash(command + text)}"
        case _:
            return ""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _occurs(part: Part, node: Json) -> bool:
    """Return whether a part of a request's body is, or contains, `part`."""
    match part:
        case ToolResultPart(call_id):
            return any(_answers(call_id, value) for value in _walk(node))
        case ImagePart(data=text) | FilePart(text=text) | OutputPart(text=text):
            return bool(text) and any(isinstance(s, str) and text in s for s in _walk(node))
        case _:
            return False


def _answers(call_id: str, node: Any) -> bool:
    """Return whether a JSON value is the result of the call."""
    fields = cast("Json", node) if isinstance(node, dict) else {}
    return "arguments" not in fields and any(
        fields.get(name) in (call_id, clean_call_id(call_id)) for name in _CALL_IDS
    )


def _walk(node: Any) -> Iterator[Any]:
    """Yield a JSON value and every value in it."""
    yield node
    if isinstance(node, dict):
        node = list(cast("Json", node).values())
    for each in cast("list[Any]", node) if isinstance(node, list) else ():
        yield from _walk(each)


# The API's own smallest budget; the newest models take no temperature at all.
ANTHROPIC_LEAST_THINKING = 1_024


class AcceptedSettings(Struct, frozen=True):
    """Settings that may be sent; `left_out` explains to the user which are not, and why."""

    temperature: float | None
    thinking_tokens: int | None
    left_out: tuple[str, ...]


def choose_settings(
    provider: str, model: str, temperature: float | None, thinking_tokens: int | None
) -> AcceptedSettings:
    """Return the settings that `model` of `provider` takes."""
    family = facts.find_family(provider, model)
    if provider == "anthropic":
        no_temperature = "its API has none"
        no_thinking = _refuse_anthropic_thinking(family, thinking_tokens or 0)
    else:
        no_temperature = "" if family.temperature else "thinking models accept none"
        no_thinking = "" if family.thinking else "the model is not known to think"
    left_out: list[str] = []
    if temperature is not None and no_temperature:
        left_out.append(f"temperature {temperature:g} ({no_temperature})")
    if thinking_tokens and no_thinking:
        left_out.append(f"{thinking_tokens:,} thinking tokens ({no_thinking})")
    return AcceptedSettings(
        None if no_temperature else temperature, None if no_thinking else thinking_tokens or None, tuple(left_out)
    )


def _refuse_anthropic_thinking(family: facts.Family, tokens: int) -> str:
    """Return why Anthropic's API rejects a thinking budget of that length, or ""."""
    if family is not facts.UNKNOWN and not family.thinking:
        return "the model does not think"
    return f"its API takes at least {ANTHROPIC_LEAST_THINKING:,}" if tokens < ANTHROPIC_LEAST_THINKING else ""


_IN_MESSAGES = "messages."  # words before the name of such a field
_RENAMED = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_UNKNOWN = get_text_pattern("unknown_field")


def _rejects_field(error: ProviderError) -> bool:
    """Return whether a server says that it does not know a field."""
    is_rejected = error.code == "invalid_request" and error.status in (400, 422)
    return is_rejected and bool(_UNKNOWN.search(error.server_text))


def find_refused_field(body: Json, error: ProviderError) -> str:
    """Return the field of `body` that a server rejects as unknown and that may be omitted, or ""."""
    text = error.server_text
    if not _rejects_field(error):
        return ""
    if re.search(r"messages?|input\b", text) and (name := _find_message_field(body, text)):
        return _IN_MESSAGES + name
    named = [k for k in body if re.search(rf"(?<![\w.]){k}(?!\w)", text)]
    renamed = next((k for k in named if k in _RENAMED and re.search(rf"\b{_RENAMED[k]}\b", text)), "")
    return renamed or next((k for k in server_words.read().fields.optional if k in named), "")


def _find_message_field(body: Json, text: str) -> str:
    """Return the field of a message in `body` that an error text names."""
    used = {key for message in _list_messages(body) for key in message}
    fields = server_words.read().fields.of_messages
    return next((f for f in fields if f in used and re.search(rf"(?<!\w){f}(?!\w)", text)), "")


def _list_messages(body: Json) -> list[Json]:
    return body.get("messages") or body.get("input") or []


def _drop_fields(fields: Json, names: Collection[str]) -> Json:
    return {k: v for k, v in fields.items() if k not in names}


def omit_fields(body: Json, names: Collection[str]) -> Json:
    """Return `body` without fields unknown to its server; the output limit gets its other name."""
    out = _drop_fields(body, names)
    if fields := {n.removeprefix(_IN_MESSAGES) for n in names if n.startswith(_IN_MESSAGES)}:
        out["messages" if "messages" in out else "input"] = [_drop_fields(m, fields) for m in _list_messages(out)]
    return out | {_RENAMED[k]: body[k] for k in names if k in _RENAMED and k in body}


class RefusedParameters:
    """Parameters that each model's server has refused by name: retried without them, and not sent again."""

    def __init__(self) -> None:
        self._refused: dict[str, set[str]] = {}

    async def stream(
        self, model: str, body: Json, once: Callable[[Json], AsyncGenerator[StreamEvent]]
    ) -> AsyncGenerator[StreamEvent]:
        """Stream the answer to `body`, retrying without refused parameters; `once` sends one request.

        A refusal always precedes the first event of an answer.
        """
        refused_names = self._refused.setdefault(model, set())
        while True:
            sent = omit_fields(body, refused_names)
            try:
                async with contextlib.aclosing(once(sent)) as events:
                    async for event in events:
                        yield event
                return
            except ProviderError as e:
                e.refused_node = find_node(sent, e.server_text)
                name = find_refused_field(sent, e)
                if not name or name in refused_names:
                    raise
                refused_names.add(name)
                log.warning("%s is not sent to %s any more: %s", name, model, e.message)
