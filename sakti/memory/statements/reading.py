"""Parse a clause into a subject and its values. Pure.

Every pattern is bounded and statements are cut first, so that the time is proportional to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.memory.statements import lexicon

Shape: TypeAlias = Literal["word", "number", "date", "name", "code"]

STATEMENT_LIMIT = 600  # most characters of a statement
_TOKEN = lazy_pattern(
    r"https?://\S{1,200}|`[^`\n]{1,200}`|[\"“„'](?P<quoted>[^\"“”„'\n]{2,60})[\"”“'](?!\w)|[€$%]|"
    r"\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,20})?|[#@~./]{0,2}[^\W_][\w@./:+#'’-]{0,199}|_\w{1,200}"
)
_NUMBER = lazy_pattern(r"v?\d[\d.,]*(?:e-?\d+)?", re.IGNORECASE)
_WITH_UNIT = lazy_pattern(r"(\d[\d.,]*)-?([a-zµ%]{1,20})", re.IGNORECASE)
_CLOCK = lazy_pattern(r"\d{1,2}:\d\d(?:-\d{1,2}:\d\d)?|\d{1,2}(?:am|pm)", re.IGNORECASE)
_DAY = lazy_pattern(r"\d{4}-\d\d-\d\d|\d{1,2}(?:st|nd|rd|th)", re.IGNORECASE)
_CODE = lazy_pattern(r"https?:|`|.*[\w/.][/_@#~:]\w|[#@~./]+\w|.*\w\.\w|(?=.*\d).*[a-z].*-|.*[A-Za-z]-?\d|.*[a-z][A-Z]")
_CLAUSE_END = lazy_pattern(
    r"[;—–\n]|,(?!\d)|[.!?](?=\s|$)|(?<=orrection):|(?<=orrektur):|:(?=\s(?:the|our|my|der|die|das|unser|mein)\b)|"
    r"\b(?:know|remember|note|wissen),?\s(?:that|dass)\b|\b(?:because|since (?!today|then|yesterday)|"
    r"while|so that|weil|während|sodass)\b|"
    r"\b(?:and|but|so|und|aber)(?=\s(?:the|our|we|i|it|its|my|der|die|das|wir|ich|unser|is|are|ist)\b)"
)
# A scope at the beginning belongs to the next clause: "in staging, the log level is debug".
_SCOPE = lazy_pattern(
    r"\W*(?:in|on|at|for|with|if|when|after|before|once|im|auf|bei|beim|für|mit|am|nach|wenn|falls|sobald)\s[^,;.:]{1,40}",
    re.IGNORECASE,
)
_RUN_ON = lazy_pattern(r"(?<=[a-z0-9)`\"]) (?=(?P<word>(?!May|Herr|Frau|Mrs?\b)[A-Z][a-z]{1,20})\b)")
_NOUN = lazy_pattern(r"(?<=\w{4})(?:ances?|ences?|ations?|at(?:e[sd]?|ing)|ments?)$")
_END = lazy_pattern(r"(?:ings?|ed|es|s|e|en|er)$")
_SAME = lazy_pattern(r"\s*(?:it|that|they|which|es|das|sie|er)\b", re.IGNORECASE)
_INVERTED = lazy_pattern(
    r"\s*(?:is|are|ist|sind)\s+(?:now |jetzt )?(?:the|our|my|der|die|das|unser\w*|mein\w*)\s", re.IGNORECASE
)


class StatementValue(Struct, frozen=True):
    """Value at `start` to `end` of its statement; `unit` is what a number counts."""

    key: str
    shape: Shape
    start: int
    end: int
    unit: str = ""


class Clause(Struct, frozen=True, dict=True):
    """Part of a statement, at `start` to `end` of it, with content words by position and values in order.

    `verb` is the offset of the verb between subject and predicate, -1 without one.
    """

    text: str
    start: int
    end: int
    words: tuple[tuple[str, int], ...]
    values: tuple[StatementValue, ...]
    verb: int

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset(key for key, _ in self.words)

    @cached_property
    def value_keys(self) -> frozenset[str]:
        return frozenset(v.key for v in self.values)

    @cached_property
    def is_inverted(self) -> bool:
        """Return whether a value comes first: "krill-812 is our log level"."""
        return self.verb > 0 and not self.subject and _INVERTED.match(self.text, self.verb) is not None

    @cached_property
    def subject(self) -> frozenset[str]:
        """Return the content words before the verb."""
        return frozenset(key for key, at in self.words if at < self.verb)

    def items(self) -> list[tuple[str, int]]:
        """Return words and non-numeric values by position; a number counts as its text."""
        return sorted([*self.words, *((v.key, v.start - self.start) for v in self.values)], key=lambda item: item[1])

    def items_like(self, other: Clause) -> bool:
        return (self.keys | self.value_keys) == (other.keys | other.value_keys)

    def join(self, other: Clause) -> Clause:
        """Join the next clause, which has this one's subject: "I was wrong about the port, it is 81"."""
        return Clause(
            f"{self.text}, {other.text}", self.start, other.end, self.words, self.values + other.values, len(self.text)
        )

    def is_subject(self, value: StatementValue) -> bool:
        """Return whether a clause is about a value: it precedes the verb, or any word if no verb is known."""
        if self.verb >= 0:
            return value.start < self.start + self.verb and not self.is_inverted
        return self._is_label(value) or any(at > value.end - self.start for _, at in self.items())

    def _is_label(self, value: StatementValue) -> bool:
        """Return whether a value names a thing ("page 3", "blocks FTP"); "on port 81" sets an attribute."""
        before = self.text[: value.start - self.start].casefold().split()
        if value.shape == "date" or value.unit or not before or not before[-1].isalnum():
            return False
        empty = lexicon.load_words("empty")
        is_attribute = before[-1] in lexicon.load_words("single") and (len(before) == 1 or before[-2] in empty)
        return before[-1] not in empty and not is_attribute


