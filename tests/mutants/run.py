"""Changes memory in one place after another, and looks whether the replay or a test notices.

    python tests/mutants/run.py                 all of the table
    python tests/mutants/run.py --sample 6 --seed 1
    python tests/mutants/run.py --only ID ID    --list    --json

    nice python tests/mutants/run.py --jobs 2 --log FILE     goes on where it was interrupted

The package is copied, changed there, and tried against what the table names first, then against the unit tests of its
part and the replay's seeds, until one of them notices. Exit 1: a change that nobody notices, or one that no longer fits
the code. All of the table takes an hour or two; `--scope unit` and `--scope replay` say what one of them notices alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import queue
import random
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutants import table  # noqa: E402
from tests.mutants.apply import Mutant, NotFound, mutated, path_of  # noqa: E402

TESTS_COPIED = ("bench", "unit", "fakes", "golden_sample", "talks", "mutants", "crash")
COPIED = ("sakti", *(f"tests/{name}" for name in TESTS_COPIED))
LINKED = ("prompts", "themes")
SEEDS = ("81", "45", "16", "9", "53", "13", "85", "57", "69", "1", "0")  # that find nothing where nothing is changed
TIMEOUT = 300  # seconds: a change may make work that never ends
_UNIT = "tests/unit/memory/"
_MOVES = tuple(
    f"{_UNIT}test_{n}.py" for n in ("state", "deciding", "undo_reflection", "two_windows", "engine", "backlog")
)
QUICK = (f"{_UNIT}test_moves.py", f"{_UNIT}test_window.py", "tests/unit/store/test_integrity.py")  # seconds together
_ROUND = tuple(
    f"{_UNIT}test_{n}.py" for n in ("corrections", "two_sessions", "fork", "titles", "zones", "read_only", "elsewhere")
)
_NUMBERS = ("tests/unit/test_golden.py", "tests/unit/bench/test_oracle.py", f"{_UNIT}test_safe_prefix.py")
_PAGES = tuple(f"{_UNIT}test_{n}.py" for n in ("pages", "page_settings", "page_schema"))
_TEXTS = tuple(f"{_UNIT}test_{n}.py" for n in ("observers", "extractive", "faithfulness", "prompts", "modes"))
_WORDS = (f"{_UNIT}test_users_words.py", f"{_UNIT}test_faithfulness.py")
_MARKS = tuple(f"{_UNIT}test_{n}.py" for n in ("superseding", "marking", "conversations", "talks"))
_SHARED = (f"{_UNIT}test_shared.py", f"{_UNIT}test_elsewhere.py")
_SEARCH = tuple(f"tests/unit/store/test_{n}.py" for n in ("search", "search_queries", "search_upkeep", "database"))
# The unit tests of a part, the most telling first, by the beginning of a module's name: the first that fits.
TESTS: dict[str, tuple[str, ...]] = {
    "sakti.memory.policy": (*_NUMBERS, *_MOVES, f"{_UNIT}test_figures.py"),
    "sakti.providers.facts": ("tests/unit/test_golden.py",),
    "sakti.memory.recall": _PAGES,
    "sakti.memory.pages": _PAGES,
    "sakti.memory.summaries": (f"{_UNIT}test_levels.py",),
    "sakti.memory.log.parse": (f"{_UNIT}test_parsing.py", *_TEXTS, "tests/unit/test_golden.py"),
    "sakti.memory.log.lines": (
        f"{_UNIT}test_parsing.py",
        *_TEXTS,
        f"{_UNIT}test_corrections.py",
        "tests/unit/test_golden.py",
    ),
    "sakti.memory.log.dates": ("tests/unit/test_golden.py", f"{_UNIT}test_zones.py", *_TEXTS),
    "sakti.memory.context": (f"{_UNIT}test_telling.py", "tests/unit/test_golden.py", *_TEXTS, *_MOVES, *_ROUND),
    "sakti.memory.statements": _MARKS,
    **dict.fromkeys(
        (f"sakti.memory.observe.{n}" for n in ("claims", "speaking", "quoting")), (*_WORDS, *_TEXTS, *_MARKS)
    ),
    "sakti.memory.shared": (*_SHARED, *_PAGES, f"{_UNIT}test_elsewhere.py"),
    "sakti.memory.reflect.quality": (f"{_UNIT}test_reflection_quality.py", *_SHARED, *_MARKS, *_TEXTS, *_ROUND),
    "sakti.memory.reflect.extractive": (*_TEXTS, f"{_UNIT}test_conversations.py"),
    "sakti.memory.observe.faithfulness": (f"{_UNIT}test_faithfulness.py", *_TEXTS),
    "sakti.memory.observe.model": (f"{_UNIT}test_answers.py", *_TEXTS),
    "sakti.memory.observe.extractive": (*_WORDS, *_TEXTS, f"{_UNIT}test_conversations.py"),
    "sakti.memory.observe.transcript": _TEXTS,
    "sakti.memory.reflect.model": _TEXTS,
    "sakti.memory.modes": (f"{_UNIT}test_modes.py", *_TEXTS),
    "sakti.memory.factory": (f"{_UNIT}test_failing_observer.py", f"{_UNIT}test_slow_models.py"),
    "sakti.memory.jobs": (f"{_UNIT}test_boundaries.py", f"{_UNIT}test_slow_models.py", *_MOVES, *_ROUND),
    "sakti.memory.worker": (
        f"{_UNIT}test_observers.py",
        f"{_UNIT}test_reflection_quality.py",
        *_SHARED,
        *_MOVES,
        *_ROUND,
        f"{_UNIT}test_faithfulness.py",
    ),
    "sakti.memory": (*_MOVES, *_ROUND, f"{_UNIT}test_figures.py"),
    "sakti.store.log.replacements": (*_MARKS, *_TEXTS),
    "sakti.store.memory.group_rows": (*_SHARED, *_PAGES, *_MOVES, *_ROUND),
    "sakti.store.search.search": (*_SEARCH, f"{_UNIT}test_corrections.py"),
    "sakti.store.log.lines": (*_PAGES, f"{_UNIT}test_marking.py", *_SHARED, *_ROUND, *_MOVES),
    "sakti.store.memory.records": (*_PAGES, *_MOVES, *_ROUND),
    "sakti.store.leases": ("tests/unit/store/test_leases.py", *_MOVES),
    "sakti.store.log.corrections": (f"{_UNIT}test_corrections.py", f"{_UNIT}test_undo_reflection.py", *_ROUND),
    "sakti.store.memory": (*_MOVES, *_ROUND),
    "sakti.store": (*_MOVES, *_ROUND, *_PAGES, *_SEARCH),
}
# Too long for this, or in the hands of the clock.
SKIPPED = "not runTest and not random_conversations and not any_order and not captured and not nothing_is_invented"

_ages = itertools.count(10, 10)  # seconds


@dataclass(frozen=True)
class Outcome:
    """`state`: killed, alive, or error where the change does not fit the code; `by` what noticed it and how."""

    id: str
    state: str
    by: str = ""
    detail: str = ""
    seconds: float = 0.0


@contextmanager
def copy() -> Iterator[Path]:
    """The package and its tests in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="sakti-mutants-") as folder:
        root = Path(folder)
        ignored = shutil.ignore_patterns("__pycache__", "*.svg")
        for name in COPIED:
            shutil.copytree(ROOT / name, root / name, ignore=ignored)
        for name in LINKED:
            (root / name).symlink_to(ROOT / name)
        for name in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py"):
            shutil.copy(ROOT / name, root / name)
        yield root


