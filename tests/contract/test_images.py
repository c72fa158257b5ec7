"""An image as each of the three protocols has it."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest

from sakti.core.errors import ProviderError
from sakti.core.types import ContextPart, ImagePart
from sakti.providers import openai_chat, openai_responses
from tests.fakes.endpoints import anthropic_provider, chat_provider, responses_provider
from tests.fakes.http import serving
from tests.fakes.requests import call, message, play, request, result

DATA = base64.b64encode(b"\x89PNG\r\n\x1a\n and the rest").decode()
URL = f"data:image/png;base64,{DATA}"


@pytest.mark.parametrize(
    ("kind", "field", "wanted"),
    [
        (chat_provider, "messages", {"type": "image_url", "image_url": {"url": URL}}),
        (responses_provider, "input", {"type": "input_image", "image_url": URL, "detail": "auto"}),
        (
            anthropic_provider,
            "messages",
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        ),
    ],
)
async def test_an_image_goes_with_its_words(kind: Any, field: str, wanted: dict[str, Any]) -> None:
    asked = request(message("user", "what is @cat.png", ImagePart("image/png", DATA, "cat.png", 3, 4)))
    async with serving() as server:
        provider = kind("key", base_url=server.url)
        with contextlib.suppress(ProviderError):  # it ends without a word; what was sent is what matters
            await play(provider, asked)
        content = server.bodies[0][field][-1]["content"]
        blocks = [{k: v for k, v in block.items() if k != "cache_control"} for block in content]
        assert [b.get("text") for b in blocks[:1]] == ["what is @cat.png"]
        assert blocks[1] == wanted
        await provider.close()


def shown(*behind: Any) -> list[Any]:
    image = ImagePart("image/png", DATA, "cat.png", 3, 4)
    return [
        message("user", "what is cat.png?", ContextPart({"Now": "12:00"})),
        message("assistant", call("c1"), call("c2")),
        message("tool", result("c1", "cat.png: it is shown below."), result("c2"), image),
        *behind,
    ]


def test_what_a_tool_shows_stands_before_the_users_words_in_chat() -> None:
    sent = openai_chat.render(request(*shown()), "vllm")["messages"]
    assert [m["role"] for m in sent[-3:]] == ["tool", "tool", "user"], "a tool's message takes no image"
    note, image, words = sent[-1]["content"]
    assert note["text"] == openai_chat.SHOWN and image["image_url"]["url"] == URL
    assert words == {"type": "text", "text": "what is cat.png?"}, "without the facts, which move"
    answered = shown(message("assistant", "A cat."), message("user", "and now?"))
    later = openai_chat.render(request(*answered), "vllm")["messages"]
    assert later[: len(sent)] == sent, "the prefix stays as it was sent"
    steered = openai_chat.render(request(*shown(message("user", "only the colour"))), "vllm")["messages"]
    assert [b.get("text") for b in steered[-1]["content"]] == [openai_chat.SHOWN, None, "only the colour"]


def test_what_a_tool_shows_is_part_of_its_result_in_responses() -> None:
    sent = openai_responses.render(request(*shown(), tail="sum up"))["input"]
    assert [i.get("type") or i["role"] for i in sent[-2:]] == ["function_call_output"] * 2
    text, image, tail = sent[-1]["output"]
    assert text == {"type": "input_text", "text": "1\tx = 1"} and tail["text"] == "sum up"
    assert image == {"type": "input_image", "image_url": URL, "detail": "auto"}
    steered = openai_responses.render(request(*shown(message("user", "only the colour"))))["input"]
    assert steered[-1]["content"] == [{"type": "input_text", "text": "only the colour"}]
