"""Title threads until a model does, number equal titles, explain names without a match. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import quote, to_one_line
from sakti.core.types import Thread

SHOWN = 3  # threads of one name in a sentence
LENGTH = 60  # characters of a title
FEW = 4  # words below which a first line says too little
HEADLESS = "headless"  # key of a thread's metadata: it ran without a user, as in `sakti run`
_FENCE = lazy_pattern(r"```.*?(?:```|\Z)", re.DOTALL)
_LEAD = lazy_pattern(r"^(?:[#>*\-\s]+|\d+[.)]\s+)")
_QUOTES = " \t\"'`*_“”„«»"
_NAMED = lazy_pattern(r"^\W{0,2}title\W{1,3}\s*", re.IGNORECASE)
_POLITE = lazy_pattern(
    r"^(?:please|(?:hi|hello|hey)(?:\s+(?:there|all|everyone)\b)?+|can you|could you|would you|bitte)\b[,.!:]?\s+",
    re.IGNORECASE,
)


_SMALL_TALK = lazy_pattern(
    r"^\W*(?:hi|hello|hey|yo|hallo|servus|moin|good (?:morning|afternoon|evening)|tests?|testing|ping|thanks?|thank you"
    r"|ok|okay|yes|no|continue|go on)(?:\s+(?:there|all|everyone|again|sakti|you|a lot))*\W*$",
    re.IGNORECASE,
)
_COMMAND = lazy_pattern(r"^(?:!|/[\w-]+(?:\s|$))")


def is_uninformative(title: str) -> bool:
    """Return whether a title is a bare greeting or a command, so that the next message names the thread."""
    return bool(_SMALL_TALK.match(title) or _COMMAND.match(title))


def make_first_title(text: str) -> str:
    """Make a title from the first message.

    This is its first line without markup and courtesies, with the following lines if it has only a word or two; code
    comes last.
    """
    plain = _FENCE.sub("\n", text)
    lines = [line for raw in (plain if plain.strip() else text).split("\n") if (line := _LEAD.sub("", raw).strip())]
    title = ""
    for line in lines:
        mark = " " if title.endswith(("?", "!", ".")) else ": "
        title = f"{title.rstrip(':')}{mark}{line}" if title else line
        if len(title.split()) >= FEW:
            break
    while (shorter := _POLITE.sub("", title)) != title and shorter:
        title = shorter
    return to_one_line(title, LENGTH)


def clean_model_title(text: str) -> str:
    """Return a model's title: the first line without markup, quotes and a closing period."""
    lines = (_LEAD.sub("", line).strip() for line in text.split("\n"))
    line = _NAMED.sub("", next((x for x in lines if x and not x.startswith("```")), ""))
    return to_one_line(line.lstrip(_QUOTES).rstrip(f"{_QUOTES}."), LENGTH)


def number_equal_titles(threads: Iterable[Thread]) -> dict[str, str]:
    """Return each thread's title by its id; of equal ones all but the oldest bear a number."""
    counts: dict[str, int] = {}
    out: dict[str, str] = {}
    for thread in sorted(threads, key=lambda t: (t.created_at, t.id)):
        title = thread.title or "untitled"
        count = counts[title.lower()] = counts.get(title.lower(), 0) + 1
        out[thread.id] = title if count == 1 else f"{title} ({count})"
    return out


def choose_thread(text: str, matches: Sequence[Thread]) -> Thread | None:
    """Return the thread that a text names by its id, title or a part of the title; None if none does.

    Raises `ConfigError` if several do.
    """
    matches = narrow_matches(text, matches)
    if len(matches) > 1:
        raise ConfigError(_explain_ambiguous(text, matches))
    return next(iter(matches), None)


def narrow_matches(text: str, matches: Sequence[Thread]) -> Sequence[Thread]:
    """Return the one match by its id, else those whose entire title is `text`, else all matches."""
    by_id = [t for t in matches if t.id.startswith(text) or t.id.endswith(text)]
    by_title = [t for t in matches if t.title.casefold() == text.casefold()]
    return by_id if len(by_id) == 1 else by_title or matches


def _explain_ambiguous(text: str, matches: Sequence[Thread]) -> str:
    shown = ", ".join(f"{t.id[-8:]} {to_one_line(t.title, 40)}".rstrip() for t in matches[:SHOWN])
    more = f" and {len(matches) - SHOWN} more" if len(matches) > SHOWN else ""
    return f"{len(matches)} threads match {quote(text, 80)}: {shown}{more}. Name one by its id."


def explain_missing(text: str, elsewhere: Sequence[Thread], listing: str = "`sakti threads list`") -> str:
    """Return the error for a name that fits no thread of this workspace.

    `elsewhere` are those of all workspaces that it fits; `listing` is the command that lists threads.
    """
    name = to_one_line(text, 80)
    if not text or not elsewhere:
        return f"No thread of this workspace matches {quote(name)}; {listing} shows them."
    thread = elsewhere[0]
    if not Path(thread.resource_id).is_absolute():
        return f"The thread {quote(name)} belongs to {thread.resource_id}."
    opening = f"`cd {shlex.quote(thread.resource_id)} && sakti -r {thread.id[-8:]}` opens it."
    return f"The thread {quote(name)} belongs to the workspace {thread.resource_id}: {opening}"
