"""Measure the walk from an event to its effects: the modules of sakti that the way leads through.

A hand-over (a task, a message of Textual, a call in another thread, a deferred callback) remembers the functions that
were running when it was made. The walk to an effect is every module with a function on the call stack there, or on
the stack of one of the hand-overs that led there. Functions that were called and have returned are not part of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from textual.message_pump import MessagePump

import sakti

ROOT = f"{Path(sakti.__file__).parent}/"
Trail = tuple[int, frozenset[str]]  # the number of the walk, and the modules on the way so far
OUTSIDE: Trail = (0, frozenset())
_trail: ContextVar[Trail] = ContextVar("trail", default=OUTSIDE)


class Walks:
    """The walk since the last `begin`: the modules on all ways to the effects, until each has happened once.

    `times` counts how often an effect happened, `entered` has every module of which the event caused anything to run.
    """

    def __init__(self, **effects: Callable[..., Any]) -> None:
        self.walk: set[str] = set()
        self.times: dict[str, int] = {}
        self.entered: set[str] = set()
        self._number = 0
        self._effects = {function.__code__: name for name, function in effects.items()}
        self._event: CodeType | None = None

    def begin(self) -> None:
        """Follow what the running task causes from here on."""
        self._number += 1
        self.walk, self.times, self.entered = set(), dict.fromkeys(self._effects.values(), 0), set()
        _trail.set((self._number, frozenset()))

    def begin_at(self, event: Callable[..., Any]) -> None:
        """Begin when `event` is called next."""
        self._event = event.__code__

    def trail_of(self, frame: FrameType | None) -> Trail:
        number, modules = _trail.get()
        if not number or number != self._number:
            return OUTSIDE
        return number, modules | set(_stack(frame))

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT):
            return
        if code is self._event:
            self._event = None
            self.begin()
        if _trail.get()[0] == self._number:
            self.entered.add(_module(code))
        if (name := self._effects.get(code)) and (modules := self.trail_of(frame)[1]):
            if not all(self.times.values()):
                self.walk |= modules
            self.times[name] += 1


def _module(code: CodeType) -> str:
    return code.co_filename.removeprefix(ROOT).removesuffix(".py").replace("/", ".")


def _stack(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        if frame.f_code.co_filename.startswith(ROOT):
            yield _module(frame.f_code)
        frame = frame.f_back


@contextlib.contextmanager
def following(walks: Walks) -> Iterator[None]:
    """Let every hand-over remember its way, and watch calls, also those in threads that begin from here on."""
    loop = asyncio.get_running_loop()
    post, dispatch, submit = MessagePump.post_message, MessagePump._dispatch_message, ThreadPoolExecutor.submit

    def carry(function: Callable[..., Any], frame: FrameType) -> Callable[..., Any]:
        trail = walks.trail_of(frame)

        def run(*args: Any, **kwargs: Any) -> Any:
            token = _trail.set(trail)
            try:
                return function(*args, **kwargs)
            finally:
                _trail.reset(token)

        return run

    def make_task(loop: Any, coroutine: Coroutine[Any, Any, Any], context: Context | None = None) -> Any:
        context = context or copy_context()
        context.run(_trail.set, walks.trail_of(sys._getframe(1)))
        return asyncio.Task(coroutine, loop=loop, context=context)

    def post_message(pump: MessagePump, message: Any) -> bool:
        message.trail = walks.trail_of(sys._getframe(1))
        return post(pump, message)

    async def dispatch_message(pump: MessagePump, message: Any) -> None:
        token = _trail.set(getattr(message, "trail", OUTSIDE))
        try:
            await dispatch(pump, message)
        finally:
            _trail.reset(token)

    def submit_call(pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(pool, carry(function, sys._getframe(1)), *args, **kwargs)

    def defer_by(defer: Callable[..., Any]) -> Callable[..., Any]:
        return lambda pump, function, *args, **kwargs: defer(pump, carry(function, sys._getframe(1)), *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MessagePump, "post_message", post_message)
        patch.setattr(MessagePump, "_dispatch_message", dispatch_message)
        patch.setattr(ThreadPoolExecutor, "submit", submit_call)
        for name in ("call_next", "call_after_refresh"):
            patch.setattr(MessagePump, name, defer_by(getattr(MessagePump, name)))
        loop.set_task_factory(make_task)
        threading.setprofile(walks.profile)
        sys.setprofile(walks.profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
            loop.set_task_factory(None)
