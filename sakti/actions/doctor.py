"""Declare `/doctor` and `sakti doctor`: the check of this installation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from sakti.actions import registry
from sakti.actions.spec import action
from sakti.actions.values import Text, Value
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

with lazy_imports:
    from sakti.agent.reports import doctor as doctor_report
    from sakti.core import config as core_config
    from sakti.core import resources


@action(shell="doctor", chat="doctor", needs="loop", summary="check this installation")
async def doctor(scope: Scope) -> Value:
    """Check this installation, problems first; each says how to fix it. Exit 1 when there is one."""
    problem: list[doctor_report.Line] = []
    try:
        config, path = scope.config, scope.database
    except ConfigError as e:
        config = core_config.Config()
        named = scope.env.get("SAKTI_DB")
        if core_config.meaning("store.path").refuses(named):
            named = None
        path = Path(named or resources.data_home() / "sakti.db").expanduser()
        problem = [doctor_report.Line("config", False, e.message)]
    answers = scope.live.workspace.models.selection if scope.live is not None else None
    found = await doctor_report.examine(path, scope.env, scope.workspace, config, answers, own_commands=registry.chat())
    lines = [*problem, *found]
    lines.sort(key=lambda line: "✗!✓".index(line.sign))
    ok = not any(line.problem for line in lines)
    return Text(
        tuple(line.text for line in lines if not (line.ok and line.name.startswith("database "))),
        title="Health",
        kind="findings",
        json={"ok": ok, "findings": [to_builtins(line) for line in lines]},
        exit=int(not ok),
    )
