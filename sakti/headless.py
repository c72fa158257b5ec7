"""Run one turn without a screen: text, one JSON object, or the stream of events as JSON lines."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from dataclasses import asdict

from sakti.agent.session.exit import observe_on_exit
from sakti.agent.session.session import Options, Session
from sakti.core.errors import NOT_SAVED, NoModelError, SaktiError
from sakti.core.events import (
    Event,
    MessageSaved,
    Notice,
    RetryScheduled,
    StoreWaiting,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    to_json,
)
from sakti.core.terminal import WaitNotice
from sakti.core.text import json_line, one_line, sanitise
from sakti.core.types import Json, plain_values
from sakti.store.text_registry import leaving, leaving_all

OUTPUTS = ("text", "json", "stream-json")
EXIT = {
    "answered": 0,
    "error": 1,
    "usage": 2,
    "no_model": 5,
    "limit": 3,
    "tripwire": 3,
    "repetition": 3,
    "refused": 4,
    "length": 6,
    "interrupted": 130,
}


def run(options: Options, prompt: str, output: str, *, session: Session | None = None) -> int:
    """Answer `prompt`; returns the exit code (see `EXIT`).

    The result goes to standard output, what happens on the way to standard error.
    """
    return asyncio.run(_run(session or Session(options), prompt, output))


async def _run(session: Session, prompt: str, output: str) -> int:
    finished: list[TurnFinished] = []
    saved: list[str] = []
    waits = WaitNotice(session.config.store.wait)

    def hear(event: Event) -> None:
        if isinstance(event, TurnFinished):
            finished.append(event)
        if isinstance(event, MessageSaved):
            saved.append(event.message.id)
        if isinstance(event, StoreWaiting):
            waits.hear(event.seconds)
        if output == "stream-json":
            _print(json_line(leaving_all(to_json(event))))
        elif output == "text":
            _tell(event)

    session.subscribe(hear)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, lambda: asyncio.ensure_future(session.interrupt()))
    try:
        await session.start()
        told = (*session.options.warnings, session.not_saved) if output != "text" else ()
        for text in (*told, session.options.told):
            if text:
                print(f"sakti: {sanitise(text)}", file=sys.stderr)
        await session.submit(prompt)
        await session.wait()
        end = finished[-1]
        status = end.status
        if status == "answered" and session.refused_calls:
            status = "refused"
        thread_id, text, error = end.thread_id if session.saved else None, end.text, end.error
        usage, steps = end.usage, end.steps
        if end.error_code in NOT_SAVED:
            print("sakti: The thread so far is kept; `sakti run -c` continues it.", file=sys.stderr)
        if status == "answered":
            await observe_on_exit(session, lambda text: print(text, file=sys.stderr))
    except NoModelError as e:
        status, thread_id, text, error, usage, steps = "no_model", None, "", e.message, session.usage, 0
        print(f"sakti: {sanitise(e.message)}", file=sys.stderr)
    except SaktiError as e:
        status = "usage" if e.code == "config" else "error"
        message = f"{e.message} Nothing was changed: run it again." if e.retryable and not saved else e.message
        thread_id, text, error, usage, steps = None, "", message, session.usage, 0
        print(f"sakti: {sanitise(e.title)}: {sanitise(message)}", file=sys.stderr)
    finally:
        session.hurry()
        await session.close()
    result: Json = {
        "thread_id": thread_id,
        "text": text,
        "status": status,
        "steps": steps,
        "usage": asdict(usage),
        "cost_usd": usage.cost_usd,
        "error": error,
    }
    if output == "json":
        _print(json_line(result))
    elif output == "stream-json":
        _print(json_line({"type": "result", **result}))
    elif output == "text" and finished and finished[-1].text:
        _print(sanitise(finished[-1].text))
    return EXIT[status]


def _print(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(line, flush=True)


def _tell(event: Event) -> None:
    """Tell what happens to a person who watches standard error."""
    match event:
        case ToolStarted(call):
            what = one_line(leaving(plain_values(call.arguments or {})), 100)
            line = f"▸ {call.name}  {what}"
        case ToolFinished(result) if isinstance(denied := result.details.get("denied"), str):
            line = f"  ⊘ denied{f': {one_line(denied, 200)}' if denied else ''}"
        case ToolFinished(result, duration):
            line = f"  {'✗' if result.is_error else '✓'} {duration / 1000:.1f}s"
            if result.is_error:
                line += f"  {one_line(result.content, 200)}"
        case RetryScheduled(attempt, most, delay, reason):
            line = f"… {one_line(reason, 200)} Trying again in {delay:.0f} s ({attempt} of {most})."
        case Notice(severity, title, message) if severity != "information":
            line = f"! {one_line(title)}: {one_line(message, 400)}"
        case TurnFinished(error=error, error_title=title) if error:
            line = f"sakti: {one_line(title or '')}: {sanitise(error)}"
        case _:
            return
    print(sanitise(line), file=sys.stderr, flush=True)
