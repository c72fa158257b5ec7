"""Measure how the code reads: size, complexity and language."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIALECT = re.compile(
    r"\b(what (is|was|of|it|they|there|has|have|had|stands|goes|can)|where (there|it|that|they|nothing|none) \w+"
    r"|nobody|stands?\b|to be had|there is none|none where|empty where|anew|of (its|our|their) own"
    r"|is left|are left|whole)\b",
    re.IGNORECASE,
)
PARTICIPLE = re.compile(
    r"(^|_)([a-z]+(ed|en)|said|told|found|made|left|kept|given|held|known|gone|lost|seen|sent|heard|taken|shown)$"
)
VERBS = frozenset(
    "get set make build read write load save open close start stop run add remove delete find parse render show hide "
    "draw is has can may must should to from with update check create count handle apply use take put give keep ask "
    "send emit resolve move reset clear split join format convert validate compute list select insert copy fetch begin "
    "end finish wait cancel refresh sync watch on test fold unfold mark register wrap undo redo was were need "
    "needs".split()
)
VAGUE = frozenset("found said told made given left whole own known kept wanted asked".split())
CONTINUES = re.compile(r"^test_(so|nor|and|but|also|such|neither|yet|then)_")
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.Assert)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def complexity(function: ast.AST) -> int:
    """Cyclomatic complexity (McCabe 1976): decisions + 1; nested functions count separately."""
    total, stack = 1, list(ast.iter_child_nodes(function))
    while stack:
        node = stack.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, BRANCHES):
            total += 1 + (len(node.ifs) if isinstance(node, ast.comprehension) else 0)
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.match_case):
            total += not is_default(node)
        stack.extend(ast.iter_child_nodes(node))
    return total


def is_default(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def trees(folder: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        if "repairs" not in path.parts:  # programs with faults on purpose
            text = path.read_text("utf-8")
            yield text, ast.parse(text)


@cache
def figures() -> dict[str, float]:
    """Return today's figures; counts, but for those in %."""
    counts: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    for text, tree in trees("sakti"):
        counts["modules"] += 1
        counts["lines"] += text.count("\n")
        counts["modules of at most 50 lines"] += text.count("\n") <= 50
        counts["files with lazy imports"] += "with lazy_imports" in text
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)):
                count_docstring(node, counts)
            if isinstance(node, FUNCTIONS):
                count_function(node, counts)
            elif isinstance(node, ast.ClassDef) and node.name != "Meta":
                classes[node.name.lstrip("_")] += 1
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                counts["assignments to found, said, told, …"] += node.id in VAGUE
            elif isinstance(node, ast.match_case):
                silent = len(node.body) == 1 and isinstance(node.body[0], ast.Pass)
                counts["silent `case _: pass`"] += silent and is_default(node)
    for _, tree in trees("tests"):
        names = (n.name for n in ast.walk(tree) if isinstance(n, FUNCTIONS))
        counts["test names that continue the one above"] += sum(bool(CONTINUES.match(n)) for n in names)
    counts["class names used more than once"] = sum(n > 1 for n in classes.values())
    functions, docstrings = counts.pop("functions"), counts.pop("docstrings")
    shares = {"functions with complexity over 10": functions, "functions named by a participle": functions}
    shares["docstrings with dialect"] = docstrings
    percentages = {f"{name} (%)": round(100 * counts.pop(name) / total, 1) for name, total in shares.items()}
    return {**counts, **percentages}


def count_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, counts: Counter) -> None:
    if text := ast.get_docstring(node):
        counts["docstrings"] += 1
        counts["docstring first lines over 100 characters"] += len(text.split("\n")[0]) > 100
        counts["docstrings with dialect"] += bool(DIALECT.search(text.split("\n\n")[0].replace("\n", " ")))


def count_function(node: ast.FunctionDef | ast.AsyncFunctionDef, counts: Counter) -> None:
    arguments = len(node.args.args) + len(node.args.kwonlyargs) + len(node.args.posonlyargs)
    counts["functions"] += 1
    counts["functions over 50 lines"] += (node.end_lineno or 0) - node.lineno + 1 > 50
    counts["functions with complexity over 15"] += complexity(node) > 15
    counts["functions with complexity over 10"] += complexity(node) > 10
    counts["functions with more than 7 arguments"] += arguments > 7
    counts["imports inside functions"] += sum(isinstance(n, (ast.Import, ast.ImportFrom)) for n in ast.walk(node))
    named = PARTICIPLE.search(node.name) and node.name.strip("_").split("_")[0] not in VERBS
    counts["functions named by a participle"] += bool(named)
