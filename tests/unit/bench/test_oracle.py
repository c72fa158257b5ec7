"""The replay's own numbers: where they and memory's differ one of them is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.core.config import MemorySettings, ObservationSettings, ReflectionSettings
from sakti.core.types import Message, TextPart, ToolCallPart, ToolResultPart
from sakti.memory import policy
from tests.bench import oracle

thresholds = st.integers(300, 40_000)
some_settings = st.builds(
    MemorySettings,
    share_token_budget=st.booleans(),
    observation=st.builds(
        ObservationSettings,
        message_tokens=thresholds,
        buffer_tokens=st.sampled_from((0.1, 0.2, 0.25, 0.5, False)) | st.integers(50, 250),
        buffer_activation=st.sampled_from((0.5, 0.7, 0.8, 0.95, 1.0, 1_000, 2_500)),
        block_after=st.sampled_from((1.0, 1.1, 1.2, 1.5, 2.0)) | st.integers(40_000, 60_000),
    ),
    reflection=st.builds(
        ReflectionSettings,
        observation_tokens=thresholds,
        buffer_activation=st.sampled_from((0.3, 0.5, 0.8, 1.0)),
        block_after=st.sampled_from((1.0, 1.2, 1.5)) | st.integers(40_000, 60_000),
    ),
)


@given(some_settings, st.integers(0, 50_000), st.none() | st.integers(0, 60_000))
def test_both_come_to_the_same_thresholds(settings: MemorySettings, log: int, budget: int | None) -> None:
    theirs, ours = policy.compute_effective_numbers(settings, log, budget), oracle.numbers(settings, log, budget)
    assert (ours.threshold, ours.interval, ours.block_after) == (theirs.threshold, theirs.buffer, theirs.block_after)
    assert (ours.reflect_at, ours.reflect_from) == (theirs.reflect_at, theirs.reflect_from)
    assert ours.reflect_block_after == theirs.reflect_block_after
    assert ours.floor == pytest.approx(policy.resolve_retention_floor(theirs.activation, theirs.threshold))


@given(st.lists(st.integers(0, 3_000), max_size=9), st.sampled_from((0.5, 0.8, 1.0, 1_000)), st.integers(0, 9_000))
def test_both_choose_the_same_boundary(groups: list[int], activation: float, pending: int) -> None:
    floor = policy.resolve_retention_floor(activation, 2_000)
    assert oracle.boundary(groups, floor, pending) == policy.choose_boundary(groups, activation, 2_000, pending)


def say(index: int, role: str, calls: str = "", results: str = "") -> Message:
    parts = (
        *(ToolCallPart(c, "read", {}) for c in calls),
        *(ToolResultPart(r, "read", "") for r in results),
        TextPart(f"words {index}"),
    )
    return Message(f"m{index}", "t", "r", role, parts, index, index)  # pyright: ignore[reportArgumentType]


TALK = [
    say(0, "user"),
    say(1, "assistant", calls="ab"),
    say(2, "tool", results="a"),  # b is never answered
    say(3, "user"),
    say(4, "assistant", calls="c"),
    say(5, "tool", results="c"),
    say(6, "assistant", calls="d"),
]


def test_calls_and_results_are_one_exchange() -> None:
    assert [[m.index for m in one] for one in oracle.exchanges(TALK)] == [[0], [1, 2], [3], [4, 5], [6]]
    assert [m.index for m in oracle.complete(TALK)] == [0, 1, 2, 3, 4, 5]
    assert [m.index for m in oracle.complete(TALK[:3])] == [0]


def test_cuts_are_between_exchanges() -> None:
    for end in range(1, len(TALK) + 1):
        part = TALK[:end]
        ends = {0}
        for one in oracle.exchanges(part):
            ends.add(one[-1].index + 1)
        running = part[-1].tool_calls or (part[-1].role == "tool" and part[-1].index == 2)
        assert set(policy.list_safe_cuts(part)) == ends - ({len(part)} if running else set[int]())


def test_a_word_is_of_one_message_and_nobody_says_it_by_chance() -> None:
    words = {oracle.tag(m) for m in TALK}
    assert len(words) == len(TALK)
    assert all(len(w) == 7 for w in words)
    text = " ".join(["zebra", *sorted(words), "zzzzzzz"])
    assert oracle.words(text, words) == sorted(words)
