"""Declare `sakti bench`: commands that check sakti itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from sakti.actions.scope import Scope
from sakti.actions.spec import UPKEEP, Group, action, arg, flag, option
from sakti.actions.values import USAGE, Refused
from sakti.cli import common
from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.bench import golden as golden_check
    from sakti.bench import memory_bench, script, talks
    from sakti.bench import replay as replaying
    from sakti.bench import retrieval as retrieval_bench
    from sakti.bench import scale as scale_bench
    from sakti.bench import tasks as tasks_bench
    from sakti.bench import tui as tui_bench
    from sakti.bench.repair import catalog
    from sakti.cli import loop
    from sakti.cli import repair as repair_command
    from sakti.core import tokens
    from sakti.memory import failpoints
    from sakti.providers import registry

ABOUT = "Check sakti itself and the models it uses. Exit 0: passed, 1: failed, 2: wrong usage or nothing found."
GROUP = Group("bench", ABOUT, UPKEEP)


@action(arg("paths", "Files or folders of vectors.", metavar="PATH", kind="path", many=True), shell="bench golden")
async def golden(scope: Scope, paths: list[Path]) -> None:
    """Check pure functions and the task graph against test vectors."""
    found = [f for f in golden_check.files(paths) if golden_check.cases(f)]
    if not found:
        raise Refused("no vectors found there; they are JSON files with a list of cases.", code=USAGE)
    report = loop.run(golden_check.check(found))
    if scope.json:
        common.say_json(
            {
                "passed": report.passed,
                "total": report.total,
                "functions": [to_builtins(f) for f in report.functions],
                "unknown": report.unknown,
            }
        )
    else:
        for f in report.functions:
            failed = f"   failed: {', '.join(f.failed_ids)}" if f.failed_ids else ""
            common.say(f"{f.file:<26} {f.fn:<34} {f.passed:>4} / {f.total}{failed}")
        for name in report.unknown:
            common.say(f"unknown: {name}")
        common.say(f"{report.passed} of {report.total} passed")
    raise SystemExit(common.OK if report.ok else common.FAILED)


@action(
    arg("paths", "Recorded conversations.", metavar="FILE", kind="path", many=True, default=None),
    option("--seeds", metavar="A-B", help="Generated conversations."),
    option("--observer-delay", kind="whole", low=0, metavar="N", help="Model calls that one observation takes."),
    option("--failure-rate", kind="number", low=0, high=1, metavar="P", help="Observations that fail."),
    flag("--incompressible", help="The Reflector condenses nothing."),
    option("--kill-at", default="", metavar="NAME", help="Kill the process at this failpoint and restart."),
    option("--history", kind="whole", low=0, default=0, metavar="N", help="Messages already in the thread."),
    shell="bench replay",
)
async def replay(
    scope: Scope,
    paths: list[Path],
    seeds: str | None,
    observer_delay: int | None,
    failure_rate: float | None,
    incompressible: bool,
    kill_at: str,
    history: int,
) -> None:
    """Replay conversations against the memory engine and check its invariants at every step."""
    if kill_at and kill_at not in failpoints.NAMES:
        raise Refused(f"there is no failpoint {kill_at!r}; there are {', '.join(failpoints.NAMES)}.", code=USAGE)
    if missing := [str(p) for p in paths if not p.is_file()]:
        raise Refused(f"there is no file {', '.join(missing)}.", code=USAGE)
    scripts = [script.load(p) for p in paths]
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
        runs.append(loop.run(replaying.replay(changed, counter, kill_at=kill_at, history_messages=history)))
        if not scope.json:
            _say_run(runs[-1].as_json())
    violations = sum(len(r.violations) for r in runs)
    if scope.json:
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


@action(
    option("--data", kind="path", required=True, metavar="DIR", help="Folder of messages and queries."),
    option("--half", default="open", metavar="NAME", help="Which part of the data."),
    option("--among", kind="whole", default=0, low=0, metavar="N", help="Newer messages that each database also has."),
    shell="bench retrieval",
)
async def retrieval(scope: Scope, data: Path, half: str, among: int) -> None:
    """Measure search with questions whose answers are known."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        say = None if scope.json else _say_set
        found = loop.run(retrieval_bench.run(data, half, Path(folder), say, among=among))
    if scope.json:
        common.say_json(found)
    if not found["rows"]:
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


