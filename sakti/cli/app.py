"""Build the shell's commands with typer, on demand, from the declarations of actions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Annotated, Any, TypeAlias, cast

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from sakti.actions import spec
from sakti.actions.spec import JSON, PANELS, Action, Arg
from sakti.cli import common, offers, options, shell

Command: TypeAlias = TyperCommand | TyperGroup
SETTINGS = {"help_option_names": ["-h", "--help"]}


class WithHelp:
    """Command whose `--help` is a plain flag: typer imports pydantic to convert a missing default."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`."""
        option: Any = cast(Any, super()).get_help_option(ctx)
        option.default, option.metavar = False, ""
        return option


class ActionCommand(WithHelp, TyperCommand):
    """The command of one action; `optional` are its options whose value may be left out."""

    optional: frozenset[str] = frozenset()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args` after adding "" for left-out values."""
        words: list[str] = []
        for word, after in zip_longest(args, args[1:], fillvalue="--"):
            words += [word, ""] if word in self.optional and after.startswith("-") else [word]
        return super().parse_args(ctx, words)


class CommandProgram(WithHelp, TyperGroup):
    """The command `sakti` with all of its subcommands."""


class ActionGroup(WithHelp, TyperGroup):
    """A group whose `build` makes a command when it is named; `words` are the names of all commands."""

    def __init__(self, build: Callable[[str], Command], words: Iterable[str], **settings: Any) -> None:
        super().__init__(commands=cast(Any, dict.fromkeys(words)), context_settings=SETTINGS, **settings)
        self._build = build

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name, or None."""
        return self._build(cmd_name) if cmd_name in self.commands else None


def read_command(argv: Sequence[str]) -> tuple[Action, dict[str, Any]] | None:
    """Return the action in `argv` with its values; None after help or completion was printed.

    Raises SystemExit for an invalid line.
    """
    has_subject = bool(argv) and shell.find_subject(argv[0]) is not None
    command = build_word(argv[0]) if has_subject else build_program()
    words, name = (list(argv[1:]), f"sakti {argv[0]}") if has_subject else (list(argv), "sakti")
    missing = isinstance(command, ActionGroup) and not words and not command.invoke_without_command
    try:
        result = command.main([*words, *["--help"] * missing], name, standalone_mode=False)
    except spec.UsageError as e:
        common.fail(str(e), common.USAGE)
    except typer.TyperException as e:
        common.fail(_explain(e), common.USAGE)
    if missing:
        raise SystemExit(common.USAGE)
    return result or None  # 0: help


def _explain(error: typer.TyperException) -> str:
    """Return an error of typer in one line, with the command that shows help."""
    message = " ".join(error.format_message().split())
    context: typer.Context | None = getattr(error, "ctx", None)
    end = "" if message.endswith((".", "?", "!")) else "."
    return (
        message.replace("'?.", "'?")
        + end
        + (f" `{context.command_path} --help` shows how it is written." if context else "")
    )


def build_program() -> TyperGroup:
    """Build `sakti` itself with the options of the chat and all commands, for its help and for completion."""
    commands = sorted(
        map(build_word, shell.list_words()), key=lambda command: PANELS.index(str(command.rich_help_panel))
    )
    params = _build(options.TOP, "sakti", "", dict).params
    return CommandProgram(name="sakti", commands=commands, params=params, help=options.ABOUT, context_settings=SETTINGS,
                   subcommand_metavar="[PROMPT | COMMAND …]")  # fmt: skip


def build_word(word: str) -> Command:
    """Build the command or the group `sakti WORD`."""
    subject = shell.find_subject(word)
    assert subject is not None
    actions = {a.shell.partition(" ")[2]: a for a in subject.actions if a.shell.split()[:1] == [word]}
    group = subject.group(word)
    if group is None:
        return _build_action(actions[""], word, actions[""].panel)

    def build(name: str) -> Command:
        return _build_action(actions[name], name, "")

    settings = dict[str, Any]()
    if bare := actions.pop("", None):  # the group's name alone is also a command
        command = _build_action(bare, word, "")
        settings = {"callback": command.callback, "params": command.params, "invoke_without_command": True}
    return ActionGroup(build, actions, name=word, help=_escape(group.help), short_help=_shorten(group.help),
                    rich_help_panel=group.panel, **settings)  # fmt: skip


def list_arguments(action: Action) -> tuple[Arg, ...]:
    """Return an action's arguments in the shell."""
    return (*action.args, JSON) if action.json else action.args


def _build_action(action: Action, name: str, panel: str) -> TyperCommand:
    def result(**values: Any) -> tuple[Action, dict[str, Any]]:
        return action, values

    return _build(list_arguments(action), name, action.help, result, panel)


def _build(args: Sequence[Arg], name: str, help: str, result: Callable[..., Any], panel: str = "") -> TyperCommand:
    """Build a command that returns `result` of the values of its arguments."""

    def call(**values: Any) -> Any:
        return result(**{a.name: (values[a.name] or []) if a.many else values[a.name] for a in args})

    call.__dict__["__signature__"] = inspect.Signature([_make_parameter(a) for a in args])
    app = typer.Typer(add_completion=False)
    app.command(name, cls=ActionCommand, help=_escape(help), short_help=_shorten(help), context_settings=SETTINGS,
                rich_help_panel=panel or None)(call)  # fmt: skip
    command = cast(ActionCommand, typer.main.get_command(app))
    command.optional = frozenset(f for a in args if a.optional for f in a.flags)
    for param, a in zip(command.params, args, strict=True):
        # typer's own conversion imports pydantic, which costs as much as a question to the board
        vars(param)["process_value"] = partial(_convert, a, cast(Any, param).process_value)
        if not a.flags:  # typer writes {WORD} and <list[str]>
            word = (a.label if a.required else f"[{a.label}]") + ("..." if a.many else "")
            vars(param).update(_usage_display_name=lambda word=word: word, display_type_rich=_hide_type)
    return command


def _hide_type(ctx: Any) -> None:
    """Hide the type beside an argument's name."""


def _convert(a: Arg, convert_missing: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """Convert the values of an argument as the chat does. Raises `UsageError`."""
    name = a.flags[-1] if a.flags else a.label
    if isinstance(value, str):
        return spec.convert_text(a, value, name)
    if a.required and not value:
        return convert_missing(context, value)
    return [spec.convert_text(a, text, name) for text in value or ()] if a.many else value


def _make_parameter(a: Arg) -> inspect.Parameter:
    word = bool if a.kind == "flag" else str
    settings: dict[str, Any] = {"help": _escape(a.help), "show_default": False, "min": a.low, "max": a.high}
    settings["metavar"] = a.label if a.metavar or not a.choices else "|".join(a.choices)
    if offered := a.offers or a.choices:
        settings["autocompletion"] = offers.make_completer(offered)
    about = typer.Option(*a.flags, **settings) if a.flags else typer.Argument(**settings)
    return inspect.Parameter(
        a.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if a.required else a.default,
        annotation=Annotated[list[word] if a.many else word, about],
    )


def _shorten(help: str) -> str:
    """Return the first sentence, without its full stop."""
    return _escape(help.partition("\n\n")[0].partition(". ")[0].removesuffix("."))


def _escape(text: str) -> str:
    """Escape square brackets, which rich would read as markup."""
    return text.replace("[", r"\[")
