"""Make the texts of `--help` from the declarations of actions."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence

from sakti.actions.reader import shown
from sakti.actions.spec import PANELS, Action, Arg, Group, flag

HELP = flag("-h", "--help", help="Show this message and exit.")
VERSION = flag("-V", "--version", help="Show the version and exit.")
WIDEST = 100


def of_action(action: Action, args: Sequence[Arg]) -> str:
    """Return the help of one command."""
    positional = [a for a in args if not a.flags]
    written = " ".join(shown(a) for a in positional)
    return _text(
        f"sakti {action.shell} [OPTIONS] {written}".rstrip(),
        action.help,
        ("Arguments", [(shown(a), a.help) for a in positional if a.help]),
        ("Options", [(_flags(a), _about(a)) for a in (*(a for a in args if a.flags), HELP)]),
    )


def of_group(group: Group, actions: Iterable[Action]) -> str:
    """Return the help of `sakti GROUP`."""
    rows = [(a.shell.partition(" ")[2], _first(a.help)) for a in actions if a.shell]
    return _text(f"sakti {group.name} COMMAND [OPTIONS] …", f"{group.help}\n\nRun COMMAND --help for details.",
                 ("Commands", rows))  # fmt: skip


def of_all(about: str, args: Sequence[Arg], commands: Iterable[tuple[str, str, str]]) -> str:
    """Return the help of `sakti`; `commands` are panel, name and help."""
    listed = sorted(commands, key=lambda c: PANELS.index(c[0]))
    return _text(
        "sakti [OPTIONS] [PROMPT | COMMAND …]",
        about,
        ("Options", [(_flags(a), _about(a)) for a in (*args, VERSION, HELP)]),
        ("Commands", [(name, _first(text)) for _, name, text in listed]),
    )


def _text(usage: str, about: str, *parts: tuple[str, Sequence[tuple[str, str]]]) -> str:
    width = min(_width(), WIDEST)
    out = [f"Usage: {usage}", *("\n" + textwrap.fill(p, width, initial_indent="  ", subsequent_indent="  ")
                                for p in about.split("\n\n"))]  # fmt: skip
    for name, rows in parts:
        if not rows:
            continue
        out.append(f"\n{name}:")
        column = min(max(len(left) for left, _ in rows), 30)
        for left, text in rows:
            head = f"  {left:<{column}}  "
            if len(left) > column and text:
                out.append(f"  {left}")
                head = " " * (column + 4)
            out.append(textwrap.fill(text, width, initial_indent=head, subsequent_indent=" " * (column + 4)) or head)
    return "\n".join(line.rstrip() for line in "\n".join(out).split("\n"))


def _width() -> int:
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
    except (OSError, ValueError):
        return WIDEST


def _first(text: str) -> str:
    """Return the first sentence, or the first paragraph where it is short."""
    paragraph = text.split("\n\n")[0]
    return paragraph if len(paragraph) <= 120 else paragraph.partition(". ")[0].removesuffix(".") + "."


def _flags(a: Arg) -> str:
    value = f"[{a.label}]" if a.optional else a.label
    return f"{', '.join(a.flags)} {value}".rstrip()


def _about(a: Arg) -> str:
    return f"{a.help} Required.".strip() if a.required else a.help
