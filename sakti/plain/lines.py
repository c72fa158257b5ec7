"""Read the user's lines with the system's line editor, and parse answers to waiting questions."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from sakti.core import terminal
from sakti.core.config import SessionMode
from sakti.core.events import ApprovalRequested, CardAnswer, CardQuestion, FreeQuestion, Grant
from sakti.core.lazy import lazy_pattern

CANONICAL = 4095  # bytes of a line after which a terminal without a line editor drops input
PASTE = 0.02  # maximum seconds between two lines of a paste


class Lines:
    """Reader of lines; `on_line` is called in the reading thread.

    It receives each line, and None at each end of input (ctrl+d). `suggest` is also called there, on Tab, with the
    text before the cursor; it returns completions of the last word.
    """

    def __init__(
        self, on_line: Callable[[str | None], object], suggest: Callable[[str], list[str]], *, dumb: bool
    ) -> None:
        self._on_line = on_line
        self._suggest = suggest
        self._suggested: list[str] = []
        self.terminal = sys.stdin.isatty()
        self._readline = _line_editor() if self.terminal and sys.stdout.isatty() and not dumb else None
        self._modes = _read_terminal_modes() if self.terminal else None
        self._buffer = b""
        self._started = False
        self.is_complete = True  # False: the terminal may have cut the last line

    def start(self, older: Iterable[str]) -> None:
        """Start reading; the up key recalls `older` input, oldest first. A second call only adds input."""
        if self._readline is not None:
            for text in older:
                self._readline.add_history(text)
        if self._started:
            return
        self._started = True
        if self._readline is not None:
            self._readline.set_completer_delims(" \t\n")
            self._readline.set_completer(self._complete)
            mac = "libedit" in (self._readline.__doc__ or "")
            self._readline.parse_and_bind("bind ^I rl_complete" if mac else "tab: complete")
        threading.Thread(target=self._read, name="lines", daemon=True).start()

    @property
    def unfinished_line(self) -> str:
        """Return the text of the unfinished line, if the system reports it."""
        return str(self._readline.get_line_buffer()) if self._readline is not None else ""

    def _complete(self, _: str, number: int) -> str | None:
        if number == 0 and self._readline is not None:
            before = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            self._suggested = self._suggest(before)
        return self._suggested[number] if number < len(self._suggested) else None

    def _read(self) -> None:
        read_line = self._read_edited if self._readline is not None else self._read_unedited
        while True:
            try:
                line = read_line()
            except EOFError:
                self._on_line(None)
                if self.terminal and not terminal.is_gone():
                    continue
                return
            except OSError:  # the terminal is gone
                self._on_line(None)
                return
            self._on_line(line)

    @staticmethod
    def _read_edited() -> str:
        return input()

    def _read_unedited(self) -> str:
        """Read one line, or the lines of one paste."""
        lines = [self._read_line()]
        self.is_complete = not self.terminal or len(lines[0].encode()) < CANONICAL
        while self.terminal and select.select([0], [], [], PASTE)[0]:
            try:
                lines.append(self._read_line())
            except EOFError:
                break
        return "\n".join(lines)

    def _read_line(self) -> str:
        while b"\n" not in self._buffer:
            data = os.read(0, 1 << 16)
            if not data:
                rest, self._buffer = self._buffer, b""
                if rest:
                    return rest.decode("utf-8", "replace")
                raise EOFError
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r")

    def suspend(self) -> None:
        """Return the terminal to the shell on ctrl+z, and later restore the line editor's settings."""
        reading = _read_terminal_modes()
        self.end()
        os.kill(os.getpid(), signal.SIGSTOP)
        if self._readline is not None and reading is not None:
            import termios

            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(0, termios.TCSADRAIN, reading)
                os.write(1, b"\x1b[?2004h")

    def end(self) -> None:
        """Restore the terminal; the reading thread may still wait for a line."""
        if self._modes is None:
            return
        import termios

        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(0, termios.TCSADRAIN, self._modes)
            if self._readline is not None:
                os.write(1, b"\x1b[?2004l")  # the line editor had enabled bracketed paste


def _line_editor() -> Any:
    try:
        import readline
    except ImportError:
        return None
    return readline


def _read_terminal_modes() -> Any:
    try:
        import termios

        return termios.tcgetattr(0)
    except (ImportError, OSError):
        return None


