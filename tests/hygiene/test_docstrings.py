"""What the first line of a docstring looks like, beyond what ruff's rules D2 and D4 check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "core",
    "store",
    "memory",
    "providers",
    "tasks",
    "agent",
    "actions",
    "cli",
    "plain",
    "tui",
)
OPENERS = frozenset(
    "a all an any each either every everything for from how in is it its none nothing of on one raises returns"
    " some that the their these this those until what when where whether which who whose why with yields".split()
)


def functions(source: str) -> Iterator[tuple[str, str]]:
    """Names and docstrings of functions and of the module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            yield getattr(node, "name", "module"), text


def opens_with_a_noun(text: str) -> bool:
    first = text.split()[0]
    return not first[0].isupper() or first.strip(".,:;").lower() in OPENERS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Return the log.", False),
        ("The log.", True),
        ("What is left.", True),
        ("Whether it is open.", True),
        ("`text` without marks.", True),
        ("12: nothing is lost.", True),
        ("Returns the log.", True),
    ],
)
def test_a_noun_phrase_is_recognised(text: str, found: bool) -> None:
    assert opens_with_a_noun(text) is found


@pytest.mark.parametrize("folder", [*(f"sakti/{p}" for p in PACKAGES), "tests/bench"])
def test_docstrings_begin_with_a_verb(folder: str) -> None:
    files = [p for p in sorted((ROOT / folder).rglob("*.py")) if "repairs" not in p.parts]
    assert files
    assert [
        f"{path.relative_to(ROOT)}:{name}: {text.splitlines()[0]}"
        for path in files
        for name, text in functions(path.read_text("utf-8"))
        if opens_with_a_noun(text)
    ] == []
