"""Keep the contents of files as loose objects of a git repository; those of secret files lie beside it, private."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from sakti.core.errors import SaktiError

SECRET = "secret:"
LEVEL = 1  # of zlib: an edit waits for it


class Objects:
    """`folder` is the repository, `beside` the folder of secret contents; `packed` reads what git has packed."""

    def __init__(self, folder: Path, beside: Path, packed: Callable[[str], bytes | None] = lambda _oid: None) -> None:
        self._objects = folder / "objects"
        self._beside = beside
        self._packed = packed

    def put(self, data: bytes, *, secret: bool = False, sync: bool = True) -> str:
        """Keep a content, durably with `sync`; return its id. Raises OSError."""
        if secret:
            oid = SECRET + hashlib.sha256(data).hexdigest()
            self._write(self._path(oid), data, sync=sync)
            return oid
        oid = blob_id(data)
        self._write(self._path(oid), zlib.compress(b"blob %d\0" % len(data) + data, LEVEL), sync=sync)
        return oid

    def get(self, oid: str) -> bytes:
        """Return a content. Raises `SaktiError` where it is no longer there."""
        try:
            data = self._path(oid).read_bytes()
            return data if oid.startswith(SECRET) else zlib.decompress(data).partition(b"\0")[2]
        except (OSError, zlib.error) as e:
            if (found := self._from_pack(oid)) is not None:
                return found
            raise SaktiError("This checkpoint is no longer complete: it was pruned or damaged.", title="Undo") from e

    def has(self, oid: str) -> bool:
        return self._path(oid).exists() or self._from_pack(oid) is not None

    def packs(self) -> list[Path]:
        """Return the files of packs."""
        return sorted((self._objects / "pack").glob("*"))

    def unpack(self, needed: Iterable[str]) -> int:
        """Put what is needed of the packs beside them, then delete these; return their bytes."""
        files = self.packs()
        if not files:
            return 0
        for oid in needed:
            if not self._path(oid).exists() and (data := self._from_pack(oid)) is not None:
                self.put(data)
        freed = sum(f.stat().st_size for f in files)
        for file in files:
            file.unlink(missing_ok=True)
        return freed

    def _from_pack(self, oid: str) -> bytes | None:
        return None if oid.startswith(SECRET) or not self.packs() else self._packed(oid)

    def everything(self) -> Iterator[tuple[str, Path, os.stat_result]]:
        """Yield the id, file and status of every content."""
        for folder in (*self._objects.glob("[0-9a-f][0-9a-f]"), self._beside):
            secret = folder == self._beside
            with contextlib.suppress(OSError), os.scandir(folder) as found:
                for entry in found:
                    oid = SECRET + entry.name if secret else folder.name + entry.name
                    yield oid, Path(entry.path), entry.stat(follow_symlinks=False)

    def sweep(self, needed: Collection[str], older_than: float) -> int:
        """Delete contents that nobody needs and that were written before `older_than` (Unix s); return their bytes."""
        freed = 0
        for oid, path, status in list(self.everything()):
            if oid not in needed and status.st_mtime < older_than:
                with contextlib.suppress(OSError):
                    path.unlink()
                    freed += status.st_size
        return freed

    def _path(self, oid: str) -> Path:
        if oid.startswith(SECRET):
            return self._beside / oid.removeprefix(SECRET)
        return self._objects / oid[:2] / oid[2:]

    def _write(self, path: Path, data: bytes, *, sync: bool) -> None:
        if path.exists():
            with contextlib.suppress(OSError):
                os.utime(path)  # needed again: pruning spares what is young
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f"tmp-{os.getpid()}-{os.urandom(4).hex()}")
        with os.fdopen(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as f:
            f.write(data)
            if sync:
                f.flush()
                os.fsync(f.fileno())
        temporary.replace(path)


def blob_id(data: bytes) -> str:
    """Return the id that git gives a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
