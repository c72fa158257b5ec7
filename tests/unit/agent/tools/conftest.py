from __future__ import annotations

import os
from pathlib import Path

import pytest

from sakti.agent.tools.base import Workbench
from sakti.agent.workspace import scrubbed
from sakti.core.clock import SystemClock
from sakti.core.ids import TimeIds


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    workspace = tmp_path / "w"
    workspace.mkdir()
    clock = SystemClock()
    return Workbench(
        workspace, workspace, tmp_path / "out", clock, TimeIds(clock), scrubbed(os.environ, frozenset({"SECRET_KEY"}))
    )


@pytest.fixture(params=["ripgrep", "own"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to walk and search: what they answer must be the same."""
    from sakti.agent.tools import child

    if request.param == "own":
        monkeypatch.setattr("sakti.agent.tools.child.ripgrep", lambda: None)
        monkeypatch.setattr("sakti.agent.tools.walk.ripgrep", lambda: None)
    elif child.ripgrep() is None:
        pytest.skip("there is no ripgrep for this platform")
    return request.param
