"""Recognize a moved or renamed folder, and offer to adopt the data stored under its old path."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

from msgspec.structs import replace

from sakti.agent import repository
from sakti.core.text import counted
from sakti.store import workspaces
from sakti.store.database import Store
from sakti.store.threads import threads
from sakti.store.workspaces import Holdings, KnownFolder


async def find_earlier(store: Store, root: Path, *, trusted: bool, saved: bool) -> list[Holdings]:
    """Remember this folder; return its earlier workspaces if it has no thread yet.

    The same folder has the same device and inode. In a trusted workspace the same name and first commit count as well:
    git is asked only there.
    """
    folder = await asyncio.to_thread(_look_at, root)
    if folder is None:
        return []
    before = await store.read(workspaces.get, folder.root)
    if before is not None and before.inode == folder.inode and before.first_commit:
        folder = replace(folder, first_commit=before.first_commit)
    elif trusted:
        folder = replace(folder, first_commit=await repository.first_commit(root))
    if saved and not store.not_saved and folder != before:
        await store.write(workspaces.remember, folder)
    if await store.read(threads.recent, folder.root, 1):
        return []
    return [
        h for h in await store.read(workspaces.same_folders, folder) if not await asyncio.to_thread(_exists, h.root)
    ]


def _look_at(root: Path) -> KnownFolder | None:
    try:
        status = root.stat()
    except OSError:
        return None
    return KnownFolder(str(root), root.name, status.st_dev, status.st_ino)


def _exists(root: str) -> bool:
    return Path(root).exists()


def offer(earlier: Holdings, *, chat: bool = False) -> str:
    """Return one sentence that offers to adopt a workspace."""
    command = f"/threads adopt {earlier.root}" if chat else f"`sakti threads adopt {shlex.quote(earlier.root)}`"
    return f"This folder was {earlier.root}: {command} adopts its {describe(earlier)}."


def describe(holdings: Holdings) -> str:
    """Return what a workspace has, for people."""
    parts = [counted(holdings.threads, "thread")] if holdings.threads else []
    parts += [counted(holdings.tasks, "task")] if holdings.tasks else []
    parts += ["page"] if holdings.page else []
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
