"""Events become lines that make sense when they are read aloud."""

from __future__ import annotations

from msgspec.structs import replace

from sakti.agent.project.trust import TrustedFileChange
from sakti.core.events import (
    ApprovalRequested,
    ApprovalResolved,
    Event,
    MessageSaved,
    ModelChanged,
    Notice,
    PromptRead,
    QueueChanged,
    RetryScheduled,
    StepStarted,
    StoreWaiting,
    TextDelta,
    ThinkingDelta,
    ThreadChanged,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
)
from sakti.core.types import Message, TextPart, Thread, ToolCallPart, ToolResultPart, Usage
from sakti.plain import words
from sakti.plain.prose import Prose, format_all, speak_line
from sakti.plain.speech import Speech

READ = ToolCallPart("1", "read", {"path": "src/a.py"})
ANSWER = Message("m", "t", "r", "assistant", (TextPart("x"),), 0)
BASH = ApprovalRequested("q1", "bash", "Runs a command", "make all\nmake test", "src", rule="bash(make *)")
WRITE = ApprovalRequested(
    "q2", "write", "Edits a file in this project", "a.py", ".", diff="--- a\n+++ b\n@@ -1,2 +1,2 @@\n x\n-y\n+z"
)


def said(*events: Event, speech: Speech | None = None) -> list[str]:
    speech = speech or Speech()
    return [line for event in events for line in speech.format_event(event)]


def end(status: str = "answered", **more: str) -> TurnFinished:
    return TurnFinished("t", status, "", 1, Usage(), **more)  # type: ignore[arg-type]


def test_an_answer_is_said_a_whole_line_at_a_time() -> None:
    speech = Speech()
    assert speech.format_event(TextDelta("It drains at ")) == []
    assert speech.format_event(TextDelta("midnight.\nThen it ")) == ["sakti: It drains at midnight."]
    assert speech.format_event(TextDelta("rests.")) == []
    assert speech.format_event(MessageSaved(ANSWER)) == ["Then it rests."]
    assert speech.format_event(end()) == ["ready"]


def test_a_long_line_is_said_by_whole_sentences() -> None:
    prose = Prose()
    text = "One sentence of some length that says nothing much at all, but goes on. " * 3 + "And a half"
    lines = [line for word in text.split(" ") for line in prose.add(word + " ")]
    assert lines and all(line.endswith("goes on.") for line in lines)
    assert " ".join([*lines, *prose.end()]).split() == text.split()


def test_markdown_is_said_without_its_signs() -> None:
    text = "## The *plan*\n\n- **bold** and `x ** 2` and [a](http://b)\n> mind it\n---\n| a | b |\n|---|:-:|\n| 1 | 2 |"
    assert format_all(text) == [
        "heading: The plan",
        "- bold and x ** 2 and a (http://b)",
        "quote: mind it",
        "row: a; b",
        "row: 1; 2",
    ]
    assert format_all("```python\n# **kept**\n\n  x = 1\n```\nafter") == [
        "code python:",
        "# **kept**",
        "",
        "  x = 1",
        "end of code",
        "after",
    ]
    assert format_all("```\nnever closed") == ["code:", "never closed", "end of code"]
    assert speak_line("snake_case__name and 2 * 3 * 4") == "snake_case__name and 2 * 3 * 4"


def test_nothing_that_a_terminal_would_obey_is_said() -> None:
    evil = "\x1b]0;title\x07\x1b[2J\u202ex\x9b1m"
    call = ToolCallPart("1", f"bash{evil}", {"command": evil})
    events = (
        TextDelta(f"{evil}\n"),
        ToolFinished(ToolResultPart("1", "bash", evil, True), 10),
        ApprovalRequested("q", evil, evil, evil, evil, rule=evil),
        Notice("error", evil, evil),
        QueueChanged((evil,)),
        RetryScheduled(1, 3, 2.0, evil),
        ThreadChanged(Thread("t", "r", evil, 0, 0)),
        ModelChanged(evil, evil),
        end("error", error=evil, error_title=evil),
    )
    for event in events:
        lines = said(ToolStarted(call), event)
        assert lines and not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for x in lines for c in x), event


