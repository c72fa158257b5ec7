"""Talks written by hand, played into a small memory without a model: what holds stays unmarked, and who said it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import talks

TALKS = talks.all_talks()
# A small log can hold all of these, but for one value.
SHORT = frozenset(
    """android config corrections deutsch game harbor larkspur mixed negations pasted planning postgres research shop
    sloppy zugvogel""".split()
)


FALSE_SHARE = 0.02  # of what still holds, that is marked as replaced


def test_there_are_enough_of_them() -> None:
    assert len(TALKS) >= 8
    assert sum(len(t.replaced) + len(t.valid) + len(t.quoted) for t in TALKS) >= 100
    assert {t.name for t in TALKS} >= SHORT


async def test_long_logs_keep_every_value_and_mark_few_that_hold(tmp_path: Path) -> None:
    mistaken: list[str] = []
    lost: list[str] = []
    for talk in TALKS:
        played = await talks.play(talk, tmp_path, (2_000, 9_000), repeat=1)
        assert played.generations == 0
        assert talks.wrong_speaker(played, talk) == []
        mistaken += talks.mistaken(played, talk)
        lost += talks.lost(played, talk)
    assert len(mistaken) <= FALSE_SHARE * sum(len(talk.valid) for talk in TALKS), mistaken
    assert len(lost) <= 1, lost  # a date that stands for a whole sentence


@pytest.mark.parametrize("talk", [t for t in TALKS if t.name in SHORT], ids=[t.name for t in TALKS if t.name in SHORT])
async def test_a_log_condensed_repeatedly_keeps_the_talk(talk: talks.Talk, tmp_path: Path) -> None:
    played = await talks.play(talk, tmp_path, (1_500, 1_500))
    assert played.generations >= 4
    assert talks.mistaken(played, talk) == []
    assert talks.wrong_speaker(played, talk) == []
    assert len(talks.lost(played, talk)) <= 1
