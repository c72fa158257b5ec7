"""List the tools of a session: a new one is named here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sakti.agent.tools.changing import apply_patch, edit, write
from sakti.agent.tools.files import ls, read
from sakti.agent.tools.find import glob, grep
from sakti.agent.tools.memory import make_tools
from sakti.agent.tools.shell import bash, bash_output, kill

if TYPE_CHECKING:
    from sakti.agent.tools.base import Tool
    from sakti.store.database import Store


def all_tools(store: Store, **of_session: Any) -> list[Tool]:
    """Return every tool of a session; `of_session` goes to the memory tools (see `memory.make_tools`)."""
    return [read, write, edit, apply_patch, ls, glob, grep, bash, bash_output, kill, *make_tools(store, **of_session)]
