"""The public API, as the help page shows it and as a script uses it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import Place
from tests.e2e.server import Reply

ROOT = Path(__file__).parents[2]


def play(place: Place, code: str) -> subprocess.CompletedProcess[str]:
    env = {**place.env, "SAKTI_MODEL": "openai/bench"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=place.folder, env=env, capture_output=True, text=True, timeout=60
    )


def test_the_example_of_the_help_page(place: Place) -> None:
    place.model.play("in the notes", Reply("I'll look.", calls=(("read", {"path": "notes.txt"}),)), "It drains.")
    example, _ = re.findall(r"```python\n(.*?)```", (ROOT / "sakti/help/scripting.md").read_text("utf-8"), re.DOTALL)
    done = play(place, example)
    assert (done.returncode, done.stdout, done.stderr) == (0, "tool: read\nanswered It drains.\n", "")
    place.sound()
    (thread,) = place.threads()
    first = place.run("threads", "request", thread, "1")
    assert first.returncode == 0 and "── user 0\nWhat is in the notes?\n" in first.stdout
    sent = place.json("threads", "request", thread)
    assert (sent["step"], sent["pieces"][-1]["kind"]) == (2, "tool"), "the newest, which was sent the result"
    none = place.run("threads", "request", thread, "3")
    assert (none.returncode, none.stderr) == (1, "sakti: This thread has no step 3 whose request is kept.\n")


def test_ids_of_the_callers_own(place: Place) -> None:
    place.model.play("first", "One.")
    place.model.play("second", "Two.")
    code = """
import asyncio, sakti
async def main():
    mine = sakti.Options.load(resource_id="job-7", thread_id="ticket-12", interactive=False)
    for prompt in ("first", "second"):
        end = await sakti.ask(prompt, mine)
        print(end.thread_id, end.text)
asyncio.run(main())
"""
    done = play(place, code)
    assert (done.returncode, done.stdout) == (0, "ticket-12 One.\nticket-12 Two.\n"), done.stderr
    assert place.rows("SELECT id, resource_id FROM threads") == [("ticket-12", "job-7")]
    foreign = play(place, code.replace("job-7", "job-8"))
    assert "The thread ticket-12 belongs to job-7" in foreign.stderr
    place.sound()
