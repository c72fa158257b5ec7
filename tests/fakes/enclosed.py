"""A home folder with keys, in it a workspace with a repository and secrets, and commands in the real sandbox."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sakti.agent.sandbox.sandbox import SystemSandbox


def git(folder: Path, *words: str) -> str:
    """Run git as a user would, with the repository's own configuration in effect; return what it wrote."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    names = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always")
    done = subprocess.run(["git", *names, *words], cwd=folder, env=env, check=False, capture_output=True)
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def made_place(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    work = home / "work"
    (work / "sub").mkdir(parents=True)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("PRIVATE")
    (home / ".bashrc").write_text("")
    (work / ".env").write_text("TOKEN=inner-secret\n")
    (work / "sub" / ".env").write_text("TOKEN=inner-secret\n")
    (work / "a").write_text("a\n")
    git(work, "init", "-q")
    git(work, "add", "a")
    git(work, "commit", "-qm", "first")
    return work


def made_sandbox(
    workspace: Path, tmp_path: Path, home: Path | None = None, added: tuple[Path, ...] = ()
) -> SystemSandbox:
    """The test's own folder is a temporary one: it must be seen, so that what is not written there says something."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    temporary = (tmp_path / "tmp", Path("/run"))
    made = SystemSandbox(
        workspace, home=home or workspace.parent, state=tmp_path / "state", temporary=temporary, added=added
    )
    if made.level.name == "unsandboxed":
        pytest.skip(f"this machine has no sandbox: {made.level.text}")
    return made


def run(
    sandbox: SystemSandbox, command: str, *, limit: float = 30, shown: tuple[Path, ...] = (), **how: bool
) -> tuple[int, str]:
    with sandbox.enclose(["bash", "-c", command], sandbox.workspace, shown, **how) as made:
        done = subprocess.run(
            made.argv,
            cwd=made.cwd,
            env={"PATH": os.environ["PATH"], "HOME": str(sandbox.home)},
            pass_fds=made.descriptors,
            capture_output=True,
            timeout=limit,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")


def refused(sandbox: SystemSandbox, command: str) -> str:
    code, said = run(sandbox, f"({command}) && echo DONE")
    assert "DONE" not in said and code != 0, (command, said)
    return said
