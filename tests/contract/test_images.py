"""An image as each of the three protocols has it."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest

from sakti.core.errors import ProviderError
from sakti.core.types import ImagePart
from sakti.providers.anthropic import AnthropicProvider
from sakti.providers.openai_chat import ChatProvider
from sakti.providers.openai_responses import ResponsesProvider
from tests.fakes.http import serving
from tests.fakes.requests import message, play, request

DATA = base64.b64encode(b"\x89PNG\r\n\x1a\n and the rest").decode()
URL = f"data:image/png;base64,{DATA}"


@pytest.mark.parametrize(
    ("kind", "field", "wanted"),
    [
        (ChatProvider, "messages", {"type": "image_url", "image_url": {"url": URL}}),
        (ResponsesProvider, "input", {"type": "input_image", "image_url": URL, "detail": "auto"}),
        (
            AnthropicProvider,
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
