from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sakti.agent.repository import scrub_env
from sakti.agent.tools import child
from sakti.agent.tools.background import bash_output, kill
from sakti.agent.tools.bash import bash
from sakti.agent.tools.context import ToolState
from sakti.agent.tools.edit import edit, write
from sakti.agent.tools.grep import grep
from sakti.agent.tools.read import glob, ls, read
from sakti.core.errors import ToolError
from tests.fakes.tools import call, ended


async def test_read_numbers_lines_and_says_what_is_left(tools: ToolState) -> None:
    (tools.workspace / "a.txt").write_text("one\ntwo\nthree\n")
    assert (
        await call(tools, read, path="a.txt", offset=2, limit=1)
    ).content == "2\ttwo\n[1 more line of 3: read on with offset=3.]"
    for path, words in (("b.txt", "no file"), ("a.txt/b", "cannot be read")):
        with pytest.raises(ToolError, match=words):
            await call(tools, read, path=path)
    (tools.workspace / "bin").write_bytes(b"\0\1")
    with pytest.raises(ToolError, match="binary"):
        await call(tools, read, path="bin")
    os.mkfifo(tools.workspace / "pipe")
    with pytest.raises(ToolError, match="not a regular file"):
        await call(tools, read, path="pipe")


async def test_wrong_arguments_are_a_sentence(tools: ToolState) -> None:
    with pytest.raises(ToolError, match="path"):
        await call(tools, read)
    with pytest.raises(ToolError, match="nonsense"):
        await call(tools, read, path="a", nonsense=1)


async def test_edit_is_exact_and_atomic(tools: ToolState) -> None:
    path = tools.workspace / "a.py"
    path.write_text("def f():\n    return 1\n\ndef g():\n    return 1\n")
    path.chmod(0o755)
    with pytest.raises(ToolError, match="not been read"):
        await call(tools, edit, path="a.py", edits=[{"old": "def f", "new": "def h"}])
    await call(tools, read, path="a.py")
    with pytest.raises(ToolError, match="2 times"):
        await call(tools, edit, path="a.py", edits=[{"old": "return 1", "new": "return 2"}])
    with pytest.raises(ToolError, match="Edit 2 of 2.*nearest, at line 4"):
        await call(tools, edit, path="a.py", edits=[{"old": "def f", "new": "def h"}, {"old": "def g() :", "new": "x"}])
    assert "def f" in path.read_text()
    done = await call(
        tools,
        edit,
        path="a.py",
        edits=[{"old": "def f", "new": "def h"}, {"old": "return 1", "new": "return 2", "all": True}],
    )
    assert path.read_text() == "def h():\n    return 2\n\ndef g():\n    return 2\n"
    assert path.stat().st_mode & 0o777 == 0o755
    assert (done.details["added"], done.details["removed"]) == (3, 3)
    path.write_text("changed behind its back\n")
    with pytest.raises(ToolError, match="has changed since"):
        await call(tools, edit, path="a.py", edits=[{"old": "changed", "new": "x"}])


async def test_write_creates_but_replaces_only_what_was_read(tools: ToolState) -> None:
    await call(tools, write, path="deep/new.txt", content="x\n")
    assert (tools.workspace / "deep/new.txt").read_text() == "x\n"
    (tools.workspace / "old.txt").write_text("keep")
    with pytest.raises(ToolError, match="not been read"):
        await call(tools, write, path="old.txt", content="")
    await call(tools, read, path="old.txt")
    await call(tools, write, path="old.txt", content="new")
    assert (tools.workspace / "old.txt").read_text() == "new"


