"""Measure on planted sessions what a log retains over its generations, and what it says that nobody said."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct, field

from sakti.core.tokens import Counter
from sakti.core.types import Json, join_plain_text
from sakti.memory.protocol import Observer, Reflector
from sakti.store.log.replacements import MARK, NOTE
from tests.bench.memory_bench import Observed, Tally, open_observed, outcome, play_turn
from tests.bench.planted import Session, generate

_VALUE = re.compile(r"`[^`]+`|[\w@/:.-]*\d[\w@/:.-]*|\b[A-Z]+_[A-Z_]+\b|[\w-]+(?:/[\w.-]+)+")
# What the log itself adds: times, the meaning of a relative date, counts of what was left out, ids to recall.
_ADDED = re.compile(
    r"\(\d{1,2}:\d{2}\)|\(meaning [^)]*\)|… \d+ more \w+, recall \w+|\[unverified\]|\brecall \w+|\[O\d+[^\]]*\]"
)


class PlantedFigures(Struct):
    """Sums over sessions; `retention`: for each generation facts in the log, and facts no longer raw."""

    tally: Tally
    retention: dict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    lines: int = 0
    invented: int = 0

    def as_json(self, generations: int) -> Json:
        figures = self.tally.as_json()
        shares = [self.retention.get(g, [0, 0]) for g in range(1, generations + 1)]
        return {
            "retention": [there / of if of else None for there, of in shares],
            "invented_per_1000": 1000 * self.invented / self.lines if self.lines else 0.0,
            "false_replaced": figures["wrongly_marked"],
            "stale": figures["contradicted"],
        }


async def measure(
    seeds: Iterable[int], observer: Observer, reflector: Reflector, counter: Counter, generations: int
) -> Json:
    """Play planted sessions, and ask after each generation up to the `generations`-th."""
    figures = PlantedFigures(Tally(observer.name))
    for seed in seeds:
        async with open_observed(counter, observer, reflector) as memory:
            await _play(generate(seed), memory, figures, generations)
    return figures.as_json(generations)


async def _play(session: Session, memory: Observed, figures: PlantedFigures, generations: int) -> None:
    said = session_text(session)
    lines: dict[str, bool] = {}
    for number in range(len(session.turns)):
        grown = await play_turn(session, number, memory)
        generation = memory.engine.state.window.record.generation_count
        if not grown or not 1 <= generation <= generations:
            continue
        log, seen = memory.log(), memory.sees()
        raw = "\n".join(join_plain_text(m.parts) for m in memory.engine.preview().messages)
        for fact in session.facts:
            if fact.said[-1].turn > number:
                continue
            figures.tally.judge_marks(fact, log)
            figures.tally.categories[fact.category][await outcome(fact, seen, memory)] += 1
            if not fact.answered(raw):
                figures.retention[generation][0] += fact.answered(log)
                figures.retention[generation][1] += 1
        lines |= {line: is_invented(line, said) for line in log.split("\n") if line.lstrip().startswith(("* ", "- "))}
    figures.lines += len(lines)
    figures.invented += sum(lines.values())


def session_text(session: Session) -> str:
    """Return everything that is said, called and printed in a session, in lower case."""
    pieces = ((t.user, t.tool, str(t.arguments), t.output, t.answer) for t in session.turns)
    return "\n".join("\n".join(p) for p in pieces).casefold()


def is_invented(line: str, said: str) -> bool:
    """Return whether a line of a log has a value (number, name with digits, path, code) that nobody said."""
    content = _ADDED.sub(" ", MARK.sub(" ", NOTE.sub(" ", line)))
    values = (v.strip("`.,:;-").casefold() for v in _VALUE.findall(content))
    return any(v and v not in said for v in values)
