"""An app on a fake session, in a home of its own, at a fixed hour."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time

import pytest
import textual.app
import textual.pilot
from textual import constants
from textual.worker import WorkerCancelled

from sakti.tui.app import SaktiApp
from tests.tui.fakes import FakeSession


async def quiet(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """Wait until nothing is ready to run and no thread works, at most `max_sleep` seconds.

    Textual's own waits 20 ms at least, twice a key: half of the time of these tests.
    """
    loop = asyncio.get_running_loop()
    end, calm = time.monotonic() + max_sleep, 0
    while calm < 2 and time.monotonic() < end:
        worked = time.process_time()
        await asyncio.sleep(0.002)
        soon = loop.time() + 0.01  # what is due then may be late only because the machine is busy
        due = loop._ready or any(h.when() < soon and not h.cancelled() for h in loop._scheduled)
        calm = calm + 1 if time.process_time() - worked < 0.0003 and not due else 0


@pytest.fixture(autouse=True, scope="session")
def _short_waits():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textual.app, "wait_for_idle", quiet)
        patch.setattr(textual.pilot, "wait_for_idle", quiet)
        yield


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()


@pytest.fixture
def session(tmp_path):
    return FakeSession(tmp_path)


async def settle(app, pilot):
    """Until no worker runs and everything is drawn."""
    for _ in range(3):
        await pilot.pause()
        with contextlib.suppress(WorkerCancelled):  # a newer one has taken its place
            await app.workers.wait_for_complete()
    app.chat.transcript._flush()
    await pilot.pause()


@pytest.fixture
def running(session):
    """`async with running(size) as (app, pilot)`: the app, its session started."""

    @contextlib.asynccontextmanager
    async def start(size=(120, 35), **options):
        app = SaktiApp(session, **options)
        async with app.run_test(size=size) as pilot:
            await settle(app, pilot)
            yield app, pilot

    return start


def screen_text(app) -> str:
    """What stands on the screen, line by line, from the strips that are really painted."""
    lines = app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in lines)


def chat_text(app) -> str:
    """Everything in the transcript, drawn."""
    document = app.chat.transcript.document
    return "\n".join("".join(s.text for s in line) for i in range(len(document.blocks)) for line in document.lines(i))


@pytest.fixture
def snap_compare(snap_compare, monkeypatch):
    """Pictures are taken of what neither blinks nor glides."""
    monkeypatch.setattr(constants, "TEXTUAL_ANIMATIONS", "none")
    return snap_compare


@pytest.fixture
def script(tmp_path, monkeypatch):
    """An editor that runs `code` with the file's path in `path`; the screen is lent to it."""
    monkeypatch.setattr(SaktiApp, "suspend", contextlib.nullcontext)

    def write(code: str) -> None:
        file = tmp_path / "an editor.py"
        file.write_text(f"import pathlib, sys\npath = pathlib.Path(sys.argv[-1])\n{code}\n")
        monkeypatch.setenv("VISUAL", f"{sys.executable} '{file}' --wait")

    return write
