"""Separate the user's own words in a message from quotations: pages, logs, mails, code. Pure.

Quoted text may contain anything, so doubtful text counts as a quotation. After "here is the log:" everything is one,
unless fences, quotation marks, `>`, a blank line after a single quoted line, or the user's question or opinion end
it. A list of requirements is the user's. One pass over the lines; patterns examine the beginnings of lines.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.core.types import Message, OutputPart

LINE_LIMIT = 300  # characters of a line that are examined
TYPED = 100_000  # characters of a message that are examined; the rest counts as a quotation
BLOCK_CHARACTERS, BLOCK_LINES = 1_500, 25  # a longer paragraph is pasted unless it is a list or states rules
STATING_SHARE = 0.6  # share of stating lines or sentences in such a paragraph
RULES = 20_000  # characters of a line that may contain many statements
SENTENCE = 200  # most characters of a typed statement
NOTE, NOTES_SHARE = (
    100,
    0.8,
)  # most characters of a typed note, which needs no verb; share of notes in a paragraph
MACHINE_SHARE = 0.2  # share of a paragraph's lines: above it, a program wrote the paragraph
ENUMERATED = 8  # commas of a sentence that counts as an enumeration
WRAPPED, WRAPPED_SHARE = (
    50,
    0.25,
)  # characters of a wrapped line; share of such lines in a paragraph
LOG_LINES = 3  # this many consecutive lines that look like a log are one
SHORT_QUOTE = 14  # most characters of a quotation that is part of the user's sentence
QUOTE = 2_000  # most characters between two quotation marks
SHELL = "shell"  # key of a message's metadata with the command that produced the output

_FENCE = lazy_pattern(r"[ \t]{0,8}(?:```|~~~)")
_MARKED = lazy_pattern(r"[ \t]{0,8}(?:>|\|\s?>)")
_NOUN = (
    r"(?:logs?|log ?file|output|console|terminal|stderr|stdout|trace(?:back)?|stack ?trace|backtrace|errors?|"
    r"error message|exception|messages?|e-?mails?|mails?|letter|(?:web ?)?page|(?:web ?)?site|article|(?:blog )?post|"
    r"thread|comments?|tickets?|issue|report|review|chat|transcript|conversation|answer|reply|response|docs?|documentation|"
    r"readme(?:\.md)?|changelog|manual|text|excerpt|snippet|quote|paste|dump|diff|slack|announcement|release notes|"
    r"advisory|protokoll|ausgabe|fehlermeldung|fehler|meldung|nachricht|seite|webseite|artikel|beitrag|kommentar|"
    r"antwort|doku|dokumentation|auszug|zitat|brief|bericht|handbuch|rückmeldung)"
)
_OF = r"(?:\s(?:of|from|by|in|at|on|to|about|vom|von|aus|der|des|im|auf)\s[^:\n.!?]{1,80}?)?"
_OWN_NOUN = (
    r"(?:plan|idea|deal|goal|things?|points?|list|setup|summary|rules?|convention|decisions?|requirements?|tasks?|"
    r"questions?|problem|wish|situation|facts?|state|stack|settings?|values?|examples?|names?|order|steps?|my|our|"
    r"what (?:i|we)|how (?:i|we)|why|idee|liste|stand|regeln?|aufgaben?|fragen?|vorschlag|beispiele?|meine?|unsere?|"
    r"was (?:ich|wir)|wie (?:ich|wir))"
)
_HERE = lazy_pattern(
    rf"(?:^|[.!?]\s|\b(?:and|so|ok|hm|und|also)\s)(?:here(?:['’]s| is| are| comes)|hier (?:ist|sind|kommt|mal|noch))\b"
    rf"(?![^:\n.!?]{{0,80}}\b{_OWN_NOUN}\b)[^:\n.!?]{{0,120}}:(?=\s|$)",
    re.IGNORECASE,
)
# "here is my CI output, why?" and a blank line: the output follows.
_OUTPUT = (
    r"(?:logs?|log ?file|output|console|terminal|stderr|stdout|trace(?:back)?|stack ?trace|backtrace|errors?|"
    r"error message|exception|dump|diff|protokoll|ausgabe|fehlermeldung)"
)
_SHOWN = lazy_pattern(
    r"(?:^|[.!?,]\s|\b(?:and|so|ok|hm|und|also)\s)(?:here(?:['’]s| is| are| comes)|hier (?:ist|sind|kommt|mal|noch))\b"
    rf"[^:\n.!?]{{0,60}}\b{_OUTPUT}\b[^:\n]{{0,60}}$",
    re.IGNORECASE,
)
_NAMED = lazy_pattern(rf"(?P<before>|[^:\n]{{1,200}}?\b){_NOUN}{_OF}\s?:(?=\s|$)", re.IGNORECASE)
# "the output has to have three parts: …" describes an output, "look at this output: …" introduces one.
_WANTED = lazy_pattern(
    r"\b(?:need|must|should|want|print|write|add|put|include|contain|produce|generate|has|have|braucht?|soll\w*|"
    r"muss|schreib\w*)\b(?!.*\b(?:this|following|diese[rsnm]?|folgende[rsnm]?)\s\S{0,20}$)",
    re.IGNORECASE,
)
_SAYS = lazy_pattern(
    r"(?<!\bi )(?<!\bwe )(?<!\bich )(?<!\bwir )\b(?:says?|said|writes?|wrote|states?|reads?|prints?|printed|replied|"
    r"answered|told (?:me|us)|reports?|schreibt|schrieb|sagt|sagte|meint|meinte|antwortete?|steht|meldet)\b"
    r"[^:\n.!?]{0,60}:(?=\s|$)",
    re.IGNORECASE,
)
_MAIL = lazy_pattern(
    r"(?:from|to|subject|sent|date|cc|von|an|betreff|gesendet):\s\S.{0,200}|-{2,}\s?(?:original message|"
    r"forwarded message|ursprüngliche nachricht)|(?:on|am) .{4,80} (?:wrote|schrieb.{0,60}):",
    re.IGNORECASE,
)
_LOG = lazy_pattern(
    r"\s*(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d|\w{3} {1,2}\d{1,2} \d\d:\d\d:\d\d|\[?(?:DEBUG|INFO|"
    r"NOTICE|WARN(?:ING)?|ERROR|FATAL|TRACE|CRITICAL)\b|at [\w$.<>]+ ?\(|File \"[^\"]+\", line \d|Traceback \(|"
    r"\w+(?:Error|Exception): |[+-]{3} [ab]/|@@ |\d{1,3}(?:\.\d{1,3}){3} - )"
)
_PAIRS = (('"', '"'), ("“", "”"), ("„", "“”"), ("«", "»"), ("»", "«"), ("‘", "’"), ("‚", "‘’"), ("`", "`"))
_QUOTED = lazy_pattern(
    "|".join(
        [rf"{opening}[^{opening}{closing}\n]{{2,{QUOTE}}}[{closing}]" for opening, closing in _PAIRS]
        + [rf"(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w)){{2,{QUOTE}}}'(?!\w)"]
    )
)
# The beginning of a paragraph after a quotation in which the user asks or judges.
_OWN_AGAIN = lazy_pattern(
    r"(?:(?:but|and|so|ok|well|no|hm+|aber|und|also|nein)[, ]+)*(?:(?:i|we|ich|wir)(?:['’](?:d|m|ve|ll|re))? \w|"
    r"(?:can|could|would|should|shall|do|what|why|how|is|are) (?:you|we|i|is|are|do|does|did|was|that|this)\b|please\b|"
    r"what do you think|any idea|my (?:opinion|view|take)|in my |(?:never|don['’]t|do not|let['’]s) |"
    r"kannst du|können wir|sollen wir|bitte\b|was meinst|(?:warum|wieso|woran)\b|meiner meinung|stimmt |nie |lass |"
    r"(?:that|this|it)(?:['’]s| is| was)(?:n['’]t| not| wrong| right| true| false| outdated)\b|"
    r"das (?:stimmt|ist (?:nicht|falsch|richtig|veraltet))\b|"
    r"[^.!?\n]{0,100}\b(?:really|actually|in fact|instead|wirklich|eigentlich|tatsächlich|stattdessen)\b)",
    re.IGNORECASE,
)
# The end of a mail; the text after it may be the user's again.
_SIGN_OFF = lazy_pattern(
    r"(?:(?:best|kind|warm) regards|regards|best(?: wishes)?|cheers|bye|thanks|thank you|sincerely|yours|"
    r"(?:viele|liebe|beste|schöne|mit freundlichen|mit besten) grü(?:ß|ss)en?|gr[uü](?:ß|ss)e?|lg|vg|mfg|danke)"
    r"[^.:?]{0,20}$",
    re.IGNORECASE,
)
_STATING = lazy_pattern(
    r"\b(?:must|should|shall|never|always|needs? to|has to|have to|may not|cannot|only|use|avoid|no|support|is|are|"
    r"uses?|i|we|may|belongs|muss|müssen|soll\w*|darf|dürfen|nie|immer|nur|kein\w*|ist|sind|bitte|wir|nutzen|"
    r"verwenden|niemand|gehört|mag|hat)\b",
    re.IGNORECASE,
)
_ITEM = lazy_pattern(r"\s{0,8}(?:[-*•+–]|\(?(?:\d{1,3}|[a-z])[.)])\s+\S")
_CODE = lazy_pattern(
    r"[{};\\]\s*$|^\s*(?:def|class|import|from \w+ import|function|const|let|var|return|if \(|for \(|"
    r"#include|<\w+)\b|=>|==|^\s*<[/!\w]"
)
# Lines written by programs, or for programs.
_OUTPUT_LINE = lazy_pattern(
    "|".join(
        (
            r"^\s*[\w./-]+:\d+[: ]",  # a place in a file
            r"^\s*(?:[✓✗✔✘×√] |npm (?:WARN|ERR)|(?:PASS|FAIL) \S+$|(?:not )?ok(?: \d|:))",
            r"^\s*(?:warning|error|note|hint|remote): |^\s*(?:commit )?[0-9a-f]{7,40}(?: |$)",
            r"^[-dl][rwx-]{9} |^\s*-{3,}>?|\.\.\. ?[\[(]| PASSED| FAILED|\[ *\d+%\]",
            r"^\s*(?:HTTP/\d|Step \d+/|\$ |[A-Z]\w*(?:-[A-Z0-9]\w*)+: )",
            r"^\s*\||\S(?: {3,}|\t)\S|\S,\S[^,]*,\S| \| .* \| ",  # tables
            r"^\s*(?:[\w.-]+ ?=|[\w.-]*\w[_.-]\w[\w.-]*: |[a-z]\w*:$)|^\s+[a-z_]\w*: ",  # settings
            r"^\S+$|^\s*[\w.-]+(?:==|[ @]v?)\d+\.\d[\w.]*$",  # names of files, versions of packages
            r"^\s*(?:sudo|echo|export|cd|git|pip|npm|apt|docker|kubectl|curl|mkdir|chmod|rm|cp|mv|ssh) \S",
            r"^(?:RUN|ENV|COPY|FROM|CMD|ADD|ARG|SELECT|INSERT|CREATE|UPDATE|DELETE|ALTER) \S|^\s*(?:>>> |\\\w)",
            r"^\s*\[?\d\d?:\d\d(?::\d\d)?\]? \S+: |^\S.{0,30} \d\d?:\d\d(?: [AP]M)?$",  # a chat
        )
    )
)
_END = lazy_pattern(r"(?<=[.!?;])\s+")
_DIFF = lazy_pattern(r"diff --git |@@ -\d|(?:\+{3}|-{3}) [ab]/")
_SPEAKER = lazy_pattern(r"\s*(?:[\[\d][\d.,:/ APM\]-]{4,24})?([^\W\d][\w .-]{0,30}):\s")
_GOES_ON = lazy_pattern(r"[a-zà-ÿ(]")
_LETTER = lazy_pattern(r"\b(?:e-?mails?|mails?|letter|brief|nachricht)\b", re.IGNORECASE)
ANNOUNCED = 1  # the line that announces a quotation counts as part of it
_SEVERAL = lazy_pattern(r"[.!?]\s+\S")


class QuotedPiece(Struct, frozen=True):
    """Part of a message; `own`: the user's words, `opens`: they only introduce the next quotation."""

    text: str
    own: bool
    opens: bool = False


