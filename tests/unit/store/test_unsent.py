"""What was not sent survives its window and goes to the next one of its workspace, once."""

from __future__ import annotations

import socket

from sakti.core.types import Message, Role, TextPart, Thread
from sakti.store import user_state
from sakti.store.database import Store
from sakti.store.threads import messages, threads
from sakti.store.user_state import Unsent
from tests.fakes.clock import FakeClock

DEAD = f"{socket.gethostname()}:4194999:aa"  # above the highest process id that Linux gives by default
DAY = 24 * 3_600_000


async def test_a_window_that_is_gone_leaves_its_draft_and_queue_to_the_next(tmp_path):
    from sakti.store.leases import make_owner

    mine, other = make_owner(), make_owner()
    store = await Store.open(tmp_path / "s.db", clock=FakeClock())
    keep, take = user_state.save_unsent, user_state.take_unsent
    await store.write(keep, "w", DEAD, Unsent("half a"), 1)
    await store.write(keep, "w", DEAD, Unsent("half a sentence", ("first", "second")), 2)
    await store.write(keep, "w", other, Unsent("alive", ("not mine",)), 3)
    await store.write(keep, "elsewhere", DEAD, Unsent("another workspace"), 4)
    await store.write(keep, "w", "someone", Unsent("left behind"), 5, is_closing=True)

    assert await store.write(take, "w", mine, 6) == ("half a sentence\n\nleft behind", ["first", "second"])
    assert await store.write(take, "w", make_owner(), 7) == ("", [])  # it is mine now
    await store.write(keep, "w", mine, Unsent("changed"), 8, is_closing=True)
    assert await store.write(take, "w", mine, 9) == ("changed", [])
    await store.write(keep, "w", mine, Unsent("  \n"), 10)
    assert await store.write(take, "w", make_owner(), 11) == ("", [])
    # a process id that lives for days without a change may be anybody's
    assert await store.write(take, "w", make_owner(), 4 + 2 * DAY) == ("alive", ["not mine"])
    await store.close()


async def test_what_was_sent_before_it_was_forgotten_is_not_unsent(tmp_path):
    mine = "host:1:mine"
    store = await Store.open(tmp_path / "s.db", clock=FakeClock())
    keep, take = user_state.save_unsent, user_state.take_unsent
    await store.write(threads.create, Thread("th", "w", "", 1, 1))

    async def say(text: str, role: Role, at: int) -> None:
        message = Message(f"{role}{at}", "th", "w", role, (TextPart(text),), at)
        await store.write(messages.append, message)

    await say("yes", "user", 5)
    await store.write(keep, "w", DEAD, Unsent("and then w", ("yes", "yes", "go on")), 10)
    await say("yes", "user", 10)
    await say("go on", "assistant", 11)
    await say("and then we leave", "user", 12)
    await say("go on", "user", 9)
    assert await store.write(take, "w", mine, 20) == ("", ["yes", "go on"]), "one of the two went out"
    await store.close()
