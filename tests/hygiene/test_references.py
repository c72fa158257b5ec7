"""Modules and names that tests, help pages and the gate mention in strings exist: a rename does not see those."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = "|".join(p.stem for p in (ROOT / "sakti").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists())
DOTTED = rf"sakti\.(?:{PACKAGES})\b(?:\.\w+)*"
IMPORT = re.compile(rf"from ({DOTTED}) import (\w+(?: as \w+)?(?:, \w+(?: as \w+)?)*)")
MENTION = re.compile(rf"""["'`]({DOTTED})["'`]|-m ({DOTTED})""")
FILES = (
    "tests/**/*.py",
    "sakti/**/*.py",
    "sakti/help/*.md",
    ".github/**/*.md",
    ".ci/run",
    "README.md",
    "pyproject.toml",
)


def list_references(text: str) -> Iterator[tuple[str, str]]:
    """Yield the modules that a text mentions, each with a name in it or ""."""
    for module, names in IMPORT.findall(text):
        yield from ((module, name.partition(" as ")[0]) for name in names.split(", "))
    for mention in MENTION.findall(text):
        yield "".join(mention), ""


def list_code(path: Path) -> Iterator[str]:
    """Yield source that imports sakti from strings: those of a Python file, or an entire script."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        code = "".join(str(p.value) if isinstance(p, ast.Constant) else "_" for p in parts)
        if re.search(r"(?:from|import) sakti\b", code):
            yield code


def list_attributes(code: str) -> Iterator[tuple[str, str]]:
    """Yield the names that source reads from the modules of sakti that it imports."""
    for module, names in IMPORT.findall(code):
        for name, _, alias in (n.partition(" as ") for n in names.split(", ")):
            if read_module(f"{module}.{name}") is not None:
                used = re.findall(rf"(?<![\w./]){alias or name}\.((?!__)\w+)", code)
                yield from ((f"{module}.{name}", attribute) for attribute in used)
    yield from ((name, "") for name in re.findall(rf"(?<![\w./]){DOTTED}", code))


@cache
def read_module(module: str) -> str | None:
    """Return the source of a module, None if there is none."""
    path = ROOT / module.replace(".", "/")
    files = (path / "__init__.py", path.with_suffix(".py"))
    return next((file.read_text("utf-8") for file in files if file.is_file()), None)


def exists(module: str, name: str) -> bool:
    """Return whether a module has a name, as its own, as an import or as a module in it."""
    if read_module(f"{module}.{name}" if name else module) is not None:
        return True
    if not name:
        module, _, name = module.rpartition(".")
    source = read_module(module)
    if source is None:  # an attribute of a class
        return "." in module and exists(*module.rsplit(".", 1))
    start = r"(?:async )?def |class |(?: {4})?(?:from|import) .*| {4}|[A-Z][\w, =]*"
    pattern = rf"^(?:{start})?\b{name}\b"
    return re.search(pattern, source, re.MULTILINE) is not None


def test_every_mentioned_module_and_name_exists() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {module} {name}"
        for path in chain.from_iterable(map(ROOT.glob, FILES))
        for module, name in set(list_references(path.read_text("utf-8")))
        if path != Path(__file__) and not exists(module, name)
    ]
    assert missing == []


def test_every_attribute_in_source_that_is_run_from_strings_exists() -> None:
    paths = [ROOT / ".ci/run", *(p for p in ROOT.glob("tests/**/*.py") if p != Path(__file__))]
    missing = [
        f"{path.relative_to(ROOT)}: {module} {name}"
        for path in paths
        for code in list_code(path)
        for module, name in set(list_attributes(code))
        if not exists(module, name)
    ]
    assert missing == []


def test_an_attribute_of_a_module_in_source_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text("""run(f'from sakti.core import text as t, events; {t.a}; t.gone(t.to_one_line(x.t.y))')""")
    names = {pair for code in list_code(path) for pair in list_attributes(code)}
    assert {name for module, name in names if not exists(module, name)} == {"gone"}


def test_a_reference_to_a_renamed_function_is_found() -> None:
    text = (
        """monkeypatch.setattr("sakti.core.text.sanitize_all"); run("from sakti.core.text import to_one_line, gone")"""
    )
    missing = [name or module for module, name in list_references(text) if not exists(module, name)]
    assert sorted(missing) == ["gone", "sakti.core.text.sanitize_all"]
