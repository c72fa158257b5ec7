"""Changes memory in one place after another, and looks whether the replay or a test notices.

    python tests/mutants/run.py                 all of the table
    python tests/mutants/run.py --sample 6 --seed 1
    python tests/mutants/run.py --only ID ID    --list    --json

The package is copied, changed there, and tried against what the table names first, then against the replay's seeds and
the tests of its part. Exit 1: a change that nobody notices, or one that no longer fits the code.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutants import table  # noqa: E402
from tests.mutants.apply import Mutant, NotFound, mutated, path_of  # noqa: E402

COPIED = ("sakti", "tests/unit", "tests/fakes", "tests/golden_sample", "tests/mutants", "tests/crash")
LINKED = ("prompts", "themes")
SEEDS = ("81", "45", "16", "9", "53", "13", "85", "57", "69", "1", "0")  # that find nothing where nothing is changed
TIMEOUT = 300  # seconds: a change may make work that never ends
# What tests a part of memory, by the beginning of a module's name.
TESTS = {
    "sakti.memory": ("tests/unit/memory", "tests/unit/test_golden.py", "tests/unit/bench/test_memory_bench.py"),
    "sakti.store": ("tests/unit/memory", "tests/unit/store", "tests/crash/test_memory_kill.py"),
}


@dataclass(frozen=True)
class Outcome:
    """`state`: killed, alive, or error where the change does not fit the code; `by` what noticed it and how."""

    id: str
    state: str
    by: str = ""
    detail: str = ""


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


def attempt(root: Path, by: str) -> tuple[bool, str]:
    """Whether a replay or a test notices something; and what."""
    kind, _, what = by.partition(":")
    command = [sys.executable, "-m", "tests.mutants.play", what]
    if kind != "replay":
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", by]
    home = root / "home"
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(home)}
    env |= {f"XDG_{n}_HOME": str(home / n.lower()) for n in ("CONFIG", "DATA", "STATE", "CACHE")}
    try:
        done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return True, "does not end"
    if done.returncode in (4, 5):  # pytest found no such file, or no test in it
        raise NotFound(f"there is no {by}")
    lines = [line for line in (done.stdout + done.stderr).strip().split("\n") if line.strip()]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return done.returncode != 0, (failed or lines or [""])[-1][:200]


def try_one(root: Path, mutant: Mutant, scope: str) -> Outcome:
    """Change the copy, see who notices, and change it back."""
    path = path_of(root, mutant)
    source = path.read_text("utf-8")
    try:
        path.write_text(mutated(source, mutant), "utf-8")
    except NotFound as e:
        return Outcome(mutant.id, "error", detail=str(e))
    try:
        for by in ways(mutant, scope):
            noticed, detail = attempt(root, by)
            if noticed:
                return Outcome(mutant.id, "killed", by, detail)
        return Outcome(mutant.id, "alive")
    except NotFound as e:
        return Outcome(mutant.id, "error", detail=str(e))
    finally:
        path.write_text(source, "utf-8")


def ways(mutant: Mutant, scope: str) -> Iterable[str]:
    """What is tried, the most likely first. `scope`: all, named (what the table names), replay."""
    if mutant.by and scope != "replay":
        yield mutant.by
    if scope == "named":
        return
    yield from (by for by in (f"replay:{seed}" for seed in SEEDS) if by != mutant.by or scope == "replay")
    if scope == "all":
        yield from next(files for name, files in TESTS.items() if mutant.target.startswith(name))


def chosen(args: argparse.Namespace) -> list[Mutant]:
    mutants = table.MUTANTS if args.table is None else runpy.run_path(str(args.table))["MUTANTS"]
    if args.only:
        unknown = set(args.only) - {m.id for m in mutants}
        if unknown:
            raise SystemExit(f"there is no {', '.join(sorted(unknown))}; --list shows them")
        return [m for m in mutants if m.id in args.only]
    if args.sample:
        known = [m for m in mutants if m.by]
        return random.Random(args.seed).sample(known, min(args.sample, len(known)))
    return list(mutants)


def run(mutants: Sequence[Mutant], scope: str) -> Iterator[Outcome]:
    """What becomes of each. `scope`: all, named (only what the table names is tried), replay."""
    with copy() as root:
        for mutant in mutants:
            yield try_one(root, mutant, scope)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, metavar="N", help="so many of those that something is known to notice")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="chooses the sample")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these alone")
    parser.add_argument("--table", type=Path, metavar="FILE", help="another table: a Python file with MUTANTS")
    parser.add_argument("--scope", choices=("all", "named", "replay"), help="what tries them; a sample: what is named")
    parser.add_argument("--list", action="store_true", help="name them and try nothing")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    args = parser.parse_args()
    mutants = chosen(args)
    if args.list:
        for mutant in mutants:
            print(f"{mutant.id:<44} {mutant.target}  {mutant.by}")
        return 0
    outcomes: list[Outcome] = []
    for outcome in run(mutants, args.scope or ("named" if args.sample else "all")):
        outcomes.append(outcome)
        if not args.json:
            print(f"{outcome.state:<7} {outcome.id:<44} {outcome.by}  {outcome.detail}", flush=True)
    killed = sum(o.state == "killed" for o in outcomes)
    if args.json:
        print(json.dumps({"killed": killed, "total": len(outcomes), "outcomes": [asdict(o) for o in outcomes]}))
    else:
        print(f"{killed} of {len(outcomes)} were noticed")
    return 0 if killed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
