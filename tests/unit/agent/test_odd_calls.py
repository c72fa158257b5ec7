"""Calls that a model should not make: each is answered, stored, and the turn goes on."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from sakti.core.types import ImagePart, ModelInfo, ToolCallPart, is_storable
from sakti.providers.history import read_arguments
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from sakti.store.threads import messages as message_store
from tests.fakes.session import Recorded, start
from tests.unit.agent.tools.test_files import png


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


async def played(store: Store, workspace: Path, *calls: Call, mode: str = "auto") -> Recorded:
    """A turn in which the model makes `calls` and then answers."""
    run = await start(store, workspace, [Answer(calls=calls), Answer("done")], overrides=(f"approval.mode={mode}",))
    finished = await run.ask("go")
    assert finished.status == "answered", finished.error
    assert finished.text == "done"
    return run


def results(run: Recorded) -> list[str]:
    """What the model is told in the next request."""
    return [r.content for m in run.provider.requests[-1].messages for r in m.tool_results]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (Call("read", {"path": "a\0b"}), "path holds a NUL character"),
        (Call("read", {"path": "~nosuch/x"}), "There is no file ~nosuch/x"),
        (Call("read", {"path": "x" * 5_000}), "File name too long"),
        (Call("ls", {"path": "\0"}), "path holds a NUL character"),
        (Call("write", {"file_path": "~nosuch\0", "content": "x"}), "path holds a NUL character"),
        (Call("bash", {"command": "echo \0"}), "command holds a NUL character"),
        (Call("grep", {"pattern": "\0"}), "pattern holds a NUL character"),
        (Call("read", {"path": "a\ud800"}), "surrogate"),
        (Call("write", {"path": "a", "content": "x \udfff y"}), "surrogate"),
        (Call("task-mutate", {"action": "create", "title": "x\ud800"}), "surrogate"),
        (Call("read", nested(200)), "nested deeper than 64 levels"),
        (Call("read", raw="{" * 30_000), "not a JSON object|nested too deeply"),
        (Call("read", raw='{"a":' * 12_000), "nested too deeply"),
        (Call("re\0ad\ud800", {"path": "a"}), "There is no tool re␀ad"),
        (Call("edit", {"path": ["a", ".env"], "edits": 3}), "wrong arguments"),
        (Call("edit", {"path": "a", "edits": [None], "all": True}), "wrong arguments"),
        (Call("edit", {"path": "a", "edits": False, "replace_all": 1}), "wrong arguments"),
        (Call("bash", {"timeout": 1e400, "command": ["echo", {"a": 1}]}), "a"),
        (Call("apply_patch", {"patch": "*** Begin Patch\n*** Delete File: \0\n*** End Patch"}), "no file"),
    ],
)
async def test_an_odd_call_is_answered_and_the_turn_goes_on(
    store: Store, tmp_path: Path, call: Call, words: str
) -> None:
    run = await played(store, tmp_path / "w", call)
    (told,) = results(run)
    assert re.search(words, told), told
    again = await start(store, tmp_path / "w", ["fine"], continue_last=True)
    assert (await again.ask("and now?")).status == "answered"
    stored = await store.read(message_store.list_page, again.session.thread.id)
    assert [m.role for m in stored] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    for message in stored:
        "".join(str(part) for part in message.parts).encode()  # raises for what no protocol carries


async def test_a_patch_in_a_command_is_judged_as_a_patch(store: Store, tmp_path: Path) -> None:
    body = "*** Begin Patch\n*** Add File: .env\n+x\n*** End Patch"
    run = await played(store, tmp_path / "w", Call("bash", {"command": f"apply_patch <<'EOF'\n{body}\nEOF"}))
    assert results(run) == ["Refused: .env: holds secrets."]
    assert not (tmp_path / "w/.env").exists()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Read", {"file_path": ".env"}),
        ("read", {"arguments": {"filePath": ".env"}}),
        ("Edit", {"file_path": ".env", "old_string": "a", "new_string": "b"}),
        ("Grep", {"pattern": "x", "path": ".env"}),
        ("glob", {"pattern": "/home/me/.ssh/*"}),
        ("Bash", {"cmd": "cat .env"}),
        ("shell", {"command": ["cat", ".env"]}),
    ],
)
async def test_another_spelling_gets_round_no_rule(
    store: Store, tmp_path: Path, name: str, given: dict[str, Any]
) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/.env").write_text("KEY=supersecret123\n")
    run = await played(store, tmp_path / "w", Call(name, given))
    (told,) = results(run)
    assert told.startswith("Refused: ")
    assert "supersecret" not in told


async def test_an_image_goes_with_the_result_and_is_stored(store: Store, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    data = png(20, 10)
    (tmp_path / "w/cat.png").write_bytes(data)
    (tmp_path / "w/b.txt").write_text("b\n")
    calls = (Call("read", {"path": "cat.png"}), Call("read", {"path": "b.txt"}))
    run = await start(store, tmp_path / "w", [Answer(calls=calls), Answer("seen"), Answer("again")])
    structs.force_setattr(run.session.workspace.models.info, "images", True)
    assert (await run.ask("look")).status == "answered"
    last = run.provider.requests[-1].messages[-1]
    assert [type(p).__name__ for p in last.parts] == ["ToolResultPart", "ToolResultPart", "ImagePart"]
    image = last.parts[-1]
    assert isinstance(image, ImagePart)
    assert (base64.b64decode(image.data), image.name, image.width) == (data, "cat.png", 20)
    assert last.part_tokens[-1] > 0
    assert run.session.current.toolbox.images == {}


async def test_a_model_without_eyes_is_told_the_name(store: Store, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/cat.png").write_bytes(png(20, 10))
    run = await played(store, tmp_path / "w", Call("read", {"path": "cat.png"}))
    last = run.provider.requests[-1].messages[-1]
    assert last.text == "(an image that is not shown to you: cat.png)"


def test_what_cannot_be_stored_is_kept_as_it_was_written() -> None:
    call = ToolCallPart("c", "read", {"path": "\ud800"})
    assert call.arguments is None
    assert call.raw == '{"path": "\\ud800"}'
    assert ToolCallPart("c", "read", nested(60)).arguments is not None
    assert not is_storable(nested(100))
    assert is_storable({"a": ["ü", 1, None, {"b": "日"}]})
    assert read_arguments("[" * 100_000) is None
    assert ToolCallPart("\ud800", "a\0", None, "\udfff").raw == "?"


async def test_paths_of_calls_are_known_by_any_name(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [])
    toolbox = run.session.current.toolbox
    patch = "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@\n-x\n+y\n*** End Patch"
    for name, given, expected in (
        ("Read", {"file_path": f"{tmp_path}/w/src/a.py"}, ["src/a.py"]),
        ("apply_patch", {"input": patch}, ["a.py", "b.py"]),
        ("read", {"path": "~nosuch\0"}, ["~nosuch␀"]),
        ("bash", {"command": "ls"}, []),
        ("nothing", {"path": 3}, []),
    ):
        assert toolbox.list_touched(ToolCallPart("c", name, given)) == expected


async def test_a_small_model_gets_short_tools_and_one_that_patches_its_own(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [])
    toolbox = run.session.current.toolbox
    small = {s.name: s for s in toolbox.specs(ModelInfo("m", "p", small=True))}
    assert set(small) == {"bash", "edit", "grep", "ls", "read", "write"}
    assert small["bash"].description == "Run a command in bash."
    assert set(small["grep"].parameters["properties"]) == {"pattern", "path", "ignore_case", "context"}
    assert "apply_patch" not in {s.name for s in toolbox.specs()}
    toolbox.model = lambda: "gpt-5.1"
    names = [s.name for s in toolbox.specs()]
    assert "apply_patch" in names
    assert "edit" not in names
    assert names == sorted(names)


async def test_schemas_are_flat_and_all_tools_small(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [])
    toolbox = run.session.current.toolbox
    specs = [t.spec() for t in toolbox.tools.values()]
    written = str([s.parameters for s in specs])
    assert not [word for word in ("$ref", "$defs", "anyOf", "oneOf", "'null'") if word in written]
    asking = [s for s in specs if s.name in ("agent", "ask_user", "present_plan", "wait")]
    assert toolbox.count(run.session.workspace.counter, tuple(asking)) <= 1_100  # with those of MCP at most 1,500
    own = [s for s in specs if not s.name.startswith(("task-", "memory-")) and s not in asking]
    assert toolbox.count(run.session.workspace.counter, tuple(own)) < 2_300


async def test_a_file_with_broken_bytes_is_edited_and_its_diff_kept(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    before = "über\n".encode() * 3 + b"x = 1 \xff\n" + "länger\n".encode() * 3
    (work / "a.txt").write_bytes(before)
    change = {"path": "a.txt", "edits": [{"old": "x = 1", "new": "x = 2"}]}
    run = await played(store, work, Call("read", {"path": "a.txt"}), Call("edit", change))
    assert (work / "a.txt").read_bytes() == before.replace(b"x = 1", b"x = 2")
    assert "changed (+1" in results(run)[-1]
    stored = await store.read(message_store.list_page, run.session.thread.id, limit=10)
    [*_, shown] = [r.details["diff"] for m in stored for r in m.tool_results if "diff" in r.details]
    assert "+x = 2 " in shown and is_storable(shown)


async def test_a_prompt_of_any_bytes_is_asked(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["done"])
    assert (await run.ask("look \udcff here")).text == "done"
    assert run.provider.requests[-1].messages[0].text.startswith("look ? here")
