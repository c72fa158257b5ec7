"""Remove threads for good: rows, copies of the database, named files, an old file's free space."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from sakti.agent.checkpoints import shadow as checkpoints
from sakti.core import resources
from sakti.core.errors import StoreError
from sakti.store.maintenance import purging, upkeep
from sakti.store.secrets import mask_output
from sakti.store.threads import removal as thread_removal

if TYPE_CHECKING:
    from sakti.core.types import Json
    from sakti.store.database import Store
    from sakti.store.maintenance.purging import DeletedTask
    from sakti.store.threads.removal import Contents

IN_USE = "Another window is open: removed text may stay in the file until it is closed and `sakti db vacuum` was run."


class Purged(Struct):
    """Data removed, or to be removed, for good.

    `files`: outputs of tools and pasted images that only these messages named.
    """

    path: Path
    threads: list[Contents] = field(default_factory=list["Contents"])
    tasks: list[DeletedTask] = field(default_factory=list["DeletedTask"])
    copies: list[Path] = field(default_factory=list[Path])
    files: list[Path] = field(default_factory=list[Path])
    flushed: bool = True

    @property
    def empty(self) -> bool:
        return not (self.threads or self.tasks)

    def in_words(self) -> list[str]:
        return [
            *(c.purged_in_words() for c in self.threads),
            *(f"task {t.handle} {t.title!r}" for t in self.tasks),
            *(f"copy {p}" for p in self.copies),
            *(f"file {p}" for p in self.files),
        ]

    def as_json(self) -> Json:
        return {
            "threads": [c.as_json() for c in self.threads],
            "tasks": [{"id": t.id, "handle": t.handle, "title": t.title} for t in self.tasks],
            "copies": [str(p) for p in self.copies],
            "files": [str(p) for p in self.files],
        }


async def purge(store: Store, *, before: int, do: bool, keep_copies: bool = False) -> Purged:
    """Return everything deleted by `before` (Unix ms) and its files; `do`: remove it for good.

    Without anything deleted nothing else goes either, but for what a purge left that did not come to its end. Raises
    `StoreError` (read_only) where it is to be done and nothing can be written.
    """
    if do and store.read_only_reason:  # also where nothing goes: the file could not be looked at and written anew
        raise StoreError(store.read_only_reason, code="read_only")
    purged = Purged(store.path)
    purged.threads = await store.read(thread_removal.list_deleted, before=before)
    purged.tasks = mask_output(await store.read(purging.deleted_tasks, before=before))
    named = [n for c in purged.threads for n in await store.read(purging.named_files, c.thread.id)]
    purged.files = [p for n in named if (p := _own_file(n)) is not None]
    purged.copies = [] if keep_copies or purged.empty else purging.copies(store.path)
    if do and not (purged.empty and await store.read(purging.is_clean)):
        await _remove_all(store, purged)
    return purged


async def _remove_all(store: Store, purged: Purged) -> None:
    """Remove the rows and files that `purged` lists; keep in it those that were removed."""
    was_clean = await store.write(purging.begin)
    # first what only the rows name: who is killed in between finds it again
    purged.copies = purging.remove(purged.copies)
    purged.files = [f for f in purged.files if _remove(f)]
    for contents in purged.threads:
        await asyncio.to_thread(checkpoints.purge_thread, contents.thread.id)
        await purging.purge_thread(store, contents.thread.id)
    for task in purged.tasks:
        await purging.purge_task(store, task.id)
    purged.flushed = await purging.clean(store)
    if was_clean and purged.flushed:
        await store.write(purging.finish)


def _remove(file: Path) -> bool:
    with contextlib.suppress(OSError):
        file.unlink()
    return not file.exists()


def remove_files(names: Iterable[str]) -> None:
    """Remove the files of these that sakti wrote for a message."""
    for file in map(_own_file, names):
        if file is not None:
            _remove(file)


def _own_file(name: str) -> Path | None:
    """Return the file if sakti wrote it for a message."""
    path = Path(name)
    folders = (resources.state_home() / "outputs", resources.state_home() / "pasted")
    return path if any(k in path.parents for k in folders) and path.is_file() and not path.is_symlink() else None


class RemovalSummary(Protocol):
    """Summary of a removal from a database."""

    path: Path
    flushed: bool


def wipe_free_space(done: RemovalSummary) -> str:
    """Rewrite a file used before removals overwrote, so that its free space is empty too.

    What is left to say; empty where all is done. The store must be closed.
    """
    try:
        if not upkeep.is_clean(done.path):
            upkeep.vacuum(done.path)
            return ""
    except StoreError as e:
        return IN_USE if e.code == "busy" else f"{e.message} Removed text may stay in the file's free space."
    return "" if done.flushed else IN_USE
