"""Start the process of a server in the sandbox: workspace read-only, no network but its hosts."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from subprocess import PIPE

from sakti.agent.mcp.place import ServerPlace
from sakti.agent.mcp.servers import McpServer
from sakti.agent.sandbox import environment
from sakti.agent.sandbox.proxy import Proxy
from sakti.agent.sandbox.sandbox import given_folders
from sakti.agent.tools.bash import PORT, RELAY
from sakti.agent.tools.processes import ProcessTree, spawn


def is_confined(workspace: ServerPlace, server: McpServer) -> bool:
    """Return whether a server runs inside a working sandbox and reaches no network."""
    return bool(server.command) and not server.network and workspace.try_sandbox().holds


class ServerProcess:
    """Process of one server, with its way to the hosts that it may reach."""

    def __init__(self, workspace: ServerPlace, server: McpServer) -> None:
        self._workspace, self._server = workspace, server
        self._proxy: Proxy | None = None

    async def start(self) -> ProcessTree:
        """Start the process from this thread, which has to be the main one. Raises `OSError`, `ValueError`."""
        ws, server = self._workspace, self._server
        level = ws.try_sandbox()
        env = environment.choose_variables(ws.command_environment(), ws.config.sandbox.env)
        program = shutil.which(server.command, path=server.env.get("PATH") or env.get("PATH"))
        if program is None:
            raise FileNotFoundError(f"the program {server.command} was not found")
        cwd = (ws.root / Path(server.cwd).expanduser()).resolve()
        if not cwd.is_dir():
            raise FileNotFoundError(f"there is no folder {server.cwd}")
        loaded = environment.without_loaded(server.env)  # of these bubblewrap must see none
        late = tuple(f"{k}={v}" for k, v in server.env.items() if k not in loaded)
        argv = (*(("/usr/bin/env", *late) if late else ()), program, *server.args)
        env |= loaded
        if level.name == "unsandboxed":
            network = environment.network_variables(ws.command_environment())
            return ProcessTree(spawn(argv, cwd, {**network, **env}, stdin=PIPE, stderr=PIPE))
        read: tuple[Path, ...] = ()
        if server.network and level.own_network:
            self._proxy = Proxy(server.network)
            way = await self._proxy.start()
            argv = (sys.executable, "-I", "-S", str(RELAY), str(way), str(PORT), *argv)
            env |= environment.proxy_variables(PORT)
            read = (way.parent,)
        with ws.sandbox.enclosed(argv, cwd, self._writable(), read, read_only=True) as enclosed:
            process = spawn(enclosed.argv, enclosed.cwd, env, enclosed.descriptors, stdin=PIPE, stderr=PIPE)
        return ProcessTree(process)

    def _writable(self) -> tuple[Path, ...]:
        """Return the folders that it may change; those that are missing are created."""
        ws = self._workspace
        names = [str(ws.root / Path(name).expanduser()) for name in self._server.write]
        folders = given_folders(names, ws.home)
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
        return tuple(folder for folder in folders if os.path.lexists(folder))

    async def close(self) -> None:
        """Close its way to hosts."""
        if self._proxy is not None:
            await self._proxy.close()
            self._proxy = None
