"""What is left when the window goes: on purpose, by a signal, or without warning."""

from __future__ import annotations

import signal

from tests.e2e.conftest import Place
from tests.e2e.server import Reply


def test_killed_with_a_queue_and_a_draft_it_brings_both_back_unsent(place: Place) -> None:
    place.model.play("first thing", Reply("A long answer that never ", hold=True))
    with place.open() as t:
        t.started()
        t.say("first thing", "that never")
        t.say("queued meanwhile", "queued: queued meanwhile")
        t.keys("half a sentence")
        t.until("half a sentence")
        t.until(lambda _: place.rows("SELECT draft FROM unsent") == [("half a sentence",)], "the draft in the store")
        t.process.send_signal(signal.SIGKILL)
        t.process.wait(10)
    with place.open("-c") as t:
        t.until("half a sentence")
        t.until("One message was queued when sakti ended")
        assert "queued meanwhile" in t.text
        t.keys("!")
        t.until("half a sentence!")
        assert t.quit() == 0
    assert [text for role, text in place.messages() if role == "user"] == ["first thing"]
    assert place.rows("SELECT count(*) FROM unsent") == [(0,)]
    place.sound()
