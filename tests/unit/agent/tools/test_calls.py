"""Calls as eight other programs make them: each runs here as it is, without an error of its arguments."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sakti.agent.subagents.report import make_agent
from sakti.agent.tools import arguments as forms
from sakti.agent.tools.background import bash_output, kill, stop_all
from sakti.agent.tools.base import Tool
from sakti.agent.tools.bash import bash
from sakti.agent.tools.context import Outcome, ToolState
from sakti.agent.tools.edit import apply_patch, edit, write
from sakti.agent.tools.grep import grep
from sakti.agent.tools.read import glob, ls, read
from sakti.agent.tools.web import webfetch, websearch
from sakti.core.errors import ToolError

FILES = (read, write, edit, apply_patch, ls, glob, grep, bash, bash_output, kill, webfetch, websearch)
TOOLS: dict[str, Tool] = {t.name: t for t in (*FILES, make_agent(lambda _run, _task: None, "asked", ""))}  # type: ignore
PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-one = 1\n+one = 11\n*** End Patch"
BLOCK = "<<<<<<< SEARCH\none = 1\n=======\none = 11\n>>>>>>> REPLACE"
EDITED = "one = 11\ntwo = 2\nthree = 3\n"

# (program, tool, arguments, what the result says or the file src/a.py then is)
READS: list[tuple[str, str, dict[str, Any], str]] = [
    ("Claude Code", "Read", {"file_path": "{w}/src/a.py"}, "1\tone = 1"),
    ("Claude Code", "Read", {"file_path": "{w}/src/a.py", "offset": 2, "limit": 1}, "2\ttwo = 2\n["),
    ("Claude Code", "Bash", {"command": "echo hi", "description": "Say hi", "timeout": 120000}, "hi"),
    ("Claude Code", "Grep", {"pattern": "two", "output_mode": "content", "-n": True, "-C": 1}, "src/a.py:2:two = 2"),
    ("Claude Code", "Grep", {"pattern": "TWO", "-i": True, "glob": "*.py", "head_limit": 5}, "src/a.py:2:two"),
    ("Claude Code", "Grep", {"pattern": "two", "output_mode": "files_with_matches", "type": "py"}, "src/a.py:1"),
    ("Claude Code", "Glob", {"pattern": "**/*.py", "path": "{w}"}, "src/a.py"),
    ("Claude Code", "LS", {"path": "{w}", "ignore": ["node_modules"]}, "src/"),
    ("Claude Code", "text_editor", {"command": "view", "path": "{w}/src/a.py", "view_range": [2, 3]}, "2\ttwo"),
    ("Codex", "shell_command", {"command": "cat src/a.py", "workdir": "{w}", "justification": "x"}, "two = 2"),
    ("Copilot", "run_in_terminal", {"command": "echo hi", "goal": "x", "isBackground": False}, "hi"),
    ("Copilot", "grep_search", {"query": "two", "isRegexp": True, "includePattern": "src/**", "maxResults": 5},
     "src/a.py:2:two"),
    ("Copilot", "grep_search", {"query": "two (", "isRegexp": False}, "No match"),
    ("Copilot", "file_search", {"query": "a.p", "maxResults": 5}, "src/a.py"),
    ("Cursor", "run_terminal_cmd", {"command": "echo hi", "required_permissions": ["all"]}, "hi"),
    ("Cursor", "LS", {"target_directory": "{w}", "ignore_globs": ["*.x"]}, "src/"),
    ("OpenHands", "execute_bash", {"command": "echo hi", "is_input": "false", "security_risk": "LOW"}, "hi"),
    ("Zed", "terminal", {"command": "pwd", "cd": "src"}, "/src"),
    ("Zed", "find_path", {"glob": "**/*.py", "offset": 0}, "src/a.py"),
    ("Gemini CLI", "read_many_files", {"paths": ["src/a.py"], "include": [], "exclude": []}, "2\ttwo = 2"),
    ("Roo", "read_file", {"args": {"file": [{"path": "src/a.py"}]}}, "2\ttwo = 2"),
    ("Roo", "read_file", {"files": [{"path": "src/a.py", "line_ranges": ["2-2"]}]}, "2\ttwo = 2\n["),
    ("Codex", "shell", {"command": ["bash", "-lc", "cat src/a.py"], "workdir": "{w}", "timeout_ms": 10000}, "two = 2"),
    ("Codex", "shell", {"command": ["ls", "src"], "with_escalated_permissions": False}, "a.py"),
    ("Codex", "exec_command", {"cmd": "pwd", "workdir": "src", "yield_time_ms": 1000, "max_output_tokens": 99}, "/src"),
    ("Codex", "read_file", {"file_path": "{w}/src/a.py", "offset": 1, "limit": 2, "mode": "slice"}, "2\ttwo"),
    ("Codex", "list_dir", {"dir_path": "{w}/src", "offset": 1, "limit": 9, "depth": 2}, "a.py"),
    ("Codex", "grep_files", {"pattern": "three", "include": "*.py", "path": "{w}", "limit": 10}, "a.py:3"),
    ("opencode", "read", {"filePath": "src/a.py", "offset": 0, "limit": 2000}, "1\tone"),
    ("opencode", "bash", {"command": "echo hi", "timeout": 60000, "workdir": "{w}", "description": "x"}, "hi"),
    ("opencode", "list", {"path": "{w}", "ignore": []}, "src/"),
    ("opencode", "grep", {"pattern": "two", "path": "{w}", "include": "*.{py,js}"}, "a.py:2"),
    ("Gemini CLI", "read_file", {"absolute_path": "{w}/src/a.py", "offset": 0, "limit": 1}, "1\tone"),
    ("Gemini CLI", "run_shell_command", {"command": "echo hi", "description": "x", "directory": "src"}, "hi"),
    ("Gemini CLI", "search_file_content", {"pattern": "two", "path": "src", "include": "*.py"}, "a.py:2"),
    ("Gemini CLI", "list_directory", {"path": "{w}", "file_filtering_options": {"respect_git_ignore": True}}, "src/"),
    ("Gemini CLI", "glob", {"pattern": "*.py", "case_sensitive": False, "respect_git_ignore": True}, "a.py"),
    ("Cline", "read_file", {"path": "src/a.py", "start_line": 2, "end_line": "3"}, "3\tthree"),
    ("Cline", "execute_command", {"command": "echo hi", "requires_approval": False, "timeout": "30"}, "hi"),
    ("Cline", "search_files", {"path": "src", "regex": "tw.", "file_pattern": "*.py"}, "a.py:2"),
    ("Cline", "list_files", {"path": ".", "recursive": "true"}, "src/a.py"),
    ("Cursor", "read_file", {"target_file": "src/a.py", "should_read_entire_file": False, "start_line_one_indexed": 1,
                             "end_line_one_indexed_inclusive": 2, "explanation": "x"}, "2\ttwo"),
    ("Cursor", "run_terminal_cmd", {"command": "echo hi", "is_background": False, "explanation": "x"}, "hi"),
    ("Cursor", "grep_search", {"query": "two", "include_pattern": "*.py", "exclude_pattern": None,
                               "case_sensitive": True, "explanation": "x"}, "a.py:2"),
    ("Cursor", "file_search", {"query": "a.p", "explanation": "x"}, "src/a.py"),
    ("Cursor", "list_dir", {"relative_workspace_path": "src", "explanation": "x"}, "a.py"),
    ("Cursor", "glob_file_search", {"glob_pattern": "*.py", "target_directory": "src"}, "a.py"),
    ("goose", "developer__shell", {"command": "echo hi"}, "hi"),
    ("goose", "developer__text_editor", {"command": "view", "path": "{w}/src/a.py"}, "1\tone"),
]  # fmt: skip

EDITS: list[tuple[str, str, dict[str, Any], str]] = [
    ("Claude Code", "Edit", {"file_path": "{w}/src/a.py", "old_string": "one = 1", "new_string": "one = 11",
                             "replace_all": False}, EDITED),
    ("Claude Code", "MultiEdit", {"file_path": "src/a.py", "edits": [
        {"old_string": "one = 1", "new_string": "one = x"}, {"old_string": "one = x", "new_string": "one = 11"}]},
     EDITED),
    ("Claude Code", "Edit", {"file_path": "src/a.py", "edits": '[{"old_string": "one = 1", "new_string": "one = 11"}]'},
     EDITED),
    ("Claude Code", "Write", {"file_path": "{w}/src/a.py", "content": EDITED}, EDITED),
    ("Claude Code", "str_replace_based_edit_tool", {"command": "str_replace", "path": "src/a.py", "old_str": "one = 1",
                                                    "new_str": "one = 11"}, EDITED),
    ("Claude Code", "str_replace_based_edit_tool", {"command": "insert", "path": "src/a.py", "insert_line": 1,
                                                    "insert_text": "half = 2"},
     "one = 1\nhalf = 2\ntwo = 2\nthree = 3\n"),
    ("Codex", "apply_patch", {"input": PATCH}, EDITED),
    ("Codex", "shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF"]}, EDITED),
    ("Codex", "shell", {"command": ["apply_patch", PATCH]}, EDITED),
    ("Codex", "shell", {"command": f"cd {{w}} && apply_patch <<\"PATCH\"\n{PATCH}\nPATCH\n"}, EDITED),
    ("opencode", "edit", {"filePath": "{w}/src/a.py", "oldString": "one = 1", "newString": "one = 11"}, EDITED),
    ("opencode", "patch", {"patchText": PATCH}, EDITED),
    ("Gemini CLI", "replace", {"file_path": "{w}/src/a.py", "old_string": "one = 1", "new_string": "one = 11",
                               "instruction": "x", "expected_replacements": 1}, EDITED),
    ("Gemini CLI", "write_file", {"file_path": "{w}/src/a.py", "content": EDITED}, EDITED),
    ("aider", "replace", {"path": "src/a.py", "original": "one = 1\n", "updated": "one = 11\n"}, EDITED),
    ("aider", "edit_block", {"filename": "src/a.py", "diff": BLOCK}, EDITED),
    ("aider", "apply_diff", {"path": "src/a.py", "diff": "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,2 @@\n"
                             "-one = 1\n+one = 11\n two = 2\n"}, EDITED),
    ("Cline", "replace_in_file", {"path": "src/a.py", "diff": BLOCK.replace("<<<<<<<", "-------").replace(
        ">>>>>>>", "+++++++"), "task_progress": "- [ ] x"}, EDITED),
    ("Cline", "write_to_file", {"path": "src/a.py", "content": EDITED}, EDITED),
    ("Cursor", "search_replace", {"file_path": "src/a.py", "old_string": "one = 1", "new_string": "one = 11"}, EDITED),
    ("goose", "developer__text_editor", {"command": "str_replace", "path": "{w}/src/a.py", "old_str": "one = 1",
                                         "new_str": "one = 11"}, EDITED),
    ("goose", "edit", {"path": "src/a.py", "before": "one = 1", "after": "one = 11"}, EDITED),
    ("pi", "edit", {"path": "src/a.py", "oldText": "one = 1", "newText": "one = 11"}, EDITED),
    ("Copilot", "replace_string_in_file", {"filePath": "{w}/src/a.py", "oldString": "one = 1", "newString": "one = 11",
                                           "explanation": "x"}, EDITED),
    ("Copilot", "multi_replace_string_in_file", {"explanation": "x", "replacements": [
        {"filePath": "{w}/src/a.py", "oldString": "one = 1", "newString": "one = 11", "explanation": "y"}]}, EDITED),
    ("Roo", "apply_diff", {"path": "src/a.py", "diff": BLOCK.replace("SEARCH\n", "SEARCH\n:start_line:1\n-------\n")},
     EDITED),
    ("Roo", "insert_content", {"path": "src/a.py", "line": 2, "content": "and = 1\n"},
     "one = 1\nand = 1\ntwo = 2\nthree = 3\n"),
    ("any", "edit", {"path": "src/a.py", "edits": {"old": "one = 1", "new": "one = 11"}}, EDITED),
    ("any", "edit", {"arguments": {"path": "src/a.py", "old": "one = 1", "new": "one = 11", "all": "true"}}, EDITED),
]  # fmt: skip


def placed(value: Any, workspace: Path) -> Any:
    """`{w}` in any text is the workspace."""
    match value:
        case str():
            return value.replace("{w}", str(workspace))
        case dict():
            return {k: placed(v, workspace) for k, v in value.items()}
        case list():
            return [placed(v, workspace) for v in value]
        case _:
            return value


async def called(tools: ToolState, name: str, given: dict[str, Any]) -> Outcome:
    tool, arguments = forms.translate_call(name, placed(given, tools.workspace), tools.cwd)
    return await TOOLS[tool](tools.make_context("c", "t", "m", lambda _: None), arguments)


@pytest.fixture
def source(tools: ToolState) -> Path:
    path = tools.workspace / "src" / "a.py"
    path.parent.mkdir()
    path.write_text("one = 1\ntwo = 2\nthree = 3\n")
    tools.mark_seen(path)
    return path


@pytest.mark.parametrize(("program", "name", "given", "expected"), READS, ids=lambda v: v if isinstance(v, str) else "")
async def test_reads_and_commands(
    tools: ToolState, source: Path, program: str, name: str, given: dict[str, Any], expected: str
) -> None:
    assert expected in (await called(tools, name, given)).content
    assert tools.cwd == tools.workspace, "a folder that is given for one command does not stay"


@pytest.mark.parametrize(("program", "name", "given", "expected"), EDITS, ids=lambda v: v if isinstance(v, str) else "")
async def test_changes(
    tools: ToolState, source: Path, program: str, name: str, given: dict[str, Any], expected: str
) -> None:
    await called(tools, name, given)
    assert source.read_text() == expected


async def test_background_commands_by_their_other_names(tools: ToolState, source: Path) -> None:
    started = await called(tools, "Bash", {"command": "exec sleep 60", "run_in_background": True})
    number = started.details["background"]
    assert "still running" in (await called(tools, "BashOutput", {"bash_id": number, "filter": "x"})).content
    assert "ended" in (await called(tools, "KillShell", {"shell_id": int(number)})).content
    await stop_all(tools)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"timeout": 120}, 120),
        ({"timeout": 120_000}, 120),
        ({"timeout": 3600}, 3600),
        ({"timeout": 5_500}, 6),
        ({"timeout": 90_000_000}, 3600),
        ({"timeout": "30"}, 30),
        ({"timeout": "30s"}, 30),
        ({"timeout": "1500ms"}, 2),
        ({"timeout": "2 min"}, 120),
        ({"timeout": 0.5}, None),
        ({"timeout": 0}, None),
        ({"timeout_ms": 1_500}, 2),
        ({}, None),
    ],
)
def test_a_timeout_is_in_seconds_or_milliseconds(given: dict[str, Any], seconds: int | None, tmp_path: Path) -> None:
    assert forms.translate_arguments("bash", {"command": "x", **given}, tmp_path).get("timeout") == seconds


async def test_an_empty_old_text_makes_a_file_but_never_replaces_one(tools: ToolState, source: Path) -> None:
    await called(tools, "Edit", {"file_path": "new.py", "old_string": "", "new_string": "x\n"})
    assert (tools.workspace / "new.py").read_text() == "x\n"
    (tools.workspace / "new.py").write_text("")
    tools.mark_seen(tools.workspace / "new.py")
    await called(tools, "Edit", {"file_path": "new.py", "old_string": "", "new_string": "y\n"})
    assert (tools.workspace / "new.py").read_text() == "y\n"
    with pytest.raises(ToolError, match="old text is empty"):
        await called(tools, "Edit", {"file_path": "src/a.py", "old_string": "", "new_string": "x\n"})


def test_right_calls_come_back_as_they_are(tmp_path: Path) -> None:
    for name, right in {
        "read": {"path": "a", "offset": 3, "limit": 4},
        "edit": {"path": "a", "edits": [{"old": "a", "new": "b", "all": True}]},
        "grep": {"pattern": "a", "path": "b", "include": "*.py", "ignore_case": True, "context": 2, "limit": 9},
        "bash": {"command": "ls", "timeout": 3, "background": False},
        "glob": {"pattern": "src/**/*.py"},
    }.items():
        assert forms.translate_call(name, right, tmp_path) == (name, right)


async def test_what_means_nothing_is_still_refused(tools: ToolState, source: Path) -> None:
    with pytest.raises(ToolError, match=r"dry_run.*It takes path, edits\."):
        await called(tools, "edit", {"path": "src/a.py", "old": "one = 1", "new": "x", "dry_run": True})
    two = [
        {"filePath": "src/a.py", "oldString": "one", "newString": "x"},
        {"filePath": "b", "oldString": "", "newString": ""},
    ]
    with pytest.raises(ToolError, match="once for each file"):
        await called(tools, "multi_replace_string_in_file", {"replacements": two})
    with pytest.raises(ToolError, match="reads one file"):
        await called(tools, "read_many_files", {"paths": ["src/a.py", "b"]})
    with pytest.raises(ToolError, match="not JSON"):
        await called(tools, "edit", {"path": "src/a.py", "edits": '[{"old": "one'})
    assert source.read_text().startswith("one = 1\n")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"command": "a\nb"}', {"command": "a\nb"}),
        ('```json\n{"command": "a"}\n```', {"command": "a"}),
        ('"{\\"command\\": \\"a\\"}"', {"command": "a"}),
        ('{"command": "a', None),
        ("[1]", None),
        ("[" * 20_000, None),
        ('```\n{"command": "a"}```', {"command": "a"}),
        ('Here is the call:\n```json\n{"command": "a"}\n```\nIt\'s done.', {"command": "a"}),
        ('"```json\\n{\\"command\\": \\"a\\"}\\n```"', {"command": "a"}),
        ('{"command": "echo {"}}', {"command": "echo {"}),
        ('{"command": "a"}}}\n', {"command": "a"}),
        ('{{"command": "a"}}', {"command": "a"}),
        ('{"command": "a",}', {"command": "a"}),
        ('{"command": "a" "background": true}', None),  # one text or two?
        ('{"command": "a", "background": True}', {"command": "a", "background": True}),
        ('{command: "a"}', {"command": "a"}),
        ('{"command": "grep \\d"}', {"command": "grep \\d"}),
        ('{"edits": [{"old": "a"}]]}', {"edits": [{"old": "a"}]}),
        ('{"command": "a"}{"command": "b"}', None),
        ('{"content": "say "hi" to me"}', None),
        ("{'content': 'x }", None),
        ("{'command': 'a'}", None),
        ('{"command": rm -r {x}}', None),
        ('{"a": 1} and {"b": 2}', None),
        ('"{\\"command\\": \\"a', None),
        ('"{\\"command\\": \\"a"', None),
        ("", None),
        ("}" * 20_000, None),
    ],
)
def test_arguments_that_are_almost_json(raw: str, expected: dict[str, Any] | None) -> None:
    assert forms.parse_leniently(raw) == expected


WHOLE = {
    "path": "a.c",
    "content": 'if (x) {\n  puts("}");\n}\n',
    "edits": [{"old": "[", "new": "it's {}"}],
    "limit": 120,
}


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps(WHOLE),
        json.dumps(WHOLE).replace("\\n", "\n"),
        f"```json\n{json.dumps(WHOLE, indent=2)}\n",
        f"Calling it's tool: {json.dumps(WHOLE)}",
        json.dumps(json.dumps(WHOLE)),
        "{" + json.dumps(WHOLE),
    ],
)
def test_no_beginning_of_a_call_is_taken_for_the_call(raw: str) -> None:
    for end in range(len(raw)):
        assert forms.parse_leniently(raw[:end]) in (None, WHOLE)


@given(st.dictionaries(st.text(max_size=9), st.text() | st.integers() | st.lists(st.text(max_size=9)), min_size=1))
def test_braces_fences_and_double_encoding_lose_nothing(arguments: dict[str, Any]) -> None:
    text = json.dumps(arguments)
    for raw in (text, f"{text}}}", f"```json\n{text}\n```", json.dumps(text), json.dumps(f"```\n{text}\n```")):
        assert forms.parse_leniently(raw) == arguments


def test_only_a_heredoc_that_is_nothing_else_is_a_patch() -> None:
    assert forms.read_heredoc(f"apply_patch <<'EOF'\n{PATCH}\nEOF") == ("", PATCH)
    assert forms.read_heredoc(f"cd 'a b' && apply_patch << EOF\n{PATCH}\nEOF\n") == ("a b", PATCH)
    assert forms.read_heredoc(f"apply_patch <<'EOF'\n{PATCH}\nEOF\nrm x") is None
    assert forms.read_heredoc(f"cd $(x) && apply_patch <<'EOF'\n{PATCH}\nEOF") is None


NAMES = sorted({*forms.TOOLS, *forms.FOREIGN.editors, *TOOLS, "nothing"})
KEYS = st.sampled_from(
    "path file_path command cmd workdir timeout timeout_ms edits old_string new_string diff insert_line insert_text "
    "view_range pages offset limit end_line pattern include type -A -i output_mode recursive patch input arguments id "
    "content paths restart all count query head_limit".split()
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from(["\0", "~nosuch", "1-3", "[]", '{"a"', "../x/*.py", "/*", "true", "-1", "1e999", BLOCK]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)


@example("cat", {"view_range": [None, False], "offset": []})
@example("applydiff", {"path": [["\0"]]})
@settings(max_examples=400)
@given(st.sampled_from(NAMES), st.dictionaries(KEYS, VALUES, max_size=5))
def test_whatever_is_called_is_read_or_refused_in_words(name: str, given_: dict[str, Any]) -> None:
    cwd = Path("/tmp")
    try:
        tool, arguments = forms.translate_call(name, given_, cwd)
    except ToolError:
        return
    if not forms.is_translated(tool):
        return
    assert forms.translate_call(tool, arguments, cwd)[0] == tool
    with contextlib.suppress(ToolError):
        TOOLS[tool].check(arguments, cwd)
