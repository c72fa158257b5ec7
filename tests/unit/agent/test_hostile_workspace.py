"""Nothing of a workspace runs because sakti looks at it: not by git's configuration, not from PATH."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sakti.agent.file_list import FileList
from sakti.agent.reports import doctor
from sakti.agent.repository import GitState, read_git_state, run_git
from sakti.agent.tools.bash import bash
from sakti.agent.tools.context import ToolState
from sakti.agent.tools.grep import grep
from sakti.core.config import Config
from sakti.core.errors import ToolError
from sakti.core.resources import build_safe_environment, find_program, search_path
from sakti.providers.local.install import download_wheel
from sakti.store.database import Store
from tests.fakes import repository
from tests.fakes.repository import Trap
from tests.fakes.session import start


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "trap")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository.plain(tmp_path / "ws")


async def look(root: Path) -> tuple[GitState | None, list[str], str | None]:
    """Every look that sakti takes at a repository."""
    return await read_git_state(root), await FileList(root).paths(), await run_git(root, "diff")


async def test_filters_are_off_and_the_answer_is_right(root: Path, trap: Trap) -> None:
    repository.with_filters(root, trap)
    state, paths, diff = await look(root)
    assert trap.sprung == []
    assert state == GitState("main", 5)  # three new ones, changed.txt and .gitattributes
    assert "kept.txt" in paths
    assert diff is not None and "-one\n+two" in diff
    repository.run_git(root, "add", "--renormalize", ".")
    assert trap.sprung == ["clean", "included", "process", "upper"], "git alone runs them"


async def test_a_filter_that_no_option_can_name_ends_the_look(root: Path, trap: Trap) -> None:
    config = root / ".git" / "config"
    plain = config.read_text()
    (root / ".gitattributes").write_text("* filter=a=b\n")
    for name in ("a=b", "ä"):
        config.write_text(f'{plain}[filter "{name}"]\n\tclean = {trap.program("odd")}\n')
        assert await read_git_state(root) is None
        assert "kept.txt" in await FileList(root).paths(), "a walk finds the files"
    assert trap.sprung == []


async def test_no_other_program_of_the_configuration_runs(root: Path, trap: Trap) -> None:
    repository.with_programs(root, trap)
    repository.run_git(root, "diff")
    assert trap.sprung, "git alone runs some"
    trap.reset()
    state, paths, diff = await look(root)
    assert trap.sprung == []
    assert state is not None and state.changed == 2
    assert "kept.txt" in paths
    assert diff is not None and "-one\n+two" in diff


async def test_a_repository_within_is_not_asked(root: Path, trap: Trap) -> None:
    repository.nested(root, trap)
    repository.run_git(root, "status")
    assert "inner" in trap.sprung, "git alone asks it"
    trap.reset()
    state, _, diff = await look(root)
    assert trap.sprung == []
    assert state is not None and state.branch == "main"
    assert diff is not None


@pytest.mark.parametrize("url", ["ext::touch {}", "ssh://nowhere.invalid/x", "{}"])
async def test_what_a_partial_clone_lacks_is_not_fetched(root: Path, trap: Trap, url: str) -> None:
    repository.lacking_objects(root, trap, url.format(trap.marks / "ext" if "ext" in url else root))
    await look(root)
    assert trap.sprung == []
    if "ext" in url:
        with pytest.raises(subprocess.CalledProcessError):
            repository.run_git(root, "status")
        assert trap.sprung == ["ext"], "git alone fetches"


async def test_a_bare_repository_that_passes_for_the_workspace_is_not_read(root: Path, trap: Trap) -> None:
    fake = root / "sub"
    for name in ("objects", "refs"):
        (fake / name).mkdir(parents=True)
    (fake / "HEAD").write_text("ref: refs/heads/evil\n")
    (fake / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n")
    assert await read_git_state(fake) is None


async def test_variables_of_git_name_no_program_and_no_other_repository(
    root: Path, trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = repository.plain(tmp_path / "other")
    repository.run_git(other, "checkout", "-q", "-b", "elsewhere")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(trap.program("external")))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(trap.program("fsmonitor")))
    state, _, _ = await look(root)
    assert state == GitState("main", 1)
    assert trap.sprung == []


async def test_another_work_tree_runs_nothing(root: Path, trap: Trap, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / ".gitattributes").write_text("* filter=x\n")
    (other / "kept.txt").write_text("three\n")
    repository.run_git(root, "config", "filter.x.clean", str(trap.program("clean")))
    repository.run_git(root, "config", "core.worktree", str(other))
    await look(root)
    assert trap.sprung == []


async def test_a_session_in_plan_runs_nothing_of_a_hostile_folder(
    store: Store, root: Path, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.with_filters(root, trap)
    for name in ("git", "rg", "bash"):
        trap.program(name, root)
    monkeypatch.setenv("PATH", f".:{root}::/usr/bin:/bin")
    monkeypatch.chdir(root)
    run = await start(store, root, ["done"], overrides=("approval.mode=plan",))
    await run.ask("hello")
    assert run.session.workspace.files.git == GitState("main", 8)
    await run.session.close()
    assert trap.sprung == []


# --- programs ------------------------------------------------------------------------------------------------


@pytest.fixture
def hostile_path(root: Path, trap: Trap, monkeypatch: pytest.MonkeyPatch) -> str:
    """A PATH that finds programs of the workspace first, in every way; the test stands in the workspace."""
    tools = root / "tools"
    tools.mkdir()
    for name in ("git", "rg", "bash", "pip3", "nano", "xdg-open", "wl-paste"):
        trap.program(name, root)
        trap.program(name, tools)
    (root.parent / "link").symlink_to(tools)
    monkeypatch.chdir(root)
    path = f".::{root}:{tools}:{root.parent}/link:{tools}/../tools:tools:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path)
    return path


def test_the_workspace_and_what_is_relative_are_not_searched(root: Path, hostile_path: str, tmp_path: Path) -> None:
    assert search_path(root, hostile_path) == "/usr/bin:/bin"
    found = find_program("bash", root, hostile_path)
    assert found is not None and found.startswith(("/usr/bin", "/bin"))
    assert find_program("nano-of-the-workspace", root, hostile_path) is None
    outside = tmp_path / "bin"
    outside.mkdir()
    (outside / "rg").symlink_to(root / "rg")
    assert find_program("rg", root, str(outside)) is None, "a link into the workspace is of the workspace"
    (outside / "rg").unlink()
    (outside / "rg").write_text("")
    assert find_program("rg", root, str(outside)) is None, "not executable"
    (outside / "rg").chmod(0o700)
    assert find_program("rg", root, str(outside)) == str(outside / "rg")


def test_the_systems_folders_count_even_within_the_workspace(tmp_path: Path) -> None:
    for workspace in (Path("/"), Path("/usr")):
        assert find_program("sh", workspace, "/nowhere:/usr/bin:/bin") is not None
    assert find_program("sh", tmp_path / "gone", "/usr/bin:/bin") is not None
    assert build_safe_environment({"PATH": f".:{tmp_path}", "A": "b"}, tmp_path) == {"PATH": os.defpath, "A": "b"}


async def test_tools_and_doctor_start_no_program_of_the_workspace(
    store: Store, root: Path, trap: Trap, hostile_path: str, tmp_path: Path
) -> None:
    tools = ToolState(root, root, tmp_path / "out", store.clock, store.ids, {"PATH": hostile_path})
    run = tools.make_context("call", "thread", "", lambda _piece: None)
    assert "kept.txt:1:one" in (await grep(run, {"pattern": "one"})).content
    assert (await bash(run, {"command": "echo $0"})).content.endswith("/bash")
    assert await read_git_state(root) is not None
    tools.env = {"PATH": f"{root}:."}
    with pytest.raises(ToolError, match="bash was not found"):
        await bash(run, {"command": "true"})
    lines = await doctor.examine(store.path, {"PATH": hostile_path}, root, Config())
    assert not [line for line in lines if str(root) in line.detail and line.name in ("ripgrep", "bash")]
    assert trap.sprung == []


def test_pip_is_not_taken_from_the_workspace(root: Path, hostile_path: str, tmp_path: Path, trap: Trap) -> None:
    (root / "pip.py").write_text(f"open({str(trap.marks / 'pip')!r}, 'w')\n")
    folder = tmp_path / "download"
    folder.mkdir()
    with pytest.raises(Exception, match="pip|fetched"):
        download_wheel("no such requirement at all", folder, lambda: False, workspace=root)
    assert trap.sprung == []
