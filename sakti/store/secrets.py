"""Mask keys, tokens and passwords in text: each is replaced by a mark such as `[secret:github:3f2a]`.

A mark names the kind and four hexadecimal digits of a keyed hash, so that equal secrets have equal marks within one
database; the key is random, one per database (`user_state`). No secret is stored here: a mark is only replaced by its
value if the text being edited still contains it (`reveal_marks`).
"""

from __future__ import annotations

import bisect
import hashlib
import os
import secrets as randomness
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Struct, structs

from sakti.core.lazy import lazy_pattern
from sakti.core.text import WITHOUT_WIDTH
from sakti.store import secret_names, secret_shapes

MARK = lazy_pattern(r"\[secret:([a-z0-9_]{1,20}):([0-9a-f]{4})\]")
_MARK_SIGN = "[secret:"
# Breaks within a word or a string that do not belong to it: escaped line breaks, colours and "erase to the right".
_BREAK = lazy_pattern(r"\\\r?\n|(?:\x1b|\u241b|\\u001b)\[[\d;:]{0,20}[mK]")
_BREAK_SIGNS = ("\\\n", "\\\r\n", "\x1b[", "\u241b[", "\\u001b[")
CONTINUATIONS = ("\\\n", "\\\r\n")

ROUNDS = 4  # passes until no more secrets are found: masking twice must change nothing
# Limits of the cache of masked texts: each text is masked at several places, and the lines of the log one by one.
CLEAN_TEXTS, CLEAN_CHARACTERS, CLEAN_FROM = 4_096, 4 << 20, 20


class Secret(Struct, frozen=True):
    """Secret found in a text: its kind, and where its value begins and ends."""

    kind: str
    start: int
    end: int


class _MaskingState:
    """State of masking: the key of the marks, secrets of the environment, and a cache of clean texts."""

    def __init__(self) -> None:
        self.key = randomness.token_bytes(16)
        self.values = secret_names.find_environment_values(os.environ)
        self.clean: OrderedDict[str, None] = OrderedDict()
        self.characters = 0
        self._lock = threading.Lock()  # used by the threads of writer and reader, and by the event loop

    def is_clean(self, text: str) -> bool:
        if text not in self.clean:
            return False
        with self._lock:
            if text in self.clean:
                self.clean.move_to_end(text)
        return True

    def remember(self, text: str) -> None:
        with self._lock:
            if text in self.clean:
                return
            self.clean[text] = None
            self.characters += len(text)
            while len(self.clean) > CLEAN_TEXTS or self.characters > CLEAN_CHARACTERS:
                oldest, _ = self.clean.popitem(last=False)
                self.characters -= len(oldest)

    def clear(self) -> None:
        with self._lock:
            self.clean.clear()
            self.characters = 0


_state = _MaskingState()


def use_key(key: bytes) -> None:
    """Use this key, that of the opened database, for marks from now on."""
    _state.key = key
    _state.clear()


def key() -> bytes:
    """Return the key that marks are made with."""
    return _state.key


def use_environment(env: Mapping[str, str]) -> None:
    """Mask the values of these variables, if their names look secret, instead of the process's own."""
    _state.values = secret_names.find_environment_values(env)
    _state.clear()


def mask_secrets(text: str) -> str:
    """Replace the secrets in `text` by marks; masking twice changes nothing more."""
    if len(text) < secret_names.LEAST or (len(text) >= CLEAN_FROM and _state.is_clean(text)):
        return text
    for _ in range(ROUNDS):
        spans = find_secrets(text)
        if not spans:
            break
        text = _replace_spans(text, spans)
    if CLEAN_FROM <= len(text) <= CLEAN_CHARACTERS // 4:
        _state.remember(text)
    return text


