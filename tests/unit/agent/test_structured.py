"""Answers that programs read: JSON that matches a schema, whatever the model writes round it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sakti.agent import program_io
from sakti.core import json_schema
from sakti.core.errors import ConfigError

SCHEMA: Any = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    "text",
    (
        '{"n": 3}',
        '```json\n{"n": 3}\n```',
        'Here is the result:\n\n```json\n{"n": 3}\n```\nThree files were counted.',
        'The count is {"n": 3}. That is all.',
        'Not {this}, but:\n```\n{"n": 3}\n```',
    ),
)
def test_what_stands_round_the_value_is_let_pass(text: str) -> None:
    assert program_io.check(text, SCHEMA) == program_io.Checked({"n": 3})


@pytest.mark.parametrize(
    "text", ("three", '{"n": 3} or {"n": 4}', '```\n{"n": 3}\n```\n```\n{"n": 4}\n```', "", '{"n": NaN}', "[" * 100_000)
)
def test_an_answer_with_no_value_or_several_is_not_json(text: str) -> None:
    (problem,) = program_io.check(text, SCHEMA).problems
    assert problem.startswith("It is not JSON: ")


@pytest.mark.parametrize("text", ("{" * 300_000, "```x\ny\n" * 100_000, "[{" * 100_000))
def test_a_long_answer_is_read_in_one_pass(text: str) -> None:
    assert program_io.check(text, SCHEMA).problems


def test_a_check_that_ends_by_itself_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema.sys, "executable", "/bin/false")
    with pytest.raises(ConfigError, match="the schema cannot be checked: exit code 1"):
        program_io.check('"a"', {"pattern": "a"})


def test_the_nearest_part_of_a_choice_is_told() -> None:
    schema = {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"n": {"type": "integer"}}}]}
    assert program_io.check('{"n": "x"}', schema).problems == ("$.n: 'x' is not of type 'integer'",)


def test_patterns_are_checked_and_none_runs_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"properties": {"id": {"type": "string", "pattern": "^[a-z]+-[0-9]+$"}}}
    assert program_io.check('{"id": "ab-1"}', schema) == program_io.Checked({"id": "ab-1"})
    (problem,) = program_io.check('{"id": "AB"}', schema).problems
    assert problem.startswith("$.id: 'AB' does not match")
    with pytest.raises(ConfigError, match="refers to http://127.0.0.1:9/x, which is not in it"):
        program_io.check('{"id": "ab-1"}', {"allOf": [schema, {"$ref": "http://127.0.0.1:9/x"}]})
    monkeypatch.setattr(json_schema, "LIMIT", 1.0)
    for endless in ({"properties": {"id": {"pattern": "^(a+)+$"}}}, {"patternProperties": {"^(a+)+$": False}}):
        with pytest.raises(ConfigError, match="has a pattern that takes longer than 1 s"):
            program_io.check('{"id": "%s", "%s": 1}' % (("a" * 40 + "!",) * 2), endless)


def test_the_workspace_shadows_no_module_of_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "jsonschema.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    assert program_io.check('"a"', {"pattern": "^a$"}) == program_io.Checked("a")
