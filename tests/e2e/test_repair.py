"""`sakti bench repair` with a model behind a server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from sakti.bench.repair.catalog import chosen
from tests.e2e.conftest import Place
from tests.e2e.server import Reply

COMMAND = ("bench", "repair", "--model", "openai/bench", "--only", "py-page-end", "--only", "py-retry-none", "--json")


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
    process = subprocess.Popen(
        [sys.executable, "-m", "sakti", *COMMAND],
        cwd=place.folder,
        env=place.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
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
    done = place.run(*COMMAND)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert [(r["name"], r["outcome"], r["logged"]) for r in found["repairs"]] == [
        ("py-page-end", "solved", True),
        ("py-retry-none", "unsolved", False),
    ]
    assert (found["model"], found["solved"], found["run"], found["steps"]) == ("openai/bench", 1, 2, 4)
    assert found["repairs"][0]["input_tokens"] > 0
    assert len(place.model.requests) == asked + 1
    assert not place.path.exists(), "a repair has a database of its own"
    assert place.model.wrong == []