def find_safe_cut(text: str) -> int:
    """Return the offset at which a growing text can be cut without cutting a secret.

    That is the end of a line, outside of an unfinished private key.
    """
    line = last = text.rfind("\n") + 1
    while line:
        start = text.rfind("\n", 0, line - 1) + 1
        if not text.endswith(CONTINUATIONS, 0, line) and not secret_names.is_name_of_next_line(text[start:line]):
            break
        line = start
    end = line or last or len(text)
    begin = text.rfind("-----BEGIN ", max(0, end - secret_shapes.PEM_LIMIT), end)
    return begin if begin > 0 and "-----END " not in text[begin:end] else end


def mask_lines(text: str) -> str:
    """Mask secrets in `text` and keep the number of its lines, so that line numbers stay valid."""
    spans = find_secrets(text)
    return mask_secrets(_replace_spans(text, spans, lines=True)) if spans else text


def mask_value(value: Any) -> Any:
    """Mask every text of a JSON value; the text of a named field is also judged by its name."""
    return _mask_below(value, "")


def _mask_below(value: Any, name: str) -> Any:
    if isinstance(value, str):
        clean = mask_secrets(value)
        if name and clean == value and secret_names.is_secret_value(name, value):
            return make_mark(secret_names.classify_name(name), value)
        return clean
    if isinstance(value, dict):
        return {k: _mask_below(v, k) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_mask_below(v, name) for v in cast("list[Any]", value)]
    if isinstance(value, tuple):
        return tuple(_mask_below(v, name) for v in cast("tuple[Any, ...]", value))
    return value


