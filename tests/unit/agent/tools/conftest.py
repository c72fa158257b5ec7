from __future__ import annotations

import os
from pathlib import Path

import pytest

from sakti.agent.repository import scrub_env
from sakti.agent.tools.context import ToolState
from sakti.core.clock import SystemClock, TimeIds


@pytest.fixture
def tools(tmp_path: Path) -> ToolState:
    workspace = tmp_path / "w"
    workspace.mkdir()
    clock = SystemClock()
    return ToolState(
        workspace,
        workspace,
        tmp_path / "out",
        clock,
        TimeIds(clock),
        scrub_env(os.environ, frozenset({"SECRET_KEY"})),
    )


@pytest.fixture(params=["ripgrep", "own"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to walk and search: what they answer must be the same."""
    from sakti.agent.tools import child

    if request.param == "own":
        monkeypatch.setattr("sakti.agent.tools.child.find_ripgrep", lambda: None)
        monkeypatch.setattr("sakti.agent.tools.files.find_ripgrep", lambda: None)
    elif child.find_ripgrep() is None:
        pytest.skip("there is no ripgrep for this platform")
    return request.param
