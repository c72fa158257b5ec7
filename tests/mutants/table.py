"""The changes that are tried. Each is one thing that can silently go wrong in memory.

`python tests/mutants/run.py --only ID` says who notices one; what is named in its last field is tried first.
"""

from __future__ import annotations

from tests.mutants.apply import Mutant
from tests.mutants.tables import (
    context,
    engine,
    faithful,
    jobs,
    moves,
    output,
    policy,
    replaced,
    shared,
    state,
    store,
    tools,
    windows,
    work,
)

MUTANTS: tuple[Mutant, ...] = (
    *moves.MUTANTS,
    *state.MUTANTS,
    *jobs.MUTANTS,
    *work.MUTANTS,
    *windows.MUTANTS,
    *engine.MUTANTS,
    *policy.MUTANTS,
    *output.MUTANTS,
    *replaced.MUTANTS,
    *faithful.MUTANTS,
    *shared.MUTANTS,
    *context.MUTANTS,
    *store.MUTANTS,
    *tools.MUTANTS,
)