def split_shell_report(message: Message) -> tuple[str, str] | None:
    """Return the command and the output that a message reports for the user's shell; else None.

    Older messages have the output in a text, and the command in their metadata.
    """
    ran = next((p for p in message.parts if isinstance(p, OutputPart)), None)
    if ran is not None:
        return ran.command, ran.text
    command = message.metadata.get(SHELL)
    if not isinstance(command, str):
        return None
    return command, message.text.removeprefix(f"I ran `{command}`:\n```\n").removesuffix("\n```")


def select_own_words(message: Message) -> str:
    """Return the user's own words in a message."""
    if split_shell_report(message) is not None:
        return ""
    return "\n".join(p.text for p in iter_pieces(message.text) if p.own)


def iter_pieces(text: str) -> Iterator[QuotedPiece]:
    """Yield the non-empty parts of a text in order."""
    current: list[str] = []
    was = True
    for line, mine in _iter_lines(text[:TYPED]):
        if mine != was and current:
            yield from _iter_piece(current, was, last=False)
            current = []
        was = mine
        current.append(line)
    yield from _iter_piece(current, was, last=True)
    yield from _iter_piece([text[TYPED:]], False, last=True)


def _iter_piece(lines: Sequence[str], mine: bool, *, last: bool) -> Iterator[QuotedPiece]:
    if any(line and not line[:LINE_LIMIT].isspace() for line in lines):
        yield QuotedPiece("\n".join(lines), mine, mine and lines[-1].rstrip().endswith(":") and not last)


