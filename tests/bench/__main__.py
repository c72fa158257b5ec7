"""Run the benchmarks from a checkout: `python -m tests.bench NAME`."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer
from msgspec import to_builtins
from msgspec.structs import replace

from sakti.actions.values import USAGE, Refused
from sakti.cli import common
from sakti.core import tokens
from sakti.core.streams import checked_output, prepare_streams
from sakti.memory import state
from sakti.providers import registry
from tests.bench import golden as golden_check
from tests.bench import kills as killing
from tests.bench import memory_bench, script, talks
from tests.bench import replay as replaying
from tests.bench import retrieval as retrieval_bench
from tests.bench import scale as scale_bench
from tests.bench import tasks as tasks_bench
from tests.bench import tui as tui_bench
from tests.bench.longmemeval import command as longmemeval_command
from tests.bench.repair import catalog, report

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]

app = typer.Typer(
    help="Check sakti and the models it uses. Exit 0: passed, 1: failed, 2: wrong usage or nothing found.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark that `arguments` name; ends in SystemExit with the exit code."""
    with common.plain_errors():
        app(arguments, prog_name="python -m tests.bench")


@app.command()
def kills(step: Annotated[int, typer.Option(help="Play every N-th point only.", min=1)] = 1) -> None:
    """Kill a turn with child threads and a background command at every write and event."""
    wrong = 0
    for point, problem in killing.run_all(step):
        wrong += bool(problem)
        typer.echo(f"{point}: {problem or 'ok'}")
    raise typer.Exit(1 if wrong else 0)


@app.command()
def golden(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Files or folders of vectors.")],
    json: AsJson = False,
) -> None:
    """Check pure functions and the task graph against test vectors."""
    files = [f for f in golden_check.files(paths) if golden_check.cases(f)]
    if not files:
        raise Refused("no vectors found there; they are JSON files with a list of cases.", code=USAGE)
    checked = asyncio.run(golden_check.check(files))
    if json:
        common.say_json(
            {
                "passed": checked.passed,
                "total": checked.total,
                "functions": [to_builtins(f) for f in checked.functions],
                "unknown": checked.unknown,
            }
        )
    else:
        for f in checked.functions:
            failed = f"   failed: {', '.join(f.failed_ids)}" if f.failed_ids else ""
            common.say(f"{f.file:<26} {f.fn:<34} {f.passed:>4} / {f.total}{failed}")
        for name in checked.unknown:
            common.say(f"unknown: {name}")
        common.say(f"{checked.passed} of {checked.total} passed")
    raise SystemExit(common.OK if checked.ok else common.FAILED)


@app.command()
def replay(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Recorded conversations.")] = None,
    seeds: Annotated[str, typer.Option(metavar="A-B", help="Generated conversations.")] = "",
    observer_delay: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Model calls that one observation takes.")
    ] = None,
    failure_rate: Annotated[
        float | None, typer.Option(min=0, max=1, metavar="P", help="Observations that fail.")
    ] = None,
    incompressible: Annotated[bool, typer.Option("--incompressible", help="The Reflector condenses nothing.")] = False,
    kill_at: Annotated[str, typer.Option(metavar="NAME", help="Kill the process at this failpoint and restart.")] = "",
    history: Annotated[int, typer.Option(min=0, metavar="N", help="Messages already in the thread.")] = 0,
    json: AsJson = False,
) -> None:
    """Replay conversations against the memory engine and check its invariants at every step."""
    if kill_at and kill_at not in state.FAILPOINTS:
        raise Refused(f"there is no failpoint {kill_at!r}; there are {', '.join(state.FAILPOINTS)}.", code=USAGE)
    if missing := [str(p) for p in paths or () if not p.is_file()]:
        raise Refused(f"there is no file {', '.join(missing)}.", code=USAGE)
    scripts = [script.load(p) for p in paths or ()]
    try:
        scripts += [talks.generate(seed) for seed in (script.parse_seeds(seeds) if seeds else ())]
    except ValueError as e:
        raise Refused(f"--seeds takes A-B, for example 0-99, not {seeds!r}.", code=USAGE) from e
    if not scripts:
        raise Refused("name a recorded conversation, or --seeds A-B.", code=USAGE)
    counter = tokens.O200k()
    runs: list[replaying.Run] = []
    for one in scripts:
        changed = replace(
            one,
            delay=one.delay if observer_delay is None else observer_delay,
            fail_rate=one.fail_rate if failure_rate is None else failure_rate,
            incompressible=one.incompressible or incompressible,
        )
        runs.append(asyncio.run(replaying.replay(changed, counter, kill_at=kill_at, history_messages=history)))
        if not json:
            _say_run(runs[-1].as_json())
    violations = sum(len(r.violations) for r in runs)
    if json:
        common.say_json({"violations": violations, "runs": [r.as_json() for r in runs]})
    else:
        common.say(f"{violations} violations in {len(runs)} runs (step times: CPU of the step and its database)")
    raise SystemExit(common.FAILED if violations else common.OK)


