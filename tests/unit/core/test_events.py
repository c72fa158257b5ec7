"""The union of events: the thread that each belongs to, and its JSON form."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from sakti.core.events import (
    Event,
    McpServerChanged,
    MemoryOperation,
    ModelChanged,
    Notice,
    RetryScheduled,
    StoreWaiting,
    TasksChanged,
    TextDelta,
    ThreadChanged,
    TurnFinished,
    assign_thread,
    get_thread_id,
    to_json,
)
from sakti.core.types import Thread, Usage

OF_THE_WORKSPACE = {McpServerChanged, ModelChanged, TasksChanged, StoreWaiting}


def test_every_event_but_those_of_the_workspace_has_a_thread() -> None:
    assert {kind for kind in get_args(Event) if "thread_id" not in kind.__struct_fields__} == OF_THE_WORKSPACE


@pytest.mark.parametrize(
    "event",
    [
        TextDelta("a"),
        Notice("warning", "t", "m"),
        ThreadChanged(Thread("t1", "r", "", 0, 0)),
        MemoryOperation("buffering", "start", "c", "observation", "r", ("t1",)),
    ],
)
def test_an_event_gets_its_thread_once(event: Any) -> None:
    assert get_thread_id(event) == ""
    first = assign_thread(event, "t1")
    assert get_thread_id(first) == "t1" and to_json(first)["thread_id"] == "t1"
    assert assign_thread(first, "t2") is first


def test_other_events_keep_what_they_say() -> None:
    end = TurnFinished("t1", "answered", "", 1, Usage())
    assert assign_thread(end, "t2") is end
    for event in (ModelChanged("a/b", "given"), TasksChanged(), StoreWaiting(1.0)):
        assert assign_thread(event, "t1") is event and get_thread_id(event) == ""


def test_words_of_an_event_are_the_same_in_every_output() -> None:
    failed = TurnFinished("t", "error", "", 1, Usage(), "The key\x1b is not valid.", "Key")
    assert failed.in_words == "Key: The key␛ is not valid."
    assert replace(failed, status="limit", error=None, error_title=None).in_words == "Stopped at a limit"
    assert RetryScheduled(2, 8, 4.2, "x is overloaded.").in_words == (
        "x is overloaded. Trying again in 4 seconds, attempt 2 of 8."
    )
    assert Notice("warning", "Memory", "It is\npaused.").in_words == "Memory: It is paused."
