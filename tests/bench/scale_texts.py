"""Make the messages of the benchmark `scale`: generated words, or real texts (code, diffs, prose, logs) of this Python.

Nothing is shipped: code and prose are those of the standard library that runs this, logs are written here.
"""

from __future__ import annotations

import functools
import random
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

VOCABULARY = 50_000
COMMON = (
    "error file test function user schema model server token build request config value path update check type data"
    " session query module client script handler state cache index result option field"
).split()
PASTE = 10_000  # characters of a query that was pasted
FILES = 400  # of the standard library
_IDENTIFIER = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b|\b[a-z]+[A-Z]\w+\b")
_SENTENCE = re.compile(r"(?<=\.)\s+")
_SKIPPED = re.compile(r"site-packages|/test|idlelib|lib2to3|encodings|pydoc_data")


class Texts(Protocol):
    """Source of messages and of what is asked about them, the same for the same generator of random numbers."""

    def text(self, number: int) -> str:
        """Return the text of a message."""
        ...

    def queries(self) -> dict[str, str]:
        """Return a query of each kind."""
        ...


class Generated:
    """Zipf-distributed words, identifiers and paths."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        letters = "abcdefghiklmnoprstuvwy"
        self.words = list(dict.fromkeys(
            [*COMMON, *("".join(rng.choices(letters, k=rng.randint(4, 9))) for _ in range(VOCABULARY))]
        ))  # fmt: skip
        self.weights: list[float] = []
        total = 0.0
        for rank in range(len(self.words)):
            total += 1 / (rank + 3)
            self.weights.append(total)

    def some(self, count: int) -> list[str]:
        return self.rng.choices(self.words, cum_weights=self.weights, k=count)

    def identifier(self) -> str:
        a, b, c = self.some(3)
        return self.rng.choice((f"{a}{b.title()}{c.title()}", f"{a}_{b}_{c}", f"src/{a}/{b}.ts"))

    def text(self, number: int) -> str:
        return " ".join([*self.some(self.rng.randint(10, 70)), self.identifier(), self.identifier()])

    def queries(self) -> dict[str, str]:
        identifier = self.identifier()
        return {
            "question": "why does the " + " ".join(self.some(6)) + "?",
            "identifier": identifier,
            "substring": identifier[2:-2],
            "filtered": " ".join(self.some(3)) + " role:user after:2023-11-15",
            "paste10k": " ".join(self.some(1_700))[:PASTE],
        }


class Real:
    """What a coding agent's store is made of: half prose, a quarter code, the rest logs and diffs."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.files = _files()
        self.sentences = _sentences()

    def text(self, number: int) -> str:
        kind = self.rng.random()
        if kind < 0.5:
            return self._prose()
        if kind < 0.75:
            name, lines = self._piece()
            return f"{name}\n" + "\n".join(lines)
        return self._log(number) if kind < 0.9 else self._diff()

    def queries(self) -> dict[str, str]:
        words = re.findall(r"[A-Za-z]{3,}", self.rng.choice(self.sentences))[:6] or ["return"]
        identifier = self._identifier()
        paste = ""
        while len(paste) < PASTE:
            paste += f"{self.text(0)}\n"
        return {
            "question": f"how does the {' '.join(words)}?",
            "identifier": identifier,
            "substring": identifier[1:-1],
            "filtered": " ".join(words[:3]) + " role:user after:2023-11-15",
            "paste10k": paste[:PASTE],
        }

    def _prose(self) -> str:
        said = " ".join(self.rng.choices(self.sentences, k=self.rng.choice((1, 1, 2, 3, 5))))
        return f"{said} See {self._identifier()}." if self.rng.random() < 0.3 else said

    def _piece(self) -> tuple[str, Sequence[str]]:
        name, lines = self.rng.choice(self.files)
        size = self.rng.choice((8, 15, 30, 60))
        at = self.rng.randrange(max(1, len(lines) - size))
        return name, lines[at : at + size]

    def _identifier(self) -> str:
        for _ in range(20):
            _, lines = self._piece()
            if found := _IDENTIFIER.findall("\n".join(lines)):
                return self.rng.choice(found)
        return "get_user_id"

    def _log(self, number: int) -> str:
        name, _ = self._piece()
        out: list[str] = []
        for n in range(self.rng.choice((5, 20, 60))):
            level = self.rng.choice(("INFO", "INFO", "INFO", "WARNING", "ERROR"))
            at = f"2026-{1 + number % 12:02}-{1 + n % 28:02} {n % 24:02}:{self.rng.randrange(60):02}"
            took = self.rng.randrange(9_000)
            out.append(f"{at} {level} {name}:{took % 900} {self._identifier()} took {took} ms, request {number}-{n}")
        return "\n".join(out)

    def _diff(self) -> str:
        name, lines = self._piece()
        changed = self.rng.randrange(max(1, len(lines)))
        body = [f" {line}" for line in lines]
        if body:
            body[changed : changed + 1] = [f"-{lines[changed]}", f"+{lines[changed]}  # {self._identifier()}"]
        return f"--- a/{name}\n+++ b/{name}\n@@ -1,{len(lines)} +1,{len(lines) + 1} @@\n" + "\n".join(body)


@functools.lru_cache(maxsize=1)
def _files() -> Sequence[tuple[str, Sequence[str]]]:
    """Return names and lines of files of the standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = sorted(p for p in root.rglob("*.py") if not _SKIPPED.search(p.as_posix()))[:FILES]
    texts = ((p.relative_to(root).as_posix(), p.read_text("utf-8", "replace").splitlines()) for p in found)
    return [(name, lines) for name, lines in texts if len(lines) > 20]


@functools.lru_cache(maxsize=1)
def _sentences() -> Sequence[str]:
    """Return sentences of Python's documentation and of docstrings."""
    from pydoc_data import topics

    texts = [*topics.topics.values(), *("\n".join(lines[:40]) for _, lines in _files())]
    found = (" ".join(s.split()) for text in texts for s in _SENTENCE.split(text))
    return [s for s in found if 40 < len(s) < 400]


SOURCES = {"real": Real, "generated": Generated}
