"""Observer and Reflector, by model and by code: what they are told, what is kept of their answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from sakti.core.config import MemorySettings, ModelSettings, ObservationSettings
from sakti.core.errors import MemoryFailure, ProviderError
from sakti.core.tokens import Estimator, O200k, count_parts, sum_message_tokens
from sakti.core.types import (
    FilePart,
    ImagePart,
    Message,
    Part,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from sakti.memory.context import strip_for_actor
from sakti.memory.log import lines, parse
from sakti.memory.model_call import MemoryModel
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.memory.observe.model import ModelObserver, build_system_prompt
from sakti.memory.observe.transcript import format_messages, log_tail
from sakti.memory.protocol import ObserveInput, ReflectInput
from sakti.memory.reflect.extractive import ExtractiveReflector
from sakti.memory.reflect.model import ModelReflector
from sakti.providers.protocol import Completed, StreamEvent, TextChunk
from tests.fakes.clock import FakeClock
from tests.fakes.observers import build_observers, extract

COUNTER = Estimator()
GOOD = """<observations>
Date: Jan 15, 2026
* 🔴 (12:00) User stated that the API is GraphQL
</observations>
<current-task>
Primary: the API
</current-task>
<suggested-response>
Ask for the schema
</suggested-response>
<thread-title>
GraphQL API
</thread-title>"""


class Answers:
    """A provider that gives these answers in turn; an exception among them is raised."""

    name = "fake"

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield TextChunk(answer)
        yield Completed((TextPart(answer),), "end", Usage(100, 0, 0, 10))

    async def models(self) -> Sequence[object]:
        return ()

    async def warm(self) -> None: ...

    async def close(self) -> None: ...


def message(index: int, role: str, *parts: Part, at: int = 0) -> Message:
    counted = count_parts(COUNTER, parts)
    return Message(
        f"m{index}",
        "t",
        "r",
        role,
        parts,
        1_768_478_400_000 + at * 60_000,
        index=index,  # type: ignore[arg-type]
        tokens=sum_message_tokens(counted),
        part_tokens=counted,
    )


CONVERSATION = (
    message(0, "user", TextPart("We use Postgres 16 in src/db/pool.py. Please fix the leak. Why does it leak?")),
    message(
        1,
        "assistant",
        ThinkingPart("SECRET THOUGHT"),
        TextPart("I will look at the pool first."),
        ToolCallPart("c1", "bash", {"command": "pytest tests/test_pool.py"}),
        at=1,
    ),
    message(
        2,
        "tool",
        ToolResultPart(
            "c1",
            "bash",
            "collected 3 items\n"
            + "noise line\n" * 300
            + "E   TimeoutError: pool exhausted\n2 failed, 1 passed in 0.2s",
            True,
        ),
        at=2,
    ),
    message(
        3,
        "assistant",
        TextPart("The root cause is `release()` in src/db/pool.py:40 missing in the error path. I fixed it."),
        at=3,
    ),
)


def built(provider: Answers | None, *, fit: bool = True, clock: FakeClock | None = None, **settings: object):
    return build_observers(
        MemorySettings(**settings),
        provider,
        "model" if provider else None,
        fit,
        counter=COUNTER,  # type: ignore[arg-type]
        clock=clock or FakeClock(),
    )


def asked(**values: object) -> ObserveInput:
    return ObserveInput("t", CONVERSATION, "UTC", **values)  # type: ignore[arg-type]


async def test_the_model_is_told_messages_log_and_how_things_stand() -> None:
    provider = Answers(GOOD)
    observer, _ = built(provider, observation=ObservationSettings(previous_observer_tokens=60))
    log = "Date: Jan 14, 2026\n" + "\n".join(f"* 🟡 (10:0{i % 10}) line number {i}" for i in range(200))
    result = await observer.observe(asked(log=log, current_task="the pool", focus="the leak", want_title=True))
    (request,) = provider.requests
    system, prompt = request.system[0].text, request.messages[0].text
    assert all(tag in system for tag in ("<observations>", "<current-task>", "<suggested-response>", "<thread-title>"))
    assert "$" not in system
    assert request.tools == ()
    for text in (
        "Date: Jan 15, 2026",
        "**User (12:00):**",
        "[Tool call: bash]",
        "[Tool error: bash]",
        "line number 199",
        "the pool",
        "the leak",
    ):
        assert text in prompt
    assert "SECRET THOUGHT" not in prompt
    assert "line number 100" not in prompt and prompt.count("Date: Jan 14, 2026") == 1
    assert result.text == "Date: Jan 15, 2026\n* 🔴 (12:00) User stated that the API is GraphQL"
    assert (result.current_task, result.title, len(result.calls)) == ("Primary: the API", "GraphQL API", 1)


@pytest.mark.parametrize(
    ("name", "model", "observer", "reflector", "left_out"),
    [
        ("anthropic", "claude-haiku-4-5", (None, None), (None, 1_024), "temperature 0.3"),
        ("anthropic", "claude-3-5-haiku-latest", (None, None), (None, None), "does not think"),
        ("openai", "gpt-5-mini", (None, 215), (None, 1_024), "thinking models accept none"),
        ("openai", "gpt-4.1-mini", (0.3, None), (0.0, None), "215 thinking tokens"),
        ("ollama", "qwen3", (0.3, None), (0.0, None), "215 thinking tokens"),
    ],
)
async def test_settings_go_where_they_are_taken(
    name: str,
    model: str,
    observer: tuple[float | None, int | None],
    reflector: tuple[float | None, int | None],
    left_out: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = Answers(GOOD, GOOD)
    provider.name = name
    with caplog.at_level("INFO", "sakti.memory.model_call"):
        observing, reflecting = build_observers(
            MemorySettings(), provider, model, True, counter=COUNTER, clock=FakeClock()
        )
    await observing.observe(asked())
    await reflecting.reflect(ReflectInput("t", (("g", LOG),), 1_000))
    assert [(r.temperature, r.thinking_tokens) for r in provider.requests] == [observer, reflector]
    assert [r.max_output_tokens for r in provider.requests] == [None, None], "an API refuses more than its model gives"
    assert left_out in caplog.text


async def test_model_settings_of_ones_own() -> None:
    provider = Answers(GOOD)
    own = ObservationSettings(model_settings=ModelSettings(1.0, 5_000, 0))
    observer, _ = built(provider, observation=own)
    await observer.observe(asked())
    (request,) = provider.requests
    assert (request.temperature, request.max_output_tokens, request.thinking_tokens) == (1.0, 5_000, None)


async def test_a_small_window_gets_its_input_in_slices() -> None:
    texts = [
        f"<observations>\n* 🔴 (12:00) part {n}\n</observations>\n<current-task>\nPrimary: {n}\n</current-task>"
        for n in range(9)
    ]
    provider = Answers(*texts)
    memory_model = MemoryModel(provider, "m", COUNTER, FakeClock(), settings=ModelSettings(0, 500))  # pyright: ignore
    observer = ModelObserver(memory_model, previous_tokens=200, window=4_000)
    said = tuple(message(n, "user", TextPart("word " * 400)) for n in range(12))
    result = await observer.observe(ObserveInput("t", said, "UTC"))
    calls = len(provider.requests)
    assert 1 < calls < 9
    assert result.text.split("\n") == [f"* 🔴 (12:00) part {n}" for n in range(calls)]
    assert result.current_task == f"Primary: {calls - 1}"
    assert len(result.calls) == calls
    assert "part 0" in provider.requests[1].messages[0].text  # what was just observed is known to the next
    assert sum(r.messages[0].text.count("word " * 399 + "word") for r in provider.requests) == 12


async def test_messages_and_exchanges_larger_than_the_window_are_divided() -> None:
    provider = Answers(*[GOOD] * 20)
    memory_model = MemoryModel(provider, "m", COUNTER, FakeClock(), settings=ModelSettings(0, 500))  # pyright: ignore
    observer = ModelObserver(memory_model, previous_tokens=200, window=4_000)
    rows = [f"row {n} of a long answer\n" for n in range(1_500)]
    calls = tuple(ToolCallPart(f"c{n}", "read", {"path": f"{n}.txt"}) for n in range(3))
    results = tuple(ToolResultPart(call.id, "read", "line of a file\n" * 1_000) for call in calls)
    said = (
        message(0, "assistant", TextPart("".join(rows))),
        message(1, "assistant", *calls),
        message(2, "tool", *results),
        message(3, "user", TextPart("x" * 30_000)),
    )
    said = tuple(structs.replace(m, tokens=sum_message_tokens(count_parts(COUNTER, m.parts))) for m in said)
    await observer.observe(ObserveInput("t", said, "UTC"))
    prompts = [r.messages[0].text for r in provider.requests]
    assert max(COUNTER.count(text) for text in prompts) < 3_000
    assert all(sum(row in text for text in prompts) == 1 for row in rows)
    assert sum(text.count("[Tool result: read]") for text in prompts) == 3
    assert sum(text.count("x" * 500) for text in prompts) > 20


async def test_a_small_window_condenses_a_log_in_slices() -> None:
    answers = ["<observations>\n* 🔴 short\n</observations>"] * 8
    provider = Answers(*answers)
    reflector = ModelReflector(
        MemoryModel(provider, "m", COUNTER, FakeClock(), settings=ModelSettings(0, 500)), window=4_000
    )  # pyright: ignore
    groups = tuple((f"g{n}", f"* 🔴 part {n} " + "word " * 400) for n in range(8))
    result = await reflector.reflect(ReflectInput("t", groups, 2_000))
    calls = len(provider.requests)
    assert 1 < calls < 8
    assert result.text.count("short") == calls


async def test_a_model_names_older_lines_by_the_anchors_that_it_is_shown() -> None:
    log = "Date: Jan 14, 2026\n* 🔴 (9:00) We use npm\n  * -> in web/\n* 🔴 (9:05) The port is 8080"
    answer = GOOD.replace("GraphQL\n<", "GraphQL [replaces O2]\n* 🔴 (12:01) User likes tea [replaces O77]\n<")
    provider = Answers(answer)
    result = await built(provider)[0].observe(asked(log=log))
    assert "[O2] * 🔴 (9:05) The port is 8080" in provider.requests[0].messages[0].text
    assert "[replaces" not in result.text and "User likes tea" in result.text
    (older,) = (result.replaces or {})["User stated that the API is GraphQL"]
    assert (older.text, older.date, older.time) == ("The port is 8080", "Jan 14, 2026", "9:05")


def test_the_condensed_instructions_are_short() -> None:
    text = build_system_prompt("explore", condensed=True, want_title=True)
    assert O200k().count(text) < 1_200
    assert all(tag in text for tag in ("<observations>", "<current-task>", "<suggested-response>"))


async def test_garbage_is_asked_for_once_more() -> None:
    provider = Answers("ab" * 30_000, GOOD)
    observer, _ = built(provider)
    assert (await observer.observe(asked())).text.startswith("Date:")
    provider = Answers(*["ab" * 30_000] * 6)
    observer, _ = built(provider)
    for _ in range(2):
        with pytest.raises(MemoryFailure, match="no usable observations"):
            await observer.observe(asked())
    third = await observer.observe(asked())  # three in a row: code takes over, and says so
    assert third.model == "extractive" and "without a model" in third.note
    assert observer.name == "extractive"


async def test_transient_failures_are_waited_out() -> None:
    clock = FakeClock()
    limit = ProviderError("rate limit exceeded", code="rate_limit", retryable=True)
    observer, _ = built(Answers(*[limit] * 7, GOOD), clock=clock)
    assert (await observer.observe(asked())).text
    assert all(n / 2 <= slept <= n for slept, n in zip(clock.slept, (1, 2, 4, 8, 16, 30, 30), strict=True))
    observer, _ = built(Answers(*[limit] * 8))
    with pytest.raises(ProviderError):
        await observer.observe(asked())


async def test_a_provider_that_asks_for_hours_is_not_waited_for() -> None:
    clock = FakeClock()
    observer, _ = built(
        Answers(ProviderError("tomorrow", code="rate_limit", retryable=True, retry_after=86_400)), clock=clock
    )
    with pytest.raises(ProviderError):
        await observer.observe(asked())
    assert clock.slept == []


async def test_a_model_that_is_not_to_be_had_is_replaced() -> None:
    observer, _ = built(Answers(ProviderError("no key", code="authentication")))
    result = await observer.observe(asked())
    assert result.model == "extractive" and result.text
    assert built(None)[0].name == "extractive"
    assert built(Answers(), fit=False)[0].name == "extractive"
    assert built(Answers(), model="extractive")[0].name == "extractive"


def test_long_results_and_encoded_data_are_cut() -> None:
    text = format_messages(
        [
            message(0, "tool", ToolResultPart("c", "read", "word " * 30_000)),
            message(1, "tool", ToolResultPart("d", "fetch", "x" + "QUJD" * 5_000)),
            message(2, "user", ImagePart("image/png", "AAAA", "shot.png"), ImagePart("image/png", "AAAA", "b.png")),
        ],
        "UTC",
        COUNTER.count,
    )
    assert "tokens left out …]" in text
    assert COUNTER.count(text) < 10_300
    assert "characters of encoded data" in text
    assert "[Image #1: shot.png]\n[Image #2: b.png]" in text


def test_what_the_program_told_the_model_is_no_part_of_a_transcript() -> None:
    said = [message(0, "system", TextPart("Be brief.")), message(1, "user", TextPart("Look at a.py."))]
    text = format_messages(said, "UTC", COUNTER.count)
    assert "Look at a.py." in text and "Be brief." not in text


def test_instructions_that_a_command_or_a_skill_loads_are_nobodys_words() -> None:
    body = "Always use tabs and never push."
    said = [
        message(
            0, "user", TextPart("/style app.py"), FilePart("/style", f'<command name="style">\n{body}\n</command>')
        ),
        message(1, "tool", ToolResultPart("c1", "skill", f'<skill name="style">\n{body}\n</skill>')),
        message(2, "tool", ToolResultPart("c2", "skill", "There is no skill stile.", is_error=True)),
    ]
    told = format_messages(said, "UTC", COUNTER.count)
    assert body not in told and "/style app.py" in told
    assert "[Instructions loaded by /style]" in told and "There is no skill stile." in told


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("-----BEGIN PGP MESSAGE-----\nhQEMA+abc\nxyz=\n-----END PGP MESSAGE-----", "characters of pgp message]"),
        ("\n".join(["QUJDREV2" * 8] * 20), "characters of encoded data]"),
        ("\x89PNG\x00\x00\x01\x02" * 50, "characters of binary data]"),
        (
            "size \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd " + "end " * 99,
            "[9 characters of encoded data]",
        ),
    ],
)
def test_what_nobody_can_read_is_a_note(text: str, note: str) -> None:
    told = format_messages(
        [message(0, "tool", ToolResultPart("c", "read", f"before {text} after"))], "UTC", COUNTER.count
    )
    assert note in told
    assert len(told) < 600
    plain = "a_long_identifier/" * 15 + "\n" + "| cell | cell |\n" * 30
    told = format_messages([message(0, "tool", ToolResultPart("c", "read", plain))], "UTC", COUNTER.count)
    assert plain.strip() in told


def pictures(request: Request) -> list[str]:
    return [p.name for p in request.messages[0].parts if isinstance(p, ImagePart)]


SHOWN = ObserveInput(
    "t",
    (
        message(0, "user", TextPart("Look"), ImagePart("image/png", "AAAA", "a.png", 100, 100)),
        message(1, "tool", ImagePart("image/png", "BBBB", "b.png", 100, 100)),
    ),
    "UTC",
)


async def test_images_go_to_a_model_that_takes_them() -> None:
    provider = Answers(GOOD)
    provider.name = "anthropic"
    observer, _ = built(provider)
    await observer.observe(SHOWN)
    (request,) = provider.requests
    text = request.messages[0].text
    assert "[Image #1: a.png]" in text and "[Image #2: b.png]" in text and text.endswith("Image #1:\nImage #2:")
    assert pictures(request) == ["a.png", "b.png"]
    assert request.messages[0].tokens > COUNTER.count(text) + 100
    provider = Answers(GOOD)
    observer, _ = built(provider)
    await observer.observe(SHOWN)
    assert pictures(provider.requests[0]) == [], "of this provider it is not known"


async def test_a_model_that_refuses_images_is_asked_without_them() -> None:
    refused = ProviderError("image input is not supported", code="invalid_request")
    provider = Answers(refused, GOOD, GOOD)
    provider.name = "openai"
    observer, _ = built(provider)
    assert (await observer.observe(SHOWN)).model == "openai/model"
    await observer.observe(SHOWN)
    assert [len(pictures(r)) for r in provider.requests] == [2, 0, 0]


def test_the_tail_of_a_log_keeps_its_date() -> None:
    log = "Date: Jan 1, 2026\n* a\n* b\nDate: Jan 2, 2026\n* c\n* d"
    assert log_tail(log, 6, COUNTER.count) == "Date: Jan 2, 2026\n* c\n* d"


# --- by code ------------------------------------------------------------------------------------------------


def test_extracted_lines_are_verbatim_and_few() -> None:
    observer = ExtractiveObserver(COUNTER)
    result = extract(observer, asked())
    assert result == extract(observer, asked())
    for line in (
        "* 🔴 (12:00) User stated: We use Postgres 16 in src/db/pool.py.",
        "* 🟡 (12:00) User asked for: Please fix the leak.",
        "* 🟡 (12:00) User asked: Why does it leak?",
        "* 🟡 (12:02) Agent ran `pytest tests/test_pool.py`: 2 failed, 1 passed in 0.2s",
    ):
        assert line in result.text.split("\n")
    assert result.current_task == "Primary: Please fix the leak."
    assert COUNTER.count(result.text) < 0.2 * sum(m.tokens for m in CONVERSATION)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=400)), max_size=12))
def test_extraction_never_fails(texts: list[tuple[str, str]]) -> None:
    messages = tuple(message(i, role, TextPart(text)) for i, (role, text) in enumerate(texts))
    text = extract(ExtractiveObserver(COUNTER), ObserveInput("t", messages, "UTC")).text
    assert parse.clean(text).count("<observations>") == 0
    text.encode("utf-8")


LOG = "Date: Jan 15, 2026\n" + "\n".join(
    f"* {'🔴' if i % 10 == 0 else '🟡' if i % 2 else '🟢'} (10:00) Line {i} about src/f{i}.py and some more"
    for i in range(60)
)


async def test_extractive_reflection_is_smaller_and_keeps_what_matters() -> None:
    before = COUNTER.count(LOG)
    pinned = ("* 🟢 (10:00) Line 2 about src/f2.py and some more",)
    result = await ExtractiveReflector(COUNTER).reflect(
        ReflectInput("t", (("g1", LOG), ("g2", LOG)), before // 2, pinned=pinned)
    )
    assert COUNTER.count(result.text) <= before // 2 + 20
    assert "Line 0 " in result.text and "Line 50 " in result.text
    assert pinned[0] in result.text
    with pytest.raises(MemoryFailure, match="cannot be condensed"):
        await ExtractiveReflector(COUNTER).reflect(ReflectInput("t", (("g", pinned[0]),), 1, pinned=pinned))


# --- the Reflector --------------------------------------------------------------------------------------


async def test_levels_go_up_until_the_target_is_met() -> None:
    half = "\n".join(LOG.split("\n")[:40])
    few = "\n".join(LOG.split("\n")[:10])
    provider = Answers(
        f"<observations>\n{LOG}\n</observations>",
        f"<observations>\n[O1] {half}\n</observations>",
        f"<observations>\n{few}\n</observations>",
    )
    _, reflector = built(provider)
    result = await reflector.reflect(ReflectInput("t", (("g", LOG),), 300, start_level=0))
    assert result.level == 2 and len(result.calls) == 3
    assert result.text == few
    prompts = [r.messages[0].text for r in provider.requests]
    assert "[O1] * 🔴" in prompts[0]
    shared = min(len(p) for p in prompts) - 400
    assert prompts[0][:shared] == prompts[2][:shared]  # the level's text stands behind the log


async def test_the_reflector_is_told_what_is_pinned() -> None:
    few = "\n".join(LOG.split("\n")[:10])
    provider = Answers(f"<observations>\n{few}\n</observations>")
    _, reflector = built(provider)
    await reflector.reflect(ReflectInput("t", (("g", LOG),), 300, pinned=("* 🔴 (9:00) The key is 7731",)))
    assert "keep word for word\n\n* 🔴 (9:00) The key is 7731" in provider.requests[0].messages[0].text


async def test_an_answer_that_is_not_smaller_is_never_used() -> None:
    provider = Answers(*[f"<observations>\n{LOG}\n* more\n</observations>"] * 5)
    _, reflector = built(provider)
    result = await reflector.reflect(ReflectInput("t", (("g", LOG),), 300))
    assert len(provider.requests) == 4
    assert result.model == "extractive" and "without a model" in result.note
    assert COUNTER.count(result.text) < COUNTER.count(LOG)


async def test_garbage_of_the_reflector_is_asked_for_once_more_and_never_used() -> None:
    half = "\n".join(LOG.split("\n")[:20])
    provider = Answers("ab" * 30_000, f"<observations>\n{half}\n</observations>")
    _, reflector = built(provider)
    assert (await reflector.reflect(ReflectInput("t", (("g", LOG),), 1_000))).text == half
    provider = Answers(*["ab" * 30_000] * 6)
    _, reflector = built(provider)
    for asked_for in (2, 4, 6):
        result = await reflector.reflect(ReflectInput("t", (("g", LOG),), 300))
        assert len(provider.requests) == asked_for
        assert result.model == "extractive"
        assert "abab" not in result.text
        assert "no usable reflection" in result.note
        assert ("From now on" in result.note) == (asked_for == 6)
    assert reflector.name == "extractive"
    assert not (await reflector.reflect(ReflectInput("t", (("g", LOG),), 300))).note
    assert len(provider.requests) == 6, "three in a row: the model is not asked again"


# --- lines and cleaning ---------------------------------------------------------------------------------


def test_rows_of_a_log() -> None:
    log = (
        "Date: Dec 4, 2025\n* 🔴 (14:30) User stated X\n  * -> src/auth/login.ts:40-62 `validate`\n\n"
        "Date: Dec 5, 2025\n* ✅ (9:05) see README.md, line 7\n- plain e.g. nothing 1.2.3"
    )
    rows = list(lines.iter_rows(log))
    assert [(r.date, r.time, r.priority, r.depth, r.content) for r in rows] == [
        ("Dec 4, 2025", "14:30", "high", 0, "User stated X"),
        ("Dec 4, 2025", "", "none", 1, "src/auth/login.ts:40-62 `validate`"),
        ("Dec 5, 2025", "9:05", "done", 0, "see README.md, line 7"),
        ("Dec 5, 2025", "", "none", 0, "plain e.g. nothing 1.2.3"),
    ]
    assert rows[1].metadata == {"files": ["src/auth/login.ts"], "line_numbers": ["40-62"]}
    assert rows[2].metadata == {"files": ["README.md"], "line_numbers": ["7"]}
    assert rows[3].metadata == {"files": [], "line_numbers": []}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([*"<>/ \n*-[]O12`", "observations", "current-task", "a", "```"]), max_size=60).map("".join)
)
def test_no_tag_is_ever_stored(text: str) -> None:
    cleaned = parse.clean(text)
    for tag in ("<observations>", "</observations>", "<current-task>", "</current-task>"):
        assert tag not in cleaned
    assert parse.clean(cleaned) == cleaned


def test_what_the_actor_sees() -> None:
    log = "* 🟡 (1:00) reads `-> bool`\n  * -> `dict[str, int]` [docs](url)\n* 🔴 a -> b\n* 🟢 x\n* ✅ y"
    assert strip_for_actor(log) == (
        "* (1:00) reads `-> bool`\n  * `dict[str, int]` [docs](url)\n* 🔴 a -> b\n* x\n* ✅ y"
    )


def test_lines_of_one_speaker_share_a_head_and_a_time() -> None:
    log = """Date: Jan 15, 2026
