"""Talks written by hand, played into a small memory without a model: what was replaced, and who said what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import talks

TALKS = talks.all_talks()
# What the rules do not tell: how much of what was replaced stays unmarked, how much of what holds stands in a marked
# clause (the mark stands behind it, "opens a ticket in Jira [earlier]"), and how much the log does not have. All others
# have none of these.
BEYOND_RULES = {
    "clinic": (1, 0, 0),
    "clinicdb": (2, 0, 0),
    "dungeon": (1, 0, 0),
    "energie": (2, 1, 0),
    "funk": (2, 0, 1),
    "genome": (2, 0, 0),
    "imkerei": (3, 0, 0),
    "larkspur": (1, 0, 0),
    "ledger": (1, 2, 0),
    "lending": (0, 1, 0),
    "meldewesen": (0, 1, 0),
    "museum": (2, 0, 0),
    "podcast": (2, 0, 0),
    "quant": (1, 0, 0),
    "research": (1, 0, 0),
    "tenants": (2, 0, 0),
    "trainer": (1, 0, 0),
    "warehouse": (2, 0, 0),
    "werkstatt": (3, 0, 0),
    "zugvogel": (1, 0, 0),
}
# A small log can hold all of these, but for one value.
SHORT = frozenset(
    """android config corrections deutsch game harbor larkspur mixed negations pasted planning postgres research shop
    sloppy zugvogel""".split()
)


def test_there_are_enough_of_them() -> None:
    assert len(TALKS) >= 8
    assert sum(len(t.replaced) + len(t.valid) + len(t.quoted) for t in TALKS) >= 100
    assert {t.name for t in TALKS} >= SHORT | BEYOND_RULES.keys()


@pytest.mark.parametrize("talk", TALKS, ids=[t.name for t in TALKS])
async def test_a_log_shows_nothing_as_current_that_was_replaced(talk: talks.Talk, tmp_path: Path) -> None:
    """A whole talk in a log that is never condensed: no more is missed than is known, and no less."""
    played = await talks.play(talk, tmp_path, (2_000, 9_000), repeat=1)
    assert played.generations == 0
    unmarked, mistaken, lost = talks.stale(played, talk), talks.mistaken(played, talk), talks.lost(played, talk)
    assert (len(unmarked), len(mistaken), len(lost)) == BEYOND_RULES.get(talk.name, (0, 0, 0)), (
        unmarked,
        mistaken,
        lost,
    )
    assert talks.wrong_speaker(played, talk) == []


@pytest.mark.parametrize("talk", [t for t in TALKS if t.name in SHORT], ids=[t.name for t in TALKS if t.name in SHORT])
async def test_a_log_condensed_repeatedly_keeps_the_talk(talk: talks.Talk, tmp_path: Path) -> None:
    played = await talks.play(talk, tmp_path, (1_500, 1_500))
    assert played.generations >= 4
    assert len(talks.stale(played, talk)) <= BEYOND_RULES.get(talk.name, (0, 0, 0))[0]
    assert talks.mistaken(played, talk) == []
    assert talks.wrong_speaker(played, talk) == []
    assert len(talks.lost(played, talk)) <= 1
