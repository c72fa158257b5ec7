"""Which messages and groups a window offers: to observe, to put into the log, to send. Without a database."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.core.types import Message, MessageState, Part, TextPart, Thread, ToolCallPart, ToolResultPart
from sakti.memory import compaction, policy
from sakti.memory.status import compute_next_boundary
from sakti.memory.window import Window, select_newest_fitting, split_into_slices, sync_cut
from sakti.memory.worker import is_observable
from sakti.store.memory import Group, Record

THREAD = Thread("t", "w", "", 0, 0)
RECORD = Record("r", "thread:t", "thread", "t", "w", 0, None, None, 0, 0, 0, "UTC", 7, {})


def message(index: int, role: str, tokens: int = 10, state: MessageState = "saved", calls: str = "") -> Message:
    parts: tuple[Part, ...] = (TextPart(f"{role} {index}"),)
    if role == "tool":
        parts = tuple(ToolResultPart(c, "read", "") for c in calls)
    elif calls:
        parts = tuple(ToolCallPart(c, "read", {}) for c in calls)
    return Message(f"m{index}", "t", "w", role, parts, index, index, tokens=tokens, state=state)  # pyright: ignore[reportArgumentType]


def talk(roles: str, **values: int) -> list[Message]:
    """u: prompt, a: answer, c: call, r: its result, x: a call that nothing answers."""
    out: list[Message] = []
    for index, letter in enumerate(roles):
        role = {"u": "user", "r": "tool"}.get(letter, "assistant")
        calls = "" if letter in "ua" else f"{index - (letter == 'r')}"[-1] if letter in "cr" else "x"
        out.append(message(index, role, calls=calls, **values))
    return out


def group(first: int, last: int, state: str = "buffered", thread: str = "t", **values: object) -> Group:
    return Group(
        f"g{first}",
        "r",
        thread,
        "observation",
        state,
        "",
        0,
        first_index=first,
        last_index=last,
        **values,  # pyright: ignore
    )


def window(messages: list[Message], *groups: Group, cursor: int = -1) -> Window:
    return Window(THREAD, RECORD, cursor, messages=messages, groups=groups)


def indexes(messages: list[Message]) -> list[int]:
    return [m.index for m in messages]


# --- groups that are ready --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spans", "ready"),
    [
        ([(0, 1), (2, 3)], [0, 2]),
        ([(2, 3), (0, 1)], [0, 2]),
        ([(0, 1), (3, 3)], [0]),
        ([(1, 3)], []),
        ([(0, 0), (1, 1), (3, 5)], [0, 1]),
    ],
)
def test_ready_groups_have_no_hole_before_them(spans: list[tuple[int, int]], ready: list[int]) -> None:
    found = window(talk("uauaua"), *(group(*s) for s in spans)).ready()
    assert [g.first_index for g in found] == ready


def test_what_was_withheld_leaves_no_hole() -> None:
    messages = talk("uaua")
    messages[2] = message(2, "user", 0, "withheld")
    one = window(messages, group(0, 1), group(3, 3))
    assert len(one.ready()) == 2
    assert one.pending == 30
    assert indexes(one.messages) == [0, 1, 3]


def test_other_threads_groups_and_reflections_are_not_ready() -> None:
    waiting = Group("x", "r", "t", "reflection", "buffered", "", 0, first_index=0, last_index=1)
    one = window(talk("uaua"), group(0, 1, thread="u"), group(0, 1, "active"), waiting)
    assert one.ready() == []
    assert one.reflection is waiting
    assert len(one.active) == 1


# --- what may be observed -----------------------------------------------------------------------------------


def test_what_no_group_covers_is_the_first_run_of_it() -> None:
    assert indexes(window(talk("uaua")).find_uncovered_messages()) == [0, 1, 2, 3]
    assert indexes(window(talk("uauaua"), group(0, 1)).find_uncovered_messages()) == [2, 3, 4, 5]
    assert indexes(window(talk("uauaua"), group(2, 3)).find_uncovered_messages()) == [0, 1]
    assert indexes(window(talk("uauaua"), group(0, 0), group(3, 3)).find_uncovered_messages()) == [1, 2]
    assert indexes(window(talk("uauaua")[2:], cursor=1).find_uncovered_messages()) == [2, 3, 4, 5]


def test_nothing_behind_what_a_guardrail_looks_at_is_observed() -> None:
    messages = talk("uauaua")
    messages[2] = message(2, "user", state="provisional")
    assert indexes(window(messages).find_uncovered_messages()) == [0, 1]


def test_the_background_leaves_the_newest_prompt_and_what_runs() -> None:
    assert indexes(window(talk("uau")).observable()) == [0, 1]
    assert indexes(window(talk("uaua")).observable()) == [0, 1, 2, 3]
    assert indexes(window(talk("uac")).observable()) == [0, 1]
    assert indexes(window(talk("uacr")).observable()) == [0, 1, 2, 3]
    assert indexes(window(talk("uax")).observable()) == [0, 1]
    assert indexes(window(talk("uaxua")).observable()) == [0, 1, 2, 3, 4]  # it was given up
    assert window(talk("u")).observable() == []


def test_only_the_conversation_is_for_an_observer() -> None:
    own = Message("n", "t", "w", "user", (TextPart("."),), 0, 0, metadata={"synthetic": "note"})
    assert not is_observable(own)
    assert not is_observable(message(0, "system"))
    assert not is_observable(message(0, "user", state="provisional"))
    assert not is_observable(message(0, "user", state="withheld"))
    assert is_observable(message(0, "user"))


# --- what comes in and goes -----------------------------------------------------------------------------------


def test_a_message_comes_in_once_and_is_pending() -> None:
    one = window(talk("ua")[1:], cursor=0)
    assert not one.add(message(0, "user"))
    assert not one.add(message(1, "assistant"))
    assert one.add(message(2, "user", 7))
    assert (indexes(one.messages), one.pending) == ([1, 2], 17)
    one.forget({"m1"})
    assert (indexes(one.messages), one.pending) == ([2], 7)
    empty = window([], cursor=4)
    assert not empty.add(message(4, "user"))
    assert empty.add(message(5, "user"))


def test_a_window_is_known_to_be_all_unless_something_is_not_settled() -> None:
    assert window(talk("ua")).revision == (7, 1)
    assert window([], cursor=4).revision == (7, 4)
    assert window([message(0, "user", state="provisional")]).revision is None


# --- pieces -----------------------------------------------------------------------------------------------------


def lengths(roles: str, limit: int) -> list[int]:
    return [len(piece) for piece in split_into_slices(talk(roles), limit)]


def test_slices_are_as_large_as_may_be_and_cut_no_exchange() -> None:
    assert lengths("uaua", 20) == [2, 2]
    assert lengths("uaua", 19) == [1, 1, 1, 1]
    assert lengths("uaua", 40) == [4]
    assert lengths("ucrua", 20) == [1, 2, 2]
    assert lengths("ucrcru", 5) == [1, 2, 2, 1]


def test_a_step_that_waits_leaves_the_floor_and_the_last_exchange() -> None:
    messages = talk("uauaua")  # 60 tokens
    assert sync_cut(messages, 50, 20) == 4
    assert sync_cut(messages, 50, 21) == 3
    assert sync_cut(messages, 50, 0) == 5
    assert sync_cut(messages, 30, 40) == 4  # the floor is above the threshold: as little as comes below that
    assert sync_cut(messages, 31, 40) == 3
    assert sync_cut(talk("ucr"), 5, 0) == 1
    assert sync_cut(talk("cr"), 5, 0) == 0
    assert sync_cut(talk("u"), 5, 0) == 0


def fitting(messages: list[Message], room: int, keep: list[Message], **limit: int) -> list[Message]:
    return select_newest_fitting(messages, room, keep, lambda m: m, **limit)


def test_what_fits_is_the_newest_with_the_prompt() -> None:
    messages = talk("uacruacr")
    assert indexes(fitting(messages, 80, [])) == list(range(8))
    assert indexes(fitting(messages, 40, [])) == [4, 5, 6, 7]
    assert indexes(fitting(messages, 39, [])) == [5, 6, 7]
    assert indexes(fitting(messages, 5, [])) == [6, 7]
    assert indexes(fitting(messages, 40, [messages[0]])) == [0, 5, 6, 7]
    assert indexes(fitting(messages, 5, [messages[4]])) == [4, 6, 7]


def test_a_message_that_is_too_long_is_sent_shortened_and_older_ones_with_it() -> None:
    messages = talk("uauau")
    messages[1], messages[3] = replace(messages[1], tokens=500), replace(messages[3], tokens=600)

    def sizes(room: int, keep: list[Message], most: int | None = None) -> list[tuple[int, int]]:
        sent = select_newest_fitting(messages, room, keep, lambda m: replace(m, tokens=min(m.tokens, 20)), most=most)
        return [(m.index, m.tokens) for m in sent]

    assert sizes(80, [messages[4]]) == [(0, 10), (1, 20), (2, 10), (3, 20), (4, 10)]
    assert sizes(40, [messages[4]]) == [(2, 10), (3, 20), (4, 10)]
    assert sizes(39, [messages[4]]) == [(3, 20), (4, 10)]
    assert sizes(640, [messages[4]]) == [(1, 20), (2, 10), (3, 600), (4, 10)]
    del messages[4]
    assert sizes(80, []) == [(3, 600)], "the last exchange stays whole"
    assert sizes(80, [], most=600) == [(3, 600)]
    assert sizes(80, [], most=599) == [(0, 10), (1, 20), (2, 10), (3, 20)]


# --- what /compact takes ------------------------------------------------------------------------------------------


@dataclass
class State:
    """As much of a thread's state as a compaction is chosen by."""

    window: Window
    threshold: int = 1_000

    @property
    def numbers(self) -> policy.Numbers:
        return policy.Numbers(self.threshold, None, self.threshold, 0.5, 1_000, None, 1_000)

    @property
    def observation_tokens(self) -> int:
        return 5


