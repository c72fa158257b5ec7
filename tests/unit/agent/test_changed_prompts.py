"""A prompt that a processor changes: what was typed is kept nowhere, in no file and in no request."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from sakti.agent.processors.base import Processor, TurnInput, abort
from sakti.agent.processors.builtin import SecretRedactor
from sakti.core.config import Config, HookSettings, load
from sakti.core.errors import SaktiError
from sakti.core.events import Notice
from sakti.core.types import TextPart
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.session import Recorded, start

PROJECT = "Project Bluebird"
TYPED = f"Plan the launch of {PROJECT} for me"
COPY = f"{sys.executable} -c \"import sys; open('seen.txt', 'a').write(sys.stdin.read())\""
BLOCKS = f"{COPY}; exit 2"


class Redacts(Processor):
    async def process_input(self, turn: TurnInput) -> TurnInput:
        message = turn.message
        texts = [replace_in(p) if isinstance(p, TextPart) else p for p in message.parts]
        return structs.replace(turn, message=structs.replace(message, parts=tuple(texts)))


class Refuses(Processor):
    async def process_input(self, turn: TurnInput) -> TurnInput:
        abort("not this") if PROJECT in turn.message.text else None
        return turn


def replace_in(part: TextPart) -> TextPart:
    return structs.replace(part, text=part.text.replace(PROJECT, "[the project]"))


def config(*hooks: str, overrides: tuple[str, ...] = ()) -> Config:
    made = load(overrides=("memory.model=extractive", *overrides)).config
    return replace(made, hooks=tuple(HookSettings("UserPromptSubmit", command) for command in hooks))


def written(store: Store, words: str) -> list[str]:
    """Names of the database's files that hold `words`."""
    files = [store.path.with_name(store.path.name + end) for end in ("", "-wal", "-journal")]
    return [f.name for f in files if f.exists() and words.encode() in f.read_bytes()]


async def type_in(run: Recorded, text: str) -> None:
    """Do what a window does with a prompt: keep the draft, send it, add it to the history."""
    await run.session.views.keep_unsent(text[:-3], [])
    await run.session.views.keep_unsent(text, [])
    await run.session.submit(text)
    await run.session.views.add_history(text)


def sent(run: Recorded, number: int = -1) -> str:
    request = run.provider.requests[number]
    texts = [str(p) for m in request.messages for p in m.parts]
    return "\n".join([*(b.text for b in request.system), *texts, request.tail])


async def test_what_was_typed_is_in_no_file_and_in_no_later_request(store: Store, tmp_path: Path) -> None:
    answers = ["planned", "Launch", "well", "Launch", "and now"]
    run = await start(store, tmp_path / "w", answers, config=config(COPY), processors=(Redacts(),))
    await run.session.views.take_unsent()
    await type_in(run, TYPED)
    await run.session.wait()
    assert run.session.thread is not None and run.session.thread.title == "Plan the launch of [the project] for me"
    assert await run.session.views.history() == ["Plan the launch of [the project] for me"]
    assert "[the project]" in (tmp_path / "w/seen.txt").read_text()
    await run.session.new_thread()
    assert (await run.ask("What did we do before?")).status == "answered"
    assert "[the project]" in sent(run)  # carried over from the first thread
    assert all(PROJECT not in sent(run, n) for n in range(len(run.provider.requests)))
    assert written(store, "[the project]") != [] and written(store, PROJECT) == []
    await run.session.close()
    assert PROJECT not in (tmp_path / "w/seen.txt").read_text()
    assert written(store, PROJECT) == []


@pytest.mark.parametrize("history_first", [True, False])
async def test_the_history_has_what_was_sent_whichever_is_written_first(
    store: Store, tmp_path: Path, history_first: bool
) -> None:
    run = await start(store, tmp_path / "w", ["ok"], processors=(Redacts(),))
    if history_first:
        await run.session.views.add_history(TYPED)
    await run.ask(TYPED)
    if not history_first:
        await run.session.views.add_history(TYPED)
    assert await run.session.views.history() == [TYPED.replace(PROJECT, "[the project]")]
    assert written(store, PROJECT) == []


