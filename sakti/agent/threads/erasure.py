"""Erase for good: threads with every copy of them, and secrets that were stored unmasked."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from sakti.agent.checkpoints import shadow as checkpoints
from sakti.core import resources
from sakti.core.errors import StoreError
from sakti.core.text import format_count, quote
from sakti.store.maintenance import purging, redacting, upkeep
from sakti.store.secrets import has_secret, mask_output, mask_secrets
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
            *(f"task {t.handle} {quote(t.title)}" for t in self.tasks),
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


def _must_write(store: Store) -> None:
    """Raise `StoreError` (read_only) if the store takes no change."""
    if store.read_only_reason:
        raise StoreError(store.read_only_reason, code="read_only")


async def purge(store: Store, *, before: int, do: bool, keep_copies: bool = False) -> Purged:
    """Return everything deleted by `before` (Unix ms) and its files; `do`: remove it for good.

    If nothing was deleted, nothing else is removed either, except the remains of an interrupted purge. Raises
    `StoreError` (read_only) if `do` is set and nothing can be written.
    """
    if do:  # also if nothing is removed: the file could not be read and rewritten
        _must_write(store)
    purged = Purged(store.path)
    going = [c.thread.id for c in await store.read(thread_removal.list_deleted, before=before)]
    purged.threads = [await store.read(thread_removal.preview_removal, i, going) for i in going]
    purged.tasks = mask_output(await store.read(purging.list_deleted_tasks, before=before))
    named = [n for c in purged.threads for n in await store.read(purging.list_named_files, c.thread.id)]
    shared = await store.read(purging.list_shared_files, going)
    purged.files = [p for n in named if n not in shared and (p := _find_own_file(n)) is not None]
    purged.copies = [] if keep_copies or purged.empty else purging.list_copies(store.path)
    if do and not (purged.empty and await store.read(purging.is_clean)):
        await _remove_all(store, purged)
    return purged


async def _remove_all(store: Store, purged: Purged) -> None:
    """Remove the rows and files that `purged` lists; keep in it those that were removed."""
    was_clean = await store.write(purging.begin_purge)
    # files first: only the rows name them, so an interrupted removal can be repeated
    purged.copies = purging.remove_copies(purged.copies)
    purged.files = [f for f in purged.files if _remove(f)]
    for contents in purged.threads:
        await asyncio.to_thread(checkpoints.purge_thread, contents.thread.id)
        await purging.purge_thread(store, contents.thread.id)
    for task in purged.tasks:
        await purging.purge_task(store, task.id)
    purged.flushed = await purging.clean(store)
    if was_clean and purged.flushed:
        await store.write(purging.finish_purge)


def _remove(file: Path) -> bool:
    with contextlib.suppress(OSError):
        file.unlink()
    return not file.exists()


def remove_files(names: Iterable[str]) -> None:
    """Remove the files of these that sakti wrote for a message."""
    for file in map(_find_own_file, names):
        if file is not None:
            _remove(file)


def _find_own_file(name: str) -> Path | None:
    """Return the file if sakti wrote it for a message."""
    path = Path(name)
    folders = (resources.state_home() / "outputs", resources.state_home() / "pasted")
    return path if any(k in path.parents for k in folders) and path.is_file() and not path.is_symlink() else None


class RemovalSummary(Protocol):
    """Summary of a removal from a database."""

    path: Path
    flushed: bool


def overwrite_free_space(done: RemovalSummary) -> str:
    """Rewrite a file used before removals overwrote, so that its free space is empty too.

    Returns a remaining note; empty if all is done. The store must be closed.
    """
    try:
        if not upkeep.is_clean(done.path):
            upkeep.vacuum(done.path)
            return ""
    except StoreError as e:
        return IN_USE if e.code == "busy" else f"{e.message} Removed text may stay in the file's free space."
    return "" if done.flushed else IN_USE


class Redacted(Struct):
    """Data with secrets, before or after masking.

    `files`: outputs of tools and logs; `copies` of the entire database.
    """

    path: Path
    found: redacting.SecretCounts = field(default_factory=redacting.SecretCounts)
    files: list[Path] = field(default_factory=list[Path])
    copies: list[Path] = field(default_factory=list[Path])
    flushed: bool = True

    @property
    def empty(self) -> bool:
        return not (self.found.texts or self.files)

    def in_words(self) -> list[str]:
        return [
            *(
                f"{table.replace('_', ' '):<22} {format_count(n, 'text')}"
                for table, n in sorted(self.found.texts.items())
            ),
            *(f"{'kind ' + kind:<22} {n:,}" for kind, n in self.found.kinds.items()),
            *(f"file {p}" for p in self.files),
            *(f"copy {p}" for p in self.copies),
        ]

    def as_json(self) -> Json:
        return {
            "texts": dict(self.found.texts),
            "kinds": self.found.kinds,
            "files": [str(p) for p in self.files],
            "copies": [str(p) for p in self.copies],
        }


async def redact(store: Store, *, do: bool, keep_copies: bool = False) -> Redacted:
    """Count the texts with secrets; `do`: mask them, and remove copies of the database.

    Raises `StoreError` (read_only) if `do` is set and nothing can be written.
    """
    if do:
        _must_write(store)
    out = Redacted(store.path, files=[p for p in _list_files() if has_secret(_read_text(p))])
    clean_before = await store.read(purging.is_clean)
    if not do:
        out.found = await redacting.count(store)
        out.copies = [] if keep_copies or out.empty else purging.list_copies(store.path)
        return out
    await store.write(purging.begin_purge)
    out.found = await redacting.redact(store)
    out.copies = [] if keep_copies or out.empty else purging.remove_copies(purging.list_copies(store.path))
    rewrite_files(mask_secrets)
    out.flushed = await purging.clean(store)
    if clean_before and out.flushed:
        await store.write(purging.finish_purge)
    return out


def _list_files() -> list[Path]:
    state = resources.state_home()
    candidates = [*(state / "outputs").glob("*.txt"), *state.glob("sakti.log*")]
    return sorted(p for p in candidates if p.is_file() and not p.is_symlink())


def _read_text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text("utf-8", "replace")
    return ""


def rewrite_files(change: Callable[[str], str]) -> None:
    """Rewrite in place the tool outputs and logs that `change` alters; only their owner can read them."""
    for path in _list_files():
        text = _read_text(path)
        if (clean := change(text)) == text:
            continue
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(clean)
        new.replace(path)
