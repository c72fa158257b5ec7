"""Stem words as the word index does, and list irregular forms and the words of code.

SQLite's `porter unicode61` removes endings only, in lower case and without accents. Code says `del` for delete; words
that begin alike are not listed: `dict` for dictionary is found by itself (`terms.forms_of_code`).
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
def _table() -> dict[str, tuple[str, ...]]:
    rows = (row.split(": ") for row in " ".join(_TABLE.split()).split("; "))
    return {stems(word)[0]: tuple(dict.fromkeys(s for w in words.split() for s in stems(w))) for word, words in rows}


def in_code(stem: str) -> Sequence[str]:
    """Return the stems of the words by which code says the same."""
    return _table().get(stem, ())
