"""Stem words as the word index does: lower case, without accents (SQLite's `porter unicode61`).

It removes endings only, so the irregular forms of English words are listed here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import apsw

_IRREGULAR = """
begin began begun; bend bent; bind bound; bite bit bitten; bleed bled; blow blew blown; break broke broken;
bring brought; build built; burn burnt; buy bought; catch caught; choose chose chosen; come came; deal dealt; dig dug;
draw drew drawn; drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen; feed fed; feel felt;
fight fought; find found; flee fled; fly flew flown; forbid forbade forbidden; forget forgot forgotten;
forgive forgave forgiven; freeze froze frozen; get got gotten; give gave given; go went gone; grow grew grown;
hang hung; hear heard; hide hid hidden; hold held; keep kept; know knew known; lead led; learn learnt; leave left;
lend lent; lose lost; make made; mean meant; meet met; mistake mistook mistaken; pay paid; ride rode ridden;
ring rang rung; rise rose risen; run ran; say said; see saw seen; seek sought; sell sold; send sent;
shake shook shaken; shine shone; shoot shot; show shown; shrink shrank shrunk; sing sang sung; sink sank sunk;
sit sat; sleep slept; speak spoke spoken; spend spent; spin spun; stand stood; steal stole stolen; stick stuck;
strike struck; swear swore sworn; sweep swept; swim swam swum; swing swung; take took taken; teach taught;
tear tore torn; tell told; think thought; throw threw thrown; understand understood; undo undid undone;
wake woke woken; wear wore worn; weave wove woven; weep wept; win won; withdraw withdrew withdrawn;
write wrote written; rewrite rewrote rewritten; child children; foot feet; goose geese; half halves; knife knives;
leaf leaves; life lives; loaf loaves; man men; mouse mice; person people; shelf shelves; thief thieves; tooth teeth;
wife wives; wolf wolves; woman women
"""

_local = threading.local()  # a connection serves one thread at a time


def stems(text: str) -> Sequence[str]:
    """Return the words of `text` in order, each stemmed."""
    return _words(text, "porter", "unicode61", "remove_diacritics", "2")


def unstemmed(text: str) -> Sequence[str]:
    """Return the words of `text` in order, in lower case and without accents."""
    return _words(text, "unicode61", "remove_diacritics", "2")


def _words(text: str, name: str, *options: str) -> Sequence[str]:
    tokenizers: dict[str, Any] = _local.__dict__
    if name not in tokenizers:
        tokenizers[name] = apsw.Connection(":memory:").fts5_tokenizer(name, list(options))
    encoded = text.encode("utf-8", "replace")
    return tokenizers[name](encoded, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)


def irregular_forms(stem: str) -> Sequence[str]:
    """Return the other irregular forms of a word by its stem: bought for buy, and buy for bought."""
    return _irregular().get(stem, ())


@cache
def _irregular() -> dict[str, list[str]]:
    forms: dict[str, list[str]] = {}
    for row in _IRREGULAR.split(";"):
        listed = {word: stems(word)[0] for word in row.split()}
        for stem in listed.values():
            forms.setdefault(stem, []).extend(word for word, other in listed.items() if other != stem)
    return forms