def _iter_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, or its parts, with whether it is the user's own."""
    lines = text.split("\n")
    pasted = _find_pasted_lines(lines)
    fenced, quotation = False, _Quotation(lines)
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence:
            fenced = not fenced
        quotation.end_before(number)
        if fence or fenced or quotation.lines or number in pasted or _MARKED.match(line):
            quotation.count(line)
            yield line, False
        elif _MAIL.match(line) and _is_mail(lines, number):
            quotation.begin(number, is_mail=True)
            yield line, False
        else:
            parts = list(_iter_parts(line))
            if parts and (parts[-1][2] or _announces_output(lines, number)):
                quotation.begin(number, is_mail=_LETTER.search(line[:LINE_LIMIT]) is not None)
                quotation.count(parts[-1][0] if parts[-1][2] else "")
            for part, mine, _ in parts:
                yield part, mine


class _Quotation:
    """Unmarked quotation in the lines of a text; `lines` is its number of lines, 0 outside of one."""

    def __init__(self, text: Sequence[str]) -> None:
        self._text = text
        self.lines, self._is_mail = 0, False

    def begin(self, number: int, *, is_mail: bool) -> None:
        """Begin a quotation with a line, unless marks delimit the following text."""
        self.lines, self._is_mail = int(not _is_delimited(self._text, number + 1)), is_mail

    def count(self, line: str) -> None:
        """Count a non-blank line of the current quotation."""
        self.lines += bool(self.lines and line.strip())

    def end_before(self, number: int) -> None:
        """End the quotation if a paragraph by the user begins with a line."""
        if self.lines and _ends_quotation(self._text, number, self.lines, self._is_mail):
            self.lines = 0


