"""Declaration of an action (names, arguments, requirements), and parsing of its typed arguments.

The facts are named tuples of the standard library: the shell reads them for every command line, before anything else is
imported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sakti.core.text import quote

if TYPE_CHECKING:
    from sakti.actions.values import Value

    Run = Callable[..., Awaitable[Value | None]]
    from sakti.actions.spec import Action, Arg


CHAT, MEMORY, UPKEEP = PANELS = ("Chat", "Memory", "Upkeep")  # headings of `sakti --help`, in this order
Needs = Literal["nothing", "loop", "store", "session"]
Kind = Literal["text", "whole", "number", "path", "flag"]


class Arg(NamedTuple):
    """An argument of `run`, named after its parameter.

    Without `flags` it is positional. `many`: may be repeated, the value is a list. `optional`: an option whose value
    may be left out, which gives "". `in_chat`: the chat takes the option's value without its flag, after the positional
    arguments. `choices` are all allowed values. `offers` are completions, if they differ: words, or the name of a
    look-up in `sakti.cli.offers`; the chat uses only words.
    """

    name: str
    help: str = ""
    flags: tuple[str, ...] = ()
    kind: Kind = "text"
    default: Any = None
    required: bool = False
    many: bool = False
    optional: bool = False
    metavar: str = ""
    choices: tuple[str, ...] = ()
    offers: str | tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    in_chat: bool = False

    @property
    def label(self) -> str:
        return self.metavar or ("" if self.kind == "flag" else self.name.strip("_").upper())


class CommandGroup(NamedTuple):
    """The shell's commands `sakti NAME …` together."""

    name: str
    help: str
    panel: str


class Action(NamedTuple):
    """The metadata of an action.

    `shell` is its command line after `sakti`, `chat` the one after the slash ("threads rename"); "" if it has none.
    `needs`: nothing (it must then never await), an event loop, an open store, or the live session, which only a chat
    has. `after_turn` completes "stop it with Esc, then …" for an action that cannot run during a turn.
    `summary` replaces the docstring in the chat's lists, `hint` shows the arguments there.
    """

    run: Run
    shell: str = ""
    chat: str = ""
    args: tuple[Arg, ...] = ()
    needs: Needs = "nothing"
    after_turn: str = ""
    summary: str = ""
    hint: str = ""
    panel: str = UPKEEP
    json: bool = True

    @property
    def help(self) -> str:
        """Return the docstring with one line per paragraph."""
        paragraphs = (self.run.__doc__ or "").strip().split("\n\n")
        return "\n\n".join(" ".join(p.split()) for p in paragraphs)

    @property
    def in_short(self) -> str:
        """Return the one-line summary shown in lists of the chat."""
        first = self.help.partition("\n\n")[0]
        return self.summary or first[:1].lower() + first[1:].removesuffix(".")


def action(*args: Arg, **facts: Any) -> Callable[[Run], Action]:
    """Declare a coroutine function `run(scope, **arguments)` as an action; its docstring is the help.

    `facts` are fields of `Action`.
    """
    return lambda run: Action(run, args=args, **facts)


def arg(name: str, help: str = "", **more: Any) -> Arg:
    """Declare a positional argument; it is required unless it has a default or may be repeated."""
    return Arg(name, help, required="default" not in more, **more)


def option(*flags: str, help: str = "", name: str = "", **more: Any) -> Arg:
    """Declare an option with a value; the parameter is named after the first long flag."""
    long = next((f for f in flags if f.startswith("--")), flags[0])
    return Arg(name or long.lstrip("-").replace("-", "_"), help, flags, **more)


def flag(*flags: str, help: str = "", name: str = "") -> Arg:
    """Declare an option without a value."""
    return option(*flags, help=help, name=name, kind="flag", default=False)


def limit(default: int, high: int | None = None) -> Arg:
    """Declare `--limit`."""
    about = f"Maximum number (default {default})."
    return option("--limit", help=about, kind="whole", default=default, low=1, high=high, metavar="N")


# as in `importers.READERS`, which the shell does not import for parsing
IMPORT_PROGRAMS = ("claude-code", "codex", "opencode", "pi", "vibe", "aider", "mastra")
JSON = flag("--json", help="One JSON object on standard output.")
SET = option("-o", "--set", metavar="NAME=VALUE", many=True, help="Set any setting for this run.", name="overrides",
             offers="settings")  # fmt: skip


class UsageError(Exception):
    """An invalid line; the message shows the correct form."""


def read_chat(action: Action, line: str) -> dict[str, Any]:
    """Parse the arguments of an action from a line of the chat; the last one takes the rest.

    Raises `UsageError`.
    """
    values: dict[str, Any] = {a.name: [] if a.many and a.default is None else a.default for a in action.args}
    positional = list_chat_args(action)
    rest = line.strip()
    for n, a in enumerate(positional):
        text, _, rest = (rest, "", "") if n == len(positional) - 1 else rest.partition(" ")
        rest = rest.strip()
        if text:
            converted = [convert_text(a, word, a.label) for word in (text.split() if a.many else (text,))]
            values[a.name] = converted if a.many else converted[0]
        elif a.required:
            raise UsageError(f"Write /{action.chat} {' '.join(map(format_argument, positional))}.")
    if rest:
        raise UsageError(f"/{action.chat} takes no arguments.")
    return values


def list_chat_args(action: Action) -> list[Arg]:
    """Return the arguments allowed in a line of the chat: positional ones and `in_chat` options."""
    return [a for a in action.args if not a.flags or a.in_chat]


def format_argument(a: Arg) -> str:
    """Format a positional argument as usage lines do: `TASK`, `[N]`, `[PATH…]`."""
    name = f"{a.label}…" if a.many else a.label
    return name if a.required else f"[{name}]"


def convert_text(a: Arg, text: str, name: str) -> Any:
    """Convert `text` to a value of `a`; errors refer to it as `name`. Raises `UsageError`."""
    if a.optional and not text:
        return text
    if a.choices and text not in a.choices:
        raise UsageError(f"{name}: {quote(text)} is not one of {', '.join(a.choices)}.")
    if a.kind in ("whole", "number"):
        return _convert_number(a, text, name)
    return Path(text) if a.kind == "path" else text


def _convert_number(a: Arg, text: str, name: str) -> float:
    value = _read_number(text, whole=a.kind == "whole")
    if value is None or (a.low is not None and value < a.low) or (a.high is not None and value > a.high):
        kind = "a whole number" if a.kind == "whole" else "a number"
        raise UsageError(f"{name}: {quote(text)} is not {kind}{_format_bounds(a)}.")
    return value


def _read_number(text: str, *, whole: bool) -> float | None:
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        return None
    return value if value == value else None  # nan cannot be compared  # noqa: PLR0124


def _format_bounds(a: Arg) -> str:
    if a.low is not None and a.high is not None:
        return f", {a.low:g} to {a.high:g}"
    return "" if a.low is None else f", {a.low:g} or more"
