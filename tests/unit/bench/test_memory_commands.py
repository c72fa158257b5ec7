"""The benchmarks and `sakti memory …` as a shell sees them: output and exit codes, without a terminal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from sakti.core.types import Message, TextPart, Thread
from sakti.store.database import Store
from sakti.store.threads import messages, threads
from tests.bench import golden
from tests.fakes.shell import Ended, bench, sakti


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "SAKTI_DB", "SAKTI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    workspace = tmp_path / "work"
    (workspace / ".git").mkdir(parents=True)
    monkeypatch.chdir(workspace)
    return tmp_path


def told(*arguments: str) -> dict[str, object]:
    return read_json(sakti(*arguments, "--json"))


def read_json(result: Ended) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def talk(home: Path) -> None:
    store = await Store.open(home / "data" / "sakti" / "sakti.db", synchronous="NORMAL")
    now, workspace = store.clock.now(), str(Path.cwd())
    await store.write(threads.create, Thread("th1", workspace, "Talk", now, now))
    for number in range(10):
        part = TextPart(f"I decided that part {number} is in src/auth/token{number}.py. " + "Really. " * 30)
        await store.write(
            messages.append,
            Message(
                store.ids.new(),
                "th1",
                workspace,
                "user" if number % 2 == 0 else "assistant",
                (part,),
                now,
                tokens=400,
                part_tokens=(396,),
                token_counter="o200k_base",
            ),
        )
    await store.close()


def test_a_log_is_made_read_put_right_and_brought_back(home: Path) -> None:
    asyncio.run(talk(home))
    done = told("memory", "observe", "-o", 'memory.model="extractive"')
    assert done["messages"] == 8
    lines = told("memory", "log")["lines"]
    assert isinstance(lines, list)
    assert "no line of this log is in one" in sakti("memory", "log", "--category", "attempts").output
    line = lines[0]
    assert told("memory", "pin", line["id"])["action"] == "pin"
    assert told("memory", "edit", line["id"][-8:], "It is otherwise.")["after"] == "It is otherwise."
    assert told("memory", "forget", line["id"])["after"] == ""
    assert told("memory", "restore")["after"] == "It is otherwise."
    assert told("memory", "restore", line["id"])["after"] == line["content"]
    assert told("memory", "at", "0" * 12)["lines"] == []
    change = told("memory", "diff", "1h")
    assert isinstance(change["added"], list)
    assert len(change["added"]) == len(lines)
    whole = told("memory", "export")
    assert {"thread", "groups", "lines", "working_memory", "status"} <= whole.keys()
    assert told("memory", "working", "--update", '{"db": "sqlite"}')["changed"] == ["db"]
    for command in (["log"], ["at", "now"], ["diff", "1h"], ["export"], ["working"], ["status"]):
        assert sakti("memory", *command).exit_code == 0
    assert sakti("memory", "edit", "nowhere", "x").exit_code == 1
    assert sakti("memory", "at", "soon").exit_code == 2


def test_nothing_to_look_at() -> None:
    assert sakti("memory", "log").exit_code == 0
    assert "No observations yet." in sakti("memory", "log", "--category", "attempts").output
    assert sakti("memory", "export").exit_code == 1


def test_golden_says_how_it_went(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    case = {"id": "a", "fn": "formatTemporalGap", "args": [0], "output": golden.run("formatTemporalGap", [0])}
    path.write_text(json.dumps({"cases": [case]}))
    assert read_json(bench("golden", str(tmp_path), "--json")) == {
        "passed": 1,
        "total": 1,
        "unknown": [],
        "functions": [{"file": "v.json", "fn": "formatTemporalGap", "passed": 1, "total": 1, "failed_ids": []}],
    }
    path.write_text(json.dumps({"cases": [case, {**case, "id": "b", "output": "x"}]}))
    assert bench("golden", str(path)).exit_code == 1
    assert bench("golden", str(tmp_path / "missing")).exit_code == 2


def test_replay_says_how_it_went() -> None:
    found = read_json(bench("replay", "--seeds", "4-5", "--observer-delay", "2", "--json"))
    assert found["violations"] == 0
    runs = found["runs"]
    assert isinstance(runs, list)
    assert set(runs[0]) == {
        "name",
        "seed",
        "turns",
        "steps",
        "conversation_tokens",
        "observer_calls",
        "observer_input_tokens",
        "observer_input_ratio",
        "cached_share",
        "activations",
        "generations",
        "blocked_steps",
        "max_request_tokens",
        "step_cpu_ms",
        "violations",
    }
    for wrong in (["--seeds", "a-b"], [], ["missing.jsonl"], ["--seeds", "1-1", "--kill-at", "nowhere"]):
        assert bench("replay", *wrong).exit_code == 2


@pytest.mark.parametrize(
    "line",
    [
        "",
        "unknown",
        "golden",
        "memory --sessions 501",
        "repair --max-steps 0",
        "replay --failure-rate 2 --seeds 1-1",
        "retrieval",
        "retrieval --data .",
        "scale",
        "scale --messages 0",
        "scale --messages 10 --texts unknown",
        "tasks 9",
        "tasks many",
        "tui now",
    ],
)
def test_wrong_usage_exits_2(line: str) -> None:
    assert bench(*line.split()).exit_code == 2


def test_help_names_every_benchmark() -> None:
    result = bench("--help")
    assert result.exit_code == 0
    commands = {line.split()[0] for line in result.stdout.partition("Commands:\n")[2].splitlines() if line.strip()}
    expected = "golden kills longmemeval replay memory retrieval scale tasks tui repair"
    assert commands == set(expected.split())


def test_a_reflection_and_an_observation_are_taken_back(home: Path) -> None:
    asyncio.run(talk(home))
    extractive = ("-o", 'memory.model="extractive"')
    told("memory", "observe", *extractive)
    before = told("memory", "log")
    assert told("memory", "reflect", *extractive)["reflected"] is True
    assert told("memory", "log") != before
    assert told("memory", "undo", "reflection")["generation"] == 1
    assert told("memory", "log") == before
    refused = sakti("memory", "undo", "reflection")
    assert refused.exit_code == 1
    assert "no reflection to undo" in refused.output
    assert told("memory", "undo", "observation")["undone"] is True
    assert told("memory", "log")["lines"] == []
    assert sakti("memory", "undo", "everything").exit_code == 2
    assert sakti("memory", "undo", "observation", "--generation", "1").exit_code == 2


def test_a_thread_is_captured_and_played(home: Path) -> None:
    asyncio.run(talk(home))
    done = told("memory", "capture", "talk.jsonl")
    assert done == {"path": "talk.jsonl", "turns": 5, "masked": 0}
    assert Path("talk.jsonl").stat().st_mode & 0o777 == 0o600
    assert read_json(bench("replay", "talk.jsonl", "--json"))["violations"] == 0
    assert sakti("memory", "capture", "talk.jsonl").exit_code == 1
    assert sakti("memory", "capture", "no/such/folder.jsonl").exit_code == 1
    blank = sakti("memory", "capture", "--blank", "-")
    assert "decided" not in blank.stdout
    assert blank.stdout.count("\n") == 6


def test_memory_is_paused_and_goes_on(home: Path) -> None:
    asyncio.run(talk(home))
    paused = told("memory", "pause")
    assert paused["backlog"] == {"tokens": 4_000, "calls": 0, "cost_usd": None, "paused": True}
    status = told("memory", "status", "-o", 'memory.model="extractive"')
    assert status["backlog"]["paused"] is True  # pyright: ignore
    assert (status["observer"], status["observer_reason"]) == ("extractive", "set by memory.model")
    assert "paused" in sakti("memory", "status").stdout
    assert told("memory", "resume")["backlog"] is None
    assert told("memory", "log")["lines"] == []
