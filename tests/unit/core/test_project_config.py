"""What a project's file may do to the settings: whatever stands in it, the program starts and stays within bounds."""

from __future__ import annotations

import os
import typing
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from sakti.core.config import (
    APPROVAL_MODES,
    Config,
    check,
    describe_values,
    flatten,
    get_meaning,
    iter_names,
    load,
    project_may_set,
)
from sakti.core.errors import ConfigError

FILE = Path("/project/.sakti/config.toml")


def of_project(text: str | bytes, **more: Any) -> Any:
    data = text.encode() if isinstance(text, str) else text
    return load(project_file=FILE, project_bytes=data, **more)


# --- any file ---------------------------------------------------------------------------------------------------------

SCALARS = (
    st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.dates()
    | st.sampled_from([0, -5, 1, 10**30, -(10**400), float("inf"), float("nan"), "auto", "plan", "none", "5m"])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
TABLES = st.dictionaries(st.sampled_from([*iter_names(), "providers.x.base_url", "nope", "memory"]), VALUES, max_size=6)


def written(table: dict[str, Any]) -> bytes:
    lines: list[str] = []
    for name, value in table.items():
        try:
            lines.append(f"{name} = {tomlkit.item(value).as_string()}")
        except (ValueError, TypeError):  # a list that TOML cannot write
            continue
    return "\n".join(lines).encode("utf-8", "surrogatepass")


@given(TABLES)
def test_no_file_of_a_project_raises_or_leaves_the_bounds(table: dict[str, Any]) -> None:
    loaded = of_project(written(table))
    found, usual = flatten(loaded.config), flatten(Config())
    check(loaded.config)
    for name, value in found.items():
        if not project_may_set(name):
            assert value == usual[name]
        bounds = get_meaning(name).project
        if isinstance(bounds, tuple) and isinstance(value, int | float) and not isinstance(value, bool):
            assert bounds[0] <= value <= bounds[1]
    assert found["approval.mode"] in ("plan", "ask")
    assert set(loaded.changed) == {n for n in found if found[n] != usual[n]}


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    of_project(data)


def test_every_number_that_a_project_may_set_has_bounds_for_it() -> None:
    open_ended = [
        n
        for n in iter_names()
        if project_may_set(n) and "number" in describe_values(n) and get_meaning(n).project is True
    ]
    assert open_ended == []


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "agent.max_steps = 0",
        "agent.max_steps = -5",
        "agent.max_steps = 201",
        "memory.observation.message_tokens = 1",
        "memory.observation.message_tokens = 200_001",
        "memory.observation.block_after = inf",
        "memory.observation.block_after = nan",
        "memory.observation.message_tokens = [1]",
        f"agent.max_steps = 0x{'f' * 6000}",
        'approval.mode = "auto"',
        "approval.deny = [1]",
        f'approval.deny = ["{"x" * 2000}"]',
        'model = "other/model"',
        'providers.openai.base_url = "http://evil"',
        'approval.allow = ["bash"]',
        "memory = 3",
    ],
)
def test_what_is_out_of_bounds_is_left_out_with_one_sentence(line: str) -> None:
    loaded = of_project(f"mode = 'debugging'\n{line}")
    assert flatten(loaded.config) == {**flatten(Config()), "mode": "debugging"}
    assert len(loaded.warnings) == 1
    assert str(FILE) in loaded.warnings[0]


def test_bounds_are_the_projects_only(tmp_path: Path) -> None:
    user = tmp_path / "config.toml"
    user.write_text("agent.max_steps = 50\n[memory.observation]\nmessage_tokens = 500_000\n")
    loaded = of_project("agent.max_steps = 51", user_file=user)
    assert (loaded.config.agent.max_steps, loaded.config.memory.observation.message_tokens) == (50, 500_000)
    assert "may set 1 to 50" in loaded.warnings[0]
    assert of_project("agent.max_steps = 49", user_file=user).config.agent.max_steps == 49


@pytest.mark.parametrize("mode", APPROVAL_MODES)
def test_approvals_become_only_narrower(mode: str, tmp_path: Path) -> None:
    user = tmp_path / "config.toml"
    user.write_text('approval.mode = "edits"\napproval.deny = ["bash(rm*)"]')
    loaded = of_project(f'approval.mode = "{mode}"\napproval.deny = "write"', user_file=user)
    assert loaded.config.approval.mode == ("edits" if mode == "auto" else mode)
    assert loaded.config.approval.deny == ("bash(rm*)", "write")


def test_what_contradicts_the_users_settings_is_left_out() -> None:
    loaded = of_project(
        "memory.observation.buffer_tokens = 4_000\nmemory.enabled = false",
        overrides=["memory.observation.message_tokens=3000"],
    )
    assert loaded.config.memory.observation.buffer_tokens == 0.2
    assert loaded.config.memory.enabled is False
    assert "must be less" in loaded.warnings[0]


def test_the_users_own_contradiction_is_still_an_error() -> None:
    with pytest.raises(ConfigError, match="must be less"):
        of_project("memory.enabled = false", overrides=["memory.observation.buffer_tokens=40000"])


def test_what_a_project_changes_is_known() -> None:
    loaded = of_project(
        'memory.enabled = false\nmode = "default"\nagent.max_steps = 9', overrides=["agent.max_steps=3"]
    )
    assert loaded.changed == {"memory.enabled": False}


def test_many_wrong_settings_are_few_lines() -> None:
    warnings = of_project("\n".join(f"x{i} = 1" for i in range(300))).warnings
    assert len(warnings) == 6
    assert warnings[-1].endswith("295 more settings are not used.")


# --- files ----------------------------------------------------------------------------------------


def bad(kind: str, path: Path) -> None:
    match kind:
        case "nested":
            path.write_text("a = " + "[" * 20_000)
        case "dotted":
            path.write_text(".".join("a" * 5_000) + " = 1")
        case "encoding":
            path.write_bytes(b"mode = '\xff\xfe'")
        case "digits":
            path.write_text("agent.max_steps = " + "9" * 5_000)
        case "toml":
            path.write_text("mode = = 3")
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path)
        case _:
            with path.open("wb") as file:
                file.truncate(100 << 20)


KINDS = ("nested", "dotted", "encoding", "digits", "toml", "folder", "fifo", "device", "loop", "large")


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_file_of_a_project_is_one_warning(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    bad(kind, file)
    loaded = load(project_file=file)
    assert loaded.config == Config()
    assert len(loaded.warnings) == 1
    assert str(file) in loaded.warnings[0]
    assert len(loaded.warnings[0]) < 500


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "dotted"])
def test_a_bad_file_of_the_user_is_one_error(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    bad(kind, file)
    with pytest.raises(ConfigError) as e:
        load(user_file=file)
    assert str(file) in e.value.message
    assert "\n" not in e.value.message


@pytest.mark.parametrize("value", ["[" * 20_000, "9" * 5_000])
def test_a_value_on_the_command_line_that_is_no_toml_is_text(value: str) -> None:
    with pytest.raises(ConfigError, match="it takes a whole number"):
        load(overrides=[f"agent.max_steps={value}"])


def test_a_folder_in_the_place_of_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / ".sakti").write_text("a file")
    assert load(user_file=tmp_path / ".sakti" / "config.toml") == load()


def test_types_of_every_setting_are_known() -> None:
    assert all(typing.cast("str", describe_values(n)) for n in iter_names())
