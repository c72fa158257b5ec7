"""The program as a person has it: typed at in a terminal, read from its screen, compared with its database."""

from __future__ import annotations

import re
import signal

import pytest

from tests.e2e.conftest import Place
from tests.e2e.server import Reply
from tests.e2e.terminal import Terminal

LOOK = (
    Reply(
        "I'll look.",
        calls=(("read", {"path": "notes.txt"}), ("bash", {"command": "command printf the-shell-was-here"})),
    ),
    Reply("It drains **at midnight**, truly."),
)


def restored(terminal: Terminal) -> None:
    """The alternate screen is left and the cursor shown, in that state for good."""
    raw = terminal.raw
    assert raw.rfind(b"\x1b[?1049l") > raw.rfind(b"\x1b[?1049h") >= 0
    assert raw.rfind(b"\x1b[?25h") > raw.rfind(b"\x1b[?25l")


def numbers(terminal: Terminal, name: str) -> str:
    """`104 of 30k` of the Memory pane's row `name`; empty while it is being painted."""
    found = re.search(rf"{name}\s+[█▒░┃]*\s+(\S+ of \S+)", terminal.text)
    return found[1] if found else ""


def pane(place: Place) -> tuple[str, str]:
    """What the Memory pane must show, from the database."""
    from sakti.core.text import count_k

    status = place.json("memory", "status")["windows"]["active"]
    short = [
        f"{count_k(g['tokens'])} of {count_k(g['threshold']).replace('.0k', 'k')}"
        for g in (status["messages"], status["observations"])
    ]
    return short[0], short[1]


@pytest.mark.parametrize("name", ["openai/bench", "anthropic/claude-sonnet-4-5"])
def test_ask_approve_quit_and_come_back(place: Place, name: str) -> None:
    place.model.play("into the notes", *LOOK)
    with place.open(model=name) as t:
        t.started()
        t.say("please look into the notes")
        t.allow()
        t.until("It drains at midnight, truly.")
        t.until_idle()
        assert "**" not in t.text
        assert t.quit() == 0
        restored(t)
    rows = place.messages()
    assert [role for role, _ in rows] == ["user", "assistant", "tool", "assistant"]
    assert rows[0][1] == "please look into the notes"
    assert "the queue drains at midnight" in rows[2][1] and "the-shell-was-here" in rows[2][1]
    assert rows[3][1] == "It drains **at midnight**, truly."
    place.sound()

    with place.open("-c", model=name) as t:
        t.until("truly")
        assert "please look into the notes" in t.text and "command printf the-shell-was-here" in t.text
        t.started()
        wanted = pane(place)[0]
        t.until(lambda _: numbers(t, "Messages") == wanted, f"{wanted} on the pane")
        assert t.quit() == 0
    assert place.messages() == rows


def test_killed_in_mid_answer_it_goes_on(place: Place) -> None:
    place.model.play("first thing", "First answer, whole.")
    place.model.play(
        "second thing",
        Reply("I'll look.", calls=(("read", {"path": "notes.txt"}),)),
        Reply("A long answer that never ", hold=True),
    )
    place.model.play("third thing", "Third answer, whole.")
    with place.open() as t:
        t.started().say("the first thing", "First answer, whole.")
        t.until_idle()
        t.say("the second thing", "answer that never")
        assert place.model.holding.is_set()
        t.process.send_signal(signal.SIGKILL)
        assert t.ended() == -signal.SIGKILL
    assert [r for r, _ in place.messages()] == ["user", "assistant", "user", "assistant", "tool"]

    with place.open("-c") as t:
        t.started().until("the second thing")
        assert "First answer, whole." in t.text and "answer that never" not in t.text
        t.say("the third thing", "Third answer, whole.")
        assert t.quit() == 0
    assert [m.text.split("\n")[0] for m in place.model.requests[-1]][:2] == ["the first thing", "First answer, whole."]
    assert "the queue drains at midnight" in str(place.model.requests[-1])
    place.sound()


def test_killed_while_a_tool_runs_its_call_is_answered(place: Place) -> None:
    place.model.play("run it", Reply("", calls=(("bash", {"command": "touch begun; sleep 600"}),)))
    with place.open("-o", "approval.allow=['bash']") as t:
        t.started().say("run it", lambda _: (place.folder / "begun").exists())
        t.process.send_signal(signal.SIGKILL)
        t.ended()
    place.model.play("still there", "Here I am.")
    with place.open("-c") as t:
        t.started().say("are you still there?", "Here I am.")
        assert t.quit() == 0
    rows = place.messages()
    assert [r for r, _ in rows] == ["user", "assistant", "tool", "user", "assistant"]
    assert "interrupted" in rows[2][1]
    place.sound()


FOUND = {
    3: ("auth.ts", "the bug is in src/auth.ts at line 40"),
    4: ("C++", "rewrite it in C++ please"),
    5: ("what's", "now what's up with that"),
    6: ("🦄", "a unicorn 🦄 for you"),
}


def test_search_finds_and_goes_there(seeded: Place) -> None:
    with seeded.open("-c") as t:
        t.started().until("question number 29")
        for query, text in FOUND.values():
            t.say(f"/search {query}", lambda screen, text=text: re.search(r"\d found", screen) and text in screen)  # type: ignore[misc]
            t.keys("\r")
            t.until(lambda screen, text=text: text in screen and " found" not in screen, "the message in the chat")  # type: ignore[misc]
            assert "question number 29" not in t.text
        assert t.quit() == 0


