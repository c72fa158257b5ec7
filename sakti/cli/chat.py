"""Open the chat in the terminal, as `sakti` alone does, and with the script of `sakti tour`."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sakti.actions.scope import Scope
from sakti.actions.spec import CHAT, action
from sakti.actions.values import USAGE, Refused
from sakti.cli import common
from sakti.core import terminal
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.agent import titles
    from sakti.agent import tour as scripted_tour
    from sakti.agent.session import session as sessions
    from sakti.plain import chat as plain_chat
    from sakti.store.threads import threads as stored_threads
    from sakti.tui import run as terminal_chat

if TYPE_CHECKING:
    from sakti.agent.session.session import Session
    from sakti.store.database import Store

DUMB = "TERM is dumb: using plain mode (--plain)"


def open_chat(prompt: str | None, *, resume: str | None, plain: bool, debug: bool, **chosen: Any) -> None:
    """Run the TUI or the plain chat until the user leaves; raises SystemExit with the exit code.

    `chosen` are arguments of `common.options`; an empty `resume` shows the threads first.
    """
    gc.disable()  # until the first picture: modules are made, and nothing of them is garbage
    if resume:
        _require_thread(resume)
    session = sessions.Session(common.options(resume=resume or None, **chosen))
    common.log_to_file(debug=debug)
    had_terminal = sys.stdin.isatty()
    code = talk(session, plain=plain, prompt=prompt, pick_thread=resume == "")
    if had_terminal:
        terminal.end(code)  # the store is closed, and the shell waits for nothing else
    raise SystemExit(code)


def _require_thread(name: str) -> None:
    """Raise `ConfigError` if a name fits no thread, or several, before there is a screen."""
    here = str(common.workspace().resolve())

    async def look(store: Store) -> None:
        if titles.choose_thread(name, await store.read(stored_threads.find, here, name)) is None:
            raise ConfigError(titles.explain_missing(name, await store.read(stored_threads.find, None, name)))

    common.in_store(look)


def talk(session: Session, *, plain: bool = False, prompt: str | None = None, pick_thread: bool = False) -> int:
    """Show `session` in the way that is asked for, or that the terminal can; the exit code."""
    plain = plain or session.workspace.config.ui.plain
    dumb = os.environ.get("TERM") == "dumb" and sys.stdin.isatty()
    if plain or dumb:
        gc.enable()
        return plain_chat.run(session, prompt=prompt, pick_thread=pick_thread, why="" if plain else DUMB)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        common.fail("the chat needs a terminal. Without one, use `sakti run PROMPT`.", common.USAGE)
    return terminal_chat.run(session, prompt=prompt, pick_thread=pick_thread)


@action(shell="tour", panel=CHAT, json=False)
async def tour(scope: Scope) -> None:
    """Take a two-minute tour without a model: answers come from a script, tools and memory are real."""
    import tempfile

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refused("the tour needs a terminal.", code=USAGE)
    common.log_to_file()
    with tempfile.TemporaryDirectory(prefix="sakti-tour-") as folder:
        session = scripted_tour.tour_session(Path(folder), env=dict(os.environ))
        code = talk(session, prompt=scripted_tour.FIRST)
    terminal.end(code)
