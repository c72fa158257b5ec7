"""Drive a run: each conversation once per arm, each question once, everything into the log."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from sakti.core import resources
from sakti.core.clock import SystemClock
from sakti.core.config import MemorySettings
from sakti.core.tokens import Counter
from sakti.core.types import Json, join_plain_text
from sakti.importers.inputs import compute_short_hash
from sakti.store.log import lines as log_lines
from sakti.store.threads import messages
from sakti.version import __version__
from tests.bench.longmemeval import generations, prompts, recall, samples
from tests.bench.longmemeval.answers import AnswerModel, JudgeModel, MeteredProvider
from tests.bench.longmemeval.formats import BenchConversation, BenchQuestion, DataSet
from tests.bench.longmemeval.ingest import Ingested, MemoryArm, ingest
from tests.bench.longmemeval.records import RunLog, key_of
from tests.fakes.observers import build_observers

EXTRACTIVE, FULL_CONTEXT, SEARCH_ONLY = "extractive", "full-context", "search-only"
OFFLINE = (EXTRACTIVE, FULL_CONTEXT, SEARCH_ONLY)
PLANTED_SESSIONS = 6
CHECKED_LINES = 200  # lines of the log that the judge checks, of all conversations of an arm
ModelFactory = Callable[[str], MeteredProvider]


class RunPlan(Struct, frozen=True):
    """What to run; `generations`: of planted sessions (0: none)."""

    data: DataSet
    arms: tuple[str, ...] = (EXTRACTIVE,)
    answer: str | None = None
    judge: str | None = None
    memory: MemorySettings = MemorySettings()
    seed: int = 1
    generations: int = 0


async def run(
    plan: RunPlan, log: RunLog, counter: Counter, create: ModelFactory, tell: Callable[[str], None] = lambda _text: None
) -> list[Json]:
    """Return the records of the run; those that the log has already are not measured again."""
    key = key_of("run", plan.data.format, plan.seed, __version__)
    if log.find(key) is None:
        ids = {"repaired": plan.data.repaired, "dropped": plan.data.dropped}
        versions = {"sakti": __version__, "tokens": counter.name}
        record = {"kind": "run", "id": "run", "format": plan.data.format, "seed": plan.seed}
        log.add(key, {**record, "versions": versions, "evidence_ids": ids})
    judge = JudgeModel(create(plan.judge), counter) if plan.judge else None
    try:
        for arm in plan.arms:
            await _ArmRun(plan, arm, log, counter, create, judge).run(tell)
        if judge is not None:
            await _measure_judge(plan, log, judge)
    finally:
        if judge is not None:
            await judge.provider.close()
    return log.used()


class _ArmRun:
    def __init__(
        self, plan: RunPlan, arm: str, log: RunLog, counter: Counter, create: ModelFactory, judge: JudgeModel | None
    ) -> None:
        self._plan, self._arm, self._log, self._counter, self._judge = plan, arm, log, counter, judge
        observer_name = None if arm in OFFLINE else arm
        answer_name = plan.answer or observer_name
        self._observer_model = create(observer_name) if observer_name else None
        self._answer_model = create(answer_name) if answer_name else None
        self._models = {"observer": observer_name, "answer": answer_name, "judge": plan.judge if answer_name else None}
        self._memory = self._make_memory()
        self._what = (
            arm, self._models, plan.seed, to_builtins(plan.memory), prompts.hashes() if answer_name else "",
            _hash_of_memory_prompts() if observer_name else "",
        )  # fmt: skip
        lines_per_conversation = -(-CHECKED_LINES // max(1, len(plan.data.conversations)))
        self._checked_lines = lines_per_conversation if observer_name and judge else 0

    def _make_memory(self) -> MemoryArm:
        plan, model = self._plan, self._observer_model
        settings = plan.memory
        if self._arm == SEARCH_ONLY:
            settings = _without_memory(settings)
        name = model.model if model else None
        observer, reflector = build_observers(
            settings, model, name, model is not None, counter=self._counter, clock=SystemClock()
        )
        return MemoryArm(settings, observer, reflector, whole=self._arm == FULL_CONTEXT)

    async def run(self, tell: Callable[[str], None]) -> None:
        try:
            for conversation in self._plan.data.conversations:
                await self._run_conversation(conversation)
                tell(f"{self._arm}: {conversation.id}, {len(conversation.questions)} questions")
            if self._plan.generations and self._arm not in (FULL_CONTEXT, SEARCH_ONLY):
                await self._run_planted()
        finally:
            for model in (self._observer_model, self._answer_model):
                if model is not None:
                    await model.close()

    async def _run_conversation(self, conversation: BenchConversation) -> None:
        keys = {q.id: key_of("question", q.hash, self._what) for q in conversation.questions}
        conversation_key = key_of("conversation", *keys.values())
        is_known = self._log.find(conversation_key) is not None
        line_keys = [key_of("line", conversation_key, n) for n in range(self._checked_lines)]
        missing = [q for q in conversation.questions if self._log.find(keys[q.id]) is None]
        lines_missing = [n for n, key in enumerate(line_keys) if self._log.find(key) is None]
        if not missing and is_known and len(lines_missing) != len(line_keys):
            lines_missing = []  # fewer lines than wanted: the log was short
        if not missing and is_known and not lines_missing:
            return
        with tempfile.TemporaryDirectory(prefix="sakti-bench-") as name:
            folder = Path(name)
            async with ingest(conversation, self._memory, self._counter, folder, self._plan.seed) as ingested:
                if not is_known:
                    used = {"observer": self._observer_model.take()} if self._observer_model else {}
                    record = {"kind": "conversation", "id": conversation.id, "arm": self._arm, "usage": used}
                    self._log.add(conversation_key, record)
                places = recall.place_turns(conversation, ingested)
                for question in missing:
                    record = await self._measure(question, conversation, ingested, places, folder)
                    self._log.add(keys[question.id], record)
                await self._check_lines(ingested, conversation.id, {n: line_keys[n] for n in lines_missing})

    async def _measure(
        self, question: BenchQuestion, conversation: BenchConversation, ingested: Ingested,
        places: recall.TurnPlaces, folder: Path,
    ) -> Json:  # fmt: skip
        alone = self._arm == FULL_CONTEXT
        searched = None if alone else await recall.search_turns(question, ingested, self._counter)
        reach = recall.measure(
            question, places, searched, by_quotes=self._arm == EXTRACTIVE, by_range=self._observer_model is not None
        )
        record: Json = {
            "kind": "question", "arm": self._arm, "id": question.id, "conversation": conversation.id,
            "type": question.type, "abstention": question.abstention, "evidence": len(question.evidence),
            "models": self._models, "row": question.hash,
            "settings": key_of(to_builtins(self._plan.memory)), "prompts": prompts.hashes(),
            "recall": to_builtins(reach), "log_tokens": ingested.log_tokens, "window_tokens": ingested.window_tokens,
            "results_tokens": searched.tokens if searched else 0, "usage": {},
        }  # fmt: skip
        if self._answer_model is not None:
            record |= await self._answer(self._answer_model, question, ingested, folder, record["usage"])
        return record

    async def _answer(
        self, provider: MeteredProvider, question: BenchQuestion, ingested: Ingested, folder: Path, usage: Json
    ) -> Json:
        model = AnswerModel(provider, self._counter, folder)
        answer = await model.answer(question, ingested, searches=self._arm != FULL_CONTEXT)
        usage["answer"] = provider.take()
        record: Json = {
            "answer": answer.text, "answer_tokens": self._counter.count(answer.text), "steps": answer.steps,
            "searches": answer.searches, "latency_ms": answer.latency_ms,
        }  # fmt: skip
        if self._judge is not None:
            record |= await self._judge.judge(
                question.type, question.text, question.answer, answer.text, abstention=question.abstention
            )
            usage["judge"] = self._judge.provider.take()
        return record

    async def _check_lines(self, ingested: Ingested, conversation_id: str, keys: dict[int, str]) -> None:
        """Let the judge check a sample of the log's lines against the messages that they were taken from."""
        if not keys or self._judge is None or ingested.engine is None:
            return
        listed = await ingested.store.read(log_lines.read_lines, ingested.engine.record_id)
        ranged = [line for line in listed if line.first_index is not None and line.last_index is not None]
        sample = random.Random(self._plan.seed).sample(ranged, min(len(ranged), self._checked_lines))
        for number, key in keys.items():
            if number >= len(sample):
                break
            line = sample[number]
            said = await ingested.store.read(
                messages.list_between, ingested.thread_id, line.first_index or 0, line.last_index or 0
            )
            text = "\n".join(f"{m.role}: {join_plain_text(m.parts)}" for m in said)
            supported = await self._judge.is_supported(line.content, text)
            record = {"kind": "line", "id": f"{conversation_id}/{number}", "arm": self._arm, "line": line.content}
            self._log.add(key, {**record, "supported": supported, "usage": {"judge": self._judge.provider.take()}})

    async def _run_planted(self) -> None:
        key = key_of("planted", self._what, self._plan.generations, PLANTED_SESSIONS)
        if self._log.find(key) is not None:
            return
        seeds = range(self._plan.seed, self._plan.seed + PLANTED_SESSIONS)
        memory = self._memory
        figures = await generations.measure(
            seeds, memory.observer, memory.reflector, self._counter, self._plan.generations
        )
        used = {"observer": self._observer_model.take()} if self._observer_model else {}
        self._log.add(key, {"kind": "planted", "id": "planted", "arm": self._arm, "figures": figures, "usage": used})