def _ends_quotation(lines: Sequence[str], number: int, quoted: int, is_mail: bool) -> bool:
    """Return whether a paragraph after an unmarked quotation is the user's.

    `quoted`: its lines so far and the line that announces it. A single line ends at the next blank line. A longer
    quotation ends at a last paragraph in which the user asks or judges, a mail only after its sign-off.
    """
    if number == 0 or lines[number - 1].strip() or not lines[number].strip():
        return False
    if is_mail and not _is_signed(lines[:number]):
        return False
    if quoted == ANNOUNCED + 1:
        return True
    is_last = not any(
        not line.strip() and any(x.strip() for x in lines[n:]) for n, line in enumerate(lines) if n > number
    )
    return quoted > ANNOUNCED and is_last and _OWN_AGAIN.match(lines[number][:LINE_LIMIT]) is not None


def _is_signed(lines: Sequence[str]) -> bool:
    """Return whether lines end with a sign-off: a closing formula and perhaps a name."""
    ending = [line.strip()[:LINE_LIMIT] for line in lines[-6:] if line.strip()][-2:]
    return any(_SIGN_OFF.match(line) for line in ending)


def _announces_output(lines: Sequence[str], number: int) -> bool:
    """Return whether a line announces an output after a blank line."""
    line = lines[number][:LINE_LIMIT]
    blank = number + 1 < len(lines) and not lines[number + 1].strip()
    return blank and _SHOWN.search(line) is not None and not _WANTED.search(line)


def _iter_parts(line: str) -> Iterator[tuple[str, bool, bool]]:
    """Yield a line's parts: (text, own, whether it opens a quotation that continues on later lines)."""
    opened = _find_quotation_start(line)
    if opened is None:
        yield from ((part, mine, False) for part, mine in _split_off_quotes(line))
        return
    behind = line[opened:]
    yield from ((part, mine, False) for part, mine in _split_off_quotes(line[:opened]))
    quoted = _QUOTED.match(behind.lstrip())
    if quoted:
        yield quoted[0], False, False
        if after := behind.lstrip()[quoted.end() :].strip():
            yield from ((part, mine, False) for part, mine in _split_off_quotes(after))
    else:
        yield behind, False, True


def _find_quotation_start(line: str) -> int | None:
    """Return the offset in a line at which a quotation begins: after the colon of "here is the log:".

    None for a setting such as "log: debug".
    """
    head = line[:LINE_LIMIT]
    ends = [m.end() for p in (_HERE, _SAYS) if (m := p.search(head))]
    named = _NAMED.match(head)
    if named is not None and not _WANTED.search(named["before"]):
        ends.append(named.end())
    if not ends:
        return None
    behind = line[min(ends) :].split(maxsplit=3)
    return None if 0 < len(behind) <= 2 else min(ends)


