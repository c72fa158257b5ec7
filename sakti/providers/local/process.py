"""Start the worker, exchange messages with it, and detect its end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, cast

from sakti.core.errors import ProviderError
from sakti.core.resources import PACKAGE, state_home

LOAD_TIMEOUT = 120.0
_LINE = 16 * 1024 * 1024
_SECRETS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


class ModelProcess:
    """Worker process for one model file, started by the first call and again after a crash.

    `keep_in` is the folder for the stored states of prompt prefixes.
    """

    def __init__(
        self, model: Path, context: int, command: tuple[str, ...] | None = None, keep_in: Path | None = None
    ) -> None:
        self._model = model
        self._keep_in = keep_in
        self._context = context
        self._command = command or (sys.executable, "-P", "-m", "sakti.providers.local.worker")
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._number = 0

    @property
    def log(self) -> Path:
        return state_home() / "local-model.log"

    async def start(self) -> None:
        """Load the model if needed. Raises ProviderError (server) if it cannot be loaded."""
        async with self._lock:
            await self._start()

    async def _start(self) -> None:
        if self._process is not None and self._process.returncode is None:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                str(self._model),
                str(self._context),
                str(self._keep_in or ""),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LINE,
                cwd=tempfile.gettempdir(),
                env=_build_environment(),
                start_new_session=True,
            )
        finally:
            os.close(log)
        try:
            async with asyncio.timeout(LOAD_TIMEOUT):
                first = await self._read()
        except TimeoutError as e:
            await self.stop()
            raise self._make_crash_error(f"The local model did not load within {LOAD_TIMEOUT:g} s") from e
        except BaseException:
            await self.stop()
            raise
        if "fatal" in first:
            await self.stop()
            raise self._make_crash_error(f"The local model cannot be loaded ({first['fatal']})", retryable=False)

    async def chat(
        self, body: dict[str, Any] | None, begins: Sequence[str] = ()
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the worker's messages for one request, up to `done` or `error`; close it to cancel.

        `begins`: prefixes of the system prompt, each a prefix of the next; without `body` they are only evaluated.
        """
        async with self._lock:
            await self._start()
            self._number += 1
            number = self._number
            finished = False
            try:
                await self._write({"id": number, "chat": body, "begins": list(begins)})
                while not finished:
                    message = await self._read()
                    if message.get("id") != number:
                        continue  # the rest of an abandoned answer
                    finished = "done" in message or "error" in message
                    yield message
            finally:
                if not finished:
                    self._cancel(number)

    def _cancel(self, number: int) -> None:
        """Cancel a request without waiting; its remaining messages are skipped by their number."""
        process = self._process
        if process is not None and process.returncode is None and process.stdin is not None:
            process.stdin.write(json.dumps({"cancel": number}).encode() + b"\n")

    async def _write(self, message: dict[str, Any]) -> None:
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as e:
            raise self._make_crash_error("The local model crashed") from e

    async def _read(self) -> dict[str, Any]:
        process = self._running()
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            await self.stop()
            raise self._make_crash_error("The local model crashed")
        return cast("dict[str, Any]", json.loads(line))

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise self._make_crash_error("The local model is not running")
        return self._process

    def _make_crash_error(self, what: str, *, retryable: bool = True) -> ProviderError:
        return ProviderError(f"{what}; its log is {self.log}.", code="server", retryable=retryable)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()


def _build_environment() -> dict[str, str]:
    """Return our environment without keys and with this package's path."""
    variables = {k: v for k, v in os.environ.items() if not k.upper().endswith(_SECRETS)}
    return {**variables, "PYTHONPATH": str(PACKAGE.parent)}
