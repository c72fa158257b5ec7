"""Make the terms of a query: the matching forms of each word, and the weight of a match. Pure.

Words are stemmed as in the word index: SQLite's `porter unicode61` only removes endings, in lower case and without
accents. Irregular forms are therefore listed here, as are the words used in code (`del` for delete). Abbreviations
are not: `dict` for dictionary is found by its beginning (`list_code_forms`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Literal

import apsw
from msgspec import Struct

from sakti.store.search.folding import fold_text, list_accent_variants, quote_phrase
from sakti.store.search.query import LANGUAGES, NO_QUERY, STOP_WORDS, Query

How = Literal["word", "similar", "irregular", "short", "code"]

SETTING = 0.3  # share of rarity for the name of a language, which gives the setting (cosqa: R@10 and MRR +1.3)
SHORTENED = 0.3  # weight of a short form in code: `dict` for dictionary (mixed: MRR +2.1, functions by file +1.3)
JOINED = 2.5  # weight of `getuserid` if `get user id` was typed (ident: R@5 +0.7)
MANY = 16  # longer queries are prose: their short forms are not searched
IN_CODE = 0.3  # weight of a synonym used in code (cosqa: R@10 +1.2, MRR +0.9)
SHORTEST = 3  # letters of a short form
CACHED = 2_000  # words whose lookup is cached: most of them occur again with the next key

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


def stem_words(text: str) -> Sequence[str]:
    """Return the stemmed words of `text` in order."""
    return _tokenize(text, "porter", "unicode61", "remove_diacritics", "2")


def split_words(text: str) -> Sequence[str]:
    """Return the words of `text` in order, in lower case and without accents."""
    return _tokenize(text, "unicode61", "remove_diacritics", "2")


def _tokenize(text: str, name: str, *options: str) -> Sequence[str]:
    tokenizers: dict[str, Any] = _local.__dict__
    if name not in tokenizers:
        tokenizers[name] = apsw.Connection(":memory:").fts5_tokenizer(name, list(options))
    encoded = text.encode("utf-8", "replace")
    return tokenizers[name](encoded, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)


def list_irregular_forms(stem: str) -> Sequence[str]:
    """Return the other irregular forms of a word by its stem: bought for buy, and buy for bought."""
    return _build_irregular_forms().get(stem, ())


@cache
def _build_irregular_forms() -> dict[str, list[str]]:
    forms: dict[str, list[str]] = {}
    for row in _IRREGULAR.split(";"):
        listed = {word: stem_words(word)[0] for word in row.split()}
        for stem in listed.values():
            forms.setdefault(stem, []).extend(word for word, other in listed.items() if other != stem)
    return forms


_TABLE = """
absolute: abs; add: append extend insert; address: ip addr inet; administrator: admin; angle: sin cos;
append: add extend; array: list numpy np; asynchronous: async await; attribute: getattr setattr;
authenticate: login username password credentials; average: mean avg; boolean: bool true false; bracket: paren;
buffer: buf; button: btn; byte: tobytes; call: invoke; callback: cb; cast: astype; certificate: cert x509 ssl;
check: is has valid assert; choose: select; close: exit; color: rgb rgba ansi; column: col; combine: merge join;
command: cmd argv cli; compare: cmp eq diff; compile: regex pattern; concatenate: join; connection: socket;
context: ctx; convert: to cast parse; copy: clone; coroutine: async await; count: len counter; create: make new mk;
database: db sql schema; dataframe: df pandas; date: datetime strftime strptime; datetime: dt tz tzinfo;
decorator: wraps wrapper functools; delete: del remove unlink rm pop; deprecated: stacklevel; descriptor: fd;
destination: dst target; digest: sha hexdigest; directory: folder mkdir isdir listdir path dirname;
display: show print render; distance: sqrt; download: urlopen urlretrieve fetch requests;
duplicate: unique set dedupe; duration: seconds; element: item; empty: len none; encrypt: cipher;
environment: environ; epoch: timestamp; equal: eq compare; error: exception raise except traceback;
exception: error raise except traceback; execute: run exec; exist: isfile; fetch: get; file: open filename path;
filename: path basename; find: search match index; folder: dir directory mkdir; function: def callable lambda;
generator: yield; get: fetch read load; hash: digest sha hexdigest; header: hdr; image: img; import: importlib module;
index: idx pos; initialize: init; insert: add; integer: int; iterate: iter for yield next generator;
join: merge concat; length: len size; list: array; load: read open; lock: acquire release; log: logger;
lowercase: lower; maximum: max; merge: update join; message: msg; minimum: min; modify: update set; namespace: ns;
nan: isnan; normalize: norm; number: int float count num; numpy: ndarray np; object: obj; option: argparse;
output: stdout print; parallel: thread pool; path: dir join; pattern: regex re; permission: chmod mode; plot: ax;
pointer: ptr; position: pos offset; previous: prev; print: stdout write; process: subprocess popen pid;
property: setter; random: shuffle choice seed rng randint uniform; read: open load; recursive: rglob walk;
redirect: location; regex: re pattern; regular: regex re pattern; remove: del pop strip discard unlink; rename: move;
replace: sub; request: req http; response: reply; run: exec subprocess popen; sample: random; save: write dump store;
search: find match lookup; send: post; sequence: list; set: update; show: display print; signal: sigterm sigint;
size: len shape; sleep: wait; slice: start stop step; socket: sock; sort: order sorted argsort; source: src;
split: partition; standard: std; start: begin; stop: end exit; store: save put; sum: total; symlink: readlink islink;
temporary: tmp; terminate: kill; test: assert; text: str; thread: threading; time: datetime clock; timeout: wait;
timestamp: ts datetime; timezone: tz tzinfo; total: sum; type: isinstance; unicode: utf8 encode; update: set modify;
uppercase: upper; url: urlopen urlparse; username: login user; validate: check; verify: check assert;
wait: sleep join timeout; warn: warning stacklevel; window: win; write: dump save; zip: zipfile
"""


@cache
def _build_code_table() -> dict[str, tuple[str, ...]]:
    rows = (row.split(": ") for row in " ".join(_TABLE.split()).split("; "))
    return {
        stem_words(word)[0]: tuple(dict.fromkeys(s for w in words.split() for s in stem_words(w)))
        for word, words in rows
    }


def list_code_stems(stem: str) -> Sequence[str]:
    """Return the stems of a word's synonyms in code."""
    return _build_code_table().get(stem, ())


