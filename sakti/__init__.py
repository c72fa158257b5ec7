"""sakti: a coding agent for the terminal whose memory you can see.

For scripts: `await sakti.ask("Which tests fail?")` is one turn as `sakti run` plays it; a `Session` is a conversation
with everything that the chat can do, whose `events` a listener hears. Nothing of them is loaded before it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sakti.version import __version__

if TYPE_CHECKING:
    from sakti import processors
    from sakti.agent.ask import ask
    from sakti.agent.session.session import Options, Session
    from sakti.core import events

__all__ = ["Options", "Session", "__version__", "ask", "events", "processors"]

_MODULES = {"events": "core.events", "processors": "processors"}
_WHERE = {"ask": "agent.ask", "Options": "agent.session.session", "Session": "agent.session.session"}


def __getattr__(name: str) -> Any:
    """Load the attribute that is asked for."""
    if name in _MODULES:
        return importlib.import_module(f"sakti.{_MODULES[name]}")
    if name not in _WHERE:
        raise AttributeError(f"module 'sakti' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sakti.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