def _split_off_quotes(line: str) -> Iterator[tuple[str, bool]]:
    """Split quotations of more than one sentence off a line."""
    at = 0
    for match in _QUOTED.finditer(line):
        if len(match[0]) < SHORT_QUOTE or not _SEVERAL.search(match[0]):
            continue
        yield line[at : match.start()], True
        yield match[0], False
        at = match.end()
    yield line[at:], True


def _is_delimited(lines: Sequence[str], number: int) -> bool:
    """Return whether the next non-empty line starts a text with its own delimiters."""
    following = next((line for line in lines[number : number + 4] if line.strip()), "")
    return bool(_FENCE.match(following) or _MARKED.match(following))


def _is_mail(lines: Sequence[str], number: int) -> bool:
    """Return whether a mail's header begins at a line: two of its lines, or an unmistakable one."""
    if not lines[number].lower().startswith(("from:", "to:", "subject:", "sent:", "date:", "cc:", "von:", "an:")):
        return not lines[number].lower().startswith(("betreff:", "gesendet:"))
    return any(_MAIL.match(line) for line in lines[number + 1 : number + 3])


def _find_pasted_lines(lines: Sequence[str]) -> set[int]:
    """Return the numbers of lines that look pasted: logs, and paragraphs too long to be typed."""
    out: set[int] = set()
    for first, last in _iter_paragraphs(lines):
        block = range(first, last)
        is_long = len(block) > BLOCK_LINES or sum(len(lines[n]) for n in block) > BLOCK_CHARACTERS
        if is_long and not _is_typed([lines[n][:RULES] for n in block]):
            out.update(block)
            continue
        run: list[int] = []
        for n in (*block, -1):
            if n >= 0 and (_LOG.match(lines[n][:LINE_LIMIT]) or (run and lines[n][:1] in " \t")):
                run.append(n)
                continue
            if len(run) >= LOG_LINES:
                out.update(run)
            run = []
    return out


def _is_typed(block: Sequence[str]) -> bool:
    """Return whether a long paragraph is a list, notes or statements, unlike logs, code and output."""
    items = sum(bool(_ITEM.match(line)) for line in block)
    indented = sum(line[:1].isspace() and not _ITEM.match(line) for line in block)
    if items < MACHINE_SHARE * len(block) and indented > MACHINE_SHARE * len(block):
        return False
    if sum(map(_is_machine_text, block)) > MACHINE_SHARE * len(block) or _is_transcript(block):
        return False
    if items and items + indented >= STATING_SHARE * len(block):
        return True
    if _is_wrapped(block):
        return _is_noted(_END.split(" ".join(block)))
    return _is_noted([item for line in block for sentence in _END.split(line) for item in _split_enumeration(sentence)])


def _is_noted(sentences: Sequence[str]) -> bool:
    """Return whether most sentences are short notes or statements."""
    notes = sum(len(part) <= NOTE for part in sentences)
    stating = sum(len(part) <= SENTENCE and _STATING.search(part) is not None for part in sentences)
    return len(sentences) > 1 and (notes >= NOTES_SHARE * len(sentences) or stating >= STATING_SHARE * len(sentences))


def _split_enumeration(sentence: str) -> list[str]:
    """Return the items of a sentence that enumerates, else the sentence."""
    return sentence.split(", ") if sentence.count(", ") >= ENUMERATED else [sentence]


def _is_machine_text(line: str) -> bool:
    return bool(_LOG.match(line) or _CODE.search(line) or _OUTPUT_LINE.search(line[:LINE_LIMIT]))


def _is_transcript(block: Sequence[str]) -> bool:
    """Return whether it is a diff, or most lines begin with one of a few names: "Ben: …", "Ann: …"."""
    if any(_DIFF.match(line) for line in block):
        return True
    names = [m[1] for line in block if (m := _SPEAKER.match(line))]
    return len(names) >= STATING_SHARE * len(block) and len(set(names)) * 4 <= len(names)


def _is_wrapped(block: Sequence[str]) -> bool:
    """Return whether sentences of a block continue on the next line."""
    going_on = sum(
        len(line) >= WRAPPED and _GOES_ON.match(following) is not None for line, following in itertools.pairwise(block)
    )
    return going_on >= WRAPPED_SHARE * len(block)


def _iter_paragraphs(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the paragraphs: (first line, line after the last)."""
    start: int | None = None
    for number, line in enumerate([*lines, ""]):
        if line.strip() and start is None:
            start = number
        elif not line.strip() and start is not None:
            yield start, number
            start = None
