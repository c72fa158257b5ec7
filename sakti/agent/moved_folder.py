"""Recognize a moved or renamed folder, and offer to adopt the data stored under its old path."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

from msgspec.structs import replace

from sakti.agent import repository
from sakti.core.text import format_count
from sakti.store import user_state
from sakti.store.database import Store
from sakti.store.threads import threads
from sakti.store.user_state import Holdings, WorkspaceFolder

_OFFERED = "adoption:"  # of ui_state, before the root of the earlier workspace


async def find_earlier(
    store: Store, root: Path, *, trusted: bool, saved: bool, interactive: bool = True
) -> list[Holdings]:
    """Remember this folder; return its earlier workspaces, to be offered.

    The same folder has the same device and inode. In a trusted workspace the same name and first commit count as well:
    git is asked only there. Once the folder has a thread, a chat offers what no chat offered before.
    """
    folder = await asyncio.to_thread(_look_at, root)
    if folder is None:
        return []
    can_write = saved and not store.not_saved
    folder = await _remember(store, folder, trusted=trusted, can_write=can_write)
    has_threads = bool(await store.read(threads.list_recent, folder.root, 1))
    if has_threads and not interactive:
        return []
    earlier = [h for h in await store.read(user_state.find_same_folders, folder) if not await _exists(h.root)]
    if has_threads:
        state = await store.read(user_state.load_ui_state)
        earlier = [h for h in earlier if _OFFERED + h.root not in state]
    if interactive and can_write:
        for holdings in earlier:
            await store.write(user_state.set_ui_state, _OFFERED + holdings.root, folder.root)
    return earlier


async def _remember(store: Store, folder: WorkspaceFolder, *, trusted: bool, can_write: bool) -> WorkspaceFolder:
    """Store a folder if it is new or has changed; return it with its first commit, if that is known."""
    before = await store.read(user_state.get_folder, folder.root)
    if before is not None and before.inode == folder.inode and before.first_commit:
        folder = replace(folder, first_commit=before.first_commit)
    elif trusted:
        folder = replace(folder, first_commit=await repository.find_first_commit(Path(folder.root)))
    if can_write and folder != before:
        await store.write(user_state.remember_folder, folder)
    return folder


def _look_at(root: Path) -> WorkspaceFolder | None:
    try:
        status = root.stat()
    except OSError:
        return None
    return WorkspaceFolder(str(root), root.name, status.st_dev, status.st_ino)


async def _exists(root: str) -> bool:
    return await asyncio.to_thread(Path(root).exists)


def offer(earlier: Holdings, *, chat: bool = False) -> str:
    """Return one sentence that offers to adopt a workspace."""
    command = f"/threads adopt {earlier.root}" if chat else f"`sakti threads adopt {shlex.quote(earlier.root)}`"
    return f"This folder was {earlier.root}: {command} adopts its {describe(earlier)}."


def describe(holdings: Holdings) -> str:
    """Describe the contents of a workspace for display."""
    parts = [format_count(holdings.threads, "thread")] if holdings.threads else []
    parts += [format_count(holdings.tasks, "task")] if holdings.tasks else []
    parts += ["page"] if holdings.page else []
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
