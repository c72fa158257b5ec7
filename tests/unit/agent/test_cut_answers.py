"""Answers that end at a limit of tokens: they go on, or it is said what was cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.agent import limits
from sakti.core.config import AgentSettings
from sakti.core.events import Notice, RetryScheduled, StepDiscarded
from sakti.core.types import MarkerPart, ModelInfo, Request
from sakti.providers.protocol import StopReason
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from sakti.store.threads import messages
from tests.fakes.session import Recorded, start


async def stored(run: Recorded):
    return await run.session.workspace.store.read(messages.list_after, run.session.thread.id, -1)


async def test_a_text_that_was_cut_goes_on(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer("One, two, th", stop_reason="length"), "ree.", "later"])
    end = await run.ask("count to three")
    assert (end.status, end.text, end.steps) == ("answered", "One, two, three.", 2)
    first, second = run.provider.requests
    assert "Continue exactly where it stopped" in second.tail
    assert second.tail.startswith("count to three"), "the last user message is the user's"
    assert second.messages[: len(first.messages)] == first.messages
    saved = await stored(run)
    assert [m.role for m in saved] == ["user", "assistant", "assistant"]
    assert [p.kind for p in saved[1].parts if isinstance(p, MarkerPart)] == ["cut"]
    assert (await run.ask("thanks")).text == "later"
    assert run.provider.requests[-1].tail == ""


async def test_a_text_that_never_ends_is_an_outcome_of_its_own(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", lambda _r: Answer("more ", stop_reason="length"))
    end = await run.ask("talk")
    assert (end.status, end.error_code, end.steps) == ("length", "length", 3)
    assert end.text == "more more more "
    assert "cut at" in end.error


async def test_thinking_alone_is_no_answer(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer(thinking="hm " * 50, stop_reason="length")])
    end = await run.ask("think")
    assert (end.status, end.text) == ("length", "")
    assert "agent.effort" in end.error
    run = await start(store, tmp_path / "w2", [Answer(thinking="hm"), Answer(thinking="hm")])
    assert (await run.ask("think")).error_code == "empty"
    assert len(run.provider.requests) == 2


async def test_a_cut_call_is_told_so_and_not_run(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"
    run = await start(
        store,
        work,
        [
            Answer(
                calls=(Call("ls", {}), Call("write", raw='{"path": "a.txt", "content": "' + "x" * 5_000)),
                stop_reason="length",
            ),
            Answer(calls=(Call("write", {"path": "a.txt", "content": "short"}),)),
            "done",
        ],
        overrides=("approval.mode=edits",),
    )
    assert (await run.ask("write it")).status == "answered"
    _, said, results, *_ = await stored(run)
    whole, cut = results.tool_results
    assert not whole.is_error
    assert cut.is_error and "Write in parts" in cut.content and f"{1}" not in cut.content.split("tokens")[0][:4]
    assert len(said.tool_calls[1].raw) <= 1_000, "what was cut is not worth its tokens"
    assert (work / "a.txt").read_text() == "short"


async def test_calls_that_are_cut_again_and_again_end_the_turn(store: Store, tmp_path: Path) -> None:
    def play(request: Request) -> Answer:
        raw = '{"path": "a.txt", "content": "' + "x" * (100 + len(request.messages))
        return Answer(calls=(Call("write", raw=raw),), stop_reason="length")

    run = await start(store, tmp_path / "w", play, overrides=("approval.mode=edits",))
    end = await run.ask("write it")
    assert (end.status, end.steps) == ("length", 3)
    assert (await stored(run))[-1].role == "tool", "every call has its result"
    assert not (tmp_path / "w" / "a.txt").exists()


async def test_calls_that_cannot_be_read_end_too(store: Store, tmp_path: Path) -> None:
    def play(request: Request) -> Answer:
        return Answer(calls=(Call("write", raw='{"path": ' + "x" * len(request.messages)),))

    run = await start(store, tmp_path / "w", play, overrides=("approval.mode=edits",))
    end = await run.ask("write it")
    assert (end.status, end.steps) == ("repetition", 5)


async def test_a_call_that_was_written_whole_is_run(store: Store, tmp_path: Path) -> None:
    answers = [Answer(calls=(Call("write", {"path": "a.txt", "content": "x"}),), stop_reason="length"), "done"]
    run = await start(store, tmp_path / "w", answers, overrides=("approval.mode=edits",))
    assert (await run.ask("write it")).status == "answered"
    assert (tmp_path / "w" / "a.txt").read_text() == "x"


async def test_a_refusal_is_a_failure_with_and_without_words(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer("I will not.", stop_reason="refusal")])
    end = await run.ask("do it")
    assert (end.status, end.error_code, end.text) == ("error", "refused", "I will not.")


# --- how much an answer may have ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "most", "setting", "output", "left"),
    [
        (1_000_000, 128_000, None, 128_000, 1_000_000 - 8_192 - 4_000),
        (1_000_000, 128_000, 500, 500, 1_000_000 - 500 - 4_000),
        (1_000_000, 8_192, 50_000, 8_192, 1_000_000 - 8_192 - 4_000),
        (8_192, None, None, 4_096, 8_192 - 2_048 - 4_000),
        (None, None, None, 8_192, None),
        (None, 64_000, None, 64_000, None),
    ],
)
def test_an_answer_may_have_the_models_own_maximum(window, most, setting, output, left) -> None:
    info = ModelInfo("m", "p", window, most)
    assert limits.measure_room(info, AgentSettings(max_output_tokens=setting), 4_000) == (output, left)


@pytest.mark.parametrize("prompt", [0, 100, 3_470, 7_900, 8_191, 8_192, 20_000])
@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_an_answer_is_never_more_than_the_window_leaves(prompt, factor) -> None:
    info = ModelInfo("m", "p", 8_192, tokens=factor)
    output = limits.limit_output(info, 32_000, prompt)
    assert output >= 1
    assert prompt >= 8_192 or prompt + output <= 8_192
    assert limits.limit_output(ModelInfo("m", "p"), 32_000, prompt) == 32_000


async def test_no_request_asks_for_more_than_the_window(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", lambda _r: "word " * 100, window=8_192)
    for n in range(8):
        await run.ask(f"question {n} " + "text " * 300)
    counted = [e.request_tokens for e in run.events if type(e).__name__ == "StepStarted"]
    for request, tokens in zip(run.provider.requests, counted, strict=True):
        assert tokens + request.max_output_tokens <= 8_192


# --- what a server says of its limits -------------------------------------------------------------------------


async def test_a_maximum_that_the_server_names_is_taken(store: Store, tmp_path: Path, monkeypatch) -> None:
    from sakti.providers import errors, scripted

    where = errors.ErrorContext("scripted")
    said = "max_tokens: 32000 > 4096, which is the maximum allowed number of output tokens for demo"
    monkeypatch.setattr(scripted, "_make_failure", lambda _a: errors.from_status(400, {"message": said}, {}, where))
    run = await start(store, tmp_path / "w", [Answer(error="x"), "fits", "again"])
    assert (await run.ask("hi")).text == "fits"
    assert [r.max_output_tokens for r in run.provider.requests] == [32_000, 4_096]
    assert run.of(RetryScheduled) == [] and run.of(StepDiscarded) == []
    await run.ask("more")
    assert run.provider.requests[-1].max_output_tokens == 4_096, "it is not asked twice"


async def test_a_window_that_the_server_names_is_taken(store: Store, tmp_path: Path, monkeypatch) -> None:
    from sakti.providers import errors, scripted

    where = errors.ErrorContext("scripted")
    said = (
        "This model's maximum context length is 8192 tokens. However, you requested 11662 tokens (3470 in the "
        "messages, 8192 in the completion)."
    )
    monkeypatch.setattr(scripted, "_make_failure", lambda _a: errors.from_status(400, {"message": said}, {}, where))
    run = await start(store, tmp_path / "w", [Answer(error="x"), "fits"])
    assert (await run.ask("hi")).text == "fits"
    assert run.provider.requests[-1].max_output_tokens <= 8_192 - 3_470
    assert run.session.workspace.models.info.context_window == 8_192
    assert run.of(Notice) == []


@pytest.mark.parametrize(
    ("raw", "stop_reason"),
    [
        ('{"path": "a.txt", "content": "part"}}', "length"),
        ('```json\n{"path": "a.txt", "content": "part"}\n```', "length"),
        ('"{\\"path\\": \\"a.txt\\", \\"content\\": \\"part\\"}"', "length"),
        ('{"path": "a.txt", "content": "part', "tool_use"),
        ('```json\n{"path": "a.txt", "content": "part {}\n', "tool_use"),
        ('"{\\"path\\": \\"a.txt\\", \\"content\\": \\"part', "tool_use"),
    ],
)
async def test_a_call_that_may_have_been_cut_is_never_repaired(
    store: Store, tmp_path: Path, raw: str, stop_reason: StopReason
) -> None:
    answers = [Answer(calls=(Call("write", raw=raw),), stop_reason=stop_reason), "done"]
    run = await start(store, tmp_path / "w", answers, overrides=("approval.mode=edits",))
    assert (await run.ask("write it")).status == "answered"
    (result,) = (await stored(run))[2].tool_results
    assert result.is_error and not (tmp_path / "w/a.txt").exists()


@pytest.mark.parametrize(
    "raw",
    [
        '{"path": "a.txt", "content": "it\\n"}}',
        '```json\n{"path": "a.txt", "content": "it\\n"}\n```',
        '"{\\"path\\": \\"a.txt\\", \\"content\\": \\"it\\\\n\\"}"',
    ],
)
async def test_a_whole_call_with_a_slip_is_run(store: Store, tmp_path: Path, raw: str) -> None:
    answers = [Answer(calls=(Call("write", raw=raw),)), "done"]
    run = await start(store, tmp_path / "w", answers, overrides=("approval.mode=edits",))
    assert (await run.ask("write it")).status == "answered"
    assert (tmp_path / "w/a.txt").read_text() == "it\n"


async def test_a_paused_answer_is_continued_as_it_stands(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer("Searching. ", stop_reason="pause"), "Found it.", "later"])
    end = await run.ask("search")
    assert (end.status, end.text, end.steps) == ("answered", "Searching. Found it.", 2)
    second = run.provider.requests[1]
    assert (second.messages[-1].role, second.tail) == ("assistant", ""), "nothing is said in between"
    assert (await run.ask("thanks")).text == "later"


async def test_an_answer_that_pauses_for_ever_ends_at_the_step_limit(store: Store, tmp_path: Path) -> None:
    play = [Answer("more ", stop_reason="pause") for _ in range(3)]
    run = await start(store, tmp_path / "w", play, overrides=("agent.max_steps=3",))
    end = await run.ask("search")
    assert (end.status, end.error_code, end.steps) == ("limit", "max_steps", 3)


async def test_an_unknown_end_keeps_the_answer_and_is_no_success(store: Store, tmp_path: Path) -> None:
    odd = Answer("Half an", stop_reason="unknown", unknown_reason="quantum_flux")
    run = await start(store, tmp_path / "w", [odd, "whole"])
    end = await run.ask("tell me")
    assert (end.status, end.text, end.error_code) == ("length", "Half an", "unknown_stop")
    (notice,) = run.of(Notice)
    assert "'quantum_flux'" in notice.message
    assert (await stored(run))[-1].text == "Half an"
    assert (await run.ask("go on")).status == "answered"


async def test_calls_with_an_unknown_end_are_run(store: Store, tmp_path: Path) -> None:
    odd = Answer(calls=(Call("ls", {}),), stop_reason="tool_use", unknown_reason="quantum_flux")
    run = await start(store, tmp_path / "w", [odd, "done"])
    assert (await run.ask("look")).status == "answered"
    assert len(run.of(Notice)) == 1
