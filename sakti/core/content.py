"""Detect the type of a file from its content: a text's encoding, an image's type and size. Pure.

For a text that is not UTF-8 and declares no encoding, charset-normalizer detects the script. Between encodings that
it considers equally likely, such as cp1250 and cp1252, the alphabets of languages decide.
"""

from __future__ import annotations

import struct
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from sakti.core.lazy import lazy_pattern

if TYPE_CHECKING:
    from charset_normalizer import CharsetMatch

# In order of likelihood: of two that decode a text equally well, the first is used.
CANDIDATES = (
    *("cp1252", "latin_1", "cp1250", "iso8859_2", "cp1254", "cp1251", "koi8_r", "iso8859_5", "cp866", "cp1253"),
    *("iso8859_7", "cp932", "euc_jp", "gb18030", "big5", "cp949"),
)
SAMPLE = 16_384  # maximum bytes of non-ASCII lines in the sample
CLOSE_COHERENCE, CLOSE_CHAOS = 0.08, 0.09  # maximum distance from the best match of encodings to compare
# German, French, Spanish, Portuguese, Italian, Nordic, Polish, Czech, Slovak, Hungarian, Romanian, Croatian, Turkish,
# Catalan
_ALPHABETS = tuple(
    map(
        frozenset,
        "äöüß éèêëàâçîïôùûüœæÿ áéíóúñü áàâãçéêíóôõúü àèéìíîòóù åäöéæøáíóúýþð ąćęłńóśźż áčďéěíňóřšťúůýž"
        " áäčďéíĺľňóôŕšťúýž áéíóöőúüű ăâîșțşţ čćđšž âçğıîöşüûi̇ àçèéíïòóúü".split(),
    )
)
_SIGN = "[^\\w\\s\0-\x7f¡¿«»“”„‘’‚…–—]"
_ODD = lazy_pattern(rf"[^\W\d_]{_SIGN}|{_SIGN}[^\W\d_]|(?<=[^\W\d_])[¡¿]")  # a symbol within a word


def guess_encodings(data: bytes) -> list[str]:
    """Return the possible encodings of `data`, likeliest first; none of them is certain."""
    from charset_normalizer import from_bytes

    matches = list(from_bytes(_sample(data), cp_isolation=list(CANDIDATES)))
    if not matches:
        return []
    best = matches[0]
    close = [m for m in matches if _is_close(m, best)]
    rest = [m for m in matches if not _is_close(m, best)]
    names = [CANDIDATES[_find_usual_encoding(m)] for m in (*sorted(close, key=_rank), *rest)]
    # cp1252 has quotation marks where latin_1 has control characters, which no text uses
    return [name for one in names for name in (("cp1252", one) if one == "latin_1" else (one,))]


def _is_close(match: CharsetMatch, best: CharsetMatch) -> bool:
    return match.coherence >= best.coherence - CLOSE_COHERENCE and match.chaos <= best.chaos + CLOSE_CHAOS


def _find_usual_encoding(match: CharsetMatch) -> int:
    """Return the rank of the most common encoding that decodes the sample to the same text."""
    return min(CANDIDATES.index(name) for name in match.could_be_from_charset if name in CANDIDATES)


def _sample(data: bytes) -> bytes:
    """Return the first non-ASCII lines, since only they distinguish encodings."""
    lines: list[bytes] = []
    size = 0
    for line in data.splitlines(keepends=True):
        if not line.isascii():
            lines.append(line)
            size += len(line)
            if size > SAMPLE:
                break
    return b"".join(lines)


def _rank(match: CharsetMatch) -> tuple[float, int, int]:
    text = str(match)
    capitals = sum(a.isalpha() and b.isupper() and not b.isascii() for a, b in pairwise(text))  # KOI8 read as cp1251
    return -_measure_alphabet_share(text), len(_ODD.findall(text)) + capitals, _find_usual_encoding(match)


def _measure_alphabet_share(text: str) -> float:
    """Return the largest share (0 to 1) of non-ASCII letters covered by one language's alphabet."""
    counts = Counter(sign for sign in text.lower() if not sign.isascii() and sign.isalpha())
    held = max(sum(n for sign, n in counts.items() if sign in alphabet) for alphabet in _ALPHABETS)
    return round(held / max(1, counts.total()), 2)


# Anthropic refuses an image of more than 5 MiB, counted in base64; OpenAI takes more.
LIMIT = 5 * 1024 * 1024 * 3 // 4
HEAD = 256 * 1024  # bytes searched for the size in pixels

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # start-of-frame markers (ITU T.81, table B.1)


def read_image_header(data: bytes) -> tuple[str, int, int] | None:
    """Read media type, width and height of a supported image from its first bytes.

    Sizes are in pixels, 0 if unreadable. Returns None for any other content.
    """
    if data.startswith(_PNG):
        return ("image/png", *_unpack_pair(">II", data, 16))
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return ("image/gif", *_unpack_pair("<HH", data, 6))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ("image/webp", *_read_webp_size(data))
    if data.startswith(b"\xff\xd8\xff"):
        return ("image/jpeg", *_read_jpeg_size(data))
    return None


def _unpack_pair(form: str, data: bytes, at: int) -> tuple[int, int]:
    if len(data) < at + struct.calcsize(form):
        return 0, 0
    width, height = struct.unpack_from(form, data, at)
    return width, height


def _read_webp_size(data: bytes) -> tuple[int, int]:
    """Read width and height of a WebP image: the three forms of a first chunk (RFC 9649)."""
    match data[12:16]:
        case b"VP8X" if len(data) >= 30:
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L" if len(data) >= 25:
            bits = int.from_bytes(data[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = _unpack_pair("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return 0, 0


def _read_jpeg_size(data: bytes) -> tuple[int, int]:
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
            height, width = _unpack_pair(">HH", data, at + 5)
            return width, height
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0


def format_size(size: int) -> str:
    """Format a file size in decimal units, as file managers do: `34 kB`, `1.2 MB`."""
    if size < 1000:
        return f"{size} bytes"
    return f"{round(size / 1000)} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"