@pytest.fixture
def seeded(place: Place) -> Place:
    """A thread of sixty messages, told by a script without a screen."""
    import asyncio

    from sakti.core.clock import SystemClock, TimeIds
    from sakti.core.tokens import O200k, count_parts, sum_message_tokens
    from sakti.core.types import Message, TextPart, Thread
    from sakti.store.database import Store
    from sakti.store.threads import messages, threads

    async def fill() -> None:
        store = await Store.open(place.path)
        ids, counter, now = TimeIds(SystemClock()), O200k(), SystemClock().now()
        thread = Thread(ids.new(), str(place.folder), "Sixty messages", now, now)
        await store.write(threads.create, thread)
        for number in range(30):
            said = FOUND[number][1] if number in FOUND else f"question number {number}"
            for role, text in (("user", said), ("assistant", f"answer number {number}\n\n" + "and so on\n\n" * 3)):
                parts = (TextPart(text),)
                counted = count_parts(counter, parts)
                await store.write(
                    messages.append,
                    Message(
                        ids.new(),
                        thread.id,
                        thread.resource_id,
                        role,
                        parts,
                        now,
                        tokens=sum_message_tokens(counted),  # type: ignore[arg-type]
                        part_tokens=counted,
                        token_counter=counter.name,
                    ),
                )
        await store.close()

    asyncio.run(fill())
    return place


def test_compact_and_undo_change_and_restore_the_pane(seeded: Place) -> None:
    with seeded.open("-c") as t:
        t.started()
        before = pane(seeded)
        t.until(lambda _: (numbers(t, "Messages"), numbers(t, "Observations")) == before, f"{before} on the pane")
        t.say("/compact", "Compacted")
        after = pane(seeded)
        assert after[0] != before[0] and after[1] != before[1]
        t.until(lambda _: (numbers(t, "Messages"), numbers(t, "Observations")) == after, f"{after} on the pane")
        t.say("/compact undo", "Compaction undone")
        assert pane(seeded) == before
        t.until(lambda _: (numbers(t, "Messages"), numbers(t, "Observations")) == before, f"{before} on the pane")
        assert t.quit() == 0
    seeded.sound()


def test_thirty_turns_in_small_windows(place: Place) -> None:
    place.model.play(
        "queue, please",
        Reply("I'll read it.", calls=(("read", {"path": "notes.txt"}),)),
        Reply("It says that the queue drains at midnight. " * 4 + "Done."),
    )
    place.env["SAKTI_MEMORY__OBSERVATION__MESSAGE_TOKENS"] = "2000"  # as -o sets it, for `memory status` too
    with place.open() as t:
        t.started()
        activated = 0
        for number in range(26):
            t.say(f"{number:02}: the queue, please", lambda _, n=number: len(place.messages()) == 4 * (n + 1))  # type: ignore[misc]
            t.until_idle()
            activated += "Memory activated" in t.text
        assert activated
        t.until(lambda text: "running" not in text, "the background's end")
        wanted = pane(place)
        t.until(lambda _: (numbers(t, "Messages"), numbers(t, "Observations")) == wanted, f"{wanted} on the pane")
        assert "The agent read notes.txt" in t.text
        assert t.quit() == 0
    assert place.model.observed > 1
    (active,) = place.rows("SELECT count(*) FROM observation_groups WHERE state = 'active'")[0]
    assert active > 0
    place.sound()


def test_two_windows_on_one_database(place: Place) -> None:
    place.model.play(
        "queue, please", Reply("I'll read it.", calls=(("read", {"path": "notes.txt"}),)), Reply("It drains.")
    )
    with place.open() as one, place.open() as two:
        one.started()
        two.started()
        for number in range(4):
            one.say(f"one, {number}: the queue, please")
            two.say(f"two, {number}: the queue, please")
            # both are read: a terminal that nobody reads stops its program
            one.until(lambda _, n=number: two.read(0) and len(place.messages()) == 8 * (n + 1), "both answers")  # type: ignore[misc]
            for t in (one, two):
                t.until_idle()
        for t in (one, two):
            assert "locked" not in t.text
            assert t.quit() == 0
    counts = place.rows("SELECT count(*), max(message_index) FROM messages GROUP BY thread_id")
    assert counts == [(16, 15), (16, 15)]
    assert len(place.json("threads", "list")["threads"]) == 2
    place.sound()


def test_two_windows_on_one_thread(place: Place) -> None:
    place.model.play("hold on", Reply("A long answer that never ", hold=True))
    place.model.play("my turn", "It is yours.")
    with place.open() as one:
        one.started().say("please hold on", "answer that never")
        with place.open("-c") as two:
            two.started().until("please hold on")
            two.say("my turn", "This thread is in use in another window")
            assert [r for r, _ in place.messages()] == ["user"]
            one.keys("\x1b")
            one.until("Interrupted")
            two.say("now my turn", "It is yours.")
            assert two.quit() == 0
        assert one.quit() == 0
    assert [r for r, _ in place.messages()] == ["user", "assistant", "user", "assistant"]
    assert "A long answer that never" in place.model.requests[-1][1].text
    place.sound()
