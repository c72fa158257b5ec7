"""Parsers of the three protocols read one answer alike, however its stream is cut into pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sakti.core.types import Json, TextPart, ToolCallPart
from sakti.providers.anthropic import AnthropicStreamParser
from sakti.providers.errors import ErrorContext
from sakti.providers.history import CallIds
from sakti.providers.openai_chat import ChatStreamParser
from sakti.providers.openai_responses import ResponsesStreamParser
from sakti.providers.parser import StreamParser, complete_answer
from sakti.providers.protocol import TextChunk, ToolCallChunk

WHERE = ErrorContext("mine", "http://localhost")
ARGUMENTS = '{"path": "a.py"}'


def anthropic(pieces: list[str]) -> list[Json]:
    def delta(index: int, **fields: Any) -> Json:
        return {"type": "content_block_delta", "index": index, "delta": fields}

    return [
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        delta(0, type="text_delta", text="Hi"),
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "c", "name": "read"}},
        *(delta(1, type="input_json_delta", partial_json=p) for p in pieces),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def chat(pieces: list[str]) -> list[Json]:
    def choice(reason: str | None = None, **delta: Any) -> Json:
        return {"model": "m", "choices": [{"delta": delta, "finish_reason": reason}]}

    def call(text: str, **more: str) -> Json:
        return {"index": 0, **more, "function": {"arguments": text, **({"name": "read"} if more else {})}}

    return [
        choice(content="Hi"),
        choice(tool_calls=[call("", id="c")]),
        *(choice(tool_calls=[call(p)]) for p in pieces),
        choice("tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}},
    ]


def responses(pieces: list[str]) -> list[Json]:
    call = {"type": "function_call", "call_id": "c", "name": "read"}
    usage = {"input_tokens": 3, "output_tokens": 5}
    return [
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"},
        {"type": "response.output_item.added", "output_index": 1, "item": call},
        *({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": p} for p in pieces),
        {"type": "response.completed", "response": {"model": "m", "status": "completed", "usage": usage}},
    ]


@pytest.mark.parametrize("cut", range(1, len(ARGUMENTS)))
@pytest.mark.parametrize(
    ("kind", "events"),
    [(AnthropicStreamParser, anthropic), (ChatStreamParser, chat), (ResponsesStreamParser, responses)],
)
def test_an_answer_is_the_same_however_its_arguments_are_cut(
    kind: type[StreamParser], events: Callable[[list[str]], list[Json]], cut: int
) -> None:
    parser = kind("mine", "m", CallIds(()), WHERE)
    stream = events([ARGUMENTS[:cut], ARGUMENTS[cut:]])
    chunks = [chunk for event in stream for chunk in parser.take(event)]
    assert parser.complete
    answer = complete_answer(parser, WHERE)
    assert answer.parts == (TextPart("Hi"), ToolCallPart("c", "read", {"path": "a.py"}))
    assert (answer.stop_reason, answer.model) == ("tool_use", "m")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (3, 5)
    assert "".join(c.text for c in chunks if isinstance(c, TextChunk)) == "Hi"
    assert "".join(c.text for c in chunks if isinstance(c, ToolCallChunk)) == ARGUMENTS


@pytest.mark.parametrize(
    ("kind", "events"),
    [(AnthropicStreamParser, anthropic), (ChatStreamParser, chat), (ResponsesStreamParser, responses)],
)
def test_a_stream_without_its_end_is_not_a_complete_answer(
    kind: type[StreamParser], events: Callable[[list[str]], list[Json]]
) -> None:
    parser = kind("mine", "m", CallIds(()), WHERE)
    for event in events([ARGUMENTS])[:-2]:
        parser.take(event)
    assert not parser.complete