* 🔴 (9:00) User stated: The port is 8080.
* 🔴 (9:10) User stated: Our region is eu-2.
* 🟡 (9:20) Agent said: I like plums.
* 🔴 (9:29) User stated: We use uv. [earlier; see 9:31]
* 🔴 (9:31) User stated: We use pip. [replaces 9:29: We use uv]
* 🔴 (9:40) User stated: Bob reviews.
* 🔴 (9:59) User wants a cache.
* 🔴 (10:00) User stated: Tests run nightly.
* 🔴 (10:01) User stated: Ann deploys.
Date: Jan 16, 2026
* 🔴 (10:02) User stated: Eve tests."""
    assert strip_for_actor(log).split("\n") == [
        "Date: Jan 15, 2026",
        "* 🔴 (9:00) User stated: The port is 8080.",
        "  * Our region is eu-2.",
        "* Agent said: I like plums.",
        "* 🔴 (9:29) User stated: We use uv. [earlier; see 9:31]",
        "* 🔴 (9:31) User stated: We use pip. [replaces 9:29: We use uv]",
        "  * Bob reviews.",
        "* 🔴 (9:59) User wants a cache.",
        "* 🔴 User stated: Tests run nightly.",
        "* 🔴 (10:01) User stated: Ann deploys.",
        "Date: Jan 16, 2026",
        "* 🔴 (10:02) User stated: Eve tests.",
    ]


def test_answers_are_plain_json() -> None:
    assert (
        json.dumps([r.metadata for r in lines.iter_rows("* see a/b.py:3")])
        == '[{"files": ["a/b.py"], "line_numbers": ["3"]}]'
    )


def test_a_named_reflector_moves_no_observer() -> None:
    from msgspec.structs import replace

    memory = MemorySettings()
    named = replace(memory, reflection=replace(memory.reflection, model="b/large"))
    small, large = Answers(), Answers()
    common = {"counter": COUNTER, "clock": FakeClock(), "reflector_provider": large, "reflector_model": "large"}
    observer, reflector = build_observers(named, small, "small", True, **common)
    assert (observer.name, reflector.name) == ("fake/small", "fake/large")
    observer, reflector = build_observers(named, small, "small", False, **common)
    assert (observer.name, reflector.name) == ("extractive", "fake/large")
    observer, reflector = build_observers(memory, small, "small", False, counter=COUNTER, clock=FakeClock())
    assert (observer.name, reflector.name) == ("extractive", "extractive")
