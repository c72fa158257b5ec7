"""Store file contents: loose objects of a git repository, secrets and entire files beside it.

Entire files are those that are too large to be compressed and compared (`FILE`), and the objects of the user's
repository (`HISTORY`). Their names come from metadata of the file, not from its content, so that no file has to be
read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from sakti.core.errors import SaktiError

SECRET = "secret:"
FILE = "file:"
HISTORY = "history:"
INDEX = "index:"
LEVEL = 1  # zlib level: an edit waits for the compression
_CHUNK = 1 << 30  # bytes that the kernel copies at once
_FIXED = 62  # bytes of an entry before its path; the first 40 are facts of the file
_SHA = 20


class Objects:
    """`folder` is the repository, `beside` the folder of secrets; `packed` reads from packs of git.

    Other kinds lie in folders beside that one.
    """

    def __init__(self, folder: Path, beside: Path, packed: Callable[[str], bytes | None] = lambda _oid: None) -> None:
        self._objects = folder / "objects"
        self._folders = {SECRET: beside, **{k: beside.with_name(k[:-1]) for k in (FILE, HISTORY, INDEX)}}
        self._packed = packed

    def put(self, data: bytes, *, secret: bool = False, sync: bool = True, oid: str = "") -> str:
        """Store a content, durably with `sync`; return its id: `oid` if given. Raises OSError."""
        if secret or oid:
            oid = oid or SECRET + hashlib.sha256(data).hexdigest()
            self._write(self._find_path(oid), data, sync=sync)
            return oid
        oid = compute_blob_id(data)
        self._write(self._find_path(oid), zlib.compress(b"blob %d\0" % len(data) + data, LEVEL), sync=sync)
        return oid

    def get(self, oid: str) -> bytes:
        """Return a content. Raises `SaktiError` if it no longer exists."""
        try:
            data = self._find_path(oid).read_bytes()
            return data if self._is_beside(oid) else zlib.decompress(data).partition(b"\0")[2]
        except (OSError, zlib.error) as e:
            if (content := self._read_packed(oid)) is not None:
                return content
            raise SaktiError("This checkpoint is no longer complete: it was pruned or damaged.", title="Undo") from e

    def has(self, oid: str) -> bool:
        if self.entire_file(oid) is not None:
            return self._is_intact(oid)
        return self._find_path(oid).exists() or self._read_packed(oid) is not None

    def _is_intact(self, oid: str) -> bool:
        """Return whether an entire file still matches its name: a link shares later changes of the file."""
        try:
            status = self._find_path(oid).stat()
        except OSError:
            return False
        facts = f"{status.st_size:x}-{status.st_mtime_ns:x}" if oid.startswith(FILE) else f"{status.st_size:x}"
        return oid.partition("-")[2] == facts

    def keep(self, oid: str, name: str, folder: int, *, link: bool = False) -> None:
        """Store the file `name` of an open folder; with `link` as a hard link if the disk allows it.

        A link takes no space and survives a removal. A copy also survives writing into the file. Raises OSError.
        """
        target = self._find_path(oid)
        if self._is_intact(oid):
            return
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if link:
            with contextlib.suppress(OSError):
                target.unlink(missing_ok=True)
                os.link(name, target, src_dir_fd=folder, follow_symlinks=False)
                return
        temporary = target.with_name(f"tmp-{os.getpid()}-{os.urandom(4).hex()}")
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            with os.fdopen(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as f:
                copy_file(source, f.fileno())
                status = os.fstat(source)
                os.utime(f.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
            temporary.replace(target)
        finally:
            os.close(source)
            temporary.unlink(missing_ok=True)

    def entire_file(self, oid: str) -> Path | None:
        """Return the file that holds an entire file's content; None for one that `get` returns."""
        return self._find_path(oid) if oid.startswith((FILE, HISTORY)) else None

    def size_of(self, kind: str) -> int:
        """Return the bytes used by contents of a kind, without files that also exist elsewhere."""
        folder = self._folders[kind]
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            return sum(s.st_size for e in entries if (s := e.stat(follow_symlinks=False)).st_nlink == 1)
        return 0

    def folder_of(self, kind: str) -> Path:
        """Return the folder of the contents of a kind, created if missing."""
        self._folders[kind].mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folders[kind]

    def drop(self, oids: Iterable[str]) -> None:
        """Delete contents of entire files."""
        for oid in oids:
            self._find_path(oid).unlink(missing_ok=True)

    def names_of(self, kind: str) -> set[str]:
        """Return the ids of all contents of a kind that are kept beside the repository."""
        try:
            return {kind + name for name in os.listdir(self._folders[kind])}  # noqa: PTH208 - thousands
        except FileNotFoundError:
            return set()

    def packs(self) -> list[Path]:
        """Return the files of packs."""
        return sorted((self._objects / "pack").glob("*"))

    def unpack(self, needed: Iterable[str]) -> int:
        """Unpack the needed objects of the packs, then delete these; return their size in bytes."""
        files = self.packs()
        if not files:
            return 0
        for oid in needed:
            if not self._find_path(oid).exists() and (data := self._read_packed(oid)) is not None:
                self.put(data)
        freed = sum(f.stat().st_size for f in files)
        for file in files:
            file.unlink(missing_ok=True)
        return freed

    def _read_packed(self, oid: str) -> bytes | None:
        return None if self._is_beside(oid) or not self.packs() else self._packed(oid)

    def _is_beside(self, oid: str) -> bool:
        return ":" in oid

    def everything(self) -> Iterator[tuple[str, Path, os.stat_result]]:
        """Yield the id, file and status of every content."""
        folders = [(f.name, f) for f in self._objects.glob("[0-9a-f][0-9a-f]")]
        for prefix, folder in (*folders, *self._folders.items()):
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    yield prefix + entry.name, Path(entry.path), entry.stat(follow_symlinks=False)

    def sweep(self, needed: Collection[str], older_than: float) -> int:
        """Delete contents not needed and written before `older_than` (Unix s); return their bytes."""
        freed = 0
        for oid, path, status in list(self.everything()):
            if oid not in needed and max(status.st_mtime, status.st_ctime) < older_than:
                with contextlib.suppress(OSError):
                    path.unlink()
                    freed += status.st_size
        return freed

    def _find_path(self, oid: str) -> Path:
        kind, sign, name = oid.partition(":")
        return self._folders[kind + sign] / name if sign else self._objects / oid[:2] / oid[2:]

    def _write(self, path: Path, data: bytes, *, sync: bool) -> None:
        if path.exists():
            with contextlib.suppress(OSError):
                os.utime(path)  # needed again: pruning spares recent files
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f"tmp-{os.getpid()}-{os.urandom(4).hex()}")
        with os.fdopen(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as f:
            f.write(data)
            if sync:
                f.flush()
                os.fsync(f.fileno())
        temporary.replace(path)


def compute_blob_id(data: bytes) -> str:
    """Return the id that git gives a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def copy_file(source: int, target: int) -> None:
    """Copy an open file into another by the kernel, which shares blocks if the file system can."""
    try:
        while os.copy_file_range(source, target, _CHUNK):
            pass
    except (AttributeError, OSError):
        os.lseek(source, 0, os.SEEK_SET)
        os.lseek(target, 0, os.SEEK_SET)
        while data := os.read(source, 1 << 20):
            while data:
                data = data[os.write(target, data) :]
        os.ftruncate(target, os.lseek(target, 0, os.SEEK_CUR))


# --- git's index, versions 2 and 3 -----------------------------------------------------------------------------------


def parse_index(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the content id of each entry, and the entry without the metadata of its file.

    Raises `ValueError` if it is no index of these versions.
    """
    try:
        magic, version, number = struct.unpack(">4sII", data[:12])
        if magic != b"DIRC" or version not in (2, 3):
            raise ValueError("not an index of version 2 or 3")
        at = 12
        for _ in range(number):
            flags = int.from_bytes(data[at + 60 : at + _FIXED], "big")
            end = data.index(b"\0", at + (_FIXED + 2 if flags & 0x4000 else _FIXED))
            yield data[at + 40 : at + 60].hex(), data[at + 24 : at + 28] + data[at + 40 : end]
            at += (end - at + 8) & ~7
    except struct.error as e:
        raise ValueError("not a whole index") from e


def compute_index_id(data: bytes) -> str:
    """Return an id of an index that stays the same when git only refreshes file metadata.

    An index that cannot be read is named by its bytes.
    """
    if data[-_SHA:] not in (hashlib.sha1(data[:-_SHA], usedforsecurity=False).digest(), bytes(_SHA)):
        return compute_blob_id(data)  # another hash, or damaged
    digest = hashlib.sha1(usedforsecurity=False)
    try:
        for _, row in parse_index(data):
            digest.update(row + b"\0")
    except ValueError:
        return compute_blob_id(data)
    return INDEX + digest.hexdigest()
