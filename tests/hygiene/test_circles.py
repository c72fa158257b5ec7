"""No file of the package imports itself by way of others: what a type checker imports, and a function, counts too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def modules(root: Path, package: str) -> dict[str, Path]:
    """Name every module of `package`, which stands in `root`, with its file."""
    found: dict[str, Path] = {}
    for path in (root / package).rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Name the modules that a file imports, wherever in it: `from a import b` is a.b where that is a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found = name if name in known else node.module
                if found in known:
                    yield found


def circles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Find the strongly connected components of more than one node, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.add(frozenset(stack[at:]))
            del stack[at:]

    for node in graph:
        if node not in index:
            visit(node)
    return found


def graph_of(root: Path, package: str) -> dict[str, set[str]]:
    known = modules(root, package)
    return {name: set(imported(path, known)) - {name} for name, path in known.items()}


@pytest.mark.parametrize("package", ["sakti", "tests/bench"])
def test_no_file_imports_itself_by_way_of_others(package: str) -> None:
    assert circles(graph_of(ROOT, package)) == set()


def test_a_circle_is_seen_whatever_way_it_imports(tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    files = {
        "__init__": "",
        "a": "from p import b",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.c import C",
        "c": "def f():\n    import p.a",
        "d": "from p.a import x",
    }
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    assert circles(graph_of(tmp_path, "p")) == {frozenset({"p.a", "p.b", "p.c"})}
    (package / "c.py").write_text("import json")
    assert circles(graph_of(tmp_path, "p")) == set()
