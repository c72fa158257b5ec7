"""Split lines into sentences and classify them: question, statement, change, small talk. Pure.

English words decide if there are any; in other languages the form decides (a question mark, names, numbers, paths).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.core.text import clean_surrogates
from sakti.memory.statements import lexicon
from sakti.memory.statements.lexicon import BETWEEN_SENTENCES

Kind: TypeAlias = Literal["question", "request", "statement", "remark", "chatter"]
AgentKind: TypeAlias = Literal["work", "finding", "intent"]

_SENTENCE = lazy_pattern(rf"{BETWEEN_SENTENCES}|\n+|(?<=[。！？])")
_LIST_SIGN = lazy_pattern(r"^\s*(?:[-*•+]|\d+[.)])\s+")
# The number of a list item within a line stays with its text.
_NUMBERED = lazy_pattern(r"(?:^\s*|(?<=[.!?;,:])\s+)(?P<sign>\d{1,3}[.)])\s+(?=\S)")
_WORD = lazy_pattern(r"[^\W_][\w'’]*")

# Exact content, which a paraphrase would lose. Each alternative examines a few characters only, so that a search
# takes time in proportion to the text.
_CODE_OR_NUMBER = (
    r"\d|`|https?://|[\w.-]/[\w./-]|\w_\w|\b[a-z]{1,200}[A-Z]|\b[A-Z]{2,200}\b|(?<=\w)\.[a-z]{1,5}\b|"
    r"[\"“][^\"”]{1,400}[\"”]|(?<!\w)--?[a-z]|@\w"
)
CODE_OR_NUMBER = lazy_pattern(_CODE_OR_NUMBER)
SPECIFIC = lazy_pattern(rf"{_CODE_OR_NUMBER}|(?<=[a-z,;:] )[A-Z][\w-]")  # or a name
WORD, LINE, TEXT = 200, 4_000, 400_000  # most characters of a word, of a line, of a text
_LONG_WORD = lazy_pattern(rf"(?<!\S)(\S{{{WORD}}})\S+")
_POLITE = lazy_pattern(
    r"^(?:(?:ok(?:ay)?|and|then|so|now|next|also|hey|hi|yes|well)[, ]+)*"
    r"(?:please|(?:can|could|would|will) you|i(?:'d| would) like you to|i (?:want|need) you to|kindly|"
    r"let(?:'s| us| me)|(?:go|carry) (?:on|ahead)|continue|proceed)\b",
    re.IGNORECASE,
)
_IMPERATIVE = lazy_pattern(
    r"^(?:(?:ok(?:ay)?|and|then|so|now|next|also|first|finally|please|just)[, ]+)*(?:add|adjust|analy[sz]e|apply|ask|"
    r"build|bump|change|check|clean|commit|compare|convert|copy|create|debug|define|delete|describe|document|explain|"
    r"export|extend|extract|fetch|find|finish|fix|format|generate|get|give|handle|have|implement|import|improve|"
    r"inline|inspect|install|investigate|list|log|look|make|measure|merge|open|optimi[sz]e|print|profile|publish|pull|"
    r"push|put|read|rebase|refactor|release|remove|rerun|restart|retry|review|rewrite|run|search|send|set|show|"
    r"simplify|sort|split|start|stop|summari[sz]e|take|tell|test|tidy|trace|try|turn|undo|update|upgrade|verify|wire|"
    r"work|wrap|write)\b(?!-\w)"
    # "log level is", "Test-Server ist": no verb
    r"(?!(?:[ -](?!what|if|whether|that|how|who|where|why|me|it|this)\w{1,40})?\s(?:is|are|was|ist|sind|heißt)\b)",
    re.IGNORECASE,
)
# Settled matters: decisions, rules, dates.
_RULE = (
    r"from now on|keep in mind|do not|must(?!(?: have|'ve| feel)\b)(?:n't)?|we (?:always|never|only)|prefer\w*|"
    r"decided|decision|agreed|settled|policy|rule|convention|requires?|deadline|freeze|budget|instead of|rather than"
)
# Lasting matters: wishes, habits, and settled ones.
_LASTING = lazy_pattern(
    rf"\b(?:{_RULE}|always|never|by default|in (?:the )?future|every ?time|must(?:n't)?|should(?:n't)?|"
    r"don't|remember|note(?: down)?|bear in mind|for the record|fyi|important|avoid|only|"
    r"stick (?:to|with)|chos(?:e|en)|choose|went with|go(?:ing)? with|"
    r"due|limit|assum(?:e|ing)|treat|call(?:ed)? it|name it|use)\b",
    re.IGNORECASE,
)
_LAYS_DOWN = lazy_pattern(rf"\b(?:{_RULE})\b", re.IGNORECASE)
_OWN = lazy_pattern(
    r"\b(?:i'm|i am|i'd (?:rather|like|prefer)|i've|i have|i use|i like|i hate|i want|i need|i work|we're|we are|"
    r"we've|we have|we use|we need|we want|we run|we keep|we ship|we deploy|we call|my|our|ours|us)\b",
    re.IGNORECASE,
)
_LASTING_START = lazy_pattern(
    r"^(?:(?:ok(?:ay)?|and|so|please|just|also)[, ]+)*(?:use|prefer|avoid|remember|note|never|always|no|stick|keep|"
    r"assume|treat|forget|set aside|scrap|drop|ignore|replace|switch|rename|call|name|don't|do not|no longer|"
    r"let's (?:use|go with|take|pick|choose|stick|keep|drop|switch|call|name|not|move|skip|scrap|settle|agree|avoid|"
    r"forget|postpone|cancel))\b",
    re.IGNORECASE,
)
# Encouragement: it sounds like a rule but settles nothing.
_CHEERS = lazy_pattern(
    r"^(?:(?:ok(?:ay)?|and|but|so|please|just|also|congrats|well|remember|let's)\b[,! –-]*)*(?:"
    r"keep (?:it up|at it|me (?:posted|updated)|each other|up the (?:\w+ )?work|(?:believ|chas|dream|inspir|motivat|"
    r"rock|shin|smil|striv)in[g']|"
    r"(?:on|(?:fight|go|grow|improv|mov|push|try)ing)(?= *(?:[.,!–-]|$|forward|for it|(?:for|with|towards?) your)))|"
    r"(?:never|don't(?: ever)?) (?:give up|quit|los(?:e|ing) (?:heart|hope)|be (?:afraid|shy|too hard on))|"
    r"don't worry(?! about)|always here (?:for|to help)|(?:don't forget\W*)?"
    r"(?:it's never too late|you(?:'ve)? got this|every (?:\w+ ){1,2}(?:counts|matters)))(?!\w)",
    re.IGNORECASE,
)
# Guesses how something feels, "that must be so cool": it settles nothing either.
_GUESSES = lazy_pattern(
    r"\bmust (?:be|feel|have (?:been|felt)) (?:(?:such|quite) an?\b|"
    r"(?:(?:a|an|so|really|very|quite|pretty|super|just|\w+ly) ){0,3}(?:amazing|awesome|challenging|cool|exciting|"
    r"exhausting|fantastic|frustrating|fun|great|incredible|lovely|nice|proud|rewarding|special|stoked|thrill\w+|"
    r"wonderful|(?:difficult|hard|tough)(?! to\b))\b(?!-))",
    re.IGNORECASE,
)
_VERB = lazy_pattern(
    r"\b(?:is|are|was|were|has|have|had|will|would|must|should|can|can't|cannot|won't|isn't|aren't|doesn't|"
    r"(?:use|need|want|live|run|lie|stand|take|belong|expire|contain|return|fail|depend|require|mean|own|"
    r"host|listen|point|store|hold|start|end|support|expect|work|come|sit|serve|handle|accept|allow|know|get|see)s|"
    r"lives?|goes|[a-z]{2,}ed|went|moved?|became|chose|got|said|=)\b|[=:→]",
    re.IGNORECASE,
)
# Words that retract or replace something.
CHANGE = lazy_pattern(
    r"\b(?:now|no longer|not (?:\w+ ){0,4}(?:any ?more|after all)|any ?more|instead|rather than|in place of|actually|"
    r"correct(?:ion|ed)|chang(?:e[ds]?|ing)|mov(?:e[ds]?|ing)|switch(?:ed|es|ing)?|replac(?:e[ds]?|ing)|"
    r"renam(?:e[ds]?|ing)|supersed\w+|updat(?:e[ds]?|ing)|dropp(?:ed|ing)|drop|scrap(?:ped)?|cancel\w*|withdr[ae]w\w*|"
    r"retract\w*|forget|ignore|strike|revert\w*|roll(?:ed)? back|undo|gone|obsolete|deprecated|retired|abandon\w*|"
    r"off the table|out of scope|postponed?|push(?:ed)? (?:it )?(?:back|out|to)|brought forward|slipped|delay(?:ed)?|"
    r"extend(?:ed)?|shift(?:ed)?|reschedule[ds]?|migrat(?:e[ds]?|ing)|became|turned into|bump(?:ed)?|raise[ds]?|"
    r"lower(?:ed|s)?|increase[ds]?|decrease[ds]?|reduce[ds]?|decided against|set (?:[\w-]+ ){1,6}to|i (?:was|"
    r"were) wrong|my mistake|i meant|scratch that|from now on|as of|is over|does(?:n't| not) hold|(?:won't|don't|"
    r"doesn't|do not|does not|will not|needn't) (?:be )?need\w*|not needed|unnecessary|took (?:that|it) back|"
    r"take (?:that|it|back)|new|since then|in the end|changed (?:our|my) minds?|after all|upgrad(?:e[ds]?|ing)|"
    r"downgrad(?:e[ds]?|ing)|jetzt|ab sofort|nicht mehr|sondern|statt(?:dessen)?|doch lieber|umgestellt|umgezogen|"
    r"umbenannt|verschoben|geändert|ersetzt|korrektur)\b|->|→",
    re.IGNORECASE,
)
_CHATTER = lazy_pattern(
    r"^(?:ok(?:ay)?|thanks?|thank you|great|good|nice|cool|perfect|fine|sure|hi|hello|hey|go on|carry on|"
    r"go ahead|continue|proceed|next|done|sounds good|looks good|lgtm|well done|yep|wow|hm+|ah|oh|right)\b",
    re.IGNORECASE,
)
_CONCLUSION = lazy_pattern(
    r"\b(?:root cause|because|decid\w+|conclu\w+|the (?:problem|issue|bug|error|cause|fix|reason|culprit) (?:is|was)|"
    r"turns? out|found|fixed|implemented|created|added|wrote|written|renamed|removed|deleted|moved|replaced|migrated|"
    r"installed|extracted|split|configured|enabled|disabled|pinned|updated|upgraded|committed|merged|deployed|"
    r"released|blocked|cannot|failed|fails|passes|passed|next step|remaining|recommend\w*|suggest\w*|plan|lives? in|"
    r"is (?:now )?(?:in|at|under|defined|located|set))\b",
    re.IGNORECASE,
)
# The agent's reported work, or a place before the line.
_DID = lazy_pattern(
    r"\b(?:I|we)(?:'ve| have)? (?:now |also |just )?(?:[a-z]{2,}ed|put|wrote|made|built|set|split|cut|kept|left)\b|"
    r"\.[a-z]\w{0,5}:\d+",
    re.IGNORECASE,
)
_INTENT = lazy_pattern(
    r"^(?:(?:ok(?:ay)?|sure|great|now|next|then|so|first|right)[,.! ]+)*(?:i'll|i will|let me|let's|i am going to|"
    r"i'm going to|i looked|i read|i checked|i opened|i see|looking|reading|checking|here is|here's)\b",
    re.IGNORECASE,
)
# Describes the speaker's impression, or points to something elsewhere.
_VAGUE = lazy_pattern(
    r"^(?:hm+|well|this|that|these|those|it|i (?:think|guess|see|had|have|looked|wonder|am)|maybe|perhaps|not sure|"
    r"looks|seems|there)\b",
    re.IGNORECASE,
)
_PERSONAL = lazy_pattern(r"\b(?:i|my|we|our|me|us|mine|ours|ich|mein\w*|wir|unser\w*)\b", re.IGNORECASE)
PERSONAL, EXACT = 1.4, 1.3  # weights of such sentences
_DECLARES = 4  # most words
# A request that sets how things are from then on.
_CHANGES_FOR_GOOD = lazy_pattern(
    r"\b(?:instead|from now on|no longer|any ?more|for now|after all)\b|(?<=\w) now[.!]?$", re.IGNORECASE
)
# A request that replaces one value by another is equivalent to a statement of it.
_GIVES_VALUE = lazy_pattern(
    r"(?:\b(?:to|auf|instead|statt|not|make (?:that|it))\b|->|→|=)[^.!?\n]{0,80}|\bnow\b", re.IGNORECASE
)
_REMINDS = lazy_pattern(r"\b(?:remember|keep in mind|bear in mind|note that|never|always|from now on)\b", re.IGNORECASE)
_SHORT = 5  # words: a sentence of no more than this says little unless it is exact


def iter_sentences(text: str) -> Iterator[str]:
    """Yield the sentences and list items of a text, without code blocks.

    Words of more than 200 characters are cut; of a text of more than 400,000 the beginning and the end are read.
    """
    return filter(None, step_by_step(text))


def step_by_step(text: str) -> Iterator[str]:
    """Yield like `iter_sentences`, with empty texts in between, so that no step takes long."""
    if len(text) > TEXT:
        text = f"{text[: TEXT // 2]}\n{text[-TEXT // 2 :]}"
    for start, end in _iter_text_outside_code(text):
        yield ""
        for line in _iter_pieces(text, start, end):
            yield ""
            for sentence in _SENTENCE.split(_NUMBERED.sub(r" \g<sign>" + "\0", _cut(line))):
                item = _LIST_SIGN.sub("", sentence.replace("\0", " ")).strip()
                if item and any(map(str.isalnum, item)):
                    yield item


def _iter_text_outside_code(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    while (fence := text.find("```", at)) >= 0:
        yield at, fence
        line_end = text.find("\n", fence + 3)  # the block begins after the line of its fence
        end = -1 if line_end < 0 else text.find("```", line_end + 1)
        if end < 0:
            return
        at = end + 3
    yield at, len(text)


def _iter_pieces(text: str, start: int, end: int) -> Iterator[str]:
    """Yield the lines of a part of a text, long ones in pieces, split at spaces if possible."""
    while start < end:
        line_end = text.find("\n", start, end)
        stop = end if line_end < 0 else line_end
        while stop - start > LINE:
            space = text.rfind(" ", start, start + LINE)
            cut = space if space > start else start + LINE
            yield text[start:cut]
            start = cut
        yield text[start:stop]
        start = stop + 1


def _cut(line: str) -> str:
    return _LONG_WORD.sub(r"\1…", clean_surrogates(line))


def classify_sentence(sentence: str) -> Kind:
    """Classify a user's sentence; a request that sets something lasting is a statement."""
    asks = sentence.rstrip("\"'`) ").endswith(("?", "？"))
    is_plain = not CODE_OR_NUMBER.search(sentence)  # a name alone has no content: "Hi Ann!"
    if is_plain and not asks and (feeling := _classify_feeling(sentence)):
        return feeling
    words = len(_WORD.findall(sentence))
    exact = bool(SPECIFIC.search(sentence))
    if _LASTING_START.search(sentence) and (words > 2 or exact):
        return "statement"
    chatters = words <= _SHORT and is_plain and _CHATTER.search(sentence) is not None
    if _is_request(sentence, asks=asks):
        lasting = _request_lasts(sentence, asks=asks, exact=exact)
        return "statement" if lasting else "chatter" if chatters else "request"
    return "question" if asks else _classify_assertion(sentence, words, exact=exact, chatters=chatters)


