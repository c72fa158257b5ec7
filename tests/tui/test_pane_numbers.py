"""Every number of the memory pane is the store's, after every turn of a long run with observing in the background."""

from __future__ import annotations

import os
import re
from typing import Any

from sakti.agent.session import initial_thread
from sakti.agent.session.session import Options, Session
from sakti.core.events import to_json
from sakti.core.text import count_k
from sakti.core.tokens import Estimator
from sakti.core.types import Usage
from sakti.providers.scripted import Answer
from sakti.tui.app import SaktiApp
from tests.fakes.memory import ScriptedReflector
from tests.tui.conftest import screen_text, settle
from tests.tui.real import real_session, say

TURNS = int(os.environ.get("SAKTI_TEST_TURNS", "12"))  # more of them by hand


def stored(db: Any, record: str, thread: str) -> dict[str, Any]:
    """The pane's numbers, by SQL alone."""

    def one(sql: str, *values: Any) -> Any:
        return db.execute_sql(sql, values).fetchone()

    (cursor,) = one(
        "SELECT coalesce(max(last_index), -1) FROM observation_groups WHERE record_id = ?"
        " AND state IN ('active', 'superseded') AND kind = 'observation'",
        record,
    )
    (pending,) = one(
        "SELECT coalesce(sum(token_count), 0) FROM messages WHERE thread_id = ? AND message_index > ?", thread, cursor
    )
    (waiting,) = one(
        "SELECT count(*) FROM observations o JOIN observation_groups g ON g.id = o.group_id"
        " WHERE g.record_id = ? AND g.state = 'buffered' AND g.kind = 'observation' AND o.forgotten = 0",
        record,
    )
    (generation,) = one("SELECT generation_count FROM observational_memory WHERE id = ?", record)
    (lines,) = one(
        "SELECT count(*) FROM observations o JOIN observation_groups g ON g.id = o.group_id"
        " WHERE g.record_id = ? AND o.forgotten = 0"
        " AND (g.state = 'active' OR (g.state = 'buffered' AND g.kind = 'observation'))",
        record,
    )
    read, cached, cost = one("SELECT sum(input_tokens), sum(cached_tokens), sum(cost_usd) FROM steps")
    return {
        "pending": pending, "waiting": waiting, "generation": generation, "lines": lines,
        "read": read, "cached": cached, "cost": cost,
    }  # fmt: skip


def pane_shows(text: str, found: dict[str, Any], observed: int) -> None:
    def has(pattern: str) -> None:
        assert re.search(pattern, text), f"{pattern!r} is not in\n{text}"

    def k(tokens: int) -> str:
        return f"≈?{re.escape(count_k(tokens))}"

    has(rf"Messages .* {k(found['pending'])} of 900")
    has(rf"Observations .* {k(observed)} of 500")
    assert ("not yet in the context" in text) == bool(found["waiting"])
    assert ("frees" in text) <= bool(found["waiting"]) and "frees 0" not in text and "frees ≈0" not in text
    has(rf"Cache {found['cached'] / found['read']:.0%} · \${found['cost']:.2f}")
    has(rf"▾ Observations +{found['lines'] or ''}")


async def test_the_pane_says_what_the_store_holds(store, tmp_path):
    used = Usage(1_000, 900, 10, 50, 0, 0.01)
    answers = [Answer(f"Service {n} is on {n}00 now. " + f"step {n} of it " * 25, usage=used) for n in range(TURNS)]
    overrides = ("memory.observation.message_tokens=900", "memory.reflection.observation_tokens=500")
    session = real_session(store, tmp_path / "w", *answers, overrides=overrides)
    app = SaktiApp(session)
    seen: set[str] = set()
    async with app.run_test(size=(140, 90)) as pilot:
        await settle(app, pilot)
        session.current.engine._worker.reflector = ScriptedReflector()
        for n in range(TURNS):
            await say(app, pilot, f"remember that service {n} listens on {n}00, and why: " + f"reason {n} " * 20)
            await session.current.engine.wait_idle()
            await settle(app, pilot)
            store.clock.advance(60)
            record, thread = session.current.engine.record_id, session.thread.id
            found = await store.read(stored, record, thread)
            blocks = session.current.engine.preview().blocks
            pane_shows(screen_text(app), found, session.current.engine.status().observations.tokens)
            log = sum(b.tokens for b in blocks if b.kind in ("observations", "reflection"))
            assert session.current.engine.status().observations.tokens == log, "what the actor is sent"
            seen |= {e.kind for e in app.chat.sidebar.memory.all_events()}
        shown = to_json(session.current.engine.status())
    assert {"observed", "activated", "reflected", "taken_over"} <= seen
    again = Session(
        Options(tmp_path / "w", session.workspace.config, env=session.workspace.env, continue_last=True),
        clock=store.clock,
        counter=Estimator(),
        provider=session.workspace.models.provider,
        model=session.workspace.models.info,
        store=store,
    )
    await initial_thread.open_read_only(again.current)  # as `sakti memory status` does
    told = to_json(again.current.status)
    assert told == shown | {key: told[key] for key in ("step_number", "reflector")}
    await again.close()
