"""Call OpenAI's Responses API.

Nothing is stored there unless the settings say so: reasoning comes back encrypted and is replayed. The ids of items
mean something only to a server that stores them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import AsyncGenerator
from functools import cached_property
from typing import Any, cast

from msgspec import Struct, field

from sakti.core.errors import ProviderError
from sakti.core.lazy import lazy_pattern
from sakti.core.types import (
    ContextPart,
    FilePart,
    ImagePart,
    Json,
    MarkerPart,
    OutputPart,
    Part,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from sakti.providers import facts, remote
from sakti.providers.errors import Where, from_event
from sakti.providers.facts import Family
from sakti.providers.history import (
    CallIds,
    HistoryTurn,
    call_arguments,
    data_url,
    file_text,
    merged,
    read_arguments,
    split_tool_images,
    turns,
    valid_id,
)
from sakti.providers.protocol import StreamEvent, TextChunk, ThinkingChunk, ToolCallChunk, read_table, read_tokens
from sakti.providers.remote import RemoteProvider
from sakti.providers.sse import DONE, StreamParser

log = logging.getLogger(__name__)

_ID_UNKNOWN = lazy_pattern(
    r"item with id .{0,200}not found|items are not persisted|provided without its required", re.I
)
_ID_MISSING = lazy_pattern(r"\bid\b.{0,80}(required|missing)|(required|missing).{0,80}\bid\b", re.I)


def render(request: Request, provider: str = "openai", *, with_ids: bool | None = None) -> Json:
    """Render the JSON body of `request`, without `stream`.

    `with_ids`: whether items are sent with their ids; None: if the server is asked to store them.
    """
    items: list[Json] = []
    with_ids = request.extra.get("store") is True if with_ids is None else with_ids
    for turn in turns(request.messages, provider, request.model):
        assistant = turn.role == "assistant"
        items.extend(_assistant_items(turn, provider, request.model, with_ids) if assistant else _user_items(turn))
    _append_tail(items, request.tail.strip())
    body: Json = {"model": request.model, "input": items, "store": False}
    if instructions := "\n\n".join(b.text for b in request.system if b.text.strip()):
        body["instructions"] = instructions
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": t.name,
                "description": t.description,
                "parameters": t.parameters,
                "strict": False,
            }
            for t in request.tools
        ]
        if request.tool_choice == "none":
            body["tool_choice"] = "none"
    if request.messages:
        body["prompt_cache_key"] = request.messages[0].thread_id
    if request.schema is not None:
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": request.schema, "strict": False}}
    return merged(body | _options(request, provider), request.extra)


def _options(request: Request, provider: str) -> Json:
    """Return the parameters that depend on what the model's family takes."""
    family = facts.family(provider, request.model)
    options: Json = {}
    if request.max_output_tokens:
        options["max_output_tokens"] = request.max_output_tokens
    if family.thinking:
        options["include"] = ["reasoning.encrypted_content"]
        if word := asked_effort(request, family):
            options["reasoning"] = {"effort": word, "summary": "auto"}
    if request.temperature is not None and family.temperature:
        options["temperature"] = request.temperature
    return options


def asked_effort(request: Request, found: Family) -> str:
    """Return the word for the requested reasoning effort, "" if none is requested."""
    if request.thinking_tokens:
        return facts.effort_word(found, facts.effort_of(request.thinking_tokens))
    return facts.effort_word(found, request.effort) if request.effort else ""


def _append_tail(items: list[Json], tail: str) -> None:
    """Append a text for this request only to the last message or result; after an answer as a message."""
    last = items[-1] if items else {}
    if not tail:
        return
    if last.get("type") == "function_call_output":
        output = last["output"]
        more = {"type": "input_text", "text": tail}
        last["output"] = [*output, more] if isinstance(output, list) else f"{output}\n\n{tail}"
    elif last.get("role") == "user":
        last["content"].append({"type": "input_text", "text": tail})
    else:
        items.append({"role": "user", "content": [{"type": "input_text", "text": tail}]})