_CARD_ANSWER = lazy_pattern(r"[oO]\s+\S.*|\d[\d,\s]{0,40}", re.DOTALL)


class TypedAnswer(Struct, frozen=True):
    """`edited` replaces the command in question; `problem`: why the line is not a valid answer."""

    approved: bool = False
    grant: Grant = "once"
    note: str = ""
    edited: str | None = None
    problem: str = ""
    answers: tuple[CardAnswer, ...] = ()
    mode: SessionMode = "ask"
    fresh: bool = False


def _make_edited_answer(command: str, request: ApprovalRequested) -> TypedAnswer:
    """Return the answer that replaces the command in question."""
    if request.tool != "bash":
        return TypedAnswer(problem="only a command can be edited; answer n with a note")
    if not command:
        return TypedAnswer(problem="write the command after e, on the same line")
    return TypedAnswer(True, edited=command)


def parse_answer(line: str, request: ApprovalRequested) -> TypedAnswer | None:
    """Parse a line as an answer to the open question; None if it is not an answer."""
    if request.is_card:
        return _parse_plan_answer(line) if request.is_plan else _parse_card_answer(line, request.questions)
    word, _, rest = line.strip().partition(" ")
    match word.lower().rstrip(",."), rest.strip():
        case (("y" | "yes"), ""):
            return TypedAnswer(True)
        case (("s" | "edits"), ""):
            if request.is_edit:
                return TypedAnswer(True, grant="edits")
            return TypedAnswer(problem="this is not an edit in the project: answer y or n")
        case (("a" | "always" | "t" | "thread") as how, ""):
            if request.rule:
                return TypedAnswer(True, grant="thread" if how.startswith("t") else "workspace")
            return TypedAnswer(problem="no rule fits this: answer y or n")
        case (("n" | "no"), note):
            return TypedAnswer(note=note)
        case (("e" | "edit"), command):
            return _make_edited_answer(command, request)
        case _:
            return None


def _parse_plan_answer(line: str) -> TypedAnswer | None:
    """Parse the answer to a plan: `a MODE`, `f MODE`, or `n` with a note."""
    word, _, rest = line.strip().partition(" ")
    match word.lower().rstrip(",."), rest.strip():
        case (("a" | "f") as way, ("ask" | "edits" | "auto") as mode):
            return TypedAnswer(True, mode=mode, fresh=way == "f")
        case (("a" | "f"), ""):
            return TypedAnswer(problem="name the approval mode as well: a ask, a edits or a auto")
        case (("n" | "no"), note):
            return TypedAnswer(note=note)
        case _:
            return None


def _parse_card_answer(line: str, questions: Sequence[CardQuestion]) -> TypedAnswer | None:
    """Parse the answers to all questions, separated by semicolons: numbers, or `o` and the user's words."""
    if line.strip().lower() in ("n", "no"):
        return TypedAnswer()
    pieces = [piece.strip() for piece in line.split(";", len(questions) - 1)]
    if not all(_CARD_ANSWER.fullmatch(piece) for piece in pieces):
        return None
    if len(pieces) < len(questions):
        return TypedAnswer(problem=f"there are {len(questions)} questions: separate the answers with semicolons")
    answers: list[CardAnswer] = []
    for question, piece in zip(questions, pieces, strict=True):
        answer_or_problem = _parse_one_answer(piece, question)
        if isinstance(answer_or_problem, str):
            return TypedAnswer(problem=answer_or_problem)
        answers.append(answer_or_problem)
    return TypedAnswer(True, answers=tuple(answers))


def _parse_one_answer(piece: str, question: CardQuestion) -> CardAnswer | str:
    """Return the answer to one question, or the problem with it."""
    if piece[0] in "oO":
        return CardAnswer(question.header, (), piece[1:].strip())
    if not question.options:
        return CardAnswer(question.header, (), piece)
    numbers = sorted({int(n) for n in piece.replace(",", " ").split()})
    if numbers[0] < 1 or numbers[-1] > len(question.options):
        if isinstance(question, FreeQuestion):
            return f"{question.header}: write o and your answer"
        return f"{question.header}: choose from 1 to {len(question.options)}"
    if len(numbers) > 1 and not question.multiple:
        return f"{question.header}: choose one"
    return CardAnswer(question.header, tuple(question.options[n - 1].label for n in numbers))
