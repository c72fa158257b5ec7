"""Decide what a line means while a question waits: an answer, or something else. Pure."""

from __future__ import annotations

from msgspec import Struct

from sakti.core.events import ApprovalRequested, Grant


class Answer(Struct, frozen=True):
    """`edited` replaces the command that was asked about; `problem`: the line answers, but not like that."""

    approved: bool = False
    grant: Grant = "once"
    note: str = ""
    edited: str | None = None
    problem: str = ""


def answer(line: str, asked: ApprovalRequested) -> Answer | None:
    """Parse a line as an answer to the open question; None if it is something else."""
    word, _, rest = line.strip().partition(" ")
    match word.lower().rstrip(",."), rest.strip():
        case (("y" | "yes"), ""):
            return Answer(True)
        case (("s" | "edits"), ""):
            if asked.is_edit:
                return Answer(True, grant="edits")
            return Answer(problem="this is no edit in the project; answer y or n")
        case (("a" | "always" | "t" | "thread") as how, ""):
            if asked.rule:
                return Answer(True, grant="thread" if how.startswith("t") else "workspace")
            return Answer(problem="there is no rule for this; answer y or n")
        case (("n" | "no"), note):
            return Answer(note=note)
        case (("e" | "edit"), command):
            if asked.tool != "bash":
                return Answer(problem="only a command can be edited; answer n with a note")
            if not command:
                return Answer(problem="write the command after e, on the same line")
            return Answer(True, edited=command)
        case _:
            return None
