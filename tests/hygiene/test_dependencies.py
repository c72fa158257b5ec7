"""Every package that is imported is declared, and every one that is declared is imported."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# imported as something else than what they are installed as
NAMES = {"pillow": "PIL", "markdown-it-py": "markdown_it", "pyyaml": "yaml"}
NOT_IMPORTED = {"ripgrep"}  # a program


def imported(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from (a.name.split(".")[0] for a in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.split(".")[0]


def declared(kinds: tuple[str, ...] = ("local", "mcp")) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *(x for k in kinds for x in project["optional-dependencies"][k])]
    names = {re.split(r"[\[<>=!~; ]", line)[0].lower() for line in lines} - NOT_IMPORTED
    return {NAMES.get(n, n.replace("-", "_")) for n in names}


def test_what_is_imported_is_declared() -> None:
    brought = {"playhouse", "mcp_types", "anyio"}  # by peewee and mcp
    foreign = set(imported((ROOT / "sakti").rglob("*.py"))) - set(sys.stdlib_module_names) - {"sakti"} - brought
    assert foreign <= declared()


def test_what_is_declared_is_imported() -> None:
    text = "\n".join(p.read_text("utf-8") for p in (ROOT / "sakti").rglob("*.py"))
    assert {n for n in declared() if not re.search(rf"\b{n}\b", text)} == set()


# The packages that the customer has fixed, each with the module that uses it.
FIXED = {
    "textual": "sakti/tui/app.py",
    "rich": "sakti/tui/transcript/markdown.py",
    "anthropic": "sakti/providers/endpoint.py",
    "openai": "sakti/providers/endpoint.py",
    "tiktoken": "sakti/core/tokens.py",
    "peewee": "sakti/store/models.py",
    "pytest": "tests/conftest.py",
}


def test_each_fixed_package_is_a_dependency_that_a_module_uses() -> None:
    assert set(FIXED) <= declared(("local", "test"))
    for package, path in FIXED.items():
        assert package in set(imported([ROOT / path])), path
