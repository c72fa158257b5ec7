from __future__ import annotations

import re

from sakti.core.clock import TimeIds, shorten_id
from tests.fakes.clock import FakeClock


def test_ids_are_uuid7_and_increase_even_when_the_clock_does_not() -> None:
    clock = FakeClock()
    ids = TimeIds(clock)
    made = [ids.new() for _ in range(5000)]
    clock.advance(-3600)
    made += [ids.new() for _ in range(10)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", made[0])
    assert len(shorten_id(made[0])) == 8
