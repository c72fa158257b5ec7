"""What is slow to import stays unimported until it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hygiene.test_circles import ROOT, modules

SDKS = {"anthropic", "openai", "httpx2", "genai_prices", "keyring", "xllamacpp", "tiktoken", "pydantic"}
STORE = {"peewee", "apsw"}
SCREEN = {"textual"}


def loaded_after(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*{{m.partition('.')[0] for m in sys.modules}})"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(out.stdout.split("\n")[-2].split())


def test_a_question_about_tasks_costs_no_more_than_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-m", "sakti", "tasks", "create", "one"], check=True)
    asked = [f"tasks {x}" for x in ("ready", "list", "board", "explain t", "show t", "search one")]
    for command in asked:
        loaded = loaded_after(f"from sakti.cli.start import run_cli\nrun_cli('{command}'.split())")
        absent = SDKS | SCREEN | {"peewee", "asyncio", "argparse", "rich"}
        assert loaded & absent == set(), command


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "import sys; sys.argv = ['sakti', '--version']; import sakti.cli; sakti.cli.main()",
            SDKS | STORE | SCREEN | {"asyncio", "dataclasses"},
        ),
        (
            "from sakti.cli.start import run_cli\ntry: run_cli(['--help'])\nexcept SystemExit: pass",
            SDKS | STORE | SCREEN | {"asyncio"},
        ),
        ("import sakti; sakti.__all__", SDKS | STORE | SCREEN | {"asyncio"}),
        ("import sakti; sakti.events", SDKS | STORE | SCREEN | {"asyncio"}),
        ("import sakti; sakti.Session", SDKS | STORE | SCREEN),
        (
            "from sakti.agent.session.session import Options, Session\nSession(Options.load_without_project())",
            SDKS | STORE | SCREEN,
        ),
        ("import sakti.headless", SDKS | STORE | SCREEN),
        ("import sakti.plain.chat", SDKS | STORE | SCREEN),
        ("import sakti.providers.registry", SDKS | STORE | SCREEN),
        ("import sakti.tui.run, sakti.tui.app", SDKS | STORE),
        (
            "from sakti.agent.tools import catalog, web; catalog.list_workspace_tools()\n"
            "from sakti.core import network; network.parse_url('https://example.org/')",
            SDKS | SCREEN | {"httpcore2", "html_to_markdown"},
        ),
        ("import sakti.memory.policy, sakti.memory.log.parse", SDKS | SCREEN),
    ],
)
def test_heavy_modules_stay_unimported(code: str, absent: set[str]) -> None:
    assert loaded_after(code) & absent == set()


def test_the_facts_of_all_actions_cost_nothing_of_what_they_work_with() -> None:
    executed = "from types import ModuleType; print(*(n for n, m in sys.modules.items() if type(m) is ModuleType))"
    code = f"from sakti.actions import registry; registry.list_subjects()\nimport sys; {executed}"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    own = {name.split(".")[1] for name in out if name.startswith("sakti.")}
    assert own == {"actions", "core", "version"}
    heavy = SDKS | STORE | SCREEN | {"asyncio", "logging", "argparse", "rich"}
    assert {m.partition(".")[0] for m in out} & heavy == set()


def lazily_imported(path: Path) -> Iterator[ast.stmt]:
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.With) and ast.unparse(node.items[0]) == "lazy_imports":
            yield from node.body


def test_what_is_imported_lazily_is_a_module_of_ours() -> None:
    """A name out of a module would execute it at once, another library's comes executed."""
    known = modules(ROOT, "sakti")
    found = 0
    for path in known.values():
        for node in lazily_imported(path):
            assert isinstance(node, ast.ImportFrom), (path, ast.unparse(node))
            assert {f"{node.module}.{alias.name}" for alias in node.names} <= set(known), (path, ast.unparse(node))
            found += 1
    assert found > 50
