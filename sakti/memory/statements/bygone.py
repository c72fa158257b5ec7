"""Find where a sentence names what is no longer true, or unsuitable: patterns for English and German."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sakti.core.patterns import lazy_pattern

# Where the value is that is named as past: in the group `old`.
_X = r"(?P<old>(?:[^,;.!?\n]|[.,](?=\w)){1,60}?)"
_ENDS = r"[,;!?]|\.(?:\s|$)|$"
_STOP = (
    rf"(?=\s*(?:{_ENDS}|\b(?:for|because|but|and|anymore|any|as|in|on|when|with|by|to|und|aber|für|weil|"
    r"nehme[nt]?|nutze[nt]?|verwende[nt]?|kommt|gibt|gilt)\b))"
)
# Says of what is named before it that it is over, or was never so.
_OVER = (
    r"(?:out\b|gone|dead|history|passé|geschichte|dropped|scrapped|cancel\w*|retired|obsolete|deprecated|"
    r"no longer|removed|off the table|quit|resigned|fired|left|swapped|sick|on (?:\w+ )?leave|stepped down|"
    r"too \w+|unnecessary|not needed|unrealistic|overkill|not enough|insufficient|"
    r"a (?:mistake|typo|(?:bad|poor|wrong) \w+)|im ruhestand|in rente|in elternzeit|im urlaub|"
    r"(?:being |getting |going )?(?:decommissioned|discontinued|phased out|sunset|(?:shut|taken|torn) down|away|"
    r"(?:switched|turned) off|end of life|eol|expired|abgelaufen|ausgelaufen)\b|"
    r"im \w{0,20}(?:schutz|urlaub)\b|in \w{0,20}zeit\b|hat ausgedient|(?:on (?:its|the) )way out\b|"
    r"can (?:be (?:deleted|removed|dropped)|go)\b|kann (?:weg|raus)\b|"
    r"(?:on|in|im|auf) (?:vacation|holidays?|parental|maternity|sabbatical|elternzeit)|verlassen|"
    r"keine zeit|abgeschaltet|abgekündigt|rausgeflogen|hat das haus|"
    r"fell through|nicht mehr|krank|weg\b|raus\b|gestrichen|entfällt|gekündigt)"
)
_UNTRUE = (
    r"(?:(?:not|isn['’]t|aren['’]t|wasn['’]t|nicht)\s(?:what|where|"
    r"who|how|right|correct|true|current|used|in use|valid|das, was|richtig|korrekt|aktuell)|wrong|incorrect|"
    r"outdated|falsch|veraltet|überholt)"
)
_PAST = tuple(
    lazy_pattern(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:from|von|vom)\s+{_X}\s+(?:to|auf|zu|zum|nach|->|→)\s",
        r"\b(?:instead of|rather than|in place of|anstelle von|statt|anstatt)\s+(?:the |our |den |der |dem )?"
        rf"{_X}{_STOP}",
        rf"(?:\b(?:no longer|nicht mehr|nicht länger)|,\s?(?:not|never|nicht|nie|niemals))\s+"
        rf"(?:in |on |the |am |auf |mehr )?{_X}{_STOP}",
        r"(?:(?:^|[,;.:!?\"(]\s?)|\b(?:please|pls|bitte|let['’]?s|we|you|i|to|and|und|or|then|should|must|will|"
        r"just|also|now|so|['’](?:ll|d|ve)|have|gonna|better|can|ok|okay|wir|ich)\s)(?<!\w can )\b(?:drop|scrap|ditch|"
        r"forget(?: about)?|ignore|strike|cancel|"
        r"remove|get rid of|abandon|retire|leave(?!.{1,60}\b(?:alone|as|be|untouched)\b)|streiche?|vergiss|"
        r"verzichten auf|quit)\s+"
        rf"(?:the |our |den |die |das )?{_X}"
        rf"(?=\s*(?:{_ENDS}|\b(?:with|by|for|in|from|of|on|at|out|because|and|durch|mit|aus|bei)\b))",
        r"\b(?:stop using|(?:do not|don['’]?t|never) (?:use|need)|ersetzen?|replaced?|"
        rf"swap(?:ped)?|dropped|scrapped|ditched|removed|left)\s+(?:the |our |den |die |das )?{_X}"
        rf"(?=\s*(?:{_ENDS}|\b(?:with|by|for|in|from|of|on|at|out|because|and|durch|mit|aus|bei)\b))",
        rf"\b(?:no more|keine?n?)\s+{_X}(?=\s+mehr\b|\s*(?:{_ENDS}|\b(?:for|in|und|and|but)\b))",
        rf"\b(?:not|\w+n['’]t|nicht|kein\w*)\s(?!only|just|nur)(?:am |im |in |on |at )?{_X}\s*,?\s(?:but|sondern|"
        r"(?:it|that|they|he|she|we|es|das|sie|er)(?:\s(?:is|are|was|were|ist|sind|war)|['’](?:s|re)))\b",
        rf"\b(?:hab(?:en?|t)?|hat|wurden?|wird|ist|sie|wir|ich)\s(?:\w+\s)?{_X}\s(?:rausgeworfen|rausgeschmissen|"
        r"entfernt|gelöscht|abgeschafft|aufgegeben|verworfen|ausgemustert|gestrichen|verabschiedet|abgelöst|ersetzt)\b",
        rf"(?:^|[,;.]\s|\b(?:so|and|but|und|aber)\s){_X}\s(?:has |have |hat )?(?:handed|passed|gave|transferred|"
        rf"delegated|übergeben|abgegeben)\s(?:[^,;.!?]{{1,60}}\s)?(?:over\s)?(?:to|an)\s",
        rf"\b(?:ripp?(?:ed|ing)?|thr[eo]w(?:ing|n)?|kick(?:ed|ing)?|tore|torn|took|tak(?:en|ing)|pull(?:ed|ing)?|"
        rf"phas(?:ed|ing)|swapp?(?:ed|ing)?)\s(?:the |our )?{_X}\sout\b",
        rf"\((?:was|were|is no longer|previously|formerly|before|used to be|vorher|bisher|früher|war|zuvor|statt|not|"
        rf"nicht):?\s{_X}(?=\s*\))",
        r"~~(?P<old>[^~\n]{1,60})~~",
        rf"\b(?:previously|formerly|used to be|vormals|ehemals|bislang|bisher(?! (?:war|ist|noch)))\s{_X}{_STOP}",
        rf"\b(?:exchanged?|substituted?|swap(?:ped)?|trad(?:e|ed)|tauscht?(?: bitte)?|(?:ripped|kicked|threw|tore|"
        rf"took) out)\s"
        rf"(?:the |our |den |die |das )?{_X}(?=\s*(?:{_ENDS}|\b(?:with|for|by|gegen|durch|mit|and|und)\b))",
        rf"(?:^|[,;.]\s){_X}\s(?:wurde|wird|ist|was|is|got|gets|has been)\s(?:(?:durch|by|with)\s[\w.-]{{1,60}}\s)?"
        r"(?:ersetzt|abgelöst|replaced|superseded|swapped)\b",
        rf"(?:['’](?:re|m)|\b(?:are|am|is|got|came)) off (?:of )?(?:the |our )?{_X}{_STOP}",
        rf"\b(?:away from|(?:moved|moving|move|going|go) off(?: of)?|weg von|weg vom)\s+"
        rf"(?:the |our |der |dem |den )?{_X}{_STOP}",
        rf"\b(?:replaces|supersedes|ersetzt|löst)\s+{_X}{_STOP}",
        rf"\b(?:leaving|dropping|ditching|abandoning|trading)\s(?:the |our )?{_X}(?=\s(?:for|in favou?r of)\b)",
        r"(?<![\w/.-])(?P<old>(?=[\w./@:-]{0,60}[\d_./@:-])\w[\w./@:-]{1,60})\s(?:(?:has been|was|is|got|gets|wurde|"
        r"wird|ist)\s)?(?:now |jetzt )?(?:(?:renamed|umbenannt)\b|called\s|(?:in|zu) \S{1,60} umbenannt)",
    )
)
# What does not serve any more, if something else is named for it: in the group `old`.
_NO_GOOD = (
    r"(?:(?:way |much |far |viel )?(?:too|zu) \w+|not (?:\w+ ){0,2}(?:enough|reachable|possible|feasible|achievable|"
    r"realistic|doable|practical|acceptable|supported|maintained|ideal|great|good)|impossible|unusable|unmaintained|"
    r"unreliable|difficult|slow|heavy|boring|ugly|painful|annoying|buggy|flaky|outdated|old|noisy|dumb|stupid|"
    r"silly|awful|terrible|horrible|a (?:pain|mess|nightmare|joke)|dead|more than|nicht (?:mehr )?\w+|unmöglich|"
    r"lahm|langsam|hässlich|langweilig|nervig|veraltet|mist|blöd|doof|quatsch|unsinn)\b"
)
_FAILS = (
    r"(?:overfits?|collides?|clash(?:es)?|conflicts?|crash(?:es)?|breaks?|sucks?|fails?|hurts?|bothers?|"
    r"annoys?|confuses?|(?:does|did|do|will)(?:n['’]t| not) (?:work|fit|scale|hold|help|suit|cut it|do|make|look)|"
    r"won['’]t (?:work|do|fit)|"
    r"can(?:['’]t|not) (?:work|keep|cope|handle|be)|nervt|gefällt|gefallen|passt nicht|passen nicht|taugt|reicht nicht|"
    r"reichen nicht|klappt nicht|geht nicht|gehen nicht|kollidiert|spinnt|war (?:nicht|zu))\b"
)
_UNFIT = tuple(
    lazy_pattern(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:can['’]?t|cannot|could(?:n['’]t| not)|won['’]t) (?:make|do|have|keep|use|get|stand|reach|hold|"
        rf"meet)\s{_X}(?=\s+work\b|\s*(?:{_ENDS}))",
    )
)
# The same, each with what stands behind the value: looked for first, since it is found far faster.
_PAST_BEHIND = tuple(
    (lazy_pattern(rf"\b{sign}", re.IGNORECASE), lazy_pattern(before + sign, re.IGNORECASE))
    for before, sign in (
        (
            rf"(?:^|[,;.]\s|\b(?:so|and|but|that|und|aber|btw)\s){_X}\s+(?:(?:is|are|was|were|has|have|got|been|ist|sind|"
            r"wurde|wird)\s+){0,2}(?:\w+\s){0,1}?",
            _OVER,
        ),
        (
            rf"(?:^|[,;.]\s|\b(?:no|nah|nope|you|that|und|nee|nein)\b[,\s]\s?){_X}\s*"
            r"(?:[-–—:,]\s|\b(?:is|are|was|were|ist|war)\s|(?=isn|aren|wasn))",
            _UNTRUE,
        ),
    )
)
_UNFIT_BEHIND = tuple(
    (lazy_pattern(rf"\b{sign}", re.IGNORECASE), lazy_pattern(before + sign, re.IGNORECASE))
    for before, sign in (
        (
            rf"(?:^|[,;.]\s|\b(?:so|and|but|that|because|since|und|aber|weil|btw)\s){_X}\s+(?:(?:is|are|was|were|got|"
            r"gets|became|becoming|becomes|turned out|to be|feels?|felt|looks?|seems?|proved|ist|sind|war|waren|wird|"
            r"wurde|wirkt|just|really|kinda|quite|pretty|a bit|bit|total|echt|einfach|halt|doch)\s+){1,4}",
            _NO_GOOD,
        ),
        (
            rf"(?:^|[,;.]\s|\b(?:so|and|but|that|because|since|und|aber|weil|btw)\s){_X}\s+(?:just |really |echt |"
            r"einfach )?",
            _FAILS,
        ),
    )
)


def past(text: str) -> Iterator[tuple[int, int]]:
    """Yield where a text names what is no longer true."""
    return _spans(text, _PAST, _PAST_BEHIND)


def unfit(text: str) -> Iterator[tuple[int, int]]:
    """Yield where a text names what is unsuitable."""
    return _spans(text, _UNFIT, _UNFIT_BEHIND)


def _spans(
    text: str, patterns: Iterable[re.Pattern[str]], behind: Iterable[tuple[re.Pattern[str], re.Pattern[str]]]
) -> Iterator[tuple[int, int]]:
    for pattern in (*patterns, *(pattern for sign, pattern in behind if sign.search(text))):
        for match in pattern.finditer(text):
            yield match.span("old")
