"""Child threads on the screen: a line for each, its transcript, the list, and stopping one."""

from __future__ import annotations

from sakti.providers.scripted import Answer, Call
from sakti.tui.app import SaktiApp
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.real import real_session, say

GOAL = "where is the retry policy decided?"
QUOTE = "policy.decide(call, times)"
FINDING = {"claim": "the policy decides", "file": "http.py", "lines": "1", "quote": QUOTE}
REPORT = {"summary": "The policy.", "findings": [FINDING], "not_found": ["a cap"], "gaps": []}
ANSWERS = (
    Answer(calls=(Call("agent", {"mode": "explore", "goal": GOAL}),)),
    Answer("I look into it.", calls=(Call("read", {"path": "http.py"}),)),
    Answer(calls=(Call("report", REPORT),)),
    Answer("The policy decides."),
)


async def test_child_is_a_line_that_opens_its_transcript(store, tmp_path):
    work = tmp_path / "w"
    work.mkdir()
    (work / "http.py").write_text(f"{QUOTE}\n")
    session = real_session(store, work, *ANSWERS)
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "explore it with a child")
        line = next(x for x in chat_text(app).split("\n") if "✓ explore  where is the retry" in x)
        assert "1 of 1 quote found · 1 not found" in line
        await pilot.press("f6", "[")
        await settle(app, pilot)
        while "enter follows the child" not in screen_text(app):
            await pilot.press("[")
            await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "I look into it." in screen_text(app) and f"explore › {GOAL}" in screen_text(app)
        await pilot.press("escape", "escape")
        await settle(app, pilot)
        app.run_command("/agents")
        await pilot.pause()
        await settle(app, pilot)
        assert "Child threads 1" in screen_text(app) and GOAL in screen_text(app)
        await pilot.press("x")
        await settle(app, pilot)
        assert "not running" in screen_text(app)
