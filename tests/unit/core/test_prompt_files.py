"""Prompts are files with parts, and a user's own file wins with what it has."""

from __future__ import annotations

import pytest

from sakti.core import resources


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (folder := tmp_path / "sakti" / "prompts").mkdir(parents=True)
    for cached in (resources.read_prompt, resources.has_prompt):
        cached.cache_clear()
    yield folder
    for cached in (resources.read_prompt, resources.has_prompt):
        cached.cache_clear()


def test_a_part_of_the_users_own_file_wins_and_the_others_stay(own):
    shipped = resources.read_prompt("system#headless")
    resources.read_prompt.cache_clear()
    (own / "system.md").write_text("Mine.\n\n<!-- brief -->\n\nMine, short.\n", "utf-8")
    assert resources.read_prompt("system") == "Mine."
    assert resources.read_prompt("system#brief") == "Mine, short."
    assert resources.read_prompt("system#headless") == shipped


def test_a_heading_and_a_comment_inside_a_line_begin_no_part(own):
    (own / "x.md").write_text("# a\nsee <!-- b --> here\n<!-- c -->\ntext", "utf-8")
    assert resources.read_prompt("x") == "# a\nsee <!-- b --> here"
    assert resources.read_prompt("x#c") == "text"
    assert not resources.has_prompt("x#b")


def test_a_name_that_is_nowhere_is_named(own):
    with pytest.raises(FileNotFoundError, match="system#nothing"):
        resources.read_prompt("system#nothing")
