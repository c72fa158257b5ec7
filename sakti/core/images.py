"""Read what an image file is from its content, and what size models accept. Pure."""

from __future__ import annotations

import struct

# Anthropic refuses an image of more than 5 MiB, counted in base64; OpenAI takes more.
LIMIT = 5 * 1024 * 1024 * 3 // 4
HEAD = 256 * 1024  # bytes in which the size in pixels is looked for

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # start-of-frame markers (ITU T.81, table B.1)


def look(data: bytes) -> tuple[str, int, int] | None:
    """Read media type, width and height of an image that models take from its first bytes.

    Pixels; 0 where they cannot be read. None for anything else.
    """
    if data.startswith(_PNG):
        return ("image/png", *_numbers(">II", data, 16))
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return ("image/gif", *_numbers("<HH", data, 6))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ("image/webp", *_webp(data))
    if data.startswith(b"\xff\xd8\xff"):
        return ("image/jpeg", *_jpeg(data))
    return None


def _numbers(form: str, data: bytes, at: int) -> tuple[int, int]:
    if len(data) < at + struct.calcsize(form):
        return 0, 0
    width, height = struct.unpack_from(form, data, at)
    return width, height


def _webp(data: bytes) -> tuple[int, int]:
    """Read width and height of a WebP image: the three forms of a first chunk (RFC 9649)."""
    match data[12:16]:
        case b"VP8X" if len(data) >= 30:
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L" if len(data) >= 25:
            bits = int.from_bytes(data[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = _numbers("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return 0, 0


def _jpeg(data: bytes) -> tuple[int, int]:
    """Read width and height from the first start-of-frame segment, skipping the segments before it."""
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return 0, 0
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker in _JPEG_SIZES:
            height, width = _numbers(">HH", data, at + 5)
            return width, height
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0


def in_words(size: int) -> str:
    """Format a file size in decimal units, as file managers do: `34 kB`, `1.2 MB`."""
    if size < 1000:
        return f"{size} bytes"
    return f"{round(size / 1000)} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"