def _assistant_items(turn: HistoryTurn, provider: str, model: str, with_ids: bool) -> list[Json]:
    items: list[Json] = []
    for part in turn.parts:
        match part:
            case TextPart():
                items.append(_message_item(part, provider, model, with_ids))
            case ThinkingPart(opaque=opaque) if "item" in opaque:
                item = {k: v for k, v in opaque["item"].items() if with_ids or k != "id"}
                if with_ids or "encrypted_content" in item:
                    items.append(item)
            case ToolCallPart(call_id, name):
                items.append(
                    {
                        "type": "function_call",
                        "call_id": valid_id(call_id),
                        "name": name,
                        "arguments": json.dumps(call_arguments(part), ensure_ascii=False),
                    }
                )
            case (
                ThinkingPart()
                | ToolResultPart()
                | ImagePart()
                | FilePart()
                | OutputPart()
                | MarkerPart()
                | ContextPart()
            ):
                pass  # nothing that this API takes back from an assistant
    return items


def _message_item(part: TextPart, provider: str, model: str, with_ids: bool) -> Json:
    """Render a text of the assistant; its id and phase go back only to the model that sent them."""
    item: Json = {"role": "assistant", "content": [{"type": "output_text", "text": part.text}]}
    opaque = part.opaque or {}
    if (opaque.get("provider"), opaque.get("model")) != (provider, model):
        return item
    if with_ids and "id" in opaque:
        content = [{**item["content"][0], "annotations": list[Json]()}]
        item |= {"type": "message", "id": opaque["id"], "status": "completed", "content": content}
    return item | ({"phase": opaque["phase"]} if "phase" in opaque else {})


def _user_items(turn: HistoryTurn) -> list[Json]:
    """Render a user turn: the results, then the user's text.

    Images of tools go with the last result: in a user message they would be taken for the user's.
    """
    items: list[Json] = []
    content: list[Json] = []
    images, parts = split_tool_images(turn.parts)
    for part in parts:
        match part:
            case ToolResultPart(call_id, _, output):
                items.append({"type": "function_call_output", "call_id": valid_id(call_id), "output": output})
            case TextPart(text):
                content.append({"type": "input_text", "text": text})
            case FilePart():
                content.append({"type": "input_text", "text": file_text(part)})
            case ImagePart():
                content.append(_image(part))
            case ThinkingPart() | ToolCallPart() | OutputPart() | MarkerPart() | ContextPart():
                pass  # not of a user, or rendered as text before
    if images:
        items[-1]["output"] = [{"type": "input_text", "text": items[-1]["output"]}, *map(_image, images)]
    if content:
        items.append({"role": "user", "content": content})
    return items


def _image(part: ImagePart) -> Json:
    return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}


def wants_ids(error: ProviderError) -> bool | None:
    """Return whether the server wants items with ids, None if the error is not about ids."""
    if error.code not in ("invalid_request", "not_found"):
        return None
    if _ID_UNKNOWN.search(error.server_text):
        return False
    return True if _ID_MISSING.search(error.server_text) else None


class _OutputItem(Struct):
    """Output item being received."""

    kind: str
    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    final: Json = field(default_factory=dict[str, Any])

    def is_open(self, kind: str) -> bool:
        return self.kind == kind and not self.final

    @property
    def is_completed(self) -> bool:
        return self.final.get("status") == "completed" or (self.kind == "reasoning" and bool(self.final))

    @property
    def can_be_last(self) -> bool:
        """Return whether an answer can end with it; thinking and commentary are followed by something."""
        return self.kind in ("message", "function_call") and self.final.get("phase") != "commentary"

    @property
    def refused(self) -> bool:
        content = cast("list[Json]", self.final.get("content") or [])
        return any(c.get("type") == "refusal" for c in content)


