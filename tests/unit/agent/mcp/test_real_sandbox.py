"""Servers in the real sandbox of this machine: what they may do."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import socket
import sys
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
