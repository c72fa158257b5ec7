"""`sakti local`: the embedded model's weights."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sakti.cli import common
from sakti.core.errors import SaktiError

if TYPE_CHECKING:
    from sakti.providers.local.install import Installer

app = typer.Typer(no_args_is_help=True, help="The embedded model: a small local model for questions and simple edits.")


@app.command()
def install() -> None:
    """Fetch the weights (1.1 GB, Apache-2.0). Stopped in between, it goes on where it was."""
    from sakti.providers.local import model
    from sakti.providers.local.install import Cancelled, Installer

    if model.default_path().is_file() and model.weights_ready() and model.chosen() is None:
        typer.echo(f"Installed already: {model.path()}")
        _runtime_hint()
        return
    try:
        path = _with_progress(Installer(workspace=common.workspace()))
    except Cancelled as e:
        typer.echo(e.message, err=True)
        raise typer.Exit(1) from e
    except SaktiError as e:
        typer.echo(f"{e.title}: {e.message}", err=True)
        raise typer.Exit(1) from e
    typer.echo(f"Installed: {path}")
    _runtime_hint()


def _with_progress(installer: Installer) -> Path:
    """Run the installer in a thread, so that ctrl+c stops it cleanly; a bar where there is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    stopped = threading.Event()
    installer.cancelled = stopped.is_set
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["path"] = installer.run()
        except SaktiError as e:
            outcome["error"] = e

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("fetching", total=None)

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        installer.progress = show
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            try:
                thread.join(0.2)
            except KeyboardInterrupt:
                stopped.set()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["path"]


def _runtime_hint() -> None:
    from sakti.providers.local import model

    if not model.runtime_ready():
        typer.echo("To run it, install the extra: pip install 'sakti[local]'")


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="One object on stdout.")] = False) -> None:
    """Say whether the model is ready and where it is; exit code 1 if it is not ready."""
    from sakti.providers.local import model

    now = model.status()
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(now)))
    else:
        typer.echo(f"{now.name} ({now.label})")
        typer.echo(
            f"weights   {now.path}, {now.bytes / 1e6:,.0f} MB"
            if now.bytes
            else "weights   not installed: sakti local install"
        )
        if now.partial_bytes:
            typer.echo(f"unfinished install: {now.partial_bytes / 1e6:,.0f} MB fetched")
        typer.echo(f"runtime   {'installed' if now.runtime else 'missing: pip install sakti[local]'}")
        typer.echo(f"ready     {'yes' if now.ready else 'no'}")
    if not now.ready:
        raise typer.Exit(1)


@app.command()
def use(
    path: Annotated[Path | None, typer.Argument(help="A GGUF file.", show_default=False)] = None,
    default: Annotated[bool, typer.Option("--default", help="The installed model again.")] = False,
) -> None:
    """Load another GGUF file instead of the installed model."""
    from sakti.providers.local import model

    if (path is None) != default:
        typer.echo("Name a GGUF file, or --default.", err=True)
        raise typer.Exit(2)
    try:
        typer.echo(f"The local model is now {model.use(path)}")
    except SaktiError as e:
        typer.echo(f"{e.title}: {e.message}", err=True)
        raise typer.Exit(1) from e


@app.command()
def remove() -> None:
    """Delete the installed weights and what an unfinished install left."""
    from sakti.providers.local import model

    freed = model.remove()
    typer.echo(f"{freed / 1e6:,.0f} MB freed" if freed else "Nothing was installed")
