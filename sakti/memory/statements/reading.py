"""Parse a statement into clauses of words and values: subject, predicate, what it names as past. Pure.

Every pattern is bounded and words are cut first, so that the time is proportional to the text, whatever the text is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.core.patterns import lazy_pattern
from sakti.memory.statements import bygone, lexicon

Shape: TypeAlias = Literal["number", "date", "often", "place", "name", "word"]

EXACT = ("number", "date", "often")
STATEMENT_LIMIT = 600  # characters of a statement
LOOSE = 3  # plain words that may be a value together

_TOKEN = lazy_pattern(
    r"\b(?:time|log|sign|set|back|roll|check|shut|clean|look|pop)[ -](?:out|in|on|off|up|down|back)s?\b|"
    r"https?://\S{1,200}|\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,20})?|\d{1,9},\d{1,2}(?![\w,])|[#@~]?\w[\w@./:+#'’-]{0,199}|[€$%]|"
    r"(?<=\s)[!?&*^<>+|]{1,3}(?=\s|$)",
    re.IGNORECASE,
)
_NUMBER = lazy_pattern(r"v?\d[\d.,:]*(?:e-?\d+)?", re.IGNORECASE)
_FROM_TO = lazy_pattern(r"\d{1,2}:\d\d-\d{1,2}:\d\d")
_WITH_UNIT = lazy_pattern(r"(v?\d[\d.,]*)(?:([a-zµ%]{1,6})|-([a-z]{3,20}))", re.IGNORECASE)
_RANGE = lazy_pattern(
    r"(?<![\w./:-])(?P<a>\d{1,6}(?:[.:]\d{1,4})?)(?:\s?[-–]\s?|\s(?P<word>to|bis|and|und)\s)"
    r"(?P<b>\d{1,6}(?:[.:]\d{1,4})?)(?![\w/:-]|\.\d)",
    re.IGNORECASE,
)
_CHANGES_FROM = lazy_pattern(r"\b(?:from|von)\s(?:\w{1,40}\s){0,2}$", re.IGNORECASE)
_TABLE_ROW = lazy_pattern(r"\s*\|.*\|\s*$")
_CELLS = lazy_pattern(r"\|")
_BETWEEN = lazy_pattern(r"\b(?:between|zwischen)\s$", re.IGNORECASE)
_HEX = lazy_pattern(r"#[0-9a-f]{3,8}", re.IGNORECASE)
_NOUN = lazy_pattern(r"(?<=\w{4})(?:ances?|ences?|ations?|at(?:e[sd]?|ing)|ments?)$")
_END = lazy_pattern(r"(?:ings?|ed|es|s|e|en|er)$")
_LINKED = lazy_pattern(
    r"\W*(?:(?:the|a|an|now|only|just|always|jetzt|nur|nun|ein|eine|der|die|das|going to)\W+)*", re.I
)
_BECOMES = lazy_pattern(r"\b(?:to|into|by|with|auf|zu|durch|mit)\b", re.I)
_TIED = lazy_pattern(
    r"[\s-]*(?:(?:of|for|in|on|by|at|von|vom|für|im|bei|des|der)\s+(?:the |our |den |dem |der )?)?", re.I
)
_GERMAN_VALUE = lazy_pattern(r"\b(?:in|nach|auf|bei|mit|als|heißt|ist|zu|von)\s$", re.I)
_NEXT_WORD = lazy_pattern(r"\s+([^\W_]\w{0,60})")
_POSSESSIVE = lazy_pattern(r"['’]s$", re.I)
_NEW = lazy_pattern(r"\b(?:new|neue[rsnm]?)\b", re.I)
_VERB_FORM = lazy_pattern(r"\w{3,}(?:ing|ed)", re.I)
_ALSO = lazy_pattern(r"\balso\b", re.I)  # German "also" is "so"
_MAY = lazy_pattern(r"\s\d")
_ARROW = lazy_pattern("->|→|=>")
_QUOTES = "`\"“'„"
_SENTENCE_END = ".!?:"


class Value(Struct, frozen=True):
    """Possible value: `key` is what is compared, `unit` what a number counts."""

    key: str
    shape: Shape
    unit: str = ""


class Clause(Struct, frozen=True, dict=True):
    """Part of a statement that says something of its own, at `start` to `end` of it.

    `words` are its subject, `past` the keys that it names as past, `keys` words and values, `terms` these and units,
    `figures` its plain numbers and dates.
    """

    start: int
    end: int
    words: frozenset[str]
    values: tuple[Value, ...]
    past: frozenset[str]
    negated: frozenset[str]
    units: frozenset[str]
    text: str
    tokens: tuple[tuple[str, int, int], ...]  # (key, start, end) in the statement

    @cached_property
    def keys(self) -> frozenset[str]:
        return self.words | {v.key for v in self.values}

    @cached_property
    def terms(self) -> frozenset[str]:
        return self.keys | self.units

    @cached_property
    def figures(self) -> frozenset[str]:
        return frozenset(v.key for v in self.values if v.shape in EXACT and "." not in v.key)

    def speaks_of(self, word: str) -> bool:
        """Return whether a word is one of its keys, or begins like one: "storno", "stornieren"."""
        return word in self.keys or (len(word) > 4 and any(w[:5] == word[:5] for w in self.words))

    def joined(self, other: Clause) -> Clause:
        """Join this clause and the next."""
        return Clause(
            self.start,
            other.end,
            self.words | other.words,
            self.values + other.values,
            self.past | other.past,
            self.negated | other.negated,
            self.units | other.units,
            f"{self.text} {other.text}",
            self.tokens + other.tokens,
        )


class Statement(Struct, frozen=True):
    """Parsed sentence and what it does to earlier statements.

    It replaces something, says how something is to be (`sets`), takes something back, adds to it, corrects a slip, or
    only asks. `stays` are the keys that it says stay, `unfit` those that it says are unsuitable.
    """

    text: str
    whole: Clause
    clauses: tuple[Clause, ...]
    replaces: bool
    sets: bool
    takes_back: bool
    adds: bool
    corrects: bool
    asks: bool
    stays: frozenset[str] = field(default=frozenset())
    unfit: frozenset[str] = field(default=frozenset())

    @property
    def points_back(self) -> bool:
        """Return whether it contradicts an earlier statement, so that what follows may replace that."""
        return self.replaces or self.corrects or bool(self.unfit or self.whole.past or self.whole.negated)


class _Token(Struct):
    start: int
    end: int
    key: str
    shape: Shape | Literal["", "empty"]
    unit: str = ""


@lru_cache(4_096)
def read(text: str) -> Statement:
    """Parse a sentence; of a long one its beginning."""
    return _Reader(text[:STATEMENT_LIMIT]).statement()


class _Reader:
    """Parser of one sentence: tokens, then what it names as past or negated, then clauses."""

    def __init__(self, text: str) -> None:
        self.text = text
        words = {w.casefold() for w in text.split()}
        self.german = bool(words & lexicon.GERMAN) or len(words & lexicon.PERHAPS_GERMAN) > 1
        self.replaces = bool(lexicon.REPLACES.search(text)) or bool(_NEW.search(text) and lexicon.COPULA.search(text))
        self.tokens = list(self._tokens())
        self.past = self._keys_in(self._past())
        self.negated = self._keys_in(m.span("scope") for m in lexicon.NEGATED.finditer(text))

    def statement(self) -> Statement:
        clauses: list[Clause] = []
        for start, end in self._spans():
            clause = self._clause(start, end)
            figures = all(v.shape in EXACT for v in clause.values)
            if clauses and clause.values and not clause.words and (figures or lexicon.COPULA.search(clause.text)):
                clause = replace(clause, words=clauses[-1].words)  # "runs at noon and is kept for 3 days": of the same
            clauses.append(clause)
        text = self.text
        return Statement(
            text,
            self._clause(0, len(text)),
            tuple(clauses),
            self.replaces,
            bool(lexicon.SETS.search(text)),
            bool(lexicon.TAKES_BACK.search(text)),
            bool(lexicon.ADDS.search(text) or (not self.german and _ALSO.search(text))),
            bool(lexicon.CORRECTS.search(text)),
            text.rstrip("\"'`) ").endswith("?"),
            frozenset(k for c in clauses if lexicon.STAYS.search(c.text) for k in c.keys),
            frozenset(k for k, _ in self._keys_in(bygone.unfit(text))),
        )

    def _keys_in(self, spans: Iterable[tuple[int, int]]) -> frozenset[tuple[str, int]]:
        within = list(spans)
        return frozenset((t.key, t.start) for t in self.tokens if any(a <= t.start < b for a, b in within))

    # --- tokens -------------------------------------------------------------------------------------------------

    def _tokens(self) -> Iterator[_Token]:
        """Yield the tokens in order; a number takes the word after it as its unit."""
        text, first, month = self.text, True, False
        number: _Token | None = None
        counted, unit_end = number, 0  # one that counts what the word that ends there says, so far
        patterns = (lexicon.EVERYWHERE, lexicon.ATTRIBUTED)
        ranges = {m.start(): m for m in self._ranges()}
        aside = [m.span() for pattern in patterns for m in pattern.finditer(text)]
        aside += [(m.end("a"), m.end()) for m in ranges.values()]
        aside += [m.span() for m in _CELLS.finditer(text)] if _TABLE_ROW.match(text) else []
        for match in _TOKEN.finditer(text):
            if any(a <= match.start() < b for a, b in aside):
                continue
            if span := ranges.get(match.start()):
                times = ":" in span["a"] and ":" in span["b"]
                token = _Token(span.start(), span.end(), f"{span['a']}-{span['b']}", "date" if times else "number")
                number = None if times else token
                yield token
                continue
            raw = match[0].rstrip(".:'’-" if match[0].endswith("++") else ".:'’-+") or match[0]
            raw = _POSSESSIVE.sub("", raw)
            low = raw.casefold()
            token = self._token(raw, match.start(), first=first)
            first = text[token.end : token.end + 1] in tuple(_SENTENCE_END)
            if counted is not None and raw[-1:] == "s" and token.shape == "" and text[unit_end : token.start] == " ":
                counted.unit = stem(low)  # "12 inventory slots" are slots
            counted = None
            if low == "min" and number is None:
                token.key = "minimum"  # not of minutes
            if number is not None and (gap := text[number.end : token.start].strip()) in ("", "-", "."):
                if low in lexicon.CLOCK:
                    number.shape, number.key = "date", number.key if ":" in number.key else f"{number.key}:00"
                elif lexicon.MONTHS.fullmatch(low) and (low != "may" or raw == "May"):
                    number.shape = "date"
                elif gap == ".":
                    pass  # the word begins a sentence
                elif raw in "€$%" or (low not in lexicon.EMPTY and not number.unit and token.shape in ("", "name")):
                    number.unit = stem(low)
                    counted = number if raw[-1:] != "s" and raw.isalpha() and low not in lexicon.MEASURES else None
                    unit_end = token.end
            if token.shape == "number" and month:
                token.shape = "date"
            if token.shape != "empty":
                yield token
            month = token.shape == "date" and bool(lexicon.MONTHS.fullmatch(low))
            number = token if token.shape == "number" else None

    def _ranges(self) -> Iterator[re.Match[str]]:
        """Yield ranges of numbers, which are one value: "3.8 to 3.11", "15-20". What changes "from 3 to 5" is none."""
        for match in _RANGE.finditer(self.text):
            before = self.text[max(0, match.start() - 90) : match.start()]
            word = (match["word"] or "").casefold()
            if word in ("and", "und"):
                is_range = bool(_BETWEEN.search(before))
            else:
                is_range = word != "to" or not (self.replaces or _CHANGES_FROM.search(before))
            if is_range:
                yield match

    def _token(self, raw: str, start: int, *, first: bool) -> _Token:
        low, end = raw.casefold(), start + len(raw)
        if low == "may" and _MAY.match(self.text, end):
            return _Token(start, end, low, "date")
        if low in lexicon.EMPTY and not (raw.isupper() and len(raw) > 1):
            return _Token(start, end, low, "empty")
        if lexicon.ORDINAL.fullmatch(raw):
            return _Token(start, end, low, "date")
        if low in lexicon.NUMBERS:
            return _Token(start, end, lexicon.NUMBERS[low], "number")
        if _NUMBER.fullmatch(raw):
            return _Token(start, end, low.removeprefix("v"), "date" if low.count(":") == 1 else "number")
        if _FROM_TO.fullmatch(raw):
            return _Token(start, end, low, "date")
        if (counted := _WITH_UNIT.fullmatch(raw)) and not _HEX.fullmatch(raw):
            if counted[2] and counted[2].casefold() in lexicon.CLOCK:
                return _Token(start, end, f"{counted[1]}:00", "date")
            return _Token(start, end, counted[1].casefold(), "number", stem((counted[2] or counted[3]).casefold()))
        if lexicon.MONTHS.fullmatch(low) or lexicon.DAYS.fullmatch(low):
            return _Token(start, end, stem(low), "date")
        if lexicon.OFTEN.fullmatch(low):
            return _Token(start, end, low, "often")
        if not any(map(str.isalnum, raw)) or (start and self.text[start - 1] in _QUOTES and raw.isalpha()):
            return _Token(start, end, low, "name")
        if any(c in raw for c in "/_@#~:") or "." in raw.strip(".") or ("-" in raw and any(map(str.isdigit, raw))):
            return _Token(start, end, low, "place")
        if self._is_name(raw, end, first=first):
            return _Token(start, end, stem(low), "name")
        if self.german and raw[:1].isupper() and not first and self._stands_as_value(start, end):
            return _Token(start, end, stem(low), "word")
        return _Token(start, end, stem(low.replace("-", "").replace(" ", "")), "")

    def _is_name(self, raw: str, end: int, *, first: bool) -> bool:
        capital = raw[:1].isupper() and not self.german and (not first or bool(lexicon.DOES.match(self.text, end)))
        return capital or raw[1:] != raw[1:].lower() or any(map(str.isdigit, raw))

    def _stands_as_value(self, start: int, end: int) -> bool:
        """Return whether a German noun is in a value's position: after "in", "nach", "ist", and near the end."""
        if not _GERMAN_VALUE.search(self.text[max(0, start - 8) : start]):
            return False
        following = _NEXT_WORD.match(self.text, end)
        return following is None or following[1].casefold() in lexicon.EMPTY or following.end() >= len(self.text) - 1

    def _past(self) -> Iterator[tuple[int, int]]:
        """Yield where the text names what is no longer true."""
        yield from bygone.past(self.text)
        arrow = _ARROW.search(self.text)
        if arrow is not None:  # "14 -> 16", but "port -> 16" speaks of the port
            before = [t for t in self.tokens if t.end <= arrow.start()]
            behind = [t for t in self.tokens if t.start >= arrow.end()]
            again = len(before) > 1 and behind and before[-2].key == behind[0].key  # "iOS 14 -> iOS 16"
            if before and behind and before[-1].shape and (again or before[-1].shape == behind[0].shape):
                yield before[-1].start, before[-1].end

    # --- clauses ------------------------------------------------------------------------------------------------

    def _spans(self) -> Iterator[tuple[int, int]]:
        """Yield the positions of the clauses; a piece that says nothing of its own belongs to the one before it."""
        ends = [*lexicon.CLAUSE_END.finditer(self.text)]
        start = 0
        for number, match in enumerate([*ends, None]):
            end = match.start() if match else len(self.text)
            if match is not None and match[0].strip().casefold() in ("and", "und", "or", ":"):
                following = ends[number + 1].start() if number + 1 < len(ends) else len(self.text)
                if not self._says(match.end(), following):
                    continue
            stop = start + len(self.text[start:end].rstrip(" .,;:"))
            if stop > start and (match is None or any(start <= t.start < end for t in self.tokens)):
                yield start, stop
            start = match.end() if match else end

    def _says(self, start: int, end: int) -> bool:
        """Return whether a piece says something of its own: it has a copula, or a word and a value."""
        inside = [t for t in self.tokens if start <= t.start < end]
        linked = lexicon.COPULA.search(self.text[start:end])
        return bool(linked) or (any(not t.shape for t in inside) and any(t.shape for t in inside))

    def _clause(self, start: int, end: int) -> Clause:
        inside = [t for t in self.tokens if start <= t.start < end]
        loose = dict.fromkeys(t.key for t in self._loose(inside, start, end))
        units = frozenset(t.unit for t in inside if t.unit)
        values = [
            Value(t.key, t.shape, t.unit) for t in inside if t.shape and t.shape != "empty" and t.key not in units
        ]
        values += [Value(key, "word") for key in loose]
        return Clause(
            start,
            end,
            frozenset(t.key for t in inside if not t.shape and t.key not in loose) - units,
            tuple(values),
            frozenset(t.key for t in inside if (t.key, t.start) in self.past),
            frozenset(t.key for t in inside if (t.key, t.start) in self.negated),
            units,
            self.text[start:end],
            tuple((t.key, t.start, t.end) for t in inside),
        )

    def _loose(self, inside: list[_Token], start: int, end: int) -> list[_Token]:
        """Return plain words that are a value because a copula links them: "the format is binary"."""
        copula = lexicon.COPULA.search(self.text, start, end)
        if copula is None and self.replaces:
            copula = _BECOMES.search(self.text, start, end)
        behind = [t for t in inside if copula is not None and t.start >= copula.end()]
        if copula is None or not 0 < len(behind) < len(inside) or len(behind) > LOOSE:
            return []
        linked = _LINKED.fullmatch(self.text, copula.end(), behind[0].start)
        plain = all(not t.shape and t.key not in lexicon.STATES for t in behind)
        return behind if linked and plain and not _VERB_FORM.match(self.text, behind[0].start) else []