class ResponsesStreamParser(StreamParser):
    """Collects the events of the Responses API."""

    def __init__(self, provider: str, requested: str, ids: CallIds, where: Where) -> None:
        super().__init__(provider, requested, ids, where)
        self._ended = False  # by `[DONE]`
        self._failed = False  # the newest event is an error or violates the protocol
        self._items: dict[int, _OutputItem] = {}
        self._places: dict[str, int] = {}  # by the ids of items

    @property
    def complete(self) -> bool:
        """Return whether the end was received; some servers send only `[DONE]`, or just complete items."""
        if self.done:
            return remote.classify(self.reason) != "cut"
        items = [item for _, item in sorted(self._items.items())]
        if self._ended:
            return bool(items) and all(i.final for i in items)
        return not self._failed and all(i.is_completed for i in items) and bool(items) and items[-1].can_be_last

    @property
    def refused(self) -> bool:
        return any(i.refused for i in self._items.values())

    def take(self, event: Json) -> list[StreamEvent]:
        self._failed = True
        events = self._read(event)
        self._failed = False
        return events

    def _read(self, event: Json) -> list[StreamEvent]:
        kind = str(event.get("type") or "")
        self._ended = self._ended or event is DONE
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                return self._piece(event, "message")
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._piece(event, "reasoning")
            case "response.function_call_arguments.delta":
                return self._piece(event, "function_call")
            case "response.reasoning_summary_part.added" if self._item(event, "reasoning").pieces:
                return self._piece({**event, "delta": "\n\n"}, "reasoning")
            case "response.output_item.added":
                return self._add_item(event)
            case "response.output_item.done":
                item = cast("Json", event.get("item") or {})
                self._item(event, str(item.get("type"))).final = item
            case "response.completed" | "response.incomplete" | "response.done" | "response.cancelled":
                return self._finish(cast("Json", event.get("response") or {}), kind.removeprefix("response."))
            case "response.failed" | "error":
                raise from_event(event.get("response") or event, self._where)
            case "" if "error" in event:
                raise from_event(event, self._where)
            case _:
                return []  # parts that begin or end, and what newer servers send, carry nothing to show
        return []

    def _item(self, event: Json, kind: str) -> _OutputItem:
        return self._items.setdefault(self._place(event, kind), _OutputItem(kind))

    def _place(self, event: Json, kind: str) -> int:
        """Return the position of an event's item: its index, or the position of its id."""
        item = cast("Json", event.get("item") or {})
        item_id = str(event.get("item_id") or item.get("id") or item.get("call_id") or "")
        place = event.get("output_index")
        if place is None:
            place = self._places.get(item_id)
        if place is None:
            last = max(self._items, default=-1)
            goes_on = not item_id and last in self._items and self._items[last].is_open(kind)
            place = last if goes_on and event.get("type") != "response.output_item.added" else last + 1
        if item_id:
            self._places.setdefault(item_id, int(place))
        return int(place)

    def _add_item(self, event: Json) -> list[StreamEvent]:
        content = cast("Json", event.get("item") or {})
        item = self._item(event, str(content.get("type")))
        if item.kind != "function_call":
            return []
        item.call_id = self._ids.unique(content.get("call_id"))
        item.name = str(content.get("name") or "")
        return [ToolCallChunk(item.call_id, item.name, "")]

    def _piece(self, event: Json, kind: str) -> list[StreamEvent]:
        item = self._item(event, kind)
        text = str(event.get("delta") or "")
        item.pieces.append(text)
        if kind == "message":
            return [TextChunk(text)]
        if kind == "reasoning":
            return [ThinkingChunk(text)]
        return [ToolCallChunk(item.call_id, item.name, text)]

    def _finish(self, response: Json, status: str) -> list[StreamEvent]:
        """Read the end of a response; `status` holds if the response states none."""
        if response.get("status") == "failed":
            raise from_event(response, self._where)
        self.done = True
        self.model = str(response.get("model") or "")
        self.usage = read_usage(response.get("usage"))
        details = cast("Json", response.get("incomplete_details") or {})
        status = str(response.get("status") or status)
        self.reason = str(details.get("reason") or "") or ("max_output_tokens" if status == "incomplete" else status)
        return self._complete_items(cast("list[Json]", response.get("output") or []))

    def _complete_items(self, output: list[Json]) -> list[StreamEvent]:
        """Take over the items of a finished response that the stream did not bring, or not to their end."""
        out: list[StreamEvent] = []
        for place, final in enumerate(output):
            item = self._items.setdefault(place, _OutputItem(str(final.get("type"))))
            if item.final or item.kind != final.get("type"):
                continue
            item.final = final
            if not item.pieces and item.kind == "message":
                out.append(TextChunk(_text_of(final)))
        return out

    def parts(self) -> tuple[Part, ...]:
        return tuple(p for _, i in sorted(self._items.items()) if (p := self._part(i)) is not None)

    def _part(self, item: _OutputItem) -> Part | None:
        text = "".join(item.pieces)
        match item.kind:
            case "message":
                full_text = _text_of(item.final) or text
                return TextPart(full_text, self._message_opaque(item.final)) if full_text else None
            case "reasoning":
                fields = {k: v for k, v in item.final.items() if k in _REASONING_FIELDS and v is not None}
                usable = fields.keys() & {"encrypted_content", "id"}
                opaque: Json = {"item": {"summary": list[Any](), **fields}} if usable else {}
                return ThinkingPart(text, self._provider, opaque, self._requested)
            case "function_call":
                raw = str(item.final.get("arguments") or text)
                arguments = read_arguments(raw)
                call_id = item.call_id or self._ids.unique(item.final.get("call_id"))
                name = item.name or str(item.final.get("name") or "")
                return ToolCallPart(call_id, name, arguments, raw if arguments is None else "")
            case _:
                return None

    def _message_opaque(self, final: Json) -> Json | None:
        fields = {k: final[k] for k in ("id", "phase") if final.get(k)}
        return {"provider": self._provider, "model": self._requested, **fields} if fields else None


