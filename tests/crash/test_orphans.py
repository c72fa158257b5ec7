"""Nothing that sakti starts outlives it, however it ends and whatever the sandbox does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

# A bubblewrap that asks for its end with its parent only after that has died is never told of it.
DRIVER = """
import asyncio, os, signal, sys, time
from pathlib import Path
from sakti.agent.mcp.transport import ServerProcess
from sakti.agent.mcp.servers import McpServer
from sakti.agent.options import Options
from sakti.agent.project.hooks import answers
from sakti.agent.project.hooks.settings import Hook
from sakti.agent.sandbox import backends
from sakti.agent.tools.bash import bash
from sakti.agent.tools.context import ToolState
from sakti.agent.workspace import Workspace
from sakti.core.clock import SystemClock
from sakti.core.config import load
from sakti.core.clock import TimeIds
from tests.crash.test_orphans import count_running
from tests.fakes.tools import call

backends._NAMESPACES = tuple(n for n in backends._NAMESPACES if n != "--die-with-parent")
folder, sleep = Path(sys.argv[1]), f"sleep {sys.argv[2]}"

async def start_all(config, started):
    workspace = Workspace(Options(folder, config, full=True, env=dict(os.environ)))
    server = McpServer("fake", Path("c"), "user", "sh", ("-c", f"{sleep}; :"))
    sandbox = workspace.sandbox if workspace.try_sandbox().holds else None
    clock, output = SystemClock(), folder.parent / "out"
    state = ToolState(folder, folder, output, clock, TimeIds(clock), dict(os.environ), sandbox=sandbox)
    hook = answers.HookSurroundings(folder, folder, dict(os.environ), sandbox)
    started += [
        await ServerProcess(workspace, server).start(),
        await call(state, bash, command=sleep, background=True),
        asyncio.create_task(call(state, bash, command=sleep, outside="no sandbox")),
        asyncio.create_task(answers.run(Hook("Stop", sleep, "c"), b"{}", hook)),
        state,
    ]

async def main():
    started = []
    for setting in ("auto", "off"):
        await start_all(load(overrides=(f"sandbox.enabled={setting}",)).config, started)
    limit = time.monotonic() + 30
    while count_running(sys.argv[2]) < 8 and time.monotonic() < limit:
        await asyncio.sleep(0.02)
    print(count_running(sys.argv[2]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def count_running(seconds: str) -> int:
    """Count the processes that sleep for exactly these seconds."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += path.read_bytes() == f"sleep\0{seconds}\0".encode()
        except OSError:
            continue
    return count


def test_commands_jobs_servers_and_hooks_end_with_sakti_even_if_their_sandbox_does_not(tmp_path: Path) -> None:
    seconds = f"98764.{os.getpid()}"
    (tmp_path / "w").mkdir()
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "w"), seconds]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "8\n", done.stderr
    limit = time.monotonic() + 10
    while count_running(seconds) and time.monotonic() < limit:
        time.sleep(0.02)
    assert count_running(seconds) == 0