def test_a_tool_call_is_one_line() -> None:
    good = ToolFinished(ToolResultPart("1", "read", "…", details={"lines": "1-120"}), 100)
    assert said(ToolStarted(READ), good) == ["tool: read src/a.py, lines 1 to 120, ok, 0.1 seconds"]
    bad = ToolFinished(ToolResultPart("1", "read", "There is no file src/a.py.", True), 65_000)
    assert said(ToolStarted(READ), bad) == [
        "tool: read src/a.py, failed, 1 minute 5 seconds, There is no file src/a.py."
    ]
    changed = ToolFinished(ToolResultPart("1", "edit", "…", details={"added": 4, "removed": 1}), 0)
    assert said(changed) == ["tool: edit, 4 lines added, 1 removed, ok, 0.0 seconds"]
    run = ToolCallPart("2", "bash", {"command": "make"})
    failed = ToolFinished(ToolResultPart("2", "bash", "boom", True, {"exit_code": 2}), 1900)
    assert said(ToolStarted(run), ToolOutput("2", "boom"), failed) == [
        "tool: bash make, started",
        "tool: bash make, exit code 2, failed, 1.9 seconds",
        "  boom",
    ]


def test_half_a_line_is_said_before_what_follows_it() -> None:
    assert said(TextDelta("I will look"), ToolStarted(ToolCallPart("1", "bash", {"command": "ls"}))) == [
        "sakti: I will look",
        "tool: bash ls, started",
    ]
    # what merely happens meanwhile does not break a sentence
    assert said(TextDelta("I will"), QueueChanged(("x",)), TextDelta(" look\n")) == [
        "queued, 1 waiting: x",
        "sakti: I will look",
    ]


def test_the_users_own_command_is_said_as_it_prints() -> None:
    speech = Speech()
    speech.expect_command("make")
    assert said(ToolStarted(READ), ToolOutput("1", "not mine\n"), speech=speech) == []
    run = ToolCallPart("1", "bash", {"command": "make"})
    done = ToolFinished(ToolResultPart("1", "bash", "a\nb"), 50)
    lines = said(ToolStarted(run), ToolOutput("1", "a\nhalf"), ToolOutput("1", " b"), done, speech=speech)
    assert lines == ["a", "half b", "command: bash make, ok, 0.1 seconds"]
    assert speech.calls[-1].lines() == ["bash make:", "a", "b"]


def test_a_command_that_failed_is_said_with_its_end() -> None:
    printed = "".join(f"row {n}\n" for n in range(14)) + "[exit code 2]"
    run = ToolCallPart("1", "bash", {"command": "make"})
    failed = ToolFinished(ToolResultPart("1", "bash", printed, True, {"exit_code": 2}), 50)
    lines = said(ToolStarted(run), failed)
    assert lines[1] == "tool: bash make, exit code 2, failed, 0.1 seconds"
    assert lines[2] == "  and 4 lines before; /output shows all of it" and lines[3:] == [
        f"  row {n}" for n in range(4, 14)
    ]
    denied = ToolFinished(ToolResultPart("1", "bash", "x", True, {"denied": "use pnpm"}), 0)
    assert said(ToolStarted(run), denied)[1:] == ["tool: bash make, denied: use pnpm"]


def test_several_calls_are_said_before_the_first_is_made() -> None:
    calls = (ToolCallPart("1", "write", {"path": "a.py"}), ToolCallPart("2", "bash", {"command": "make"}))
    message = Message("m", "t", "r", "assistant", calls, 0)
    assert said(MessageSaved(message)) == ["2 calls: write a.py; bash make"]
    assert said(MessageSaved(Message("m", "t", "r", "assistant", calls[:1], 0))) == []


