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

print(asyncio.run(terminal.run_then_end(work())))
"""

APART = """
import logging, sys, time
from sakti.core import terminal

class Last:
    def __del__(self, sleep=time.sleep):
        sleep(600)

last = Last()  # taken apart by the end of the interpreter
logging.basicConfig(filename=sys.argv[1])
logging.warning("logged")
sys.stdout.write("printed")
terminal.end_process(7)
"""


def test_the_end_waits_for_nothing_but_what_was_printed_and_logged(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", APART, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "printed", "")
    assert "logged" in log.read_text()


def test_a_thread_that_still_runs_does_not_hold_up_the_end():
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
