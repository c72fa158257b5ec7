"""Call Chat Completions, which every compatible server offers with a few deviations."""

from __future__ import annotations

import json
from typing import Any, cast

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
from sakti.providers.errors import from_event, make_incomplete_stream_error
from sakti.providers.facts import Family
from sakti.providers.history import (
    HistoryTurn,
    format_file,
    get_arguments,
    last_user_text,
    make_data_url,
    make_turns,
    merge_extra,
    split_tool_images,
)
from sakti.providers.openai_responses import get_requested_effort
from sakti.providers.parser import StreamedBlock, StreamParser
from sakti.providers.protocol import StreamEvent, ToolCallChunk, read_dollars, read_table, read_tokens
from sakti.providers.remote import RemoteProvider

STABLE = frozenset(
    {"system", "instructions", "skills", "mcp", "memory"}
)  # kinds of blocks that stay the same for the life of a session
SHOWN = "[What the tools above returned, for this request:]"
THINKING_FIELDS = ("reasoning_content", "reasoning")  # thinking is sent back in the field it came in
QUOTED = 2_000  # characters of the request behind images


def render(request: Request, provider: str) -> Json:
    """Render the JSON body of `request`, without `stream`."""
    messages: list[Json] = []
    # A server's template puts the tools after this message, so it must never change.
    if system := _join_system_text(request, stable=True):
        messages.append({"role": "system", "content": system})
    request_text = ""
    for turn in make_turns(request.messages, provider, request.model):
        messages.extend([_render_assistant(turn)] if turn.role == "assistant" else _render_user(turn, request_text))
        request_text = last_user_text(turn, QUOTED) or request_text
    if moving := _join_system_text(request, stable=False):
        _put_first(messages, moving)
    _append_tail(messages, request.tail.strip())
    body: Json = {"model": request.model, "messages": messages, **_render_tools(request)}
    if request.schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": request.schema}}
    return merge_extra(body | _build_options(request, provider), request.extra)


def _render_tools(request: Request) -> Json:
    if not request.tools:
        return {}
    functions = ({"name": t.name, "description": t.description, "parameters": t.parameters} for t in request.tools)
    tools: Json = {"tools": [{"type": "function", "function": function} for function in functions]}
    return tools | ({"tool_choice": "none"} if request.tool_choice == "none" else {})


def _join_system_text(request: Request, *, stable: bool) -> str:
    """Join the blocks of the system prompt that stay the same for a session, or the others."""
    return "\n\n".join(b.text for b in request.system if (b.kind in STABLE) is stable and b.text.strip())


def _build_options(request: Request, provider: str) -> Json:
    """Return the parameters that depend on what the model's family takes."""
    family = facts.find_family(provider, request.model)
    options = _build_thinking_parameters(request, family, provider)
    if request.max_output_tokens:
        # Only OpenAI's own models insist on the newer name; every other server knows the older one.
        newer = provider == "openai" and bool(family.thinking)
        options["max_completion_tokens" if newer else "max_tokens"] = request.max_output_tokens
    if request.temperature is not None and family.temperature:
        options["temperature"] = request.temperature
    return options


def _build_thinking_parameters(request: Request, family: Family, provider: str) -> Json:
    """Return the thinking parameters in the provider's form; empty for models that do not think."""
    if not (word := get_requested_effort(request, family)):
        return {}
    if provider == "openrouter":
        return {"reasoning": {"effort": word}}
    # Claude behind another gateway, whose name for this parameter is unknown.
    return {"reasoning_effort": word} if family.thinking == "effort" else {}


def _put_first(messages: list[Json], text: str) -> None:
    """Insert memory's text into the first user message: many templates refuse two user messages in a row."""
    at = 1 if messages and messages[0]["role"] == "system" else 0
    first = messages[at] if len(messages) > at else {}
    if first.get("role") != "user":
        messages.insert(at, {"role": "user", "content": text})
    elif isinstance(first["content"], str):
        first["content"] = f"{text}\n\n{first['content']}"
    else:
        first["content"].insert(0, {"type": "text", "text": text})


def _append_tail(messages: list[Json], tail: str) -> None:
    """Append a text to the last message or result, or after an answer as a message; for this request only."""
    last = messages[-1] if messages else {}
    if not tail:
        return
    if last.get("role") not in ("user", "tool"):
        messages.append({"role": "user", "content": tail})
    elif isinstance(last["content"], str):
        last["content"] = f"{last['content']}\n\n{tail}"
    else:
        last["content"].append({"type": "text", "text": tail})


def _add_thinking(message: Json, part: ThinkingPart) -> None:
    """Add thinking to a message, in the fields in which the server sent it."""
    if (name := part.opaque.get("field")) in THINKING_FIELDS:
        message[name] = message.get(name, "") + part.text
    if "details" in part.opaque:
        message.setdefault("reasoning_details", []).extend(part.opaque["details"])


