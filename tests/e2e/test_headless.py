"""`sakti run`: what it prints and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.e2e.conftest import Place
from tests.e2e.server import Reply, Said


def test_text_json_stream_and_stdin(place: Place) -> None:
    place.model.play("the notes", Reply("I'll look.", calls=(("read", {"path": "notes.txt"}),)), "It drains.")
    text = place.run("run", "the notes", "--model", "openai/bench")
    assert (text.returncode, text.stdout) == (0, "It drains.\n")
    assert "read" in text.stderr and "notes.txt" in text.stderr

    whole = place.run(
        "-p", "--model", "anthropic/claude-sonnet-4-5", "--output", "json", stdin="the notes, from a pipe"
    )
    result = json.loads(whole.stdout)
    assert whole.returncode == 0
    assert set(result) == {"thread_id", "text", "status", "steps", "usage", "cost_usd", "error"}
    assert (result["text"], result["status"], result["steps"], result["error"]) == ("It drains.", "answered", 2, None)
    assert result["usage"]["output_tokens"] == 20

    stream = place.run("run", "read", "--model", "openai/bench", "--output", "stream-json", stdin="the notes")
    events = [json.loads(line) for line in stream.stdout.splitlines()]
    kinds = [e["type"] for e in events]
    assert stream.returncode == 0 and kinds[-1] == "result" and events[-1]["text"] == "It drains."
    for kind in (
        "turn_started",
        "step_started",
        "text_delta",
        "tool_started",
        "tool_finished",
        "message_saved",
        "turn_finished",
    ):
        assert kind in kinds, kinds
    assert "".join(e["text"] for e in events if e["type"] == "text_delta") == "I'll look.It drains."
    asked = [m.text for m in place.model.requests[-1] if m.role == "user"]
    assert "read\n\nthe notes" in asked[0]  # behind what is carried over

    on = place.run("run", "-c", "and the notes again", "--model", "openai/bench")
    assert on.returncode == 0
    assert place.rows("SELECT count(*) FROM messages GROUP BY thread_id ORDER BY 1") == [(4,), (4,), (8,)]
    place.sound()


def test_a_call_is_shown_with_its_main_argument_and_booleans_only_with_their_names(place: Place) -> None:
    edits = {"path": "notes.txt", "edits": [{"old": "not there", "new": "x"}], "all": True}
    place.model.play("change them", Reply("", calls=(("edit", edits),)), "Done.")
    assert "▸ edit  notes.txt\n" in place.run("run", "change them", "--model", "openai/bench").stderr
    shown = place.run("threads", "show", place.threads()[0]).stdout
    assert "path: notes.txt\n" in shown and "all: true" in shown


def test_no_save_reads_all_and_keeps_nothing(place: Place) -> None:
    place.model.play("the notes", "It drains at midnight.")
    place.model.play("what did", "You asked about the notes.")
    assert place.run("run", "the notes", "--model", "openai/bench").returncode == 0
    before = {p.name: p.read_bytes() for p in place.home.glob("sakti.db*")}
    done = place.run("-c", "--no-save", "-p", "what did I ask?", "--model", "openai/bench")
    assert (done.returncode, done.stdout) == (0, "You asked about the notes.\n")
    assert "Nothing is saved in this run" in done.stderr
    assert "It drains at midnight." in [m.text for m in place.model.requests[-1]]
    assert {p.name: p.read_bytes() for p in place.home.glob("sakti.db*")} == before
    whole = place.run("run", "--no-save", "what did I ask?", "--model", "openai/bench", "--output", "json")
    assert json.loads(whole.stdout)["thread_id"] is None, "there is nothing to resume"
    for command in (("observe",), ("reflect",), ("pause",), ("pin", "x"), ("working", "--update", "# A\nb")):
        refused = place.run("memory", *command, "-o", "memory.read_only=true")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "Memory is read-only here" in refused.stderr
        assert refused.stderr.count("\n") == 1
    place.sound()


def test_exit_codes(place: Place) -> None:
    place.model.play("fail please", Reply(status=400))
    place.model.play("write please", Reply("", calls=(("bash", {"command": "rm notes.txt"}),)), "I could not.")
    place.model.play("again please", *(Reply("", calls=(("read", {"path": "notes.txt"}),)) for _ in range(9)))
    named = ("--model", "openai/bench", "--output", "json")

    failed = place.run("run", "fail please", *named)
    assert (failed.returncode, json.loads(failed.stdout)["status"]) == (1, "error")
    assert json.loads(failed.stdout)["error"]

    for wrong in (
        ("run", "x", "--output", "xml"),
        ("run", ""),
        ("run", "x", "-o", "no.such=1"),
        ("nosuch",),
        ("run", "--resume", "nosuch", "x"),
    ):
        done = place.run(*wrong)
        assert done.returncode == 2, (wrong, done.returncode, done.stderr)
        assert done.stderr.strip() and "Traceback" not in done.stderr

    limit = place.run("run", "again please", "--max-steps", "2", *named)
    assert (limit.returncode, json.loads(limit.stdout)["status"]) == (3, "limit")

    refused = place.run("run", "write please", *named)
    assert (refused.returncode, json.loads(refused.stdout)["status"]) == (4, "refused")
    assert json.loads(refused.stdout)["text"] == "I could not." and (place.folder / "notes.txt").exists()

    env = {k: v for k, v in place.env.items() if not k.endswith(("_API_KEY", "_BASE_URL"))}
    alone = subprocess.run(
        [sys.executable, "-m", "sakti", "run", "x", "--output", "json"],
        cwd=place.folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert alone.returncode == 5, alone.stderr
    place.sound()


def test_interrupted_keeps_what_was_said(place: Place) -> None:
    place.model.play("long please", Reply("A long answer that never ", hold=True))
    process = subprocess.Popen(
        [sys.executable, "-m", "sakti", "run", "long please", "--model", "openai/bench", "--output", "stream-json"],
        cwd=place.folder,
        env=place.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while '"text_delta"' not in process.stdout.readline():
            assert process.poll() is None
        assert place.model.holding.wait(20)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=40)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["status"] == "interrupted"
    rows = place.messages()
    assert [r for r, _ in rows] == ["user", "assistant"] and "A long answer that" in rows[1][1]
    place.sound()


HANGS = """
import asyncio, time
from sakti.agent.session.session import Session
from sakti.cli import main