def test_questions_are_asked_one_at_a_time() -> None:
    speech = Speech()
    assert speech.format_event(BASH) == [
        "question 1: run this command?",
        "  make all",
        "  make test",
        "why: runs a command; in src",
        "y and Enter: allow once",
        "t and Enter: allow in this thread, by the rule `make …`",
        "a and Enter: always allow in this workspace; the rule is saved",
        "n and Enter: deny; words after n give the agent the reason",
        "e, a space and another command: run that instead",
    ]
    assert speech.format_event(WRITE) == []
    assert speech.question == BASH
    assert speech.format_event(ApprovalResolved("q1", True)) == [
        "allowed",
        "question 2: allow write?",
        "  a.py",
        "at line 1:",
        "keep: x",
        "remove: y",
        "add: z",
        "why: edits a file in this project",
        "y and Enter: allow once",
        "n and Enter: deny; words after n give the agent the reason",
    ]
    assert speech.format_event(ApprovalResolved("q2", False)) == ["denied"]
    assert speech.question is None


def test_how_a_turn_ends_is_said() -> None:
    assert said(TextDelta("half"), end("interrupted")) == [
        "sakti: half",
        "Interrupted; the answer so far is kept",
        "ready",
    ]
    failed = end("error", error="The key is not valid.", error_title="Key")
    assert said(failed) == [
        "Key: The key is not valid.",
        "/retry tries again; the answer so far is kept",
        "ready",
    ]
    assert said(replace(failed, steps=0))[1] == "/retry tries again"
    assert said(replace(failed, error_code="full"))[1] == "/retry tries again"


def test_thinking_is_said_once_a_step() -> None:
    step = StepStarted(1, "m", 10)
    assert said(step, ThinkingDelta("a"), ThinkingDelta("b"), step, ThinkingDelta("c")) == ["sakti is thinking"] * 2


def test_how_far_a_prompt_is_read_is_said_now_and_then() -> None:
    step = StepStarted(1, "m", 10)
    read = [PromptRead(n, 100) for n in (0, 10, 20, 30, 45, 70, 100)]
    lines = ["reading the prompt: 20 %", "reading the prompt: 45 %", "reading the prompt: 70 %"]
    assert said(step, *read, step, *read) == lines * 2


def test_the_queue_and_the_thread() -> None:
    speech = Speech()
    first = Thread("t", "r", "", 0, 0)
    assert said(
        ThreadChanged(first),
        ThreadChanged(Thread("t", "r", "named", 0, 0)),
        QueueChanged(("a",)),
        QueueChanged(("a", "b")),
        QueueChanged(("a",)),  # b was taken back
        QueueChanged(()),
        MessageSaved(Message("1", "t", "r", "user", (TextPart("a"),), 0)),
        MessageSaved(Message("2", "t", "r", "user", (TextPart("a"),), 0)),
        speech=speech,
    ) == [
        "thread: a new thread",
        "queued, 1 waiting: a",
        "queued, 2 waiting: b",
        "read by the agent: a",
    ]


def test_a_wait_for_another_window_is_said_now_and_then() -> None:
    speech = Speech()
    said_at = [s for s in range(30) if speech.format_event(StoreWaiting(float(s)))]
    assert said_at == [2, 12, 22]
    assert speech.format_event(StoreWaiting(None)) == ["the other window is done"]
    assert speech.format_event(StoreWaiting(0.6)) == speech.format_event(StoreWaiting(None)) == []


def test_changes_of_several_files_are_read_with_their_names() -> None:
    changes = [
        TrustedFileChange("a.sh", "script", "changed", "1", "2"),
        TrustedFileChange("b.md", "command", "new", "", "x"),
    ]
    assert words.spell_file_changes(changes) == [
        *("a.sh, changed:", "at line 1:", "remove: 1", "add: 2"),
        *("b.md, new:", "at line 1:", "add: x"),
    ]
