"""Find older statements that a newer one ends: explicit changes of the same subject only. Pure.

Precision comes first. The reader sees dates and can resolve two statements, but a false mark hides what still holds. A
statement ends another one where it names the old value ("from 3 to 5", "npm is gone"), or gives the same subject
another value of the same kind, with a word of change or for an attribute that has one value. Whatever is done to a
thing (a request, a report, a rule about a named thing) holds beside what is done to another thing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.memory.statements import lexicon
from sakti.memory.statements.reading import Clause, StatementValue, clauses, divide_text

LISTED, COMPARED = 200, 40  # older clauses with one word that are looked at; of all of them, those with most in common
COVERED = 0.5  # share of an older statement's words that one which ends it repeats

_X = r"(?P<old>(?:[^,;.!?\n]|[.,](?=\w)|(?<=\d)\.(?=\s[A-Z]\w{2})){1,60}?)"
_THE = r"(?:the |our |my |using |to use |den |die |das |der |dem |vom |von )?"
_STOP = (
    r"(?=\s*(?:[,;!?]|\.(?:\s|$)|$|\b(?:for|because|but|and|any ?more|any longer|as|in|on|when|with|by|to|from|und|"
    r"aber|sondern|für|weil|mehr|mit|durch|auf|now|wir|we|nutze\w*|verwende\w*|take\w*|use\w*)\b))"
)
_DROP = (
    r"(?:scratch|(?:decided? )?against|"
    r"drop(?:ped|ping)?|scrap(?:ped)?|ditch(?:ed)?|forget(?: about)?|never ?mind|cancel\w*|abandon\w*|retired?|"
    r"left|leave|leaving|stop(?:ped)?(?: \w+ing)?|get rid of|got rid of|vergiss|streiche?n?)"
)
_ENDED = tuple(
    lazy_pattern(pattern, re.IGNORECASE | re.MULTILINE)
    for pattern in (
        rf"\b(?:from|von|vom)\s+{_X}\s+(?:to|auf|zu|zum|nach)\s",
        rf"\b(?:instead of|rather than|in place of|anstelle von|statt|anstatt|away from|weg von|"
        rf"moved off)\s+{_THE}{_X}{_STOP}",
        rf"\b(?:no longer|no more|(?:do not|don['’]t|does not|doesn['’]t) (?:need|use))\s+(?:need\w* |use |"
        rf"run )?{_THE}{_X}{_STOP}",
        rf",\s(?:not|never|nicht|and not|und nicht)\s+(?:in |on |auf |mehr )?{_THE}{_X}{_STOP}",
        rf"\bkeine?n?\s+{_X}\s+mehr\b",
        rf"\b(?:replaced?|replacing|replaces|supersedes|swap(?:ped)?|ersetzt|ersetzen)\s+{_THE}{_X}(?=\s(?:with|by|"
        rf"for|durch|as)\b|$)",
        rf"(?:^|[,;.]\s|\b(?:und|and|please|we|i|let['’]s|wir|have|has)\s){_DROP}\s+{_THE}{_X}{_STOP}",
        rf"(?:^|[,;.]\s|\b(?:und|and|but|aber|so)\s){_THE}{_X}\s(?:is|are|was|were|has been|turned out to be|ist|"
        rf"sind|wurde|wird)\s(?:now |jetzt )?"
        r"(?:gone|out\b|unnecessary|history|dropped|scrapped|cancel\w+|retired|obsolete|deprecated|off the table|"
        r"no longer\b|over\b|not needed|on leave|on vacation|raus|weg\b|gestrichen|hinfällig|abgelöst|passé|renamed|"
        r"umbenannt|replaced|ersetzt)",
        rf"(?:^|[,;.]\s)(?:{_THE}{_X})\s(?:brauchen?|wollen|will|nutzen|verwenden|benutzen|gibt es)\s(?:\w+\s)?"
        r"nicht mehr\b",
        rf"(?:^|[\s(]){_X}\s?(?:->|→|=>)\s",
    )
)
_IN_USE = (
    r"\b(?:uses?|using|runs?|keep|with|via|by|is|are|needs?|wants?|nutzen?|nehmen?|mit|ist|sind|"
    r"brauchen)\s(?:ich |wir )?(?:an? |the |our |eine?n? |den |die |das )?[`\"']?"
)
_MAKES = (  # "make the line length 120" gives a value, "make the tests pass" asks for work
    r"^\W*(?:(?:please|now|ok|and|also|bitte|jetzt|und)\s)*(?:make|bring|take|get|mach\w*|bring\w*)\s"
    r"(?:the|our|my|den|die|das|unser\w*)\s(?:[\w'-]+\s){1,5}?(?:(?:down |up )?(?:to|auf) )?[\"'`]?\d"
)
_SETS = lazy_pattern(
    rf"\b(?:is|are|set|should|must|has to|ist|sind|soll|lautet|beträgt|setze?)\b|[=:]|{_MAKES}", re.IGNORECASE
)
_GIVES = lazy_pattern(_MAKES, re.IGNORECASE)
# The language of the answers, of which there is one; nothing else is said to be in it.
_OF_ANSWERS = (
    r"(?:please|bitte|from now on|now|always|only|again|just|ab (?:jetzt|sofort|heute)|jetzt|nun|künftig|in future|"
    r"immer|nur|wieder|lieber|ok|and|und|also|(?:can|could) you|kannst du|let['’]s|du sollst|you should|instead|thanks|"
    r"danke|switch(?: back)?|change|continue|wechsle?|weiter\w*|"
    r"(?:answer|reply|respond|speak|talk|write)(?: to me| me)?|"
    r"(?:your|deine) (?:answers?|replies|antworten)|antworte\w*|sprich|sprechen|schreibe?n?|reden?|machen?)"
)
_LANGUAGE = lazy_pattern(
    rf"\W*(?:{_OF_ANSWERS}\b[\s,:]*)*\b(?:in|auf|to|zu)\s(?P<language>english|german|french|spanish|italian|dutch|"
    r"englisch|deutsch|französisch|spanisch|italienisch|niederländisch)\b"
    rf"(?:[\s,]*\b{_OF_ANSWERS}\b)*\W*",
    re.IGNORECASE,
)
_CHANGER = lazy_pattern(  # who changes it is no part of the subject: "ops switched the log level"
    r"\W*(?:[\w'’]+\s){1,3}?(?:changed|switched|moved|raised|lowered|set|bumped|cut|reduced|increased|extended)\s"
    r"(?=(?:the|our|it|its)\b)",
    re.IGNORECASE,
)
_RESULTS_IN = lazy_pattern(r"\b(?:to|on|with|for|that|auf|für|mit|nach|dass)\b", re.IGNORECASE)  # what holds since
_LEADING = (
    r"(?:(?:please|now|then|and|also|so|ok|next|first|later|bitte|jetzt|dann|danach|und|nun|let['’]s|"
    r"you may|(?:could|can|would|will) you|now please)\b[\s,:]*)*"
)
_ASKS_POLITELY = lazy_pattern(  # for work, and not for a value
    r"\W*(?:please|bitte|(?:could|can|would|will) you|kannst du|könntest du)\s(?!use|set|keep|make|change|take|name|"
    r"call|raise|lower|increase|reduce|switch|replace|rename|move|drop|write|nimm|nutz|setz|änder|verwend|erhöh|"
    r"senk|schreib)",
    re.IGNORECASE,
)
_NO_VERB = (
    r"(?!(?:\s[\w-]+)?\s(?:is|are|was|were|has|will|got|gets|ist|sind|wird|moved|postponed|changed|slipped|pushed|"
    r"should|must)\b|(?:\s[\w-]+){1,2}\s?[:=]\s)"
)
_NEGATED = lazy_pattern(r"\b(?:not|never|no longer|\w+n['’]t|nicht|kein\w*|nie)\b", re.IGNORECASE)
_GENERIC = frozenset("rule idea plan thing requirement regel idee tool library bibliothek us name valu".split())


class EndedText(Struct, frozen=True):
    """Text `start` to `end` of statement `old` that statement `new` ends (positions in the input)."""

    old: int
    new: int
    start: int
    end: int


class Statement(Struct, frozen=True, dict=True):
    """Sentence at `place`; `is_act`: a request, report or rule, about one thing among others."""

    place: int
    text: str
    clauses: tuple[Clause, ...]
    is_act: bool

    @classmethod
    def of(cls, place: int, text: str, *, asked: bool = False) -> Statement:
        """Read a sentence; `asked`: it is known to be a request, of a value or for work."""
        is_event = re.match(lexicon.phrases("did").pattern, text) is not None and not _RESULTS_IN.search(text)
        return cls(place, text, clauses(text), is_event or is_act(text) or (asked and not _SETS.search(text)))

    @cached_property
    def ended(self) -> frozenset[str]:
        """Return the words and values that the sentence says are over."""
        return frozenset(_ended_keys(self))

    @cached_property
    def language(self) -> str:
        """Return the language in which answers are wanted, if the sentence says only that."""
        match = _LANGUAGE.fullmatch(self.text)
        language = match["language"].casefold() if match else ""
        return lexicon.synonyms().get(language, language)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Return the words and values by which older statements of the same are found."""
        keys = _words_of(self.clauses) | _values(self.clauses)
        return keys | {"answer language"} if self.language else keys

    @cached_property
    def is_question(self) -> bool:
        return self.text.rstrip("\"'`) ").endswith("?")

    @cached_property
    def can_end(self) -> bool:
        """Return whether the sentence may end an older one at all."""
        if self.is_question or lexicon.phrases("elsewhere").search(self.text):
            return False
        if is_cancelled(self.text) or self.language:
            return True
        sets = _changes(self.text) or _SETS.search(self.text)
        return not is_act(self.text) and bool(self.ended or sets)


