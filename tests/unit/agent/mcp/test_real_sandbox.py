"""Servers in the real sandbox of this machine: what they may do, and that they end with sakti."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sakti.agent import workspace as workspaces
from sakti.agent.mcp.servers import McpServer
from sakti.agent.mcp.transport import ServerProcess, is_confined
from sakti.agent.options import Options
from sakti.agent.workspace import Workspace
from sakti.core.config import load
from tests.fakes.enclosed import made_sandbox

SERVER = Path(__file__).parents[3] / "fakes/mcp_server.py"


def call(number: int, name: str) -> str:
    params = {"name": name, "arguments": {}}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}) + "\n"


@pytest.mark.parametrize("widened", [False, True])
async def test_a_server_writes_and_reaches_only_what_its_entry_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, widened: bool
) -> None:
    home = tmp_path / "home"
    root, other = home / "work", tmp_path / "other"
    root.mkdir(parents=True)
    other.mkdir()
    sandbox = made_sandbox(root, tmp_path, home)
    monkeypatch.setattr(workspaces, "make_sandbox", lambda _: sandbox)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "MY_TOKEN": "secret", "LANG": "C"}
    workspace = Workspace(Options(root, load().config, env=env))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        options = {"paths": [str(root / "a"), str(other / "b"), str(home / "c")], "ports": [listener.getsockname()[1]]}
        args = ("-S", str(SERVER), json.dumps(options))
        server = McpServer("fake", Path("c.toml"), "user", sys.executable, args, {"GIVEN": "1", "LD_X": "2"})
        if widened:
            server = dataclasses.replace(server, write=(str(other),), network=("example.org",))
        process = ServerProcess(workspace, server)
        tree = await process.start()
        try:
            pipes = tree.process
            assert pipes.stdin is not None
            pipes.stdin.write(call(1, "where").encode())
            pipes.stdin.flush()
            line = await asyncio.to_thread(pipes.stdout.readline)
        finally:
            await tree.end()
            await process.close()
        found: Any = json.loads(json.loads(line)["result"]["content"][0]["text"])
    assert found["write"] == [False, widened, False] and found["connect"] == [False]
    assert {"GIVEN", "LD_X", "HOME"} <= set(found["variables"]) and "MY_TOKEN" not in found["variables"]
    assert ("HTTPS_PROXY" in found["variables"]) is widened
    assert is_confined(workspace, server) is not widened
    assert not tree.members()


DRIVER = """
import asyncio, dataclasses, json, pathlib, sys
from sakti.agent import workspace as workspaces
from sakti.agent.mcp.transport import ServerProcess
from sakti.agent.mcp.servers import McpServer
from sakti.agent.options import Options
from sakti.core.config import load

async def main():
    for off in (False, True):
        config = load(overrides=("sandbox.enabled=off",) if off else ()).config
        workspace = workspaces.Workspace(Options(pathlib.Path(sys.argv[1]), config, full=True))
        shell = 'exec 3<&0; python="$1"; shift; "$python" "$@" <&3 & wait'
        behind = ("sh", "-c", shell, "sh", sys.executable, *sys.argv[2:])
        server = McpServer("fake", pathlib.Path("c"), "user", behind[0], behind[1:])
        globals()[f"kept{off}"] = tree = await ServerProcess(workspace, server).start()
        tree.process.stdin.write(json.dumps({"id": 1, "method": "tools/list"}).encode() + b"\\n")
        tree.process.stdin.flush()
        tree.process.stdout.readline()
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_no_server_outlives_sakti_killed_by_the_system(tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}-{tmp_path.name}"
    (tmp_path / "w").mkdir()
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "w"), "-S", str(SERVER), json.dumps({"mark": mark})]
    env = {**os.environ, "PYTHONPATH": str(SERVER.parents[2])}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None and driver.stdout.readline() == "ready\n"
        assert len(_running(mark)) >= 4  # the driver, and two servers behind shells
        driver.send_signal(signal.SIGKILL)
    limit = time.monotonic() + 10
    while _running(mark) and time.monotonic() < limit:
        time.sleep(0.05)
    assert _running(mark) == []


def _running(mark: str) -> list[str]:
    out: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                out.append(entry.parent.name)
        except OSError:
            continue
    return out
