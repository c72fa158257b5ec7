"""Mask secrets stored unmasked in rows, outputs of tools and logs; delete copies of the database."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from sakti.core import resources
from sakti.core.errors import StoreError
from sakti.core.text import counted
from sakti.store.maintenance import purging, redacting
from sakti.store.secrets import has_secret, masked

if TYPE_CHECKING:
    from sakti.core.types import Json
    from sakti.store.database import Store


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
            *(f"{table.replace('_', ' '):<22} {counted(n, 'text')}" for table, n in sorted(self.found.texts.items())),
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
    """Count what holds secrets; `do`: mask it, and remove copies of the database, which hold them, too.

    Raises `StoreError` (read_only) where it is to be done and nothing can be written.
    """
    if do and store.read_only_reason:
        raise StoreError(store.read_only_reason, code="read_only")
    out = Redacted(store.path, files=[p for p in _files() if has_secret(_text(p))])
    clean_before = await store.read(purging.is_clean)
    if not do:
        out.found = await redacting.count(store)
        out.copies = [] if keep_copies or out.empty else purging.copies(store.path)
        return out
    await store.write(purging.begin)
    out.found = await redacting.redact(store)
    out.copies = [] if keep_copies or out.empty else purging.remove(purging.copies(store.path))
    rewrite_files(masked)
    out.flushed = await purging.clean(store)
    if clean_before and out.flushed:
        await store.write(purging.finish)
    return out


def _files() -> list[Path]:
    state = resources.state_home()
    candidates = [*(state / "outputs").glob("*.txt"), *state.glob("sakti.log*")]
    return sorted(p for p in candidates if p.is_file() and not p.is_symlink())


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text("utf-8", "replace")
    return ""


def rewrite_files(change: Callable[[str], str]) -> None:
    """Rewrite in place the tool outputs and logs that `change` alters; only their owner can read them."""
    for path in _files():
        text = _text(path)
        if (clean := change(text)) == text:
            continue
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(clean)
        new.replace(path)
