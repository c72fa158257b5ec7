"""What a small model is told of a project: its files, where it starts, manifest and README."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sakti.agent import file_list
from sakti.core.events import PromptRead
from sakti.core.types import Request
from sakti.providers.protocol import PromptProgress, StreamEvent
from sakti.store.database import Store
from tests.fakes.session import start

PYPROJECT = """
[project]
name = "basket"
description = "A cart"
dependencies = ["babel>=2"]
[project.scripts]
basket = "cart.receipt:main"
[tool.ruff]
line-length = 120
"""


def told(paths: list[str], **texts: str) -> str:
    readme, manifest = (
        file_list.choose_file(paths, ("readme.md",)),
        file_list.choose_file(paths, ("pyproject.toml", "package.json")),
    )
    return file_list.format_project(paths, readme, texts.get("readme", ""), manifest, texts.get("manifest", ""))


def test_files_start_manifest_and_readme() -> None:
    text = told(
        ["tests/test_a.py", "src/cart/receipt.py", "README.md", "pyproject.toml"],
        manifest=PYPROJECT,
        readme="# Basket\n[![badge](x)](y)\n<img src=x>\n\n\nSells things.\n",
    )
    assert "README.md\npyproject.toml\ntests/test_a.py\nsrc/cart/receipt.py" in text
    assert "It starts in: src/cart/receipt.py" in text
    assert "description: A cart\ndependencies: babel>=2\nscripts: basket = cart.receipt:main" in text
    assert "line-length" not in text and "badge" not in text and "img" not in text
    assert "# Basket\nSells things." in text


def test_other_manifests() -> None:
    node = '{"name": "wc", "bin": {"wc": "bin/run.js"}, "scripts": {"test": "node --test"}, "private": true}'
    text = told(["package.json", "bin/run.js", "main.js"], manifest=node)
    assert "It starts in: bin/run.js\n" in text and "scripts: test = node --test" in text and "private" not in text
    assert "says:\n[broken" in told(["pyproject.toml"], manifest="[broken\n")
    assert "says:\n[1, 2]" in told(["package.json"], manifest="[1, 2]")
    assert "It starts in: svc/app.py" in told(["svc/app.py", "tests/app.py"])
    assert told([]) == ""


def test_it_is_bounded() -> None:
    text = told([f"f{n:03}.py" for n in range(200)] + ["README.md"], readme="word word\n" * 500)
    assert "and 151 more files" in text and text.count(".py") == 49 and text.endswith("word word\n…")


async def test_it_is_read_from_the_files_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key = 1")
    root = tmp_path / "w"
    root.mkdir()
    (root / "README.md").symlink_to(tmp_path / "secret")
    (root / "package.json").write_text('{"name": "x\x1b[31m"}')
    (root / ".env").write_text("KEY=1")
    text = await file_list.describe_project(root)
    assert "name: x" in text and "\x1b" not in text and "key = 1" not in text and ".env" not in text


async def test_what_takes_too_long_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("")
    monkeypatch.setattr(file_list, "PATIENCE", 0.0)
    assert await file_list.describe_project(tmp_path) == ""


@pytest.mark.parametrize("small", [True, False])
async def test_only_a_small_model_is_told(store: Store, tmp_path: Path, small: bool) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "app.py").write_text("")
    run = await start(store, tmp_path / "w", ["one", "two"], small=small)
    await run.ask("hello")
    (tmp_path / "w" / "later.py").write_text("")
    await run.ask("again")
    first, second = ([b.text for b in r.system if b.kind == "project"] for r in run.provider.requests)
    assert first == second and (len(first) == 1 and "app.py" in first[0] if small else first == [])


async def test_a_provider_that_can_prepare_is_told_what_requests_begin_with(store: Store, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "app.py").write_text("")
    run = await start(store, tmp_path / "w", ["one"], small=True)
    prepared: list[Request] = []

    async def prepare(request: Request) -> None:
        prepared.append(request)

    provider: Any = run.provider
    provider.prepare = prepare
    await run.session.warm()
    await run.ask("hello")
    (sent,) = run.provider.requests
    assert [(r.system[:2], r.tools) for r in prepared] == [(sent.system[:2], sent.tools)]


async def test_how_far_a_prompt_is_read_is_an_event(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["one"], small=True)
    provider: Any = run.provider
    stream = provider.stream

    async def slowly(request: Request) -> AsyncIterator[StreamEvent]:
        yield PromptProgress(40, 100)
        async for event in stream(request):
            yield event

    provider.stream = slowly
    assert (await run.ask("hello")).text == "one"
    assert [(e.read, e.total, e.percent) for e in run.of(PromptRead)] == [(40, 100, 40)]
