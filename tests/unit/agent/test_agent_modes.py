"""Agent modes in a running thread: the same prefix, refused tools, typed fields, custom modes of one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sakti.agent.reports.doctor import examine
from sakti.agent.subagents import files
from sakti.core import resources
from sakti.core.config import Config
from sakti.core.errors import ConfigError
from sakti.core.events import ToolFinished
from sakti.core.types import ContextPart, ToolCallPart, ToolResultPart
from sakti.memory import modes
from sakti.memory.observe.tool_facts import fill_keys, read_facts
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from sakti.store.log import lines as memory_log
from tests.fakes.session import Recorded, start

WRITE = Call("write", {"path": "a.txt", "content": "a\n"})
TRACE = "Traceback:\n  File \"src/pool.py\", line 12, in take\nKeyError: 'idle'\n"


def facts_sent(run: Recorded) -> dict[str, str]:
    """Return the facts in the newest request, the last value of each."""
    parts = (p for m in run.provider.requests[-1].messages for p in m.parts if isinstance(p, ContextPart))
    return {name: text for part in parts for name, text in part.facts.items()}


async def test_a_switch_keeps_the_prefix_and_refuses_other_tools(store: Store, tmp_path: Path) -> None:
    commands = (WRITE, Call("bash", {"command": "touch x"}), Call("bash", {"command": "ls"}))
    answers = ["one", *(Answer("", calls=(c,)) for c in commands), "two", "three"]
    run = await start(store, tmp_path / "w", answers, overrides=("approval.mode=edits",))
    await run.ask("first")
    assert "mode" not in facts_sent(run)
    await run.session.set_mode("explore")
    await run.ask("second")
    before, after = run.provider.requests[0], run.provider.requests[1]
    assert (before.tools, before.system) == (after.tools, after.system)
    refused, touched, listed = (e.result for e in run.of(ToolFinished))
    assert "The mode explore has no tool write" in refused.content and "denied" in refused.details
    assert "the mode explore runs only commands that read" in touched.content
    assert not listed.is_error
    assert not (tmp_path / "w" / "a.txt").exists() and not (tmp_path / "w" / "x").exists()
    assert '<mode name="explore">' in facts_sent(run)["mode"]
    await run.session.set_mode("default")
    await run.ask("third")
    assert facts_sent(run)["mode"] == resources.read_prompt("system#mode-ended")
    assert run.provider.requests[-1].system == before.system
    await run.session.close()


TEXT_OF_A_MODE = """\
+++
description = "Reviews a change."
tools = ["read", "mcp__*"]
message_tokens = 300
[fields]
verdict = "text"
files_affected = "list"
+++

<!-- task -->

The agent reviews.

<!-- output -->

