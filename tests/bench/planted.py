"""Generate coding sessions with planted facts, some replaced or taken back later, in many wordings.

Values have many shapes (names, numbers, hosts, people, paths), and each kind of fact is said in many ways, long and
short, careful and careless: a rule-based Observer must not succeed by knowing one author's wording.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from sakti.core.types import Json
from sakti.store.log.replacements import MARK, NOTE

CATEGORIES = ("facts", "updated", "retracted", "dates", "paths", "decisions")
TURNS = 52

_TOPICS = (
    "staging host", "queue name", "API prefix", "cache key", "release branch", "default region", "bucket name",
    "service account", "log level", "session cookie", "metrics namespace", "feature flag", "webhook secret name",
    "request timeout", "page size", "retry limit", "health check route", "search index", "admin contact", "build image",
)  # fmt: skip
_PARTS = (
    "parser", "scheduler", "importer", "rate limiter", "mailer", "exporter", "session store", "webhook handler",
    "token refresher", "diff viewer", "seed script", "audit trail",
)  # fmt: skip
_THINGS = (
    "storage", "caching", "rendering", "routing", "the job queue", "full text search", "packaging", "tracing",
    "password hashing", "schema migrations", "date handling", "load tests",
)  # fmt: skip
_EVENTS = (
    "billing change", "login rewrite", "data centre move", "price update", "security review", "beta launch",
    "API freeze", "archive clean-up",
)  # fmt: skip
_WORDS = (
    "amber", "basalt", "cobalt", "dune", "ember", "fjord", "garnet", "heron", "indigo", "juniper", "krill", "lichen",
    "maple", "nimbus", "onyx", "pebble",
)  # fmt: skip
_PEOPLE = ("Priya", "Tomasz", "Ines", "Kofi", "Marguerite", "Yusuf", "Signe", "Radek")
_MONTHS = ("January", "Feb", "March", "Apr", "May", "June", "July", "Aug", "September", "Oct", "Nov", "December")

# {t} what it is about, {v} the value, {o} the value before.
_FACTS = (
    "Remember that our {t} is {v}.",
    "The {t} is {v}.",
    "Our {t} is {v}, by the way.",
    "btw the {t} we agreed on with ops is {v}",
    "For the {t} we use {v}.",
    "{v} is our {t}.",
    "Note down the {t}: {v}.",
    "{t}: {v}",
    "I set the {t} to {v} last week.",
    "Keep in mind that everything below assumes {v} as the {t}.",
    "We have {v} as the {t} in every environment.",
    "You will need the {t}, which is {v}.",
    "It took us a while to find out, but the {t} has to be {v}.",
)
_UPDATES = (
    "Actually our {t} is now {v}, it replaces the one I named before.",
    "The {t} is {v} now.",
    "We changed the {t} to {v}.",
    "The {t} has moved from {o} to {v}.",
    "Correction: the {t} is {v}, not {o}.",
    "I was wrong about the {t}, it is {v}.",
    "Please use {v} as the {t} from now on instead of {o}.",
    "The {t} is no longer {o} but {v}.",
    "ops switched the {t} over to {v} this morning",
    "Since today the {t} is {v}.",
    "As of now the {t} should be {v}.",
    "{v} replaces {o} as the {t}.",
)
_NEEDS = (
    "We need the {t} {v} as well.",
    "Please keep the {t} {v} in mind, we depend on it.",
    "The importer also has to support the {t} {v}.",
    "We rely on the {t} {v}.",
    "There must be a {t} called {v}.",
)
_RETRACTIONS = (
    "Correction: we don't need the {t} {v} any more.",
    "Forget the {t} {v}, it is not needed.",
    "The {t} {v} is off the table.",
    "We dropped the {t} {v}.",
    "Scrap the {t} {v}.",
    "The {t} {v} has been cancelled.",
    "We no longer need the {t} {v}.",
    "The {t} {v} turned out to be unnecessary, so it is gone.",
)
_DEADLINES = (
    "The deadline of our {t} is {v}.",
    "The {t} is due on {v}.",
    "We have to ship the {t} by {v}.",
    "The customer expects the {t} on {v}.",
    "The {t} goes live on {v}.",
    "{v} is the last day for the {t}.",
)
_CREATED = (
    "I created the {t} in {v}.",
    "The {t} now lives in {v}.",
    "I moved the {t} to {v} and adjusted its imports.",
    "Done: the {t} is in {v}.",
    "The bug was in the {t}: {v} never closed its file.",
    "I added the {t} as {v}.",
)
_DECISIONS = (
    "We decided that for {t} we use the library {v}.",
    "For {t} let's go with {v}.",
    "Let's use {v} for {t}.",
    "After some discussion we settled on {v} for {t}.",
    "I want {v} for {t}, nothing else.",
    "We agreed on {v} when it comes to {t}.",
    "{v} it is for {t}.",
    "My choice for {t} is {v}.",
)
_SMALL = (
    "Please run the tests.", "Could you look at the output again?", "Go on.", "What does this function do?",
    "Tidy up the imports there.", "Explain the last change in a sentence.", "Can you show me the diff?", "Thanks!",
    "hm, that looks odd", "Why is this so slow?", "ok", "Is there a simpler way?", "Good, continue.",
    "I had a look and it seems fine to me.", "Add a docstring to it.", "Let's see what the linter says.",
)  # fmt: skip
_SEEN = (
    "I looked at {p}: {a} calls {b}.", "Let me check {p} first.", "In {p} the function {a} wraps {b}.",
    "{p} reads fine; {a} is only used by {b}.", "I will go through {p} next.",
)  # fmt: skip
_OVER = (
    "no longer", "not ", "n't", "drop", "retract", "remov", "cancel", "withdr", "off the table", "any more", "forget",
    "scrap", "unnecessary", "gone",
)  # fmt: skip
_NEXT_PART = re.compile(r"[,;.!?] |(?:^| )(?:and|but|und|aber) ")
_SENTENCE = re.compile(r"\n|(?<=[.!?])\s+(?=[A-Z`])|(?<!\[earlier); ")


class Said(Struct, frozen=True):
    """Sentence that tells a fact: its turn and speaker."""

    turn: int
    role: str
    text: str


class Fact(Struct, frozen=True):
    """Planted fact.

    `value` is in a right answer; `stale` in a wrong one, where something was replaced. For a retracted fact a right
    answer says that it no longer holds.
    """

    category: str
    question: str
    value: str
    said: tuple[Said, ...]
    stale: str = ""

    def answered(self, text: str) -> bool:
        """Return whether `text` gives the answer."""
        if self.category != "retracted":
            return self.value.casefold() in text.casefold()
        return any(any(word in sentence for word in _OVER) for sentence in _holding(text, self.value))

    def misled(self, text: str) -> bool:
        """Return whether `text`, which lacks the answer, has the former value."""
        return bool(self.stale) and any(_holding(text, self.stale))

    def contradicted(self, log: str) -> bool:
        """Return whether a log with the answer also has the former value, as if it were true."""
        return bool(self.stale) and self.answered(log) and any(self._still(s) for s in unmarked(log, self.stale))

    def _still(self, sentence: str) -> bool:
        if self.category == "retracted":
            return not any(word in sentence for word in _OVER)
        return self.value.casefold() not in sentence

    def mistaken(self, log: str) -> bool | None:
        """Return whether a log marks the answer, which is still true, as replaced.

        None where the log lacks it, or where the answer is that something no longer holds.
        """
        said = [] if self.category == "retracted" else list(_holding(NOTE.sub("", log), self.value))
        return any(_is_marked(s, self.value) for s in said) or bool(_noted(log, self.value)) if said else None


def unmarked(log: str, value: str) -> Iterator[str]:
    """Yield the sentences of a log with a value, in lower case, unless marked or noted as replaced."""
    noted = _noted(log, value)
    for sentence in _holding(NOTE.sub("", log), value):
        if not _is_marked(sentence, value) and not any(words in sentence for words in noted):
            yield sentence


def _noted(log: str, value: str) -> list[str]:
    """Return the quotations with the value in notes on what newer lines replace."""
    found = (match["text"].rstrip("…").casefold() for match in NOTE.finditer(log))
    return [words for words in found if value.casefold() in words]


def _is_marked(sentence: str, value: str) -> bool:
    """Return whether the part of a sentence with the value is marked as earlier."""
    behind = sentence[sentence.casefold().find(value.casefold()) + len(value) :]
    found = MARK.search(behind)
    return found is not None and _NEXT_PART.search(behind, 0, found.start()) is None


def _holding(text: str, value: str) -> Iterator[str]:
    """Return the sentences with a value, in lower case; not within a longer word."""
    held = re.compile(rf"(?<!\w){re.escape(value.casefold())}(?!\w)")
    return (low for sentence in _SENTENCE.split(text) if held.search(low := sentence.casefold()))


class Talk(Struct, frozen=True):
    """One turn: the prompt, a tool call (name, arguments, output) and the answer."""

    user: str
    tool: str
    arguments: Json
    output: str
    answer: str


class Session(Struct, frozen=True):
    """Generated session: its turns, and the facts to ask for."""

    seed: int
    facts: tuple[Fact, ...]
    turns: tuple[Talk, ...]


def generate(seed: int) -> Session:
    """Generate the session of a seed: two facts of every category, told in its first two thirds."""
    source = random.Random(seed)
    topics = source.sample(_TOPICS, 6)
    parts, things, events = source.sample(_PARTS, 2), source.sample(_THINGS, 2), source.sample(_EVENTS, 2)
    values = _values(source)
    facts: list[Fact] = []
    for number in range(2):
        early, late = source.randint(0, 10), source.randint(12, 23)
        topic, used, needed = topics[number::2]
        old, new, extra, library = next(values), next(values), _name(source), _name(source)
        path = f"src/{_name(source)}/{parts[number].replace(' ', '_')}.py"
        told = next(values)
        facts += [
            Fact("facts", f"What is our {topic}?", told, _told(source, early, "user", (_FACTS,), t=topic, v=told)),
            Fact("updated", f"What is our {used} now?", new,
                 (*_told(source, early, "user", (_FACTS,), t=used, v=old),
                  *_told(source, late, "user", (_UPDATES,), t=used, v=new, o=old)), old),
            Fact("retracted", f"Do we need the {needed} {extra}?", extra,
                 (*_told(source, early, "user", (_NEEDS,), t=needed, v=extra),
                  *_told(source, late, "user", (_RETRACTIONS,), t=needed, v=extra)), extra),
            _dated(source, events[number], early),
            Fact("paths", f"Where is the {parts[number]}?", path,
                 _told(source, late, "assistant", (_CREATED,), t=parts[number], v=path)),
            Fact("decisions", f"What did we decide on for {things[number]}?", library,
                 _told(source, late, "user", (_DECISIONS,), t=things[number], v=library)),
        ]  # fmt: skip
    return Session(seed, tuple(facts), tuple(_turn(source, n, facts) for n in range(TURNS)))


def _name(source: random.Random) -> str:
    return f"{source.choice(_WORDS)}-{source.randint(100, 999)}"


def _values(source: random.Random) -> Iterator[str]:
    """Yield values of many shapes, none twice."""
    seen: set[str] = set()
    people = iter(source.sample(_PEOPLE, len(_PEOPLE)))
    while True:
        shape = source.randrange(7)
        value = (
            _name(source),
            f"{source.randint(1_000, 9_999)}",
            f"{source.choice(_WORDS)}{source.randint(10, 99)}.example.net",
            f"{source.choice(_WORDS).upper()}_{source.choice(_WORDS).upper()}",
            f"v{source.randint(2, 30)}.{source.randint(0, 40)}",
            f"`{source.choice(_WORDS)}.{source.choice(_WORDS)}`",
            next(people, "") if shape == 6 else "",
        )[shape]
        if value and not any(value in other or other in value for other in seen):
            seen.add(value)
            yield value


def _dated(source: random.Random, event: str, turn: int) -> Fact:
    day, month = source.randint(1, 28), source.choice(_MONTHS)
    date = source.choice((f"{month} {day}, 2027", f"{day} {month} 2027", f"2027-{source.randint(1, 12):02}-{day:02}"))
    said = _told(source, turn, "user", (_DEADLINES,), t=event, v=date)
    return Fact("dates", f"When is the deadline of the {event}?", date, said)


def _told(
    source: random.Random, turn: int, role: str, ways: Sequence[Sequence[str]], **values: str
) -> tuple[Said, ...]:
    return tuple(Said(turn, role, source.choice(way).format(**values)) for way in ways)


def _turn(source: random.Random, number: int, facts: list[Fact]) -> Talk:
    def told(role: str) -> list[str]:
        return [s.text for f in facts for s in f.said if s.turn == number and s.role == role]

    user = [*told("user"), source.choice(_SMALL)]
    source.shuffle(user)
    path = f"src/{source.choice(_WORDS)}/{source.choice(_WORDS)}.py"
    seen = source.choice(_SEEN).format(p=path, a=source.choice(_WORDS), b=source.choice(_WORDS))
    answer = [*told("assistant"), seen]
    source.shuffle(answer)
    between = source.choice((" ", "\n"))
    return Talk(between.join(user), *_tool(source, path), between.join(answer))


def _tool(source: random.Random, path: str) -> tuple[str, Json, str]:
    if source.random() < 0.25:
        passed, failed = source.randint(3, 90), source.choice((0, 0, source.randint(1, 4)))
        lines = [f"tests/test_{source.choice(_WORDS)}.py {'.' * source.randint(2, 9)}" for _ in range(12)]
        outcome = f"{f'{failed} failed, ' if failed else ''}{passed} passed in {source.randint(1, 9)}.2s"
        return "bash", {"command": f"pytest {path.replace('src', 'tests')}"}, "\n".join([*lines, outcome])
    lines = [f"    {source.choice(_WORDS)} = {source.choice(_WORDS)}({source.randint(0, 99)})" for _ in range(14)]
    return "read", {"path": path}, "\n".join([f"def {source.choice(_WORDS)}():", *lines])