def attempt(root: Path, way: Sequence[str]) -> tuple[bool, str]:
    """Whether replays (`replay:SEED…`) or tests notice something; and what."""
    if way[0].startswith("replay:"):
        command = [sys.executable, "-m", "tests.mutants.play", *(w.removeprefix("replay:") for w in way)]
    else:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *way]
        command += ["-k", SKIPPED] if len(way) > 1 else []
    home = root / "home"
    env = {**os.environ, "PYTHONPATH": str(root), "HOME": str(home)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env |= {f"XDG_{n}_HOME": str(home / n.lower()) for n in ("CONFIG", "DATA", "STATE", "CACHE")}
    try:
        done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return True, "does not end"
    if done.returncode in (4, 5):  # pytest found no such file, or no test in it
        raise NotFound(f"there is no {' '.join(way)}")
    lines = [line for line in (done.stdout + done.stderr).strip().split("\n") if line.strip()]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return done.returncode != 0, (failed or lines or [""])[-1][:200]


def try_one(root: Path, mutant: Mutant, scope: str) -> Outcome:
    """Change the copy, see who notices, and change it back."""
    path = path_of(root, mutant)
    source, original = path.read_text("utf-8"), path.stat().st_mtime
    began = time.monotonic()
    try:
        path.write_text(mutated(source, mutant), "utf-8")
        os.utime(path, (original, original + next(_ages)))  # no compiled file of another change is taken for this one
        for way in ways(root, mutant, scope):
            noticed, detail = attempt(root, way)
            if noticed:
                by = way[0] if len(way) == 1 else _named(detail) or way[0]
                return Outcome(mutant.id, "killed", by, detail, round(time.monotonic() - began, 1))
        return Outcome(mutant.id, "alive", seconds=round(time.monotonic() - began, 1))
    except NotFound as e:
        return Outcome(mutant.id, "error", detail=str(e))
    finally:
        path.write_text(source, "utf-8")
        os.utime(path, (original, original))


def _named(detail: str) -> str:
    """What of several tests or seeds it was that noticed something."""
    if detail.startswith(("FAILED ", "ERROR ")):
        return detail.split()[1]
    return f"replay:{detail.split()[1].rstrip(',')}" if detail.startswith("seed ") else ""


def ways(root: Path, mutant: Mutant, scope: str) -> Iterable[Sequence[str]]:
    """What is tried, the most likely first. `scope`: all, named (what the table names), quick, unit, replay."""
    if mutant.by and scope in ("all", "named"):
        yield (mutant.by,)
    if scope in ("all", "unit", "quick"):
        yield tuple(f for f in QUICK if (root / f).exists())
    if scope in ("all", "unit"):
        yield f"{_UNIT}test_requests.py", f"{_UNIT}test_boundaries.py"
    if scope in ("all", "replay"):
        yield tuple(f"replay:{seed}" for seed in SEEDS[:3])
    if scope in ("all", "unit"):
        files = next(files for name, files in TESTS.items() if mutant.target.startswith(name))
        yield tuple(f for f in files if (root / f).exists())
    if scope in ("all", "replay"):
        yield tuple(f"replay:{seed}" for seed in SEEDS[3:])


def chosen(args: argparse.Namespace) -> list[Mutant]:
    mutants = table.MUTANTS if args.table is None else runpy.run_path(str(args.table))["MUTANTS"]
    if args.only:
        unknown = set(args.only) - {m.id for m in mutants}
        if unknown:
            raise SystemExit(f"there is no {', '.join(sorted(unknown))}; --list shows them")
        return sorted((m for m in mutants if m.id in args.only), key=lambda m: args.only.index(m.id))
    if args.sample:
        known = [m for m in mutants if m.by]
        return random.Random(args.seed).sample(known, min(args.sample, len(known)))
    return list(mutants)


def run(mutants: Sequence[Mutant], scope: str, jobs: int = 1) -> Iterator[Outcome]:
    """What becomes of each, `jobs` at a time. `scope`: all, named (only what the table names is tried), quick, unit,
    replay."""
    with ExitStack() as stack:
        free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for _ in range(jobs):
            free.put(stack.enter_context(copy()))

        def one(mutant: Mutant) -> Outcome:
            root = free.get()
            try:
                return try_one(root, mutant, scope)
            finally:
                free.put(root)

        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        for done in as_completed([pool.submit(one, m) for m in mutants]):
            yield done.result()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, metavar="N", help="so many of those that something is known to notice")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="chooses the sample")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these alone")
    parser.add_argument("--table", type=Path, metavar="FILE", help="another table: a Python file with MUTANTS")
    parser.add_argument(
        "--scope", choices=("all", "named", "quick", "unit", "replay"), help="what tries them; a sample: what is named"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time")
    parser.add_argument("--log", type=Path, metavar="FILE", help="add each outcome to it; those in it are not tried")
    parser.add_argument("--list", action="store_true", help="name them and try nothing")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    args = parser.parse_args()
    mutants = chosen(args)
    if args.list:
        for mutant in mutants:
            print(f"{mutant.id:<44} {mutant.target}  {mutant.by}")
        return 0
    outcomes = [] if args.log is None or not args.log.exists() else _logged(args.log, {m.id for m in mutants})
    known = {o.id for o in outcomes}
    left = [m for m in mutants if m.id not in known]
    for outcome in run(left, args.scope or ("named" if args.sample else "all"), args.jobs):
        outcomes.append(outcome)
        if args.log is not None:
            with args.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(outcome)) + "\n")
        if not args.json:
            print(f"{outcome.state:<7} {outcome.id:<44} {outcome.by}  {outcome.detail}", flush=True)
    killed = sum(o.state == "killed" for o in outcomes)
    if args.json:
        print(json.dumps({"killed": killed, "total": len(outcomes), "outcomes": [asdict(o) for o in outcomes]}))
    else:
        print(f"{killed} of {len(outcomes)} were noticed")
    return 0 if killed == len(outcomes) else 1


def _logged(log: Path, ids: Collection[str]) -> list[Outcome]:
    found = [Outcome(**json.loads(line)) for line in log.read_text("utf-8").splitlines() if line]
    return [o for o in found if o.id in ids]


if __name__ == "__main__":
    sys.exit(main())
