"""One small change to a function of the package, named by what the function is called and what stands in it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """`target` is module:qualname (module alone: its top level); `old` stands in it exactly once. `by` kills it: a file
    or a test of pytest, or `replay:SEED` (`replay:SEED@FAILPOINT`); empty where nothing is known to."""

    id: str
    target: str
    old: str
    new: str
    by: str = ""


class NotFound(Exception):
    """The table is older than the code: a function or a piece of it is no longer there, or is there twice."""


def path_of(root: Path, mutant: Mutant) -> Path:
    module = mutant.target.partition(":")[0]
    return root / Path(*module.split(".")).with_suffix(".py")


def mutated(source: str, mutant: Mutant) -> str:
    """The source of the module with the change in it. Raises `NotFound`; the result can be compiled."""
    qualname = mutant.target.partition(":")[2]
    start, end = _span(source, qualname.split(".")) if qualname else (0, len(source))
    found = source.count(mutant.old, start, end)
    if found != 1:
        raise NotFound(f"{mutant.old!r} stands {found} times in {mutant.target}")
    at = source.index(mutant.old, start, end)
    changed = source[:at] + mutant.new + source[at + len(mutant.old) :]
    try:
        ast.parse(changed)
    except SyntaxError as e:
        raise NotFound(f"{mutant.target} cannot be read any more: {e}") from e
    return changed


def _span(source: str, names: list[str]) -> tuple[int, int]:
    """Where a function or class stands in a source, in characters."""
    node: ast.AST = ast.parse(source)
    for name in names:
        inner = [
            n
            for n in ast.iter_child_nodes(node)
            if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and n.name == name
        ]
        if not inner:
            raise NotFound(f"there is no {'.'.join(names)}")
        node = inner[-1]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    lines = source.splitlines(keepends=True)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    start = sum(map(len, lines[: first - 1]))
    return start, start + sum(map(len, lines[first - 1 : node.end_lineno]))
