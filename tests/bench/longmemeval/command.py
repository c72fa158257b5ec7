"""Command line of `python -m tests.bench longmemeval`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sakti.actions.values import USAGE, Refused
from sakti.cli import common
from sakti.core.config import MemorySettings, ProviderSettings
from sakti.core.config import load as load_config
from sakti.core.text import sanitize_text
from sakti.core.tokens import O200k
from sakti.core.types import Json
from sakti.providers import registry
from tests.bench.longmemeval import formats, records, tables
from tests.bench.longmemeval import run as running
from tests.bench.longmemeval.answers import MeteredProvider
from tests.bench.longmemeval.formats import Format
from tests.bench.longmemeval.records import RunLog
from tests.bench.longmemeval.run import EXTRACTIVE, OFFLINE, RunPlan


def longmemeval(
    context: typer.Context,
    data: Annotated[
        Path | None, typer.Option(metavar="PATH", help="File of LongMemEval or LoCoMo; none is shipped.")
    ] = None,
    format: Annotated[Format | None, typer.Option(help="Its format; by default detected.")] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="extractive (default), full-context, search-only or a model; repeatable."),
    ] = None,
    answer: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Model that answers (default: the arm's model, if any).")
    ] = None,
    judge: Annotated[str | None, typer.Option(metavar="MODEL", help="Model that judges the answers.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first questions.")] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Of intervals, pairs and planted sessions.")] = 1,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="One record per question and arm.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Skip what the log has.")] = False,
    score: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compute the tables of a log; nothing is measured.")
    ] = None,
    generations: Annotated[
        int, typer.Option(min=0, max=12, metavar="N", help="Retention after 1 to N generations of planted sessions.")
    ] = 0,
    overrides: Annotated[
        list[str] | None,
        typer.Option("-o", metavar="KEY=VALUE", help="A setting, as memory.observation.message_tokens=8000."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Measure memory on conversations with questions: evidence recall without a model, and answers with one.

    `sakti help benchmarks` says where the data sets come from. Models are called, and cost money, only if an
    arm, --answer or --judge names one.
    """
    if score is not None:
        _refuse_others(context, ("score", "json"))
        _show(_score(score), json)
        return
    if not all(name is None or name.strip() for name in (*(arm or ()), answer, judge)):
        raise Refused("--arm, --answer and --judge take a name, not an empty text.", code=USAGE)
    if data is None:
        raise Refused("name a file with --data, or a log with --score.", code=USAGE)
    if resume and log is None:
        raise Refused("--resume needs the log to continue: --log FILE.", code=USAGE)
    plan = RunPlan(
        formats.load(data, format, limit), tuple(dict.fromkeys(arm or (EXTRACTIVE,))), answer, judge,
        _memory_settings(overrides or ()), seed, generations,
    )  # fmt: skip
    if not any(c.questions for c in plan.data.conversations):
        raise Refused(f"there are no questions in {data}.", code=USAGE)
    if judge and not answer and all(a in OFFLINE for a in plan.arms):
        raise Refused("--judge needs answers: name a model with --answer, or as an --arm.", code=USAGE)
    _show(asyncio.run(_run(plan, RunLog(log, resume=resume), overrides or ())), json)


def _refuse_others(context: typer.Context, names: Sequence[str]) -> None:
    """Raise Refused if the command line has options of other parameters than `names`."""
    for param in context.command.params:
        source = context.get_parameter_source(param.name or "")
        if param.name not in names and source is not None and source.name == "COMMANDLINE":
            raise Refused(f"--score does not take {param.opts[0]}: it shows a log as it was measured.", code=USAGE)


def _score(path: Path) -> Json:
    logged = running.newest(records.read(path))
    return tables.summarize(logged, next(r["seed"] for r in logged if r["kind"] == "run"))


def _memory_settings(overrides: Sequence[str]) -> MemorySettings:
    """Return the default settings with `overrides`: the user's own settings must not change a measurement."""
    return load_config(overrides=overrides).config.memory


async def _run(plan: RunPlan, log: RunLog, overrides: Sequence[str]) -> Json:
    named = {name for name in (*plan.arms, plan.answer, plan.judge) if name and name not in OFFLINE}
    settings = common.make_options(overrides=overrides, trusted=False).config.providers if named else {}
    full_names = {name: await registry.complete_name(name, os.environ, settings) for name in named}
    found = await running.run(
        plan, log, O200k(), lambda name: _create(full_names[name], settings), lambda text: _tell(text)
    )
    return tables.summarize(found, plan.seed)


def _create(full_name: str, settings: dict[str, ProviderSettings]) -> MeteredProvider:
    return MeteredProvider(registry.create_provider(full_name, settings, os.environ), full_name.partition("/")[2])


def _tell(text: str) -> None:
    print(sanitize_text(text), file=sys.stderr, flush=True)


def _show(figures: Json, json: bool) -> None:
    if json:
        common.say_json(figures)
    else:
        tables.say(figures)
