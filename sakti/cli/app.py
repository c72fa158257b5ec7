"""The command line: `sakti` alone opens the TUI, everything else is a command."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sakti.cli import common

app = typer.Typer(
    help="A coding agent for the terminal whose memory you can see.\n\n`sakti` opens the chat in the current workspace;"
    ' `sakti "PROMPT"` starts with a prompt.',
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
CHAT, MEMORY, UPKEEP = "Chat", "Memory", "Upkeep"

Model = Annotated[str | None, typer.Option("--model", "-m", metavar="PROVIDER/NAME", help="Model to use.")]
Approval = Annotated[str | None, typer.Option("--approval", metavar="MODE", help="plan, ask, edits or auto.")]
Mode = Annotated[str | None, typer.Option("--mode", help="What the Observer looks for: default, debugging, …")]
Set = Annotated[
    list[str] | None, typer.Option("-o", "--set", metavar="NAME=VALUE", help="Set any setting for this run.")
]
NoSave = Annotated[
    bool,
    typer.Option("--no-save", help="Keep nothing of this: what was said before is read, the database stays as it is."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.callback(invoke_without_command=True)
def chat(
    continue_last: Annotated[bool, typer.Option("--continue", "-c", help="Go on with the last thread.")] = False,
    resume: Annotated[
        str | None,
        typer.Option("--resume", "-r", metavar="[THREAD]", help="Resume a thread; without a name, pick one."),
    ] = None,
    model: Model = None,
    approval: Approval = None,
    mode: Mode = None,
    set_: Set = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="The chat line by line, for screen readers and simple terminals.")
    ] = False,
    no_save: NoSave = False,
    debug: Annotated[bool, typer.Option("--debug", help="Write every decision to the log file.")] = False,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version.")] = False,
) -> None:
    """Only here for --help: `route` reads the chat's own line before typer is imported."""


@app.command(rich_help_panel=CHAT)
def run(
    prompt: Annotated[str, typer.Argument(help="What to ask; standard input is added to it.")] = "",
    model: Model = None,
    approval: Approval = None,
    mode: Mode = None,
    output: Annotated[str, typer.Option("--output", help="text, json or stream-json.")] = "text",
    max_steps: Annotated[int | None, typer.Option("--max-steps", min=1, help="Model calls at most.")] = None,
    max_seconds: Annotated[float | None, typer.Option("--max-seconds", help="Seconds at most.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Tokens at most, in and out.")] = None,
    max_usd: Annotated[float | None, typer.Option("--max-usd", help="US dollars at most.")] = None,
    effort: Annotated[str | None, typer.Option("--effort", help="off, low, medium or high: thinking.")] = None,
    continue_last: Annotated[bool, typer.Option("--continue", "-c", help="Go on with the last thread.")] = False,
    resume: Annotated[str | None, typer.Option("--resume", metavar="THREAD", help="Go on with this thread.")] = None,
    set_: Set = None,
    no_save: NoSave = False,
    debug: Annotated[bool, typer.Option("--debug", help="Write every decision to the log file.")] = False,
) -> None:
    """Answer one prompt without a screen. Exit: 0 answered, 1 model failed, 2 usage, 3 limit, 4 refused, 5 no model,
    6 answer cut."""
    import sys

    from sakti import headless

    if output not in headless.OUTPUTS:
        common.fail(f"--output takes {', '.join(headless.OUTPUTS)}, not {output!r}.", common.USAGE)
    if not sys.stdin.isatty() and (piped := sys.stdin.buffer.read().decode("utf-8", "replace")).strip():
        prompt = f"{prompt}\n\n{piped}" if prompt else piped
    if not prompt.strip():
        common.fail('there is nothing to ask. Write `sakti run "PROMPT"` or pipe text in.', common.USAGE)
    with common.plain_errors():
        given = {"max_steps": max_steps, "max_seconds": max_seconds, "max_tokens": max_tokens, "max_usd": max_usd}
        overrides = [*(set_ or ()), *(f"agent.{name}={value}" for name, value in given.items() if value is not None)]
        overrides += [f'agent.effort="{effort}"'] if effort else []
        chosen = common.options(
            overrides=overrides,
            model=model,
            approval=approval,
            mode=mode,
            resume=resume,
            continue_last=continue_last,
            interactive=False,
            no_save=no_save,
        )
        common.log_to_file(debug=debug)
        raise SystemExit(headless.run(chosen, prompt, output))


@app.command(rich_help_panel=MEMORY)
def search(
    query: Annotated[
        list[str], typer.Argument(help='Words, "phrases", -word, word*, path: role: kind: before: after:')
    ],
    kind: Annotated[list[str] | None, typer.Option("--kind", help="message, observation, reflection or task.")] = None,
    thread: Annotated[str | None, typer.Option("--thread", help="Only this thread (id).")] = None,
    all_workspaces: Annotated[bool, typer.Option("--all-workspaces", help="Not only this workspace.")] = False,
    since: Annotated[str | None, typer.Option("--since", help="2026-01-15, yesterday, 7d …")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200)] = 10,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Leave out the first so many.")] = 0,
    json_: Json = False,
) -> None:
    """Search everything that was said, observed or planned."""
    from sakti.cli import search as command

    command.run(
        " ".join(query),
        kinds=kind or (),
        thread=thread,
        everywhere=all_workspaces,
        since=since,
        limit=limit,
        offset=offset,
        as_json=json_,
    )


@app.command(
    rich_help_panel=MEMORY,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
def tasks(context: typer.Context) -> None:
    """The task board."""
    from sakti.cli import tasks as commands  # reads its line itself; `run_cli` goes there without typer

    commands.run(context.args)


imports = typer.Typer(help="Bring in what other tools know.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(imports, name="import", rich_help_panel=MEMORY)


@imports.command()
def beads(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A repository, its .beads folder, an issues.jsonl, or the database.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
    as_: Annotated[str | None, typer.Option("--as", metavar="ACTOR", help="Who acts; SAKTI_ACTOR, else you.")] = None,
    json_: Json = False,
) -> None:
    """Tasks of beads (bd). Repeated, it brings in only what changed there since. Exit: 1 refused, 2 nothing found."""
    from sakti.cli import tasks as commands

    commands.import_beads(path, dry_run=dry_run, as_=as_, json_=json_)


# The commands that live in files of their own: `app` in a file is a group, `show` a command.
_FILES = {
    "threads": CHAT,
    "tour": CHAT,
    "memory": MEMORY,
    "bench": UPKEEP,
    "db": UPKEEP,
    "local": UPKEEP,
    "config": UPKEEP,
    "models": UPKEEP,
    "doctor": UPKEEP,
}


def load(name: str) -> None:
    """Add one of `_FILES`, unless it is there already."""
    known = {g.name for g in app.registered_groups} | {c.name for c in app.registered_commands}
    if name in known:
        return
    module = importlib.import_module(f"sakti.cli.{name}")
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name, rich_help_panel=_FILES[name])
    else:
        app.command(name=name, rich_help_panel=_FILES[name])(module.show)


def load_all() -> None:
    for name in _FILES:
        load(name)


def run_command(arguments: Sequence[str]) -> None:
    """Let typer have the line; of the files only the named one is loaded, all of them where none is named."""
    if arguments[0] in _FILES:
        load(arguments[0])
    else:
        load_all()
    app(args=list(arguments), prog_name="sakti")
