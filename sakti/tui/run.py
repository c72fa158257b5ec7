"""Run the terminal interface and return its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING

from sakti.agent.session.lifecycle import observe_on_exit
from sakti.agent.workspace import NOT_KEPT
from sakti.core import terminal
from sakti.core.errors import SaktiError
from sakti.core.text import sanitize_text

if TYPE_CHECKING:
    from sakti.agent.session.session import Session
    from sakti.tui.app import SaktiApp


def run(session: Session, *, prompt: str | None = None, pick_thread: bool = False) -> int:
    """Show `session` until the user quits; `prompt` is sent at once, `pick_thread` asks for a thread.

    Closes the session and restores the terminal; returns the exit code for the shell.
    """
    if sys.__stderr__ is None or not sys.__stderr__.isatty():  # Textual draws on this stream
        setattr(sys, "__stderr__", sys.__stdout__)  # noqa: B010 - a constant for type checkers
    return asyncio.run(terminal.run_then_end(_run(session, prompt, pick_thread)))


async def _run(session: Session, prompt: str | None, pick_thread: bool) -> int:
    from sakti.tui.app import SaktiApp

    app = SaktiApp(session, prompt=prompt, pick_thread=pick_thread)
    leaving = _leave_on_signals(app)
    try:
        code = await app.run_async(mouse=session.workspace.config.ui.mouse)
        if not code and not app.crash_message:
            await observe_on_exit(
                session.current, session.interrupt, lambda text: print(text, file=sys.stderr), skipped=leaving
            )
    finally:
        not_saved = await _close(session, app)
    with contextlib.suppress(OSError):
        _print_farewell(session, not_saved)
    if app.crash_message:
        print(app.crash_message, file=sys.stderr)
        return 1
    return code if isinstance(code, int) else app.return_code or 0


def _leave_on_signals(app: SaktiApp) -> asyncio.Event:
    """Quit on a signal as on ctrl+q; returns an event that the signal sets.

    ctrl+c arrives as a key until the terminal is restored.
    """
    loop = asyncio.get_running_loop()
    leaving, signals = asyncio.Event(), set[int]()

    def leave(number: int) -> None:
        terminal.end_on_second_sigterm(number, signals)
        leaving.set()
        app.exit(128 + number)

    def handle_hangup() -> None:
        app.hang_up()
        loop.call_soon_threadsafe(leave, signal.SIGHUP)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(number, leave, number)
    terminal.on_hangup(handle_hangup)
    return leaving


async def _close(session: Session, app: SaktiApp) -> str:
    """Interrupt the turn, keep drafts, and close the session; returns why nothing was saved, or ""."""
    from sakti.tui.app import log_error

    terminal.ignore_interrupts()  # some users press it until the shell returns
    limit = terminal.end_within(terminal.CLOSING_S, 128 + signal.SIGHUP)
    session.hurry()
    try:
        await session.interrupt()  # messages that a turn takes from the queue now are not drafts
        await app.chat.drafts.save_at_exit()
    except SaktiError as e:
        with contextlib.suppress(OSError):
            print(sanitize_text(e.message), file=sys.stderr)
    except Exception as e:
        log_error(e)
    not_saved = session.workspace.not_saved
    try:
        await session.close()
    except Exception as e:
        log_error(e)
        with contextlib.suppress(OSError):
            print("sakti could not close cleanly. The log file has the details.", file=sys.stderr)
    limit.cancel()
    return not_saved


def _print_farewell(session: Session, not_saved: str) -> None:
    """Print how to resume the thread, or that it is not saved."""
    if not session.workspace.saved:
        print(NOT_KEPT, file=sys.stderr)
    elif not_saved:
        print(f"Not saved: {sanitize_text(not_saved.partition('. ')[0])}.", file=sys.stderr)
    elif session.thread is not None and session.thread.title:  # an empty thread is not stored
        print(f"Resume with: sakti -c, or at any time: sakti -r {session.thread.id[-8:]}", file=sys.stderr)
