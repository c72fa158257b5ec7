"""Measure the speed of the terminal interface: the installed program in a pseudo-terminal, a streaming model.

Seconds and milliseconds are wall time, measured from outside, except for `tokens_20k_cpu_s` and `scroll_ms`, which
are CPU; memory in megabytes.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.bench import tui_thread
from tests.bench.retrieval import percentile
from tests.bench.tui_model import FakeModel, begin, end, question
from tests.bench.tui_terminal import Terminal

PAINTED = "Message sakti"  # the empty prompt's placeholder
RATE = 200  # tokens a second under which keys are pressed


class Size(Struct, frozen=True):
    """Extent of the measurement.

    `tokens` of the long answer, launches, short answers, keys, `messages` of the long thread and `pages` up in it;
    seconds to `rest` after a launch, and `between` actions.
    """

    tokens: int = 20_000
    launches: int = 3
    answers: int = 5
    keys: int = 20
    messages: int = 10_000
    pages: int = 100
    rest: float = 3.0
    between: float = 0.3


async def run(size: Size | None = None) -> dict[str, Any]:
    """Measure everything; raises `SaktiError` where something is never painted."""
    size = size or Size()
    with tempfile.TemporaryDirectory(prefix="sakti-bench-", ignore_cleanup_errors=True) as folder:
        async with FakeModel() as model:
            place = _Place(Path(folder), model.url)
            painted: list[float] = []
            for number in range(size.launches):
                async with place.program() as (_, took):
                    painted += [took] if number else []  # the first makes the database and compiles the modules
            async with place.program(size.rest) as (terminal, took):
                painted.append(took)
                idle = terminal.mb()
                first = [await _first_token(terminal, f"s{n}", size.between) for n in range(size.answers + 1)][1:]
            async with place.program(size.rest) as (terminal, took):
                painted.append(took)
                seconds, cpu = await _long_answer(terminal, size.tokens, size.between)
                after = terminal.mb()
            async with place.program(size.rest) as (terminal, took):
                painted.append(took)
                echo = await _echo(terminal, size.keys, size.between)
            await tui_thread.write(place.database, place.work, size.messages)
            async with place.program(size.rest) as (terminal, took):
                painted.append(took)
                opened = await _open(terminal, size.between)
                scrolled = [await _page_up(terminal, size.between) for _ in range(size.pages)]
    return {
        "paint_s": round(statistics.median(painted), 3),
        "first_token_ms": round(1000 * statistics.median(first), 1),
        "tokens_20k_s": round(seconds, 2),
        "tokens_20k_cpu_s": round(cpu, 2),
        "echo_ms": {"p50": round(1000 * statistics.median(echo), 1), "max": round(1000 * max(echo), 1)},
        "idle_mb": round(idle, 1),
        "after_mb": round(after, 1),
        "open_10k_s": round(opened, 3),
        "scroll_ms": {
            "p50": round(1000 * percentile(scrolled, 0.5), 1),
            "p95": round(1000 * percentile(scrolled, 0.95), 1),
            "max": round(1000 * max(scrolled), 1),
        },
    }


class _Place:
    """Home and workspace of the benchmark."""

    def __init__(self, folder: Path, url: str) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        home = folder / "home"
        home.mkdir()
        self.database = home / "data" / "sakti" / "sakti.db"
        self._env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "x",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            **{f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")},
        }

    @asynccontextmanager
    async def program(self, rest: float = 0.0) -> AsyncGenerator[tuple[Terminal, float]]:
        """Run the program; yield it once painted and the seconds that took, after `rest` seconds to settle."""
        argv = [sys.executable, "-m", "sakti", "--model", "openai/bench"]
        async with Terminal(argv, self._env, self.work) as terminal:
            took = await terminal.until(PAINTED) - terminal.began
            await asyncio.sleep(rest)
            yield terminal, took


async def _ask(terminal: Terminal, text: str, between: float) -> float:
    """Type a question and send it; return the time of Enter."""
    terminal.keys(text)
    await terminal.until(text)
    await asyncio.sleep(between)
    at = time.perf_counter()
    terminal.keys("\r")
    return at


async def _first_token(terminal: Terminal, mark: str, between: float) -> float:
    at = await _ask(terminal, question(mark, 60), between)
    first = await terminal.until(begin(mark))
    await terminal.until(end(mark))
    await asyncio.sleep(2 * between)
    return first - at


async def _long_answer(terminal: Terminal, tokens: int, between: float) -> tuple[float, float]:
    """Return the seconds from Enter to the last token of a long answer, and the CPU seconds until rest."""
    before = terminal.cpu_s()
    at = await _ask(terminal, question("long", tokens), between)
    took = await terminal.until(end("long")) - at
    used = terminal.cpu_s()
    for _ in range(30):
        await asyncio.sleep(3 * between)
        now = terminal.cpu_s()
        if now - used < 0.05:
            break
        used = now
    return took, terminal.cpu_s() - before


async def _open(terminal: Terminal, between: float) -> float:
    """Return the seconds from Enter after the name of a long thread to its newest message."""
    await _first_token(terminal, "h", between)  # the first key loads what an answer needs, as it does for anybody
    at = await _ask(terminal, f"/resume {tui_thread.TITLE}", between)
    took = await terminal.until(tui_thread.NEWEST) - at
    await asyncio.sleep(2 * between)
    return took


async def _page_up(terminal: Terminal, between: float) -> float:
    """Return the CPU seconds of a page up, with what it loads and draws."""
    before = terminal.run_s()
    terminal.keys("\x1b[5~")
    await terminal.until(tui_thread.EVERYWHERE)
    await asyncio.sleep(between / 3)
    return terminal.run_s() - before


async def _echo(terminal: Terminal, keys: int, between: float) -> list[float]:
    """Return the seconds from a key to its letter in the prompt while an answer streams."""
    await _ask(terminal, question("echo", int(RATE * (4 + keys * (between + 0.1))), RATE), between)
    await terminal.until(begin("echo"))
    await asyncio.sleep(3 * between)
    typed = "qzjx"  # no word of the answer
    terminal.keys(typed)
    await terminal.until(typed)
    found: list[float] = []
    for number in range(keys):
        letter = "qzjx"[number % 4]
        typed = (typed + letter)[-60:]
        at = time.perf_counter()
        terminal.keys(letter)
        found.append(await terminal.until(typed) - at)
        await asyncio.sleep(between)
    terminal.keys("\x15")  # ctrl+u: as a draft it would come back in the next prompt
    await terminal.until(PAINTED)
    return found
