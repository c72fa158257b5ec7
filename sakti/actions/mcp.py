"""Declare `sakti mcp`: memory for other agents."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from sakti.actions.scope import Scope
from sakti.actions.spec import MEMORY, action, flag


@action(flag("--all-workspaces", help="Search all workspaces, not only the client's."), shell="mcp", panel=MEMORY,
        json=False)  # fmt: skip
async def mcp(scope: Scope, all_workspaces: bool) -> None:
    """Serve memory to another agent over standard input and output (MCP).

    It only reads. `sakti connect PROGRAM` registers it there.
    """
    server: Any = importlib.import_module("sakti.agent.memory_server")  # not for lists of commands
    server.serve(sys.stdin.buffer, sys.stdout.buffer, scope.database, all_workspaces=all_workspaces)
