"""Summarise older messages ten at a time, for search, and for requests without observations.

When a thread has thirty messages, the oldest ten get a summary of two or three sentences with the lines of code that
matter (level 1), at ninety a shorter one (level 2), and so on by tens. No model is called: every sentence, path and
line of code is copied from the messages. With observational memory the summaries only add to the search index, for
messages that have left the window. Without it, ten messages of more than 2,000 tokens are sent as one block from the
next turn on.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field, structs

from sakti.core.errors import SaktiError
from sakti.core.lazy import lazy_pattern
from sakti.core.resources import read_prompt
from sakti.core.text import clean_surrogates
from sakti.core.tokens import MESSAGE_OVERHEAD, Counter
from sakti.core.types import Message, Part, TextPart, Thread, ToolCallPart, ToolResultPart
from sakti.memory.log.lines import find_references
from sakti.memory.window import Window
from sakti.store.database import Database, Store
from sakti.store.threads import messages as message_store
from sakti.store.threads import threads
from sakti.store.threads.messages import SummarisedRange

TEN = 10
BEGIN = (30, 90)  # messages of a thread, counted from the ten, at which they get level 1, and level 2
WORTH_TOKENS = 2_000  # ten messages with fewer tokens are sent as they are
BEHIND = 5  # messages read after the ten: tool results of the last one
AT_ONCE = 3  # most tens that are summarized after one turn
SENT = 40  # most summaries in a request
READ = 4_000  # characters of one text that are read


class Size(Struct, frozen=True):
    """Limits of a level: items of each kind and their characters, files, lines of code."""

    items: int
    characters: int
    files: int
    code: int


SIZES = (Size(2, 160, 8, 8), Size(1, 80, 4, 0))

_SENTENCE = lazy_pattern(r"(?<=[.!?…])\s+|\n+|(?<=[。！？])")
_FENCED = lazy_pattern(r"```[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
_BULLET = lazy_pattern(r"^\s*(?:[-*•+#>]+|\d+[.)])\s+")
_BUILT = lazy_pattern(
    r"\b(?:added|built|changed|created|fixed|implemented|installed|merged|migrated|moved|passed|passes|refactored|"
    r"removed|renamed|replaced|rewrote|updated|wired|works now|wrote)\b",
    re.IGNORECASE,
)
_DECIDED = lazy_pattern(
    r"\b(?:decid\w+|decision|chosen?|settled|agreed|go(?:ing)? with|let's|we(?:'ll| will)|instead of|rather than)\b",
    re.IGNORECASE,
)
_PREFERRED = lazy_pattern(
    r"\b(?:prefer\w*|always|never|must(?:n't)?|don't|do not|please use|i(?:'d)? (?:like|want)|we want|no longer)\b",
    re.IGNORECASE,
)
_BLOCKED = lazy_pattern(
    r"\b(?:block\w*|cannot|can't|could not|couldn't|waits? (?:for|on)|waiting|depends on|fail(?:s|ed|ing|ure)?|"
    r"\w*Error|\w*Exception|permission denied|not found|times? out)\b",
    re.IGNORECASE,
)
_CODE = lazy_pattern(
    r"\s*(?:export\s+|default\s+|pub(?:\(\w+\))?\s+|public\s+|private\s+|static\s+|async\s+|abstract\s+|@)*"
    r"(?:def|class|function|func|fn|interface|type|struct|enum|trait|impl|const|CREATE\s+(?:UNIQUE\s+)?\w+|ALTER\s+\w+|"
    r"(?:app|router)\.(?:get|post|put|patch|delete))\b.*\w",
    re.IGNORECASE,
)


class Summary(Struct, frozen=True):
    """Summary of ten messages: the complete `text`, and `taken`: message id → its share of the text."""

    text: str
    taken: dict[str, str]


class _Extracts(Struct):
    """Extracts of the messages, in order: kind → (message id, sentence)."""

    sentences: dict[str, list[tuple[str, str]]] = field(default_factory=dict[str, list[tuple[str, str]]])
    files: dict[str, str] = field(default_factory=dict[str, str])  # path → the message that named it first
    tools: dict[str, None] = field(default_factory=dict[str, None])
    code: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def add_sentence(self, kind: str, message_id: str, sentence: str) -> None:
        self.sentences.setdefault(kind, []).append((message_id, sentence))

    def add_files(self, message_id: str, text: str) -> None:
        for path in find_references(text)[0]:
            self.files.setdefault(path, message_id)

    def add_code(self, message_id: str, code: str) -> None:
        self.code += [(message_id, line) for line in _key_lines(code)]


class _Draft(Struct):
    """Extracts chosen for a summary, within the limits of its level; `shares`: message id → its texts."""

    extracts: _Extracts
    size: Size
    shares: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def _take(self, chosen: Sequence[tuple[str, str]]) -> list[str]:
        for message_id, text in chosen:
            self.shares.setdefault(message_id, []).append(text)
        return [text for _, text in chosen]

    def take_sentences(self, kind: str, label: str = "") -> str:
        newest = self.extracts.sentences.get(kind, [])[-self.size.items :]
        text = "; ".join(self._take([(message_id, _cut(t, self.size.characters)) for message_id, t in newest]))
        return f"{label}{text}" if text else ""

    def take_files(self, label: str) -> str:
        paths = list(self.extracts.files.items())[: self.size.files]
        text = ", ".join(self._take([(message_id, path) for path, message_id in paths]))
        return f"{label}{text}" if text else ""

    def take_code(self) -> list[str]:
        return self._take(self.extracts.code[: self.size.code])


def summarize(messages: Sequence[Message], level: int) -> Summary:
    """Summarise work, decisions, preferences, blockers, open points, files; at level 1 also code.

    Pure.
    """
    draft = _Draft(_extract(messages), SIZES[level - 1])
    files = draft.take_files("files: ")
    done = draft.take_sentences("built", "done: ")
    if not (files or draft.extracts.sentences.keys() - {"said"}):
        done = draft.take_sentences("said", "done: ")
    sentences = [
        _join(done, files),
        _join(draft.take_sentences("decided", "decided: "), draft.take_sentences("preferred", "preferred: ")),
        _join(draft.take_sentences("blocked", "blocked: "), draft.take_sentences("open", "open: ")),
    ]
    text = " ".join(f"{s[0].upper()}{s[1:]}." for s in sentences if s)
    text = text or f"Tools: {', '.join(draft.extracts.tools) or 'none'}."
    if code := draft.take_code():
        text = "\n".join([text, "```", *code, "```"])
    return Summary(text.strip(), {k: "\n".join(v) for k, v in draft.shares.items()})


def _join(*clauses: str) -> str:
    return "; ".join(clause for clause in clauses if clause)


def _extract(messages: Sequence[Message]) -> _Extracts:
    extracts = _Extracts()
    for message in messages:
        if message.role != "system" and message.state == "saved" and "synthetic" not in message.metadata:
            for part in message.parts:
                _extract_part(message, part, extracts)
    return extracts


def _extract_part(message: Message, part: Part, extracts: _Extracts) -> None:
    if isinstance(part, TextPart):
        _extract_text(message, part.text[:READ], extracts)
    elif isinstance(part, ToolCallPart):
        extracts.tools[part.name] = None
        for value in (v for v in (part.arguments or {}).values() if isinstance(v, str)):
            if "\n" in value:
                extracts.add_code(message.id, value[:READ])
            else:
                extracts.add_files(message.id, value[:READ])
    elif isinstance(part, ToolResultPart) and part.is_error:
        error_lines = clean_surrogates(part.content[:READ]).split("\n")
        if line := next(filter(_BLOCKED.search, error_lines), ""):
            extracts.add_sentence("blocked", message.id, " ".join(line.split()))


def _extract_text(message: Message, text: str, extracts: _Extracts) -> None:
    text = clean_surrogates(text)
    for block in _FENCED.findall(text):
        extracts.add_code(message.id, block)
    for sentence in _iter_sentences(_FENCED.sub("\n", text)):
        if kind := _classify(sentence, message.role):
            extracts.add_sentence(kind, message.id, sentence)
        extracts.add_files(message.id, sentence)


def _iter_sentences(text: str) -> Iterator[str]:
    for raw in _SENTENCE.split(text):
        sentence = " ".join(_BULLET.sub("", raw).split()).rstrip(".。:; ")
        if len(sentence) > 2 and any(map(str.isalnum, sentence)):
            yield sentence


def _classify(sentence: str, role: str) -> str:
    if sentence.endswith(("?", "？")):
        return "open"
    if _DECIDED.search(sentence):
        return "decided"
    if role == "user":
        return "preferred" if _PREFERRED.search(sentence) else "blocked" if _BLOCKED.search(sentence) else "said"
    return "built" if _BUILT.search(sentence) else "blocked" if _BLOCKED.search(sentence) else ""


def _key_lines(code: str) -> Iterator[str]:
    for line in code.split("\n"):
        if len(line) <= 200 and _CODE.match(line):
            yield line.rstrip()


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rsplit(' ', 1)[0]}…"


# --- in the background ------------------------------------------------------------------------------------


def select_next_messages(messages: Sequence[Message], first: int) -> list[Message]:
    """Return ten messages from index `first` on, and the tool results of the last one."""
    out = [m for m in messages if m.index >= first]
    end = TEN
    while end < len(out) and out[end].role == "tool":
        end += 1
    return out[:end]


def find_due_level(marks: tuple[int, int], count: int, seen: int) -> int:
    """Return the level to summarize next in a thread of `count` messages (0: none).

    Messages from index `seen` on are still in the window.
    """
    for level, mark, begin in ((1, marks[0], BEGIN[0]), (2, marks[1], BEGIN[1])):
        below = seen if level == 1 else marks[0]
        if mark + begin <= count and mark + TEN <= below:
            return level
    return 0


class Due(Struct, frozen=True):
    """Next ten messages of a thread for a level, and their summary.

    `before` and `after`: the summarized range before and after storing it.
    """

    level: int
    messages: list[Message]
    summary: Summary
    before: tuple[int, int]
    after: tuple[int, int]


def find_next_due(db: Database, thread_id: str, seen: int) -> Due | None:
    """Return the next messages due for a summary; runs as a read, so that no write is delayed."""
    thread = threads.get(db, thread_id)
    marks = message_store.read_levels(thread.metadata if thread else {})
    level = find_due_level(marks, message_store.count_messages(db, thread_id), seen)
    if not level:
        return None
    first = marks[level - 1]
    ten = select_next_messages(message_store.list_between(db, thread_id, first, first + TEN + BEHIND), first)
    if len(ten) < TEN or ten[-1].index >= seen or any(m.state == "provisional" for m in ten):
        return None
    after = (ten[-1].index + 1, marks[1]) if level == 1 else (marks[0], ten[-1].index + 1)
    return Due(level, ten, summarize(ten, level), marks, after)


def store_due(db: Database, due: Due) -> bool:
    """Store a summary; False if another process has summarized these messages meanwhile."""
    thread = threads.get(db, due.messages[0].thread_id)
    if thread is None or message_store.read_levels(thread.metadata) != due.before:
        return False
    message_store.put_summaries(db, due.messages, due.level, due.summary.text, due.summary.taken, due.after)
    return True


class Levels:
    """Summaries of one open thread; `shown` are those sent in place of older messages in this turn."""

    def __init__(self, store: Store, counter: Counter) -> None:
        self._store, self._counter = store, counter
        self.task: asyncio.Task[None] | None = None
        self.shown: list[SummarisedRange] = []
        self.blocks: list[Message] = []  # replace older messages in requests: never stored, shown, searched or observed

    def running(self) -> list[asyncio.Task[None]]:
        return [self.task] if self.task is not None and not self.task.done() else []

    async def load(self, thread: Thread) -> None:
        """Load the summaries that replace older messages, only between two turns, to keep the prefix stable."""
        summaries = await self._store.read(message_store.list_summaries, thread.id, above=WORTH_TOKENS, limit=SENT)
        if summaries != self.shown:
            self.shown, self.blocks = summaries, [self._block(s, thread) for s in summaries]

    def start(self, window: Window, seen: int) -> None:
        """Start the summaries that are due after a turn, in the background."""
        count = window.messages[-1].index + 1 if window.messages else window.cursor + 1
        if not self.running() and find_due_level(message_store.read_levels(window.thread.metadata), count, seen):
            self.task = asyncio.create_task(self._work(window, seen))

    async def _work(self, window: Window, seen: int) -> None:
        with contextlib.suppress(SaktiError):  # nothing is lost: it is due again after the next turn
            for _ in range(AT_ONCE):
                due = await self._store.read(find_next_due, window.thread.id, seen)
                if due is None or not await self._store.write(store_due, due):
                    break
                changed = {**window.thread.metadata, message_store.LEVELS_KEY: list(due.after)}
                window.thread = structs.replace(window.thread, metadata=changed)

    def select_uncovered_messages(self, messages: Sequence[Message], keep: Sequence[Message]) -> list[Message]:
        """Return the messages not replaced by a block, and those of `keep`."""
        keep_ids = {m.id for m in keep}
        covered = {i for s in self.shown for i in range(s.first, s.last + 1)}
        return [m for m in messages if m.index not in covered or m.id in keep_ids]

    def _block(self, summary: SummarisedRange, thread: Thread) -> Message:
        head = f'<earlier-messages from="{summary.first}" to="{summary.last}">'
        text = f"{head}\n{read_prompt('memory#earlier-messages')}\n\n{summary.text}\n</earlier-messages>"
        tokens = self._counter.count(text)
        return Message(
            f"earlier-{summary.first}",
            thread.id,
            thread.resource_id,
            "user",
            (TextPart(text),),
            0,
            summary.first,
            tokens=tokens + MESSAGE_OVERHEAD,
            part_tokens=(tokens,),
            token_counter=self._counter.name,
            metadata={"synthetic": "earlier"},
        )
