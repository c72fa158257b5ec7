"""`sakti doctor`."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer

from sakti.cli import common


def show(
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Check this installation; each finding says how to mend it. Exit 1 when there is one."""
    import asyncio
    from pathlib import Path

    from sakti.agent import doctor
    from sakti.core import resources
    from sakti.core.config import Config
    from sakti.core.errors import ConfigError

    problem: list[doctor.Line] = []
    config = Config()
    try:
        config = common.settings().config
        path = common.database_path()
    except ConfigError as e:
        path = Path(os.environ.get("SAKTI_DB") or resources.data_home() / "sakti.db").expanduser()
        problem = [doctor.Line("config", False, e.message)]
    with common.plain_errors():
        lines = [*problem, *asyncio.run(doctor.examine(path, os.environ, common.workspace(), config))]
    ok = all(line.ok for line in lines)
    if json_:
        common.say_json({"ok": ok, "findings": [asdict(line) for line in lines]})
    else:
        for line in lines:
            common.say(line.text)
    raise SystemExit(common.OK if ok else common.FAILED)
