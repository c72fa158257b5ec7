from __future__ import annotations

from pathlib import Path

from tests.bench import tasks


async def test_every_figure_is_there(tmp_path: Path) -> None:
    size = await tasks.measure(60, tmp_path, rounds=3)
    assert (size["tasks"], size["dependencies"]) == (60, 117)
    assert set(size["cpu_ms"]) == set(tasks.MEASURED)
    assert all(set(v) == {"p50", "p95"} for v in size["cpu_ms"].values())
    assert size["process_ms"]["ready"] > 0
