"""Measure how well a text matches a query: one frozen record per candidate, from the index. Pure."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence, Set

from msgspec import Struct
from msgspec.structs import replace

from sakti.core.lazy import lazy_pattern
from sakti.store.search.dates import says_when
from sakti.store.search.folding import fold_text
from sakti.store.search.occurrences import COLUMNS, Phrases, Sizes
from sakti.store.search.rows import Row
from sakti.store.search.terms import Form, Term

TEXT, IDENTIFIERS, BEFORE, SUMMARY = range(COLUMNS)
SHORT = 300  # most tokens of a text that is itself read: for parts of words and questions
CHARACTERS = 6  # characters per token, approximately
LONG = 220  # more tokens than this make a text a document (about 1,500 characters)
BEGINNING = 120  # characters that distinguish code, diffs and logs from talk
REMARK = 30  # most tokens of a remark: one line that no tool printed
DENSITY = 0.025  # least share of code characters among them
LEADING = 12  # first tokens of a document, which say what it is
NAMING = 4  # pieces of its first identifiers that count like leading tokens
WITHIN = 0.5  # weight of a part inside another word if it also occurs as a word (heron7 in heron78)
PLACES = 80  # most positions of query words in a text that are compared for proximity
OF_A_TERM = 25  # most of these positions that belong to one word
IN_SUMMARY = 0.3  # weight of a word in the summary of a text
LABEL = 40  # most characters before the colon of a label of one or two words

USER, ASSISTANT, TOOL = "user", "assistant", "tool"  # roles; TOOL: output of tools

_CODE = rb"(){}[];=<>_/\|`#*+"
_SENTENCE_END = lazy_pattern(r"(?<=[.!?…])\s+")
_CAMEL = lazy_pattern(r"[a-z0-9][A-Z]")  # the text index treats such a name as one word, unlike `snake_case`


class Weights(Struct, frozen=True):
    """Weights of the parts of a score for one kind of text.

    `k1` and `b` are those of BM25. The other weights are those of an occurrence: `identifiers` in the pieces of
    identifiers, `leading` (added) among the first tokens, `before` in the previous message; `echo` is subtracted if
    the previous message has it as well. `before_length`: share of that message's tokens added to the length. Shares
    of other scores: `neighbour` of the messages before and after, `talk_beside` of those that are talk, `answer` of
    the question before, `request` of the answer to a user's message, `thread` of the mean of the thread's three best.
    """

    k1: float
    b: float
    identifiers: float
    leading: float
    before_length: float
    thread: float
    before: float = 0.0
    neighbour: float = 0.0
    talk_beside: float = 0.0
    answer: float = 0.0
    echo: float = 0.0
    request: float = 0.0


# If the query is no question, all texts are ranked alike. A message mostly repeats the one before (`before_length`,
# `echo`).
PLAIN = Weights(k1=1.5, b=0.9, identifiers=0.6, leading=1.0, before_length=0.8, thread=0.6, request=0.5, echo=0.4)
# A remark announces or reports a tool's output. The output is the target, and need not repeat the remark.
REMARKED = replace(PLAIN, leading=0.0)
PRINTED = replace(PLAIN, echo=0.0)
ANNOUNCED = replace(PRINTED, before=0.5)
# An answer leaves out the words of its question, so a question also counts the messages around it.
TALK = Weights(
    k1=1.1, b=0.45, identifiers=0.4, leading=0.0, before_length=1.5, thread=0.9, before=0.4, neighbour=0.3, answer=0.35
)
DOCUMENT = Weights(
    k1=1.5, b=0.9, identifiers=0.6, leading=1.5, before_length=0.1, thread=0.6, before=0.05, talk_beside=0.4
)


class Features(Struct, frozen=True):
    """Features: how well one text matches the terms of a query.

    `counts`: weighted occurrences of each term; `own`: whether the text itself has it; `length` in weighted tokens.
    `adjacent`: share of the query's adjacent words that are adjacent in the text. `near`: 1 if all of them are, less
    with their distance. `complete`: the text has all words of the query. `asks`: if it ends with a question, the
    share of its text in questions. `labelled`: it begins with a label named in the query, such as a speaker (`Ann:
    …`). `timed`: it states a time, and the query asks for one. `beginning`: its first characters, if it was read.
    `size` in tokens. `remark`: it is one short line that no tool printed, and the query is no question.
    """

    row: Row
    document: bool
    length: float
    counts: tuple[float, ...]
    own: tuple[bool, ...]
    adjacent: float
    near: float
    complete: bool
    asks: float
    labelled: bool
    timed: bool
    beginning: str
    size: int
    remark: bool = False

    @property
    def has_words(self) -> bool:
        """Return whether the text itself has any of the terms."""
        return True in self.own

    @property
    def is_answer(self) -> bool:
        """Return whether it is an assistant's text longer than a remark."""
        return self.row.role == ASSISTANT and self.size > REMARK


