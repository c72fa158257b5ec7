"""A thread written to a file without its secrets, and played from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sakti.core.config import MemorySettings, ObservationSettings
from sakti.core.tokens import O200k
from sakti.core.types import Message, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from sakti.memory import capture
from sakti.store.secrets import MARK
from sakti.store.threads import messages as message_store
from tests.bench import script
from tests.bench.replay import replay
from tests.fakes.memory import Driver, settings

KEY = "sk-ant-api03-" + "a1B2" * 10
COUNTER = O200k()


def message(index: int, role: str, *parts: Part, at: int = 0, state: str = "saved") -> Message:
    return Message(f"m{index}", "t", "r", role, parts, at or index * 1_000, index, state=state)  # pyright: ignore


TALK = [
    message(0, "user", TextPart(f"Use the key {KEY} in /home/ann/app/.env")),
    message(
        1,
        "assistant",
        ThinkingPart("secretly"),
        TextPart("I look."),
        ToolCallPart("c1", "read", {"path": "/home/ann/app/a.py", "options": {"password": "hunter2hunter2", "n": 3}}),
        ToolCallPart("c2", "bash", None, "{broken"),
    ),
    message(2, "tool", ToolResultPart("c1", "read", "def f(): ..."), ToolResultPart("c2", "bash", "bad arguments")),
    message(3, "assistant", TextPart("Done.")),
    message(4, "user", TextPart("gone"), state="withheld"),
    message(5, "user", TextPart("And now?"), at=600_000),
]


def lines(redactor: capture.Redactor, **values: Any) -> list[dict[str, Any]]:
    return list(
        capture.iter_bundle(
            TALK, [(1_500, "a/early"), (2_500, "anthropic/claude-x")], MemorySettings(**values), redactor
        )
    )


def test_what_is_in_it_and_what_is_not() -> None:
    redactor = capture.Redactor(home="/home/ann")
    config, *turns = lines(redactor, scope="resource", observation=ObservationSettings(buffer_tokens=False))
    first, second = json.loads(MARK.sub("[secret]", json.dumps(turns)))
    assert config["config"]["observation"]["bufferTokens"] is False
    assert (config["config"]["scope"], config["config"]["activateAfterIdle"]) == ("resource", "auto")
    assert first == {
        "type": "input",
        "turn": 0,
        "gapMs": 0,
        "user": "Use the key [secret] in ~/app/.env",
        "steps": [
            {
                "text": "I look.",
                "tool": {
                    "name": "read",
                    "args": {"path": "~/app/a.py", "options": {"password": "[secret]", "n": 3}},
                    "result": "def f(): ...",
                },
            },
            {"tool": {"name": "bash", "args": {"input": "{broken"}, "result": "bad arguments"}},
            {"text": "Done."},
        ],
        "model": "anthropic/claude-x",
    }
    assert second == {"type": "input", "turn": 1, "gapMs": 597_000, "user": "And now?", "steps": []}
    assert redactor.secrets == 2


def test_blank_texts_have_as_many_tokens() -> None:
    _, first, _ = lines(capture.Redactor(COUNTER))
    whole = json.dumps(first)
    for text in ("key", "look", "hunter2", "app", "broken", "Done", "def f"):
        assert text not in whole
    assert COUNTER.count(first["user"]) == COUNTER.count(TALK[0].text)
    assert COUNTER.count(first["steps"][0]["tool"]["result"]) == COUNTER.count("def f(): ...")
    assert first["steps"][0]["tool"]["args"]["options"]["n"] == 3


async def test_a_captured_conversation_is_played_with_its_settings(tmp_path: Path) -> None:
    mine = settings(observation_tokens=500, share_token_budget=True, activate_after_idle="5m")
    driver = await Driver.make(tmp_path / "m.db", mine, counter=COUNTER)
    for number in range(12):
        driver.clock.advance(90)
        call = {"name": "read", "args": {"path": f"src/p{number}.py"}, "result": f"value {number} is known " * 30}
        await driver.turn(
            f"question {number} " + "word " * 60, [{"text": "I look.", "tool": call}, {"text": "yes " * 40}]
        )
        await driver.engine.wait_idle()
    said = await driver.store.read(message_store.list_after, "t1", -1)
    for redactor in (capture.Redactor(), capture.Redactor(COUNTER)):
        path = tmp_path / "talk.jsonl"
        path.write_text("\n".join(json.dumps(x) for x in capture.iter_bundle(said, [], mine, redactor)))
        read = script.load(path)
        assert read.settings == mine
        assert [len(t.steps) for t in read.turns] == [2] * 12
        run = await replay(read, COUNTER)
        assert run.violations == []
        assert run.steps == 24
        assert abs(run.conversation_tokens - sum(m.tokens for m in said)) < 5 * len(said)
        assert run.activations
    await driver.close()