def _without_memory(settings: MemorySettings) -> MemorySettings:
    return replace(settings, enabled=False)


def _hash_of_memory_prompts() -> str:
    """Return the hash of the files that tell a model how to observe and condense."""
    names = ("memory.md", "observer.md", "reflector.md")
    files = (folder / name for name in names for folder in resources.iter_folders("prompts"))
    return compute_short_hash(*(file.read_text("utf-8") for file in files if file.is_file()))


async def _measure_judge(plan: RunPlan, log: RunLog, judge: JudgeModel) -> None:
    """Judge the labelled pairs: the judge's own error."""
    for pair in samples.labelled_pairs(plan.seed):
        key = key_of("pair", to_builtins(pair), plan.judge, prompts.hashes()["judge"])
        if log.find(key) is not None:
            continue
        verdict = await judge.judge(pair.type, pair.question, pair.reference, pair.answer, abstention=pair.abstention)
        used = {"judge": judge.provider.take()}
        log.add(key, {"kind": "pair", "id": pair.id, "expected": pair.is_right, **verdict, "usage": used})


def newest(records: Sequence[Json]) -> list[Json]:
    """Return the last record of each question, pair or line of an arm: a log may hold several runs."""
    last = {(r["kind"], r.get("arm", ""), r["id"]): r for r in records}
    return list(last.values())
