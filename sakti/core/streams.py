"""Prepare, read and write the standard streams, whatever the locale and whoever closed them."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import threading
from collections.abc import Generator

WAIT_NOTICE_AFTER = 2.0  # seconds of waiting for standard input before a person is told


def require_letters() -> None:
    """Start the program again in Python's UTF-8 mode if the locale has ASCII only.

    Arguments and names of files would lose their letters otherwise.
    """
    if sys.getfilesystemencoding() == "ascii" and os.name == "posix":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def prepare_streams() -> None:
    """Make the standard streams usable.

    A closed one becomes the null device. Characters that the encoding of an output lacks are escaped, and bytes of the
    input that are none of its encoding are replaced. Standard error never raises: a message that nobody can read is no
    reason to stop.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    _reconfigure(sys.stdin, errors="replace")
    _reconfigure(sys.stdout, errors="backslashreplace")
    if type(sys.stderr) is io.TextIOWrapper:
        sys.stderr = _ErrorOutput(sys.stderr)


def print_document(text: str) -> None:
    """Print JSON or a file in UTF-8, whatever the locale. Lone surrogates are escaped."""
    if sys.stdout.encoding.lower().replace("-", "") != "utf8":
        _reconfigure(sys.stdout, encoding="utf-8", errors="backslashreplace")
    print(text)


def read_input(purpose: str = "") -> bytes:
    """Read standard input to its end; announce on standard error that it stays open, with `purpose`."""
    notice = f"sakti: waiting for the end of standard input{purpose} (`< /dev/null` skips it)"
    with _waiting(notice), contextlib.suppress(OSError):  # it may be open for writing only
        return sys.stdin.buffer.read()
    return b""


@contextlib.contextmanager
def checked_output() -> Generator[None]:
    """Flush standard output behind the block; end the program if it cannot be written.

    Quietly if its reader is gone (`| head`), with a sentence if the disk is full.
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
    """Print `notice` if the block takes long, unless somebody types the input."""
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
        self._stream = stream  # it would close the buffer when it is collected

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
