"""Find older statements replaced by a newer one: explicit changes of the same subject only. Pure.

Precision comes first. The reader sees dates and can resolve two statements, but a false mark hides a valid one. A
statement replaces another one if it names the old value ("from 3 to 5", "npm is gone"). It also does if it gives the
same subject another value of the same kind, with a word of change or for an attribute with a single value. An action
on one thing (a request, a report, a rule about a named thing) does not affect actions on others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.memory.statements import lexicon
from sakti.memory.statements.reading import Clause, StatementValue, divide_text, split_clauses

LISTED, COMPARED = (
    200,
    40,
)  # most clauses examined per word, and in total
COVERED = 0.5  # least share of an older statement's words in a statement that replaces it

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
    )
)
_IN_USE = (
    r"\b(?:uses?|using|runs?|keep|with|via|by|is|are|needs?|wants?|nutzen?|nehmen?|mit|ist|sind|"
    r"brauchen)\s(?:ich |wir )?(?:an? |the |our |eine?n? |den |die |das )?[`\"']?"
)
_SETS = lazy_pattern(r"\b(?:is|are|set|should|must|has to|ist|sind|soll|lautet|beträgt|setze?)\b|[=:]", re.IGNORECASE)
_CHANGER = lazy_pattern(  # the agent of a change is no part of the subject: "ops switched the log level"
    r"\W*(?:[\w'’]+\s){1,3}?(?:changed|switched|moved|raised|lowered|set|bumped|cut|reduced|increased|extended)\s"
    r"(?=(?:the|our|it|its)\b)",
    re.IGNORECASE,
)
_RESULTS_IN = lazy_pattern(r"\b(?:to|on|with|for|that|auf|für|mit|nach|dass)\b", re.IGNORECASE)  # a lasting state
_LEADING = (
    r"(?:(?:please|now|then|and|also|so|ok|next|first|later|bitte|jetzt|dann|danach|und|nun|let['’]s|"
    r"you may|(?:could|can|would|will) you|now please)\b[\s,:]*)*"
)
_NO_VERB = (
    r"(?!(?:\s[\w-]+)?\s(?:is|are|was|were|has|will|got|gets|ist|sind|wird|moved|postponed|changed|slipped|pushed|"
    r"should|must)\b|(?:\s[\w-]+){1,2}\s?[:=]\s)"
)
_NEGATED = lazy_pattern(r"\b(?:not|never|no longer|\w+n['’]t|nicht|kein\w*|nie)\b", re.IGNORECASE)


class Statement(Struct, frozen=True, dict=True):
    """Sentence at `place`; `is_act`: a request, report or rule, about one thing among others."""

    place: int
    text: str
    clauses: tuple[Clause, ...]
    is_act: bool

    @classmethod
    def of(cls, place: int, text: str, *, asked: bool = False) -> Statement:
        """Parse a sentence; `asked`: it is known to be a request, for a value or for work."""
        is_event = re.match(lexicon.compile_phrases("did").pattern, text) is not None and not _RESULTS_IN.search(text)
        return cls(place, text, split_clauses(text), is_event or is_act(text) or (asked and not _SETS.search(text)))

    @cached_property
    def ended(self) -> frozenset[str]:
        """Return the words and values that the sentence declares obsolete."""
        return frozenset(_iter_ended_keys(self))

    @cached_property
    def keys(self) -> frozenset[str]:
        """Return the words and values that find older statements of the same subject."""
        return _collect_words(self.clauses) | _collect_values(self.clauses)

    @cached_property
    def is_question(self) -> bool:
        return self.text.rstrip("\"'`) ").endswith("?")

    @cached_property
    def can_end(self) -> bool:
        """Return whether the sentence can replace an older one at all."""
        if self.is_question or lexicon.compile_phrases("elsewhere").search(self.text):
            return False
        if is_cancelled(self.text):
            return True
        return not is_act(self.text) and bool(self.ended or _changes(self.text) or _SETS.search(self.text))


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
    asks = rf"(?:{lexicon.compile_phrases('imperative').pattern}){_NO_VERB}|{lexicon.compile_phrases('did').pattern}"
    if lexicon.compile_phrases("change_reports").search(text):
        asks = rf"(?:{lexicon.compile_phrases('imperative').pattern}){_NO_VERB}"
    elif lexicon.compile_phrases("reports").search(text):
        return True
    return re.match(rf"\W*{_LEADING}(?:{asks})", text, re.IGNORECASE) is not None


def find_ended_parts(old: Statement, new: Statement) -> list[tuple[int, int]]:
    """Return the parts of an older statement that a newer one replaces; empty if both are valid."""
    if not new.can_end:
        return []
    if old.is_act:
        return [(0, len(old.text))] if _is_called_off(old, new) else []
    clauses_that_state = () if old.is_question else old.clauses
    return [(clause.start, clause.end) for clause in clauses_that_state if _ends_clause(clause, new)]


def _ends_clause(old: Clause, new: Statement) -> bool:
    if new.ended and _names_end(old, new, new.ended):
        return True
    return any(_gives_other(old, clause, new.text) for clause in new.clauses)


def _iter_ended_keys(new: Statement) -> Iterator[str]:
    spans = [match.span("old") for pattern in _ENDED for match in pattern.finditer(divide_text(new.text))]
    for clause in new.clauses:
        for key, at in (
            *((k, clause.start + at) for k, at in clause.words),
            *((v.key, v.start) for v in clause.values),
        ):
            if any(start <= at < end for start, end in spans):
                yield key


def _names_end(old: Clause, new: Statement, ended: frozenset[str]) -> bool:
    """Return whether a statement says that the content of a clause is obsolete."""
    new_words = _collect_words(new.clauses)
    if not old.value_keys <= _collect_values(new.clauses) | new_words:
        return False
    covers = _share(old.keys - ended, new_words) >= COVERED
    lost = [value for value in old.values if value.key in ended]
    if lost:
        return covers or _is_needed(old, lost) or (_is_in_use(old, lost[0].key) and len(new_words - ended) <= 1)
    return ended <= old.keys and (covers or _ends_use(old, new, ended))


def _ends_use(old: Clause, new: Statement, ended: frozenset[str]) -> bool:
    """Return whether something is in use and the clauses that end it are about little else."""
    more = _collect_words([c for c in new.clauses if ended & c.keys]) - ended - old.keys
    return len(more) <= 1 and any(_is_in_use(old, word) for word in ended)


def _collect_words(parts: Sequence[Clause]) -> frozenset[str]:
    return frozenset[str]().union(*(c.keys for c in parts))


def _collect_values(parts: Sequence[Clause]) -> frozenset[str]:
    return frozenset[str]().union(*(c.value_keys for c in parts))


def _is_in_use(clause: Clause, word: str) -> bool:
    """Return whether a clause says that something is in use: "we use X", "tests run with X"."""
    return re.search(rf"{_IN_USE}{re.escape(word)}", clause.text, re.IGNORECASE) is not None


def _is_needed(old: Clause, lost: Sequence[StatementValue]) -> bool:
    return any(v.shape in ("code", "name") for v in lost) and bool(lexicon.compile_phrases("need").search(old.text))


def is_cancelled(text: str) -> bool:
    """Return whether a sentence calls something off."""
    return lexicon.compile_phrases("cancel").search(text) is not None


def _is_called_off(old: Statement, new: Statement) -> bool:
    """Return whether the user cancels a request or rule."""
    keys, values = _collect_words(old.clauses), _collect_values(old.clauses)
    words = new.keys
    is_meant = bool(values) or len(keys & words) > 1 or keys <= words
    return is_cancelled(new.text) and values <= words and is_meant and _share(keys, words) >= COVERED


def _gives_other(old: Clause, new: Clause, text: str) -> bool:
    """Return whether a clause of `text` gives the subject of an older one another value of its kind."""
    changes = _changes(text)
    if lexicon.compile_phrases("adds").search(new.text) or not (changes or _sets_single(old, new)):
        return False
    if bool(_NEGATED.search(old.text)) != bool(_NEGATED.search(new.text)):
        return changes and bool(old.keys) and old.items_like(new)  # one negates the other
    if changes and _turns_last_word(old, new):
        return not lexicon.compile_phrases("many").search(old.text)
    return _replaces_values(old, new, changes=changes)


def _replaces_values(old: Clause, new: Clause, *, changes: bool) -> bool:
    """Return whether each value missing from the new clause has a new one, for the same subject."""
    lost = [v for v in old.values if v.key not in new.value_keys | new.keys]
    gained = [v for v in new.values if v.key not in old.value_keys | old.keys]
    if not _pair_up(lost, gained) or not _are_objects(old, new, lost, gained):
        return False
    if lexicon.compile_phrases("many").search(old.text) and not lost[0].unit:
        return False
    defines = changes and _defines_same(old, new) and "date" not in {lost[0].shape, gained[0].shape}
    return (defines or _are_alike(lost[0], gained[0])) and _is_same_subject(old, new)


def _are_objects(old: Clause, new: Clause, lost: Sequence[StatementValue], gained: Sequence[StatementValue]) -> bool:
    """Return whether two clauses give these values to something, and are not about the values."""
    if any(map(old.is_subject, lost)):
        return False
    return new.verb < 0 or new.is_inverted or not new.is_subject(gained[0])


def _defines_same(old: Clause, new: Clause) -> bool:
    """Return whether two clauses set the same attribute, so that values of any kind replace each other."""
    sets = _SETS.search(new.text) or _CHANGER.match(new.text)
    return old.keys == _select_changed_keys(new) and bool(_SETS.search(old.text) and sets)


def _select_changed_keys(clause: Clause) -> frozenset[str]:
    """Return the words of a clause without the agent of the change."""
    match = _CHANGER.match(clause.text)
    return frozenset(key for key, at in clause.words if match is None or at >= match.end())


def _pair_up(lost: Sequence[StatementValue], gained: Sequence[StatementValue]) -> bool:
    """Return whether each lost value has a new one; several only if they belong together and are alike."""
    if not lost or len(lost) != len(gained):
        return False
    return len(lost) == 1 or (_is_one_value(lost) and all(map(_are_alike, lost, gained)))


@lru_cache(1_024)
def _changes(text: str) -> bool:
    return lexicon.compile_phrases("change").search(text) is not None


def _sets_single(old: Clause, new: Clause) -> bool:
    """Return whether a clause sets an attribute with a single value: "the retry limit is 5"."""
    single = lexicon.load_words("single")
    both = old.keys & new.keys
    return bool(_SETS.search(new.text)) and any(key in single or f"{key}e" in single for key in both)


def _is_same_subject(old: Clause, new: Clause) -> bool:
    """Return whether the new clause has the same subject: no added word, no more than half omitted."""
    new_words = _select_changed_keys(new)
    missing = old.keys - new.value_keys - new_words
    if new_words - old.value_keys - old.keys:
        return False
    if missing and not (old.keys & new_words or old.value_keys & (new.value_keys | new_words)):
        return False
    subject = old.subject if old.verb >= 0 else old.keys
    return not missing & subject and 2 * len(missing) <= len(old.keys)


def _turns_last_word(old: Clause, new: Clause) -> bool:
    """Return whether two clauses differ only in their last word: "daily", "hourly"."""
    before, after = old.items(), new.items()
    lost, gained = _select_unlike(before, after), _select_unlike(after, before)
    if len(before) < 2 or lost != before[-1:] or gained != after[-1:]:
        return False
    if old.verb < 0 or lost[0][1] <= old.verb:
        return False
    words = {lost[0][0], gained[0][0]}
    if any(word[0].isdigit() for word in words) or words & lexicon.load_words("states"):
        return False
    return bool(old.subject) and (old.subject == new.subject or new.verb < 0)


def _select_unlike(items: Sequence[tuple[str, int]], others: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the items whose word is none of the others."""
    words = {word for word, _ in others}
    return [item for item in items if item[0] not in words]


def _are_alike(a: StatementValue, b: StatementValue) -> bool:
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


def _share(words: frozenset[str], others: frozenset[str]) -> float:
    """Return the share of the words that are among the others; 1 if there are none."""
    return len(words & others) / len(words) if words else 1.0