class Pattern(Struct, frozen=True):
    """Search pattern: the terms, their forms with term numbers, and the parts of words.

    Forms from number `whole` on are code forms. Parts are counted in the text. `asks`: the query is a question;
    `when`: it asks for a time.
    """

    terms: tuple[Term, ...]
    forms: tuple[tuple[Form, int], ...]
    whole: int
    parts: tuple[tuple[str, float], ...]
    pairs: frozenset[tuple[int, int]]
    nearness: float
    words: frozenset[str]  # the texts of the terms
    tells_all: bool  # texts with all words are ranked apart from those with some
    required: tuple[int, ...]  # the terms of these words; () if no text can have all of them
    asks: bool
    when: bool
    meant: frozenset[str] = frozenset()  # likely corrections, which were not typed

    def has_all(self, own: Sequence[bool]) -> bool:
        """Return whether a text has every typed word, if known."""
        return bool(self.required) and all(own[i] for i in self.required)

    def weights_of(self, *, document: bool) -> Weights:
        if not self.asks:
            return PLAIN
        return DOCUMENT if document else TALK

    def with_code(self, are_known: Callable[[list[str]], set[str]]) -> Pattern:
        """Return the pattern with only the code forms that occur in some text."""
        existing = are_known([form.phrase for form, _ in self.forms[self.whole :]])
        code = [(form, i) for form, i in self.forms[self.whole :] if form.phrase in existing]
        return replace(self, forms=(*self.forms[: self.whole], *code))


def build_pattern(
    terms: Sequence[Term],
    parts: Mapping[str, float],
    order: Sequence[str],
    typed: Sequence[str],
    *,
    asks: bool,
    when: bool,
    meant: frozenset[str] = frozenset(),
) -> Pattern:
    """Build the pattern of terms.

    `order`: the words in the order of the query; `typed`: the words that count for "all words".
    """
    forms = [(form, i) for i, term in enumerate(terms) for form in term.forms]
    forms.sort(key=lambda form: form[0].only_ranks)
    index = {term.text: i for i, term in enumerate(terms)}
    numbers = [index[w] for w in order if w in index]
    rare = sorted(t.rarity for t in terms)
    return Pattern(
        tuple(terms),
        tuple(forms),
        len([form for form, _ in forms if not form.only_ranks]),
        tuple(parts.items()),
        frozenset(p for p in itertools.pairwise(numbers) if p[0] != p[1]),
        sum(value * (len(rare) - 1 - i) for i, value in enumerate(rare)),
        frozenset(index),
        bool(typed) and not asks,
        () if asks else _select_typed_terms(typed, index),
        asks,
        when,
        meant,
    )


def _select_typed_terms(typed: Sequence[str], index: Mapping[str, int]) -> tuple[int, ...]:
    """Return the terms of the typed words; none if one of them occurs in no text."""
    return tuple(index[w] for w in typed) if all(w in index for w in typed) else ()


