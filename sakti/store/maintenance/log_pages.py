"""Read the pages in a write-ahead log without SQLite, which removes the log of an empty file.

The format is documented: sqlite.org/fileformat2.html, 4. A log counts up to its last commit before the first frame
whose salts or checksum are wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_HEADER, _FRAME_HEADER = 32, 24
_MAGIC = 0x377F0682  # with the lowest bit set, checksums are of big-endian words
_SIZES = {1 << n for n in range(9, 17)}


class _Frame(Struct, frozen=True):
    page: int
    pages: int  # of the database after a commit, else 0
    at: int


def write_into(copy: Path, log: Path) -> bool:
    """Write the committed pages of a log into a copy of its database; return whether there were any.

    Pages that neither of them has are zeros.
    """
    content = log.read_bytes() if log.exists() else b""
    frames = list(_frames(content))
    while frames and not frames[-1].pages:
        frames.pop()
    if not frames:
        return False
    size = _page_size(content)
    with copy.open("r+b") as file:
        for frame in frames:
            file.seek((frame.page - 1) * size)
            file.write(content[frame.at : frame.at + size])
        file.truncate(frames[-1].pages * size)
    return True


def _page_size(content: bytes) -> int:
    (size,) = struct.unpack_from(">I", content, 8)
    return size


def _frames(content: bytes) -> Iterator[_Frame]:
    """Yield the valid frames of a log in order."""
    if len(content) < _HEADER:
        return
    magic, _, size, _ = struct.unpack_from(">4I", content)
    if magic & ~1 != _MAGIC or size not in _SIZES:
        return
    order = ">" if magic & 1 else "<"
    salts = content[16:24]
    sums = _checksum(content[:24], (0, 0), order)
    if sums != struct.unpack_from(">2I", content, 24):
        return
    for at in range(_HEADER, len(content) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        page, pages = struct.unpack_from(">2I", content, at)
        start = at + _FRAME_HEADER
        sums = _checksum(content[at : at + 8] + content[start : start + size], sums, order)
        if not page or content[at + 8 : at + 16] != salts or sums != struct.unpack_from(">2I", content, at + 16):
            return
        yield _Frame(page, pages, start)


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
