"""Show `python -m tests.bench repair` to people and programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from sakti.agent.session.session import Options
from sakti.cli import common
from sakti.core import resources
from sakti.core.errors import NoModelError
from sakti.core.text import sanitize_text, to_one_line
from sakti.core.types import Json
from sakti.providers import registry
from tests.bench.repair import play as repair_play
from tests.bench.repair import results as repair_results
from tests.bench.repair import run as repair_run
from tests.bench.repair.catalog import Repair
from tests.bench.repair.results import Result

T = TypeVar("T")
HEADER = (
    f"{'repair':<22} {'outcome':<9} {'tests':>7} {'steps':>6} {'tokens in':>10} {'out':>7} {'price':>9} {'time':>8}"
)


def say_list(repairs: Sequence[Repair], json_: bool) -> None:
    rows = [{"name": r.name, "language": r.language, "level": r.level, "title": r.title} for r in repairs]
    if json_:
        common.say_json({"repairs": rows})
        return
    for row in rows:
        common.say(f"{row['name']:<22} {row['language']:<11} {row['level']}  {row['title']}")
    common.say("level 1: found by reading; 2: by reproducing; 3: in several places, or far from the symptom")


def run(
    repairs: Sequence[Repair],
    model: str | None,
    overrides: Sequence[str],
    steps: int,
    seconds: int,
    log: Path | None,
    again: bool,
    json_: bool,
) -> int:
    """Run `repairs` and say what came of them; the exit code. Raises `NoModelError`."""
    options = common.make_options(overrides=overrides, model=model, trusted=False)
    common.log_to_file()
    full_name = asyncio.run(_model(options))
    options = replace(options, model_flag=full_name)
    path = log or resources.state_home() / "repairs.jsonl"
    out = sys.stderr if json_ else sys.stdout

    def tell(result: Result) -> None:
        print(sanitize_text(_row(result)), file=out, flush=True)

    print(f"{sanitize_text(full_name)}, log {sanitize_text(str(path))}\n{HEADER}", file=out, flush=True)
    limits, results_so_far = repair_play.Limits(steps, seconds), repair_results.Log(path, full_name)
    results = _run(
        repair_run.run(repairs, repair_play.Contestant(options), limits, results_so_far, again=again, tell=tell)
    )
    total = repair_results.summary(full_name, results, len(repairs))
    if json_:
        common.say_json(total)
    else:
        _say_total(total)
    if not total["run"]:
        return common.USAGE
    return common.OK if total["solved"] == total["run"] and not total["not_reached"] else common.FAILED


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine so that a TERM ends it as Ctrl-C does: commands stopped, the copy removed."""

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _model(options: Options) -> str:
    """Return the full name of the model that answers: results are kept by it. Raises `NoModelError`."""
    config = options.config
    choice = await registry.select_model(
        flag=options.model_flag, config_model=config.model, env=os.environ, settings=config.providers
    )
    if choice is None:
        raise NoModelError("Name one with --model, or set a key as for `sakti run`.")
    return choice.model


def _row(result: Result) -> str:
    if result.outcome == "not run":
        return f"{result.name:<22} not run: {result.reason}"
    price = "?" if result.cost_usd is None else f"${result.cost_usd:.3f}"
    figures = (
        f"{result.name:<22} {result.outcome:<9} {result.passed:>3}/{result.tests:<3} {result.steps:>6}"
        f" {result.input_tokens:>10,} {result.output_tokens:>7,} {price:>9} {result.seconds:>6.0f} s"
    )
    ended = f" ({_ENDS[result.status]})" if result.status in _ENDS else ""
    return f"{figures}{'  from the log' if result.logged else ''}  {to_one_line(result.reason, 200)}{ended}".rstrip()


_ENDS = {
    "limit": "at a limit",
    "time": "at the limit of time",
    "length": "answer cut",
    "repetition": "repeated calls",
}


def _say_total(total: Json) -> None:
    price = "price not known" if total["cost_usd"] is None else f"${total['cost_usd']:.2f}"
    common.say(
        f"{total['solved']} of {total['run']} solved, {total['steps']} steps, {total['input_tokens']:,} tokens in"
        f" ({total['cached_tokens']:,} cached), {total['output_tokens']:,} out, {price}, {total['seconds']:,.0f} s wall"
    )
    if total["not_run"]:
        common.say(f"{total['not_run']} not run: a tool chain is missing; not counted")
    if total["errors"] or total["not_reached"]:
        more = f", {total['not_reached']} not reached" if total["not_reached"] else ""
        common.say(f"{total['errors']} ended in an error of the model{more}; the same command retries them")