def _text_of(item: Json) -> str:
    content = cast("list[Json]", item.get("content") or [])
    return "".join(str(c.get("text") or c.get("refusal") or "") for c in content)


_REASONING_FIELDS = ("type", "id", "summary", "encrypted_content")


def read_usage(usage: Any) -> Usage:
    """Read the usage of the Responses API: input includes cached and written tokens already."""
    u = read_table(usage)
    into, out = read_table(u.get("input_tokens_details")), read_table(u.get("output_tokens_details"))
    return Usage(
        read_tokens(u.get("input_tokens")),
        read_tokens(into.get("cached_tokens")),
        read_tokens(into.get("cache_write_tokens")),
        read_tokens(u.get("output_tokens")),
        read_tokens(out.get("reasoning_tokens")),
    )


class ResponsesProvider(RemoteProvider):
    """Provider for `/responses`."""

    path = "/responses"
    parser = ResponsesStreamParser
    searching = "openai"

    @cached_property
    def _with_ids(self) -> dict[str, bool]:
        """Return whether items have ids, by model, for servers that refused a request because of them."""
        return {}

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        while True:
            with_ids = self._with_ids.get(request.model)
            try:
                async with contextlib.aclosing(super().stream(request)) as events:
                    async for event in events:
                        yield event
                return
            except ProviderError as e:
                needs_ids = wants_ids(e)
                if needs_ids is None or needs_ids == with_ids:
                    raise
                self._with_ids[request.model] = needs_ids
                log.warning(
                    "items are sent %s ids to %s: %s", "with" if needs_ids else "without", request.model, e.message
                )

    def _render(self, request: Request) -> Json:
        return render(request, self.name, with_ids=self._with_ids.get(request.model))

    def _split(self, answer: Json) -> list[Json]:
        output = cast("list[Json]", answer.get("output") or [])
        if "output" not in answer:
            return []
        events: list[Json] = []
        for index, item in enumerate(output):
            events.append({"type": "response.output_item.added", "output_index": index, "item": item})
            if item.get("type") == "message" and (text := _text_of(item)):
                events.append({"type": "response.output_text.delta", "output_index": index, "delta": text})
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        ending = "response.failed" if answer.get("status") == "failed" else "response.completed"
        return [*events, {"type": ending, "response": answer}]
