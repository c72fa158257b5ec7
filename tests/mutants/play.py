"""Plays generated conversations until one of them finds something: exit 1 then. `python -m tests.mutants.play SEED…`"""

from __future__ import annotations

import asyncio
import sys

from sakti.core.tokens import O200k
from tests.bench import talks
from tests.bench.replay import replay


def main(seeds: list[str]) -> int:
    counter = O200k()
    for text in seeds:
        seed, _, failpoint = text.partition("@")
        run = asyncio.run(replay(talks.generate(int(seed)), counter, kill_at=failpoint))
        for found in run.violations[:1]:
            print(f"seed {seed}, turn {found.turn}, step {found.step}: {found.invariant}: {found.message}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