def mask_output(value: Any) -> Any:
    """Mask secrets in every text of a JSON value, or of a struct's fields, before it leaves the database."""
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, dict):
        return {k: mask_output(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [mask_output(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    if type(value) is tuple:
        return tuple(mask_output(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Struct):
        return structs.replace(value, **{name: mask_output(v) for name, v in structs.asdict(value).items()})
    return value


def has_secret(text: str) -> bool:
    """Return whether masking would change `text`."""
    return mask_secrets(text) != text


def make_mark(kind: str, value: str) -> str:
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), key=_state.key, digest_size=2)
    return f"[secret:{kind}:{digest.hexdigest()}]"


def find_marks(value: Any) -> tuple[str, ...]:
    """Return the marks in a text or in the texts of a JSON value, each once, in order."""
    return tuple(dict.fromkeys(_iter_marks(value)))


def _iter_marks(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if _MARK_SIGN in value:
            yield from (m[0] for m in MARK.finditer(value))
    elif isinstance(value, dict):
        for one in cast("dict[str, Any]", value).values():
            yield from _iter_marks(one)
    elif isinstance(value, list | tuple):
        for one in cast("list[Any]", value):
            yield from _iter_marks(one)


def find_all_marks(source: str) -> frozenset[str]:
    """Return the marks of the secrets in a text, and the marks that it contains itself."""
    secret_marks = (make_mark(one.kind, source[one.start : one.end]) for one in find_secrets(source))
    return frozenset((*secret_marks, *find_marks(source)))


def reveal_marks(text: str, source: str) -> str:
    """Replace marks in `text` by their values in `source`, which `text` will become part of.

    A mark stays if it has no value in `source`, or two, or if `source` contains the mark itself.
    """
    new_marks = set(find_marks(text)) - set(find_marks(source))
    if not new_marks:
        return text
    values: dict[str, set[str]] = {}
    for one in find_secrets(source):
        value = source[one.start : one.end]
        if (name := make_mark(one.kind, value)) in new_marks:
            values.setdefault(name, set()).add(value)
    for name, candidates in values.items():
        if len(candidates) == 1:
            (value,) = candidates
            if lines := value.count("\n"):  # `mask_lines` left the same number of empty lines
                text = text.replace(name + "\n" * lines, value)
            text = text.replace(name, value)
    return text


def find_secrets(text: str) -> list[Secret]:
    """Return the secrets in `text`, in order, without overlaps; marks are none."""
    spans = [*_find_spans(text), *_iter_spans_within_words(text)]
    if not spans:
        return []
    marks = [m.span() for m in MARK.finditer(text)] if _MARK_SIGN in text else []
    out: list[Secret] = []
    for kind, start, end in sorted(spans, key=lambda s: (s[1], -s[2])):
        if out and start < out[-1].end:
            if end > out[-1].end:  # two that overlap are masked as one
                out[-1] = Secret(out[-1].kind, out[-1].start, end)
            continue
        if not any(start < b and a < end for a, b in marks):
            out.append(Secret(kind, start, end))
    return out


def _find_spans(text: str) -> list[secret_shapes.Span]:
    # the only letter that becomes two in lower case: positions must not change
    lower = (text.replace("İ", "I") if "İ" in text else text).lower()
    spans = [
        *_iter_environment_spans(text),
        *secret_shapes.find_shapes(text, lower),
        *secret_names.find_assigned_secrets(text, lower),
    ]
    return [*spans, *secret_names.find_apart(text, lower)]


def _iter_spans_within_words(text: str) -> Iterator[secret_shapes.Span]:
    """Yield the secrets in a text without colours, invisible characters and escaped line breaks."""
    if not (breaks := _find_breaks(text)):
        return
    ends = [0, *(end for _, end in breaks)]
    joined = "".join(text[end:start] for end, (start, _) in zip(ends, [*breaks, (len(text), 0)], strict=True))
    places, removed = list[int](), [0]  # breaks by their places in the joined text; characters removed up to there
    for start, end in breaks:
        places.append(start - removed[-1])
        removed.append(removed[-1] + end - start)
    for kind, start, end in _find_spans(joined):
        first, last = bisect.bisect_right(places, start), bisect.bisect_left(places, end)
        yield kind, start + removed[first], end + removed[last]


def _find_breaks(text: str) -> list[tuple[int, int]]:
    """Return the spans to skip in a search for secrets, in order."""
    breaks = [m.span() for m in _BREAK.finditer(text)] if any(sign in text for sign in _BREAK_SIGNS) else []
    return breaks if text.isascii() else sorted([*breaks, *(m.span() for m in WITHOUT_WIDTH.finditer(text))])


def _iter_environment_spans(text: str) -> Iterator[secret_shapes.Span]:
    for value in _state.values:
        at = text.find(value)
        while at >= 0:
            yield "env", at, at + len(value)
            at = text.find(value, at + len(value))


def _replace_spans(text: str, spans: list[Secret], *, lines: bool = False) -> str:
    out: list[str] = []
    last = 0
    for one in spans:
        value = text[one.start : one.end]
        out += [text[last : one.start], make_mark(one.kind, value), "\n" * value.count("\n") if lines else ""]
        last = one.end
    return "".join([*out, text[last:]])


LONGEST = 16_384  # most characters of a word that are buffered


class MaskedStream:
    """Mask secrets in streamed text: a word waits for its end, a multi-line key for its last line."""

    def __init__(self) -> None:
        self._buffer = ""  # from the beginning of the unfinished line
        self._returned = 0  # masked characters of it that were returned

    def feed(self, piece: str) -> str:
        """Add a piece and return the text that is complete; "" while a secret may have begun."""
        self._buffer += piece
        end = self._last_blank(len(self._buffer))
        while end and self._buffer.endswith(CONTINUATIONS, 0, end):
            end = self._last_blank(end - 1)
        key = self._buffer.rfind("-----BEGIN ", 0, end)
        if key >= 0 and self._buffer.count("-----", key, end) < 4:  # two at its first line, two at its last
            end = key
        return self._take(end if len(self._buffer) - end <= LONGEST else len(self._buffer))

    def _last_blank(self, end: int) -> int:
        return max(self._buffer.rfind(blank, 0, end) for blank in " \t\n") + 1

    def end(self) -> str:
        """Return the rest of the text."""
        rest = self._take(len(self._buffer))
        self._buffer, self._returned = "", 0
        return rest

    def _take(self, end: int) -> str:
        clean = mask_secrets(self._buffer[:end])
        out, self._returned = clean[self._returned :], max(self._returned, len(clean))
        if line := self._buffer.rfind("\n", 0, end) + 1:
            self._returned = len(mask_secrets(self._buffer[line:end]))
            self._buffer = self._buffer[line:]
        return out
