"""`python -m tests.bench repair` with a model behind a server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.bench.repair.catalog import chosen
from tests.e2e.conftest import Place
from tests.e2e.server import Reply

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "tests.bench", "repair", "--model", "openai/bench",
           "--only", "py-page-end", "--only", "py-retry-none", "--json")  # fmt: skip


def start(place: Place) -> subprocess.Popen[str]:
    return subprocess.Popen(COMMAND, cwd=ROOT, env=place.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)  # fmt: skip


def test_a_run_that_was_broken_off_goes_on_where_it_was(place: Place) -> None:
    (change,) = chosen(["py-page-end"])[0].solution
    edits = [{"old": change.old, "new": change.new}]
    place.model.play(
        '"next" link',
        Reply(calls=(("read", {"path": change.file}),)),
        Reply(calls=(("edit", {"path": change.file, "edits": edits}),)),
        "It counted one page too many.",
    )
    place.model.play("NoneType", Reply("I am looking at ", hold=True))
    process = start(place)
    try:
        assert place.model.holding.wait(180)
        process.send_signal(signal.SIGTERM)
        out, told = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert "py-page-end            solved" in told

    place.model.play("NoneType", "I cannot find it.")
    asked = len(place.model.requests)
    process = start(place)
    out, told = process.communicate(timeout=180)
    assert process.returncode == 1, told
    found = json.loads(out)
    assert [(r["name"], r["outcome"], r["logged"]) for r in found["repairs"]] == [
        ("py-page-end", "solved", True),
        ("py-retry-none", "unsolved", False),
    ]
    assert (found["model"], found["solved"], found["run"], found["steps"]) == ("openai/bench", 1, 2, 4)
    assert found["repairs"][0]["input_tokens"] > 0
    assert len(place.model.requests) == asked + 1
    assert not place.path.exists(), "a repair has a database of its own"
    assert place.model.wrong == []
