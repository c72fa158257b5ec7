"""Requests of a long talk, as each protocol sends them: what was sent stays as it was, byte for byte."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

from sakti.core.types import Request
from sakti.providers import anthropic, openai_chat, openai_responses
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.session import start

RENDERS = {
    "anthropic": anthropic.render,
    "responses": openai_responses.render,
    "chat": lambda r: openai_chat.render(r, "vllm"),
}
ORDER = ("tools", "system", "instructions", "messages", "input")


def sent(render, request: Request) -> str:
    body = render(request)
    text = json.dumps({k: body[k] for k in ORDER if k in body}, ensure_ascii=False)
    return text.replace(', "cache_control": {"type": "ephemeral"}', "")


@pytest.mark.parametrize("api", RENDERS)
async def test_what_was_sent_stays(store: Store, tmp_path: Path, api: str) -> None:
    work = tmp_path / "w"
    work.mkdir()
    (work / "a.txt").write_text("line of text\n" * 40)

    def play(request: Request) -> Answer | str:
        calls = sum(m.role == "tool" for m in request.messages[-8:])
        step = len(request.messages) % 4
        if step in (1, 2) and calls < 4:
            return Answer("I look. " * 20, calls=(Call("read", {"path": "a.txt", "start": len(request.messages)}),))
        return "That is so, and so it stays. " * 30

    run = await start(store, work, play, window=200_000, overrides=("memory.observation.message_tokens=6000",))
    for number in range(36):
        run.session.workspace.clock.advance(90 * (1 + number % 9))
        await run.ask(f"question {number}: what does it say? " + "and more of it " * 20)
        await run.session.current.engine.wait_idle()
    texts = [sent(RENDERS[api], r) for r in run.provider.requests]
    common = [len(os.path.commonprefix(pair)) for pair in itertools.pairwise(texts)]  # noqa: RUF071  texts, no paths
    breaks = sum(c < len(a) - 10 for c, a in zip(common, texts, strict=False))
    activations = len([e for e in run.events if type(e).__name__ == "MemoryActivation"])
    assert len(texts) > 60
    assert sum(common) / sum(map(len, texts[:-1])) > 0.94
    assert breaks <= activations, "a prefix breaks only where memory changes what is sent"
    assert all("question" in json.dumps(last_user(RENDERS[api](r))) for r in run.provider.requests)


def last_user(body) -> object:
    said = [m for m in body.get("messages", body.get("input")) if m.get("role") == "user"]
    return next(m for m in reversed(said) if "tool_result" not in json.dumps(m))
