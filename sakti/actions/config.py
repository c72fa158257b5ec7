"""Declare `/settings` and `sakti config`: every setting with its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg
from sakti.actions.values import USAGE, Done, Open, Refused, Rows, Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.text import counted

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


with lazy_imports:
    from sakti.agent import settings as agent_settings
    from sakti.agent import settings_file
    from sakti.core import config as core_config
    from sakti.core import resources


@action(arg("name", "Only settings whose name begins with this.", default="", offers="setting names"), shell="config")
async def config(scope: Scope, name: str) -> Value:
    """Show each setting, its value, where it comes from, what it means and what it takes."""
    loaded = scope.settings()
    every = core_config.flat(loaded.config).items()
    origins = loaded.origins
    rows = [(n, core_config.masked_value(n, v), origins.get(n, "default")) for n, v in every if n.startswith(name)]
    if not rows:
        raise Refused(f"No setting begins with {name!r}.", code=USAGE)
    lines = [
        line
        for n, v, origin in rows
        for line in (
            f"{n:<44} {agent_settings.as_toml(v) or 'not set':<16} {origin}",
            f"    {core_config.meaning(n).help} Takes {core_config.takes(n)}.",
        )
    ]
    lines += [f"! {warning}" for warning in loaded.warnings]
    lines.append(f"\nYour file: {resources.config_home() / 'config.toml'}")
    return Text(
        tuple(lines),
        json={
            n: {"value": v, "origin": o, "help": core_config.meaning(n).help, "takes": core_config.takes(n)}
            for n, v, o in rows
        },
    )


@action(
    arg("wanted", default=""),
    chat="settings",
    needs="session",
    summary="show and change settings",
)
async def settings(scope: Scope, wanted: str) -> Value:
    """Show changed settings, or those that match the words; NAME = VALUE changes one."""
    session, user_file = scope.session, resources.config_home() / "config.toml"
    project_file = session.workspace.root / ".sakti" / "config.toml"
    name, changes, text = (part.strip() for part in wanted.partition("="))
    if changes:
        value = agent_settings.value_of(session.workspace.config, name, text)
        files = {"user_file": user_file, "project_file": project_file}
        return Done(await settings_file.change(session, user_file, name, value, **files))
    found = agent_settings.list_settings(
        session.workspace.config, user_file=user_file, project_file=project_file, env=session.workspace.env
    )

    async def list_rows() -> Value:
        asked = wanted.lower().split()
        rows = [s for s in found if (all(w in s.name for w in asked) if asked else s.origin != "default")]
        which = "with these words" if asked else "not at the default"
        return Rows(
            tuple(f"{s.name} = {s.text or 'not set'}  ({s.origin})  {s.meaning.help}" for s in rows),
            "settings",
            tuple(rows),
            head=f"{counted(len(rows), 'setting')} of {len(found)} {which}",
            tail="/settings WORDS shows others; /settings NAME = VALUE changes one in your own file.",
        )

    return Open("settings", (found, user_file, project_file), list_rows)
