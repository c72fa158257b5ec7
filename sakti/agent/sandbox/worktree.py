"""Find the repository of a linked worktree, whose `.git` is a file that names it."""

from __future__ import annotations

from pathlib import Path


def kept_at(workspace: Path) -> Path | None:
    """Return the `.git` folder that a linked worktree shares with its repository, or None.

    The repository must name the worktree in turn: a file that came with the workspace could name any folder.
    """
    file = workspace / ".git"
    if not file.is_file() or file.is_symlink():
        return None
    named = _line(file).removeprefix("gitdir:").strip()
    if not named:
        return None
    folder = (workspace / named).resolve()
    back, shared = _line(folder / "gitdir"), _line(folder / "commondir")
    if not back or not shared or (folder / back).resolve() != file.resolve():
        return None
    common = (folder / shared).resolve()
    confirmed = (
        (common / "HEAD").is_file() and (common / "objects").is_dir() and folder.is_relative_to(common / "worktrees")
    )
    return common if confirmed else None


def _line(file: Path) -> str:
    """Return the first line of a small file, or "" if it cannot be read."""
    try:
        with file.open("rb") as f:
            return f.read(4_096).decode("utf-8", "replace").partition("\n")[0].strip()
    except (OSError, ValueError):
        return ""