def _is_remark(role: str, sizes: Sizes | None, text: str) -> bool:
    """Return whether a text is one line of a few words that no tool printed."""
    return role != TOOL and (sizes[TEXT] if sizes else len(text) // CHARACTERS) <= REMARK and "\n" not in text.strip()


def is_document(role: str, sizes: Sizes | None, text: str) -> bool:
    """Return whether a text is code, a diff, a log or long prose, rather than conversation.

    Output of tools always is: it answers nobody.
    """
    if role == TOOL or (sizes[TEXT] if sizes else len(text) // CHARACTERS) > LONG:
        return True
    if _is_remark(role, sizes, text):
        return False
    head = text[:BEGINNING].encode("utf-8", "replace")
    return len(head) - len(head.translate(None, _CODE)) > DENSITY * len(head)


def measure(row: Row, sizes: Sizes | None, found: Phrases, text: str, pattern: Pattern, *, document: bool) -> Features:
    """Return the features of a row; `text` is "" if it is long and need not be searched.

    Rows not `found` by words are candidates for their neighbours, or for parts of words.
    """
    size, identifiers, before, _ = sizes or (len(text) // CHARACTERS, 0, 0, 0)
    remark = not pattern.asks and _is_remark(row.role, sizes, text)
    weights = (
        pattern.weights_of(document=document) if pattern.asks else _build_plain_weights(row.role, before, remark=remark)
    )
    is_named = document and (not text or _CAMEL.search(text[:BEGINNING]) is not None)
    counts, has_term, places = _count(found, pattern, weights, NAMING if is_named else 0)
    adjacent, near = _measure_proximity(places, pattern) if len(places) > 1 else (0.0, 0.0)
    if text and pattern.parts:
        verbatim = _count_parts(text, pattern, counts, has_term)
        adjacent, near = max(adjacent, verbatim), max(near, verbatim)
    length = size + identifiers + weights.before_length * before
    asks, labelled, timed = (
        _measure_answer(text, size, pattern, document=document) if pattern.asks else (0.0, False, False)
    )
    complete = pattern.has_all(has_term)
    beginning = text if size <= SHORT else text[:BEGINNING]
    return Features(
        row,
        document,
        length,
        tuple(counts),
        tuple(has_term),
        adjacent,
        near,
        complete,
        asks,
        labelled,
        timed,
        beginning,
        size,
        remark,
    )


def _measure_answer(text: str, size: int, pattern: Pattern, *, document: bool) -> tuple[float, bool, bool]:
    """Return the share of questions in a text, whether its label is named, and whether it states a time."""
    asks = _share_of_questions(text) if size <= SHORT else 0.0
    if document:
        return asks, False, False
    return asks, _is_labelled(text, pattern.words), pattern.when and says_when(text)


def _share_of_questions(text: str) -> float:
    """Return the share of a text's characters in questions; 0 if it does not end with one.

    A message often states something before it asks back. Its label does not count.
    """
    text = text[len(_label_of(text)) :].strip(": \n")
    if not text.endswith("?"):
        return 0.0
    sentences = _SENTENCE_END.split(text)
    return sum(len(s) for s in sentences if s.endswith("?")) / sum(map(len, sentences))


def _build_plain_weights(role: str, before: int, *, remark: bool) -> Weights:
    """Return the weights for a query without a question; `before`: tokens of the message before."""
    if role == TOOL:
        return ANNOUNCED if before <= REMARK else PRINTED
    return REMARKED if remark else PLAIN


def _is_labelled(text: str, words: Set[str]) -> bool:
    """Return whether a text begins with a label that contains one of `words`."""
    return not words.isdisjoint(_label_of(text).lower().split())


def _label_of(text: str) -> str:
    """Return the label of one or two words before the first colon of a text; "" if there is none."""
    label, colon, _ = text[:LABEL].partition(":")
    return label if colon and len(label.split()) <= 2 else ""


def _count(
    found: Phrases, pattern: Pattern, weights: Weights, naming: int
) -> tuple[list[float], list[bool], list[tuple[int, int]]]:
    """Return weighted occurrences, which terms the text itself has, and their first positions.

    `naming`: number of identifier pieces that count like the first words of the text.
    """
    total = len(pattern.terms) + len(pattern.parts)
    counts, has_term, places = [0.0] * total, [False] * total, list[tuple[int, int]]()
    forms, first_code = pattern.forms, pattern.whole
    in_identifiers, in_before, leading = weights.identifiers, weights.before, weights.leading
    for number, (
        text,
        identifiers,
        before,
        summary,
    ) in found:  # hot loop: comprehensions are slower
        form, i = forms[number]
        n = len(text) + in_identifiers * len(identifiers) + IN_SUMMARY * len(summary)
        if n:
            has_term[i] = True
        if number < first_code:
            for place in text[:OF_A_TERM]:
                places.append((place, i))
            if leading:
                n += leading * (bisect_left(text, LEADING) or bisect_left(identifiers, naming))
            if before:
                n += in_before * len(before) - weights.echo * n
        counts[i] += form.weight * n
    places.sort()
    return counts, has_term, places[:PLACES]


def _count_parts(text: str, pattern: Pattern, counts: list[float], own: list[bool]) -> float:
    """Count the parts of words; return the share of the typed parts in the text, weighted by rarity.

    An unbroken part counts as such: `getServerSide` in `getServerSideProps` beats its separate pieces.
    """
    lower = fold_text(text).lower()
    has_word = {term.text: own[i] for i, term in enumerate(pattern.terms)}
    for i, (part, _) in enumerate(pattern.parts, len(pattern.terms)):
        counts[i] = lower.count(part) * (1.0 if has_word.get(part, True) else WITHIN)
        own[i] = counts[i] > 0
    typed = [(rarity, i) for i, (p, rarity) in enumerate(pattern.parts, len(pattern.terms)) if p not in pattern.meant]
    return sum(rarity * own[i] for rarity, i in typed) / (sum(rarity for rarity, _ in typed) or 1.0)


def _measure_proximity(places: Sequence[tuple[int, int]], pattern: Pattern) -> tuple[float, float]:
    """Return `adjacent` and `near`; rare words count more for the second."""
    adjacent: set[tuple[int, int]] = set()
    nearest: dict[tuple[int, int], int] = {}
    terms, pairs = pattern.terms, pattern.pairs
    i, a = places[0]
    for j, b in places[1:]:
        if a != b:
            distance = j - i or 1
            pair = (a, b)
            if pair in pairs and distance <= len(terms[a].stem):
                adjacent.add(pair)
            if a > b:
                pair = (b, a)
            if distance < nearest.get(pair, 1 << 30):
                nearest[pair] = distance
        i, a = j, b
    if not nearest:
        return 0.0, 0.0
    near = sum([min(terms[a].rarity, terms[b].rarity) / distance for (a, b), distance in nearest.items()])
    return (
        len(adjacent) / len(pairs) if pairs else 0.0,
        near / pattern.nearness if pattern.nearness else 0.0,
    )
