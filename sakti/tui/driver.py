"""Writing to a terminal that may be gone."""

from __future__ import annotations

import contextlib
import threading
from typing import IO, Any

from textual.driver import Driver

from sakti.core import terminal


class Output:
    """A file to which writing never fails. Textual writes in a thread: an error would end that thread, and whatever is
    written afterwards would wait for it for good, the end of the program too."""

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


class Ending(threading.Event):
    """The sign for the thread that reads the terminal to end. `for_good`: it is not taken back."""

    for_good = False

    def is_set(self) -> bool:
        return self.for_good or super().is_set()


def forgiving(base: type[Driver]) -> type[Driver]:
    """The driver `base`, writing to an `Output`, reading nothing from a terminal that is gone.

    A terminal that is closed sends SIGCONT behind SIGHUP. Textual then starts to read it anew, in a second thread
    beside the first, and ends only one of them; none where the program leaves already. What was the terminal is always
    ready to be read and gives nothing: a thread that is left would take a whole core for ever."""

    class Forgiving(base):
        def __init__(self, *args: Any, **options: Any) -> None:
            self._suspended = False
            super().__init__(*args, **options)
            if (file := getattr(self, "_file", None)) is not None:
                self._file = Output(file)
            self.exit_event = Ending()

        def hang_up(self) -> None:
            """Read no more, and never begin again."""
            self.exit_event.for_good = True

        def suspend_application_mode(self) -> None:
            self._suspended = True
            super().suspend_application_mode()

        def resume_application_mode(self) -> None:
            """Begin again after a suspension; where there was none, all goes on as it is."""
            if self._suspended and not self.exit_event.for_good:
                self._suspended = False
                super().resume_application_mode()

        def run_input_thread(self) -> None:
            """Read until the end. An error of a terminal that is gone is its end."""
            try:
                super().run_input_thread()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            except OSError:
                if not terminal.is_gone():
                    raise
                self.hang_up()

        def close(self) -> None:
            if not self._suspended:  # at the end
                self.hang_up()
            super().close()

    return Forgiving
