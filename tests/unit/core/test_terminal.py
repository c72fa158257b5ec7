"""The end of a program with a terminal."""

from __future__ import annotations

import subprocess
import sys

STUCK = """
import asyncio, time
from sakti.core import terminal

async def work():
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
    return 7

print(asyncio.run(terminal.then_end(work())))
"""


def test_a_thread_that_still_runs_does_not_hold_up_the_end():
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
