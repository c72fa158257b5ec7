"""Find the models that this machine can use, for the welcome of both chats."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from sakti.core.config.fields import ProviderSettings
from sakti.core.events import ModelChanged
from sakti.core.text import format_count

if TYPE_CHECKING:
    from sakti.agent.session.session import Session

from sakti.providers import keys as stored_keys
from sakti.providers import presets
from sakti.providers import serving as server_probe
from sakti.providers.local import model as local_model

SHOWN = "welcomed"  # key of the stored state: the welcome was shown


class LocalServer(Struct, frozen=True):
    """A server on this machine that answered; `address` is host:port."""

    provider: str
    title: str
    address: str
    models: tuple[str, ...]


class MachineScan(Struct, frozen=True):
    """Models that this machine can use: keys, local servers, the embedded model.

    `keys` and `stored_keys` are names of variables, in the environment and in the keyring, never a key itself.
    `weights` and `runtime` are the two halves of the embedded model. `keyring` names the system's, if any.
    """

    keys: tuple[str, ...] = ()
    stored_keys: tuple[str, ...] = ()
    servers: tuple[LocalServer, ...] = ()
    weights: bool = False
    runtime: bool = False
    keyring: str = ""


async def scan_machine(
    env: Mapping[str, str],
    settings: Mapping[str, ProviderSettings],
    probe: Callable[[str], Awaitable[list[str] | None]] | None = None,
) -> MachineScan:
    """Ask the environment, the keyring, the usual ports of this machine and the disk."""
    locals_ = [p for p in presets.PRESETS.values() if p.local]
    urls = [(settings[p.name].base_url if p.name in settings else None) or p.base_url for p in locals_]
    answers, name, stored = await asyncio.gather(
        asyncio.gather(*((probe or server_probe.fetch_local_models)(url) for url in urls)),
        asyncio.to_thread(stored_keys.get_keyring_name),
        asyncio.to_thread(stored_keys.list_stored_keys),
    )
    return MachineScan(
        tuple(k for p in presets.PRESETS.values() for k in p.keys if env.get(k)),
        stored,
        tuple(
            LocalServer(p.name, p.title, urlsplit(url).netloc, tuple(models))
            for p, url, models in zip(locals_, urls, answers, strict=True)
            if models
        ),
        local_model.weights_ready(),
        local_model.runtime_ready(),
        name,
    )


def _key_rows(scan: MachineScan) -> list[tuple[bool, str]]:
    out = [(True, f"{name} is set") for name in scan.keys]
    out += [(True, f"{name} is in the keyring") for name in scan.stored_keys if name not in scan.keys]
    return out or [(False, "no key in the environment" + (" or the keyring" if scan.keyring else ""))]


def list_options(scan: MachineScan) -> list[tuple[bool, str]]:
    """Return (is available, line) for everything that was looked for."""
    out = _key_rows(scan)
    out += [
        (True, f"{s.title} answers at {s.address}, {format_count(len(s.models), 'model')}") for s in scan.servers
    ] or [(False, "no local server answers (Ollama, LM Studio, llama.cpp, vLLM)")]
    ready = scan.weights and scan.runtime
    half = "its runtime is missing" if scan.weights else "not installed (1.1 GB)"
    return [*out, (ready, f"the small model for this machine: {'installed' if ready else half}")]


def describe_selection(said: ModelChanged | None) -> str:
    """Return one sentence on which model answers, and why."""
    if said is None or said.model is None:
        return "No model configured. Tools, search and tasks still work."
    return f"sakti talks to {said.model}: {said.reason}."


async def is_welcome_due(session: Session, state: Mapping[str, str]) -> bool:
    """Return whether the welcome is due.

    It was never shown before, nothing was asked for on the command line, and there is no model or no earlier message
    in this workspace.
    """
    if state.get(SHOWN):
        return False
    options = session.workspace.options
    if options.model_flag or options.resume or options.continue_last:
        return False
    selection = session.workspace.models.selection
    if selection is None or selection.model is None:
        return True
    return selection.reason != "given" and not await session.views.threads(limit=1)