async def test_a_queued_prompt_is_forgotten_when_the_turn_takes_it(store: Store, tmp_path: Path) -> None:
    answers = [Answer(calls=[Call("bash", {"command": "until [ -e go ]; do sleep 0.02; done"})]), "both done"]
    settings = config(COPY, overrides=("approval.allow=['bash']",))
    run = await start(store, tmp_path / "w", answers, config=settings, processors=(Redacts(),))
    await run.session.views.take_unsent()
    await run.session.submit("start")
    await run.session.submit(TYPED)
    await run.session.views.keep_unsent("", run.session.queued)
    assert written(store, PROJECT) != []  # a crash now would lose it otherwise
    (tmp_path / "w/go").touch()
    await run.session.wait()
    assert "[the project]" in sent(run) and PROJECT not in sent(run)
    assert "[the project]" in (tmp_path / "w/seen.txt").read_text()
    assert PROJECT not in (tmp_path / "w/seen.txt").read_text()
    assert written(store, PROJECT) == []
    assert await run.session.views.take_unsent() == ("", [])


async def test_the_model_that_names_threads_sees_what_was_sent(store: Store, tmp_path: Path) -> None:
    settings = config(overrides=("title_model=scripted/small",))
    run = await start(store, tmp_path / "w", ["ok", "A title"], config=settings, processors=(Redacts(),))
    await run.ask(TYPED)
    for _ in range(200):
        if len(run.provider.requests) > 1:
            break
        await asyncio.sleep(0.01)
    assert "[the project]" in sent(run, 1) and PROJECT not in sent(run, 1)
    await run.session.close()


async def test_a_refused_prompt_gives_no_title(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["ok"], config=config(COPY), processors=(Refuses(),))
    assert (await run.ask(TYPED)).status == "tripwire"
    assert not (tmp_path / "w/seen.txt").exists()
    assert run.session.thread is not None and run.session.thread.title == ""
    await run.ask("Something else entirely, please")
    assert run.session.thread.title == "Something else entirely, please"
    assert written(store, PROJECT) == []


async def test_a_hook_that_blocks_a_changed_prompt_has_seen_the_change_only(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["ok"], config=config(BLOCKS), processors=(Redacts(),))
    with pytest.raises(SaktiError, match="no reason") as blocked:
        await run.session.submit(TYPED)
    assert blocked.value.title == "Blocked by a hook"
    assert not run.session.busy and not run.provider.requests
    assert PROJECT not in (tmp_path / "w/seen.txt").read_text()
    assert written(store, PROJECT) == [] and not run.session.queued


async def test_a_queued_prompt_that_a_hook_blocks_holds_up_no_other(store: Store, tmp_path: Path) -> None:
    blocks = "grep -q project && { echo 'no projects' >&2; exit 2; } || true"
    answers = [Answer(calls=[Call("bash", {"command": "until [ -e go ]; do sleep 0.02; done"})]), "done"]
    settings = config(blocks, overrides=("approval.allow=['bash']",))
    run = await start(store, tmp_path / "w", answers, config=settings, processors=(Redacts(),))
    for text in ("start", TYPED, "and then this"):
        await run.session.submit(text)
    (tmp_path / "w/go").touch()
    await run.session.wait()
    assert "and then this" in sent(run) and "launch" not in sent(run)
    assert not run.session.queued
    assert [n.message for n in run.of(Notice) if n.title == "Blocked by a hook"] == ["no projects"]


async def test_the_secret_redactor_masks_what_hooks_see(store: Store, tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "aB3dE5gH7jK9" * 4
    run = await start(store, tmp_path / "w", ["ok"], config=config(COPY), processors=(SecretRedactor(),))
    await run.ask(f"use {key} for it")
    seen = (tmp_path / "w/seen.txt").read_text()
    assert "for it" in seen and key not in seen and written(store, key) == []


async def test_a_prompt_that_no_processor_changes_is_handled_as_before(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["ok"], config=config(COPY), processors=(Redacts(),))
    await run.session.views.take_unsent()
    await type_in(run, "Nothing secret in this one")
    await run.session.wait()
    assert run.session.thread is not None and run.session.thread.title == "Nothing secret in this one"
    assert await run.session.views.history() == ["Nothing secret in this one"]
    with sqlite3.connect(store.path) as db:
        assert db.execute("SELECT count(*) FROM unsent").fetchone() == (1,)  # the window itself empties it


async def test_a_run_that_saves_nothing_takes_a_changed_prompt(store: Store, tmp_path: Path) -> None:
    settings = config(COPY, overrides=("memory.read_only=true",))
    run = await start(store, tmp_path / "w", ["ok"], config=settings, processors=(Redacts(),))
    assert (await run.ask(TYPED)).status == "answered"
    assert "[the project]" in sent(run) and PROJECT not in sent(run)