@pytest.mark.parametrize(
    ("roles", "threshold", "taken"),
    [
        ("uaua", 1_000, 2),  # all before the newest prompt
        ("uacru", 1_000, 4),
        ("uauacr", 1_000, 2),
        ("uacrcr", 1_000, 0),  # one turn, and little of it
        ("uacrcr", 60, 4),  # much of it: all but the last exchange
        ("uacrcr", 61, 0),
        ("uacrcrc", 60, 4),  # a call that runs is no exchange yet
        ("u", 1, 0),
    ],
)
def test_a_compaction_leaves_the_last_exchange(roles: str, threshold: int, taken: int) -> None:
    state: Any = State(window(talk(roles)), threshold)
    assert indexes(compaction.select_messages(state)) == list(range(taken))


def test_within_a_turn_it_leaves_the_last_step() -> None:
    state: Any = State(window(talk("uauacrcr")))
    assert indexes(compaction.select_messages(state, whole_turn=False)) == [0, 1, 2, 3, 4, 5]
    state = State(window(talk("uauacrc")))
    assert indexes(compaction.select_messages(state, whole_turn=False)) == [0, 1, 2, 3]


def test_what_a_guardrail_looks_at_is_not_compacted() -> None:
    messages = talk("uaua")
    messages[2:] = [message(2, "user", state="provisional"), message(3, "assistant", state="provisional")]
    state: Any = State(window([*messages, message(4, "user", state="provisional")]))
    assert indexes(compaction.select_messages(state)) == []


