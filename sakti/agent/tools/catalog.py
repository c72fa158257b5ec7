"""Collect the tools of a session: every `@tool` in a file of this package, and those of memory."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from sakti.agent import tools
from sakti.agent.tools.base import Tool
from sakti.agent.tools.memory import make_tools

if TYPE_CHECKING:
    from sakti.store.database import Store


def all_tools(store: Store, **of_session: Any) -> list[Tool]:
    """Return every tool of a session; `of_session` goes to the memory tools (see `memory.make_tools`)."""
    return [*workspace_tools(), *make_tools(store, **of_session)]


def workspace_tools() -> list[Tool]:
    """Return the tools that work on files and commands."""
    names = [module.name for module in pkgutil.iter_modules(tools.__path__)]
    files = [importlib.import_module(f"{tools.__name__}.{name}") for name in names]
    return [
        tool
        for file in files
        for tool in vars(file).values()
        if isinstance(tool, Tool) and tool.function.__module__ == file.__name__
    ]