def _render_assistant(turn: HistoryTurn) -> Json:
    message: Json = {"role": "assistant", "content": None}
    extras: Json = {}
    calls: list[Json] = []
    texts: list[str] = []
    for part in turn.parts:
        match part:
            case TextPart(text):
                texts.append(text)
            case ToolCallPart(call_id, name):
                arguments = json.dumps(get_arguments(part), ensure_ascii=False)
                calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})
            case ThinkingPart(opaque=opaque):
                _add_thinking(message, part)
                extras.update(opaque.get("extra", {}))
            case ToolResultPart() | ImagePart() | FilePart() | OutputPart() | MarkerPart() | ContextPart():
                pass  # nothing that this API accepts in an assistant message
    if texts:
        message["content"] = "\n".join(texts)
    if calls:
        message["tool_calls"] = [{**c, "extra_content": extras[c["id"]]} if c["id"] in extras else c for c in calls]
    return message


def _render_user(turn: HistoryTurn, question: str = "") -> list[Json]:
    """Render a user turn: the results, then the user's text.

    A tool's message takes no image: images of tools go into a user message that ends with the text `question`, so that
    every request ends with the user's words.
    """
    messages: list[Json] = []
    content: list[Json] = []
    images, parts = split_tool_images(turn.parts)
    for part in parts:
        if isinstance(part, ToolResultPart):
            messages.append({"role": "tool", "tool_call_id": part.call_id, "content": part.content})
        else:
            content += _render_content(part)
    if images:
        words = content or ([{"type": "text", "text": question}] if question else [])
        content = [{"type": "text", "text": SHOWN}, *map(_render_image, images), *words]
    if len(content) == 1 and content[0]["type"] == "text":
        messages.append({"role": "user", "content": content[0]["text"]})
    elif content:
        messages.append({"role": "user", "content": content})
    return messages


def _render_content(part: Part) -> list[Json]:
    """Render a part of a user's message; parts of other roles and parts sent as text give nothing."""
    match part:
        case TextPart(text):
            return [{"type": "text", "text": text}]
        case FilePart():
            return [{"type": "text", "text": format_file(part)}]
        case ImagePart():
            return [_render_image(part)]
        case ToolResultPart() | ThinkingPart() | ToolCallPart() | OutputPart() | MarkerPart() | ContextPart():
            return []


def _render_image(part: ImagePart) -> Json:
    return {"type": "image_url", "image_url": {"url": make_data_url(part)}}


def _is_followed_by(call: StreamedBlock, wire_id: str, name: str) -> bool:
    """Return whether a delta with this call's number, but another id or name, starts a new call.

    Some servers number every call 0, or none; others repeat the name, or send a new id, with every delta.
    """
    if not name:
        return False
    if wire_id and wire_id != call.wire["id"]:
        return call.has_arguments() and (bool(call.pieces) or name != call.name)
    return not wire_id and bool(call.pieces) and call.has_arguments()


def _find_first_choice(event: Json) -> Json | None:
    """Return the first choice of an event; alternative choices are ignored."""
    choices = cast("list[Json]", event.get("choices") or [])
    return next((c for c in choices if not c.get("index")), None)


_THINKING, _TEXT = -2, -1  # positions of the blocks before the calls