def _classify_assertion(sentence: str, words: int, *, exact: bool, chatters: bool) -> Kind:
    """Classify a sentence that asks for nothing; `chatters`: it begins like small talk."""
    if chatters:
        return "remark" if _says_something(sentence) else "chatter"
    return "statement" if exact or _states(sentence, words) else "remark"


def _classify_feeling(sentence: str) -> Kind | None:
    """Return the kind of an encouragement or a guess about feelings, else None."""
    if _CHEERS.search(sentence):
        return "chatter"
    return "remark" if _GUESSES.search(sentence) else None


def _is_request(sentence: str, *, asks: bool) -> bool:
    return _POLITE.search(sentence) is not None or (not asks and _IMPERATIVE.search(sentence) is not None)


def _request_lasts(sentence: str, *, asks: bool, exact: bool) -> bool:
    """Return whether a request sets something lasting."""
    if _CHANGES_FOR_GOOD.search(sentence) and (exact or not asks):
        return True
    if exact and not asks and lexicon.compile_phrases("change").search(sentence) and _gives_value(sentence):
        return True
    return _REMINDS.search(sentence) is not None


def _states(sentence: str, words: int) -> bool:
    """Return whether a sentence of that many words states how things are or should be."""
    if _LASTING.search(sentence) or CHANGE.search(sentence) or _OWN.search(sentence):
        return True
    declares = _VERB.search(sentence) or lexicon.compile_phrases("verb").search(sentence)
    return words >= _DECLARES and declares is not None and not _VAGUE.search(sentence)


