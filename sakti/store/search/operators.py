"""Parse AND, OR, NOT and parentheses in a query; anything else stays text. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from sakti.core.lazy import lazy_pattern

OPERATORS = lazy_pattern(r"(?<![^\s(])(AND|OR|NOT)(?!\S)")
_BEFORE_PARENTHESIS = lazy_pattern(r"(?<![^\s(])(AND|OR|NOT)(?=\()")
_WORD = lazy_pattern(r"\w|[^\x00-\x7f]")
_OPERAND = lazy_pattern(r"\(*\"[^\"]+\"\)*|\S+")
_MOST = 12  # longer queries are prose with AND, OR or NOT, not operators
_MOST_ALTERNATIVES = 64
_BEFORE_NOT = frozenset(("IS", "IF", "WHERE"))
_AFTER_NOT = frozenset(("NULL", "IN", "LIKE", "EXISTS", "BETWEEN"))  # SQL, as in `email NOT NULL`
_PUNCTUATION = "()[]{},.;:!?'`，。、；：！？（）「」"
_FULL_WIDTH = str.maketrans("（）", "()")

Group = tuple[str, ...]


class Operators(Struct, frozen=True):
    """Query with operators: the remaining `text`, the words after NOT, and the alternatives.

    `alternatives`: a text must have all words of one of them; () if neither AND nor OR was typed.
    """

    text: str
    unwanted: Group = ()
    alternatives: tuple[Group, ...] = ()


def read_operators(text: str, is_said: Callable[[str], bool], *, alone: bool = True) -> Operators:
    """Parse the operators in `text`; a quoted phrase is one word.

    `a AND b OR c` is (a, b) or (c,), `a AND (b OR c)` is (a, b) or (a, c). All operators count as words if an operand
    is missing, if there are too many words, or if they only exclude and nothing else is searched (`alone`). So does
    NOT in SQL, and NOT beside a word in capitals if a text contains that phrase (`is_said` of `COMMAND NOT FOUND`).
    """
    typed = _BEFORE_PARENTHESIS.sub(r"\1 ", text.translate(_FULL_WIDTH))
    if not OPERATORS.search(typed):
        return Operators(text)
    tokens = _OPERAND.findall(typed)
    split = list(itertools.chain.from_iterable(map(_split, tokens)))
    tokens = split if _is_balanced(split) else tokens
    read = [(t, _is_operator(tokens, i, is_said)) for i, t in enumerate(tokens)]
    operators = sum(OPERATORS.fullmatch(t) is not None for t, is_operator in read if is_operator)
    words = sum(not is_operator for _, is_operator in read)
    if not operators or words > _MOST or operators > _MOST:
        return Operators(text)
    try:
        parsed = _OperatorParser(read).read()
        return Operators(text) if alone and not parsed.text else parsed
    except _Senseless:
        return Operators(text)


def strip_quotes(token: str) -> str:
    """Return a word without surrounding quotes or punctuation."""
    return token[1:-1] if token[0] == token[-1] == '"' and len(token) > 2 else token.strip(_PUNCTUATION) or token


def _is_operator(tokens: Sequence[str], at: int, is_said: Callable[[str], bool]) -> bool:
    """Return whether a token is an operator or parenthesis in a valid place."""
    if tokens[at] in ("(", ")") or not OPERATORS.fullmatch(tokens[at]):
        return tokens[at] in ("(", ")")
    if tokens[at] != "NOT" or at == len(tokens) - 1:
        return True
    before, follows = strip_quotes(tokens[at - 1]) if at else "", strip_quotes(tokens[at + 1])
    if before in _BEFORE_NOT or follows in _AFTER_NOT:
        return False
    if not before:
        return not is_said(f"NOT {follows}")
    capitals = any(w.isupper() and len(w) > 1 and not OPERATORS.fullmatch(w) for w in (before, follows))
    return not (capitals and is_said(f"{before} NOT {follows}"))


class _Senseless(Exception):
    """Error for invalid operators: they are treated as words."""


class _OperatorParser:
    """Recursive descent parser of operators.

    Alternatives consist of sequences, sequences of operands; each is returned as its groups of words.
    """

    def __init__(self, tokens: Sequence[tuple[str, bool]]) -> None:
        self._left = tokens
        self._at = 0
        self._kept: list[str] = []
        self._unwanted: list[str] = []

    def read(self) -> Operators:
        groups = self._parse_alternatives()
        if self._at < len(self._left):
            raise _Senseless
        joined = any(token in ("AND", "OR") for token, is_operator in self._left if is_operator)
        text, unwanted = " ".join(self._kept), tuple(self._unwanted)
        if not joined:
            return Operators(text, unwanted)
        return Operators(text.replace('"', " "), unwanted, tuple(g for g in groups if g))

    def _peek(self) -> str:
        """Return the next operator or parenthesis, "word" before a word, "" at the end."""
        if self._at == len(self._left):
            return ""
        token, is_operator = self._left[self._at]
        return token if is_operator else "word"

    def _parse_alternatives(self) -> list[Group]:
        groups = self._parse_sequence()
        while self._peek() == "OR":
            self._at += 1
            groups = [*groups, *self._parse_sequence()]
        return groups

    def _parse_sequence(self) -> list[Group]:
        groups = self._parse_operand()
        while self._peek() not in ("", "OR", ")"):
            if self._peek() == "AND":
                self._at += 1
            more = self._parse_operand()
            if len(groups) * len(more) > _MOST_ALTERNATIVES:
                raise _Senseless
            groups = [tuple(dict.fromkeys((*a, *b))) for a in groups for b in more]
        return groups

    def _parse_operand(self) -> list[Group]:
        kind, at = self._peek(), self._at
        self._at += 1
        if kind == "word":
            token = self._left[at][0]
            self._kept.append(token)
            return [(strip_quotes(token),) if _WORD.search(token) else ()]  # `status = 1 AND type = 2`
        if kind == "(":
            groups = self._parse_alternatives()
            if self._peek() != ")":
                raise _Senseless
            self._at += 1
            return groups
        if kind == "NOT":
            start = len(self._kept)
            groups = self._parse_operand()
            if any(len(g) != 1 for g in groups):
                raise _Senseless
            del self._kept[start:]
            self._unwanted += [w for (w,) in groups]
            return [()]
        raise _Senseless


def _is_balanced(tokens: Sequence[str]) -> bool:
    """Return whether the parentheses are balanced and not nested too deeply."""
    open_ones = 0
    for token in tokens:
        open_ones += {"(": 1, ")": -1}.get(token, 0)
        if not 0 <= open_ones <= _MOST:
            return False
    return not open_ones


def _split(token: str) -> Iterator[str]:
    """Return the surrounding parentheses and the word: `(b` is `(` and `b`, `f(x)` is a word."""
    inside = token.lstrip("(")
    word = inside.rstrip(")")
    opened = 0 if word.startswith('"') else max(0, word.count("(") - word.count(")"))  # opened within the word
    word = inside[: len(word) + opened]
    yield from "(" * (len(token) - len(inside))
    if word:
        yield word
    yield from ")" * (len(inside) - len(word))