async def stay():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def close(self):
    print("closing", flush=True)
    {hang}

Session.close = close
main()
"""


def end_hanging(place: Place, hang: str, *signals: signal.Signals) -> int:
    """Return the exit code of a run whose closing hangs, after these signals."""
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS.format(hang=hang), "run", "hello", "--model", "openai/bench"],
        cwd=place.folder,
        env=place.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ok\n", "closing\n"]
        for number in signals:
            process.send_signal(number)
        return process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=10)


@pytest.mark.parametrize("hang", ["await stay()", "while True: time.sleep(0.1)"])
def test_a_second_signal_ends_a_run_that_hangs(place: Place, hang: str) -> None:
    assert end_hanging(place, hang, signal.SIGTERM, signal.SIGINT) == 130


def test_a_task_that_refuses_to_end_does_not_hold_up_the_end(place: Place) -> None:
    assert end_hanging(place, "self.stay = asyncio.create_task(stay())") == 0


@pytest.mark.parametrize("output", ["text", "json"])
def test_database_removed_during_a_run_is_reported(place: Place, output: str) -> None:
    answer = place.model.answer

    def remove_and_answer(said: list[Said], *, observer: bool) -> Reply:
        place.path.unlink(missing_ok=True)
        return answer(said, observer=observer)

    place.model.answer = remove_and_answer
    done = place.run("run", "hello", "--model", "openai/bench", "--output", output)
    assert done.returncode == 0 and "ok" in done.stdout
    assert "sakti.db was removed while it was in use. Saving has stopped" in done.stderr
