"""Lines that an Observer might write of short talks (`tests/talks/claims.txt`): what is said there, and what is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sakti.core.types import Message, TextPart, ToolCallPart, ToolResultPart
from sakti.memory.protocol import ObserveInput

FOLDER = Path(__file__).parent.parent / "talks"
FILE = FOLDER / "claims.txt"
HELD_OUT = FOLDER / "claims_heldout.txt"
BOUND = FOLDER / "claims_bound.txt"
START = 1_768_478_400_000  # Thursday, January 15, 2026, 12:00 UTC


@dataclass(slots=True)
class Told:
    """A talk, faithful lines of it, and invented ones (kind of claim, line)."""

    name: str
    messages: list[Message] = field(default_factory=list[Message])
    faithful: list[str] = field(default_factory=list[str])
    invented: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def request(self) -> ObserveInput:
        return ObserveInput("t", tuple(self.messages), "UTC")

    def add(self, sign: str, text: str) -> None:
        number = len(self.messages)
        role = {"u": "user", "a": "assistant", "t": "tool"}[sign]
        parts = [TextPart(text)]
        if sign == "t":
            name, _, output = text.partition(": ")
            call = ToolCallPart(f"c{number}", name, {})
            self.messages.append(Message(f"c{number}", "t", "r", "assistant", (call,), START + number * 60_000))
            parts = [ToolResultPart(f"c{number}", name, output.replace("\\n", "\n"))]
        self.messages.append(Message(f"m{number}", "t", "r", role, tuple(parts), START + number * 60_000))  # pyright: ignore


def load(file: Path = FILE) -> list[Told]:
    out: list[Told] = []
    for line in file.read_text("utf-8").split("\n"):
        match line[:2]:
            case "= ":
                out.append(Told(line[2:]))
            case "+ ":
                out[-1].faithful.append(line[2:])
            case "- ":
                kind, _, text = line[2:].partition(": ")
                out[-1].invented.append((kind, text))
            case "u|" | "a|" | "t|":
                out[-1].add(line[0], line[2:].strip())
            case _:
                continue
    return out
