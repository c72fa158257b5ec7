"""`sakti run` as continuous integration uses it: schemas, limits, streams of messages, threads, signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import Place
from tests.e2e.server import Reply

NAMED = ("--model", "openai/bench")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def said(text: Any) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}}) + "\n"


def schema(place: Place, value: Any = SCHEMA) -> str:
    (place.folder / "schema.json").write_text(json.dumps(value))
    return "schema.json"


def test_an_answer_that_matches_the_schema_is_printed_as_json(place: Place) -> None:
    place.model.play("count please", '```json\n{"n": 3}\n```')
    done = place.run("run", "count please", "--json-schema", schema(place), *NAMED)
    assert (done.returncode, done.stdout) == (0, '{"n": 3}\n'), done.stderr
    asked = "\n".join(m.text for m in place.model.requests[-1])
    assert '"additionalProperties":false' in asked, "the model is told the schema"
    assert all('"additionalProperties"' not in text for _, text in place.messages()), "and nothing of it is stored"


def test_an_answer_is_repaired_twice_and_then_refused(place: Place) -> None:
    place.model.play("count please", "three")
    place.model.play("It is not JSON", '{"n": "x"}')
    place.model.play("is not of type 'integer'", '{"n": 3}')
    done = place.run("run", "count please", "--json-schema", schema(place), "--output", "json", *NAMED)
    result = json.loads(done.stdout)
    assert (done.returncode, result["structured_output"], result["steps"]) == (0, {"n": 3}, 3)

    place.model.play("is not of type 'integer'", '{"m": 3}')
    done = place.run("run", "count please", "--json-schema", schema(place), *NAMED)
    assert (done.returncode, done.stdout) == (3, "")
    assert "does not match the JSON Schema after 2 repairs" in done.stderr.splitlines()[-1]


def test_a_repair_gives_its_thread_no_title_and_is_not_a_message_of_the_user(place: Place) -> None:
    place.model.play("ok", "three")
    place.model.play("It is not JSON", '{"n": 3}')
    done = place.run("run", "ok", "--json-schema", schema(place), *NAMED)
    assert (done.returncode, done.stdout) == (0, '{"n": 3}\n'), done.stderr
    assert [title for (title,) in place.rows("SELECT title FROM threads")] == ["ok"]
    assert [text for role, text in place.messages() if role == "user"] == ["ok", ""]
    assert "the answer did not match the JSON Schema" in place.run("threads", "export", place.threads()[0]).stdout


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--json-schema", "none.json"), "there is no file none.json"),
        (("--json-schema", "notes.txt"), "cannot be read as JSON"),
        (("--json-schema", "wrong.json"), "is not a JSON schema"),
        (("--max-cost", "0"), "--max-cost takes a number above 0"),
        (("--max-cost", "inf"), "--max-cost takes a number above 0"),
        (("--timeout", "-1"), "--timeout takes a number above 0"),
        (("--timeout", "soon"), "is not a number"),
        (("--max-turns", "0"), "1 or more"),
        (("--allow", "nosuch"), "is not a rule"),
        (("--allow", "bash: 'git"), "is not a rule"),
        (("--allow", "read: x"), "is not a rule"),
        (("--input-format", "xml"), "--input-format: 'xml' is not one of text, stream-json"),
        (("--resume", ""), "--resume needs a thread"),
        (("--resume", "x", "--fork", "y"), "exclude each other"),
        (("--fork", "nosuch"), "No thread of this workspace matches"),
    ],
)
def test_what_cannot_be_exits_2_with_one_sentence(place: Place, given: tuple[str, ...], told: str) -> None:
    (place.folder / "wrong.json").write_text('{"type": "nosuch"}')
    done = place.run("run", "x", *given, *NAMED)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert told in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert place.model.requests == []


def test_messages_on_standard_input_are_answered_in_order(place: Place) -> None:
    place.model.play("first", "one")
    place.model.play("second", "two")
    lines = said("first") + "\n" + said([{"type": "text", "text": "second"}])
    done = place.run("run", "--input-format", "stream-json", "--output", "json", *NAMED, stdin=lines)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, [r["text"] for r in results]) == (0, ["one", "two"]), done.stderr
    assert len({r["thread_id"] for r in results}) == 1

    broken = place.run("run", "--input-format", "stream-json", *NAMED, stdin=said("first") + "{}\n" + said("second"))
    assert (broken.returncode, broken.stdout) == (2, "one\n")
    assert "line 2 of standard input is not a user message" in broken.stderr


def test_limits_hold_for_the_whole_run(place: Place) -> None:
    place.model.play("first", "one")
    lines = said("first") + said("first again")
    done = place.run("run", "--input-format", "stream-json", "--max-turns", "2", *NAMED, stdin=lines * 2)
    assert done.returncode == 3
    assert "The limit of 2 model calls for this run is reached (--max-turns)." in done.stderr
    assert len(place.model.requests) <= 2
    place.model.play("long please", Reply("Never ", hold=True))
    late = place.run("run", "long please", "--timeout", "0.9", "--output", "json", *NAMED)
    assert late.returncode == 3
    assert json.loads(late.stdout)["error"] == "The limit of 0.9 s for this run is reached (--timeout)."


def test_a_file_of_the_project_takes_no_name_of_sakti(place: Place) -> None:
    (place.folder / ".claude" / "commands").mkdir(parents=True)
    (place.folder / ".claude" / "commands" / "compact.md").write_text("evil")
    done = place.run("run", "/compact", "--trust", *NAMED)
    assert (done.returncode, place.model.requests) == (2, [])
    assert "a built-in command" in done.stderr


def test_a_rule_allows_what_would_be_refused(place: Place) -> None:
    place.model.play("make it", Reply("", calls=(("bash", {"command": "printenv HOME"}),)), "Done.")
    assert place.run("run", "make it", *NAMED).returncode == 4
    done = place.run("run", "make it", "--allow", "read", "--allow", "bash: printenv HOME", *NAMED)
    assert done.returncode == 0, done.stderr
    denied = ("-o", 'approval.deny=["bash: printenv"]')
    assert "denied by your rules" in place.run("run", "make it", "--allow", "bash: printenv", *denied, *NAMED).stderr


def test_another_folder_is_opened(place: Place) -> None:
    other = place.folder.parent / "library"
    other.mkdir()
    (other / "a.txt").write_text("found there\n")
    place.model.play("look", Reply("", calls=(("read", {"path": str(other / "a.txt")}),)), "Done.")
    assert place.run("run", "look", *NAMED).returncode == 4
    done = place.run("run", "look", "--add-dir", "../library", *NAMED)
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    assert any("found there" in r for m in place.model.requests[-1] for r in m.results.values())
    for wrong, told in (("a.txt", "is not one"), ("nowhere", "is not one"), ("/", "too wide"), ("~", "too wide")):
        refused = place.run("run", "look", "--add-dir", wrong, *NAMED)
        assert refused.returncode == 2 and told in refused.stderr, refused.stderr


def test_a_thread_is_resumed_and_forked(place: Place) -> None:
    place.model.play("first", "one")
    first = json.loads(place.run("run", "first", "--output", "json", *NAMED).stdout)["thread_id"]
    resumed = json.loads(place.run("run", "more", "--resume", first, "--output", "json", *NAMED).stdout)
    forked = json.loads(place.run("run", "other", "--fork", first, "--output", "json", *NAMED).stdout)
    assert resumed["thread_id"] == first != forked["thread_id"]
    assert "one" in [m.text for m in place.model.requests[-1]]
    counts = dict(place.rows("SELECT thread_id, count(*) FROM messages GROUP BY thread_id"))
    assert counts == {first: 4, forked["thread_id"]: 6}
    place.sound()


def test_settings_of_a_workspace_that_is_not_trusted_are_named(place: Place) -> None:
    (place.folder / ".sakti").mkdir()
    (place.folder / ".sakti" / "config.toml").write_text("[agent]\nmax_steps = 3\n")
    asked = place.home / "git-was-asked"
    program = place.home / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >> {asked}\nexit 1\n')
    program.chmod(0o755)
    place.env["PATH"] = f"{program.parent}:{place.env['PATH']}"
    (place.folder / ".git").mkdir()
    for output in ("text", "json"):
        done = place.run("run", "x", "--output", output, *NAMED)
        told = [line for line in done.stderr.splitlines() if "not trusted, so left out" in line]
        assert (done.returncode, len(told)) == (0, 1), done.stderr
        assert ".sakti/config.toml" in told[0] and "`sakti trust`" in told[0]
    assert not asked.exists(), "nor is git"
    assert "not trusted" not in place.run("run", "x", "--trust", *NAMED).stderr
    assert "config" in asked.read_text()


def test_many_runs_share_one_database(place: Place) -> None:
    place.run("run", "begin", *NAMED)
    several = ("run", "--input-format", "stream-json", *NAMED)

    def answer_five(number: int) -> subprocess.CompletedProcess[str]:
        return place.run(*several, stdin="".join(said(f"number {number}.{n}") for n in range(5)))

    with ThreadPoolExecutor(4) as runs:  # starting a process takes far longer than its writes
        ended = list(runs.map(answer_five, range(4)))
    assert [(e.returncode, e.stdout) for e in ended] == [(0, "ok\n" * 5)] * 4, [e.stderr for e in ended if e.returncode]
    assert place.rows("SELECT count(*) FROM messages") == [(42,)]
    place.sound()


def test_a_terminated_run_leaves_a_thread_that_continues(place: Place) -> None:
    place.model.play("long please", Reply("A long answer that never ", hold=True))
    process = subprocess.Popen(
        [sys.executable, "-m", "sakti", "run", "long please", "--output", "stream-json", *NAMED],
        cwd=place.folder,
        env=place.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while '"text_delta"' not in process.stdout.readline():  # so that an answer is stored
            assert process.poll() is None
        assert place.model.holding.wait(30)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=40)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
    assert process.returncode == 130
    place.model.play("go on", "ok")
    on = place.run("run", "-c", "go on", *NAMED)
    assert (on.returncode, on.stdout) == (0, "ok\n"), on.stderr
    assert [role for role, _ in place.messages()] == ["user", "assistant", "user", "assistant"]
    place.sound()


def test_a_run_that_waits_for_messages_ends_when_it_is_terminated(place: Place) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sakti", "run", "--input-format", "stream-json", *NAMED],
        cwd=place.folder,
        env=place.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(said("hello"))
        process.stdin.flush()
        assert process.stdout.readline() == "ok\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=10)
