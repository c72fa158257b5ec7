"""Configured MCP servers, and their state as lists and panels show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sakti.core.errors import SaktiError

Origin = Literal["user", "project"]
StateName = Literal["starting", "ready", "needs login", "failed", "disabled"]


class LoginNeededError(SaktiError):
    """The server wants the user to log in."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """One configured server: `command` for a process, `url` for streamable HTTP. Variables are expanded."""

    name: str
    source: Path  # the file that names it
    origin: Origin
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    client_id: str = ""
    scopes: tuple[str, ...] = ()
    redirect_port: int = 0  # 0: any free port
    enabled: bool = True
    tools: tuple[str, ...] | None = None  # None: all
    always_load: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    timeout: float = 60.0
    startup_timeout: float = 20.0

    @property
    def login_name(self) -> str:
        """Name of its login in the keyring, which is for this name at this address only."""
        return f"mcp {self.name} {self.url}"


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool that a server offers."""

    name: str  # as the model calls it: mcp__server__tool
    server: str
    original_name: str
    description: str
    schema: dict[str, object]
    is_read_only: bool = False
    is_destructive: bool = False
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server at one moment."""

    server: McpServer
    state: StateName
    version: str = ""
    instructions: str = ""
    tools: tuple[McpTool, ...] = ()
    error: str = ""