def is_vague(sentence: str) -> bool:
    """Return whether a sentence only describes an impression: "hm, that looks odd"."""
    return _VAGUE.search(sentence) is not None


def _says_something(sentence: str) -> bool:
    """Return whether a short sentence continues after its greeting or assent: "right, no permadeath"."""
    rest = _WORD.findall(_CHATTER.sub("", sentence).casefold())
    return any(word not in lexicon.load_words("empty") and not _CHATTER.match(word) for word in rest)


def _gives_value(sentence: str) -> bool:
    return any(re.search(r"\d|#\w|`", m[0]) for m in _GIVES_VALUE.finditer(sentence))


def classify_agent_sentence(sentence: str) -> AgentKind:
    """Classify an agent's sentence: work or a conclusion, a finding, or an intention."""
    if _INTENT.search(sentence):
        return "intent"
    return "work" if _CONCLUSION.search(sentence) or _DID.search(sentence) else "finding"


def collect_content_words(sentence: str) -> set[str]:
    """Return the meaningful words of a sentence."""
    return {
        w for w in map(str.casefold, _WORD.findall(sentence)) if len(w) > 2 and w not in lexicon.load_words("empty")
    }


def compute_worth(sentence: str, tokens: int, rarity: Callable[[str], float] = lambda _: 1.0) -> float:
    """Return the meaningful words of a sentence per token, each weighted by its `rarity`.

    Sentences about the speaker, and those with names or numbers, have a higher weight.
    """
    personal = PERSONAL if _PERSONAL.search(sentence) else 1.0
    exact = EXACT if SPECIFIC.search(sentence) else 1.0
    return sum(map(rarity, sorted(collect_content_words(sentence)))) * personal * exact / max(1, tokens)