def _say_run(run: dict[str, Any]) -> None:
    cpu = run["step_cpu_ms"]
    common.say(
        f"{run['name']:<28} {run['turns']:>4} turns {run['steps']:>5} steps {run['conversation_tokens']:>8} tokens"
        f"  Observer ×{run['observer_input_ratio']:.2f}  cached {run['cached_share']:.0%}"
        f"  activations {run['activations']}  generations {run['generations']}  waited {run['blocked_steps']}"
        f"  step {cpu['p50']:.2f} / {cpu['p95']:.2f} / {cpu['max']:.1f} ms  violations {len(run['violations'])}"
    )
    for v in run["violations"][:10]:
        common.say(f"   invariant {v['invariant']}, turn {v['turn']}, step {v['step']}: {v['message']}")


@app.command()
def retrieval(
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of messages and queries.")],
    half: Annotated[str, typer.Option(metavar="NAME", help="Which part of the data.")] = "open",
    among: Annotated[int, typer.Option(min=0, metavar="N", help="Newer messages that each database also has.")] = 0,
    json: AsJson = False,
) -> None:
    """Measure search with questions whose answers are known."""
    with tempfile.TemporaryDirectory() as folder:
        say = None if json else _say_set
        figures = asyncio.run(retrieval_bench.run(data, half, Path(folder), say, among=among))
    if json:
        common.say_json(figures)
    if not figures["rows"]:
        raise Refused(f"there are no messages and queries of {half!r} in {data}.", code=USAGE)


def _say_set(row: dict[str, Any]) -> None:
    shown = "  ".join(
        f"{k} {100 * row[k]:5.1f}" + (f" [{100 * low:.1f}, {100 * high:.1f}]" if (low, high) != (0.0, 0.0) else "")
        for k in ("R@1", "R@5", "R@10", "MRR", "nDCG")
        if k in row
        for low, high in (row.get(f"{k}_95", (0.0, 0.0)),)
    )
    common.say(
        f"{row['dataset']:<16} {row['n']:>5} questions  {shown}  {row['p50_ms']:.1f} / {row['p95_ms']:.1f} ms wall"
        f"  {row['cpu_p50_ms']:.1f} / {row['cpu_p95_ms']:.1f} ms CPU  errors {row['errors']}"
    )


@app.command()
def scale(
    sizes: Annotated[
        list[int],
        typer.Option("--messages", min=1, metavar="N", help="Messages in the store; may be repeated."),
    ],
    texts: Annotated[
        Literal["real", "generated"],
        typer.Option(help="Code, diffs, prose and logs of this Python, or generated words."),
    ] = "real",
    json: AsJson = False,
) -> None:
    """Measure appending and searching in a store of many messages."""
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(scale_bench.run(sizes, Path(folder), texts=texts))
    if json:
        common.say_json(figures)
        return
    for size in figures["sizes"]:
        append = size["append_ms"]
        common.say(
            f"{size['messages']:,} messages: built in {size['build_s']} s, {size['mb']} MB"
            f" ({size['mb'] / (size['text_mb'] or 1):.1f} × the text),"
            f" append {append['p50']:.2f} / {append['p95']:.2f} ms wall"
        )
        for kind, cpu in size["search_cpu_ms"].items():
            first = size["first_page_cpu_ms"][kind]
            common.say(
                f"   {kind:<12} {cpu['p50']:>8.1f} / {cpu['p95']:.1f} ms CPU (median / p95),"
                f" first page {first['p50']:.1f} / {first['p95']:.1f}"
            )
        keys, lag = size["key_cpu_ms"], size["loop_lag_ms"]
        common.say(
            f"   each key     {keys['p50']:>8.1f} / {keys['p95']:.1f} ms CPU,"
            f" the event loop is late by {lag['p50']:.1f} / {lag['p95']:.1f} ms wall"
        )


