"""Guess the 8-bit encoding of a text that is neither UTF-8 nor declares one.

charset-normalizer finds the script and drops what cannot be read; the letters of one language decide between encodings
that it finds equally likely, as cp1250 and cp1252 are for most texts.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from charset_normalizer import CharsetMatch, from_bytes

from sakti.core.patterns import lazy_pattern

# The usual one first: of two that read a text equally well, it is the likelier one.
CANDIDATES = (
    *("cp1252", "latin_1", "cp1250", "iso8859_2", "cp1254", "cp1251", "koi8_r", "iso8859_5", "cp866", "cp1253"),
    *("iso8859_7", "cp932", "euc_jp", "gb18030", "big5", "cp949"),
)
SAMPLE = 16_384  # bytes of lines that are not ASCII
CLOSE_COHERENCE, CLOSE_CHAOS = 0.08, 0.09  # from the best match: those not further away are compared
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
_ODD = lazy_pattern(rf"[^\W\d_]{_SIGN}|{_SIGN}[^\W\d_]|(?<=[^\W\d_])[¡¿]")  # a sign within a word


def likely(data: bytes) -> list[str]:
    """Return the encodings that `data` may be written in, the likeliest first; none of them is certain."""
    matches = list(from_bytes(_sample(data), cp_isolation=list(CANDIDATES)))
    if not matches:
        return []
    best = matches[0]
    close = [m for m in matches if _is_close(m, best)]
    rest = [m for m in matches if not _is_close(m, best)]
    names = [CANDIDATES[_index(m)] for m in (*sorted(close, key=_rank), *rest)]
    # cp1252 has quotation marks where latin_1 has control characters, which no text uses
    return [name for one in names for name in (("cp1252", one) if one == "latin_1" else (one,))]


def _is_close(match: CharsetMatch, best: CharsetMatch) -> bool:
    return match.coherence >= best.coherence - CLOSE_COHERENCE and match.chaos <= best.chaos + CLOSE_CHAOS


def _index(match: CharsetMatch) -> int:
    """Return the place of the usual encoding among those that read the sample as this one does."""
    return min(CANDIDATES.index(name) for name in match.could_be_from_charset if name in CANDIDATES)


def _sample(data: bytes) -> bytes:
    """Return the first lines that are not ASCII; the others say nothing."""
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
    return -_share(text), len(_ODD.findall(text)) + capitals, _index(match)


def _share(text: str) -> float:
    """Return the largest share (0 to 1) of letters beyond ASCII that one language's alphabet has."""
    counts = Counter(sign for sign in text.lower() if not sign.isascii() and sign.isalpha())
    held = max(sum(n for sign, n in counts.items() if sign in alphabet) for alphabet in _ALPHABETS)
    return round(held / max(1, counts.total()), 2)