class ChatStreamParser(StreamParser):
    """Collects the chunks of Chat Completions; usage follows the end, so `done` stays False."""

    def _is_complete_without_end(self) -> bool:
        """Return whether `[DONE]` followed an answer; some servers send no other end."""
        has_answer = self._block_at(_TEXT, "text").pieces or self._calls
        return self._ended and bool(has_answer) and all(c.has_arguments() for c in self._calls)

    def _read(self, event: Json) -> list[StreamEvent]:
        if event.get("error"):
            raise from_event(event, self._context)
        self.model = self.model or str(event.get("model") or "")
        if isinstance(event.get("usage"), dict):
            self._count(event["usage"])
        choice = _find_first_choice(event)
        if choice is None:
            return []
        if choice.get("error"):
            raise self._make_choice_error(choice)
        self.reason = str(choice.get("finish_reason") or "") or self.reason
        return self._read_delta(cast("Json", choice.get("delta") or {}))

    def _make_choice_error(self, choice: Json) -> ProviderError:
        """Build the error of an answer that the server broke off; retryable unless a retry cannot help."""
        error = from_event(choice, self._context)
        return make_incomplete_stream_error(self._context) if error.code == "server" else error

    def _read_delta(self, delta: Json) -> list[StreamEvent]:
        out = self._read_thinking(delta)
        content: Any = delta.get("content") or delta.get("refusal")
        self._refused = self._refused or bool(delta.get("refusal"))
        if isinstance(content, str):
            out += self._say(content)
        elif isinstance(content, list):
            out += self._read_chunks(cast("list[Json]", content))
        for call in cast("list[Json]", delta.get("tool_calls") or []):
            out += self._read_call(call)
        return out

    def _read_thinking(self, delta: Json) -> list[StreamEvent]:
        wire = self._block_at(_THINKING, "thinking").wire
        if isinstance(delta.get("reasoning_details"), list):
            wire.setdefault("details", []).extend(delta["reasoning_details"])
        for name in THINKING_FIELDS:
            if isinstance(delta.get(name), str) and delta[name]:
                wire.setdefault("field", name)
                return self._add_thinking(delta[name])
        return []

    @property
    def _calls(self) -> list[StreamedBlock]:
        return [block for position, block in sorted(self.blocks.items()) if position >= 0]

    def _say(self, text: str) -> list[StreamEvent]:
        return self._add(self._block_at(_TEXT, "text"), text)

    def _add_thinking(self, text: str) -> list[StreamEvent]:
        return self._add(self._block_at(_THINKING, "thinking"), text)

    def _read_chunks(self, chunks: list[Json]) -> list[StreamEvent]:
        """Read content that is a list, as Mistral's thinking models send it."""
        out: list[StreamEvent] = []
        for chunk in chunks:
            if chunk.get("type") == "text":
                out += self._say(str(chunk.get("text") or ""))
            elif chunk.get("type") == "thinking":
                inner = cast("list[Json]", chunk.get("thinking") or [])
                out += self._add_thinking("".join(str(c.get("text") or "") for c in inner))
        return out

    def _read_call(self, delta: Json) -> list[StreamEvent]:
        function = cast("Json", delta.get("function") or {})
        call = self._find_call(delta.get("index"), str(delta.get("id") or ""), str(function.get("name") or ""))
        if delta.get("extra_content"):
            call.wire["extra_content"] = delta["extra_content"]
        arguments: Any = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""
        return self._add(call, text) if text else [ToolCallChunk(call.call_id, call.name, "")]

    def _find_call(self, index: Any, wire_id: str, name: str) -> StreamedBlock:
        """Return the call that a delta continues, or a new one."""
        last = max(self.blocks, default=-1)
        numbered = isinstance(index, int)
        call = self.blocks.get(self.positions.get(index, -3) if numbered else last if last >= 0 else -3)
        if call is None or _is_followed_by(call, wire_id, name):
            last = max(last, -1) + 1
            call = self.blocks[last] = StreamedBlock("call", wire={"id": wire_id})
            self._open_call(call, wire_id or None, name)
            if numbered:
                self.positions[index] = last
        return call

    def _part(self, block: StreamedBlock) -> Part | None:
        if block.kind != "thinking":
            return super()._part(block)
        opaque = self._collect_opaque(block)
        return self._make_thinking_part(block.text, opaque) if block.pieces or opaque else None

    def _collect_opaque(self, block: StreamedBlock) -> Json:
        """Collect the fields sent back to the server with the thinking, including those of calls."""
        opaque = {name: value for name, value in block.wire.items() if name in ("field", "details")}
        if "details" in opaque and opaque.get("field") == "reasoning":
            del opaque["field"]  # details repeat the text of `reasoning`
        if extra := {c.call_id: c.wire["extra_content"] for c in self._calls if "extra_content" in c.wire}:
            opaque["extra"] = extra
        return opaque

    def _read_usage(self, counts: Json) -> Usage:
        input_details = read_table(counts.get("prompt_tokens_details"))
        output_details = read_table(counts.get("completion_tokens_details"))
        return Usage(
            read_tokens(counts.get("prompt_tokens")),
            read_tokens(input_details.get("cached_tokens")) or read_tokens(counts.get("prompt_cache_hit_tokens")),
            read_tokens(input_details.get("cache_write_tokens")),
            read_tokens(counts.get("completion_tokens")),
            read_tokens(output_details.get("reasoning_tokens")),
            read_dollars(counts.get("cost")),
        )


class ChatProvider(RemoteProvider):
    """Provider for `/chat/completions`."""

    path = "/chat/completions"
    parser = ChatStreamParser

    def _render(self, request: Request) -> Json:
        return {"stream_options": {"include_usage": True}, **render(request, self.name)}

    def _split(self, answer: Json) -> list[Json]:
        choices = cast("list[Json]", answer.get("choices") or [])
        if not choices:
            return []
        message = cast("Json", choices[0].get("message") or {})
        calls = [{**c, "index": n} for n, c in enumerate(cast("list[Json]", message.get("tool_calls") or []))]
        delta = {**message, "tool_calls": calls}
        reason = choices[0].get("finish_reason") or "stop"
        return [{**answer, "choices": [{"delta": delta, "finish_reason": reason, "error": choices[0].get("error")}]}]