def is_lasting(sentence: str) -> bool:
    """Return whether a statement is exact, so that a paraphrase would lose it, or sets a rule."""
    return any(p.search(sentence) for p in (CODE_OR_NUMBER, _LASTING_START, _LAYS_DOWN))


Speaker: TypeAlias = Literal["user", "agent", ""]

LEAD = lazy_pattern(
    r"(User (?:stated|said|asked for|asked|quoted|ran|attached(?: the image)?)|Agent(?: asked| said)?):\s+"
)
TOOL = lazy_pattern(r"Agent (?:ran (?P<command>`[^`]*`)|used |changed (?P<files>.+))")
_SPOKEN = lazy_pattern(
    r"(?:the )?(?:user|agent|assistant)\b(?: (?:stated|said|noted|decided|confirmed|wants|asked|reported)\b)?"
    r"(?: that\b)?\s*",
    re.IGNORECASE,
)
# Forwarded, inspected, asked or meta statements about the log: they neither last nor replace anything.
_NOTHING = lazy_pattern(
    r"(?:the )?user (?:quoted|ran|attached|asked (?!for|to|that)|asked:)|agent asked|times are in ", re.IGNORECASE
)
_MEANT_DATE = lazy_pattern(r" ?\(meaning [^()]{1,80}\)\s*$")  # the Observer's note: nobody stated it
_BOUNDARY = lazy_pattern(rf"{BETWEEN_SENTENCES}|(?<!\[earlier); |(?<=[。！？]) ")
_REQUEST = lazy_pattern(r"(?:the )?user (?:asked (?:for|to)|asks|requested|wants the agent to)\b", re.IGNORECASE)


