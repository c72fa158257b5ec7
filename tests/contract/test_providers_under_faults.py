"""Every remote provider against a server that misbehaves, over real HTTP with the real SDKs."""

from __future__ import annotations

import pytest

from sakti.core.errors import ProviderError
from sakti.core.types import ToolCallPart
from sakti.providers.protocol import TextChunk, ToolCallChunk
from tests.fakes.endpoints import anthropic_provider, chat_provider, responses_provider
from tests.fakes.requests import READ, play, request

KEY = "sk-test-0123456789abcdef"


KINDS = {
    "anthropic": (anthropic_provider, "anthropic"),
    "chat": (chat_provider, "openai"),
    "responses": (responses_provider, "openai"),
}


@pytest.fixture(params=KINDS)
async def provider(request, llmock):
    kind, api = KINDS[request.param]
    # a busy machine may be silent for a while
    made = kind(KEY, base_url=llmock.base_url(api), timeout=30.0)
    yield made
    await made.close()


async def failure(provider) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await play(provider, request())
    assert KEY not in caught.value.message
    assert caught.value.message.endswith((".", "!", ")")) or caught.value.status
    return caught.value


async def test_text_is_streamed_and_complete(provider, llmock):
    llmock.reply("one two three")
    events, done = await play(provider, request())
    assert "".join(e.text for e in events if isinstance(e, TextChunk)) == "one two three"
    assert done.parts[0].text == "one two three"
    assert done.stop_reason == "end"
    assert done.usage.input_tokens > 0
    assert done.usage.output_tokens > 0


async def test_tool_call(provider, llmock):
    llmock.call_tool("read", {"path": "src/ä.py"})
    events, done = await play(provider, request(tools=(READ,)))
    part = next(p for p in done.parts if isinstance(p, ToolCallPart))
    assert (part.name, part.arguments) == ("read", {"path": "src/ä.py"})
    assert done.stop_reason == "tool_use"
    chunks = [e for e in events if isinstance(e, ToolCallChunk)]
    assert {c.call_id for c in chunks} == {part.id}
    assert {c.name for c in chunks} == {"read"}


async def test_broken_arguments_are_kept_as_written(provider, llmock):
    llmock.call_tool("read", {"path": "a.py"}).break_tool_call("malformed_arguments")
    _, done = await play(provider, request(tools=(READ,)))
    part = next(p for p in done.parts if isinstance(p, ToolCallPart))
    assert part.arguments is None
    assert part.raw


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, "invalid_request", False),
        (401, "authentication", False),
        (403, "permission", False),
        (404, "not_found", False),
        (408, "timeout", True),
        (409, "server", True),
        (422, "invalid_request", False),
        (500, "server", True),
        (502, "server", True),
        (529, "overloaded", True),
    ],
)
async def test_statuses(provider, llmock, status, code, retryable):
    llmock.fail(status)
    error = await failure(provider)
    assert (error.code, error.retryable, error.status) == (code, retryable, status)
    assert len(llmock.requests) == 1, "the SDK must not retry by itself"


async def test_refused_key_names_its_variable(provider, llmock):
    llmock.fail(401)
    assert "_API_KEY" in (await failure(provider)).message


async def test_rate_limit_says_how_long(provider, llmock):
    llmock.rate_limit(retry_after=7)
    error = await failure(provider)
    assert (error.code, error.retryable, error.retry_after) == ("rate_limit", True, 7.0)


async def test_context_overflow(provider, llmock):
    llmock.context_overflow()
    error = await failure(provider)
    assert (error.code, error.retryable) == ("context_too_long", False)


@pytest.mark.parametrize("fault", ["disconnect", "truncate", "corrupt"])
@pytest.mark.parametrize("after", [0, 1, 3])
async def test_an_answer_without_end_does_not_count(provider, llmock, fault, after):
    llmock.reply("one two three four")
    getattr(llmock, fault)(after_chunks=after)
    error = await failure(provider)
    assert error.retryable
    assert error.code in ("stream_cut", "connection")


@pytest.mark.parametrize("name", KINDS)
async def test_a_silent_server_is_given_up(name, llmock):
    kind, api = KINDS[name]
    impatient = kind(KEY, base_url=llmock.base_url(api), timeout=0.5)
    llmock.reply("one two three")
    llmock.stall(after_chunks=2, seconds=3)
    error = await failure(impatient)
    await impatient.close()
    assert (error.code, error.retryable) == ("timeout", True)


async def test_nobody_listens():
    made = chat_provider(KEY, base_url="http://127.0.0.1:9/v1", timeout=1)
    error = await failure(made)
    assert (error.code, error.retryable) == ("unreachable", True)
    assert "127.0.0.1:9" in error.message


async def test_without_a_key_nothing_is_sent():
    for made in (anthropic_provider(""), responses_provider("")):
        error = await failure(made)
        assert error.code == "authentication"


async def test_models_are_listed(provider):
    assert await provider.models()
