"""Declare `/model` and `sakti models`: which model would answer, and why; which others there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg
from sakti.actions.values import Open, Rows, Value, one
from sakti.core.errors import NoModelError, SaktiError
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.core.types import ModelInfo
    from sakti.providers.registry import SelectedModel

with lazy_imports:
    from sakti.providers import registry

NONE = "set ANTHROPIC_API_KEY or OPENAI_API_KEY, start a local server, or run `sakti local install`."


@action(shell="models", needs="loop")
async def models(scope: Scope) -> Value:
    """Show the model that would be used, why, and what its provider offers."""
    config = scope.config
    choice = await registry.select(flag=None, config_model=config.model, env=scope.env, settings=config.providers)
    if choice is None:
        if not scope.json:
            raise NoModelError(NONE)
        return Rows((), json=_describe_choice(None, ()), exit=5)
    provider = registry.create(choice.model, config.providers, scope.env)
    listed: list[ModelInfo] = []
    problem = ""
    try:
        listed = list(await provider.models())
    except SaktiError as e:
        problem = f"! {e.message}"
    finally:
        await provider.close()
    head = f"{choice.model}  ({choice.reason})"
    return Rows(tuple(map(_line, listed)), empty=problem, head=head, json=_describe_choice(choice, listed))


def _describe_choice(choice: SelectedModel | None, listed: Sequence[ModelInfo]) -> dict[str, object]:
    names = ("context_window", "input_price", "output_price")
    return {
        "model": choice.model if choice else None,
        "reason": choice.reason if choice else None,
        "models": [{"name": m.full_name, **{n: getattr(m, n) for n in names}} for m in listed],
    }


def _line(m: ModelInfo) -> str:
    window = f"{m.context_window // 1000}k" if m.context_window else "?"
    known = m.input_price is not None and m.output_price is not None
    price = f"${m.input_price:g} / ${m.output_price:g} per million" if known else ""
    return f"  {m.full_name:<48} {window:>6}  {price}"


@action(arg("name", default=""), chat="model", hint="[PROVIDER/NAME]", needs="session",
        after_turn="change the model")  # fmt: skip
async def model(scope: Scope, name: str) -> Value | None:
    """Choose the model."""
    session = scope.session
    if name:
        await session.set_model(name)
        return None  # an event says it

    async def list_rows() -> Value:
        known = await session.views.models()
        now = session.workspace.models.selection.model if session.workspace.models.selection else None

        async def use(number: int) -> None:
            await session.set_model(one(known, number).full_name)

        return Rows(
            tuple(map(_line, known)),
            "models",
            tuple(known),
            head=f"The model is {now or 'none'}; /model PROVIDER/NAME changes it.",
            what="chooses a model",
            pick=use,
        )

    return Open("models", instead=list_rows)
