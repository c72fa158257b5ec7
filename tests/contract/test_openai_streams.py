"""What the OpenAI protocols have of their own: reasoning items, missing usage, odd numbering of calls."""

from __future__ import annotations

import json
from contextlib import aclosing

import pytest

from sakti.core.errors import ProviderError
from sakti.core.types import TextPart, ThinkingPart, ToolCallPart
from sakti.providers.protocol import ThinkingChunk
from tests.fakes.endpoints import chat_provider, responses_provider
from tests.fakes.http import serving
from tests.fakes.requests import READ, message, play, request, result

REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "gAAA",
    "status": "completed",
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "read",
    "arguments": '{"path": "a.py"}',
}
RESPONSE = [
    {"type": "response.created", "response": {"id": "r"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs_1"}},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm."},
    {"type": "response.output_item.done", "output_index": 0, "item": REASONING},
    {"type": "response.output_item.added", "output_index": 1, "item": {**CALL, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"path": '},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '"a.py"}'},
    {"type": "response.output_item.done", "output_index": 1, "item": CALL},
]
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 20},
}


def completed(**fields):
    return {
        "type": "response.completed",
        "response": {"status": "completed", "model": "gpt-x", "usage": USAGE, **fields},
    }


async def test_reasoning_comes_back_and_goes_back():
    async with serving([*RESPONSE, completed()]) as server:
        provider = responses_provider("key", base_url=server.url)
        events, done = await play(provider, request(model="gpt-5.4", tools=(READ,)))
        kept = {k: v for k, v in REASONING.items() if k != "status"}
        assert done.parts == (
            ThinkingPart("Hm.", "openai", {"item": kept}, "gpt-5.4"),
            ToolCallPart("call_1", "read", {"path": "a.py"}),
        )
        assert [e.text for e in events if isinstance(e, ThinkingChunk)] == ["Hm."]
        u = done.usage
        assert (
            u.input_tokens,
            u.cached_tokens,
            u.cache_write_tokens,
            u.output_tokens,
            u.reasoning_tokens,
        ) == (100, 64, 8, 30, 20)
        assert u.cost_usd
        assert done.stop_reason == "tool_use"
        await play(
            provider,
            request(
                message("user", "hi"),
                message("assistant", *done.parts),
                message("tool", result("call_1")),
                model="gpt-5.4",
                tools=(READ,),
            ),
        )
        body = server.bodies[1]
        assert body["store"] is False
        assert body["include"] == ["reasoning.encrypted_content"]
        assert body["input"][1:] == [
            {k: v for k, v in kept.items() if k != "id"},
            {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"path": "a.py"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "1\tx = 1"},
        ]
        await provider.close()


async def test_incomplete_is_an_end_too():
    end = {
        "type": "response.incomplete",
        "response": {
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "usage": USAGE,
        },
    }
    said = {"type": "response.output_text.delta", "output_index": 0, "delta": "half"}
    async with serving([said, end]) as server:
        provider = responses_provider("key", base_url=server.url)
        _, done = await play(provider, request())
        assert (done.parts, done.stop_reason) == ((TextPart("half"),), "length")
        await provider.close()


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "rate_limit_exceeded", "message": "slow down"},
        {
            "type": "response.failed",
            "response": {"error": {"code": "rate_limit_exceeded", "message": "slow down"}},
        },
    ],
)
async def test_failed_responses(event):
    async with serving([*RESPONSE[:3], event]) as server:
        provider = responses_provider("key", base_url=server.url)
        with pytest.raises(ProviderError) as caught:
            await play(provider, request())
        assert (caught.value.code, caught.value.retryable) == ("rate_limit", True)
        await provider.close()


def chunk(delta, finish=None, **fields):
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}


def tool(name="", arguments="", call_id=None, index=0):
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


async def chat(events, asked=None):
    async with serving(events) as server:
        provider = chat_provider("key", name="deepseek", base_url=server.url)
        try:
            return (*await play(provider, asked or request(tools=(READ,))), server.bodies[0])
        finally:
            await provider.close()


async def test_reasoning_text_and_missing_usage():
    events, done, body = await chat(
        [chunk({"reasoning_content": "Think"}), chunk({"content": "Hi"}), chunk({}, "stop")]
    )
    assert done.parts == (
        ThinkingPart("Think", "deepseek", {"field": "reasoning_content"}, "test-model"),
        TextPart("Hi"),
    )
    assert isinstance(events[0], ThinkingChunk)
    assert done.usage.input_tokens == 0
    assert body["stream_options"] == {"include_usage": True}


async def test_usage_after_the_end():
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    _, done, _ = await chat([chunk({"content": "x"}, "stop"), {"choices": [], "usage": usage}, "[DONE]"])
    assert (done.usage.input_tokens, done.usage.cached_tokens, done.usage.output_tokens) == (9, 4, 3)


async def test_calls_that_are_all_numbered_zero():
    _, done, _ = await chat(
        [
            chunk({"tool_calls": [tool("read", '{"path": "a"}', "x")]}),
            chunk({"tool_calls": [tool("read", '{"path": "b"}', "y")]}),
            chunk({}, "stop"),
        ]
    )
    assert [(p.id, p.arguments) for p in done.parts] == [("x", {"path": "a"}), ("y", {"path": "b"})]
    assert done.stop_reason == "tool_use"


async def test_calls_without_or_with_equal_ids():
    _, done, _ = await chat(
        [
            chunk(
                {
                    "tool_calls": [
                        tool("read", "{}", None, 0),
                        tool("read", "{}", "dup", 1),
                        tool("read", "{}", "dup", 2),
                    ]
                }
            ),
            chunk({}, "tool_calls"),
        ]
    )
    assert len({p.id for p in done.parts}) == 3
    assert all(p.id for p in done.parts)


async def test_two_hundred_parallel_calls():
    calls = [chunk({"tool_calls": [tool("read", json.dumps({"path": f"f{n}"}), f"c{n}", n)]}) for n in range(200)]
    _, done, _ = await chat([*calls, chunk({}, "tool_calls")])
    assert [p.arguments["path"] for p in done.parts] == [f"f{n}" for n in range(200)]


async def test_half_a_call_is_no_call_with_arguments():
    _, done, _ = await chat([chunk({"tool_calls": [tool("read", '{"pa', "x")]}), chunk({}, "length")])
    assert done.parts == (ToolCallPart("x", "read", None, '{"pa'),)
    assert done.stop_reason == "length"


async def test_signature_of_a_call_is_sent_back():
    extra = {"google": {"thought_signature": "s"}}
    first = {**tool("read", "{}", "x"), "extra_content": extra}
    _, done, _ = await chat([chunk({"tool_calls": [first]}), chunk({}, "tool_calls")])
    again = request(message("user", "hi"), message("assistant", *done.parts), message("tool", result("x")))
    _, _, body = await chat([chunk({"content": "ok"}, "stop")], again)
    assert body["messages"][2]["tool_calls"][0]["extra_content"] == extra


async def test_error_object_in_the_stream():
    with pytest.raises(ProviderError) as caught:
        await chat([chunk({"content": "x"}), {"error": {"message": "boom", "code": 502}}])
    assert (caught.value.code, caught.value.retryable) == ("server", True)


async def test_giving_up_closes_the_connection():
    async with serving([chunk({"content": "x"})], hold=True) as server:
        provider = chat_provider("key", base_url=server.url)
        async with aclosing(provider.stream(request())) as stream:
            async for _ in stream:
                break
        await server.closed.wait()
        await provider.close()
