"""Call OpenAI's Responses API.

The server stores nothing unless the settings say so: reasoning comes back encrypted and is replayed. The ids of items
mean something only to a server that stores them.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncGenerator
from functools import cached_property
from typing import Any, ClassVar, cast

from sakti.core.errors import ProviderError
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
from sakti.providers import facts
from sakti.providers.errors import from_event
from sakti.providers.facts import Family
from sakti.providers.history import (
    HistoryTurn,
    clean_call_id,
    format_file,
    get_arguments,
    make_data_url,
    make_turns,
    merge_extra,
    split_tool_images,
)
from sakti.providers.parser import StreamedBlock, StreamParser
from sakti.providers.protocol import StreamEvent, TextChunk, read_table, read_tokens
from sakti.providers.remote import RemoteProvider
from sakti.providers.server_words import get_text_pattern

log = logging.getLogger(__name__)

_ID_UNKNOWN = get_text_pattern("unknown_item")
_ID_MISSING = get_text_pattern("missing_item")


def render(request: Request, provider: str = "openai", *, with_ids: bool | None = None) -> Json:
    """Render the JSON body of `request`, without `stream`.

    `with_ids` says whether items are sent with their ids; None: only if the server is asked to store them.
    """
    items: list[Json] = []
    with_ids = request.extra.get("store") is True if with_ids is None else with_ids
    for turn in make_turns(request.messages, provider, request.model):
        assistant = turn.role == "assistant"
        items.extend(_render_assistant(turn, provider, request.model, with_ids) if assistant else _render_user(turn))
    _append_tail(items, request.tail.strip())
    body: Json = {"model": request.model, "input": items, "store": False}
    if instructions := "\n\n".join(b.text for b in request.system if b.text.strip()):
        body["instructions"] = instructions
    body |= _render_tools(request)
    if request.messages:
        body["prompt_cache_key"] = request.messages[0].thread_id
    if request.schema is not None:
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": request.schema, "strict": False}}
    return merge_extra(body | _build_options(request, provider), request.extra)


def _render_tools(request: Request) -> Json:
    if not request.tools:
        return {}
    tools = [
        {"type": "function", "name": t.name, "description": t.description, "parameters": t.parameters, "strict": False}
        for t in request.tools
    ]
    return {"tools": tools} | ({"tool_choice": "none"} if request.tool_choice == "none" else {})


def _build_options(request: Request, provider: str) -> Json:
    """Return the parameters that depend on what the model's family takes."""
    family = facts.find_family(provider, request.model)
    options: Json = {}
    if request.max_output_tokens:
        options["max_output_tokens"] = request.max_output_tokens
    if family.thinking:
        options["include"] = ["reasoning.encrypted_content"]
        if word := get_requested_effort(request, family):
            options["reasoning"] = {"effort": word, "summary": "auto"}
    if request.temperature is not None and family.temperature:
        options["temperature"] = request.temperature
    return options


def get_requested_effort(request: Request, family: Family) -> str:
    """Return the word for the requested reasoning effort, "" if none is requested."""
    if request.thinking_tokens:
        return facts.get_effort_word(family, facts.convert_to_effort(request.thinking_tokens))
    return facts.get_effort_word(family, request.effort) if request.effort else ""


def _append_tail(items: list[Json], tail: str) -> None:
    """Append a text to the last message or result, or after an answer as a message; for this request only."""
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