class Form(Struct, frozen=True):
    """FTS5 phrase that matches a term, the weight of an occurrence, and its number of texts."""

    phrase: str
    weight: float = 1.0
    how: How = "word"
    documents: int = 0

    @property
    def only_ranks(self) -> bool:
        """Return whether the form only counts in documents, and finds no text by itself."""
        return self.how in ("short", "code")


class Term(Struct, frozen=True):
    """Word of a query.

    `text` as typed in lower case, the stems of its tokens, its forms, the number of texts that have it, and its inverse
    document frequency `rarity`.

    """

    text: str
    stem: tuple[str, ...]
    forms: tuple[Form, ...]
    documents: int
    rarity: float

    @property
    def phrases(self) -> list[str]:
        """Return the phrases that find texts; code forms only rank them."""
        return [f.phrase for f in self.forms if not f.only_ranks]


def make_phrase(word: str, *, prefix: bool = False) -> str:
    """Return the FTS5 phrase of a word."""
    return quote_phrase(fold_text(word)) + ("*" if prefix else "")


def make_typed_phrase(word: str) -> str:
    """Return the phrase of a word in rows that are not packed yet: not folded."""
    return quote_phrase(word)


@lru_cache(CACHED)
def list_spellings(word: str, *, prefix: bool = False) -> tuple[str, ...]:
    """Return the phrases of a word: as indexed, with other accents, and as in rows not yet packed."""
    if word.isascii():
        return (make_phrase(word, prefix=prefix),)
    current = [make_phrase(w, prefix=prefix) for w in (word, *list_accent_variants(word))]
    return tuple(dict.fromkeys([*current, make_typed_phrase(word) + "*" * prefix]))


@lru_cache(CACHED)
def stem_word(word: str) -> tuple[str, ...]:
    """Return the stems of the tokens of a typed word."""
    return tuple(stem_words(fold_text(word)))


@lru_cache(CACHED)
def list_irregular_phrases(word: str) -> tuple[str, ...]:
    """Return the phrases of the irregular forms of a word."""
    stem = stem_word(word)
    return tuple(map(make_phrase, list_irregular_forms(stem[0]))) if len(stem) == 1 else ()


def compute_inverse_frequency(documents: int, total: int) -> float:
    """Return the inverse document frequency (above 0) of a term in `documents` of `total` texts."""
    return math.log(1 + max(0.0, total - documents + 0.5) / (documents + 0.5))


def make_terms(
    words: Sequence[str],
    similar: Mapping[str, Sequence[str]],
    documents: Mapping[str, int],
    total: int,
    *,
    joined: Collection[str] = (),
    query: Query = NO_QUERY,
) -> list[Term]:
    """Make the terms that occur in the texts: words, and the prefixes and phrases of a query.

    `documents` by phrase, for other forms only if they are searched; `similar`: known words for unknown ones.
    """
    out: dict[tuple[str, ...], Term] = {}
    plain, begun = [(w, False) for w in (*words, *query.phrases)], [(p, True) for p in query.prefixes]
    for word, prefix in (*plain, *begun):
        stem = stem_word(word)
        forms = _keep_existing(
            list_spellings(word, prefix=prefix), documents, JOINED if word in joined else 1.0, "word"
        )
        forms += _keep_existing(map(make_phrase, similar.get(word, ())), documents, 1.0, "similar")
        forms += _keep_existing(list_irregular_phrases(word), documents, 1.0, "irregular")
        if not stem or stem in out or not forms:
            continue
        count = max(f.documents for f in forms)
        rarity = compute_inverse_frequency(count, total) * (SETTING if word in LANGUAGES and len(words) > 1 else 1.0)
        code = () if prefix or word in joined or len(words) > MANY else list_code_forms(stem)
        out[stem] = Term(word.lower(), stem, (*forms, *code), count, rarity)
    return list(out.values())


def _keep_existing(phrases: Iterable[str], documents: Mapping[str, int], weight: float, how: How) -> list[Form]:
    """Return the forms of those phrases that occur in the texts."""
    return [Form(p, weight, how, documents[p]) for p in phrases if documents.get(p)]


@lru_cache(CACHED)
def list_code_forms(stem: tuple[str, ...]) -> Sequence[Form]:
    """Return the forms of a word in code: its beginnings, and synonyms used in code."""
    if len(stem) != 1:
        return []
    beginnings = (stem[0][:end] for end in range(SHORTEST, len(stem[0])))
    shorts = [Form(quote_phrase(b), SHORTENED, "short") for b in beginnings if b not in STOP_WORDS]
    return shorts + [Form(quote_phrase(w), IN_CODE, "code") for w in list_code_stems(stem[0])]
