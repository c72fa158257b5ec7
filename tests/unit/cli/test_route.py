from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sakti.cli import shell
from sakti.cli.start import ChatRequest, CommandRequest, CompletionRequest, PromptRequest, Request, UsageError, route


def described(request: Request) -> Request:
    """The request without the values that nobody gave."""
    match request:
        case ChatRequest(prompt, values):
            return ChatRequest(prompt, {k: v for k, v in values.items() if v not in (None, False, [])})
        case PromptRequest(values):
            return PromptRequest({k: v for k, v in values.items() if v not in (None, False, [], "text")})
        case _:
            return request


def chat(prompt: str | None = None, **values: Any) -> ChatRequest:
    return ChatRequest(prompt, values)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], chat()),
        (["-c", "--debug"], chat(continue_last=True, debug=True)),
        (["fix the bug"], chat("fix the bug")),
        (["--plain", "fix the bug"], chat("fix the bug", plain=True)),
        (["fix the bug", "--plain"], chat("fix the bug", plain=True)),
        (["--no-save", "fix the bug"], chat("fix the bug", no_save=True)),
        (["--", "fix", "it"], chat("fix it")),
        (["--", "-c"], chat("-c")),
        (["-c", "--", "search", "--help"], chat("search --help", continue_last=True)),
        (["-m", "a/b", "fix the bug"], chat("fix the bug", model="a/b")),
        (["-ma/b"], chat(model="a/b")),
        (["--model=a/b", "-o", "x=1", "--set", "y=2"], chat(model="a/b", overrides=["x=1", "y=2"])),
        (["-o", "memory.enabled=false"], chat(overrides=["memory.enabled=false"])),
        (["--add-dir", "a", "--add-dir=b"], chat(added=["a", "b"])),
        (["-r"], chat(resume="")),
        (["-r", "login"], chat(resume="login")),
        (["--resume=login"], chat(resume="login")),
        (["-r", "-m", "x/y"], chat(resume="", model="x/y")),
        (["-p", "hello", "--output", "json"], PromptRequest({"prompt": "hello", "output": "json"})),
        (["-m", "a/b", "-p", "hello"], PromptRequest({"prompt": "hello", "model": "a/b"})),
        (["--no-save", "-p", "hello"], PromptRequest({"prompt": "hello", "no_save": True})),
        (["-p", "--max-steps", "3", "--max-cost=.5", "hello"], PromptRequest({"prompt": "hello", "max_steps": 3,
                                                                     "max_cost": 0.5})),
        (["-p", "--json-schema", "x.json", "--", "-v"], PromptRequest({"prompt": "-v", "json_schema": Path("x.json")})),
        (["-p"], PromptRequest({"prompt": ""})),
        (["-p", "--help"], CommandRequest(["run", "--help"])),
        (["search", "a", "b"], CommandRequest(["search", "a", "b"])),
        (["run", "-"], CommandRequest(["run", "-"])),
        (["--help"], CommandRequest(["--help"])),
        (["-c", "-h"], CommandRequest(["--help"])),
        (["--install-completion"], CompletionRequest(True, "")),
        (["--show-completion=zsh"], CompletionRequest(False, "zsh")),
        (["--install-completion", "fish"], CompletionRequest(True, "fish")),
    ],
)  # fmt: skip
def test_prompts_stand_where_commands_would(argv: list[str], expected: Request) -> None:
    assert described(route(argv, shell.find_subject)) == expected


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["serach"], "Did you mean `sakti search`"),
        (["fix", "the", "bug"], "sakti -- fix the bug"),
        (["--modle", "x"], "--modle"),
        (["-m"], "-m/--model: expected one argument"),
        (["-m", "a/b", "run", "x"], "`sakti run --help` shows its options"),
        (["-p", "x", "--max-steps", "0"], "--max-steps: '0' is not a whole number, 1 or more"),
        (["-p", "x", "--max-cost", "nan"], "--max-cost: 'nan' is not a number"),
        (["-p", "x", "y"], "y"),
        (["--show-completion", "tcsh"], "'tcsh' is not one of bash, zsh, fish"),
    ],
)
def test_what_means_nothing_is_one_clear_sentence(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as e:
        route(argv, shell.find_subject)
    assert "\n" not in str(e.value)
