"""The golden vectors: pure functions whose results are fixed from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import golden

REPOSITORY = Path(__file__).parents[2]
FULL = REPOSITORY.parent / "shared" / "golden"
FOLDER = FULL if FULL.is_dir() else REPOSITORY / "tests" / "golden_sample"


def vectors():
    for path in golden.files([FOLDER]):
        for case in golden.cases(path):
            if "fn" in case:
                yield pytest.param(case, id=f"{path.stem}-{case['id']}-{case['fn']}")


@pytest.mark.parametrize("case", list(vectors()))
def test_golden(case: dict[str, Any]) -> None:
    got, want = golden.outcome(case)
    assert got == want


async def test_a_whole_folder() -> None:
    report = await golden.check(golden.files([FOLDER]))
    assert report.ok
    assert {"tasks", "parseObserverOutput", "calculateDynamicThreshold"} <= {f.fn for f in report.functions}


async def test_what_fails_and_what_is_not_known_is_named(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    path.write_text(
        json.dumps(
            {
                "cases": [
                    {
                        "id": "right",
                        "fn": "formatTemporalGap",
                        "args": [0],
                        "output": golden.run("formatTemporalGap", [0]),
                    },
                    {"id": "wrong", "fn": "formatTemporalGap", "args": [0], "output": "never"},
                    {"id": "odd", "fn": "formatTemporalGap", "args": [], "output": ""},
                    {"id": "new", "fn": "neverHeardOf", "args": [], "output": 1},
                    {
                        "id": "tasks",
                        "ops": [{"op": "close", "id": "nobody"}],
                        "sakti": {"ready": [], "blocked": {}, "errors": []},
                    },
                ]
            }
        )
    )
    report = await golden.check([path])
    rows = {f.fn: f for f in report.functions}
    assert (report.passed, report.total, report.unknown, report.ok) == (1, 5, ["neverHeardOf"], False)
    assert rows["formatTemporalGap"].failed_ids == ["wrong", "odd"]
    assert rows["tasks"].failed_ids == ["tasks"]


def test_what_is_no_file_of_vectors_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1]")
    (tmp_path / "b.json").write_text("{")
    assert [golden.cases(f) for f in golden.files([tmp_path, tmp_path / "missing"])] == [[], []]


async def test_scripts_of_tasks_of_our_own() -> None:
    path = REPOSITORY / "tests" / "golden_sample" / "tasks_neighbours.json"
    report = await golden.check([path])
    assert report.ok, [f.failed_ids for f in report.functions]
    assert report.functions[0].total >= 30
