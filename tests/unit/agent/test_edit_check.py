"""Edits of the local model are checked by the program, and its answer ends with the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.agent.session.edit_check import list_removed_definitions, parse_problem
from sakti.core.events import TextDelta
from sakti.core.types import ModelInfo
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.session import start

LOCAL = ModelInfo("small", "local", context_window=200_000)

TEXTS = [
    ("a.py", "def f():\n    return 1\n", True),
    ("a.py", "def f(:\n", False),
    ("a.py", "x = 1\x00", False),
    ("a.pyi", "def f() -> int: ...", True),
    ("a.json", '{"a": 1}', True),
    ("a.json", "{'a': 1}", False),
    ("tsconfig.json", '{\n  // paths\n  "a": 1\n}', None),
    ("a.json", '{"a": "http://x", }', False),
    ("a.toml", "a = 1", True),
    ("a.toml", "a = ", False),
    ("a.yaml", "a: [1, 2]\nb: !custom x\n", True),
    ("a.yml", "a: [1\nb: {", False),
    ("A.PY", "(", False),
    *((name, "anything (", None) for name in ("a.css", "Makefile", "a.go", "py", "")),
]


@pytest.mark.parametrize(("name", "text", "parses"), TEXTS)
def test_what_parses(name: str, text: str, parses: bool | None) -> None:
    problem = parse_problem(name, text)
    assert (None if problem is None else not problem) is parses


@pytest.mark.parametrize(
    ("diff", "names"),
    [
        ("-def fmt(x):\n+def format_price(x):", ["fmt"]),
        ("-async def load():\n+async def load(a):", []),
        ("-class Cart(Base):\n-    def add(self):\n+class Basket(Base):\n+    def add(self):", ["Cart"]),
        ("-export const total = 1\n+export const sum = 1", ["total"]),
        ("-export default function main() {\n+function start() {", ["main"]),
        ("-LIMIT: int = 3\n+MOST: int = 3", ["LIMIT"]),
        ("-    x = 1\n-if a == 2:\n-# def gone\n+    y = 1", []),
        ("-    a class of its own\n-class of things\n-type in a word\n-def word. And\n+x", []),
        (
            "-type Cart struct {\n-struct Point;\n-let mut cart = 1\n-class All extends B {",
            ["Cart", "Point", "cart", "All"],
        ),
        ("--- a/def fmt\n+++ b/def fmt\n-pub fn parse() {\n", ["parse"]),
    ],
)
def test_removed_definitions(diff: str, names: list[str]) -> None:
    assert list_removed_definitions(diff) == names


def edit(path: str, old: str, new: str) -> Answer:
    change = Call("edit", {"path": path, "edits": [{"old": old, "new": new}]})
    return Answer("", calls=(Call("read", {"path": path}), change))


FILES = {
    "prices.py": "def fmt(x):\n    return x\n",
    "cart.py": "from prices import fmt\nprint(fmt(1))\n",
    "cli.py": "import prices\nprices.fmt(2)\n",
    "app.js": "function total(a) {\n  return a\n}\n",
    "site.css": "a { color: red }\n",
    "conf.toml": "limit = 1\n",
    "bom.py": "\ufeffx = 1\n",
    "notes.md": "type prices\n",
    ".env": "fmt=very-secret-value-of-the-user\n",
}
RENAMED = "prices.py parses. `fmt` is gone but still used in 2 files: cart.py:1,"
VERDICTS = [
    (edit("prices.py", "def fmt", "def format_price"), RENAMED),
    (edit("prices.py", "return x", "return x["), "prices.py does not parse: "),
    (edit("prices.py", "return x", "return str(x)"), "prices.py parses."),
    (edit("conf.toml", "1", ""), "conf.toml does not parse: "),
    (edit("site.css", "red", "blue"), "site.css is unchecked."),
    (edit("bom.py", "x = 1", "x = 2"), "bom.py parses."),
    (edit("notes.md", "type prices", "words"), "notes.md is unchecked."),
    (Answer("", calls=(Call("write", {"path": "new.json", "content": "[1,"}),)), "new.json does not parse: "),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "verdict"), VERDICTS, ids=[v for _, v in VERDICTS])
async def test_an_answer_after_an_edit_ends_with_the_verdict(
    store: Store, tmp_path: Path, answer: Answer, verdict: str
) -> None:
    root = tmp_path / "w"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text)
    run = await start(
        store, root, [answer, "All is consistent."], model=LOCAL, overrides=("approval.mode=edits",)
    )  # fmt: skip
    end = await run.ask("please change it")
    assert end.text.startswith("All is consistent.\n\nChecked by the program: " + verdict)
    assert "very-secret" not in end.text and ".env" not in end.text and "`prices`" not in end.text
    streamed = "".join(e.text for e in run.of(TextDelta))
    assert streamed == end.text, "shown as it is stored"
    await run.session.close()


async def test_only_edits_of_the_local_model_are_judged(store: Store, tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "prices.py").write_text(FILES["prices.py"])
    ask_only = await start(store, root, ["It prints prices."], model=LOCAL)
    assert (await ask_only.ask("what does it do?")).text == "It prints prices."
    await ask_only.session.close()
    other = await start(
        store, root, [edit("prices.py", "return x", "return x["), "Done."], overrides=("approval.mode=edits",)
    )
    assert (await other.ask("change it")).text == "Done."
    await other.session.close()


NODE = """#!/bin/sh
# Like the real one, reports no error of a module unless package.json names it so.
text=$(cat "$2")
case "$text" in
    *export*) grep -qs module "${2%/*}/package.json" || exit 0 ;;
esac
case "$text" in
    *"return a("*) echo "SyntaxError: Unexpected" >&2; exit 1 ;;
    *"<div"*) echo "SyntaxError: Unexpected token '<'" >&2; exit 1 ;;
esac
"""


@pytest.mark.parametrize("rule", ["deny", "allow"])
async def test_javascript_is_checked_by_node_unless_the_judge_refuses(
    store: Store, tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, programs = tmp_path / "w", tmp_path / "bin"
    root.mkdir()
    programs.mkdir()
    (root / "app.js").write_text(FILES["app.js"])
    node = programs / "node"
    node.write_text(NODE)
    node.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    overrides = ("approval.mode=edits", *(["approval.deny=['bash']"] if rule == "deny" else []))
    changes = (
        ("return a(", "does not parse: SyntaxError"),
        ("return a + 1", "parses."),
        ("return <div>a</div>", "is unchecked."),  # JSX: not what node reads
        ("return a }\nexport const x = return a(\nfunction f() {", "is unchecked."),
        ("return a(;", "does not parse: SyntaxError"),
    )
    for number, (new, verdict) in enumerate(changes):
        (root / "package.json").write_text('{"type": "module"}' if number == len(changes) - 1 else "{}")
        old = (root / "app.js").read_text().split("\n")[1].strip()
        run = await start(store, root, [edit("app.js", old, new), "Done."], model=LOCAL, overrides=overrides)
        run.session.workspace.options.env["PATH"] = f"{programs}:/usr/bin:/bin"
        end = await run.ask("change it")
        assert f"app.js {verdict if rule == 'allow' else 'is unchecked.'}" in end.text
        await run.session.close()
