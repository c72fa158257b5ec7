"""The embedded model itself, where its weights are installed: SAKTI_TEST_GGUF names the file."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import stat
from contextlib import aclosing
from pathlib import Path

import pytest

from sakti.core.errors import ProviderError
from sakti.core.types import TextPart, ToolCallPart
from sakti.providers.local.process import ModelProcess
from sakti.providers.local.provider import LocalProvider
from sakti.providers.protocol import TextChunk
from tests.fakes.requests import READ, message, play, request

WEIGHTS = Path(os.environ.get("SAKTI_TEST_GGUF", "/nonexistent"))
pytestmark = [
    pytest.mark.local_model,
    pytest.mark.skipif(
        not WEIGHTS.is_file() or importlib.util.find_spec("xllamacpp") is None,
        reason="the weights of the local model are not installed",
    ),
]


async def test_the_local_model_works():
    worker = ModelProcess(WEIGHTS, 2048)
    provider = LocalProvider(2048, worker)
    try:
        events, done = await play(provider, request(message("user", "What is a Python list?"), tools=(READ,)))
        assert isinstance(done.parts[0], TextPart)
        assert len([e for e in events if isinstance(e, TextChunk)]) > 3
        assert done.usage.output_tokens > 3

        _, done = await play(provider, request(message("user", "What does calc.py do?"), tools=(READ,)))
        assert isinstance(done.parts[0], ToolCallPart)
        assert "calc.py" in done.parts[0].arguments["path"]

        with pytest.raises(ProviderError) as caught:
            await play(provider, request(message("user", "word " * 3000)))
        assert caught.value.code == "context_too_long"

        async with aclosing(provider.stream(request(message("user", "Count to one thousand.")))) as stream:
            async for _ in stream:
                break
        async with asyncio.timeout(60):
            await play(provider, request(message("user", "Say hi."), max_output_tokens=20))
    finally:
        await provider.close()
        await worker.stop()


async def test_an_evaluated_prompt_is_kept_and_a_broken_one_does_no_harm(tmp_path: Path):
    """The second process reads only what is new; a state that was cut off is made anew."""
    begin = "You are brief. " + "Name the number that you are told. " * 12
    chat = {
        "messages": [{"role": "system", "content": begin}, {"role": "user", "content": "Seven."}],
        "max_tokens": 2,
        "cache_prompt": True,
    }

    async def run() -> dict[str, int]:
        worker = ModelProcess(WEIGHTS, 2048, keep_in=tmp_path / "kept")
        try:
            async with aclosing(worker.chat(chat, [begin])) as messages:
                heard = [m async for m in messages]
        finally:
            await worker.stop()
        return {"begin": sum("begin" in m for m in heard), "cached": heard[-1]["cached"]}

    first, second = await run(), await run()
    assert first["begin"] and not second["begin"] and second["cached"] > 60
    (file,) = (tmp_path / "kept").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    whole = file.stat().st_size
    os.truncate(file, whole // 2)
    assert (await run())["begin"]
    (anew,) = file.parent.iterdir()
    assert anew.stat().st_size == whole
