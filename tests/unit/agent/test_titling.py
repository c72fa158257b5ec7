"""A thread is named by the model of `title_model` after its first answer, once; what anybody else named stays."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sakti.core.events import Notice, ThreadChanged
from sakti.core.types import Request, Thread, join_plain_text
from sakti.providers.scripted import Answer, Played
from sakti.store.database import Store
from sakti.store.threads import runs
from sakti.store.threads import threads as stored_threads
from tests.fakes.clock import FakeClock
from tests.fakes.session import Recorded, start

ON = ("title_model=scripted/small",)
FIRST = "the redirect after login loses ?next="


@pytest.fixture
async def store(tmp_path: Path):
    opened = await Store.open(tmp_path / "s.db", clock=FakeClock(), synchronous="NORMAL")
    yield opened
    await opened.close()


class Names:
    """Answers "fine" to the user, and `titles` in their order to whoever asks for one; keeps those requests."""

    def __init__(self, *titles: Played) -> None:
        self.titles = list(titles)
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Played:
        if request.model != "small":
            return "It goes to / now."
        self.asked.append(request)
        return self.titles.pop(0)


async def named(recorded: Recorded) -> Thread:
    """The thread as it is stored when nothing is under way any more."""
    task = recorded.session.turns._titling._task
    if task is not None:
        await asyncio.wait_for(asyncio.shield(task), 30)
    stored = await recorded.session.workspace.store.read(stored_threads.get, recorded.session.thread.id)
    assert stored is not None
    return stored


async def test_a_thread_is_named_once_after_its_first_answer(store: Store, tmp_path: Path) -> None:
    names = Names('Title: "Login loses ?next="\n\nmore words.')
    recorded = await start(store, tmp_path / "w", names, overrides=ON)
    await recorded.ask(FIRST)
    assert (await named(recorded)).title == "Login loses ?next="
    assert recorded.of(ThreadChanged)[-1].thread.title == recorded.session.thread.title == "Login loses ?next="
    (request,) = names.asked
    shown = join_plain_text(request.messages[0].parts)
    assert FIRST in shown and "It goes to / now." in shown
    await recorded.ask("and now?")
    assert (await named(recorded)).title == "Login loses ?next=" and len(names.asked) == 1
    used = await store.read(runs.load_total_usage, recorded.session.thread.id, "observer")
    assert used.input_tokens > 0, "its cost counts as the memory's"
    await recorded.session.close()


async def test_without_the_setting_nobody_is_asked(store: Store, tmp_path: Path) -> None:
    names = Names()
    recorded = await start(store, tmp_path / "w", names)
    await recorded.ask(FIRST)
    assert (await named(recorded)).title == FIRST and names.asked == []
    await recorded.session.close()


async def test_a_title_of_the_users_stays(store: Store, tmp_path: Path) -> None:
    names = Names("Another title")
    recorded = await start(store, tmp_path / "w", names, overrides=ON)
    await recorded.session.rename("mine")
    await recorded.ask(FIRST)
    assert (await named(recorded)).title == "mine" and names.asked == []
    await recorded.session.close()


async def test_secrets_do_not_reach_it(store: Store, tmp_path: Path) -> None:
    key = "ghp_" + "a1B2" * 9
    names = Names(f"Use of {key}")
    recorded = await start(store, tmp_path / "w", names, overrides=ON)
    await recorded.ask(f"use the token {key} to push")
    assert key not in (await named(recorded)).title
    assert key not in join_plain_text(names.asked[0].messages[0].parts)
    await recorded.session.close()


@pytest.mark.parametrize("answer", ["", "```\n", Answer(error="auth", message="wrong key")])
async def test_where_there_is_no_title_the_first_one_stays(store: Store, tmp_path: Path, answer: Played) -> None:
    names = Names(answer, answer, answer)
    recorded = await start(store, tmp_path / "w", names, overrides=ON)
    for text in (FIRST, "again"):
        await recorded.ask(text)
        assert (await named(recorded)).title == FIRST
    told = [n.message for n in recorded.of(Notice) if n.title == "No title"]
    assert told == (["scripted/small: wrong key"] if isinstance(answer, Answer) else []), "a failure is told once"
    await recorded.session.close()


async def test_a_model_that_does_not_exist_is_named(store: Store, tmp_path: Path) -> None:
    recorded = await start(store, tmp_path / "w", ["fine"], overrides=("title_model=nobody/small",))
    await recorded.ask(FIRST)
    assert (await named(recorded)).title == FIRST
    assert [n.title for n in recorded.of(Notice)][-1] == "No title"
    await recorded.session.close()
