"""The loop through a real session: order, durability, interruption, steering, guards."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.agent.processors.base import Processor, StepInput, StepOutput, TurnInput, TurnResult, abort
from sakti.core.errors import NoModelError
from sakti.core.events import (
    ApprovalRequested,
    MessageSaved,
    RetryScheduled,
    StepDiscarded,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    get_event_name,
    to_json,
)
from sakti.core.tokens import sum_message_tokens
from sakti.core.types import ContextPart, Message, Request, TextPart, ThinkingPart, ToolResultPart, Usage
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from sakti.store.search.search import Scope, search
from sakti.store.threads import messages, runs
from tests.fakes.session import Recorded, start


def context(message: Message) -> str:
    return "\n".join(p.text for p in message.parts if isinstance(p, ContextPart))


async def stored(recorded: Recorded) -> list[Message]:
    thread = recorded.session.thread
    assert thread is not None
    return await recorded.session.workspace.store.read(messages.list_after, thread.id, -1)


def without_context(message: Message) -> Message:
    parts = [(p, n) for p, n in zip(message.parts, message.part_tokens, strict=True) if not isinstance(p, ContextPart)]
    counted = tuple(n for _, n in parts)
    return replace(message, parts=tuple(p for p, _ in parts), part_tokens=counted, tokens=sum_message_tokens(counted))


def valid_history(request: Request) -> None:
    """Every call is answered right behind it, every result has its call."""
    open_calls: set[str] = set()
    for message in request.messages:
        if message.role == "tool":
            assert {r.call_id for r in message.tool_results} == open_calls
            open_calls = set()
        else:
            assert not open_calls, "a call without a result"
            open_calls = {c.id for c in message.tool_calls}
    assert not open_calls


async def test_a_message_goes_through_everything(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    (work / "a.txt").write_text("hello\n")
    run = await start(
        store,
        work,
        [
            Answer("I'll look.", calls=(Call("read", {"path": "a.txt"}), Call("ls", {}))),
            "It says hello.",
        ],
    )
    end = await run.ask("what is in a.txt?")
    assert (end.status, end.text, end.steps) == ("answered", "It says hello.", 2)
    assert [m.role for m in await stored(run)] == ["user", "assistant", "tool", "assistant"]
    assert [r.content for r in (await stored(run))[2].tool_results] == ["1\thello", "a.txt  6"]
    assert "".join(e.text for e in run.of(TextDelta)) == "I'll look.It says hello."
    saved = [e.message for e in run.of(MessageSaved)]
    assert saved == [without_context(m) for m in await stored(run)], "what moves is not shown"
    assert all(m.tokens > 0 and len(m.part_tokens) == len(m.parts) for m in saved)
    for request in run.provider.requests:
        valid_history(request)
    usage = await store.read(runs.load_total_usage, run.session.thread.id, "actor")
    assert usage == run.session.current.usage
    assert usage.input_tokens > 0
    assert run.session.thread.title == "what is in a.txt?"
    for event in run.events:
        assert to_json(event)["type"] == get_event_name(event)


async def test_what_moves_is_told_with_the_prompt_and_stays_as_it_was_sent(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["one", "two"])
    await run.ask("first")
    run.session.workspace.clock.advance(3600)
    await run.ask("second")
    first, second = run.provider.requests
    assert first.system[0] == second.system[0]
    assert first.tools == second.tools
    assert first.messages == second.messages[: len(first.messages)]
    assert (first.tail, second.tail) == ("", "")
    told = [context(m) for m in second.messages if m.role == "user"]
    assert all("Now: " in text and "Current folder: " in text for text in told)
    assert told[0] != told[1]
    assert "1 hour" in told[1]
    assert told == [context(m) for m in await stored(run) if m.role == "user"]


async def test_steering_is_delivered_in_order_at_the_next_step(store: Store, tmp_path: Path) -> None:
    holder: list[Recorded] = []

    def play(request: Request) -> Answer | str:
        n = len(holder[0].provider.requests)
        if n == 1:
            for text in ("also b", "and c"):
                asyncio.ensure_future(holder[0].session.submit(text))
            return Answer("working", calls=(Call("ls", {}),), chunk_delay=0.01)
        return "done"

    run = await start(store, tmp_path / "w", play)
    holder.append(run)
    await run.ask("do a")
    roles = [(m.role, m.text) for m in await stored(run)]
    assert roles == [
        ("user", "do a"),
        ("assistant", "working"),
        ("tool", ""),
        ("user", "also b"),
        ("user", "and c"),
        ("assistant", "done"),
    ]
    assert run.session.queued == ()


async def test_an_interrupt_keeps_what_was_streamed(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer("word " * 200, chunk_delay=0.001), "again"])
    seen = 0

    def stop(event: object) -> None:
        nonlocal seen
        seen += isinstance(event, TextDelta)
        if isinstance(event, TextDelta) and seen == 3:
            asyncio.ensure_future(run.session.interrupt())

    run.session.subscribe(stop)
    end = await run.ask("talk")
    assert end.status == "interrupted"
    last = (await stored(run))[-1]
    assert last.role == "assistant"
    assert last.text == "".join(e.text for e in run.of(TextDelta))
    assert last.parts[-1].kind == "interrupted"
    assert (await run.ask("go on")).status == "answered"
    valid_history(run.provider.requests[-1])


@pytest.mark.parametrize("delay", [0.0, 0.001])
async def test_pieces_that_arrive_at_once_become_one_event(store: Store, tmp_path: Path, delay: float) -> None:
    answer = Answer("word " * 50, thinking="hm " * 100, calls=(Call("ls", {}),), chunk_delay=delay)
    run = await start(store, tmp_path / "w", [answer, ""])
    await run.ask("talk")
    heard = [e for e in run.events if isinstance(e, TextDelta | ThinkingDelta | ToolCallDelta | MessageSaved)]
    streamed = heard[1 : next(i for i, e in enumerate(heard) if isinstance(e, ToolCallDelta))]
    assert len(streamed) > 20 if delay else len(streamed) == 2
    assert [type(e) for e in streamed] == sorted((type(e) for e in streamed), key=lambda kind: kind is TextDelta)
    assert "".join(e.text for e in streamed if isinstance(e, ThinkingDelta)) == "hm " * 100
    assert "".join(e.text for e in streamed if isinstance(e, TextDelta)) == "word " * 50


async def test_an_interrupted_command_is_answered_and_ended(store: Store, tmp_path: Path) -> None:
    run = await start(
        store,
        tmp_path / "w",
        [Answer("", calls=(Call("bash", {"command": "sleep 60"}), Call("ls", {})))],
        overrides=("approval.mode=auto",),
    )
    task = asyncio.ensure_future(run.ask("wait"))
    while not any(get_event_name(e) == "tool_started" for e in run.events):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    await run.session.interrupt()
    assert (await task).status == "interrupted"
    last = (await stored(run))[-1]
    assert [r.call_id for r in last.tool_results] == [c.id for c in (await stored(run))[-2].tool_calls]
    assert all(r.is_error and "interrupted" in r.content for r in last.tool_results)


async def test_transient_failures_are_waited_out_and_shown(store: Store, tmp_path: Path) -> None:
    run = await start(
        store,
        tmp_path / "w",
        [
            Answer(error="rate_limit", retry_after=7),
            Answer("half", cut=True),
            Answer(error="overloaded"),
            "whole",
        ],
    )
    end = await run.ask("hi")
    assert (end.status, end.text) == ("answered", "whole")
    waits = run.of(RetryScheduled)
    assert [w.attempt for w in waits] == [1, 2, 3]
    assert 7 <= waits[0].delay < 8
    assert run.session.workspace.clock.slept[:3] == [w.delay for w in waits]
    assert len(run.of(StepDiscarded)) == 1  # the half answer is void
    assert [m.text for m in await stored(run)] == ["hi", "whole"]


@pytest.mark.parametrize("code", ["authentication", "invalid_request", "refused"])
async def test_final_failures_are_not_retried_and_can_be_asked_again(store: Store, tmp_path: Path, code: str) -> None:
    run = await start(store, tmp_path / "w", [Answer(error=code, message="no."), "now"])
    end = await run.ask("hi")
    assert (end.status, end.error, end.error_code) == ("error", "no.", code)
    assert not end.keeps_answer
    assert run.of(RetryScheduled) == []
    await run.session.retry()
    await run.session.wait()
    assert run.of(TurnFinished)[-1].text == "now"
    assert [m.text for m in await stored(run)] == ["hi", "now"]


async def test_a_retry_that_fails_can_be_retried_and_keeps_the_queue(store: Store, tmp_path: Path) -> None:
    failure = Answer(error="authentication", message="no.")

    def play(request: Request) -> Answer | str:
        if len(run.provider.requests) == 2:
            run.session.current.inbox.queued.append((TextPart("later"),))
        return failure if len(run.provider.requests) <= 2 else "now"

    run = await start(store, tmp_path / "w", play)
    await run.ask("hi")
    await run.session.retry()
    await run.session.wait()
    assert run.of(TurnFinished)[-1].status == "error" and run.session.queued == ("later",)
    await run.session.retry()
    await run.session.wait()
    assert [m.text for m in await stored(run)] == ["hi", "later", "now"]


async def test_a_turn_that_breaks_can_be_retried(store: Store, tmp_path: Path) -> None:
    def play(request: Request) -> Answer | str:
        if len(run.provider.requests) == 1:
            raise RuntimeError("broken")
        return "now"

    run = await start(store, tmp_path / "w", play)
    end = await run.ask("hi")
    assert end.status == "error" and not end.keeps_answer
    await run.session.retry()
    await run.session.wait()
    assert run.of(TurnFinished)[-1].text == "now"


async def test_too_long_a_request_makes_memory_observe_and_is_tried_once_more(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["a" * 400, "b" * 400, Answer(error="context_too_long"), "fits"])
    await run.ask("one " * 50)
    await run.ask("two " * 50)
    end = await run.ask("three")
    assert (end.status, end.text) == ("answered", "fits")
    assert sum(m.tokens for m in run.provider.requests[-1].messages) < sum(
        m.tokens for m in run.provider.requests[-2].messages
    )
    assert run.provider.requests[-1].messages[-1].text == "three"


async def test_an_empty_answer_is_asked_for_once_more_then_told(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer(""), Answer("")])
    end = await run.ask("hi")
    assert (end.status, end.error_code) == ("error", "empty")


async def test_going_in_circles_is_told_and_then_stopped(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", lambda _r: Answer("", calls=(Call("ls", {"path": "."}),)))
    end = await run.ask("loop")
    assert (end.status, end.steps) == ("repetition", 5)
    contents = [m.tool_results[0].content for m in await stored(run) if m.role == "tool"]
    assert ["same call" in c for c in contents] == [False, False, True, True, True]


async def test_the_last_step_sums_up_without_tools(store: Store, tmp_path: Path) -> None:
    def play(request: Request) -> Answer | str:
        return (
            "summary"
            if request.tool_choice == "none"
            else Answer("", calls=(Call("read", {"path": str(len(request.messages))}),))
        )

    run = await start(store, tmp_path / "w", play, overrides=("agent.max_steps=3",))
    end = await run.ask("work")
    assert (end.status, end.text, end.steps) == ("limit", "summary", 3)
    assert run.provider.requests[-1].tools == run.provider.requests[0].tools
    assert "last step" in run.provider.requests[-1].tail


async def test_bad_calls_are_answers_not_exceptions(store: Store, tmp_path: Path) -> None:
    run = await start(
        store,
        tmp_path / "w",
        [
            Answer(
                "",
                calls=(
                    Call("nope", {}),
                    Call("read", raw="{oops"),
                    Call("read", {"pth": 1}),
                    Call("ls", {}, id="x"),
                    Call("ls", {}, id="x"),
                ),
            ),
            "ok",
        ],
    )
    assert (await run.ask("go")).status == "answered"
    results = (await stored(run))[2].tool_results
    assert [r.is_error for r in results] == [True, True, True, False, False]
    assert "There is no tool nope" in results[0].content
    valid_history(run.provider.requests[-1])


async def test_what_asks_is_refused_where_nobody_is(store: Store, tmp_path: Path) -> None:
    run = await start(
        store, tmp_path / "w", [Answer("", calls=(Call("bash", {"command": "touch x"}),)), "sorry"], interactive=False
    )
    await run.ask("go")
    assert not (tmp_path / "w" / "x").exists()
    assert run.session.refused_calls == 1
    result = (await stored(run))[2].tool_results[0]
    assert result.content == "Denied: approval is needed and there is no terminal."
    assert result.details["denied"] == "approval is needed and there is no terminal"


async def test_always_saves_a_rule_that_holds_in_the_next_session(store: Store, tmp_path: Path) -> None:
    call = Answer("", calls=(Call("bash", {"command": "command printf hi"}),))
    run = await start(store, tmp_path / "w", [call, "ok", call, "ok"])

    def approve(event: object) -> None:
        if isinstance(event, ApprovalRequested):
            assert event.rule == "bash: command printf hi"
            run.session.resolve(event.id, True, grant="workspace")

    run.session.subscribe(approve)
    await run.ask("go")
    await run.ask("go")
    assert len(run.of(ApprovalRequested)) == 1
    again = await start(store, tmp_path / "w", [call, "ok"])
    await again.ask("go")
    assert again.of(ApprovalRequested) == []
    assert again.of(ToolFinished)[0].result.content == "hi"


async def test_a_call_starts_after_the_question_about_it(store: Store, tmp_path: Path) -> None:
    calls = (Call("ls", {}), Call("bash", {"command": "touch here"}))
    run = await start(store, tmp_path / "w", [Answer("", calls=calls), "done"])
    run.session.subscribe(lambda e: run.session.resolve(e.id, True) if isinstance(e, ApprovalRequested) else None)
    await run.ask("make it")
    kinds = [type(e) for e in run.events if isinstance(e, ToolStarted | ApprovalRequested | ToolFinished)]
    assert kinds == [ToolStarted, ToolFinished, ApprovalRequested, ToolStarted, ToolFinished]


async def test_an_approved_command_runs_in_the_folder_that_was_shown(store: Store, tmp_path: Path) -> None:
    (tmp_path / "w" / "sub").mkdir(parents=True)
    run = await start(store, tmp_path / "w", [Answer("", calls=(Call("bash", {"command": "touch here"}),)), "done"])

    async def move_on(request: ApprovalRequested) -> None:
        await run.session.shell("cd sub")
        run.session.resolve(request.id, True)

    moves: list[asyncio.Task[None]] = []

    def answer(event: object) -> None:
        if isinstance(event, ApprovalRequested):
            moves.append(asyncio.create_task(move_on(event)))

    run.session.subscribe(answer)
    await run.ask("make it")
    assert (tmp_path / "w" / "here").exists() and not (tmp_path / "w" / "sub" / "here").exists()


async def test_a_no_with_a_note_reaches_the_model_and_an_edit_is_run(store: Store, tmp_path: Path) -> None:
    call = Answer("", calls=(Call("bash", {"command": "command printf one"}),))
    run = await start(store, tmp_path / "w", [call, "ok", call, "ok"])
    answers = iter([{"approved": False, "note": "not now"}, {"approved": True, "edited": "echo two"}])
    run.session.subscribe(
        lambda e: run.session.resolve(e.id, **next(answers)) if isinstance(e, ApprovalRequested) else None
    )
    await run.ask("go")
    await run.ask("go")
    contents = [m.tool_results[0].content for m in await stored(run) if m.role == "tool"]
    assert "not now" in contents[0]
    assert contents[1] == "two"


async def test_a_thread_that_died_between_call_and_result_goes_on(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer("", calls=(Call("ls", {}),)), "done", "next"])
    await run.ask("go")
    thread = run.session.thread
    await store.write(lambda db: db.execute_sql("DELETE FROM search_docs"))
    await store.write(lambda db: db.execute_sql("DELETE FROM messages WHERE message_index >= 2"))
    again = await start(store, tmp_path / "w", ["fine"], resume=thread.id)
    assert (await again.ask("go on")).status == "answered"
    valid_history(again.provider.requests[-1])
    result = again.provider.requests[-1].messages[2].tool_results[0]
    assert isinstance(result, ToolResultPart)
    assert "interrupted" in result.content


async def test_thinking_stays_with_its_message_and_is_not_found(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer("yes", thinking="about zebras"), "more"])
    await run.ask("hi")
    await run.ask("on")
    replayed = run.provider.requests[-1].messages[1].parts[0]
    assert isinstance(replayed, ThinkingPart)
    assert replayed.opaque == {"signature": "scripted"}
    assert (await store.read(search, "zebras", Scope())).total == 0


async def test_without_a_model_only_the_answers_are_missing(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [])
    run.session.workspace.models.provider = None
    with pytest.raises(NoModelError, match="sakti local install"):
        await run.session.submit("hi")
    assert await run.session.views.board() is not None
    assert (await run.session.views.search("x")).total == 0


async def test_what_is_said_while_a_task_is_active_is_linked_to_it(store: Store, tmp_path: Path) -> None:
    from sakti.store.tasks import questions as tasks

    create = Call("task-mutate", {"action": "create", "title": "mend the pump"})
    claim = Call("task-mutate", {"action": "claim", "id": "HANDLE"})
    close = Call("task-mutate", {"action": "close", "id": "HANDLE", "summary": "pump.py mended"})
    steps = iter([create, claim, None, close, None, None])
    handle = ""

    def play(request: Request) -> Answer | str:
        nonlocal handle
        for message in request.messages:
            for result in message.tool_results:
                handle = json.loads(result.content)["task"]["handle"]
        call = next(steps)
        if call is None:
            return "fine"
        return Answer(
            "", calls=(Call(call.name, {k: handle if v == "HANDLE" else v for k, v in call.arguments.items()}),)
        )

    run = await start(store, tmp_path / "w", play)
    await run.ask("make a task and begin")
    await run.ask("go on and close it")
    await run.ask("something else")
    rows = await stored(run)
    (task,) = await store.read(tasks.list_live, run.session.workspace.resource_id)
    assert task.status == "closed"
    during = [m.task_id == task.id for m in rows]
    # create is before the claim; its answer, the next turn and the closing call are inside; what follows is not
    assert during == [False] * 4 + [True] * 4 + [False] * (len(rows) - 8)
    linked = await store.read(tasks.list_linked_messages, task.id)
    assert [m["relation"] for m in linked] == ["reference"] + ["output"] * 4


# --- processors -------------------------------------------------------------------------------------------


class Spy(Processor):
    def __init__(self, log: list[str], **at: str) -> None:
        self.log, self.at = log, at

    def note(self, hook: str) -> None:
        self.log.append(hook)
        if hook in self.at:
            abort("stopped", retry=self.at[hook] == "retry")

    async def process_input(self, turn: TurnInput) -> TurnInput:
        self.note("input")
        return turn

    async def process_input_step(self, step: StepInput) -> StepInput:
        self.note("input_step")
        return step

    async def process_output_step(self, output: StepOutput) -> StepOutput:
        self.note("output_step")
        return output

    async def process_output_result(self, result: TurnResult) -> TurnResult:
        self.note("output_result")
        return TurnResult(result.thread_id, result.messages, result.text, {result.messages[-1].id: {"checked": True}})


async def test_hooks_run_in_order_with_memory_outside(store: Store, tmp_path: Path) -> None:
    log: list[str] = []
    run = await start(store, tmp_path / "w", ["fine"], processors=(Spy(log),))
    memory = run.session.current.engine
    prepare, end = memory.prepare, memory.end_turn

    async def noted_prepare(**k: object) -> object:
        log.append("memory in")
        return await prepare(**k)

    async def noted_end() -> None:
        log.append("memory out")
        await end()

    memory.prepare, memory.end_turn = noted_prepare, noted_end
    await run.ask("hi")
    assert log == ["input", "memory in", "input_step", "output_step", "output_result", "memory out"]
    last = (await stored(run))[-1]
    assert last.metadata == {"checked": True}
    assert {m.state for m in await stored(run)} == {"saved"}


@pytest.mark.parametrize("hook", ["input", "input_step", "output_step", "output_result"])
async def test_an_abort_keeps_the_turn_out_of_memory(store: Store, tmp_path: Path, hook: str) -> None:
    log: list[str] = []
    run = await start(store, tmp_path / "w", ["the secret answer", "later"], processors=(Spy(log, **{hook: "stop"}),))
    end = await run.ask("the secret question")
    assert (end.status, end.error) == ("tripwire", "stopped")
    assert len(run.provider.requests) == (0 if hook.startswith("input") else 1)
    assert {m.state for m in await stored(run)} == {"withheld"}
    assert (await store.read(search, "secret", Scope())).total == 0
    assert not run.session.current.engine.window_ids
    assert "secret" not in str(await stored(run))


async def test_a_retry_plays_the_step_again_with_the_reason(store: Store, tmp_path: Path) -> None:
    class Once(Processor):
        async def process_output_step(self, output: StepOutput) -> StepOutput:
            if output.retry_count == 0:
                abort("say it in French", retry=True)
            return output

    run = await start(store, tmp_path / "w", ["hello", "bonjour"], processors=(Once(),))
    end = await run.ask("greet")
    assert end.text == "bonjour"
    assert "say it in French" in run.provider.requests[1].tail
    assert [m.text for m in await stored(run)] == ["greet", "bonjour"]
    endless = await start(store, tmp_path / "w2", ["x"] * 9, processors=(Spy([], output_step="retry"),))
    assert (await endless.ask("hi")).status == "tripwire"
    assert len(endless.provider.requests) == 4


async def test_what_filters_change_is_sent_but_not_stored(store: Store, tmp_path: Path) -> None:
    class Loud(Processor):
        async def process_input_step(self, step: StepInput) -> StepInput:
            return replace(step, messages=tuple(replace(m, parts=(TextPart(m.text.upper()),)) for m in step.messages))

    run = await start(store, tmp_path / "w", ["fine"], processors=(Loud(),))
    await run.ask("quiet")
    assert run.provider.requests[0].messages[0].text == "QUIET"
    assert (await stored(run))[0].text == "quiet"


async def test_no_request_is_above_the_window(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", lambda _r: "word " * 300, window=7_000)
    for n in range(12):
        assert (await run.ask(f"question {n} " + "text " * 200)).status == "answered"
        assert run.provider.requests[-1].messages[-1].text.startswith(f"question {n} ")
    for started in run.of(StepStarted):
        assert started.request_tokens <= 7_000


async def test_usage_and_cost_come_from_the_store(store: Store, tmp_path: Path) -> None:
    run = await start(
        store,
        tmp_path / "w",
        [Answer("a", usage=Usage(100, 90, 0, 10, 0, 0.25)), Answer("b", usage=Usage(200, 150, 5, 20, 0, 0.5))],
    )
    await run.ask("x")
    await run.ask("y")
    assert run.session.current.usage == Usage(300, 240, 5, 30, 0, 0.75)
    again = await start(store, tmp_path / "w", [], continue_last=True)
    assert again.session.current.usage == run.session.current.usage


async def test_with_memory_off_nothing_is_carried_over(store: Store, tmp_path: Path) -> None:
    async def kinds(*overrides: str) -> list[str]:
        first = await start(store, tmp_path / "w", ["fine"], overrides=overrides)
        await first.ask("The port is 8080")
        second = await start(store, tmp_path / "w", ["fine"], overrides=overrides)
        await second.ask("hi")
        return [b.kind for b in second.provider.requests[0].system]

    assert await kinds() == ["system", "carry_over"]
    assert await kinds("memory.enabled=false") == ["system"]


async def test_a_step_hook_may_change_what_goes_into_the_body(store: Store, tmp_path: Path) -> None:
    class Warm(Processor):
        async def process_input_step(self, step: StepInput) -> StepInput:
            return replace(step, extra={"top_k": step.step}, effort="high")

    run = await start(store, tmp_path / "w", ["fine"], processors=(Warm(),))
    await run.ask("hi")
    assert (run.provider.requests[0].extra, run.provider.requests[0].effort) == ({"top_k": 1}, "high")
