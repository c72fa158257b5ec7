"""Talks written by hand (`tests/talks`), played into a memory, and what its log must show of them at the end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sakti.core.tokens import Estimator
from sakti.core.types import TextPart, ToolCallPart, ToolResultPart
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.memory.reflect.extractive import ExtractiveReflector
from sakti.store.database import Store
from sakti.store.log import lines as memory_log
from sakti.store.log.lines import LogLine
from sakti.store.log.replacements import MARK, NOTE
from tests.bench.bench_store import BenchClock
from tests.bench.memory_bench import Observed

FOLDER = Path(__file__).parent.parent / "talks"
NOISE = "\n".join(f"    value_{n} = compute({n})" for n in range(12))  # a tool's output between what is said


@dataclass(frozen=True, slots=True)
class Talk:
    """`said`: (role, text). `replaced`: (words that hold no more, words of what replaces them); `valid`: words that
    still hold; `quoted`: words that are not the user's."""

    name: str
    said: tuple[tuple[str, str], ...]
    replaced: tuple[tuple[str, str], ...]
    valid: tuple[str, ...]
    quoted: tuple[str, ...]


def load(path: Path) -> Talk:
    said: list[tuple[str, str]] = []
    facts: dict[str, list[str]] = {"replaced": [], "valid": [], "quoted": []}
    for line in path.read_text("utf-8").split("\n"):
        if line[:2] in ("u|", "a|"):
            said.append(({"u": "user", "a": "assistant"}[line[0]], line[2:].strip()))
        elif line.startswith(" |"):
            said[-1] = (said[-1][0], f"{said[-1][1]}\n{line[2:].removeprefix(' ')}")
        elif line and not line.startswith("#"):
            kind, _, words = line.partition(": ")
            facts[kind].append(words)
    replaced = tuple(tuple(words.split(" => ")) for words in facts["replaced"])
    return Talk(path.stem, tuple(said), replaced, tuple(facts["valid"]), tuple(facts["quoted"]))  # pyright: ignore


def all_talks() -> list[Talk]:
    return [load(path) for path in sorted(FOLDER.glob("*.talk"))]


@dataclass(frozen=True, slots=True)
class Played:
    """The log at the end, every current task that there was, and how often the log was condensed."""

    lines: Sequence[LogLine]
    tasks: Sequence[str]
    generations: int
    shown: str


async def play(talk: Talk, folder: Path, limits: tuple[int, int], repeat: int = 3) -> Played:
    """Play a talk into a small memory without a model, followed by small talk until everything is condensed."""
    clock, counter = BenchClock(), Estimator()
    store = await Store.open(folder / f"{talk.name}.db", clock=clock, synchronous="NORMAL")
    memory = Observed(store, clock, counter, ExtractiveObserver(counter), ExtractiveReflector(counter), limits)
    tasks: list[str] = []
    await memory.open()
    try:
        for number, (role, text) in enumerate([*talk.said, *[("user", "go on"), ("assistant", "I will go on.")] * 20]):
            await memory.add(role, TextPart(text))  # pyright: ignore[reportArgumentType]
            if role == "assistant":
                for n in range(repeat):
                    call = f"c{number}-{n}"
                    await memory.add("assistant", ToolCallPart(call, "read", {"path": f"src/part_{number}_{n}.py"}))
                    await memory.add("tool", ToolResultPart(call, "read", NOISE))
                await memory.turn_ends(False)
                tasks.append(str(memory.engine.state.window.thread.metadata.get("current_task") or ""))
        lines = await store.read(memory_log.read_lines, memory.engine.record_id)
        return Played(lines, tasks, memory.engine.state.window.record.generation_count, memory.log())
    finally:
        await memory.engine.close()
        await store.close()


def mistaken(played: Played, talk: Talk) -> list[str]:
    """What still holds and is marked as if it did not."""
    return [words for words in talk.valid if any(_closed(x.marked_text, words) for x in played.lines)]


def lost(played: Played, talk: Talk) -> list[str]:
    """What holds at the end and is nowhere in the log."""
    log = "\n".join(x.content for x in played.lines).casefold()
    return [words for words in (*talk.valid, *(new for _, new in talk.replaced)) if words.casefold() not in log]


def wrong_speaker(played: Played, talk: Talk) -> list[str]:
    """What was only quoted and stands as the user's own statement, or as the task."""
    said = [x.content for x in played.lines if x.priority == "high"]
    return [words for words in talk.quoted if any(words.casefold() in t.casefold() for t in (*said, *played.tasks))]


def _closed(line: str, words: str) -> bool:
    text = NOTE.sub("", line)
    at = text.lower().find(words.lower())
    if at < 0:
        return False
    behind = text[at + len(words) :]
    mark = MARK.search(behind)
    return mark is not None and not re.search(r"[,;.!?](?:\s|$)|\b(?:and|und|but|aber)\b", behind[: mark.start()])