def test_it_is_told_before_what_would_go() -> None:
    state: Any = State(window(talk("uauaua"), group(0, 2, message_tokens=30, observation_tokens=4)))
    assert compaction.preview(state) == (4, 65, 65 - 40 + 4 + 1)
    state = State(window(talk("ua")))
    assert compaction.preview(state) == (0, 25, 25)


# --- thresholds -----------------------------------------------------------------------------------------------------


def test_at_a_threshold_it_is_reached() -> None:
    assert policy.choose_boundary([10, 10], 1.0, 20, 10) == 1  # exactly what is to go
    assert policy.choose_boundary([10, 10], 0.5, 20, 20) == 1
    assert policy.choose_boundary([10, 10], 0.5, 20, 10) == 0
    assert policy.choose_boundary([5_000, 500], 0.5, 10_000, 10_000) == 1
    assert not policy.has_crossed_interval(9, 0, 10, 1_000)
    assert policy.has_crossed_interval(10, 0, 10, 1_000)
    assert not policy.has_crossed_interval(19, 10, 10, 1_000)
    assert not policy.has_crossed_interval(88, 80, 10, 100)
    assert policy.has_crossed_interval(89, 80, 10, 100)  # near the threshold half of it is enough
    assert policy.has_crossed_interval(95, 90, 10, 100)
    assert policy.resolve_block_after(100, 10) == 100
    assert policy.resolve_block_after(99, 10) == 990
    assert policy.resolve_retention_floor(0.8, 1_000) == pytest.approx(200)
    assert policy.resolve_retention_floor(1_000, 5_000) == 1_000
    assert policy.resolve_buffer_tokens(0.2, 1_000) == 200


def test_what_failed_is_tried_ever_later() -> None:
    one = policy.Backoff()
    assert one.due(0, 0)
    one = one.after(100, 0, 50)
    assert (one.failures, one.tokens, one.time) == (1, 150, policy.MINUTE)
    assert not one.due(149, policy.MINUTE - 1)
    assert one.due(150, 0)
    assert one.due(0, policy.MINUTE)
    one = one.after(150, policy.MINUTE, 50)
    assert (one.tokens, one.time) == (250, 3 * policy.MINUTE)
    for _ in range(9):
        one = one.after(0, 0, 50)
    assert (one.tokens, one.time) == (400, 8 * policy.MINUTE)


def test_a_boundary_above_a_context_that_has_shrunk_counts_as_none() -> None:
    assert policy.has_crossed_interval(30, 200, 10, 1_000)
    assert not policy.has_crossed_interval(9, 200, 10, 1_000)


def test_the_next_boundary_is_a_whole_interval_behind_the_last_one() -> None:
    numbers = SimpleNamespace(buffer=500, threshold=10_000)
    assert [
        compute_next_boundary(pending, last, numbers) for pending, last in ((0, 0), (700, 500), (1_400, 1_000))
    ] == [
        500,
        1_000,
        1_500,
    ]
    assert compute_next_boundary(700, 2_000, numbers) == 500, "the context has shrunk since"
    assert compute_next_boundary(9_600, 9_500, numbers) == 9_750, "half an interval near the threshold"
    assert compute_next_boundary(700, 0, SimpleNamespace(buffer=None, threshold=10_000)) is None


def test_only_an_observation_of_its_own_thread_moves_the_cursor() -> None:
    one = Group("g", "r", "t", "observation", "active", "* x", 0)
    assert one.observes
    assert not replace(one, origin="import").observes
    assert not replace(one, kind="reflection").observes
