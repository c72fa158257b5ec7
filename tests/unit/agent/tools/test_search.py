from __future__ import annotations

import asyncio
import itertools
import os
import re
from pathlib import Path

import pytest

from sakti.agent.file_list import FileList
from sakti.agent.mentions import with_files
from sakti.agent.tools import child, read
from sakti.agent.tools import files as tools_files
from sakti.agent.tools.context import ToolState
from sakti.agent.tools.files import expand_braces
from sakti.agent.tools.grep import grep
from sakti.agent.tools.read import glob, ls
from sakti.core.errors import ToolError
from tests.fakes.tools import call, ended

SECRET = "supersecret123"


@pytest.fixture
def tree(tools: ToolState) -> Path:
    root = tools.workspace
    (root / ".git").mkdir()
    files = {
        ".gitignore": "build/\n*.log\n/only-top\n",
        "README.md": "needle one\n",
        "src/a.ts": "needle two\nother\nneedle three\n",
        "src/b.tsx": "needle four\n",
        "src/deep/c.py": "def needle(x):\n    return x\n",
        "src/deep/.gitignore": "!kept.log\n",
        "src/deep/kept.log": "needle kept\n",
        "src/x.log": "needle log\n",
        "src/only-top": "needle below\n",
        "only-top": "needle at the top\n",
        "build/out.ts": "needle built\n",
        "node_modules/m/index.ts": "needle of others\n",
        ".hidden/d.ts": "needle hidden\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


async def rows(tools: ToolState, **arguments: object) -> list[str]:
    return (await call(tools, grep, **arguments)).content.split("\n")


async def test_what_is_searched(tools: ToolState, tree: Path, engine: str) -> None:
    found = {row.partition(":")[0] for row in await rows(tools, pattern="needle")}
    assert found == {
        ".hidden/d.ts",
        "README.md",
        "src/a.ts",
        "src/b.tsx",
        "src/deep/c.py",
        "src/deep/kept.log",
        "src/only-top",
    }
    below = {row.partition(":")[0] for row in await rows(tools, pattern="needle", path="src")}
    assert below == {name for name in found if name.startswith("src/")}, "the ignore file at the top holds below"
    assert await rows(tools, pattern="needle", path="build") == ["build/out.ts:1:needle built"], "what is named counts"
    assert await rows(tools, pattern="needle", path="src/x.log") == ["src/x.log:1:needle log"]


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("*.{ts,tsx}", {".hidden/d.ts", "src/a.ts", "src/b.tsx"}),
        ("src/**/*.ts", {"src/a.ts"}),
        ("./src/*.ts", {"src/a.ts"}),
        ("src/", {"src/a.ts", "src/b.tsx", "src/deep/c.py", "src/deep/kept.log", "src/only-top"}),
        ("!*.{ts,tsx,log,md}", {"src/deep/c.py", "src/only-top"}),
        ("*.none", {"No match."}),
    ],
)
async def test_include(tools: ToolState, tree: Path, engine: str, include: str, expected: set[str]) -> None:
    assert {row.partition(":")[0] for row in await rows(tools, pattern="needle", include=include)} == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"pattern": "*.{ts,tsx}"}, {".hidden/d.ts", "src/a.ts", "src/b.tsx"}),
        ({"pattern": "./src/*.ts"}, {"src/a.ts"}),
        ({"pattern": "{w}/src/**/*.py"}, {"src/deep/c.py"}),
        ({"pattern": "../w/src/*.ts"}, {"src/a.ts"}),
        ({"pattern": "c.py"}, {"src/deep/c.py"}),
        ({"pattern": "*.py", "path": "src"}, {"src/deep/c.py"}),
        ({"pattern": "**/*.{p,q}{x,y}"}, {"src/deep/c.py"}),
    ],
)
async def test_glob(tools: ToolState, tree: Path, engine: str, given: dict[str, str], expected: set[str]) -> None:
    given = {k: v.replace("{w}", str(tree)) for k, v in given.items()}
    assert set((await call(tools, glob, **given)).content.split("\n")) == expected


