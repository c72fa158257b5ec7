"""Run many repairs one after the other; logged results are reused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.bench.repair.catalog import Repair
from tests.bench.repair.play import Contestant, Limits, play
from tests.bench.repair.results import Log, Result


async def run(
    repairs: Sequence[Repair],
    contestant: Contestant,
    limits: Limits,
    log: Log,
    *,
    again: bool = False,
    tell: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Play `repairs` in order and report each by `tell`. `again`: also those that the log has.

    A result is logged before the next repair begins; what was not run, or not to its own end, is not logged, and is
    repeated the next time. A model that gives no answer at all ends the run: the others would fail like this one.
    """
    known = {} if again else log.read(repairs)
    results: list[Result] = []
    for repair in repairs:
        result = known.get(repair.name)
        if result is None:
            result = await play(repair, contestant, limits)
            if result.outcome in ("solved", "unsolved"):
                log.add(repair, result)
        results.append(result)
        tell(result)
        if result.outcome == "error" and not result.steps:
            break
    return results
