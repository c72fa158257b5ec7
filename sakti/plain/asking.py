"""Decide what a line means while a question waits: an answer, or something else. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from sakti.core.config import SessionMode
from sakti.core.events import ApprovalRequested, CardAnswer, CardQuestion, Grant
from sakti.core.patterns import lazy_pattern

_CARD_ANSWER = lazy_pattern(r"[oO]\s+\S.*|\d[\d,\s]{0,40}", re.DOTALL)


class TypedAnswer(Struct, frozen=True):
    """`edited` replaces the command that was asked about; `problem`: the line answers, but not like that."""

    approved: bool = False
    grant: Grant = "once"
    note: str = ""
    edited: str | None = None
    problem: str = ""
    answers: tuple[CardAnswer, ...] = ()
    mode: SessionMode = "ask"
    fresh: bool = False


def answer(line: str, asked: ApprovalRequested) -> TypedAnswer | None:
    """Parse a line as an answer to the open question; None if it is something else."""
    if asked.is_card:
        return _answer_plan(line) if asked.is_plan else _answer_card(line, asked.questions)
    word, _, rest = line.strip().partition(" ")
    match word.lower().rstrip(",."), rest.strip():
        case (("y" | "yes"), ""):
            return TypedAnswer(True)
        case (("s" | "edits"), ""):
            if asked.is_edit:
                return TypedAnswer(True, grant="edits")
            return TypedAnswer(problem="this is no edit in the project; answer y or n")
        case (("a" | "always" | "t" | "thread") as how, ""):
            if asked.rule:
                return TypedAnswer(True, grant="thread" if how.startswith("t") else "workspace")
            return TypedAnswer(problem="there is no rule for this; answer y or n")
        case (("n" | "no"), note):
            return TypedAnswer(note=note)
        case (("e" | "edit"), command):
            if asked.tool != "bash":
                return TypedAnswer(problem="only a command can be edited; answer n with a note")
            if not command:
                return TypedAnswer(problem="write the command after e, on the same line")
            return TypedAnswer(True, edited=command)
        case _:
            return None


def _answer_plan(line: str) -> TypedAnswer | None:
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


def _answer_card(line: str, questions: Sequence[CardQuestion]) -> TypedAnswer | None:
    """Parse the answers to all questions, separated by semicolons: numbers, or `o` and the user's words."""
    if line.strip().lower() in ("n", "no"):
        return TypedAnswer()
    pieces = [piece.strip() for piece in line.split(";", len(questions) - 1)]
    if not all(_CARD_ANSWER.fullmatch(piece) for piece in pieces):
        return None
    if len(pieces) < len(questions):
        return TypedAnswer(problem=f"there are {len(questions)} questions: separate the answers with semicolons")
    answers = [_answer_one(piece, question) for question, piece in zip(questions, pieces, strict=True)]
    problems = [one for one in answers if isinstance(one, str)]
    if problems:
        return TypedAnswer(problem=problems[0])
    return TypedAnswer(True, answers=tuple(one for one in answers if isinstance(one, CardAnswer)))


def _answer_one(piece: str, question: CardQuestion) -> CardAnswer | str:
    """Return the answer to one question, or the problem with it."""
    if piece[0] in "oO":
        return CardAnswer(question.header, (), piece[1:].strip())
    numbers = sorted({int(n) for n in piece.replace(",", " ").split()})
    if numbers[0] < 1 or numbers[-1] > len(question.options):
        return f"{question.header}: choose from 1 to {len(question.options)}"
    if len(numbers) > 1 and not question.multiple:
        return f"{question.header}: choose one"
    return CardAnswer(question.header, tuple(question.options[n - 1].label for n in numbers))
