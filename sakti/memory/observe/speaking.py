"""Check who said what a log line attributes: the user, the agent, or a text that was read. Pure."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal, TypeAlias

from sakti.core.lazy import lazy_pattern
from sakti.core.types import Message, TextPart, join_plain_text
from sakti.memory.log import lines
from sakti.memory.observe import quoting
from sakti.memory.observe.claims import WORDS, cut
from sakti.memory.statements.reading import stem_word
from sakti.memory.statements.sentences import find_speaker, iter_units, step_by_step

Voice: TypeAlias = Literal["user", "agent", "text", "agreed"]  # agreed: the agent's text before the user's yes
Said: TypeAlias = tuple[Voice, str]

COVERED = 0.6  # share of a sentence's words in one sentence of another speaker
AGREED = 600  # characters at the end of an answer that a yes agrees to
SENTENCES = 20_000  # most sentences of each voice

STATES = lazy_pattern(
    r"(?:the )?(?P<who>user|agent|assistant)(?: \([^)]{1,60}\))? (?:also |now |then |explicitly |always |never )*"
    r"(?:(?P<agreeing>agree[ds]?|confirm(?:s|ed)|accept(?:s|ed)|approve[ds]?)|state[ds]?|said|says|stated|note[ds]|"
    r"decide[ds]?|prefer(?:s|red)|want(?:s|ed)|propose[ds]|suggest(?:s|ed)|recommend(?:s|ed)|insist(?:s|ed)|"
    r"require[ds]?|demand(?:s|ed)|request(?:s|ed)|explain(?:s|ed)|report(?:s|ed)|told|asked (?:for|to|that)|forb\w+|"
    r"forbids?|likes?|uses?|needs?)\b:?(?: that\b| to\b)?",
    re.IGNORECASE,
)
# A decision needs the user's own words.
_DECIDES = lazy_pattern(
    r"(?:the )?user (?:also |now |then |explicitly )*(?:approve[ds]?|agree[ds]?|accept(?:s|ed)|confirm(?:s|ed)|"
    r"allow(?:s|ed)|permit(?:s|ted)|want(?:s|ed)|decide[ds]?|forb[ia]de?s?|authori[sz]e[ds]?)\b",
    re.IGNORECASE,
)
_PERMITS = lazy_pattern(r"approv|allow|permit|authori", re.IGNORECASE)
_YES = lazy_pattern(
    r"\W*(?:yes|yep|yeah|ok(?:ay)?|sure|right|correct|agreed|fine|do (?:it|that)|go (?:on|ahead)|please do|"
    r"makes sense|sounds good|good idea|exactly|absolutely|gute idee|ja|genau|klar|gern|passt|mach (?:das|es)|"
    r"einverstanden|stimmt)\b",
    re.IGNORECASE,
)
_NEGATED = lazy_pattern(
    r"\b(?:not|never|no|without|\w+n['’]t|nicht|nie|kein\w*|ohne|forb[ia]d\w*|refus\w*|reject\w*|avoid\w*|stop\w*|lehnt\w*)\b",
    re.IGNORECASE,
)
# A good result of work.
_RESULT = lazy_pattern(
    r"\b(?:pass(?:ed|es)?|succe\w+|finish\w*|complet\w+|without (?:an(?:y)? )?errors?|applied|exit(?:ed)? (?:code )?0|"
    r"erfolgreich|abgeschlossen|fertig|bestanden|green|grün|ok)\b|✓|✔",
    re.IGNORECASE,
)
PERMITTED, WISHED, RESULT_SHARE = (
    0.6,
    0.5,
    0.6,
)  # least shares of a line's words
_WORD = lazy_pattern(r"\w[\w'’-]{0,60}")
_FUNCTION = frozenset(
    """a an the this that these those it its is are was were be been being am to of in on at by for from with as and or
    but not no if so then than too also just he she they his her their our my your we you i me us them do does did done
    has have had will would can could should must may might user agent assistant always never every said der die das den
    dem ein eine einen und oder aber nicht ist sind war mit von zu auf im am für bei wir ich sie er es""".split()
)


class Voices:
    """Statements of each speaker, by sentences; call `ready` first, and `index` before any `find_…`."""

    def __init__(self, said: Iterable[Said] = ()) -> None:
        self._said = said
        self._texts: dict[Voice, list[str]] = {"user": [], "agent": [], "text": [], "agreed": []}
        self._plain: dict[Voice, str] = {}
        self._having: dict[Voice, dict[str, list[int]]] = {}
        self._decisions: list[tuple[str, frozenset[str]]] = []

    def ready(self) -> None:
        """Sort the statements by speaker."""
        for voice, text in self._said:
            self._texts[voice].append(text)
        self._plain = {voice: normalize_text("\n".join(texts)) for voice, texts in self._texts.items()}

    def index(self) -> None:
        """Index every sentence; once."""
        if self._having:
            return
        self._having = {voice: defaultdict(list) for voice in self._texts}
        for voice, texts in self._texts.items():
            sentences = (s for text in texts for s in _iter_sentences(voice, text))
            for number, sentence in enumerate(itertools.islice(sentences, SENTENCES)):
                for word in (words := _collect_words(sentence)):
                    self._having[voice][word].append(number)
                if voice in ("user", "agreed"):
                    self._decisions.append((sentence, words))

    def is_verbatim(self, content: str) -> bool:
        """Return whether a line attributes nothing, or only literal words of the speaker."""
        states = STATES.match(content)
        if states is None:
            return True
        source = self._plain["user" if states["who"].casefold() == "user" else "agent"]
        return all(normalize_text(text).rstrip("…") in source for text in _iter_sayings(content, states.end()))

    def find_misattributed(self, content: str) -> str | None:
        """Return the words that a line attributes to the wrong speaker; None without a contradiction.

        Example: "User stated: never run tests" if only a file says that.
        """
        states = STATES.match(content)
        if states is None:
            return None
        who: Voice = "user" if states["who"].casefold() == "user" else "agent"
        others: tuple[Voice, ...] = (
            ("text",) if states["agreeing"] else ("agent", "text") if who == "user" else ("user",)
        )
        for text in _iter_sayings(content, states.end()):
            words = _collect_words(text)
            if not words:
                continue
            other = max(self._measure_coverage(voice, words) for voice in others)
            if other >= COVERED and 2 * self._measure_coverage(who, words) <= other:
                return " ".join(text.split())[:80]
        return None

    def find_undecided(self, content: str) -> str | None:
        """Return the words of a decision that no sentence of the user has with the same polarity."""
        decides = _DECIDES.match(content)
        text = next(_iter_sayings(content, decides.end()), "") if decides else ""
        if not (words := _collect_words(text)):
            return None
        best = max(self._decisions, key=lambda said: len(words & said[1]), default=("", frozenset[str]()))
        heard = sum(word in self._having["user"] or word in self._having["agreed"] for word in words)
        if decides is not None and _PERMITS.search(decides[0]):
            is_same, share, least = (
                bool(_NEGATED.search(content)) == bool(_NEGATED.search(best[0])),
                PERMITTED,
                PERMITTED,
            )
        else:  # wishes are more often rephrased
            is_same, share, least = _is_negated(content) == _is_negated(best[0]), WISHED, WISHED / 2
        is_said = heard >= share * len(words) and len(words & best[1]) >= least * len(words)
        return None if is_said and is_same else " ".join(text.split())[:80]

    def find_unproven(self, content: str) -> str | None:
        """Return the words of a reported success that the source does not show."""
        who = STATES.match(content)
        if not _RESULT.search(content) or (who is not None and who["who"].casefold() == "user"):
            return None
        words = _collect_words(_RESULT.sub(" ", content))
        supported = sum(any(word in having for having in self._having.values()) for word in words)
        if supported >= RESULT_SHARE * len(words) and any(_RESULT.search(text) for text in self._plain.values()):
            return None
        return " ".join(content.split())[:80]

    def binds(self, number: str, near: Iterable[str]) -> bool:
        """Return whether a sentence with a number has one of the words near it.

        True if the source lacks the number or all these words: then the line is a paraphrase.
        """
        forms = {number, *(stem_word(word) for word, value in WORDS.items() if str(value) == number)}
        having = self._having.values()
        words = {w for word in near for w in _collect_words(word) if any(w in h for h in having)} - forms
        places = [(h, n) for h in having for form in forms for n in h.get(form, ())]
        return not words or not places or any(n in h.get(word, ()) for h, n in places for word in words)

    def _measure_coverage(self, voice: Voice, words: frozenset[str]) -> float:
        """Return the largest share of the words in a single sentence."""
        common: Counter[int] = Counter()
        for word in words:
            common.update(set(self._having[voice].get(word, ())))
        return max(common.values(), default=0) / len(words)


def is_checked(content: str) -> bool:
    """Return whether a line reports a decision of the user or a success, which needs a source."""
    return _DECIDES.match(content) is not None or _RESULT.search(content) is not None


def normalize_text(text: str) -> str:
    """Normalise case and spaces of a text for searching."""
    return " ".join(text.split()).casefold()


def iter_message_sayings(messages: Iterable[Message]) -> Iterator[Said]:
    """Yield the text of messages by speaker; a user's quotations belong to no speaker."""
    proposal = ""
    for message in messages:
        if message.is_by_user:
            typed = quoting.select_own_words(message)
            yield "user", typed
            if proposal and _YES.match(typed):
                yield "agreed", proposal
            if quoting.split_shell_report(message) is not None:
                yield "text", message.text
            else:
                yield "text", "\n".join(p.text for p in quoting.iter_pieces(message.text) if not p.own)
        elif message.is_by_agent:
            yield "agent", message.text
            proposal = message.text[-AGREED:]
        rest = [p for p in message.parts if not isinstance(p, TextPart)]
        yield "text", join_plain_text(rest)


def _is_negated(text: str) -> bool:
    """Return whether a sentence is negated; two negations cancel out ("never without asking")."""
    return len(_NEGATED.findall(text)) % 2 == 1


def iter_log_sayings(log: str) -> Iterator[Said]:
    """Yield the statements of log lines, by speaker."""
    for row in lines.iter_rows(log):
        yield find_speaker(row.content, row.priority) or "text", row.content


def _iter_sayings(content: str, start: int) -> Iterator[str]:
    """Yield the sentences of a line after its attribution."""
    for unit in iter_units(content):
        if text := content[max(start, unit.start) : unit.start + len(unit.text)].strip():
            yield text


def _iter_sentences(voice: Voice, text: str) -> Iterator[str]:
    yield from step_by_step(text)
    if voice == "text":  # sentences contain no code
        for number, line in enumerate(text[:200_000].split("\n")):
            if number < 2_000:
                yield line[:1_000]


@lru_cache(8_192)  # most of a log was there before
def _collect_words(text: str) -> frozenset[str]:
    folded = (match[0].casefold().replace(",", "") for match in _WORD.finditer(cut(text)))
    return frozenset(stem_word(word) for word in folded if word not in _FUNCTION)
