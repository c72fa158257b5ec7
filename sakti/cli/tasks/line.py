"""Read the command line of `sakti tasks`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sakti.cli import common

HELP = "The task board."
ORDER = ("ready", "list", "show", "search", "explain", "tree", "board", "create", "claim", "release", "close", "reopen",
         "update", "dep", "link", "label", "delete", "restore", "undo", "export", "import")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Argument:
    """What `ArgumentParser.add_argument` takes."""

    names: tuple[str, ...]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """`run` is called with the arguments by name; its docstring is the help."""

    run: Callable[..., None]
    arguments: tuple[Argument, ...]


COMMANDS: dict[str, Command] = {}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        common.fail(f"{message}. `{self.prog} --help` shows how it is written.", common.USAGE)


def arg(*names: str, **options: Any) -> Argument:
    return Argument(names, options)


def flag(name: str, help: str = "") -> Argument:
    return arg(name, action="store_true", help=help)


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return a reader of whole numbers within bounds."""

    def check(text: str) -> int:
        if text.lstrip("-").isdecimal() and int(text) >= low and (high is None or int(text) <= high):
            return int(text)
        bounds = f"{low} to {high}" if high is not None else f"{low} or more"
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, {bounds}")

    return check


def pair(text: str) -> tuple[str, str]:
    """Read KEY=VALUE."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def limit(default: int) -> Argument:
    return arg("--limit", type=whole(1), default=default, metavar="N", help=f"Maximum number (default {default}).")


JSON = arg("--json", dest="json_", action="store_true", help="One JSON object on standard output.")
AS = arg("--as", dest="as_", metavar="ACTOR", help="Who acts; SAKTI_ACTOR, else you.")
TASK = arg("task", metavar="TASK", help="A handle, an id, or the beginning of one.")
FORCE = flag("--force", "Although somebody else has claimed it.")
META = arg("--meta", action="append", default=[], type=pair, metavar="KEY=VALUE",
           help="Metadata; may be repeated, an empty value takes the key away.")  # fmt: skip
TYPE_HELP = "bug, feature, task, epic or chore."


def command(name: str, *arguments: Argument) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        COMMANDS[name] = Command(run, arguments)
        return run

    return register


def run(argv: Sequence[str]) -> None:
    """Run `sakti tasks …`; ends in SystemExit where something is refused or was written wrongly."""
    if not argv or argv[0] in ("-h", "--help"):
        _say_help()
        raise SystemExit(common.OK if argv else common.USAGE)
    name, *rest = argv
    found = COMMANDS.get(name)
    if found is None:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"Did you mean `sakti tasks {near[0]}`?" if near else "`sakti tasks --help` shows the commands."
        common.fail(f"There is no command `sakti tasks {name}`. {hint}", common.USAGE)
    parser = _Parser(f"sakti tasks {name}", description=found.run.__doc__, allow_abbrev=False)
    for argument in found.arguments:
        parser.add_argument(*argument.names, **argument.options)
    read = parser.parse_args if "--" in rest else parser.parse_intermixed_args  # each knows what the other does not
    found.run(**vars(read(rest)))


def _say_help() -> None:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {(COMMANDS[name].run.__doc__ or '').splitlines()[0]}" for name in ORDER]
    common.say("\n".join(["Usage: sakti tasks COMMAND …", "", f"{HELP} COMMAND --help tells more.", "", *lines]))
