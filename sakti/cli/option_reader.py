"""Read options by their declarations, without typer, whose import would slow the start of a chat."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from sakti.actions import spec
from sakti.actions.spec import Arg, UsageError


class _Parser(argparse.ArgumentParser):
    """A parser that raises its errors."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}. `{self.prog} --help` shows the options.")


def read(args: Sequence[Arg], words: Sequence[str], program: str) -> tuple[dict[str, Any], list[str]]:
    """Return the values of options by name, and the remaining words. Raises `UsageError`."""
    parser = _Parser(program, allow_abbrev=False, add_help=False)
    parser.add_argument("words", nargs="*")
    for a in (a for a in args if a.flags):
        settings: dict[str, Any] = {"dest": a.name, "default": [] if a.many else a.default}
        if a.kind == "flag":
            settings["action"] = "store_true"
        else:
            settings["type"] = partial(spec.convert_text, a, name=a.flags[-1])
            settings |= {"action": "append"} if a.many else {"nargs": "?", "const": ""} if a.optional else {}
        parser.add_argument(*a.flags, **settings)
    values = vars(parser.parse_intermixed_args(words))
    return values, values.pop("words")
