"""What a past step sent can be shown again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sakti.agent.threads import history
from sakti.core.calls import format_parts
from sakti.providers.scripted import Answer, Call
from sakti.store.threads import messages, removal
from tests.fakes import session as fakes


@pytest.fixture
async def run(store, tmp_path: Path):
    made = await fakes.start(
        store,
        tmp_path / "w",
        [
            Answer("I look.", calls=(Call("ls", {}),)),
            Answer("Nothing there."),
            Answer("Second."),
        ],
    )
    yield made
    await made.session.close()


async def test_each_step_is_shown_as_it_was_sent(run, store):
    await run.ask("what is here?")
    await run.ask("and now?")
    thread = run.session.thread.id
    sent = run.provider.requests
    assert len(sent) == 3
    for number, request in enumerate(sent, 1):
        past = await store.read(history.read_request, thread, number)
        pieces = [p for p in past.pieces if p.kind != "tools"]
        assert [p.text for p in pieces] == [
            *(b.text for b in request.system),
            *(format_parts(m.parts) for m in request.messages),
            *([request.tail] if request.tail else []),
        ]
        assert past.pieces[0].kind == "tools"
        definitions = [
            f"{t.name}: {t.description}\n{json.dumps(t.parameters, ensure_ascii=False)}" for t in request.tools
        ]
        assert past.pieces[0].text == "\n\n".join(definitions)
        assert past.step.number == number
    assert (await store.read(history.read_request, thread)).step.number == 3
    assert await store.read(history.read_request, thread, 4) is None


async def test_what_was_sent_before_is_kept_once(run, store):
    await run.ask("what is here?")
    before = await store.read(messages.read_request_texts, run.session.thread.id)
    await run.ask("and now?")
    after = await store.read(messages.read_request_texts, run.session.thread.id)
    assert before and set(after.values()) - set(before.values()) == set()


async def test_a_message_that_was_removed_for_good_is_in_no_request(run, store):
    await run.ask("the password is hunter2")
    await run.ask("and now?")
    thread = run.session.thread
    past = await store.read(history.read_request, thread.id, 1)
    (mine,) = [p for p in past.pieces if p.kind == "user"]
    assert "hunter2" in mine.text
    message = (await run.session.views.transcript(thread.id))[mine.index]
    await store.write(removal.delete_messages, message.id, store.clock.now())
    for number in (1, 2):
        past = await store.read(history.read_request, thread.id, number)
        assert all("hunter2" not in p.text for p in past.pieces)


async def test_the_chat_shows_it_by_number(run, store):
    await run.ask("what is here?")
    views = run.session.views
    blocks = await views.past_request(2)
    assert [b.text for b in blocks if b.kind == "user"] == ["what is here?"]
    assert all(b.tokens for b in blocks if b.text)
    assert await views.past_request(9) == []
