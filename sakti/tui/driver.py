"""Writing to a terminal that may be gone."""

from __future__ import annotations

import contextlib
from typing import IO, Any

from textual.driver import Driver


class Output:
    """A file to which writing never fails.

    Textual writes in a thread: an error would end that thread, and whatever is written afterwards would wait for it
    for good, the end of the program too.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def forgiving(base: type[Driver]) -> type[Driver]:
    """The driver `base`, writing to an `Output`."""

    class Forgiving(base):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            if (file := getattr(self, "_file", None)) is not None:
                self._file = Output(file)

    return Forgiving
