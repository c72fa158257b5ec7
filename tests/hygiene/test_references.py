"""Modules and names that tests, help pages and the gate mention in strings exist: a rename does not see those."""

from __future__ import annotations

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


def test_a_reference_to_a_renamed_function_is_found() -> None:
    text = (
        """monkeypatch.setattr("sakti.core.text.sanitize_all"); run("from sakti.core.text import to_one_line, gone")"""
    )
    missing = [name or module for module, name in list_references(text) if not exists(module, name)]
    assert sorted(missing) == ["gone", "sakti.core.text.sanitize_all"]
