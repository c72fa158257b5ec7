"""`/doctor` and `sakti doctor`: the health of this installation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sakti.actions.spec import action
from sakti.actions.values import Text, Value
from sakti.core.errors import ConfigError

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


@action(shell="doctor", chat="doctor", needs="loop", summary="health of this installation")
async def doctor(scope: Scope) -> Value:
    """Check this installation, problems first; each says how to mend it. Exit 1 when there is one."""
    from sakti.agent.reports import doctor as checks
    from sakti.core import resources
    from sakti.core.config import Config

    problem: list[checks.Line] = []
    try:
        config, path = scope.config, scope.database
    except ConfigError as e:
        config, path = Config(), Path(scope.env.get("SAKTI_DB") or resources.data_home() / "sakti.db").expanduser()
        problem = [checks.Line("config", False, e.message)]
    answers = scope.live.model if scope.live is not None else None
    lines = [*problem, *await checks.examine(path, scope.env, scope.workspace, config, answers)]
    lines.sort(key=lambda line: "✗!✓".index(line.sign))
    ok = not any(line.problem for line in lines)
    return Text(
        tuple(line.text for line in lines),
        title="Health",
        kind="findings",
        json={"ok": ok, "findings": [asdict(line) for line in lines]},
        exit=int(not ok),
    )