@action(
    option("--messages", name="sizes", kind="whole", low=1, many=True, required=True, metavar="N",
           help="Messages in the store; may be repeated."),
    option("--texts", choices=("real", "generated"), default="real",
           help="Code, diffs, prose and logs of this Python, or generated words."),
    shell="bench scale",
)  # fmt: skip
async def scale(scope: Scope, sizes: list[int], texts: str) -> None:
    """Measure appending and searching in a store of many messages."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = loop.run(scale_bench.run(sizes, Path(folder), texts=texts))
    if scope.json:
        common.say_json(found)
        return
    for size in found["sizes"]:
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


@action(
    arg("sizes", "Number of tasks; may be repeated (default: 1000, 10000 and 50000).",
        metavar="TASKS", kind="whole", low=10, many=True,
        default=None),
    shell="bench tasks",
)  # fmt: skip
async def tasks(scope: Scope, sizes: list[int]) -> None:
    """Measure the task graph, with two dependencies per task."""
    measured = loop.run(tasks_bench.run(sizes or tasks_bench.SIZES))
    if scope.json:
        common.say_json({"sizes": measured})
        return
    for size in measured:
        figures = "  ".join(f"{name} {v['p50']:.1f} / {v['p95']:.1f}" for name, v in size["cpu_ms"].items())
        common.say(
            f"{size['tasks']:>7} tasks {size['dependencies']:>7} dependencies  {figures}"
            f"  whole `sakti tasks ready` {size['process_ms']['ready']:.0f}"
        )
    common.say("CPU milliseconds in process, p50 / p95; the whole process in wall milliseconds")


@action(
    option("--sessions", kind="whole", low=1, high=500, default=20, metavar="N", help="Generated sessions."),
    option("-m", "--model", metavar="NAME", help="A model that observes as well; it is called."),
    shell="bench memory",
)
async def memory(scope: Scope, sessions: int, model: str | None) -> None:
    """Measure what memory still knows after many generations, with facts planted in coding sessions."""
    measured = loop.run(_remembered(sessions, model))
    if scope.json:
        common.say_json({"observers": measured})
        return
    for row in measured:
        common.say(f"{row['name']:<28} retention {row['retention']:>6.1%}  compression ×{row['compression']:.1f}")
        common.say(f"   {row['contradicted']:.1%} contradicted, {row['wrongly_marked']:.1%} wrongly marked")
        for category, found in row["categories"].items():
            common.say(f"   {category:<10} " + "  ".join(f"{k} {v:>4}" for k, v in found.items()))
    common.say("retention: answers in what the model sees; compression: tokens that one token of the log stands for")
    common.say(
        "contradicted: replaced facts that stand unmarked beside the new ones; wrongly marked: of those that hold"
    )


async def _remembered(sessions: int, model: str | None) -> list[dict[str, Any]]:
    if model is None:
        return await memory_bench.run(range(sessions), tokens.O200k())
    settings = common.options(model=model, interactive=False).config.providers
    full_name = await registry.complete(model, os.environ, settings)
    provider = registry.create(full_name, settings, os.environ)
    try:
        return await memory_bench.run(range(sessions), tokens.O200k(), (provider, full_name.partition("/")[2]))
    finally:
        await provider.close()


@action(shell="bench tui")
async def tui(scope: Scope) -> None:
    """Measure the terminal interface in a pseudo-terminal, with a built-in model and a thread of 10,000 messages."""
    found = loop.run(tui_bench.run())
    if scope.json:
        common.say_json(found)
        return
    echo, scroll = found["echo_ms"], found["scroll_ms"]
    for name, value in (
        ("launch to prompt", f"{found['paint_s']:.2f} s"),
        ("Enter to first token", f"{found['first_token_ms']:.0f} ms"),
        ("20,000 tokens", f"{found['tokens_20k_s']:.1f} s, {found['tokens_20k_cpu_s']:.1f} s CPU"),
        ("key to letter at 200 tokens/s", f"{echo['p50']:.0f} ms median, {echo['max']:.0f} ms at worst"),
        ("10,000 messages to their end", f"{found['open_10k_s']:.2f} s"),
        (
            "a page up in them",
            f"{scroll['p50']:.0f} ms CPU median, {scroll['p95']:.0f} at the 95th, {scroll['max']:.0f} at worst",
        ),
        ("memory, idle and after them", f"{found['idle_mb']:.0f} MB, {found['after_mb']:.0f} MB"),
    ):
        common.say(f"{name:<30} {value}")
    common.say("wall time unless it says CPU; nothing else should run on the machine meanwhile")


@action(
    option("-m", "--model", metavar="NAME", help="Model that repairs (default: as `sakti run` chooses)."),
    option("--only", many=True, metavar="NAME", help="One repair; may be repeated.", offers="repairs"),
    flag("--list", name="listed", help="List the repairs and run none."),
    option("--max-steps", kind="whole", low=1, default=60, metavar="N",
        help="Maximum number of model calls per repair."),
    option("--max-seconds", kind="whole", low=1, default=900, metavar="N", help="Maximum time per repair."),
    option("--log", kind="path", metavar="FILE", help="Results so far; in sakti's state folder if left out."),
    flag("--again", help="Repeat those already in the log."),
    option("-o", name="overrides", many=True, metavar="KEY=VALUE", offers="settings",
           help="A setting, as agent.max_usd=1 for a limit of price."),
    shell="bench repair",
)  # fmt: skip
async def repair(
    scope: Scope,
    model: str | None,
    only: list[str],
    listed: bool,
    max_steps: int,
    max_seconds: int,
    log: Path | None,
    again: bool,
    overrides: list[str],
) -> None:
    """Measure how many of 20 small real repairs a model solves, in Python, JavaScript, C, Java and Bash.

    Each runs as `sakti run` does, in a fresh copy of its workspace with approval `auto`: the model's commands run on
    this machine, as you, without asking (what cannot be undone is refused; ordinary network clients fail). Tests
    that the model never saw judge the copy afterwards. What the log has is not run again, so a run that was broken off
    goes on where it was. Exit 0: all that could be run are solved; 1: one is not, or the model failed; 2: none could
    be run; 5: no model.
    """
    repairs = catalog.chosen(only)
    if listed:
        repair_command.say_list(repairs, scope.json)
        return
    raise SystemExit(repair_command.run(repairs, model, overrides, max_steps, max_seconds, log, again, scope.json))
