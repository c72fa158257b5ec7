"""Declare `sakti local`: the embedded model's weights."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from sakti.actions.scope import bar
from sakti.actions.spec import UPKEEP, CommandGroup, action, arg, flag
from sakti.actions.values import USAGE, Refused, Text, Value
from sakti.core.errors import SaktiError
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.providers.local.install import Installer

with lazy_imports:
    from sakti.providers.local import install as local_install
    from sakti.providers.local import model as local_model

GROUP = CommandGroup("local", "Install and manage the embedded model, a small one for questions.", UPKEEP)


@action(shell="local install", json=False)
async def install(scope: Scope) -> Value:
    """Download the weights (1.1 GB, Apache-2.0). An interrupted download continues where it stopped."""
    if local_model.default_path().is_file() and local_model.weights_ready() and local_model.get_choice() is None:
        told = f"Already installed: {local_model.path()}"
    else:
        try:
            told = f"Installed: {_with_progress(local_install.Installer(workspace=scope.workspace))}"
        except local_install.Cancelled as e:
            raise Refused(e.message) from e
    hint = () if local_model.runtime_ready() else ("To run it, install the extra: pip install 'sakti[local]'",)
    return Text((told, *hint))


def _with_progress(installer: Installer) -> Path:
    """Run the installer in a thread with a progress bar; ctrl+c stops it cleanly."""
    stopped = threading.Event()
    installer.cancelled = stopped.is_set
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["path"] = installer.run()
        except SaktiError as e:
            outcome["error"] = e

    with bar("fetching", "bytes") as show:
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


@action(shell="local status")
async def status(scope: Scope) -> Value:
    """Show whether the model is ready and where it is. Exit 1 if it is not."""
    now = local_model.status()
    weights = f"{now.path}, {now.bytes / 1e6:,.0f} MB" if now.bytes else "not installed; run `sakti local install`"
    unfinished = f"unfinished install: {now.partial_bytes / 1e6:,.0f} MB downloaded"
    lines = (
        f"{now.name} ({now.label})",
        f"weights   {weights}",
        *([unfinished] if now.partial_bytes else []),
        f"runtime   {'installed' if now.runtime else 'missing: pip install sakti[local]'}",
        f"ready     {'yes' if now.ready else 'no'}",
    )
    return Text(lines, json=to_builtins(now), exit=int(not now.ready))


@action(arg("path", "A GGUF file.", kind="path", default=None), 
        flag("--default", help="Use the installed model again."),
        shell="local use", json=False)  # fmt: skip
async def use(scope: Scope, path: Path | None, default: bool) -> Value:
    """Use another GGUF file instead of the installed model."""
    if (path is None) != default:
        raise Refused("Name a GGUF file, or --default.", code=USAGE)
    try:
        return Text((f"The local model is now {local_model.use(path)}",))
    except SaktiError as e:
        raise Refused(f"{e.title}: {e.message}") from e


@action(shell="local remove", json=False)
async def remove(scope: Scope) -> Value:
    """Delete the installed weights and any unfinished download."""
    freed = local_model.remove()
    return Text((f"{freed / 1e6:,.0f} MB freed" if freed else "Nothing was installed",))
