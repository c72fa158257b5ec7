"""Check without a model whether a log is faithful to its source. Pure.

The exact claims of a line (see `iter_claims`), and the speaker it names, must occur in its source, even in other units,
another spelling of a number, or as a date for "tomorrow". Important lines and paths that a reflection lost are
listed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import lru_cache

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.memory.log import lines
from sakti.memory.observe import speaking
from sakti.memory.observe.claims import (
    CLOCK,
    DATE,
    HASH,
    NUMBER,
    OF_UNIT,
    QUANTITY,
    WEEKDAY,
    WEEKDAYS,
    WORDS,
    Claim,
    iter_claims,
)
from sakti.memory.observe.speaking import Said, Voices, normalize_text
from sakti.memory.statements.sentences import LEAD

_QUOTES = '`"“”'
_MARKS = "`'\"“”.,:;!?()[]{}<>*"
_WORD = lazy_pattern(r"[\w./-]{4,}")
_FIGURE = lazy_pattern(r"(?P<mantissa>\d+(?:[.,]\d+)*)(?:e(?P<exponent>-?\d+))?\s?(?P<times>[^\W\d_]*)")
_TIMES = {"k": 1_000, "thousand": 1_000, "tausend": 1_000} | {
    word: size
    for size, words in {1_000_000: "m million millionen mio", 1_000_000_000: "billion mrd milliarden"}.items()
    for word in words.split()
}
_GROUPED = lazy_pattern(r"[1-9]\d{0,2}(?:,\d{3}){1,6}|[1-9]\d{0,2}(?:\.\d{3}){1,6}")
_FLOAT = lazy_pattern(r"\d+(?:\.\d+)?")
_LETTERS = lazy_pattern(r"[^\W\d_]{2,60}")
_RECALL = lazy_pattern(r"… \d+ more \w+, recall \S+")  # the Observer's own words, which are no claims
KEPT_SHARE = 0.7  # share of a line's words in one line of the reflection that counts as kept in other words
LISTED = 100
PIECE = 1_000  # characters that are parsed and cached together
NEAR, ROUGHLY = 0.02, 0.06  # tolerance of figures in other units, and of approximate figures
NEAR_WORDS = 2  # words after a number
ENDINGS = 3  # letters by which the endings of equal words may differ
_ROUGH = lazy_pattern(
    r"(?:\b(?:about|around|roughly|approx\w*|nearly|almost|some|over|ca\.?|circa|etwa|rund)|[~≈])\s?$", re.I
)
_RELATIVE = lazy_pattern(
    r"\b(?P<day>yesterday|today|tonight|tomorrow|gestern|heute|morgen|vorgestern|übermorgen)\b|"
    r"\b(?P<span>(?:next|last|this|coming) (?:week|weekend|month)|(?:nächste|letzte|diese)[nrm]? (?:woche|monat))\b|"
    r"\b(?:in |for )?(?P<n>\d{1,3}|\w{2,8}) (?P<unit>days?|weeks?|months?|tagen?|wochen?|monaten?)\b",
    re.IGNORECASE,
)
_OFFSETS = {
    "yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1, "gestern": -1, "heute": 0, "morgen": 1,
    "vorgestern": -2, "übermorgen": 2,
}  # fmt: skip
_MONTHS = {name: n + 1 for n, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split())} | {
    "mär": 3, "mai": 5, "okt": 10, "dez": 12,
}  # fmt: skip
# Names allowed if the source shows a trace of the thing.
_TRACES = {
    "python": (".py", "pip", "pytest"), "typescript": (".ts", "tsc"), "javascript": (".js", "node", "npm"),
    "rust": (".rs", "cargo"), "java": (".java", "gradle"), "docker": ("dockerfile", "container", "compose"),
    "git": ("commit", "branch", "merge"), "github": ("gh ", "workflows", "pull request"),
    "kubernetes": ("k8s", "kubectl"), "postgresql": ("postgres", "psql", "pg"), "mongodb": ("mongo",),
    "markdown": (".md",), "linux": ("ubuntu", "debian", "apt"),
}  # fmt: skip


class _SourcePiece(Struct, frozen=True):
    """Figures and dates of a piece of text; `relative` dates depend on the day of the message."""

    figures: frozenset[float]
    amounts: tuple[tuple[str, float], ...]
    clocks: frozenset[str]
    dates: frozenset[tuple[int, int]]
    weekdays: frozenset[int]
    relative: tuple[re.Match[str], ...]


@lru_cache(2_048)  # the previous log is part of every source
def _read_piece(piece: str) -> _SourcePiece:
    numbers: set[float] = set()
    for match in NUMBER.finditer(HASH.sub(" ", piece)):
        numbers |= parse_figures(match[0])
        major = match[0].partition(".")[0]
        numbers |= {float(major)} if len(major) > 1 and major.isdigit() else set()  # 15.4 also proves 15
    return _SourcePiece(
        frozenset(numbers),
        tuple(_read_amounts(piece)),
        frozenset(t for match in CLOCK.finditer(piece) for t in parse_clock(match)),
        frozenset(day for match in DATE.finditer(piece) for day in parse_days(match)),
        frozenset(parse_weekday(match) for match in WEEKDAY.finditer(piece)),
        tuple(_RELATIVE.finditer(piece)),
    )


def _read_amounts(piece: str) -> Iterator[tuple[str, float]]:
    """Yield figures with units, and the sums of adjacent ones ("1 min 20 s")."""
    last: tuple[int, list[tuple[str, float]]] = (-1, [])
    for match in QUANTITY.finditer(piece):
        current = list(iter_amounts(match))
        yield from current
        if match.start() - last[0] <= 1:
            yield from ((kind, a + b) for kind, a in current for other, b in last[1] if kind == other)
        last = match.end(), current


class EvidenceSource:
    """Source that lines are checked against.

    `said`: its texts by speaker, if known; `days`: their dates; `clocks`: their times ("14:30"). Call `ready` before
    any check.
    """

    def __init__(
        self, *texts: str, said: Iterable[Said] = (), days: Iterable[date] = (), clocks: Iterable[str] = ()
    ) -> None:
        self._raw = texts
        self._ready = self._read = False
        self.voices = Voices(said)
        self._days, self._clocks = list(days), set(clocks)
        self._figures: set[float] = set()
        self._amounts: dict[str, list[float]] = {}
        self._dates: set[tuple[int, int]] = {(d.month, d.day) for d in self._days}
        self._weekdays = {d.weekday() for d in self._days}

    def ready(self) -> None:
        """Normalise the texts for word lookups; once."""
        if self._ready:
            return
        self._text = normalize_text("\n".join(self._raw))
        self._close = self._text.replace(" ", "")
        words = set(self._text.split())
        self._words = words | {w.strip(_MARKS) for w in words}  # answers most lookups without reading all texts
        self._letters = {word for piece in words for word in _LETTERS.findall(piece)}
        self._sorted = sorted(self._letters)
        self.voices.ready()
        self._ready = True

    def read(self) -> None:
        """Parse figures and dates when the first line needs them."""
        if self._read:
            return
        self._figures |= {float(WORDS[w]) for w in self._letters & WORDS.keys()}
        for piece in (piece for text in self._raw for piece in _split_by_size(normalize_text(text))):
            self._add(_read_piece(piece))
        self._in_order = sorted(self._figures)
        for values in self._amounts.values():
            values.sort()
        self.voices.index()
        self._read = True

    def _add(self, piece: _SourcePiece) -> None:
        self._figures |= piece.figures
        for kind, amount in piece.amounts:
            self._amounts.setdefault(kind, []).append(amount)
        self._clocks |= piece.clocks
        self._dates |= piece.dates
        self._weekdays |= piece.weekdays
        for number in piece.weekdays:
            self._dates |= {
                (day.month, day.day)
                for stated_day in self._days
                for ahead in range(-8, 9)
                if (day := stated_day + timedelta(days=ahead)).weekday() == number
            }
        for match in piece.relative:
            for day in iter_relative_days(match, self._days):
                self._dates.add((day.month, day.day))
                if match["day"]:
                    self._weekdays.add(day.weekday())

    # --- lookups ---------------------------------------------------------------------------------------------

    def has(self, words: str) -> bool:
        """Return whether the words occur, ignoring case and spaces."""
        phrase = normalize_text(words)
        return phrase in self._words or phrase in self._text or phrase.replace(" ", "") in self._close

    def has_exactly(self, claim: Claim) -> bool:
        """Return whether a claim occurs exactly, not as a part of something longer."""
        words = normalize_text(claim.text)
        if claim.kind == "name":
            return words in self._letters
        if claim.kind in ("number", "version", "date"):
            return words in self._words or self._stands_alone(words)
        return self.supports(claim, "")

    def _stands_alone(self, words: str) -> bool:
        """Return whether the words occur without an adjacent letter, digit or sign of a figure."""
        at = self._text.find(words)
        while at >= 0:
            before, behind = self._text[max(0, at - 1) : at], self._text[at + len(words) : at + len(words) + 2]
            longer = (
                behind[:1].isalnum()
                or behind[:1] in tuple(":-_")
                or (behind[:1] in (".", ",") and behind[1:].isdigit())
            )
            if not (longer or before.isalnum() or before in tuple(".,:-_")):
                return True
            at = self._text.find(words, at + 1)
        return False

    def supports(self, claim: Claim, content: str) -> bool:
        """Return whether the source supports a claim in a line with that content."""
        match claim.kind:
            case "path":
                return self.has(claim.text.removeprefix("./"))
            case "quote":
                return self._has_quote(claim.text)
            case "number":
                rough = bool(_ROUGH.search(content[: content.find(claim.text)]))
                return self._has_amount(claim.text, ROUGHLY if rough else NEAR if QUANTITY.search(claim.text) else 0)
            case "version":
                return self._has_version(claim.text)
            case "date":
                return self._has_date(claim.text)
            case "symbol":
                return self.has(claim.text) or self._has_like(claim.text) or self.has(claim.text.replace("-", ""))
            case "name":
                return claim.text.casefold() in self._letters or self._has_like(claim.text)
            case _:
                return self.has(claim.text)

    def _has_like(self, word: str) -> bool:
        """Return whether another form of the word, or a trace of the thing, occurs."""
        low = word.casefold()
        if any(self.has(trace) for trace in _TRACES.get(low, ())):
            return True
        if not low.isalpha():
            return False
        at = bisect_left(self._sorted, low[:4])
        while at < len(self._sorted) and self._sorted[at].startswith(low[:4]):
            other = self._sorted[at]
            if low.startswith(other) and (len(low) - len(other) <= ENDINGS or f"{other}." in self._words):
                return True
            if other.startswith(low) and len(other) - len(low) <= ENDINGS:
                return True
            at += 1
        return False

    def _has_quote(self, quoted: str) -> bool:
        inside = quoted.strip(_QUOTES)
        if self.has(inside):
            return True
        return quoted[0] == "`" and all(self.has(part) for part in re.findall(r"[\w.-]+", inside))

    def _has_amount(self, text: str, share: float) -> bool:
        """Return whether a figure, or one that rounds to it, occurs; with a unit, also in related units."""
        quantity = QUANTITY.search(text)
        for kind, amount in iter_amounts(quantity) if quantity else ():
            reach = max(share, NEAR) * amount
            if _is_near_any(self._amounts.get(kind, []), amount, reach):
                return True
            if kind == "share" and _is_near_any(self._in_order, amount, 0):
                return True
        number = NUMBER.search(text)
        decimals = len(number[0].partition(".")[2]) if number and _FLOAT.fullmatch(number[0]) else 0
        rounded = 0.5 * 10.0**-decimals if decimals else 0.0
        return any(
            v in self._figures or _is_near_any(self._in_order, v, max(rounded, 0 if quantity else share * v))
            for v in (parse_figures(number[0]) if number else ())
        )

    def _has_version(self, text: str) -> bool:
        bare = text.removeprefix("v")
        if re.search(rf"(?<![\d.]){re.escape(bare.casefold())}(?!\d)", self._text):
            return True
        if bare.count(".") != 1:
            return False
        return self._has_amount(bare, 0) if bare.startswith("0.") else bool(parse_figures(bare) & self._figures)

    def _has_date(self, text: str) -> bool:
        if match := DATE.search(text):
            days = parse_days(match)
            return bool(days & self._dates) if days else self._has_month(match)
        if match := WEEKDAY.search(text):
            return parse_weekday(match) in self._weekdays
        match = CLOCK.search(text)
        return match is None or bool(parse_clock(match) & self._clocks)

    def _has_month(self, found: re.Match[str]) -> bool:
        month = _MONTHS[found["m5"][:3].casefold()]
        return any(m == month for m, _ in self._dates) or any(
            word[:3] in _MONTHS and _MONTHS[word[:3]] == month for word in self._letters
        )


# --- comparison ---------------------------------------------------------------------------------------------


def parse_figures(text: str) -> set[float]:
    """Return the possible values of a figure.

    "1,500" is 1500 and 1.5, "40k" is 40000, "2 million" 2000000.
    """
    match = _FIGURE.match(text.casefold())
    if match is None:
        return set()
    mantissa = match["mantissa"]
    forms = {mantissa, mantissa.replace(",", ".")}
    if _GROUPED.fullmatch(mantissa):
        forms.add(re.sub("[.,]", "", mantissa))
    sizes = {1, _TIMES.get(match["times"], 1)} if match["times"] == "m" else {_TIMES.get(match["times"], 1)}
    power = f"e{match['exponent'] or 0}"
    return {float(form + power) * size for form in forms if _FLOAT.fullmatch(form) for size in sizes}


def iter_amounts(match: re.Match[str]) -> Iterator[tuple[str, float]]:
    """Yield a figure with its unit, converted to the base unit of its kind."""
    kind, size = OF_UNIT[match["unit"].casefold()]
    word = match["figure"].casefold()
    for value in {float(WORDS[word])} if word in WORDS else parse_figures(word):
        yield kind, value * size


def _is_near_any(ordered: Sequence[float], value: float, reach: float) -> bool:
    """Return whether one of the sorted values is within `reach`."""
    reach += 1e-9 * abs(value)
    at = bisect_left(ordered, value - reach)
    return at < len(ordered) and ordered[at] <= value + reach


def parse_clock(match: re.Match[str]) -> set[str]:
    """Return the forms of a time of day; "2:30 pm" is 14:30."""
    hour, minute = int(match["h"]), match["min"]
    if match["half"] and match["half"][0] in "pP" and hour < 12:
        hour += 12
    return {f"{hour}:{minute}"}


def parse_weekday(match: re.Match[str]) -> int:
    """Return the number of a weekday; Monday is 0."""
    word = match[0].casefold()
    return next(n for name, n in WEEKDAYS.items() if word.startswith(name))


def parse_days(match: re.Match[str]) -> set[tuple[int, int]]:
    """Return (month, day) of a date, in both orders if it is ambiguous; empty if it has no day."""
    g = match.groupdict()
    for month, day in (("m", "d"), ("m2", "d2"), ("m3", "d3"), ("m4", "d4")):
        if g[month] is not None:
            named = _MONTHS.get(g[month][:3].casefold())
            return {(named or int(g[month]), int(g[day]))}
    return {(int(g["a"]), int(g["b"])), (int(g["b"]), int(g["a"]))} if g["a"] else set()


def iter_relative_days(match: re.Match[str], days: Sequence[date]) -> Iterator[date]:
    """Yield the days that "tomorrow", "next week" or "3 weeks ago" may mean, relative to some days."""
    spans: list[int] = []
    if match["day"]:
        spans = [_OFFSETS[match["day"].casefold()]]
    elif match["span"]:
        span = match["span"].casefold()
        reach = 45 if "mon" in span else 6 if span.startswith(("this", "diese")) else 14
        spans = list(range(-reach, reach + 1))
    else:
        number = match["n"].casefold()
        count = int(number) if number.isdigit() else WORDS.get(number, 0)
        length = {"d": 1, "t": 1, "w": 7, "m": 30}[match["unit"][0].casefold()]
        slack = 0 if length == 1 else 3
        spans = [s * count * length + d for s in (-1, 1) for d in range(-slack, slack + 1)] if count else []
    for day in days:
        for ahead in spans:
            yield day + timedelta(days=ahead)


def _split_by_size(text: str) -> Iterator[str]:
    """Split a text into pieces of limited size, at spaces where possible."""
    at = 0
    while at < len(text):
        end = at + PIECE
        if end < len(text) and (space := text.rfind(" ", at, end)) > at:
            end = space
        yield text[at:end]
        at = end


def find_unsupported(content: str, source: EvidenceSource) -> tuple[str, ...]:
    """Return the claims of a line that its source lacks; empty for a faithful line.

    Example: "path: src/auth.ts".
    """
    source.ready()
    content = _RECALL.sub("", content)
    all_claims = list(iter_claims(content))
    open_claims = [claim for claim in all_claims if not source.has_exactly(claim)]
    verbatim = source.voices.is_verbatim(content)
    is_quoted = source.has(LEAD.sub("", content)) or (verbatim and speaking.STATES.match(content) is not None)
    counts = [] if is_quoted else _list_counts(all_claims)
    if verbatim and not (open_claims or counts) and (not speaking.is_checked(content) or source.has(content)):
        return ()
    source.read()
    out = {f"{c.kind}: {c.text.strip(_QUOTES)}": None for c in open_claims if not source.supports(c, content)}
    out |= {f"number: {n}": None for n in counts if not source.voices.binds(n, _list_words_near(content, n))}
    return (*out, *_iter_speech_flags(content, source.voices, verbatim=verbatim))


def _list_counts(line_claims: Sequence[Claim]) -> list[str]:
    """Return the integers of a line: each counts, or belongs to, a noun."""
    numbers = [c.text.split()[0] for c in line_claims if c.kind == "number"]
    return [number for number in numbers if number.isdigit()]


def _iter_speech_flags(content: str, voices: Voices, *, verbatim: bool) -> Iterator[str]:
    """Yield words that the source attributes to another speaker, leaves undecided, or does not prove."""
    if not verbatim and (words := voices.find_misattributed(content)):
        yield f"speaker: {words}"
    if words := voices.find_undecided(content):
        yield f"decision: {words}"
    if words := voices.find_unproven(content):
        yield f"result: {words}"


def _list_words_near(content: str, number: str) -> list[str]:
    """Return the words around a number: the noun that it counts or belongs to is among them."""
    before, behind = re.split(rf"(?<![\d.,]){number}(?!\d)", f"{content} ", maxsplit=1)
    return [*before.split()[-1:], *behind.split()[:NEAR_WORDS]]


class Dropped(Struct, frozen=True):
    """Important lines and paths that a reflection lost, up to a hundred of each."""

    lines: tuple[str, ...]
    paths: tuple[str, ...]


def find_losses(inputs: Sequence[str], reflection: str) -> Dropped:
    """Return the 🔴 lines and paths that a reflection lost."""
    have, kept_words = EvidenceSource(reflection), list_words_by_line(reflection)
    have.ready()
    lost: dict[str, None] = {}
    paths: dict[str, None] = {}
    for text in inputs:
        for row in lines.iter_rows(text):
            if row.priority == "high" and not have.has(row.content) and not is_represented(row.content, kept_words):
                lost[row.content] = None
            paths.update((p, None) for p in row.metadata["files"] if not have.has(str(p)))
    return Dropped(tuple(lost)[:LISTED], tuple(paths)[:LISTED])


def list_words_by_line(text: str) -> list[set[str]]:
    """Return the words of each line, for `is_represented`."""
    return [set(_WORD.findall(normalize_text(line))) for line in text.split("\n") if line.strip()]


def is_represented(content: str, have: Sequence[set[str]], counts: Mapping[str, int] | None = None) -> bool:
    """Return whether most words of a line occur in one of the lines `have`.

    `counts`: number of log lines with each word; frequent words count less.
    """
    weights = {
        word: 1 / max(1, counts.get(word, 1) if counts else 1) for word in _WORD.findall(normalize_text(content))
    }
    least = KEPT_SHARE * sum(weights.values())
    return not weights or any(sum(weights[w] for w in weights.keys() & other) >= least for other in have)
