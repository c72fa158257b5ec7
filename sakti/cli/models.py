"""`sakti models`: which model would answer, and why; which others there are."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from sakti.cli import common


def show(
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """The model that `sakti` would use, why, and what its provider offers."""
    from sakti.core.errors import SaktiError
    from sakti.core.types import ModelInfo
    from sakti.providers import registry

    async def look() -> tuple[registry.Choice | None, list[ModelInfo], str]:
        config = common.settings().config
        choice = await registry.select(flag=None, config_model=config.model, env=os.environ, settings=config.providers)
        if choice is None:
            return None, [], ""
        provider = registry.create(choice.model, config.providers, os.environ)
        try:
            return choice, list(await provider.models()), ""
        except SaktiError as e:
            return choice, [], e.message
        finally:
            await provider.close()

    with common.plain_errors():
        choice, models, problem = asyncio.run(look())
    if json_:
        common.say_json(
            {
                "model": choice.model if choice else None,
                "reason": choice.reason if choice else None,
                "models": [
                    {
                        "name": m.full_name,
                        "context_window": m.context_window,
                        "input_price": m.input_price,
                        "output_price": m.output_price,
                    }
                    for m in models
                ],
            }
        )
        raise SystemExit(common.OK if choice else common.NO_MODEL)
    if choice is None:
        common.fail(
            "no model: set ANTHROPIC_API_KEY or OPENAI_API_KEY, start a local server, or run `sakti local install`.",
            common.NO_MODEL,
        )
    common.say(f"{choice.model}  ({choice.reason})")
    for m in models:
        window = f"{m.context_window // 1000}k" if m.context_window else "?"
        price = (
            f"${m.input_price:g} / ${m.output_price:g} per million"
            if m.input_price is not None and m.output_price is not None
            else ""
        )
        common.say(f"  {m.full_name:<48} {window:>6}  {price}")
    if problem:
        common.say(f"! {problem}")
