"""Tasks through the whole program: what is said about one is found after a compaction, and a chat keeps its claim."""

from __future__ import annotations

import json

from tests.e2e.conftest import Place
from tests.e2e.server import Reply


def mutate(**arguments: object) -> tuple[str, dict[str, object]]:
    return "task-mutate", arguments


def test_a_task_its_messages_and_its_summary_are_found_after_a_compaction(place: Place) -> None:
    place.model.play(
        "the walrus pump leaks", Reply("", calls=(mutate(action="create", title="mend the pump"),)), "Noted."
    )
    place.model.play(
        "take it", Reply("", calls=(mutate(action="claim", id="t"),)), "The gasket of the zebra valve was worn."
    )
    place.model.play(
        "it holds", Reply("", calls=(mutate(action="close", id="t", summary="new heron seal in pump.py"),)), "Closed."
    )
    with place.open() as terminal:
        terminal.started()
        terminal.say("the walrus pump leaks", "Noted.")
        terminal.say("take it", "The gasket of the zebra valve was worn.")
        terminal.say("it holds", "Closed.")
        terminal.say("something else", "")
        terminal.keys("/compact\r")
        terminal.until("ompacted")
        terminal.quit()
    (task,) = place.json("tasks", "list", "--all")["tasks"]
    assert (task["status"], task["summary"]) == ("closed", "new heron seal in pump.py")
    linked = place.json("tasks", "show", task["handle"])["messages"]
    assert any("walrus" in m["text"] for m in linked)
    assert any("zebra" in m["text"] for m in linked)
    for word, source in (("walrus", "compacted"), ("zebra", "compacted"), ("heron", "task")):
        found = place.json("search", word)["results"]
        assert any(r["source"] == source and word in r["snippet"] for r in found), (word, found)
    searched = place.json("tasks", "search", "heron")["tasks"]
    assert [t["id"] for t in searched] == [task["id"]]
    place.sound()


def test_a_chat_keeps_its_claim_and_loses_it_to_nobody_while_it_lives(place: Place) -> None:
    made = place.json("tasks", "create", "mend the pump")["task"]["handle"]
    claim = Reply("", calls=(mutate(action="claim", id=made),))
    place.model.play("begin with it", claim, "Begun.")
    place.model.play("go on with it", claim, "Going on.")
    place.model.play("me too", claim, "Not mine.")
    named = ("--model", "openai/bench", "--output", "json")
    assert place.run("run", "begin with it", *named).returncode == 0
    assert place.json("tasks", "ready")["tasks"][0]["claimEnded"]  # its process has ended
    assert place.run("run", "-c", "go on with it", *named).returncode == 0
    answers = place.rows(
        "SELECT sakti_text(raw_content, parts) FROM messages WHERE role = 'tool' ORDER BY message_index"
    )
    assert [json.loads(a)["success"] for (a,) in answers] == [True, True]
    linked = place.json("tasks", "show", made)["messages"]
    assert {m["text"] for m in linked if m["role"] == "user"} >= {"go on with it"}
    with place.open("-c") as terminal:  # the chat is open again: its claim is live
        terminal.started()
        refused = place.run("tasks", "close", made, "-s", "done", "--as", "ann", "--json")
        told = json.loads(refused.stdout)
        assert (refused.returncode, told["code"]) == (1, "already_claimed")
        assert 'the thread "begin with it"' in told["error"]
        other = place.run("run", "me too", *named)
        assert other.returncode == 0
        terminal.quit()
    assert place.json("tasks", "claim", made, "--as", "ann")["task"]["claimedBy"] == "shell:ann"
    place.sound()
