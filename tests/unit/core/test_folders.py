"""Where the program's own folders are, by platform."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sakti.core import resources

FOLDERS = {resources.config_home: "config", resources.data_home: "data", resources.state_home: "state"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_variable_wins_on_every_platform(folder, home, monkeypatch):
    monkeypatch.setenv(f"XDG_{FOLDERS[folder].upper()}_HOME", "/elsewhere")
    for platform in ("linux", "darwin"):
        monkeypatch.setattr(sys, "platform", platform)
        assert folder() == Path("/elsewhere/sakti")


def test_the_usual_folders(home):
    assert [f() for f in FOLDERS] == [
        home / ".config/sakti",
        home / ".local/share/sakti",
        home / ".local/state/sakti",
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_elsewhere_the_platforms_own_unless_the_usual_one_is_there(folder, home, monkeypatch):
    usual = folder()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(f"platformdirs.user_{FOLDERS[folder]}_path", lambda *_, **__: Path("/platform/sakti"))
    assert folder() == Path("/platform/sakti")
    usual.mkdir(parents=True)
    assert folder() == usual
