"""The slash commands: one registry that completion, help and the palette read, and the parser of a prompt line."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """`arguments` is the hint shown behind the name; `choices` complete its first argument."""

    name: str
    summary: str
    arguments: str = ""
    choices: tuple[str, ...] = ()


COMMANDS: tuple[Command, ...] = (
    Command("help", "keys and commands"),
    Command(
        "compact",
        "observe now what is pending; `undo` brings the messages back, `diff` shows what the last one did",
        "[focus | diff | undo]",
        ("diff", "undo"),
    ),
    Command("search", "search everything that was ever said", "QUERY"),
    Command("tasks", "the task board"),
    Command(
        "memory",
        "the token windows, in words; `undo` takes the last reflection back; `pause`, `resume` observing",
        "[undo | pause | resume]",
        ("undo", "pause", "resume"),
    ),
    Command("observations", "the observation log"),
    Command("context", "exactly what would be sent now"),
    Command("threads", "all conversations of this workspace"),
    Command("new", "start a new thread"),
    Command("rename", "give this thread a title", "TITLE"),
    Command(
        "delete-message",
        "delete the last message for good, or the third last: 3; it is named first, `yes` deletes it",
        "[N | yes]",
        ("yes",),
    ),
    Command("resume", "go on with another thread", "[THREAD]"),
    Command("model", "choose the model", "[PROVIDER/NAME]"),
    Command(
        "mode",
        "what the Observer looks for",
        "[MODE]",
        ("default", "explore", "bug_fixing", "refactoring", "testing", "debugging", "research"),
    ),
    Command("approve", "what may run without asking", "[MODE]", ("plan", "ask", "edits", "auto")),
    Command("theme", "choose the colours", "[NAME]"),
    Command("setup", "what sakti found here: keys, servers, the small model; theme and approval"),
    Command("settings", "every setting, and where it comes from"),
    Command("cost", "tokens and price of this thread"),
    Command("doctor", "health of this installation"),
    Command("clear", "clear the screen; nothing is deleted"),
    Command("quit", "leave"),
)
BY_NAME = {c.name: c for c in COMMANDS}


@dataclass(frozen=True, slots=True)
class Typed:
    """What a prompt is: a command with its argument, a `!` shell line, a `#` note, or a message."""

    kind: str  # "command" | "unknown" | "shell" | "note" | "message"
    name: str = ""
    argument: str = ""
    suggestions: Sequence[str] = ()


def parse(text: str) -> Typed:
    """Read a prompt. A first line such as `/usr/bin/env` is a message: command names hold no slash."""
    stripped = text.strip()
    if stripped.startswith("!") and len(stripped) > 1:
        return Typed("shell", argument=stripped[1:].strip())
    if stripped.startswith("#") and not stripped.startswith("##") and len(stripped) > 1 and "\n" not in stripped:
        return Typed("note", argument=stripped[1:].strip())
    if stripped.startswith("/"):
        name, _, argument = stripped[1:].partition(" ")
        if name in BY_NAME:
            return Typed("command", name, argument.strip())
        if name.replace("-", "").replace("_", "").isalpha() and "\n" not in name:
            near = difflib.get_close_matches(name, BY_NAME, 3) or [c for c in BY_NAME if c.startswith(name)]
            return Typed("unknown", name, argument.strip(), near)
    return Typed("message", argument=text)
