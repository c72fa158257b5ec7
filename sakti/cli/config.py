"""`sakti config`: every setting with its origin."""

from __future__ import annotations

from typing import Annotated

import typer

from sakti.cli import common


def show(
    name: Annotated[str | None, typer.Argument(help="Only settings that begin so.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Show each setting, its value and where it comes from."""
    from sakti.core import resources
    from sakti.core.config import flat

    with common.plain_errors():
        loaded = common.settings()
    rows = [
        (n, v, loaded.origins.get(n, "default")) for n, v in flat(loaded.config).items() if n.startswith(name or "")
    ]
    if not rows:
        common.fail(f"There is no setting that begins with {name!r}.", common.USAGE)
    if json_:
        common.say_json({n: {"value": v, "origin": o} for n, v, o in rows})
        return
    for n, v, origin in rows:
        common.say(f"{n:<44} {v!s:<16} {origin}")
    for warning in loaded.warnings:
        common.say(f"! {warning}")
    common.say(f"\nYour file: {resources.config_home() / 'config.toml'}")
