"""Prepare, read and write the standard streams in any locale, even if one is closed."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import threading
from collections.abc import Generator

WAIT_NOTICE_AFTER = 2.0  # seconds of waiting for standard input before a notice


def require_letters() -> None:
    """Restart the program in Python's UTF-8 mode if the locale is ASCII.

    Otherwise, arguments and file names would lose characters.
    """
    if sys.getfilesystemencoding() == "ascii" and os.name == "posix":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def prepare_streams() -> None:
    """Make the standard streams usable.

    A closed stream becomes the null device. Characters that an output's encoding lacks are escaped, and invalid input
    bytes are replaced. Writing to standard error never raises: a message that nobody can read is no reason to stop.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    _reconfigure(sys.stdin, errors="replace")
    _reconfigure(sys.stdout, errors="backslashreplace")
    if type(sys.stderr) is io.TextIOWrapper:
        sys.stderr = _ErrorOutput(sys.stderr)


def print_document(text: str) -> None:
    """Print JSON or a file in UTF-8 in any locale. Lone surrogates are escaped."""
    if sys.stdout.encoding.lower().replace("-", "") != "utf8":
        _reconfigure(sys.stdout, encoding="utf-8", errors="backslashreplace")
    print(text)


def read_input(purpose: str = "") -> bytes:
    """Read standard input to its end; if that takes long, print a notice with `purpose`."""
    notice = f"sakti: waiting for the end of standard input{purpose} (`< /dev/null` skips it)"
    with _waiting(notice), contextlib.suppress(OSError):  # it may be write-only
        return sys.stdin.buffer.read()
    return b""


@contextlib.contextmanager
def checked_output() -> Generator[None]:
    """Flush standard output after the block; end the program if writing fails.

    The end is silent if the reader is gone (`| head`), and has a message if the disk is full.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as e:
        if e.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the rest of the output
        if e.errno == errno.ENOSPC:
            print("sakti: The disk is full: make room, then run it again.", file=sys.stderr)
        raise SystemExit(1) from None


@contextlib.contextmanager
def _waiting(notice: str) -> Generator[None]:
    """Print `notice` if the block takes long, unless the input is typed at a terminal."""
    timer = threading.Timer(WAIT_NOTICE_AFTER, lambda: print(notice, file=sys.stderr, flush=True))
    timer.daemon = True
    if not sys.stdin.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _ErrorOutput(io.TextIOWrapper):
    """Standard error that swallows failures to write: a closed pipe, a full disk."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, "backslashreplace", line_buffering=True)
        self._stream = stream  # garbage collection would close the buffer

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def _reconfigure(stream: object, errors: str, encoding: str | None = None) -> None:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding=encoding, errors=errors)
