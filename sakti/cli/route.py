"""Reading a command line before typer does: a prompt may stand where a command would."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

WITH_VALUE = frozenset({"-m", "--model", "--mode", "--approval", "-o", "--set"})


class UsageError(Exception):
    """A command line that means nothing; the text says what to write instead."""


def route(argv: Sequence[str], commands: Collection[str]) -> list[str]:
    """`argv` as typer understands it.

    `sakti fix the bug` is one unknown word and two more: refused. `sakti "fix the bug"` and `sakti -- fix` start the
    chat with that prompt. `-p TEXT` is `run TEXT`. A bare `-r` picks a thread, `-r NAME` resumes one.
    """
    out: list[str] = []
    i = 0
    while i < len(argv):
        word = argv[i]
        if word == "--":
            return [*out, f"--prompt={' '.join(argv[i + 1:])}"] if argv[i + 1 :] else out
        if word in ("-p", "--print"):
            return ["run", *out, *argv[i + 1 :]]
        if word in ("-r", "--resume"):
            following = argv[i + 1] if i + 1 < len(argv) else ""
            if following and not following.startswith("-"):
                out.append(f"--resume={following}")
                i += 2
            else:
                out.append("--pick")
                i += 1
            continue
        if word in WITH_VALUE:
            out += argv[i : i + 2]
            i += 2
            continue
        if word.startswith("-"):
            out.append(word)
            i += 1
            continue
        if word in commands:
            return [*out, *argv[i:]]
        if any(c.isspace() for c in word) and len(argv) == i + 1:
            return [*out, f"--prompt={word}"]
        near = difflib.get_close_matches(word, commands, 3)
        hint = f" Did you mean `sakti {near[0]}`?" if near else " `sakti --help` shows the commands."
        raise UsageError(f"There is no command {word!r}.{hint} To start with a prompt, write `sakti -- {' '.join(argv[i:])}`.")
    return out
