"""What only Anthropic's stream has: thinking with signatures, cache tokens, errors in mid-stream."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from sakti.core.errors import ProviderError
from sakti.core.types import TextPart, ThinkingPart, ToolCallPart
from sakti.providers.protocol import ThinkingChunk
from tests.fakes.endpoints import anthropic_provider
from tests.fakes.http import serving
from tests.fakes.requests import READ, call, message, play, request, result

START = {
    "type": "message_start",
    "message": {
        "model": "claude-x",
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 80,
            "cache_creation_input_tokens": 5,
            "output_tokens": 1,
        },
    },
}
END = [
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 42}},
    {"type": "message_stop"},
]


def block(index, start, *deltas):
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": d} for d in deltas),
        {"type": "content_block_stop", "index": index},
    ]


THINKING = [
    START,
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Let me "},
        {"type": "thinking_delta", "thinking": "see."},
        {"type": "signature_delta", "signature": "sig=="},
    ),
    *block(1, {"type": "redacted_thinking", "data": "secret"}),
    {"type": "ping"},
    *block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Reading."}),
    *block(
        3,
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"path":'},
        {"type": "input_json_delta", "partial_json": '"a.py"}'},
    ),
    *END,
]


async def test_thinking_tools_and_usage():
    async with serving(THINKING) as server:
        provider = anthropic_provider("key", base_url=server.url)
        events, done = await play(provider, request(tools=(READ,)))
        assert done.parts == (
            ThinkingPart("Let me see.", "anthropic", {"signature": "sig=="}, "test-model"),
            ThinkingPart("", "anthropic", {"redacted": "secret"}, "test-model"),
            TextPart("Reading."),
            ToolCallPart("toolu_1", "read", {"path": "a.py"}),
        )
        assert [e.text for e in events if isinstance(e, ThinkingChunk)] == ["Let me ", "see."]
        u = done.usage
        assert (u.input_tokens, u.cached_tokens, u.cache_write_tokens, u.output_tokens) == (95, 80, 5, 42)
        assert server.paths == ["/v1/messages"]
        assert server.headers[0]["x-api-key"] == "key"
        assert server.headers[0]["authorization"] == "Bearer key"

        # and what was thought goes back unchanged, before the call that it led to
        await play(
            provider,
            request(
                message("user", "hi"),
                message("assistant", *done.parts),
                message("tool", result("toolu_1")),
                tools=(READ,),
            ),
        )
        assert server.bodies[1]["messages"][1]["content"][:2] == [
            {"type": "thinking", "thinking": "Let me see.", "signature": "sig=="},
            {"type": "redacted_thinking", "data": "secret"},
        ]
        await provider.close()


async def test_a_used_id_becomes_another():
    async with serving(THINKING) as server:
        provider = anthropic_provider("key", base_url=server.url)
        earlier = (
            message("user", "hi"),
            message("assistant", call("toolu_1")),
            message("tool", result("toolu_1")),
        )
        _, done = await play(provider, request(*earlier, tools=(READ,)))
        assert [p.id for p in done.parts if isinstance(p, ToolCallPart)] == ["toolu_1_1"]
        await provider.close()


async def test_error_in_mid_stream():
    broken = [
        *THINKING[:5],
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ]
    async with serving(broken) as server:
        provider = anthropic_provider("key", base_url=server.url)
        with pytest.raises(ProviderError) as caught:
            await play(provider, request())
        assert (caught.value.code, caught.value.retryable) == ("overloaded", True)
        await provider.close()


async def test_giving_up_closes_the_connection():
    async with serving(THINKING[:5], hold=True) as server:
        provider = anthropic_provider("key", base_url=server.url)
        async with aclosing(provider.stream(request())) as stream:
            async for _ in stream:
                break
        await server.closed.wait()
        await provider.close()