@pytest.mark.parametrize("number", [60, 4], ids=["while it lists", "while it sorts"])
async def test_glob_stops_in_time_and_says_so(
    tools: ToolState, tree: Path, engine: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Each look at a file takes a second."""
    for n in range(number):
        (tree / f"{n}.many").touch()
    count = itertools.count()
    monkeypatch.setattr(tools_files, "monotonic", lambda: float(next(count)), raising=False)
    monkeypatch.setattr(read, "monotonic", lambda: 0.0, raising=False)
    *shown, note = (await call(tools, glob, pattern="*")).content.split("\n")
    assert note == "[Stopped after 20 s: the list of files is incomplete]"
    assert 0 < len(shown) < 10


async def test_outside_a_repository_the_workspace_is_the_top(tools: ToolState, tree: Path, engine: str) -> None:
    (tree / ".git").rmdir()
    (tree.parent / ".gitignore").write_text("*\n")
    assert await rows(tools, pattern="needle", path="src/deep") == [
        "src/deep/c.py:1:def needle(x):",
        "src/deep/kept.log:1:needle kept",
    ]
    assert "src/x.log" not in (await call(tools, glob, pattern="*.log")).content


async def test_lines_are_those_of_compilers_and_shown_as_they_are(tools: ToolState, engine: str) -> None:
    path = tools.workspace / "odd"
    path.write_bytes("a\x0cb\u2028c\x85\nint c\r\n".encode() + b"M\xfcller c\nc end\n")
    assert await rows(tools, pattern="c$") == ["odd:2:int c", "odd:3:Müller c"]
    path.write_bytes("wide\nint c\n".encode("utf-16"))
    assert await rows(tools, pattern="c", path="odd") == ["odd:2:int c"]


async def test_forms_of_the_answer(tools: ToolState, tree: Path, engine: str) -> None:
    assert await rows(tools, pattern="two", context=1, path="src/a.ts") == ["src/a.ts:1:needle two", "src/a.ts-2-other"]
    assert await rows(tools, pattern="needle", files_only=True, path="src", include="*.{ts,tsx}") == [
        "src/a.ts:2",
        "src/b.tsx:1",
    ]
    assert await rows(tools, pattern="needle(x)", literal=True) == ["src/deep/c.py:1:def needle(x):"]
    assert await rows(tools, pattern="NEEDLE T", ignore_case=True) == [
        "src/a.ts:1:needle two",
        "src/a.ts:3:needle three",
    ]
    assert await rows(tools, pattern=r"two\nother", path="src/a.ts") == ["src/a.ts:1:needle two", "src/a.ts:2:other"]
    assert (await rows(tools, pattern="needle", limit=2))[2] == (
        "[The first 2 matches, there are more: narrow pattern, path or include]"
    )


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("foo(?=bar)", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "look-around or backreferences"),
        ("(", "not a regular expression.*literal"),
        ("a{2", "not a regular expression|No match"),
    ],
)
async def test_what_an_expression_may_not_have(
    tools: ToolState, tree: Path, engine: str, pattern: str, words: str
) -> None:
    try:
        told = (await call(tools, grep, pattern=pattern)).content
    except ToolError as e:
        told = e.message
    assert re.search(words, told), told


async def test_no_size_is_too_large_for_a_named_file(tools: ToolState, engine: str) -> None:
    path = tools.workspace / "big.log"
    with path.open("wb") as file:
        for n in range(70_000):
            file.write(b"%06d " % n + b"x" * 90 + b"\n")
    assert path.stat().st_size > 6_000_000
    assert (await rows(tools, pattern="^069999", path="big.log"))[0].startswith("big.log:70000:069999")
    assert (await rows(tools, pattern="^069999"))[0].startswith("big.log:70000:069999")
    many = await call(tools, grep, pattern="x", path="big.log")
    assert many.content.count("\n") == tools_files.MAX_RESULTS
    assert "there are more" in many.content


async def test_long_lines_are_cut(tools: ToolState, engine: str) -> None:
    (tools.workspace / "min.js").write_text("needle" + "x" * 3_000_000 + "\nshort needle\n")
    found = await rows(tools, pattern="needle")
    assert len(found[0]) < 700
    assert found[1] == "min.js:2:short needle"


async def test_nothing_secret_comes_out(tools: ToolState, tree: Path, engine: str) -> None:
    (tree / "sub").mkdir()
    for name in (".env", "sub/.env.local", "deploy.pem", "sub/id_rsa"):
        (tree / name).write_text(f"API_KEY={SECRET}\n")
    (tree / "own").mkdir()
    (tree / "own/sakti.db").write_text(SECRET)
    (tree / "link").symlink_to(tree / ".env")
    (tree / ".env.example").write_text("API_KEY=\n")
    (tree / "notes.txt").hardlink_to(tree / ".env")
    (tree / "twin.txt").hardlink_to(tree / ".env.example")
    (tree / ".aws").mkdir()
    (tree / ".aws/config").write_text(SECRET)
    tools.own = (tree / "own",)
    for given in ({"pattern": "."}, {"pattern": ".", "include": ".env"}, {"pattern": "API", "files_only": True}):
        told = (await call(tools, grep, **given)).content
        assert SECRET not in told
        assert ".env:" not in told
        assert "[Left out, because they contain secrets: " in told
    shown = (await call(tools, grep, pattern="API")).content
    assert ".env.example:1:API_KEY=" in shown and "twin.txt:1:API_KEY=" in shown, "the example may be read"
    named = (await call(tools, grep, pattern="API", include="*.txt")).content
    assert named.endswith("secrets: notes.txt]"), "another name of a secret file"
    for name in (".env", "link", "sub/id_rsa"):
        with pytest.raises(ToolError, match="cannot be searched: holds secrets"):
            await call(tools, grep, pattern=".", path=name)
    found = (await call(tools, glob, pattern="**/*")).content.split("\n")
    assert not {".env", "sub/.env.local", "deploy.pem", "sub/id_rsa", "own/sakti.db", ".aws/config"} & set(found)
    assert found[-1].startswith("[Left out")
    listed = (await call(tools, ls)).content.split("\n")
    assert not [row for row in listed[:-1] if row.startswith((".env ", "link", "deploy.pem", ".aws"))]
    assert ".env.example  9" in listed
    for paths in (await FileList(tree, tools.own).paths(),):
        assert not {".env", "deploy.pem", "sub/id_rsa", "own/sakti.db", ".aws/config"} & set(paths)
        assert "README.md" in paths
    assert len(with_files("@.env @link @sub/id_rsa @own/sakti.db", tree, tools.own)) == 1


async def test_what_is_skipped_is_named(tools: ToolState, tree: Path, engine: str) -> None:
    (tree / "data.bin").write_bytes(b"needle\n\0\n" * 10)
    assert "[Skipped: data.bin (binary, it matches)]" in await rows(tools, pattern="needle")
    os.mkfifo(tree / "pipe")
    with pytest.raises(ToolError, match="not a regular file"):
        await call(tools, grep, pattern="x", path="pipe")
    assert "pipe" not in (await call(tools, grep, pattern="needle")).content


async def test_an_expression_that_never_ends_is_ended(
    tools: ToolState, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(a+)+$ doubles its time with each letter in an engine that backtracks."""
    monkeypatch.setattr("sakti.agent.tools.grep.SECONDS", 1.0)
    (tools.workspace / "a.txt").write_text("a" * 40 + "!\n")
    beats = 0

    async def heart() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    beating = asyncio.create_task(heart())
    found = await rows(tools, pattern="(a+)+$")
    beating.cancel()
    expected = ["No match."]
    if engine == "own":
        expected.append("[Stopped after 1 s: not everything was searched. Narrow pattern, path or include]")
        assert beats > 20, "the loop went on meanwhile"
    assert found == expected


async def test_names_keep_to_their_line(tools: ToolState, engine: str) -> None:
    for name in ("-dash", "a b'c\"", "new\nline", "--version"):
        (tools.workspace / name).write_text("needle\n")
    assert set(await rows(tools, pattern="needle")) == {
        "--version:1:needle",
        "-dash:1:needle",
        "a b'c\":1:needle",
        "[Skipped: new␊line (its name has a line end)]",
    }
    assert "new␊line" in (await call(tools, glob, pattern="*")).content.split("\n")
    assert "new␊line  7" in (await call(tools, ls)).content.split("\n")
    assert await rows(tools, pattern="--version", path="--version") == ["No match."]


def children() -> set[int]:
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return set(map(int, found))


async def test_cancelling_ends_the_search(tools: ToolState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sakti.agent.tools.child.find_ripgrep", lambda: None)
    (tools.workspace / "a.txt").write_text("a" * 40 + "!\n")
    before = children()
    task = asyncio.create_task(call(tools, grep, pattern="(a+)+$", path="a.txt"))
    while not (new := children() - before):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all([await ended(pid) for pid in new])


def test_ripgrep_is_the_one_that_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child.find_ripgrep.cache_clear()
    before = child.find_ripgrep()
    (tmp_path / "rg").write_text("#!/bin/sh\n")
    (tmp_path / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    child.find_ripgrep.cache_clear()
    assert child.find_ripgrep() == before
    assert before is None or Path(before).is_absolute()


def test_braces() -> None:
    assert expand_braces("a.{b,c{d,e}}") == ["a.b", "a.cd", "a.ce"]
    assert expand_braces("app/{id}/x") == ["app/{id}/x"]
    assert len(expand_braces("{a,b}" * 20)) <= 201
