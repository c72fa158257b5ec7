"""List every text of the package that a user can read. `python -m tests.hygiene.wording` prints them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2] / "sakti"
NOT_SHOWN = ("memory/statements", "memory/observe/speaking.py")

_SQL = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|WITH|PRAGMA|DROP|ALTER|ATTACH|ORDER|WHERE|AND|OR|FROM|JOIN|VALUES|SET"
    r"|RETURNING|LIMIT|GROUP|UNION|EXPLAIN|BEGIN|INTO|CASE|INDEXED|DETACH) |\b(SELECT|WHERE|json_each|IS NOT NULL)\b"
    r"|= \?|\?1| IN \(|\bCROSS JOIN\b"
)
_PATTERN = re.compile(r"\\b|\\s|\\w|\(\?[:!<=Pi]|\[\^|\.\*")
_TYPE = re.compile(r"(dict|list|tuple|Mapping|MutableMapping|Sequence|AsyncGenerator)\[")


@dataclass(frozen=True, order=True)
class Text:
    """A text, with `{…}` for what is filled in."""

    file: str
    line: int
    text: str


def texts(path: Path) -> Iterator[Text]:
    """Yield the texts of one file: string literals with words in them, and the docstrings of actions (their help)."""
    tree = ast.parse(path.read_text("utf-8"))
    hidden: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            hidden |= {id(node.body[0].value)} if _is_docstring(node) and not _is_action(node) else set()
        elif isinstance(node, ast.JoinedStr):
            hidden |= {id(part) for part in ast.walk(node) if part is not node}
    file = str(path.relative_to(ROOT))
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "{…}" for p in node.values)
        else:
            continue
        if _has_words(text):
            yield Text(file, node.lineno, text)


@functools.cache
def every_text() -> tuple[Text, ...]:
    """Return the texts of all files but those that hold data."""
    files = sorted(ROOT.rglob("*.py"))
    return tuple(t for f in files if not str(f.relative_to(ROOT)).startswith(NOT_SHOWN) for t in sorted(texts(f)))


def _is_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def _is_action(node: ast.AST) -> bool:
    calls = (d for d in getattr(node, "decorator_list", []) if isinstance(d, ast.Call))
    return any(isinstance(d.func, ast.Name) and d.func.id in ("action", "group") for d in calls)


def _has_words(text: str) -> bool:
    shown = text.strip()
    if len(shown) < 4 or " " not in shown or not re.search(r"[a-z]{2}", shown.replace("{…}", "")):
        return False
    return not (_SQL.search(shown) or _PATTERN.search(shown) or _TYPE.match(shown))


if __name__ == "__main__":
    for text in every_text():
        print(f"{text.file}:{text.line}: {text.text!r}")