<verdict>
* good | files_affected: a.py
</verdict>
"""


@pytest.fixture
def user_modes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "config/sakti/prompts/modes"
    folder.mkdir(parents=True)
    (folder / "review.md").write_text(TEXT_OF_A_MODE)
    (folder / "broken.md").write_text("+++\nmessage_tokens = many\n+++\n")
    caches = (modes.read_numbers, modes.list_sections, resources.read_prompt, resources.has_prompt)
    for cache in caches:
        cache.cache_clear()
    yield folder
    for cache in caches:
        cache.cache_clear()


async def test_one_file_of_the_user_is_a_mode(store: Store, tmp_path: Path, user_modes: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer("", calls=(Call("grep", {"pattern": "x"}),)), "done"])
    await run.session.set_mode("review")
    await run.ask("go")
    assert "The mode review has no tool grep. It has read, mcp__*" in run.of(ToolFinished)[0].result.content
    assert modes.read_descriptions()["review"] == "Reviews a change."
    assert "front matter of prompts/modes/broken.md" in modes.read_descriptions()["broken"]
    with pytest.raises(ConfigError, match=r"broken\.md"):
        await run.session.set_mode("broken")
    assert run.session.current.mode == "review"
    assert modes.convert_fields("review", "verdict", "good | files_affected: a.py; b.py | sure: yes") == {
        "sure": "yes",
        "files_affected": ["a.py", "b.py"],
        "verdict": "good",
    }
    await run.session.close()


async def test_a_broken_file_costs_only_its_own_mode(tmp_path: Path, user_modes: Path) -> None:
    (user_modes / "latin.md").write_bytes(b'description = "caf\xe9"')
    (user_modes / "empty.md").write_text("\n")
    (user_modes / "folder.md").mkdir()
    (user_modes / "explore.md").write_text("<!-- task -->\nLook around.\n")
    for name, mode in (("odd", "latin"), ("sound", "explore")):
        file = tmp_path / "w" / ".sakti" / "agents" / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"---\nmode: {mode}\n---\nWork.\n")
    listed = modes.read_descriptions()
    assert "latin.md is not UTF-8 text (byte 19)" in listed["latin"] and "is empty" in listed["empty"]
    assert "folder" not in listed and listed["review"] == "Reviews a change."
    agents = files.load(tmp_path / "w", project=True)
    assert [a.name for a in agents.agents] == ["sound"] and "is not UTF-8 text" in agents.broken[0]
    report = [line.text for line in await examine(tmp_path / "none.db", {}, tmp_path / "w", Config())]
    named = [text.partition(".md")[0][-6:] for text in report if text.startswith("! mode")]
    assert named == ["broken", "/empty", "/latin"]
    assert modes.prompt("explore", "task") == "Look around."
    assert agents.agents[0].is_read_only, "a file with other words for a mode keeps its tools"


FIELDS = (
    ("bug_fixing", "root-cause", "`load()` is late", {"root_cause": "`load()` is late"}),
    ("bug_fixing", "errors", "x | error_type: TypeError", {"error_type": "TypeError"}),
    ("testing", "coverage", "up | before: 71 % | after: 84 %", {"coverage": {"before": "71 %", "after": "84 %"}}),
    ("debugging", "variables", "idle is -1", {"variables": {"text": "idle is -1"}}),
    ("refactoring", "tests-to-update", "t.py", {"tests_to_update": ["t.py"]}),
    ("research", "findings", "one writer | sources: a; b", {"sources": ["a", "b"]}),
    ("explore", "", "a line | search_queries: x | kind: no", {"search_queries": ["x"]}),
)


@pytest.mark.parametrize(("mode", "section", "content", "wanted"), FIELDS)
def test_a_line_fills_the_typed_keys_of_its_mode(mode: str, section: str, content: str, wanted: object) -> None:
    assert modes.convert_fields(mode, section, content) == wanted


@pytest.mark.parametrize("mode", [m for m in resources.list_modes() if m != "default"])
def test_every_mode_declares_its_keys_and_describes_itself(mode: str) -> None:
    assert modes.read_numbers(mode).fields
    assert modes.describe(mode).endswith(".")


def test_code_reads_only_what_it_can_know_from_a_call() -> None:
    def facts(mode: str, name: str, arguments: dict[str, str], content: str, **details: int) -> object:
        call = ToolCallPart("c", name, dict(arguments))
        facts = read_facts(call, ToolResultPart("c", name, content, details=dict(details)))
        return fill_keys({"line": [facts]}, modes.read_numbers(mode).fields, modes.list_sections(mode))[1]["line"]

    assert facts("explore", "grep", {"pattern": "retry"}, "No match.", matches=0) == {
        "search_queries": ["grep retry"],
        "not_found": ["grep retry"],
    }
    assert facts("explore", "bash", {"command": "rg -n retry src"}, "a.py:1: retry") == {
        "search_queries": ["rg -n retry src"]
    }
    assert facts("bug_fixing", "bash", {"command": "python x.py"}, TRACE) == {
        "error_type": "KeyError",
        "stack_trace": "src/pool.py:12",
    }
    output = "tests/a.py::test_b FAILED\nTOTAL  100  16  84%\n== 1 failed, 41 passed in 2s =="
    assert facts("testing", "bash", {"command": "pytest"}, output) == {
        "test_results": ["1 failed, 41 passed in 2s"],
        "tests": ["tests/a.py::test_b"],
        "coverage": {"total": "84%"},
    }
    assert facts("research", "webfetch", {"url": "https://sqlite.org/wal.html"}, "text") == {
        "sources": ["https://sqlite.org/wal.html"]
    }


async def test_without_a_model_calls_fill_the_keys_of_the_log(store: Store, tmp_path: Path) -> None:
    calls = (Call("grep", {"pattern": "nowhere"}), Call("read", {"path": "none.txt"}))
    run = await start(store, tmp_path / "w", [*(Answer("", calls=(c,)) for c in calls), "done. " * 400, "more"])
    await run.session.set_mode("explore")
    await run.ask("where is the retry policy?")
    await run.ask("and now?")
    await run.session.compact()
    found = await store.read(memory_log.read_lines, run.session.current.engine.record_id)
    assert all({"files", "line_numbers", "mode_specific"} <= x.metadata.keys() for x in found)
    [line] = [x for x in found if x.metadata["mode_specific"]]
    assert line.metadata["mode_specific"] == {"search_queries": ["grep nowhere"], "not_found": ["grep nowhere"]}
    assert line.category == "not-found"
    await run.session.close()
