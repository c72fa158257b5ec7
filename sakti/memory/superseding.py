"""Which statements a later one replaces: the same subject, and words that take back or put in its place. Pure.

Names, numbers, dates, paths, what is quoted and what follows "is" may be a value; the words round them are the subject.
A statement is replaced where a later one has (nearly) all of its subject and gives another value, or names its value in
order to take it back. Where that is not certain it is doubtful: to be let go of early, but not at once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sakti.memory.sentences import CHANGE, SPECIFIC

Verdict: TypeAlias = Literal["replaced", "doubtful"]

SURE, NEARLY, NAMED = 0.75, 0.7, 0.5  # share of the older statement's subject that the newer one has
FITS = 0.6  # share of what the newer one speaks of that is the older one's subject

_TOKEN = re.compile(r"https?://\S+|[\w@][\w@./:+#'’-]*[\w+#]|[^\W_]")
_CLAUSE = re.compile(
    r"[;—–]|,\s(?!\d)|[.:]\s|\b(?:because|since|which|while|whereas|so that|and (?=we\b|it\b|i\b|that\b))"
)
_VALUE_FOLLOWS = re.compile(
    r"\b(?:is|are|was|were|will be|equals|uses?|becomes?|became|to|into|by|with)\b|=|→|->", re.IGNORECASE
)
_COPULA = re.compile(r"\b(?:is|are|was|were|will be|equals|uses?)\b|=|:\s", re.IGNORECASE)
_SHORT_VALUE = 4  # words behind "is" that may be a value as a whole
_DATE = re.compile(
    r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)(?:[a-z]*ber|uary|ch|il|ust)?|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|today|tomorrow|noon|midnight|zero|two|three|four|five|six|"
    r"seven|eight|nine|ten|twelve|twenty|thirty|forty|fifty|sixty|hundred"
)
_NOT = re.compile(r"\b(?:not|never|\w+n['’]t)\b", re.IGNORECASE)
_TAKES_BACK = re.compile(
    r"\b(?:not|never|no longer|\w+n['’]t|any ?more|cancel\w*|drop\w*|scrap\w*|retract\w*|withdr\w+|forget|ignore|"
    r"strike|"
    r"remov\w+|off the table|gone|obsolete|unnecessary|instead of|in place of|rather than|replac\w+|from|against|"
    r"abandon\w*|retired|out of scope)\b",
    re.IGNORECASE,
)
_ADDS = re.compile(
    r"\b(?:also|another|additional(?:ly)?|as well|too|(?:a|the) second|third|besides|in addition)\b", re.IGNORECASE
)
# Words that say nothing about what is spoken of, those that tell of a change among them.
_EMPTY = frozenset(
    """a an the this that these those there here it it's its our ours your my mine their his her i i'm i've we we're
    we've you they he she them us me is are was were be been being am will would shall should must may might can
    could do does did done has have had having not no nor never and or but so if then than as at by for from in
    into of off on onto out over to up with within without about until till per via also too very just only
    already still well please let let's ok okay yes actually now instead rather anymore any more longer
    correction correct corrected thing things something anything everything one ones all each every both other
    another same such what which who when where why how ever once again back down away use uses used using need
    needs needed want wants wanted remember note mind keep kept keeps call calls called go goes going went get
    gets got make makes made take takes took run runs running live lives lived sit sits stand stands stay stays
    decide decided decision agreed settled choose chose chosen pick picked change changes changed changing move
    moved moves moving switch switched switches replace replaced replaces update updated new old former previous
    previously earlier before after mean meant said say says told tell drop dropped scrap scrapped forget ignore
    cancel cancelled canceled withdrawn withdraw retract retracted rename renamed postponed delayed pushed
    shifted rescheduled slipped bumped raised lowered reduced increased extended brought forward gone table
    strike undo revert reverted retired obsolete deprecated abandoned unnecessary against wrong mistake scope""".split()
)
_END = re.compile(r"(?:ings?|ed|es|s|e)$")


@dataclass(frozen=True, slots=True)
class _Part:
    """Of a statement or one of its clauses: the words of its subject, and what may be values."""

    words: frozenset[str]
    values: frozenset[str]
    exact: frozenset[str]  # those of the values that have the shape of one
    takes_back: bool


@dataclass(frozen=True, slots=True)
class _Read:
    whole: _Part
    clauses: tuple[_Part, ...]
    changes: bool
    negates: bool
    subject: frozenset[str]  # of "subject is value"; empty where it is no such statement
    value: frozenset[str]


def superseded(statements: Sequence[str]) -> dict[int, Verdict]:
    """The places of the statements (of one speaker, oldest first) that a later one replaces, or may replace."""
    out: dict[int, Verdict] = {}
    read: list[_Read] = []
    having: dict[str, list[int]] = defaultdict(list)
    for number, text in enumerate(statements):
        new = _read(text)
        tokens = new.whole.words | new.whole.values
        for old in {i for token in tokens for i in having[token]}:
            verdict = _verdict(read[old], new)
            if verdict == "replaced" or (verdict and old not in out):
                out[old] = verdict
        read.append(new)
        for token in tokens:
            having[token].append(number)
    return out


def _verdict(old: _Read, new: _Read) -> Verdict | None:
    if new.subject and new.subject == old.subject and new.value != old.value and not new.negates:
        return "replaced"  # "X is 1", then "X is 2"
    verdicts = [_change(old.whole, part, new.changes) for part in new.clauses if new.changes or new.negates]
    return "replaced" if "replaced" in verdicts else "doubtful" if "doubtful" in verdicts else None


def _change(old: _Part, new: _Part, changes: bool) -> Verdict | None:
    old_all, new_all = old.words | old.values, new.words | new.values
    shared = old_all & new_all
    named = (old.exact & new_all) - old.words
    given = new.values - old_all
    if not shared:
        return None
    covered = len(shared) / (len(shared) + len(old.words - shared))
    fits = len(shared) / (len(shared) + len(new.words - old_all))
    if not changes:  # a plain "not": only if it speaks of nothing else
        return "replaced" if named and covered >= SURE and fits == 1 and not given else None
    if new.takes_back and (named or not given):
        if named and any(any(map(str.isdigit, v)) for v in named):  # as good as a name of its own
            return "replaced" if covered >= NAMED else "doubtful"
        sure = covered >= SURE and fits >= FITS and (named or len(shared) > 1)
        return "replaced" if sure else "doubtful" if named or (covered >= NAMED and len(shared) > 1) else None
    enough = len(shared) > 1 or (fits == 1 and bool(old.values))
    if given and covered >= SURE and fits >= FITS and enough and not new.takes_back:
        return "replaced"
    other = given or new.words - old_all  # a value that has no shape of its own
    return "doubtful" if other and covered >= NEARLY and fits >= FITS and len(shared) > 1 else None


def _read(text: str) -> _Read:
    adds = bool(_ADDS.search(text))
    changes = bool(CHANGE.search(text)) and (not adds or bool(_TAKES_BACK.search(text)))
    subject: frozenset[str] = frozenset()
    value: frozenset[str] = frozenset()
    copula = _COPULA.search(text)
    if copula is not None and not adds:
        before, behind = _part(text[: copula.start()]), _part(text[copula.end() :], start=False)
        if SPECIFIC.search(text[copula.end() :]) and len(behind.words) <= 1 and behind.values:
            subject, value = before.words | before.values, behind.words | behind.values
    clauses = tuple(p for c in _CLAUSE.split(text) if c and ((p := _part(c, follows=_VALUE_FOLLOWS)).words or p.values))
    return _Read(_part(text, follows=_COPULA), clauses, changes, bool(_NOT.search(text)), subject, value)


def _part(text: str, *, follows: re.Pattern[str] | None = None, start: bool = True) -> _Part:
    words: set[str] = set()
    values: set[str] = set()
    sentence_start = start
    tokens: list[tuple[int, str, bool]] = []
    for match in _TOKEN.finditer(text):
        raw = match[0].rstrip(".:'’")
        low = raw.casefold()
        exact = (
            any(map(str.isdigit, raw))
            or any(c in raw for c in "/_@#")
            or "." in raw.strip(".")
            or (raw[:1].isupper() and not sentence_start)
            or raw[1:] != raw[1:].lower()
            or text[max(0, match.start() - 1)] in "`\"“'"
            or bool(_DATE.fullmatch(low))
        )
        sentence_start = text[match.end() : match.end() + 1] in (".", "!", "?", ":")
        if raw and low not in _EMPTY and not low.endswith(("n't", "n’t")):
            tokens.append((match.start(), low if exact else _stem(low), exact))
    for _, token, exact in tokens:
        (values if exact else words).add(token)
    if follows is not None:
        for match in follows.finditer(text):
            behind = [(t, e) for at, t, e in tokens if at >= match.end()]
            if len(behind) < len(tokens) and 0 < len(behind) <= _SHORT_VALUE:
                loose = {t for t, e in behind if not e} - {t for at, t, _ in tokens if at < match.start()}
                words -= loose
                values |= loose
                break
    named = frozenset(t for _, t, exact in tokens if exact)
    return _Part(frozenset(words), frozenset(values), named, bool(_TAKES_BACK.search(text)))


def _stem(word: str) -> str:
    stem = _END.sub("", word)
    return stem if len(stem) > 2 else word