class StatementIndex:
    """Statements in order, found by the words and values in them."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self._having: dict[str, list[int]] = {}

    def add(self, text: str, *, asked: bool = False) -> Statement:
        statement = Statement.of(len(self.statements), text, asked=asked)
        for key in statement.keys:
            self._having.setdefault(key, []).append(statement.place)
        self.statements.append(statement)
        return statement

    def sharing(self, statement: Statement) -> Iterator[Statement]:
        """Yield older statements that share keys, those that share most first."""
        common: Counter[int] = Counter()
        for key in statement.keys:
            common.update(self._having.get(key, [])[-LISTED:])
        most = sorted(common, key=lambda n: (-common[n], -n))
        yield from (self.statements[n] for n in most[:COMPARED] if self.statements[n] is not statement)


def is_act(text: str) -> bool:
    """Return whether a sentence is a request, a report of work, or a rule about one thing."""
    asks = rf"(?:{lexicon.phrases('imperative').pattern}){_NO_VERB}|{lexicon.phrases('did').pattern}"
    if _GIVES.match(text):
        return False
    if _ASKS_POLITELY.match(text):
        return True
    if lexicon.phrases("change_reports").search(text):
        asks = rf"(?:{lexicon.phrases('imperative').pattern}){_NO_VERB}"
    elif lexicon.phrases("reports").search(text):
        return True
    return re.match(rf"\W*{_LEADING}(?:{asks})", text, re.IGNORECASE) is not None


def find_ended(statements: Sequence[str]) -> Iterator[EndedText]:
    """Yield what later statements end, of statements of one speaker given oldest first."""
    index = StatementIndex()
    gone: set[tuple[int, int]] = set()
    for text in statements:
        new = index.add(text)
        for old in index.sharing(new):
            for span in ended_by(old, new):
                if (old.place, span[0]) not in gone:
                    gone.add((old.place, span[0]))
                    yield EndedText(old.place, new.place, *span)


def ended_by(old: Statement, new: Statement) -> list[tuple[int, int]]:
    """Return the parts of an older statement that a newer one ends; empty if both hold."""
    if not new.can_end:
        return []
    if (new.language and old.language) or old.is_act:
        return [(0, len(old.text))] if _is_ended_whole(old, new) else []
    out: list[tuple[int, int]] = []
    for clause in () if old.is_question else old.clauses:
        is_named = new.ended and _names_end(clause, new, new.ended)
        if is_named or any(_gives_other(clause, other, new.text) for other in new.clauses):
            out.append((clause.start, clause.end))
    return out


def _is_ended_whole(old: Statement, new: Statement) -> bool:
    """Return whether a request, a rule or the language of the answers is ended."""
    if new.language and old.language:
        return new.language != old.language
    return _is_called_off(old, new)


def _ended_keys(new: Statement) -> Iterator[str]:
    spans = [match.span("old") for pattern in _ENDED for match in pattern.finditer(divide_text(new.text))]
    for clause in new.clauses:
        for key, at in (
            *((k, clause.start + at) for k, at in clause.words),
            *((v.key, v.start) for v in clause.values),
        ):
            if any(start <= at < end for start, end in spans):
                yield key


def _names_end(old: Clause, new: Statement, ended: frozenset[str]) -> bool:
    """Return whether a statement says that what a clause says is over."""
    new_words = _words_of(new.clauses)
    if not old.value_keys <= _values(new.clauses) | new_words:
        return False
    rest = old.keys - ended - _GENERIC
    covers = not rest or _share(rest, new_words) >= COVERED
    if lost := [v for v in old.values if v.key in ended]:
        return covers or _is_needed(old, lost) or (_is_in_use(old, lost[0].key) and len(new_words - ended) <= 1)
    words = ended - _GENERIC
    if not words or _share(words, old.keys) < 1:
        return False
    return covers or _ends_use(old, new, words, ended)


def _ends_use(old: Clause, new: Statement, words: frozenset[str], ended: frozenset[str]) -> bool:
    """Return whether something is in use, and the clauses that end it speak of little else."""
    more = _words_of([c for c in new.clauses if ended & c.keys]) - words - old.keys
    return len(more) <= 1 and any(_is_in_use(old, word) for word in words)


def _words_of(parts: Sequence[Clause]) -> frozenset[str]:
    return frozenset[str]().union(*(c.keys for c in parts))


def _values(parts: Sequence[Clause]) -> frozenset[str]:
    return frozenset[str]().union(*(c.value_keys for c in parts))


def _is_in_use(clause: Clause, word: str) -> bool:
    """Return whether a clause says that something is in use: "we use X", "tests run with X"."""
    return re.search(rf"{_IN_USE}{re.escape(word)}", clause.text, re.IGNORECASE) is not None


def _is_needed(old: Clause, lost: Sequence[StatementValue]) -> bool:
    return any(v.shape in ("code", "name") for v in lost) and bool(lexicon.phrases("need").search(old.text))


def is_cancelled(text: str) -> bool:
    """Return whether a sentence calls something off."""
    return lexicon.phrases("cancel").search(text) is not None


def _is_called_off(old: Statement, new: Statement) -> bool:
    """Return whether the user calls off a request or rule."""
    if not is_cancelled(new.text):
        return False
    keys, values = _words_of(old.clauses), _values(old.clauses)
    words = _words_of(new.clauses) | _values(new.clauses)
    is_meant = bool(values) or len(keys & words) > 1 or keys <= words
    return values <= words and is_meant and _share(keys, words) >= COVERED


def _gives_other(old: Clause, new: Clause, text: str) -> bool:
    """Return whether a clause gives the subject of an older one another value of its kind."""
    changes = _changes(text)
    if lexicon.phrases("adds").search(new.text) or not (changes or _sets_single(old, new)):
        return False
    if bool(_NEGATED.search(old.text)) != bool(_NEGATED.search(new.text)):
        return changes and old.items_like(new) and bool(old.keys)  # one denies what the other says
    if changes and _turns_last_word(old, new):
        return not lexicon.phrases("many").search(old.text)
    lost = [v for v in old.values if v.key not in new.value_keys | new.keys]
    new_values = [v for v in new.values if v.key not in old.value_keys | old.keys]
    if not _pair_up(lost, new_values) or any(map(old.is_subject, lost)):
        return False
    return _can_replace(old, new, lost, new_values, changes)


def _pair_up(lost: Sequence[StatementValue], new: Sequence[StatementValue]) -> bool:
    """Return whether each lost value has a new one; several only if they belong together and are alike."""
    if not lost or len(lost) != len(new):
        return False
    return len(lost) == 1 or (_is_one_value(lost) and all(map(_alike, lost, new)))


def _can_replace(
    old: Clause, new: Clause, lost: Sequence[StatementValue], given: Sequence[StatementValue], changes: bool
) -> bool:
    """Return whether one value can be put in the place of another for the same subject."""
    sets = _SETS.search(new.text) or _CHANGER.match(new.text)
    defines = changes and old.keys == _changed_keys(new) and _SETS.search(old.text) and sets
    is_one_date = "date" in {lost[0].shape, given[0].shape}
    if not (_alike(lost[0], given[0]) or (defines and not is_one_date)):
        return False
    if new.is_subject(given[0]) and new.verb >= 0 and not new.is_inverted:
        return False
    if lexicon.phrases("many").search(old.text) and not lost[0].unit:
        return False
    return _is_same_subject(old, new)


@lru_cache(1_024)
def _changes(text: str) -> bool:
    return lexicon.phrases("change").search(text) is not None


def _sets_single(old: Clause, new: Clause) -> bool:
    """Return whether a clause sets an attribute of which a thing has one: "the retry limit is 5"."""
    single = lexicon.words("single")
    both = old.keys & new.keys
    return bool(_SETS.search(new.text)) and any(key in single or f"{key}e" in single for key in both)


def _is_same_subject(old: Clause, new: Clause) -> bool:
    new_words = _changed_keys(new)
    extra = {word for word in new_words - old.value_keys if not _is_like(word, old.keys)}
    missing = {word for word in old.keys - new.value_keys if not _is_like(word, new_words)}
    if extra or not (old.keys & new_words or old.value_keys & (new.value_keys | new_words) or not missing):
        return False
    return not missing & (old.subject if old.verb >= 0 else old.keys) and 2 * len(missing) <= len(old.keys)


def _changed_keys(clause: Clause) -> frozenset[str]:
    match = _CHANGER.match(clause.text)
    return frozenset(key for key, at in clause.words if match is None or at >= match.end())


def _is_like(word: str, others: frozenset[str]) -> bool:
    """Return whether a word is one of the others, or a form of one: "deploy", "deployments"."""
    if word in others or not word.isalpha():  # "clean-a" is another one than "clean-b"
        return word in others
    return any(len(word) > 4 and len(other) > 4 and word[:5] == other[:5] for other in others)


def _turns_last_word(old: Clause, new: Clause) -> bool:
    """Return whether two clauses differ only in their last word: "daily", "hourly"."""
    before, after = old.items(), new.items()
    lost, gained = _items_unlike(before, after), _items_unlike(after, before)
    if len(lost) != 1 or len(gained) != 1 or len(before) < 2 or old.verb < 0:
        return False
    if lost[0] != before[-1] or gained[0] != after[-1] or lost[0][1] <= old.verb:
        return False
    words = {lost[0][0], gained[0][0]}
    if any(word[0].isdigit() for word in words) or words & lexicon.words("states"):
        return False
    return bool(old.subject) and (old.subject == new.subject or new.verb < 0)


def _items_unlike(items: Sequence[tuple[str, int]], others: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the items whose word is like none of the others."""
    words = frozenset(word for word, _ in others)
    return [item for item in items if not _is_like(item[0], words)]


def _alike(a: StatementValue, b: StatementValue) -> bool:
    """Return whether one value can replace the other: of one kind, of one unit."""
    if a.shape != b.shape:
        return {a.shape, b.shape} == {"name", "code"}
    if a.shape == "number" and a.unit and b.unit:
        times = {"second", "minute", "hour", "day", "week", "month", "ms"}
        return a.unit == b.unit or {a.unit, b.unit} <= times
    if a.shape == "date":
        return (":" in a.key) == (":" in b.key)
    return True


def _is_one_value(values: Sequence[StatementValue]) -> bool:
    """Return whether two values belong together: "from 9 to 17", "Mondays and Fridays", "Postgres 16"."""
    first, second = values[0], values[1]
    pair = first.shape == second.shape != "name" or (second.shape == "number" and second.start - first.end == 1)
    return len(values) == 2 and pair


def _share(words: frozenset[str] | set[str], of: frozenset[str]) -> float:
    return sum(_is_like(w, of) for w in words) / len(words) if words else 1.0
