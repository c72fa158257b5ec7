from __future__ import annotations

from pathlib import Path

import pytest

from sakti.agent.judge.decide import judge
from sakti.agent.judge.policy import Rules
from sakti.agent.tools.context import ToolState
from sakti.agent.tools.edit import apply_patch
from sakti.agent.tools.patch import knows_patches
from sakti.core.errors import ToolError
from tests.fakes.tools import call


def patch(*rows: str) -> str:
    return "\n".join(["*** Begin Patch", *rows, "*** End Patch"])


VECTORS: dict[str, tuple[bytes, tuple[str, ...], bytes]] = {
    "update": (b"a\nb\nc\n", ("@@", " a", "-b", "+B", " c"), b"a\nB\nc\n"),
    "several hunks": (b"a\nb\nc\nd\ne\n", ("@@", "-a", "+A", "@@", "-e", "+E"), b"A\nb\nc\nd\nE\n"),
    "no at-signs": (b"a\nb\n", (" a", "-b", "+B"), b"a\nB\n"),
    "context twice": (
        b"class A:\n    def f():\n        return 1\nclass B:\n    def f():\n        return 1\n",
        ("@@ class B:", "@@     def f():", "-        return 1", "+        return 2"),
        b"class A:\n    def f():\n        return 1\nclass B:\n    def f():\n        return 2\n",
    ),
    "the second of two": (b"x\ny\nx\ny\n", ("@@", " x", " y", "@@", " x", "-y", "+Y"), b"x\ny\nx\nY\n"),
    "context is also the first line": (b"def f():\n    a\n", ("@@ def f():", " def f():", "-    a", "+    b"),
                                       b"def f():\n    b\n"),
    "CRLF": (b"a\r\nb\r\nc\r\n", ("@@", " a", "-b", "+B", "+X"), b"a\r\nB\r\nX\r\nc\r\n"),
    "mixed ends": (b"a\r\nb\nc\r\n", ("@@", " a", " b", "-c", "+C"), b"a\r\nb\nC\r\n"),
    "no end newline": (b"a\nb", ("@@", " a", "-b", "+B"), b"a\nB"),
    "no end newline, more lines": (b"a\nb", ("@@", " b", "+c", "*** End of File"), b"a\nb\nc"),
    "end of file": (b"x\ny\nx\n", ("@@", "-x", "+X", "*** End of File"), b"x\ny\nX\n"),
    "only additions": (b"a\n", ("@@", "+b"), b"a\nb\n"),
    "additions under a line": (b"a\nb\n", ("@@ a", "+x"), b"a\nx\nb\n"),
    "deletions": (b"a\nb\nc\n", ("@@", " a", "-b"), b"a\nc\n"),
    "trailing blanks": (b"a  \nb\n", ("@@", " a", "-b", "+B"), b"a  \nB\n"),
    "other indentation": (b"\ta\n\tb\n", ("@@", "     a", "-    b", "+\tB"), b"\ta\n\tB\n"),
    "typographic signs": ("“a” – b\nc\n".encode(), ("@@", ' "a" - b', "-c", "+C"), "“a” – b\nC\n".encode()),
    "empty context line": (b"a\n\nb\n", ("@@", " a", "", "-b", "+B"), b"a\n\nB\n"),
    "latin-1": (b"M\xfcller\nb\n", ("@@", " M\xfcller", "-b", "+B"), b"M\xfcller\nB\n"),
    "UTF-16": (b"\xff\xfea\0\r\0\n\0b\0\r\0\n\0", ("@@", "-b", "+B"), b"\xff\xfea\0\r\0\n\0B\0\r\0\n\0"),
    "form feed": (b"a\x0cb\nc\n", ("@@", "-c", "+C"), b"a\x0cb\nC\n"),
    "unified ranges": (b"a\nb\n", ("@@ -1,2 +1,2 @@", " a", "-b", "+B"), b"a\nB\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
async def test_updates_are_exact_to_the_byte(tools: ToolState, name: str) -> None:
    before, rows, after = VECTORS[name]
    path = tools.workspace / "f"
    path.write_bytes(before)
    await call(tools, apply_patch, patch=patch("*** Update File: f", *rows))
    assert path.read_bytes() == after


async def test_files_are_added_moved_and_deleted_in_one_patch(tools: ToolState) -> None:
    root = tools.workspace
    for name, text in (("old.py", "a\nb\n"), ("gone.txt", "x"), ("same.py", "q\n")):
        (root / name).write_text(text)
    text = patch(
        "*** Add File: deep/new.txt", "+one", "+", "+two",
        "*** Update File: old.py", "*** Move to: deep/moved.py", "@@", "-b", "+B",
        "*** Update File: same.py", "*** Move to: renamed.py",
        "*** Delete File: gone.txt",
    )  # fmt: skip
    done = await call(tools, apply_patch, patch=text)
    assert (root / "deep/new.txt").read_bytes() == b"one\n\ntwo\n"
    assert (root / "deep/moved.py").read_bytes() == b"a\nB\n"
    assert (root / "renamed.py").read_bytes() == b"q\n"
    assert not (root / "old.py").exists()
    assert not (root / "same.py").exists()
    assert not (root / "gone.txt").exists()
    assert set(done.content.split("\n")[1:]) == {
        "A deep/new.txt", "D old.py", "A deep/moved.py", "D same.py", "A renamed.py", "D gone.txt",
    }  # fmt: skip


async def test_a_patch_that_does_not_fit_changes_nothing(tools: ToolState) -> None:
    root = tools.workspace
    (root / "a").write_text("one\ntwo\n")
    (root / "b").write_text("x\n")
    for rows, words in (
        (
            ("*** Update File: a", "@@", "-one", "+1", "*** Update File: b", "@@", "-y", "+z"),
            "Hunk 1 of b does not fit",
        ),
        (("*** Update File: a", "@@", " one", "-too", "+2"), r"nearest at line 1; line 2 there is\ntwo\n.*\ntoo"),
        (("*** Update File: nope", "@@", "-y", "+z"), "no file"),
        (("*** Delete File: a", "*** Add File: c", "x"), "does not begin with"),
        (("*** Update File: a", "@@ nowhere", "-one", "+1"), "'nowhere' of its '@@'"),
        (("*** Update File: a", "@@", "-one", "+1", "~odd"), "begins with neither"),
        (("something",), "is expected"),
    ):
        with pytest.raises(ToolError, match=words):
            await call(tools, apply_patch, patch=patch(*rows))
    with pytest.raises(ToolError, match="cut off"):
        await call(tools, apply_patch, patch="*** Begin Patch\n*** Delete File: a\n")
    assert (root / "a").read_text() == "one\ntwo\n"
    assert (root / "b").read_text() == "x\n"


async def test_a_file_that_changed_behind_its_back_is_not_patched(tools: ToolState) -> None:
    path = tools.workspace / "a"
    path.write_text("one\n")
    tools.mark_seen(path)
    path.write_text("one\nby someone else\n")
    with pytest.raises(ToolError, match="has changed since"):
        await call(tools, apply_patch, patch=patch("*** Update File: a", "@@", "-one", "+1"))


def test_a_patch_is_judged_by_each_of_its_files(tools: ToolState, tmp_path: Path) -> None:
    place = tools.make_context("", "", "").place()

    def verdict(*rows: str, mode: str = "edits") -> str:
        given = {"patch": patch(*rows)}
        return judge(apply_patch, given, mode=mode, rules=Rules(deny=("edit(keep/*)",)), place=place).verdict

    fine = ("*** Update File: a", "@@", "-x", "+y")
    assert verdict(*fine) == "allow"
    assert verdict(*fine, mode="ask") == "ask"
    assert verdict(*fine, mode="plan") == "deny"
    assert verdict(*fine, "*** Delete File: .env") == "deny"
    assert verdict(*fine, "*** Add File: ../outside", "+x") == "ask"
    assert verdict("*** Update File: a", "*** Move to: .git/hooks/pre-commit", "@@", "-x", "+y") == "ask"
    assert verdict("  *** Update File: keep/x", "@@", "-x", "+y") == "deny"


def test_the_approval_shows_what_a_patch_would_do(tools: ToolState) -> None:
    (tools.workspace / "a").write_text("one\n")
    given = {"patch": patch("*** Update File: a", "@@", "-one", "+1", "*** Add File: b", "+new")}
    assert apply_patch.preview is not None
    diff = apply_patch.preview(tools.make_context("", "", ""), **apply_patch.check(given, tools.cwd))
    assert "-one\n+1" in diff
    assert "+new" in diff
    assert (tools.workspace / "a").read_text() == "one\n"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-5.1-codex", True),
        ("gpt-6.1-terra", True),
        ("openai/gpt-oss-120b", True),
        ("gpt-4.1-mini", True),
        ("gpt-4o", False),
        ("claude-sonnet-5-5", False),
        ("gemini-3-pro", False),
        ("qwen3-coder", False),
        ("", False),
    ],
)
def test_the_models_that_know_patches(model: str, expected: bool) -> None:
    assert knows_patches(model) is expected
