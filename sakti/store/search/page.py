"""Represent the result of a search: a page of hits, and notes on the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cached_property

from msgspec import Struct

from sakti.core.text import format_count
from sakti.store.search.excerpts import Excerpt
from sakti.store.search.features import TOOL
from sakti.store.search.rank import NO_PARTS, Parts

_NAMES = {"before": "date", "after": "date"}


class Hit(Struct, frozen=True, dict=True):
    """Search hit.

    `score` is 0 to 1, `rank` counts from 1. `position` is a message's index in its thread; for an observation, that
    of its first message. `source`: raw or compacted (a message), observation, reflection, task, working_memory.
    `complete`: it has all words of the query, if known. `copies`: number of further texts with the same content.
    `parts`: components of its score. `origin`: the program that its thread was imported from.
    """

    id: str
    kind: str
    thread_id: str | None
    thread_title: str
    task_id: str | None
    role: str
    time: int
    position: int
    cut: Callable[[], Excerpt]
    score: float
    rank: int
    source: str = "raw"
    complete: bool = False
    copies: int = 0
    parts: Parts = NO_PARTS
    origin: str = ""

    @cached_property
    def excerpt(self) -> Excerpt:
        """Return the excerpt of its text, cut on the first call."""
        return self.cut()

    @property
    def text(self) -> str:
        return self.excerpt.text

    @property
    def snippet(self) -> str:
        return self.excerpt.snippet

    @property
    def marks(self) -> tuple[tuple[int, int], ...]:
        """Return (start, end) of the matches in the snippet."""
        return self.excerpt.marks

    @property
    def start(self) -> int:
        """Return the offset of the snippet in the text."""
        return self.excerpt.start

    @property
    def reason(self) -> str:
        """Return why the hit is listed, if its text does not show it."""
        return self.excerpt.reason

    @property
    def others(self) -> str:
        """Describe the further copies; copies of tool output may differ in numbers."""
        what = "text that differs in numbers at most" if self.role == TOOL else "identical text"
        many = "texts that differ in numbers at most" if self.role == TOOL else ""
        return f"{format_count(self.copies, what, many)} not listed" if self.copies else ""


class SearchPage(Struct, frozen=True):
    """Page of hits; `total` is the number of hits that can be paged through.

    `more`: further matches exist beyond these. `unread`: words that were not searched in older texts, and the time
    (Unix ms) from which on they were. `partial`: the search is incomplete. `suggestion`: the corrected query; its
    hits are included. `elsewhere`: number of hits outside the scope, counted if the scope has none; `more_elsewhere`:
    there are more. `without`: words whose texts are excluded. `unquoted`: phrases in no text; their words were
    searched. `unknown`: filters (name, value) that match nothing, treated as words. `said`: phrase that occurs
    literally in a text, so its NOT is no operator. `with_all`: number of hits with all words, if known; they come
    first. `when`: the time named in the query, to which all hits are restricted. `empty_time`: such a time without
    hits, so other times are listed. `only_excludes`: the query only excludes, so the hits contain it literally
    (`-fPIC`).
    """

    query: str
    total: int
    hits: tuple[Hit, ...] = ()
    more: bool = False
    partial: bool = False
    unread: tuple[tuple[str, int], ...] = ()
    suggestion: str = ""
    elsewhere: int = 0
    more_elsewhere: bool = False
    without: tuple[str, ...] = ()
    unquoted: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    said: tuple[str, ...] = ()
    with_all: int | None = None
    when: str = ""
    empty_time: str = ""
    only_excludes: bool = False

    @property
    def found(self) -> str:
        """Describe the number of hits."""
        if self.with_all is not None and self.with_all < self.total:
            some = f"the best {self.total - self.with_all}" if self.more else str(self.total - self.with_all)
            return f"{self.with_all} with all words, {some} with some" if self.with_all else f"{some} with some words"
        best = f"the {self.total:,} best matches; add words to narrow the search"
        return best if self.more and self.total else f"{self.total} found"

    @property
    def notes(self) -> list[str]:
        """Return the notes on the search, one phrase each."""
        texts = [*self._describe_scope()]
        if self.suggestion:
            texts.append(f"did you mean “{self.suggestion}”?")
        texts += [f"no text has “{phrase}”: searched for its words" for phrase in self.unquoted]
        texts += [f"“{phrase}” read as text" for phrase in self.said]
        texts += [f"no {_NAMES.get(name, name)} “{value}”: searched for as words" for name, value in self.unknown]
        if self.without:
            texts.append(f"without texts that have {', '.join(f'“{word}”' for word in self.without)}")
        if self.unread:
            words = ", ".join(dict.fromkeys(word for word, _ in self.unread))
            since = time.strftime("%Y-%m-%d", time.localtime(max(at for _, at in self.unread) / 1000))
            texts.append(f"{words}: only texts since {since}")
        if self.more and not self.total:
            texts.append("not every text was searched")
        if self.elsewhere:
            texts.append(f"{self.elsewhere}{'+' * self.more_elsewhere} in other workspaces")
        return texts

    def _describe_scope(self) -> Iterator[str]:
        """Describe the time range of the hits, and why exclusions alone find nothing."""
        if self.when:
            yield f"only {self.when}"
        if self.only_excludes:
            how = "read as text" if self.total else "only leaves out: add a word or filter"
            yield f"“{self.query.strip()}” {how}"
        if self.empty_time:
            yield f"nothing {self.empty_time}" + ": these are from other times" * bool(self.total)
