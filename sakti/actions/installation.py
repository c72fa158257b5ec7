"""Declare settings, models, the embedded model and `sakti doctor`: this installation and its check."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from sakti.actions import registry
from sakti.actions.scope import show_progress_bar
from sakti.actions.spec import UPKEEP, CommandGroup, action, arg, flag
from sakti.actions.values import USAGE, Done, Open, Refused, Rows, Text, Value, pick_numbered
from sakti.core.errors import ConfigError, NoModelError, SaktiError
from sakti.core.lazy import lazy_imports
from sakti.core.text import format_count, quote

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.core.types import ModelInfo
    from sakti.providers.local.install import Installer
    from sakti.providers.registry import SelectedModel


with lazy_imports:
    from sakti.agent import settings as agent_settings
    from sakti.agent import settings_file
    from sakti.agent.reports import doctor as doctor_report
    from sakti.core import config as core_config
    from sakti.core import resources
    from sakti.providers import registry as providers
    from sakti.providers.local import install as local_install
    from sakti.providers.local import model as local_model


@action(arg("name", "Only settings whose name begins with this.", default="", offers="setting names"), shell="config")
async def config(scope: Scope, name: str) -> Value:
    """Show each setting with its value, origin, meaning and possible values."""
    loaded = scope.settings()
    every = core_config.flatten(loaded.config).items()
    origins = loaded.origins
    rows = [(n, core_config.mask_value(n, v), origins.get(n, "default")) for n, v in every if n.startswith(name)]
    if not rows:
        raise Refused(f"No setting begins with {quote(name)}.", code=USAGE)
    lines = [
        line
        for n, v, origin in rows
        for line in (
            f"{n:<44} {agent_settings.format_toml(v) or 'not set':<16} {origin}",
            f"    {core_config.get_meaning(n).help} Takes {core_config.describe_values(n)}.",
        )
    ]
    lines += [f"! {warning}" for warning in loaded.warnings]
    lines.append(f"\nYour file: {resources.config_home() / 'config.toml'}")
    return Text(
        tuple(lines),
        json={
            n: {
                "value": v,
                "origin": o,
                "help": core_config.get_meaning(n).help,
                "takes": core_config.describe_values(n),
            }
            for n, v, o in rows
        },
    )


@action(
    arg("filter", default=""),
    chat="settings",
    needs="session",
    summary="show and change settings",
)
async def settings(scope: Scope, filter: str) -> Value:
    """Show changed settings, or those that match the words; NAME = VALUE changes one."""
    session, user_file = scope.session, resources.config_home() / "config.toml"
    project_file = session.workspace.root / ".sakti" / "config.toml"
    name, changes, text = (part.strip() for part in filter.partition("="))
    if changes:
        value = agent_settings.parse_value(session.workspace.config, name, text)
        files = {"user_file": user_file, "project_file": project_file}
        return Done(await settings_file.change(session, user_file, name, value, **files))
    listed = agent_settings.list_settings(
        session.workspace.config, user_file=user_file, project_file=project_file, env=session.workspace.env
    )

    async def list_rows() -> Value:
        words = filter.lower().split()
        rows = [s for s in listed if (all(w in s.name for w in words) if words else s.origin != "default")]
        which = "with these words" if words else "not at the default"
        return Rows(
            tuple(f"{s.name} = {s.text or 'not set'}  ({s.origin})  {s.meaning.help}" for s in rows),
            "settings",
            tuple(rows),
            head=f"{format_count(len(rows), 'setting')} of {len(listed)} {which}",
            tail="/settings WORDS shows others; /settings NAME = VALUE changes one in your own file.",
        )

    return Open("settings", (listed, user_file, project_file), list_rows)


NONE = "set ANTHROPIC_API_KEY or OPENAI_API_KEY, start a local server, or run `sakti local install`."


@action(shell="models", needs="loop")
async def models(scope: Scope) -> Value:
    """Show the model that would be used, why, and what its provider offers."""
    config = scope.config
    choice = await providers.select_model(
        flag=None, config_model=config.model, env=scope.env, settings=config.providers
    )
    if choice is None:
        if not scope.json:
            raise NoModelError(NONE)
        return Rows((), json=_describe_choice(None, ()), exit=5)
    provider = providers.create_provider(choice.model, config.providers, scope.env)
    listed: list[ModelInfo] = []
    problem = ""
    try:
        listed = list(await provider.models())
    except SaktiError as e:
        problem = f"! {e.message}"
    finally:
        await provider.close()
    head = f"{choice.model}  ({choice.reason})"
    return Rows(tuple(map(_format_model, listed)), empty=problem, head=head, json=_describe_choice(choice, listed))


def _describe_choice(choice: SelectedModel | None, listed: Sequence[ModelInfo]) -> dict[str, object]:
    names = ("context_window", "input_price", "output_price")
    return {
        "model": choice.model if choice else None,
        "reason": choice.reason if choice else None,
        "models": [{"name": m.full_name, **{n: getattr(m, n) for n in names}} for m in listed],
    }


def _format_model(m: ModelInfo) -> str:
    window = f"{m.context_window // 1000}k" if m.context_window else "?"
    has_price = m.input_price is not None and m.output_price is not None
    price = f"${m.input_price:g} / ${m.output_price:g} per million" if has_price else ""
    return f"  {m.full_name:<48} {window:>6}  {price}"


@action(arg("name", default=""), chat="model", hint="[PROVIDER/NAME]", needs="session",
        after_turn="change the model")  # fmt: skip
async def model(scope: Scope, name: str) -> Value | None:
    """Choose the model."""
    session = scope.session
    if name:
        await session.set_model(name)
        return None  # an event reports it

    async def list_rows() -> Value:
        offered = await session.views.models()
        now = session.workspace.models.selection.model if session.workspace.models.selection else None

        async def use(number: int) -> None:
            await session.set_model(pick_numbered(offered, number).full_name)

        return Rows(
            tuple(map(_format_model, offered)),
            "models",
            tuple(offered),
            head=f"The model is {now or 'none'}; /model PROVIDER/NAME changes it.",
            what="chooses a model",
            pick=use,
        )

    return Open("models", fallback=list_rows)


GROUP = CommandGroup("local", "Install and manage the embedded model, a small one for questions.", UPKEEP)


@action(shell="local install", json=False)
async def install(scope: Scope) -> Value:
    """Download the weights (1.1 GB, Apache-2.0). An interrupted download continues where it stopped."""
    if local_model.default_path().is_file() and local_model.weights_ready() and local_model.get_choice() is None:
        text = f"Already installed: {local_model.path()}"
    else:
        try:
            text = f"Installed: {_install_with_progress(local_install.Installer(workspace=scope.workspace))}"
        except local_install.Cancelled as e:
            raise Refused(e.message) from e
    hint = () if local_model.runtime_ready() else ("To run it, install the extra: pip install 'sakti[local]'",)
    return Text((text, *hint))


def _install_with_progress(installer: Installer) -> Path:
    """Run the installer in a thread with a progress bar; ctrl+c stops it cleanly."""
    stopped = threading.Event()
    installer.cancelled = stopped.is_set
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["path"] = installer.run()
        except SaktiError as e:
            outcome["error"] = e

    with show_progress_bar("fetching", "bytes") as show:
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
        return Text((f"The local model is now {local_model.use_file(path)}",))
    except SaktiError as e:
        raise Refused(f"{e.title}: {e.message}") from e


@action(shell="local remove", json=False)
async def remove(scope: Scope) -> Value:
    """Delete the installed weights and any unfinished download."""
    freed = local_model.remove()
    return Text((f"{freed / 1e6:,.0f} MB freed" if freed else "Nothing was installed",))


@action(shell="doctor", chat="doctor", needs="loop", summary="check this installation")
async def doctor(scope: Scope) -> Value:
    """Check this installation; problems come first, each with its fix. Exit 1 if there is one."""
    problem: list[doctor_report.CheckResult] = []
    try:
        config, path = scope.config, scope.database
    except ConfigError as e:
        config = core_config.Config()
        named = scope.env.get("SAKTI_DB")
        if core_config.get_meaning("store.path").refuses(named):
            named = None
        path = Path(named or resources.data_home() / "sakti.db").expanduser()
        problem = [doctor_report.CheckResult("config", False, e.message)]
    answers = scope.live.workspace.models.selection if scope.live is not None else None
    findings = await doctor_report.examine(
        path, scope.env, scope.workspace, config, answers, own_commands=registry.chat_commands()
    )
    lines = [*problem, *findings]
    lines.sort(key=lambda line: "✗!✓".index(line.sign))
    ok = not any(line.problem for line in lines)
    return Text(
        tuple(line.text for line in lines if not (line.ok and line.name.startswith("database "))),
        title="Health",
        kind="findings",
        json={"ok": ok, "findings": [to_builtins(line) for line in lines]},
        exit=int(not ok),
    )
