"""Complete commands in the user's shell, with the scripts of typer."""

from __future__ import annotations

import os
from pathlib import Path

from typer import completion as typer_completion

from sakti.actions.values import USAGE, Refused
from sakti.cli import app, common, offers
from sakti.cli.options import SHELLS
from sakti.core.lazy import lazy_pattern

# bash splits words at `=` and completes the part after it
_IN_BASH = lazy_pattern(r"\s(?:-o|--set)\s+([\w.]+)\s*=\s*(\S*)$")


def complete() -> None:
    """Print completions for a shell's script; typer reads the line from the environment."""
    if value := _IN_BASH.search(os.environ.get("COMP_WORDS", "")):
        common.say("\n".join(word for word in offers.list_values(value[1]) if word.startswith(value[2])))
        return
    os.environ["COLUMNS"] = "10000"  # typer wraps descriptions, and the shells read each line as a word
    typer_completion.completion_init()  # pyright: ignore[reportPrivateImportUsage]
    app.build_program().main([], "sakti")


def install(name: str) -> None:
    """Write the completion script, and the line that loads it into the shell's start-up file."""
    name = name or _find_user_shell()
    try:
        _, path = typer_completion.install(name, "sakti")  # pyright: ignore[reportPrivateImportUsage]
    except OSError as e:
        raise Refused(
            f"{e.filename} cannot be written: {e.strerror}. `sakti --show-completion {name}` prints it."
        ) from e
    common.say(f"Written to {path}: open a new {name}.")


def show(name: str) -> None:
    """Print the completion script."""
    script = typer_completion.get_completion_script(  # pyright: ignore[reportPrivateImportUsage]
        prog_name="sakti", complete_var="_SAKTI_COMPLETE", shell=name or _find_user_shell()
    )
    common.say(script)


def _find_user_shell() -> str:
    """Return the shell of the user. Raises `Refused`."""
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        problem = f"{name} is not a shell that sakti completes in" if name else "SHELL is not set"
        raise Refused(f"{problem}: run `sakti --install-completion` with bash, zsh or fish.", code=USAGE)
    return name
