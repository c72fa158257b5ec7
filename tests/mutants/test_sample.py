"""Some changes to memory that must be noticed; all of them by `python tests/mutants/run.py`."""

from __future__ import annotations

import random

from tests.mutants import run, table
from tests.mutants.apply import Mutant, NotFound, mutated, path_of

SAMPLE = 6


def test_every_change_fits_the_code() -> None:
    assert [found for mutant in table.MUTANTS if (found := _misfit(mutant))] == []
    assert len({m.id for m in table.MUTANTS}) == len(table.MUTANTS)
    assert [m.target for m in table.MUTANTS if not m.target.startswith(tuple(run.TESTS))] == [], "no test tries it"


def test_every_part_and_test_that_is_tried_is_there() -> None:
    parts = [run.ROOT / name.replace(".", "/") for name in run.TESTS]
    assert [p for p in parts if not p.is_dir() and not p.with_suffix(".py").exists()] == []
    files = {file for some in run.TESTS.values() for file in some} | set(run.QUICK)
    assert [file for file in sorted(files) if not (run.ROOT / file).exists()] == []


def _misfit(mutant: Mutant) -> str:
    """What is wrong with a change; empty where it fits."""
    try:
        source = path_of(run.ROOT, mutant).read_text("utf-8")
        return "" if mutated(source, mutant) != source else f"{mutant.id}: it changes nothing"
    except (NotFound, FileNotFoundError) as e:
        return f"{mutant.id}: {e}"


def test_a_sample_is_noticed() -> None:
    known = [m for m in table.MUTANTS if m.by.startswith("tests/")]  # sooner than a replay
    sample = random.Random(len(known)).sample(known, SAMPLE)  # another one whenever more are known
    assert [o for o in run.run(sample, "named") if o.state != "killed"] == []