class Unit(Struct, frozen=True):
    """Sentence at offset `start` of its line."""

    text: str
    start: int


def find_speaker(content: str, priority: str) -> Speaker:
    """Return the speaker of a line; empty if it states nothing that could last.

    An important line without a speaker counts as the user's.
    """
    low = content[:20].casefold()
    if _NOTHING.match(content) or TOOL.match(content):
        return ""
    if low.startswith(("user ", "the user ")):
        return "user"
    if low.startswith(("agent", "the agent", "assistant", "the assistant")):
        return "agent"
    return "user" if priority == "high" else "agent"


def is_request(content: str) -> bool:
    """Return whether a line reports a request of the user for work."""
    return _REQUEST.match(content) is not None


def iter_units(content: str) -> Iterator[Unit]:
    """Yield the sentences of a line after its attribution, without the date added to relative words."""
    lead = LEAD.match(content) or _SPOKEN.match(content)
    start = lead.end() if lead else 0
    at = start
    for text, behind in split_sentences(_MEANT_DATE.sub("", content[start:])):
        yield Unit(text, at)
        at += len(text) + len(behind)


def split_sentences(text: str) -> Iterator[tuple[str, str]]:
    """Yield sentences with the text after each; joined they are the text."""
    at = 0
    for match in _BOUNDARY.finditer(text):
        yield text[at : match.start()], match[0]
        at = match.end()
    if at < len(text):
        yield text[at:], ""