@app.command()
def tasks(
    sizes: Annotated[
        list[int] | None,
        typer.Argument(min=10, metavar="TASKS", help="Number of tasks (default: 1000, 10000 and 50000)."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure the task graph, with two dependencies per task."""
    measured = asyncio.run(tasks_bench.run(sizes or tasks_bench.SIZES))
    if json:
        common.say_json({"sizes": measured})
        return
    for size in measured:
        figures = "  ".join(f"{name} {v['p50']:.1f} / {v['p95']:.1f}" for name, v in size["cpu_ms"].items())
        common.say(
            f"{size['tasks']:>7} tasks {size['dependencies']:>7} dependencies  {figures}"
            f"  whole `sakti tasks ready` {size['process_ms']['ready']:.0f}"
        )
    common.say("CPU milliseconds in process, p50 / p95; the whole process in wall milliseconds")


@app.command()
def memory(
    sessions: Annotated[int, typer.Option(min=1, max=500, metavar="N", help="Generated sessions.")] = 20,
    model: Annotated[
        str | None, typer.Option("-m", "--model", metavar="NAME", help="A model that observes as well; it is called.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure what memory still knows after many generations, with facts planted in coding sessions."""
    measured = asyncio.run(_measure_memory(sessions, model))
    if json:
        common.say_json({"observers": measured})
        return
    for row in measured:
        common.say(f"{row['name']:<28} retention {row['retention']:>6.1%}  compression ×{row['compression']:.1f}")
        common.say(f"   {row['contradicted']:.1%} contradicted, {row['wrongly_marked']:.1%} wrongly marked")
        for category, counts in row["categories"].items():
            common.say(f"   {category:<10} " + "  ".join(f"{k} {v:>4}" for k, v in counts.items()))
    common.say("retention: answers in what the model sees; compression: tokens that one token of the log stands for")
    common.say(
        "contradicted: replaced facts that stand unmarked beside the new ones; wrongly marked: of those that hold"
    )


async def _measure_memory(sessions: int, model: str | None) -> list[dict[str, Any]]:
    if model is None:
        return await memory_bench.run(range(sessions), tokens.O200k())
    settings = common.make_options(model=model, trusted=False).config.providers
    full_name = await registry.complete_name(model, os.environ, settings)
    provider = registry.create_provider(full_name, settings, os.environ)
    try:
        return await memory_bench.run(range(sessions), tokens.O200k(), (provider, full_name.partition("/")[2]))
    finally:
        await provider.close()


app.command()(longmemeval_command.longmemeval)


@app.command()
def tui(json: AsJson = False) -> None:
    """Measure the terminal interface in a pseudo-terminal, with a built-in model and a thread of 10,000 messages."""
    figures = asyncio.run(tui_bench.run())
    if json:
        common.say_json(figures)
        return
    echo, scroll = figures["echo_ms"], figures["scroll_ms"]
    for name, value in (
        ("launch to prompt", f"{figures['paint_s']:.2f} s"),
        ("Enter to first token", f"{figures['first_token_ms']:.0f} ms"),
        ("20,000 tokens", f"{figures['tokens_20k_s']:.1f} s, {figures['tokens_20k_cpu_s']:.1f} s CPU"),
        ("key to letter at 200 tokens/s", f"{echo['p50']:.0f} ms median, {echo['max']:.0f} ms at worst"),
        ("10,000 messages to their end", f"{figures['open_10k_s']:.2f} s"),
        (
            "a page up in them",
            f"{scroll['p50']:.0f} ms CPU median, {scroll['p95']:.0f} at the 95th, {scroll['max']:.0f} at worst",
        ),
        ("memory, idle and after them", f"{figures['idle_mb']:.0f} MB, {figures['after_mb']:.0f} MB"),
    ):
        common.say(f"{name:<30} {value}")
    common.say("wall time unless it says CPU; nothing else should run on the machine meanwhile")


@app.command()
def repair(
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", metavar="NAME", help="Model that repairs (default: as `sakti run` chooses)."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="One repair; may be repeated.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the repairs and run none.")] = False,
    max_steps: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of model calls per repair.")] = 60,
    max_seconds: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum time per repair.")] = 900,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Results so far; in sakti's state folder if left out.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Repeat those already in the log.")] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("-o", metavar="KEY=VALUE", help="A setting, as agent.max_usd=1 for a limit of price."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure how many of 20 small real repairs a model solves, in Python, JavaScript, C, Java and Bash.

    Each runs as `sakti run` does, in a fresh copy of its workspace with approval `auto`: the model's commands run on
    this machine, as you, without asking (what cannot be undone is refused; ordinary network clients fail). Tests
    that the model never saw judge the copy afterwards. What the log has is not run again, so a run that was broken off
    goes on where it was. Exit 0: all that could be run are solved; 1: one is not, or the model failed; 2: none could
    be run; 5: no model.
    """
    repairs = catalog.chosen(only or ())
    if listed:
        report.say_list(repairs, json)
        return
    raise SystemExit(report.run(repairs, model, overrides or (), max_steps, max_seconds, log, again, json))


if __name__ == "__main__":
    prepare_streams()
    with checked_output():
        main()