def _render_assistant(turn: HistoryTurn, provider: str, model: str, with_ids: bool) -> list[Json]:
    items: list[Json] = []
    for part in turn.parts:
        match part:
            case TextPart():
                items.append(_render_message(part, provider, model, with_ids))
            case ThinkingPart(opaque=opaque) if "item" in opaque:
                item = {k: v for k, v in opaque["item"].items() if with_ids or k != "id"}
                if with_ids or "encrypted_content" in item:
                    items.append(item)
            case ToolCallPart(call_id, name):
                items.append(
                    {
                        "type": "function_call",
                        "call_id": clean_call_id(call_id),
                        "name": name,
                        "arguments": json.dumps(get_arguments(part), ensure_ascii=False),
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
                pass  # nothing that this API accepts in an assistant message
    return items


def _render_message(part: TextPart, provider: str, model: str, with_ids: bool) -> Json:
    """Render a text of the assistant; its id and phase are only sent to the model that produced them."""
    item: Json = {"role": "assistant", "content": [{"type": "output_text", "text": part.text}]}
    opaque = part.opaque or {}
    if (opaque.get("provider"), opaque.get("model")) != (provider, model):
        return item
    if with_ids and "id" in opaque:
        content = [{**item["content"][0], "annotations": list[Json]()}]
        item |= {"type": "message", "id": opaque["id"], "status": "completed", "content": content}
    return item | ({"phase": opaque["phase"]} if "phase" in opaque else {})


def _render_user(turn: HistoryTurn) -> list[Json]:
    """Render a user turn: the results, then the user's text.

    Images of tools go with the last result: in a user message, the model would take them for the user's.
    """
    items: list[Json] = []
    content: list[Json] = []
    images, parts = split_tool_images(turn.parts)
    for part in parts:
        match part:
            case ToolResultPart(call_id, _, output):
                items.append({"type": "function_call_output", "call_id": clean_call_id(call_id), "output": output})
            case TextPart(text):
                content.append({"type": "input_text", "text": text})
            case FilePart():
                content.append({"type": "input_text", "text": format_file(part)})
            case ImagePart():
                content.append(_render_image(part))
            case ThinkingPart() | ToolCallPart() | OutputPart() | MarkerPart() | ContextPart():
                pass  # not from a user, or rendered as text before
    if images:
        items[-1]["output"] = [{"type": "input_text", "text": items[-1]["output"]}, *map(_render_image, images)]
    if content:
        items.append({"role": "user", "content": content})
    return items


def _render_image(part: ImagePart) -> Json:
    return {"type": "input_image", "image_url": make_data_url(part), "detail": "auto"}


def wants_ids(error: ProviderError) -> bool | None:
    """Return whether the server wants items with ids, None if the error is not about ids."""
    if error.code not in ("invalid_request", "not_found"):
        return None
    if _ID_UNKNOWN.search(error.server_text):
        return False
    return True if _ID_MISSING.search(error.server_text) else None


def _is_completed(block: StreamedBlock) -> bool:
    return block.wire.get("status") == "completed" or (block.kind == "thinking" and bool(block.wire))


def _can_be_last(block: StreamedBlock) -> bool:
    """Return whether an answer can end with this item; thinking and commentary never come last."""
    return block.kind in ("text", "call") and block.wire.get("phase") != "commentary"


def _is_refusal(block: StreamedBlock) -> bool:
    content = cast("list[Json]", block.wire.get("content") or [])
    return any(c.get("type") == "refusal" for c in content)


class ResponsesStreamParser(StreamParser):
    """Collects the events of the Responses API; `wire` of a block is its finished item."""

    kinds: ClassVar = {"message": "text", "reasoning": "thinking", "function_call": "call"}
    _failed = False  # the newest event is an error or violates the protocol

    def _is_complete_without_end(self) -> bool:
        """Return whether `[DONE]` or only complete items were received."""
        blocks = [block for _, block in sorted(self.blocks.items())]
        if self._ended:
            return bool(blocks) and all(b.wire for b in blocks)
        return not self._failed and all(map(_is_completed, blocks)) and bool(blocks) and _can_be_last(blocks[-1])

    @property
    def is_refusal(self) -> bool:
        return any(map(_is_refusal, self.blocks.values()))

    def take(self, event: Json) -> list[StreamEvent]:
        self._failed = True
        events = super().take(event)
        self._failed = False
        return events

    def _read(self, event: Json) -> list[StreamEvent]:
        kind = str(event.get("type") or "").removeprefix("response.")
        if kind in ("failed", "error") or (not kind and "error" in event):
            raise from_event((kind and event.get("response")) or event, self._context)
        if block_kind := _DELTAS.get(kind):
            return self._add(self._block(event, block_kind), str(event.get("delta") or ""))
        match kind:
            case "reasoning_summary_part.added" if self._block(event, "thinking").pieces:
                return self._add(self._block(event, "thinking"), "\n\n")
            case "output_item.added":
                return self._add_item(event)
            case "output_item.done":
                item = cast("Json", event.get("item") or {})
                self._block(event, self._translate_kind(item.get("type"))).wire = item
            case "completed" | "incomplete" | "done" | "cancelled":
                return self._finish(cast("Json", event.get("response") or {}), kind)
            case _:
                return []  # starts and ends of parts, and unknown events, carry nothing to show
        return []

    def _block(self, event: Json, kind: str) -> StreamedBlock:
        """Return the block of an event's item, a new one for its first event."""
        item = cast("Json", event.get("item") or {})
        item_id = str(event.get("item_id") or item.get("id") or item.get("call_id") or "")
        position = event.get("output_index")
        if position is None:
            position = self.positions.get(item_id)
        if position is None:
            is_new = bool(item_id) or event.get("type") == "response.output_item.added"
            position = self._choose_position(kind, is_new=is_new)
        if item_id:
            self.positions.setdefault(item_id, int(position))
        return self._block_at(int(position), kind)

    def _choose_position(self, kind: str, *, is_new: bool) -> int:
        """Return the position of an event without one: the last block's if it continues it, or the next."""
        last = max(self.blocks, default=-1)
        goes_on = not is_new and last in self.blocks and self.blocks[last].kind == kind and not self.blocks[last].wire
        return last if goes_on else last + 1

    def _add_item(self, event: Json) -> list[StreamEvent]:
        content = cast("Json", event.get("item") or {})
        block = self._block(event, self._translate_kind(content.get("type")))
        return self._open_call(block, content.get("call_id"), content.get("name")) if block.kind == "call" else []

    def _finish(self, response: Json, status: str) -> list[StreamEvent]:
        """Read the end of a response; `status` applies if the response states none."""
        if response.get("status") == "failed":
            raise from_event(response, self._context)
        self.done = True
        self.model = str(response.get("model") or "")
        self._count(response.get("usage"))
        details = cast("Json", response.get("incomplete_details") or {})
        status = str(response.get("status") or status)
        self.reason = str(details.get("reason") or "") or ("max_output_tokens" if status == "incomplete" else status)
        return self._complete_items(cast("list[Json]", response.get("output") or []))

    def _complete_items(self, output: list[Json]) -> list[StreamEvent]:
        """Add the items of a finished response that the stream delivered only in part or not at all."""
        out: list[StreamEvent] = []
        for position, item in enumerate(output):
            kind = self._translate_kind(item.get("type"))
            block = self._block_at(position, kind)
            if block.wire or block.kind != kind:
                continue
            block.wire = item
            if not block.pieces and kind == "text":
                out.append(TextChunk(_join_text(item)))
        return out

    def _part(self, block: StreamedBlock) -> Part | None:
        match block.kind:
            case "text":
                text = _join_text(block.wire) or block.text
                return TextPart(text, self._collect_message_opaque(block.wire)) if text else None
            case "thinking":
                return self._make_thinking_part(block.text, _collect_reasoning_opaque(block.wire))
            case "call":
                if not block.call_id:
                    self._open_call(block, block.wire.get("call_id"), block.name or block.wire.get("name"))
                return self._call_part(block, str(block.wire.get("arguments") or block.text))
            case _:
                return None

    def _collect_message_opaque(self, item: Json) -> Json | None:
        fields = {k: item[k] for k in ("id", "phase") if item.get(k)}
        return {"provider": self._provider, "model": self._requested, **fields} if fields else None

    def _read_usage(self, counts: Json) -> Usage:
        input_details = read_table(counts.get("input_tokens_details"))
        output_details = read_table(counts.get("output_tokens_details"))
        return Usage(
            read_tokens(counts.get("input_tokens")),
            read_tokens(input_details.get("cached_tokens")),
            read_tokens(input_details.get("cache_write_tokens")),
            read_tokens(counts.get("output_tokens")),
            read_tokens(output_details.get("reasoning_tokens")),
        )


def _collect_reasoning_opaque(item: Json) -> Json:
    """Collect the fields sent back to the server with the thinking; none without content or an id."""
    fields = {k: v for k, v in item.items() if k in _REASONING_FIELDS and v is not None}
    usable = fields.keys() & {"encrypted_content", "id"}
    return {"item": {"summary": list[Any](), **fields}} if usable else {}


def _join_text(item: Json) -> str:
    content = cast("list[Json]", item.get("content") or [])
    return "".join(str(c.get("text") or c.get("refusal") or "") for c in content)


# Kinds of blocks by the events that carry their pieces.
_DELTAS = {
    **dict.fromkeys(("output_text.delta", "refusal.delta"), "text"),
    **dict.fromkeys(("reasoning_summary_text.delta", "reasoning_text.delta"), "thinking"),
    "function_call_arguments.delta": "call",
}
_REASONING_FIELDS = ("type", "id", "summary", "encrypted_content")


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
            if item.get("type") == "message" and (text := _join_text(item)):
                events.append({"type": "response.output_text.delta", "output_index": index, "delta": text})
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        ending = "response.failed" if answer.get("status") == "failed" else "response.completed"
        return [*events, {"type": ending, "response": answer}]
