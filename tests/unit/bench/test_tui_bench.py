"""The terminal benchmark in small: the installed program in a pseudo-terminal against the built-in model."""

from __future__ import annotations

import json
import os
import sys

import pytest

from sakti.core.errors import SaktiError
from tests.bench import tui, tui_model
from tests.bench.tui_terminal import Terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo-terminal")


@pytest.mark.parametrize("tokens", [10, 60, 1_000])
def test_an_answer_has_so_many_tokens_between_its_marks(tokens):
    pieces = tui_model.answer("x", tokens)
    assert len(pieces) == tokens
    assert pieces[0] == tui_model.begin("x")
    assert pieces[-1] == tui_model.end("x")
    assert "".join(pieces).count("```") % 2 == 0


async def test_what_is_measured(monkeypatch):
    monkeypatch.setattr(tui, "RATE", 100)
    size = tui.Size(tokens=300, launches=0, answers=1, keys=2, messages=400, pages=3, rest=0.5, between=0.1)
    found = await tui.run(size)
    assert list(found) == [
        "paint_s", "first_token_ms", "tokens_20k_s", "tokens_20k_cpu_s", "echo_ms", "idle_mb", "after_mb",
        "open_10k_s", "scroll_ms",
    ]  # fmt: skip
    assert list(found["echo_ms"]) == ["p50", "max"]
    assert list(found["scroll_ms"]) == ["p50", "p95", "max"]
    numbers = [n for v in found.values() for n in (v.values() if isinstance(v, dict) else [v])]
    assert all(isinstance(n, float) and n > 0 for n in numbers), found
    assert found["echo_ms"]["p50"] <= found["echo_ms"]["max"]
    assert json.loads(json.dumps(found)) == found


async def test_a_program_that_ends_is_an_error_that_says_so(tmp_path):
    argv = [sys.executable, "-c", "print('\\x1b[1mhel\\x1b[0mlo')"]
    async with Terminal(argv, os.environ, tmp_path) as terminal:
        await terminal.until("hello")
        with pytest.raises(SaktiError, match="'more' was not seen: the program ended"):
            await terminal.until("more")


async def test_only_the_program_that_was_started_is_ended(tmp_path):
    argv = [
        sys.executable,
        "-c",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_DFL); print('up'); time.sleep(60)",
    ]
    async with Terminal(argv, os.environ, tmp_path) as terminal:
        await terminal.until("up")
        pid = terminal.pid
        assert terminal.mb() > 1
        assert terminal.cpu_s() >= 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