async def test_finding_respects_gitignore_with_and_without_ripgrep(
    tools: ToolState, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tools.workspace
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("build/\n*.log\n")
    for name in ("src/a.py", "src/deep/b.py", "build/c.py", "x.log"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("needle here\nsecond line\n")
    found = (await call(tools, glob, pattern="**/*.py")).content.split("\n")
    assert sorted(found) == ["src/a.py", "src/deep/b.py"]
    expected = ["src/a.py:1:needle here", "src/deep/b.py:1:needle here"]
    if child.find_ripgrep():
        assert (await call(tools, grep, pattern="needle")).content.split("\n") == expected
    monkeypatch.setattr("sakti.agent.tools.child.find_ripgrep", lambda: None)
    monkeypatch.setattr("sakti.agent.tools.files.find_ripgrep", lambda: None)
    assert (await call(tools, grep, pattern="needle")).content.split("\n") == expected
    assert (await call(tools, grep, pattern="NEEDLE", ignore_case=True, include="b.*")).content == expected[1]
    assert (await call(tools, grep, pattern="nowhere")).content == "No match."
    with pytest.raises(ToolError, match="regular expression"):
        await call(tools, grep, pattern="(")
    assert "src/" in (await call(tools, ls)).content


async def test_bash_keeps_the_folder_and_tells_the_exit_code(tools: ToolState) -> None:
    (tools.workspace / "sub").mkdir()
    await call(tools, bash, command="cd sub")
    assert (await call(tools, bash, command="pwd")).content == str(tools.workspace / "sub")
    failed = await call(tools, bash, command="echo oops >&2; exit 3")
    assert failed.is_error
    assert failed.content == "oops\n[exit code 3]"
    assert failed.details["exit_code"] == 3


async def test_bash_gets_no_key_of_the_agent(tools: ToolState, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    env = scrub_env({"SECRET_KEY": "k", "SAKTI_DB": "x", "PATH": os.environ["PATH"]}, frozenset({"SECRET_KEY"}))
    assert "SECRET_KEY" not in env
    assert "SAKTI_DB" not in env
    assert env["GIT_PAGER"] == "cat"


async def test_a_long_output_is_bounded_and_kept_whole(tools: ToolState) -> None:
    done = await call(tools, bash, command="seq 1 200000")
    assert len(done.content) < tools.output_bytes + 500
    assert done.content.startswith("1\n2\n")
    assert "200000" in done.content
    whole = Path(done.details["output_file"])
    assert whole.read_text().splitlines()[123_455] == "123456"
    assert whole.stat().st_mode & 0o777 == 0o600


async def test_a_timeout_ends_the_whole_group(tools: ToolState, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    done = await call(
        tools,
        bash,
        command=f"trap '' TERM; (trap '' TERM; echo $BASHPID > {mark}; while :; do sleep 1; done)",
        timeout=1,
    )
    assert done.is_error
    assert "stopped after 1 s" in done.content
    assert await ended(int(mark.read_text()))


async def test_cancelling_ends_the_command(tools: ToolState, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    task = asyncio.create_task(call(tools, bash, command=f"echo $$ > {mark}; exec sleep 60"))
    for _ in range(500):
        await asyncio.sleep(0.01)
        if mark.exists() and mark.read_text().strip():
            break
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ended(int(mark.read_text()))


async def test_background_commands_are_read_and_ended(tools: ToolState) -> None:
    started = await call(tools, bash, command="echo ready; exec sleep 60", background=True)
    number = started.details["background"]
    running = tools.background[number]
    for _ in range(500):
        await asyncio.sleep(0.01)
        if running.output.total:
            break
    seen = await call(tools, bash_output, id=number)
    assert seen.content == "ready\n[still running]"
    await call(tools, kill, id=number)
    assert running.process.returncode is not None
    with pytest.raises(ToolError, match="no command"):
        await call(tools, bash_output, id=number)


def test_schemas_come_from_the_functions_types() -> None:
    spec = edit.spec()
    assert spec.parameters["required"] == ["path", "edits"]
    assert spec.parameters["additionalProperties"] is False
    assert "title" not in spec.parameters
    assert read.spec().parameters["properties"]["path"]["description"]
