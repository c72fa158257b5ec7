"""A git repository that tries to run a program at every look at it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class Trap:
    """A program that leaves a mark when it runs. `sprung` names who called it."""

    def __init__(self, folder: Path) -> None:
        self.marks = folder / "marks"
        self.marks.mkdir(parents=True)
        self._folder = folder

    @property
    def sprung(self) -> list[str]:
        return sorted(f.name for f in self.marks.iterdir())

    def reset(self) -> None:
        for mark in self.marks.iterdir():
            mark.unlink()

    def program(self, name: str, folder: Path | None = None) -> Path:
        """A program that leaves `name` as its mark and hands its input on, as a filter does."""
        path = (folder or self._folder) / name
        path.write_text(f"#!/bin/sh\n: > '{self.marks}/{name.replace('/', '_')}'\ncat 2>/dev/null\nexit 0\n")
        path.chmod(0o700)
        return path


def run_git(folder: Path, *arguments: str) -> str:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    asked = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder, env=env, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return asked.stdout


def plain(folder: Path) -> Path:
    """A repository with one committed file and one changed one."""
    folder.mkdir(parents=True, exist_ok=True)
    run_git(folder, "init", "-q", "-b", "main")
    for name in ("kept.txt", "changed.txt"):
        (folder / name).write_text("one\n")
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-q", "-m", "first")
    touch(folder)
    return folder


def touch(folder: Path) -> None:
    """Give files another time, so that git has to read them again, and one another content."""
    for path in folder.iterdir():
        if path.is_file():
            os.utime(path, (1_000_000_000, 1_000_000_000))
    (folder / "changed.txt").write_text("two\n")


def with_filters(folder: Path, trap: Trap) -> None:
    """Filters under several names, each by each of its keys, the attributes in both places."""
    for name in ("third.txt", "fourth.txt", "fifth.txt"):
        (folder / name).write_text("one\n")
        run_git(folder, "add", name)
    run_git(folder, "config", "filter.x.clean", str(trap.program("clean")))
    run_git(folder, "config", "filter.a.b.process", str(trap.program("process")))
    run_git(folder, "config", "filter.UPPER.smudge", str(trap.program("smudge")))
    run_git(folder, "config", "filter.UPPER.clean", str(trap.program("upper")))
    run_git(folder, "config", "filter.UPPER.required", "true")
    more = folder / ".git" / "more"
    more.write_text(f'[FILTER "inc.LUDED"]\n\tClean = {trap.program("included")}\n')
    run_git(folder, "config", "include.path", str(more))
    (folder / ".gitattributes").write_text("kept.txt filter=x\nchanged.txt filter=a.b\n")
    (folder / ".git" / "info" / "attributes").write_text("third.txt filter=UPPER\n")
    (folder / ".git" / "attributes").write_text("fourth.txt filter=inc.LUDED\n")
    run_git(folder, "config", "core.attributesFile", str(folder / ".git" / "attributes"))
    touch(folder)


def with_programs(folder: Path, trap: Trap) -> None:
    """Everything else in a configuration that names a program."""
    hooks = folder / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "fsmonitor-watchman", "pre-auto-gc", "post-checkout"):
        trap.program(hook, hooks)
    for key in (
        "core.fsmonitor", "core.pager", "pager.status", "pager.diff", "diff.external", "diff.word.command",
        "diff.word.textconv", "core.sshCommand", "core.gitProxy", "core.editor", "credential.helper",
        "core.askPass", "core.alternateRefsCommand", "gpg.program", "interactive.diffFilter",
    ):  # fmt: skip
        run_git(folder, "config", key, str(trap.program(key)))
    for alias in ("status", "ls-files", "diff", "config"):
        run_git(folder, "config", f"alias.{alias}", f"!{trap.program('alias')}")
    run_git(folder, "config", "status.submoduleSummary", "true")
    (folder / ".gitattributes").write_text("*.txt diff=word\n")


def nested(folder: Path, trap: Trap) -> None:
    """A repository within, known to the outer one, that runs a filter when it is asked for its state."""
    inner = plain(folder / "inner")
    run_git(inner, "config", "filter.inner.clean", str(trap.program("inner")))
    run_git(inner, "config", "core.fsmonitor", str(trap.program("inner-fsmonitor")))
    (inner / ".git" / "info" / "attributes").write_text("* filter=inner\n")
    run_git(folder, "add", "inner")
    touch(inner)


def lacking_objects(folder: Path, trap: Trap, url: str) -> None:
    """A partial clone that has to fetch what it is asked about, from a place that runs a program."""
    run_git(folder, "config", "core.repositoryFormatVersion", "1")
    run_git(folder, "config", "extensions.partialClone", "origin")
    run_git(folder, "config", "remote.origin.url", url)
    run_git(folder, "config", "remote.origin.promisor", "true")
    run_git(folder, "config", "remote.origin.uploadpack", str(trap.program("uploadpack")))
    run_git(folder, "config", "core.sshCommand", str(trap.program("ssh")))
    run_git(folder, "config", "protocol.ext.allow", "always")
    tree = run_git(folder, "rev-parse", "HEAD^{tree}").strip()
    (folder / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
