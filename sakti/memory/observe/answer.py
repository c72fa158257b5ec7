"""Check an Observer's answer before it becomes part of the log. Pure.

Models repeat the prompt's examples, note their own task, give wrong dates, and repeat lines of the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from sakti.core.patterns import lazy_pattern
from sakti.core.resources import read_prompt
from sakti.memory.log import dates, lines
from sakti.memory.observe.speaking import plain
from sakti.memory.protocol import ObserveInput
from sakti.store.log.lines import UNVERIFIED
from sakti.store.log.replaced import remove_marks

LINES = 500  # of an answer; real ones have a few dozen
TAIL = 400  # lines of the log's end that are not noted again
LARGE_INPUT = 500  # tokens of messages that are worth a line
_HEADER = lazy_pattern(r"(?P<indent>\s*)Date:\s*(?P<date>.*\S)?\s*")
_OWN_TASK = lazy_pattern(
    r"\b(?:(?:extract|writ|not|record|produc|creat|mak)\w* (?:the |new |all |any )*observations?|"
    r"observations? of the new messages|new observations|the observer|memory observer|observation (?:task|format|log)|"
    r"the memory of an?(?: \w+)? agent|no other task (?:should|may|must) be (?:started|done)|"
    r"answer with these tags|the log so far)\b",
    re.IGNORECASE,
)
# How a model speaks of its answer. Users may say the same of observations that they made: only for lines, for which the
# messages show it.
_OWN_ANSWER = lazy_pattern(
    r"\b(?:(?:output|provid|list|return|giv|generat|condens|compress|summari[sz]|compil|format|respond with|reply with|"
    r"answer with|here are|below are|following|only)\w* "
    r"(?:(?:only|the|all|new|these|those|my|just|dated) )*observations?|"
    r"(?:hier sind|folgende[nr]?|nur|ausgeben|auflisten) (?:(?:die|der|alle|neuen|meine|nur) )*beobachtungen|"
    r"beobachtungen (?:\S+ ){0,5}(?:auszugeben|ausgeben|aus|(?:zusammen|zu)\w*fassen|(?:zu )?verdichten|"
    r"(?:zu )?(?:notieren|extrahieren|schreiben)|aufzulisten|auflisten)|"
    r"(?:concise|brief|terse|knapp|kurz) (?:and|und) (?:dated|datiert|mit datum))\b",
    re.IGNORECASE,
)
_OBSERVING = lazy_pattern(r"obser[vw]|beobacht", re.IGNORECASE)


def cut_lines(text: str, limit: int = LINES) -> str:
    """Cut an answer of too many lines; its last lines, which hold the task, stay."""
    rows = text.split("\n", limit)
    if len(rows) <= limit:
        return text
    return "\n".join([*rows[:-1], *rows[-1].rsplit("\n", limit // 10)[-limit // 10 :]])


def check_lines(text: str, request: ObserveInput) -> str:
    """Return the lines of an answer that may be stored, under dates of the observed messages.

    Left out are lines of the prompt, lines about the Observer's own task, and lines that the log's end has already.
    """
    seen = {(x.time, remove_marks(x.content).removesuffix(UNVERIFIED)) for x in _tail(request.log)}
    out: list[str] = []
    source = ""
    for raw in text.split("\n")[:LINES]:
        if header := _HEADER.fullmatch(raw):
            out.append(f"Date: {_within(header['date'] or '', request)}")
            continue
        row = next(lines.rows(raw), None)
        if row is None:
            continue
        content = remove_marks(row.content)
        if _OWN_TASK.search(content) or _OWN_ANSWER.search(content):
            source = source or plain("\n".join(m.text for m in request.messages))
        if (row.time, content) in seen or is_of_prompt(content) or _is_own_task(content, source):
            continue
        seen.add((row.time, content))
        out.append(raw)
    return lines.apply_corrections("\n".join(out), {})


def is_of_prompt(content: str) -> bool:
    """Return whether a line, task or response only repeats the Observer's instructions."""
    return plain(content.removeprefix("->")) in _prompt_lines()


def is_instruction(text: str) -> bool:
    """Return whether a task or response only repeats the instructions or speaks of them."""
    return any(is_of_prompt(line) or _OWN_TASK.search(line) is not None for line in text.split("\n"))


def with_doubts(text: str, doubted: Iterable[int]) -> str:
    """Mark important lines of these numbers as unverified, for the model to see."""
    numbers = set(doubted)
    changes = {
        row.line: row.content + UNVERIFIED
        for row in lines.rows(text)
        if row.line in numbers and row.priority in ("high", "done") and UNVERIFIED.strip() not in row.content
    }
    return lines.apply_corrections(text, changes) if changes else text


def _tail(log: str) -> Iterable[lines.LogRow]:
    return lines.rows("\n".join(log.rsplit("\n", TAIL)[-TAIL:]))


def _within(date: str, request: ObserveInput) -> str:
    """Return a date as one of the days of the observed messages: the nearest."""
    days = {dates.day_text(m.created_at, request.timezone): m.created_at for m in request.messages}
    if not days or date in days:
        return date
    target = dates.header_date(date)
    if target is None:
        return next(iter(days))
    return min(days, key=lambda day: abs((dates.header_date(day) or 0) - target))


def _is_own_task(content: str, said: str) -> bool:
    """Return whether a line speaks of the Observer's task, unless the messages speak of it in these words."""
    task, answer = _OWN_TASK.search(content), _OWN_ANSWER.search(content)
    if task is not None and plain(task[0]) not in said:
        return True
    return answer is not None and plain(answer[0]) not in said and _OBSERVING.search(said) is None


@lru_cache(1)
def _prompt_lines() -> frozenset[str]:
    out: set[str] = set()
    for part in ("observer", "observer#rules", "observer#condensed", "observer#title"):
        for raw in read_prompt(part).split("\n"):
            row = next(lines.rows(raw), None)
            if row is not None and len(row.content) > len("yes"):
                out.add(plain(row.content.removeprefix("->")))
    return frozenset(out)