@lru_cache(8_192)
def stem(word: str) -> str:
    """Stem a word for comparison, replacing synonyms."""
    if word in lexicon.SAME:
        return lexicon.SAME[word]
    if len(word) > 5 and word.endswith("ies"):
        word = f"{word[:-3]}y"  # "nightlies", "policies"
    short = _END.sub("", _NOUN.sub("", word)) if len(word) > 3 else word
    short = short if len(short) > 2 else word  # "open", "opening"
    if short != word and len(short) > 4 and short[-1] == short[-2]:
        short = short[:-1]  # "swapped", "shipping"
    return lexicon.SAME.get(short, short)


@lru_cache(4_096)
def figures(text: str) -> frozenset[str]:
    """Return the numbers, dates and names of a sentence, without files; nothing of a question."""
    said = read(text)
    values = said.whole.values if not said.asks and not lexicon.STAYS.search(text) else ()
    return frozenset(v.key for v in values if v.shape in EXACT or (v.shape == "place" and "/" not in v.key))


@lru_cache(4_096)
def narrates(text: str) -> bool:
    """Return whether a clause tells what was so elsewhere or long ago."""
    return bool(lexicon.NARRATES.search(text))


def head(key: str) -> str:
    """Return the first part of a host name."""
    return key.partition(".")[0] if "." in key and "/" not in key else key


def is_exact(key: str) -> bool:
    """Return whether a key is specific: it contains a digit or a sign."""
    return any(map(str.isdigit, key)) or any(c in key for c in "/_.#@:")


def qualifying(text: str, part: Clause, foreign: frozenset[str], shared: frozenset[str]) -> frozenset[str]:
    """Return the `foreign` words that qualify one of the `shared` ones: adjacent to it, or linked by "of" or "for"."""
    out: set[str] = set()
    for (a, _, end), (b, start, _) in itertools.pairwise(part.tokens):
        if ((a in foreign and b in shared) or (a in shared and b in foreign)) and _TIED.fullmatch(text, end, start):
            out |= {a, b} & foreign
    return frozenset(out)
