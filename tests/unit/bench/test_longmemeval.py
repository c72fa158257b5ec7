"""`python -m tests.bench longmemeval`: both formats, recall against brute force, answers, cost, resumption."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import io
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sakti.agent.tools.memory_search import HitRequest, find_hits
from sakti.core.config import MemorySettings, ObservationSettings, ReflectionSettings
from sakti.core.errors import ProviderError
from sakti.core.tokens import Estimator, O200k
from sakti.core.types import Json, Request, Usage, join_plain_text
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.memory.protocol import ObserveInput, ObserveResult
from sakti.memory.reflect.extractive import ExtractiveReflector
from sakti.providers.scripted import Answer, Call, Played, ScriptedProvider
from sakti.store.search import search
from tests.bench.longmemeval import formats, generations, prompts, run, samples, tables
from tests.bench.longmemeval.answers import MeteredProvider
from tests.bench.longmemeval.formats import BenchConversation, BenchQuestion, DataSet
from tests.bench.longmemeval.ingest import WORKSPACE, Ingested, MemoryArm, ingest
from tests.bench.longmemeval.records import RunLog, read
from tests.bench.longmemeval.run import FULL_CONTEXT, RunPlan
from tests.fakes.shell import bench

SMALL = MemorySettings(
    observation=ObservationSettings(message_tokens=800), reflection=ReflectionSettings(observation_tokens=600)
)
SMALL_OPTIONS = ("-o", "memory.observation.message_tokens=800", "-o", "memory.reflection.observation_tokens=600")
SESSIONS = 5
SHARED = Path(__file__).parents[4] / "shared" / "bench" / "data" / "locomo.dev.json"


def rows_of(format: str) -> list[Json]:
    return (
        [samples.as_locomo(3, sessions=SESSIONS)]
        if format == "locomo"
        else samples.as_longmemeval(3, sessions=SESSIONS)
    )


@pytest.fixture
def locomo(tmp_path: Path) -> Path:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps(rows_of("locomo")))
    return path


def load(path: Path) -> DataSet:
    return formats.load(path)


# --- formats ------------------------------------------------------------------------------------------------


def test_both_formats_have_the_same_turns_questions_and_evidence(tmp_path: Path) -> None:
    conversations: list[BenchConversation] = []
    for name in ("locomo", "longmemeval"):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(rows_of(name)))
        data = load(path)
        assert (data.format, data.repaired, data.dropped) == (name, 0, 0)
        (conversation,) = data.conversations  # the rows of LongMemEval share their haystack
        conversations.append(conversation)
    talk = samples.generate(3, sessions=SESSIONS)
    for conversation in conversations:
        text = {t.id: t.spoken for t in conversation.turns}
        assert len(conversation.questions) == 20
        assert len({q.type for q in conversation.questions}) >= 5
        for question, planted in zip(conversation.questions, talk.questions, strict=True):
            assert question.abstention is planted.is_abstention
            said = sorted(text[id] for piece in question.evidence for id in piece)
            assert len(said) == len(planted.facts)
            assert all(any(fact.text in one for one in said) for fact in planted.facts)
    first, second = ([(t.role, t.spoken, t.time) for t in c.turns] for c in conversations)
    assert first == second
    times = [t.time for t in conversations[0].turns]
    assert times == sorted(times)
    assert any(b - a > 86_400_000 for a, b in itertools.pairwise(times))


def test_evidence_without_marked_turns_counts_by_session(tmp_path: Path) -> None:
    row = next(r for r in rows_of("longmemeval") if r["question_type"] == "multi-session")
    for session in row["haystack_sessions"]:
        for turn in session:
            turn.pop("has_answer", None)
    path = tmp_path / "data.json"
    path.write_text(json.dumps([row]))
    (conversation,) = load(path).conversations
    (question,) = conversation.questions
    assert len(question.evidence) == len(row["answer_session_ids"])
    assert all(len(piece) >= samples.TURNS for piece in question.evidence)


def test_malformed_ids_of_evidence_are_repaired_or_counted() -> None:
    data = DataSet("locomo")
    known = {"D8:6", "D9:17", "D11:26", "D1:1"}
    assert formats.read_evidence(["D8:6; D9:17", "D:11:26", "D1:01"], known, data) == [
        "D8:6",
        "D9:17",
        "D11:26",
        "D1:1",
    ]
    assert (data.repaired, data.dropped) == (3, 0)
    assert formats.read_evidence(["D4:36", "D", "D8:6"], known, data) == ["D8:6"]
    assert (data.repaired, data.dropped) == (3, 2)


@pytest.mark.parametrize("text", ['[{"messages": []}]', "{}", "[]", "not JSON"])
def test_an_unknown_shape_names_the_expected_fields(tmp_path: Path, text: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(text)
    ended = bench("longmemeval", "--data", str(path))
    assert ended.exit_code == 2
    assert text == "not JSON" or all(word in ended.stderr for word in ("haystack_sessions", "conversation", "qa"))


LOCOMO_ROW: Json = {
    "conversation": {
        "speaker_a": "A",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "A", "dia_id": "D1:1", "text": "I like plums"},
            {"speaker": "B", "dia_id": "D1:2", "text": "So do I"},
        ],
    },
    "qa": [{"question": "Who likes plums?", "answer": 7, "category": 1, "evidence": ["D1:1; D1:2"]}],
}
LONGMEMEVAL_ROW: Json = {
    "question_id": "q1",
    "question_type": "multi-session",
    "question": "What does A like?",
    "answer": 7,
    "question_date": "2023/05/30 (Tue) 23:40",
    "haystack_dates": ["2023/05/20 (Sat) 02:21"],
    "haystack_session_ids": ["s1"],
    "haystack_sessions": [[{"role": "user", "content": "I like plums"}]],
    "answer_session_ids": ["s1"],
}


def write(path: Path, rows: Any) -> Path:
    path.write_text(json.dumps(rows))
    return path


@pytest.mark.parametrize(
    ("row", "at", "value", "named"),
    [
        (LOCOMO_ROW, ("conversation",), {}, "row.conversation"),
        (LOCOMO_ROW, ("conversation",), [], "row.conversation"),
        (LOCOMO_ROW, ("conversation", "session_1"), [], "row.conversation"),
        (LOCOMO_ROW, ("conversation", "session_1"), {"a": 1}, "row.conversation.session_1"),
        (LOCOMO_ROW, ("conversation", "session_1_date_time"), "yesterday", "row.conversation.session_1_date_time"),
        (LOCOMO_ROW, ("conversation", "session_1", 1, "text"), None, "row.conversation.session_1[1].text"),
        (LOCOMO_ROW, ("conversation", "session_1", 0, "text"), "a\ud800b", "row.conversation.session_1[0].text"),
        (LOCOMO_ROW, ("conversation", "session_1", 0, "dia_id"), "D1:2", "dia_id 'D1:2'"),
        (LOCOMO_ROW, ("conversation", "speaker_a"), 5, "row.conversation.speaker_a"),
        (LOCOMO_ROW, ("qa", 0, "question"), None, "row.qa[0].question"),
        (LOCOMO_ROW, ("qa", 0, "question"), ["a"], "row.qa[0].question"),
        (LOCOMO_ROW, ("qa", 0, "category"), 9, "row.qa[0].category"),
        (LOCOMO_ROW, ("qa", 0, "evidence"), "D1:1", "row.qa[0].evidence"),
        (LONGMEMEVAL_ROW, ("haystack_sessions",), [[]], "row.haystack_sessions"),
        (LONGMEMEVAL_ROW, ("haystack_sessions",), [], "haystack_sessions"),
        (LONGMEMEVAL_ROW, ("haystack_sessions", 0, 0, "content"), None, "row.haystack_sessions[0][0].content"),
        (LONGMEMEVAL_ROW, ("haystack_sessions", 0, 0, "role"), "system", "row.haystack_sessions[0][0].role"),
        (LONGMEMEVAL_ROW, ("question",), 5, "row.question"),
        (LONGMEMEVAL_ROW, ("question_type",), ["a"], "row.question_type"),
        (LONGMEMEVAL_ROW, ("question_date",), None, "row.question_date"),
        (LONGMEMEVAL_ROW, ("answer",), None, "row.answer"),
    ],
)
def test_a_malformed_row_is_refused_with_its_number_and_field(
    tmp_path: Path, row: Json, at: Sequence[str | int], value: Any, named: str
) -> None:
    first, second = copy.deepcopy(row), copy.deepcopy(row)
    first |= {"sample_id": "first", "question_id": "q0"}
    field: Any = second
    for key in at[:-1]:
        field = field[key]
    field[at[-1]] = value
    path = write(tmp_path / "data.json", [first, second])
    ended = bench("longmemeval", "--data", str(path))
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert f"{path}, row 2: " in ended.stderr
    assert named in ended.stderr
    assert len(formats.load(path, limit=1).conversations) == 1, "rows after the limit are not read"


@pytest.mark.parametrize("row", [LOCOMO_ROW | {"sample_id": "c"}, LONGMEMEVAL_ROW])
def test_rows_with_equal_ids_are_refused(tmp_path: Path, row: Json) -> None:
    ended = bench("longmemeval", "--data", str(write(tmp_path / "data.json", [row, row])))
    assert (ended.exit_code, "row 2: another row has the id" in ended.stderr) == (2, True)


def test_deeply_nested_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text("[" * 100_000)
    ended = bench("longmemeval", "--data", str(path))
    assert (ended.exit_code, "is not JSON" in ended.stderr) == (2, True)


def test_ids_of_evidence_are_counted_for_the_questions_within_the_limit(tmp_path: Path) -> None:
    rows = [LOCOMO_ROW | {"sample_id": str(n), "qa": LOCOMO_ROW["qa"] * 2} for n in range(2)]
    path = write(tmp_path / "data.json", rows)
    assert [formats.load(path, limit=n).repaired for n in (None, 1, 2, 3)] == [4, 1, 2, 3]


def test_sessions_with_one_id_are_evidence_together(tmp_path: Path) -> None:
    doubled = {k: v * 2 for k, v in LONGMEMEVAL_ROW.items() if k.startswith("haystack_")}
    (conversation,) = load(write(tmp_path / "data.json", [LONGMEMEVAL_ROW | doubled])).conversations
    assert conversation.questions[0].evidence == (("0:0", "1:0"),)


def test_samples_are_made_in_a_known_format_only() -> None:
    runner = CliRunner()
    assert runner.invoke(samples.app, []).exit_code == 2
    assert runner.invoke(samples.app, ["foo", "1"]).exit_code == 2
    made = runner.invoke(samples.app, ["locomo", "11", "12"])
    assert [row["sample_id"] for row in json.loads(made.stdout)] == ["sample-11", "sample-12"]


def test_the_real_file_is_read() -> None:
    if not SHARED.exists():
        pytest.skip("the data set is not here; it is never part of the repository")
    data = load(SHARED)
    assert data.format == "locomo"
    assert len(data.conversations) == 5
    assert (data.repaired, data.dropped) == (5, 1)
    assert Counter(q.type for c in data.conversations for q in c.questions)["adversarial"] == 232


# --- evidence recall ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["locomo", "longmemeval"])
def test_recall_equals_brute_force(tmp_path: Path, format: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps(rows_of(format)))
    ended = bench("longmemeval", "--data", str(path), "--json", *SMALL_OPTIONS)
    assert ended.exit_code == 0, ended.output
    figures = json.loads(ended.stdout)
    assert (figures["format"], figures["questions"]) == (format, 20)
    (arm,) = figures["arms"]
    assert arm["name"] == "extractive"
    assert arm["answers"] is None
    (conversation,) = load(path).conversations
    expected = asyncio.run(_check_by_brute_force(conversation, tmp_path))
    for place, shares in expected.items():
        assert {s: arm["recall"][place][s] for s in ("any", "all")} == pytest.approx(shares, abs=1e-4), place
    assert 0 < expected["context"]["any"] < 1
    assert 0 < expected["search"]["all"] <= expected["either"]["all"] <= expected["in_reach"]["all"]
    assert arm["tokens"]["results"] > 0


async def _check_by_brute_force(conversation: BenchConversation, folder: Path) -> dict[str, dict[str, float]]:
    counter = O200k()
    arm = MemoryArm(SMALL, ExtractiveObserver(counter), ExtractiveReflector(counter))
    rows: list[dict[str, tuple[bool, bool]]] = []
    async with ingest(conversation, arm, counter, folder, 1) as memory:
        assert memory.engine is not None
        assert memory.engine.state.window.record.generation_count > 0
        stored = await memory.store.read(lambda db: db.execute_sql("SELECT id, created_at FROM messages").fetchall())
        assert [t.time for t in conversation.turns] == [time for _, time in sorted(stored, key=lambda r: r[1])]
        context = "\n".join(b.text for b in memory.blocks)
        raw = {join_plain_text(m.parts) for m in memory.messages}
        for question in conversation.questions:
            if not question.abstention:
                rows.append(await _places(question, conversation, memory, context, raw))
    return {
        place: {share: sum(r[place][i] for r in rows) / len(rows) for i, share in enumerate(("any", "all"))}
        for place in rows[0]
    }


async def _places(
    question: BenchQuestion, conversation: BenchConversation, memory: Ingested, context: str, raw: set[str]
) -> dict[str, tuple[bool, bool]]:
    page = await memory.store.read(
        search.search, question.text, search.Scope(WORKSPACE), limit=10, now=question.asked_at
    )
    texts = {h.text for h in page.hits if h.kind == "message"}
    request = HitRequest(question.text, search.Scope(WORKSPACE), 10)
    answer = await memory.store.read(find_hits, request, O200k(), {m.id for m in memory.messages})
    named = {m.id: join_plain_text(m.parts) for m in memory.messages}
    results = {named.get(r["id"], r["text"]) for r in answer["results"]}
    results |= {n["text"] for r in answer["results"] for n in r.get("neighbours", ())}
    by_id = {t.id: t for t in conversation.turns}
    there: dict[str, list[bool]] = {"context": [], "search": [], "either": [], "results": [], "in_reach": []}
    for (id,) in question.evidence:
        turn = by_id[id]
        size = min(60, len(turn.spoken))
        quoted = any(turn.spoken[n : n + size] in context for n in range(len(turn.spoken) - size + 1))
        in_search = any(turn.text in text for text in texts)
        there["context"].append(quoted or turn.text in raw)
        there["search"].append(in_search)
        there["either"].append(quoted or turn.text in raw or in_search)
        in_results = any(turn.text in text for text in results)
        there["results"].append(in_results)
        there["in_reach"].append(quoted or turn.text in raw or in_results)
    return {place: (any(hits), all(hits)) for place, hits in there.items()}


def test_intervals_resample_whole_conversations() -> None:
    same = [{"conversation": "a", "x": x} for x in (0, 1) * 10] + [{"conversation": "b", "x": x} for x in (0, 1) * 10]
    assert tables.interval(same, lambda r: r["x"], 1) == (0.5, 0.5)
    assert tables.interval(same[:20], lambda r: r["x"], 1) is None
    apart = [{"conversation": str(n), "x": n % 2} for n in range(40)]
    ends = tables.interval(apart, lambda r: r["x"], 1)
    assert ends == tables.interval(apart, lambda r: r["x"], 1)
    assert ends is not None
    low, high = ends
    assert low == pytest.approx(0.5 - 1.96 * math.sqrt(0.25 / 40), abs=0.03)
    assert high == pytest.approx(0.5 + 1.96 * math.sqrt(0.25 / 40), abs=0.03)


def test_tables_and_json_show_one_figure_rounded_once(tmp_path: Path) -> None:
    hit = {"kind": "question", "arm": "a", "type": "t", "abstention": False, "evidence": 1, "usage": {}}
    hit |= {"models": {"answer": None}, "log_tokens": 1, "window_tokens": 1, "results_tokens": 1, "conversation": "c"}
    records = [hit | {"id": n, "recall": {"context": {"any": n >= 2, "all": n >= 2}}} for n in range(58)]
    figures = tables.summarize(records, 1)
    assert figures["arms"][0]["recall"]["context"]["any"] == 56 / 58
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        tables.say(figures | {"evidence_ids": {}})
    assert "96.6 % [–] /  96.6 % [–]" in output.getvalue()


# --- answers ------------------------------------------------------------------------------------------------

QUESTION_USAGE = Usage(1_000, 400, 0, 20, cost_usd=0.01)
JUDGE_USAGE = Usage(100, 0, 0, 1, cost_usd=0.002)


class Models:
    """Scripted models by name; `requests` are those of each."""

    def __init__(self, **players: Callable[[Request], Played]) -> None:
        self._players = players
        self.requests: dict[str, list[Request]] = {name: [] for name in players}

    def create(self, name: str) -> MeteredProvider:
        provider = ScriptedProvider(self._players[name])
        provider.requests = self.requests[name]
        return MeteredProvider(provider, name)


def prompt_of(request: Request) -> str:
    return join_plain_text(request.messages[-1].parts)


def answer_to(request: Request) -> Played:
    """Search once, then answer with the question itself."""
    if request.messages[-1].role == "tool":
        question = next(m for m in reversed(request.messages) if m.role == "user")
        return Answer(f"About: {join_plain_text(question.parts)}", usage=QUESTION_USAGE)
    call = Call("memory-search", {"action": "search", "query": prompt_of(request)})
    return Answer("", calls=(call,), usage=QUESTION_USAGE)


def answer_at_once(request: Request) -> Played:
    return Answer(f"About: {prompt_of(request)}", usage=QUESTION_USAGE)


def accept(request: Request) -> Played:
    return Answer("Yes.", usage=JUDGE_USAGE)


def accept_who(request: Request) -> Played:
    """Accept answers to questions that begin with one of two words."""
    text = prompt_of(request)
    return Answer("yes" if "Question: Where" in text or "Question: Who" in text else "No", usage=JUDGE_USAGE)


def measure(plan: RunPlan, models: Models, log: Path | None = None, *, resume: bool = False) -> Json:
    records = asyncio.run(run.run(plan, RunLog(log, resume=resume), O200k(), models.create))
    return tables.summarize(records, plan.seed)


def test_accuracy_cost_and_judge_error_equal_values_computed_by_hand(locomo: Path) -> None:
    models = Models(reader=answer_to, judge=accept_who)
    data = load(locomo)
    plan = RunPlan(data, ("search-only",), answer="reader", judge="judge")
    figures = measure(plan, models)
    (arm,) = figures["arms"]
    questions = data.conversations[0].questions
    plain = [q for q in questions if not q.abstention]
    apart = [q for q in questions if q.abstention]
    right = sum(q.text.startswith("Where") for q in plain)
    assert 0 < right < len(plain)
    assert arm["answers"]["accuracy"] == pytest.approx(right / len(plain), abs=1e-4)
    assert arm["answers"]["ci"] is None, "one conversation says nothing of others"
    assert arm["answers"]["abstention"] == sum(q.text.startswith("Who") for q in apart) / len(apart) == 1.0
    wrong_types = [q.type for q in plain if q.type == "temporal"]
    assert wrong_types
    assert arm["answers"]["by_type"]["temporal"] == 0.0
    # two calls per question: the search, and the answer
    assert arm["tokens"]["answer"] == {"fresh": 1_200.0, "cached": 800.0, "output": 40.0}
    assert arm["usd_per_question"] == {"answer": 0.02, "observer": None, "judge": 0.002}
    assert len(models.requests["reader"]) == 40
    assert all(len(r.tools) == 1 for r in models.requests["reader"])
    pairs = samples.labelled_pairs(plan.seed)
    expected = sum((p.question.startswith(("Where", "Who"))) is not p.is_right for p in pairs)
    assert arm["judge_error"] == pytest.approx(expected / 100)
    assert len(models.requests["judge"]) == 20 + 100
    shown = " ".join(b.text for r in models.requests["judge"] for b in r.system)
    assert all(turn.spoken not in shown for turn in data.conversations[0].turns)


def test_a_judge_that_accepts_everything_shows_its_error(locomo: Path) -> None:
    models = Models(reader=answer_at_once, judge=accept)
    plan = RunPlan(load(locomo), (FULL_CONTEXT,), answer="reader", judge="judge")
    (arm,) = measure(plan, models)["arms"]
    assert (arm["answers"]["accuracy"], arm["answers"]["abstention"]) == (1.0, 1.0)
    assert arm["judge_error"] == sum(not p.is_right for p in samples.labelled_pairs(1)) / 100 == 0.5
    assert all(not r.tools for r in models.requests["reader"]), "the whole conversation is in front of it"
    assert arm["recall"]["context"] == {"any": 1.0, "all": 1.0, "ci": {"any": None, "all": None}}


def test_a_reader_stops_after_six_steps_and_wrong_calls_are_answered(locomo: Path) -> None:
    def search_forever(request: Request) -> Played:
        if request.tool_choice == "none":
            return Answer("I do not know.", usage=QUESTION_USAGE)
        wrong = Call("memory-search", {"action": "no such action"})
        return Answer("", calls=(wrong,), usage=QUESTION_USAGE)

    models = Models(reader=search_forever)
    data = formats.load(locomo, limit=2)
    records = asyncio.run(
        run.run(RunPlan(data, ("search-only",), answer="reader"), RunLog(None), Estimator(), models.create)
    )
    questions = [r for r in records if r["kind"] == "question"]
    assert [(r["answer"], r["steps"], r["searches"]) for r in questions] == [("I do not know.", 6, 5)] * 2


def test_a_model_observes_and_its_source_ranges_have_a_column(locomo: Path) -> None:
    def observe(request: Request) -> Played:
        text = f"Date: Mar 1, 2025\n* 🔴 (09:00) User told something ({len(prompt_of(request))} characters)"
        usage = Usage(500, 0, 0, 30, cost_usd=0.001)
        if "Is everything in the line said" in prompt_of(request):
            return Answer("no", usage=usage)
        if request.messages[-1].id == "bench-user":
            return Answer("I do not know.", usage=usage)
        return Answer(f"<observations>\n{text}\n</observations>", usage=usage)

    models = Models(model=observe, judge=lambda r: Answer("no" if "Line:" in prompt_of(r) else "yes"))
    plan = RunPlan(load(locomo), ("model",), judge="judge", memory=SMALL)
    (arm,) = measure(plan, models)["arms"]
    assert arm["recall"]["source_range"]["all"] == 1.0, "everything that is not raw lies behind a line"
    assert arm["recall"]["context"]["any"] < 1.0, "no line quotes its messages"
    assert arm["tokens"]["observer"]["fresh"] > 0
    assert arm["usd_per_question"]["observer"] > 0
    assert arm["unsupported_per_1000"] == 1_000.0
    assert arm["models"] == {"observer": "model", "answer": "model", "judge": "judge"}


# --- the log ------------------------------------------------------------------------------------------------


def test_a_killed_run_continues_without_asking_a_question_twice(locomo: Path, tmp_path: Path) -> None:
    asked: Counter[str] = Counter()

    def stop_after_seven(request: Request) -> Played:
        if len(asked) == 7:
            raise ProviderError("killed", code="invalid_request")
        return counted(request)

    def counted(request: Request) -> Played:
        asked[prompt_of(request)] += 1
        return answer_at_once(request)

    data, log = load(locomo), tmp_path / "log.jsonl"
    plan = RunPlan(data, (FULL_CONTEXT,), answer="reader", judge="judge")
    with pytest.raises(ProviderError):
        measure(plan, Models(reader=stop_after_seven, judge=accept_who), log)
    complete = log.read_text()
    log.write_text(complete + '{"key": "torn')
    assert len(asked) == 7
    figures = measure(plan, Models(reader=counted, judge=accept_who), log, resume=True)
    assert set(asked.values()) == {1}
    assert len(asked) == 20
    assert log.read_text().startswith(complete)
    keys = [r["key"] for r in read(log)]
    assert len(keys) == len(set(keys))
    whole = measure(plan, Models(reader=answer_at_once, judge=accept_who))
    for each in (figures, whole):
        del each["arms"][0]["latency_ms"]
    assert figures == whole
    scored = json.loads(bench("longmemeval", "--score", str(log), "--json").stdout)
    del scored["arms"][0]["latency_ms"]
    assert scored == json.loads(json.dumps(whole))


def test_records_of_other_prompts_models_and_settings_are_not_reused(
    locomo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, log = formats.load(locomo, limit=2), tmp_path / "log.jsonl"
    calls: list[str] = []

    def answer(request: Request) -> Played:
        calls.append(request.model)
        return answer_at_once(request)

    def calls_of(**changes: Any) -> int:
        before = len(calls)
        plan = RunPlan(data, (FULL_CONTEXT,), **{"answer": "one", "judge": "judge", **changes})
        measure(plan, Models(one=answer, two=answer, judge=accept, strict=accept), log, resume=True)
        return len(calls) - before

    assert [calls_of(), calls_of()] == [2, 0]
    assert calls_of(answer="two") == 2
    assert calls_of(judge="strict") == 2
    assert calls_of(memory=SMALL) == 2
    assert calls_of(seed=2) == 2
    monkeypatch.setattr(prompts, "JUDGE", prompts.JUDGE + " Be strict.")
    assert calls_of() == 2
    ended = bench("longmemeval", "--data", str(locomo), "--log", str(log))
    assert (ended.exit_code, "--resume" in ended.stderr) == (2, True)


@pytest.mark.parametrize("text", ["my only notes, one line", "1\n", '{"a": 1}\n', '[{"qa": []}]', "\n"])
@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_a_file_that_is_not_a_log_is_refused_and_kept(
    locomo: Path, tmp_path: Path, text: str, resume: tuple[str, ...]
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text(text)
    ended = bench("longmemeval", "--data", str(locomo), "--limit", "1", "--log", str(notes), *resume)
    assert (ended.exit_code, ended.stderr.count("\n")) == (2, 1)
    assert f"{notes} is not a log of this benchmark" in ended.stderr
    assert notes.read_text() == text
    ended = bench("longmemeval", "--score", str(notes))
    assert (ended.exit_code, "is not a log of this benchmark" in ended.stderr) == (2, True)


def test_an_empty_file_becomes_a_log(locomo: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.touch()
    ended = bench("longmemeval", "--data", str(locomo), "--limit", "1", "--log", str(log), "--resume")
    assert ended.exit_code == 0, ended.output
    assert read(log)[0]["kind"] == "run"


def test_a_log_that_cannot_be_written_is_refused_before_anything_is_measured(locomo: Path) -> None:
    for path in (locomo / "log.jsonl", Path("/dev/full"), locomo.parent):
        ended = bench("longmemeval", "--data", str(locomo), "--log", str(path))
        assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
        assert f"{path} cannot be " in ended.stderr


@pytest.mark.parametrize("field", ["kind", "models", "usage", "recall", "arm"])
def test_a_log_with_an_incomplete_record_is_refused_with_its_line(locomo: Path, tmp_path: Path, field: str) -> None:
    log = tmp_path / "log.jsonl"
    measure(RunPlan(formats.load(locomo, limit=1), (FULL_CONTEXT,)), Models(), log)
    records = read(log)
    (number,) = (n for n, r in enumerate(records) if r["kind"] == "question")
    del records[number][field]
    log.write_text("".join(json.dumps(r) + "\n" for r in records))
    ended = bench("longmemeval", "--score", str(log))
    assert (ended.exit_code, ended.stderr.count("\n")) == (2, 1)
    assert f"line {number + 1}: " in ended.stderr
    assert f"`{field}`" in ended.stderr


def test_an_arm_without_a_reader_says_that_only_recall_is_measured(locomo: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    arms = ("--arm", "search-only", "--arm", "full-context")
    ended = bench("longmemeval", "--data", str(locomo), *arms, "--log", str(log))
    assert ended.exit_code == 0, ended.output
    assert "no answer model: evidence recall only" in ended.stdout
    multi = ended.stdout.index("multi-hop")
    assert all(multi < ended.stdout.index(name) for name in ("open-domain", "single-hop", "temporal"))
    assert bench("longmemeval", "--score", str(log)).stdout == ended.stdout
    again = bench("longmemeval", "--data", str(locomo), *arms, "--log", str(log), "--resume")
    assert again.stdout == ended.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--data"),
        (("--data", "{data}", "--resume"), "--log"),
        (("--data", "{data}", "--judge", "x/y"), "--answer"),
        (("--data", "{data}", "--format", "longmemeval"), "haystack_sessions"),
        (("--score", "{data}"), "log"),
        (("--score", "{data}", "--seed", "99"), "--seed"),
        (("--score", "{data}", "--data", "{data}"), "--data"),
        (("--score", "{data}", "--resume"), "--resume"),
        (("--score", "{data}", "-o", "memory.enabled=false"), "-o"),
        (("--data", "{data}", "--arm", ""), "--arm"),
        (("--data", "{data}", "--answer", ""), "--answer"),
    ],
)
def test_wrong_usage_says_what_to_do(locomo: Path, arguments: tuple[str, ...], words: str) -> None:
    ended = bench("longmemeval", *(a.replace("{data}", str(locomo)) for a in arguments))
    assert (ended.exit_code, words in ended.stderr) == (2, True), ended.output


# --- planted sessions ---------------------------------------------------------------------------------------


class LyingObserver:
    """Observer that adds a value that nobody said to each observation."""

    name = "lying"

    def __init__(self, counter: O200k) -> None:
        self._honest = ExtractiveObserver(counter)

    async def observe(self, request: ObserveInput) -> ObserveResult:
        observed = await self._honest.observe(request)
        return ObserveResult(f"{observed.text}\n* 🔴 (12:00) User stated: The port is 40404.", model=self.name)


def test_inventions_and_retention_of_planted_sessions_are_counted() -> None:
    counter = O200k()
    reflector = ExtractiveReflector(counter)
    honest = asyncio.run(generations.measure((4,), ExtractiveObserver(counter), reflector, counter, 6))
    assert honest["invented_per_1000"] == 0.0
    assert len(honest["retention"]) == 6
    shares = [share for share in honest["retention"] if share is not None]
    assert len(shares) >= 2
    assert all(share > 0.5 for share in shares)
    lying = asyncio.run(generations.measure((4,), LyingObserver(counter), reflector, counter, 2))
    assert lying["invented_per_1000"] > 0


def test_invented_values_are_those_that_nobody_said() -> None:
    said = "the port is 8080, see src/app.py and `make check` on 2027-03-04"
    for line in (
        "* 🔴 (14:30) User stated: The port is 8080.",
        "* (09:12) User said: … 2 more statements, recall a1b2c3",
    ):
        assert not generations.is_invented(line, said)
    assert not generations.is_invented("* 🔴 (1:00) due (meaning Mar 4, 2027 - 3 months ago), `make check`", said)
    for line in ("* 🔴 The port is 9090.", "* see src/other.py", "* run `make test`", "* set MAX_SIZE"):
        assert generations.is_invented(line, said)


def test_labelled_pairs_are_half_right_and_the_same_for_a_seed() -> None:
    pairs = samples.labelled_pairs(5)
    assert pairs == samples.labelled_pairs(5)
    assert len(pairs) == 100
    assert sum(p.is_right for p in pairs) == 50
    assert all((p.reference in p.answer) is p.is_right for p in pairs if not p.abstention)
    assert 5 < sum(p.abstention for p in pairs) < 25
