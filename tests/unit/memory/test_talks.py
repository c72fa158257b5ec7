"""Talks written by hand, played into a small memory without a model: what was replaced, and who said what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import talks

TALKS = talks.all_talks()
# "Akira writes the methods" – "methods are on me"; "Die API-Version ist v2" – "das mit der API stimmt nicht mehr: v3";
# "title is Larkspur Beta" – "title: Larkspur, without the Beta".
BEYOND_RULES = {"research", "zugvogel", "larkspur"}


def test_there_are_enough_of_them() -> None:
    assert len(TALKS) >= 8
    assert sum(len(t.replaced) + len(t.valid) + len(t.quoted) for t in TALKS) >= 100


@pytest.mark.parametrize("talk", TALKS, ids=[t.name for t in TALKS])
async def test_a_log_shows_nothing_as_current_that_was_replaced(talk: talks.Talk, tmp_path: Path) -> None:
    """A whole talk in a log that is never condensed, and in one that was condensed again and again."""
    for limits, generations in (((6_000, 3_000), 0), ((1_500, 1_500), 4)):
        (tmp_path / str(limits[0])).mkdir()
        played = await talks.play(talk, tmp_path / str(limits[0]), limits)
        assert played.generations >= generations
        assert len(talks.stale(played, talk)) <= (talk.name in BEYOND_RULES)
        assert talks.mistaken(played, talk) == []
        assert talks.wrong_speaker(played, talk) == []
        assert len(talks.lost(played, talk)) <= (1 if generations else 0)
