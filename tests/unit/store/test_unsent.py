"""What was not sent survives its window and goes to the next one of its workspace, once."""

from __future__ import annotations

import socket

from sakti.store import user_state
from sakti.store.database import Store
from tests.fakes.clock import FakeClock

DEAD = f"{socket.gethostname()}:4194999:aa"  # above the highest process id that Linux gives by default
DAY = 24 * 3_600_000


async def test_a_window_that_is_gone_leaves_its_draft_and_queue_to_the_next(tmp_path):
    from sakti.store.leases import new_owner

    mine, other = new_owner(), new_owner()
    store = await Store.open(tmp_path / "s.db", clock=FakeClock())
    keep, take = user_state.keep_unsent, user_state.take_unsent
    await store.write(keep, "w", DEAD, "half a", (), 1)
    await store.write(keep, "w", DEAD, "half a sentence", ("first", "second"), 2)
    await store.write(keep, "w", other, "alive", ("not mine",), 3)
    await store.write(keep, "elsewhere", DEAD, "another workspace", (), 4)
    await store.write(keep, "w", "someone", "left behind", (), 5, left=True)

    assert await store.write(take, "w", mine, 6) == ("half a sentence\n\nleft behind", ["first", "second"])
    assert await store.write(take, "w", new_owner(), 7) == ("", [])  # it is mine now
    await store.write(keep, "w", mine, "changed", (), 8, left=True)
    assert await store.write(take, "w", mine, 9) == ("changed", [])
    await store.write(keep, "w", mine, "  \n", (), 10)
    assert await store.write(take, "w", new_owner(), 11) == ("", [])
    # a process id that lives for days without a change may be anybody's
    assert await store.write(take, "w", new_owner(), 4 + 2 * DAY) == ("alive", ["not mine"])
    await store.close()
