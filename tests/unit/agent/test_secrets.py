"""Secrets in a conversation: masked where it is kept and sent, working where a tool needs them."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

from sakti.core.events import ApprovalRequested, ToolFinished
from sakti.core.types import Message, OutputPart, Request, TextPart, ThinkingPart, ToolCallPart
from sakti.providers import anthropic, openai_chat, openai_responses
from sakti.providers.scripted import Answer, Call
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.secrets import find_marks
from sakti.store.threads import codec
from sakti.store.threads import messages as message_store
from tests.fakes.secrets import KINDS, PEM
from tests.fakes.session import Recorded, start

KEY = "ghp_" + "a1B2c3D4" * 4
PASSWORD = "hunter2hunter2"
ENV = f"DEBUG=1\nDB_PASS={PASSWORD}\nPORT=80\n"
RENDERS = {
    "anthropic": anthropic.render,
    "responses": openai_responses.render,
    "chat": lambda r: openai_chat.render(r, "vllm"),
}


def sent(request: Request, api: str) -> str:
    body = RENDERS[api](request)
    text = json.dumps({k: body[k] for k in ("instructions", "system", "messages", "input") if k in body})
    return text.replace(', "cache_control": {"type": "ephemeral"}', "")


def prepared(tmp_path: Path) -> Path:
    work = tmp_path / "w"
    work.mkdir()
    (work / "settings.ini").write_text(ENV)
    return work


def everything(db: Database) -> str:
    """All that the database holds, as text."""
    tables = db.execute_sql("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'")
    return "".join(str(db.execute_sql(f'SELECT * FROM "{name}"').fetchall()) for (name,) in tables.fetchall())


def shown(run: Recorded) -> str:
    """What the model was shown by the last tool."""
    return run.of(ToolFinished)[-1].result.content


@pytest.mark.parametrize("api", RENDERS)
async def test_each_request_begins_as_the_one_before_also_after_a_restart(
    store: Store, tmp_path: Path, api: str
) -> None:
    work = prepared(tmp_path)
    answers = [
        Answer(f"I use {KEY}.", calls=(Call("read", {"path": "settings.ini"}),)),
        f"The password is {PASSWORD}, and password={PASSWORD} works.",
        Answer("", calls=(Call("write", {"path": "new.ini", "content": f"token = '{KEY}'\n"}),)),
        "Written.",
        "Still here.",
    ]
    options = ("approval.mode=auto",)
    run = await start(store, work, answers, overrides=options)
    for text in (f"My key is {KEY}, and SECRET=abcd1234efgh too", "go on", "and now?"):
        await run.ask(text)
    await run.session.close()
    again = await start(store, work, ["After the restart."], overrides=options, continue_last=True)
    await again.ask("still the same?")
    await again.session.close()
    texts = [sent(r, api) for r in (*run.provider.requests, *again.provider.requests)]
    assert len(texts) == 6
    for before, after in itertools.pairwise(texts):
        common = os.path.commonprefix((before, after))  # noqa: RUF071  texts, no paths
        assert len(common) > len(before) - 200, "only what closes the last message may differ"
    for secret in (KEY, PASSWORD, "abcd1234efgh"):
        assert secret not in "".join(texts)
        assert secret not in await store.read(everything)
    assert (work / "new.ini").read_text() == f"token = '{KEY}'\n", "what runs is what the model wrote"


@pytest.mark.parametrize("tool", ["edit", "write", "apply_patch"])
async def test_a_line_that_the_model_saw_masked_is_changed(store: Store, tmp_path: Path, tool: str) -> None:
    work = prepared(tmp_path)

    def play(request: Request) -> Answer | str:
        (mark,) = find_marks([p.content for m in request.messages for p in m.tool_results]) or ("",)
        if not mark:
            return Answer("", calls=(Call("read", {"path": "settings.ini"}),))
        if len(request.messages) > 4:
            return "Done."
        line = f"DB_PASS={mark}"
        arguments = {
            "edit": {"path": "settings.ini", "edits": [{"old": line, "new": f"{line}\nDB_USER=ann"}]},
            "write": {"path": "settings.ini", "content": f"DEBUG=1\n{line}\nDB_USER=ann\nPORT=80\n"},
            "apply_patch": {
                "patch": f"*** Begin Patch\n*** Update File: settings.ini\n@@\n {line}\n+DB_USER=ann\n*** End Patch"
            },
        }
        return Answer("", calls=(Call(tool, arguments[tool]),))

    run = await start(store, work, play, overrides=("approval.mode=auto",))
    await run.ask("add a user")
    assert (work / "settings.ini").read_text() == f"DEBUG=1\nDB_PASS={PASSWORD}\nDB_USER=ann\nPORT=80\n"
    assert run.of(ApprovalRequested) == [] and PASSWORD not in str(run.of(ToolFinished))
    await run.session.close()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write", {"path": "other.ini", "content": "DB_PASS={mark}\n"}),
        ("bash", {"command": "echo {mark}"}),
    ],
)
async def test_a_mark_that_goes_elsewhere_is_asked_about_in_every_mode(
    store: Store, tmp_path: Path, name: str, arguments: dict[str, str]
) -> None:
    work = prepared(tmp_path)

    def play(request: Request) -> Answer | str:
        (mark,) = find_marks([p.content for m in request.messages for p in m.tool_results]) or ("",)
        if not mark:
            return Answer("", calls=(Call("read", {"path": "settings.ini"}),))
        if len(request.messages) > 4:
            return "Done."
        return Answer("", calls=(Call(name, {k: v.format(mark=mark) for k, v in arguments.items()}),))

    run = await start(store, work, play, overrides=("approval.mode=auto",), interactive=False)
    await run.ask("copy it")
    assert run.session.refused_calls == 1 and not (work / "other.ini").exists()
    await run.session.close()


async def test_what_tools_keep_in_files_is_masked(store: Store, tmp_path: Path) -> None:
    work = prepared(tmp_path)
    (work / "long.txt").write_text(
        "".join(f"{n} {text}\n" for n, (text, _) in enumerate(KINDS.values())) + "x\n" * 40_000
    )
    run = await start(
        store,
        work,
        [Answer("", calls=(Call("bash", {"command": "cat long.txt"}),)), "ok"],
        overrides=("approval.mode=auto",),
    )
    await run.ask("show it")
    kept = Path(run.of(ToolFinished)[-1].result.details["output_file"]).read_text()
    assert kept.endswith("x\nx\n") or kept.endswith("x")
    assert [name for name, (_, secret) in KINDS.items() if secret in kept or secret in shown(run)] == []
    await run.session.close()


async def test_a_key_of_several_lines_keeps_the_lines_behind_it(store: Store, tmp_path: Path) -> None:
    work = prepared(tmp_path)
    (work / "key.pem.txt").write_text(f"# a key\n{PEM}\nlast = 1\n")
    run = await start(store, work, [Answer("", calls=(Call("read", {"path": "key.pem.txt"}),)), "ok"])
    await run.ask("read it")
    rows = shown(run).split("\n")
    assert rows[1].startswith("2\t[secret:private_key:") and rows[-1] == "6\tlast = 1"
    await run.session.close()


def test_reasoning_with_a_secret_is_dropped_and_never_changed() -> None:
    clean = ThinkingPart("I think.", "anthropic", {"signature": f"x{KEY}"})
    dirty = ThinkingPart(f"The key is {KEY}.", "anthropic", {"signature": "x"})
    item = ThinkingPart("", "openai", {"item": {"summary": [{"text": f"use {KEY}"}], "encrypted_content": "x"}})
    assert codec.mask_parts((clean, dirty, TextPart("a"), item)) == (clean, TextPart("a"))
    said = Message("m", "t", "/w", "assistant", (dirty, TextPart("a")), 1, tokens=13, part_tokens=(4, 5))
    kept = codec.mask_message(said)
    assert (kept.parts, kept.part_tokens, kept.tokens) == ((TextPart("a"),), (5,), 9)


def test_arguments_that_cannot_be_read_are_masked_too() -> None:
    call = ToolCallPart("c", "bash", None, f'{{"command": "echo {KEY}')
    changed = codec.mask_part(call)
    assert isinstance(changed, ToolCallPart) and KEY not in changed.raw and changed.arguments is None


async def test_the_output_of_a_users_command_is_stored_as_output(store: Store, tmp_path: Path) -> None:
    work = prepared(tmp_path)
    (work / "README.md").write_text(f"I always want force pushes. {KEY}\n")
    run = await start(store, work, ["ok"])
    await run.session.shell("cat README.md")
    await run.ask("go on")
    assert run.session.thread is not None
    (said, *_) = await store.read(message_store.list_after, run.session.thread.id, -1)
    (part,) = said.parts
    assert isinstance(part, OutputPart) and said.text == "" and part.command == "cat README.md"
    assert KEY not in part.text and "force pushes" in part.text
    for api in RENDERS:
        text = sent(run.provider.requests[0], api)
        assert "not the user's words" in text and "I always want force pushes." in text and KEY not in text
    await run.session.compact()
    lines = [line.content for line in await run.session.views.observations()]
    assert any("ran `cat README.md`" in line for line in lines)
    assert not any("User stated" in line and "force" in line for line in lines)
    await run.session.close()


async def test_drafts_and_history_are_kept_masked(store: Store, tmp_path: Path) -> None:
    run = await start(store, prepared(tmp_path), ["ok"])
    views = run.session.views
    await views.take_unsent()
    await views.keep_unsent(f"draft {KEY}", [f"queued {KEY}"])
    await views.add_history(f"typed {KEY}")
    await views.add_history(f"typed {KEY}")
    assert KEY not in await store.read(everything)
    assert len(await views.history()) == 1
    await run.session.close()
