from __future__ import annotations

import struct

import pytest

from sakti.core.content import format_size, read_image_header

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480)
JPEG = (
    b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF" + b"\0" * 10
    + b"\xff\xff\xc4" + struct.pack(">H", 5) + b"abc"  # padding, then a table that is no frame
    + b"\xff\xc2" + struct.pack(">HBHH", 17, 8, 480, 640)
)  # fmt: skip
VP8X = b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")
VP8L = b"RIFF\0\0\0\0WEBPVP8L" + b"\0" * 4 + b"\x2f" + (639 | 479 << 14).to_bytes(4, "little")
VP8 = b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 10 + struct.pack("<HH", 640, 480)
GIF = b"GIF89a" + struct.pack("<HH", 640, 480)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (VP8X, "image/webp"),
        (VP8L, "image/webp"),
        (VP8, "image/webp"),
    ],
)
def test_what_an_image_is_and_how_large(data: bytes, kind: str) -> None:
    assert read_image_header(data) == (kind, 640, 480)
    for cut in range(12, len(data)):
        found = read_image_header(data[:cut])
        assert found is None or (found[0] == kind and found[1:] in ((0, 0), (640, 480)))


def test_what_is_no_image() -> None:
    for data in (b"", b"GIF", b"hello", b"%PDF-1.7", b"RIFF\0\0\0\0WAVE", b"<svg/>", b"BM\0\0\0\0"):
        assert read_image_header(data) is None


def test_sizes_in_words() -> None:
    assert [format_size(n) for n in (12, 33_800, 999_499, 999_501, 3_900_000)] == [
        "12 bytes", "34 kB", "999 kB", "1.0 MB", "3.9 MB",
    ]  # fmt: skip
