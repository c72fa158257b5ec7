r"""Replace old lines by new ones and keep what did not change: bytes, line ends, unusual characters.

A model writes a text as it was shown it: line ends as \n, perhaps without trailing blanks, with plain quotes for
curly ones. What is equal in the text to replace and its replacement is therefore kept as the file has it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher

from sakti.agent.tools.textfile import Line

LARGEST = 4_000_000  # pairs of lines that are compared; beyond it only the common beginning and end are kept

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys(
            "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
        ),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
        "…": "...",
        # bytes that a file's encoding has not, as models are shown them
        **dict.fromkeys(map(chr, range(0xDC80, 0xDD00)), "?"),
    }
)


def clusters(text: str) -> Iterator[str]:
    """Yield each character with its combining marks."""
    start = 0
    for i in range(1, len(text)):
        if not unicodedata.combining(text[i]):
            yield text[start:i]
            start = i
    if text:
        yield text[start:]


def folded(text: str) -> str:
    """Compose `text` (NFC), with plain quotes, dashes and blanks for typographic ones."""
    if text.isascii():
        return text
    return "".join(_fold(c) for c in clusters(text))


def _fold(cluster: str) -> str:
    return unicodedata.normalize("NFC", cluster).translate(_SIGNS)


def _boundaries(text: str) -> dict[int, int]:
    """Map the boundaries of clusters: offset in the folded text → offset in `text`."""
    out = {0: 0}
    there = here = 0
    for cluster in clusters(text):
        there, here = there + len(_fold(cluster)), here + len(cluster)
        out[there] = here
    return out


def unfold(text: str, offset: int) -> int:
    """Return the offset in `text` of the character at `offset` of the folded text."""
    if text.isascii():
        return offset
    at = _boundaries(text)
    return at[max(o for o in at if o <= offset)]


def carry(old: str, new: str, there: str) -> str:
    """Return `new`, with the parts it shares with `old` at its beginning and end as `there` has them.

    `there` is `old` as the file has it; the indentation is that of `new`, trailing blanks of the file stay.
    """
    before, after, present = old.lstrip(" \t"), new.lstrip(" \t"), there.lstrip(" \t")
    indent = new[: len(new) - len(after)]
    if before == present:
        return new
    if folded(before) == folded(present):
        return indent + _carry(before, after, present)
    bare, blanks = present.rstrip(" \t"), present[len(present.rstrip(" \t")) :]
    if before != before.rstrip(" \t") or after != after.rstrip(" \t") or folded(before) != folded(bare):
        return new
    return indent + (after if before == bare else _carry(before, after, bare)) + blanks


def _carry(old: str, new: str, there: str) -> str:
    shared = 0
    while shared < min(len(old), len(new)) and old[shared] == new[shared]:
        shared += 1
    back = 0
    while back < min(len(old), len(new)) - shared and old[-1 - back] == new[-1 - back]:
        back += 1
    ours, theirs = {h: t for t, h in _boundaries(old).items()}, _boundaries(there)
    head = max(h for h, t in ours.items() if h <= shared and t in theirs)
    tail = min(h for h, t in ours.items() if h >= max(head, len(old) - back) and t in theirs)
    return there[: theirs[ours[head]]] + new[head : len(new) - (len(old) - tail)] + there[theirs[ours[tail]] :]


def merge_change(
    there: Sequence[Line],
    old: Sequence[Line],
    new: Sequence[Line],
    end: str,
    adapt: Callable[[str], str] = str,
) -> str:
    """Return the replacement of `there`, which is `old` as the file has it, line by line.

    `end` is the line end of new lines, `adapt` adjusts them (indentation).
    """
    assert len(there) == len(old)
    out: list[Line] = []
    for tag, i, i_end, j, j_end in _opcodes(old, new):
        if tag == "equal":
            out += there[i:i_end]
            continue
        for k in range(j, j_end):
            at = i + k - j
            paired = at < i_end
            body = adapt(carry(old[at].body, new[k].body, there[at].body) if paired else new[k].body)
            line_end = there[at].end if paired and old[at].end and new[k].end else ""
            out.append(Line(body, line_end or (end if new[k].end else "")))
    if out and there and old[-1].end and not there[-1].end:  # a file without a last line end stays one
        out[-1] = Line(out[-1].body, "")
    return _join_lines(out, end)


def _join_lines(lines: Sequence[Line], end: str) -> str:
    """Join lines; add `end` to a line without one unless it is the last."""
    return "".join(line.body + (line.end or end) for line in lines[:-1]) + "".join(
        line.body + line.end for line in lines[-1:]
    )


def _opcodes(old: Sequence[Line], new: Sequence[Line]) -> Iterator[tuple[str, int, int, int, int]]:
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    if head:
        yield "equal", 0, head, 0, head
    before, after = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(before) * len(after) > LARGEST:
        yield "replace", head, len(old) - tail, head, len(new) - tail
    else:
        for tag, i, i_end, j, j_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            yield tag, head + i, head + i_end, head + j, head + j_end
    if tail:
        yield "equal", len(old) - tail, len(old), len(new) - tail, len(new)