@lru_cache(4_096)
def divide_text(text: str) -> str:
    """Return a text cut to a limit, with line ends between sentences that lack a full stop."""
    return _RUN_ON.sub(_line_end, text[:STATEMENT_LIMIT])


def _line_end(match: re.Match[str]) -> str:
    return "\n" if match["word"].casefold() in lexicon.load_words("empty") else match[0]


@lru_cache(4_096)
def split_clauses(text: str) -> tuple[Clause, ...]:
    """Split a statement into clauses that name something."""
    text = divide_text(text)
    german = not lexicon.load_words("german").isdisjoint(text.casefold().split())
    out: list[Clause] = []
    for start, end in _iter_clause_spans(text):
        clause = _read_clause(text, start, end, german)
        if out and clause.values and not clause.words and _SAME.match(clause.text):
            clause = out.pop().join(clause)
        if clause.words or clause.values:
            out.append(clause)
    return tuple(out)


def _iter_clause_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each clause; a scope at the beginning belongs to the first one."""
    start = 0
    for match in _CLAUSE_END.finditer(text):
        if start or match[0] != "," or not _SCOPE.fullmatch(text, 0, match.start()):
            yield start, match.start()
            start = match.end()
    yield start, len(text)


def _read_clause(text: str, start: int, end: int, german: bool) -> Clause:
    words: list[tuple[str, int]] = []
    values: list[StatementValue] = []
    for token, at, stop in _iter_tokens(text, start, end):
        shape = _classify_shape(token, at == _find_first_letter(text, start), german)
        key = token.strip("`\"“”„'").casefold()
        if shape != "word":
            _add_value(values, StatementValue(key, shape, at, stop))
        elif key not in lexicon.load_words("empty"):
            words.append((stem_word(key), at - start))
            _add_unit(values, key, at, stop)
    return Clause(text[start:end], start, end, tuple(words), tuple(values), _find_verb(text, start, end, values))


def _add_value(values: list[StatementValue], value: StatementValue) -> None:
    """Add a value, or join it with the last one: a date or name of several words."""
    key, unit = value.key, ""
    if value.shape == "name":
        key = " ".join(stem_word(word) for word in key.split())
    elif value.shape == "number":
        key, unit = _number(key)
    last = values[-1] if values else None
    if last is not None and value.start - last.end <= 2:
        shapes = {last.shape, value.shape}
        merged = "name" if shapes == {"name"} else "date" if shapes in ({"date"}, {"date", "number"}) else None
        if merged is not None:
            values[-1] = StatementValue(f"{last.key} {key}", merged, last.start, value.end)
            return
    values.append(StatementValue(key, value.shape, value.start, value.end, unit))


def _add_unit(values: list[StatementValue], word: str, start: int, end: int) -> None:
    """Use the word after a number as its unit: "5 retries", but not "5 added"."""
    last = values[-1] if values else None
    if last is None or last.shape != "number" or last.unit or word.endswith("ed"):
        return
    if start - last.end <= 1:
        values[-1] = StatementValue(last.key, "number", last.start, end, stem_word(word))


def _find_verb(text: str, start: int, end: int, values: Sequence[StatementValue]) -> int:
    """Return the offset of a clause's first verb outside its values; -1 without one."""
    for match in lexicon.compile_phrases("verb").finditer(text[start:end]):
        if not any(v.start <= start + match.start() < v.end for v in values):
            return match.start()
    return -1


def _iter_tokens(text: str, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    for match in _TOKEN.finditer(text, start, end):
        raw = match[0] if match["quoted"] else match[0].rstrip(".:'’-+,")
        if raw:
            yield raw, match.start(), match.start() + len(raw)


def _find_first_letter(text: str, start: int) -> int:
    return start + len(text[start:]) - len(text[start:].lstrip(" \t\"'(*-"))


def _classify_shape(token: str, first: bool, german: bool) -> Shape:
    if token[0] in "\"“„'":
        return "name"
    if _is_date(token):
        return "date"
    if token.casefold() in lexicon.NUMBERS or _NUMBER.fullmatch(token) or _WITH_UNIT.fullmatch(token):
        return "number"
    if _CODE.match(token) or (len(token) > 1 and token.isupper() and token.isalpha()):
        return "code"
    may_be_name = not first and not german and token.casefold() not in lexicon.load_words("empty")
    return "name" if may_be_name and token[0].isupper() else "word"


def _is_date(token: str) -> bool:
    if _CLOCK.fullmatch(token) or _DAY.fullmatch(token) or lexicon.DAYS.fullmatch(token):
        return True
    return token[0].isupper() and lexicon.MONTHS.fullmatch(token) is not None


def _number(key: str) -> tuple[str, str]:
    if key in lexicon.NUMBERS:
        return lexicon.NUMBERS[key], ""
    if _NUMBER.fullmatch(key) is None and (match := _WITH_UNIT.fullmatch(key)):
        return match[1], stem_word(match[2])
    return key.removeprefix("v"), ""


@lru_cache(8_192)
def stem_word(word: str) -> str:
    """Stem a word for comparison, replacing synonyms."""
    same = lexicon.load_synonyms()
    if word in same:
        return same[word]
    if len(word) > 5 and word.endswith("ies"):
        word = f"{word[:-3]}y"  # "policies"
    short = _END.sub("", _NOUN.sub("", word)) if len(word) > 3 else word
    short = short if len(short) > 2 else word  # "open", "opening"
    if short != word and len(short) > 4 and short[-1] == short[-2]:
        short = short[:-1]  # "swapped", "shipping"
    return same.get(short, short)
