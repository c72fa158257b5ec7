from __future__ import annotations

import base64
import os
import re
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sakti.agent.judge.decide import judge
from sakti.agent.judge.policy import Rules
from sakti.agent.tools import textfile
from sakti.agent.tools.bash import bash
from sakti.agent.tools.changes import make_diff
from sakti.agent.tools.context import ToolState
from sakti.agent.tools.edit import edit, write
from sakti.agent.tools.read import ls, read
from sakti.core import content as core_content
from sakti.core.errors import ToolError
from tests.fakes.pictures import FORMATS, pdf, picture
from tests.fakes.tools import TOOLS, call

# --- reading on -------------------------------------------------------------------------------------------------------


async def test_a_long_file_is_read_on_to_its_end_without_a_gap(tools: ToolState) -> None:
    lines = [f"line {n} {'x' * 70}" for n in range(1, 1330)]
    (tools.workspace / "long.txt").write_text("\n".join(lines) + "\n")
    seen: list[str] = []
    offset = 1
    for _ in range(20):
        done = await call(tools, read, path="long.txt", offset=offset)
        assert len(done.content) <= tools.output_bytes
        assert "output_file" not in done.details
        *rows, note = done.content.split("\n")
        if "\t" in note:
            rows, note = [*rows, note], ""
        seen += [row.split("\t", 1)[1] for row in rows]
        if not note:
            break
        offset = len(seen) + 1
        assert note.endswith(f"of 1329: read on with offset={offset}.]")
    assert seen == lines


async def test_a_long_line_is_cut_and_said_to_be(tools: ToolState) -> None:
    (tools.workspace / "min.js").write_text("a" * 60_000 + "\nb\n")
    assert (await call(tools, read, path="min.js")).content == f"1\t{'a' * 2000} [… 58,000 more characters]\n2\tb"


async def test_files_beyond_memory_are_read_in_pieces(tools: ToolState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sakti.agent.tools.files.MAX_FILE_BYTES", 10_000)
    path = tools.workspace / "big"
    path.write_text("".join(f"{n}{' ' * 3_000 if n == 7 else ''}\n" for n in range(1, 5_001)))
    first = await call(tools, read, path="big", limit=3)
    assert first.content == "1\t1\n2\t2\n3\t3\n[More lines follow: read on with offset=4.]"
    assert (await call(tools, read, path="big", offset=4_999)).content == "4999\t4999\n5000\t5000"
    with pytest.raises(ToolError, match="fewer than 6000 lines"):
        await call(tools, read, path="big", offset=6_000)
    with pytest.raises(ToolError, match="not been read"):
        await call(tools, edit, path="big", old="1", new="2")


async def test_line_numbers_do_not_drift(tools: ToolState) -> None:
    (tools.workspace / "a.c").write_bytes("a\x0cb\u2028c\x85\nint b\r\nint c\n".encode())
    rows = (await call(tools, read, path="a.c")).content.split("\n")
    assert rows[1:3] == ["2\tint b", "3\tint c"]


async def test_kept_outputs_are_read_without_a_question(tools: ToolState, tmp_path: Path) -> None:
    place = tools.make_context("", "", "").place()
    done = await call(tools, bash, command="seq 1 100000")
    path = str(done.details["output_file"])
    for tool in ("read", "grep"):
        assert judge(TOOLS[tool], {"path": path}, mode="ask", rules=Rules(), place=place).verdict == "allow"
    assert judge(TOOLS["write"], {"path": path}, mode="auto", rules=Rules(), place=place).verdict == "ask"
    for other in (str(tools.output_folder), f"{tools.output_folder}/../x", f"{tools.output_folder}/none"):
        assert judge(TOOLS["read"], {"path": other}, mode="ask", rules=Rules(), place=place).verdict == "ask"
    assert (await call(tools, read, path=path, offset=5_000, limit=1)).content.startswith("5000\t5000\n")


async def test_a_folder_is_listed_and_encodings_are_named(tools: ToolState) -> None:
    (tools.workspace / "latin.txt").write_bytes(b"M\xfcller\r\n")
    assert "latin.txt  8" in (await call(tools, read, path=".")).content
    assert (await call(tools, read, path="latin.txt")).content == (
        "1\tMüller\n"
        "[Written with an unknown 8-bit encoding (shown as latin-1) and CRLF line ends, which edit and write keep; "
        "new text has to be ASCII.]"
    )
    with pytest.raises(ToolError, match="is a file"):
        await call(tools, ls, path="latin.txt")


# --- changing ---------------------------------------------------------------------------------------------------------


async def test_an_edit_leaves_latin_1_as_it_is(tools: ToolState) -> None:
    path = tools.workspace / "a.py"
    path.write_bytes(b"name = 'M\xfcller'\nx = 1\n")
    await call(tools, read, path="a.py")
    await call(tools, edit, path="a.py", old="x = 1", new="x = 2  # new")
    assert path.read_bytes() == b"name = 'M\xfcller'\nx = 2  # new\n"
    for new in ("x → 3", "für"):
        with pytest.raises(ToolError, match=r"unknown 8-bit encoding \(shown as latin-1\), so .* may come out wrong"):
            await call(tools, edit, path="a.py", old="x = 2", new=new)
    assert b"x = 2" in path.read_bytes()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(["latin-1", "cp1252", "utf-8", "utf-8-sig", "utf-16", "utf-16-be"]),
    st.lists(
        st.tuples(st.text("aäöü \t\x0c", max_size=6), st.sampled_from(["\n", "\r\n", "\r"])), min_size=2, max_size=7
    ),
    st.booleans(),
    st.data(),
)
async def test_whatever_a_file_is_written_in_only_the_edited_line_changes(
    tools: ToolState, encoding: str, lines: list[tuple[str, str]], ended: bool, data: st.DataObject
) -> None:
    rows = [f"{body}#{n}#" for n, (body, _) in enumerate(lines)]
    ends = [end for _, end in lines]
    if not ended:
        ends[-1] = ""
    number = data.draw(st.integers(0, len(rows) - 1))
    path = tools.workspace / "f"

    def whole(changed: str) -> bytes:
        text = "".join(
            (changed if n == number else row) + end for n, (row, end) in enumerate(zip(rows, ends, strict=True))
        )
        return (b"\xfe\xff" if encoding == "utf-16-be" else b"") + text.encode(encoding)

    path.write_bytes(whole(rows[number]))
    tools.mark_seen(path)
    text = textfile.decode(path.read_bytes())
    assert text is not None
    seen = rows[number] if text.mark else rows[number].encode(encoding).decode(text.encoding)
    await call(tools, edit, path="f", old=seen, new=f"{seen}neu")
    assert path.read_bytes() == whole(f"{rows[number]}neu")


async def test_a_wrong_byte_stays_even_in_the_line_that_changes(tools: ToolState) -> None:
    path = tools.workspace / "a"
    path.write_bytes("schön, größer, ".encode() + b"\xfc x = 1\n")
    assert (await call(tools, read, path="a")).content == "1\tschön, größer, ? x = 1"
    await call(tools, edit, path="a", old="größer, ? x = 1", new="größer, ? x = 2")
    assert path.read_bytes() == "schön, größer, ".encode() + b"\xfc x = 2\n"


async def test_a_replaced_file_keeps_encoding_and_line_ends(tools: ToolState) -> None:
    path = tools.workspace / "a"
    for before, content, after in (
        (b"a\r\nb\r\n", "a\nc\nd\n", b"a\r\nc\r\nd\r\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nC\n", b"a\r\nb\nC\r\n"),
        (b"\xef\xbb\xbfa\r\n", "b\n", b"\xef\xbb\xbfb\r\n"),
        (b"M\xfcller\n", "Jürgen\n", b"J\xfcrgen\n"),
        ("a\n".encode("utf-16"), "b\n", "b\n".encode("utf-16")),
        (b"a\r\nb\r\n", "a\r\nx\n", b"a\r\nx\n"),
        (b"a\nb\n", "a", b"a"),
        (b"", "a\n", b"a\n"),
    ):
        path.write_bytes(before)
        tools.mark_seen(path)
        await call(tools, write, path="a", content=content)
        assert path.read_bytes() == after


async def test_rights_names_and_marks_of_a_file_are_kept(tools: ToolState) -> None:
    path, other = tools.workspace / "a", tools.workspace / "b"
    path.write_text("x = 1\n")
    path.chmod(0o750)
    other.hardlink_to(path)
    tools.mark_seen(path)
    await call(tools, edit, path="a", old="1", new="2")
    assert other.read_text() == "x = 2\n"
    assert path.stat().st_mode & 0o7777 == 0o750
    assert path.stat().st_nlink == 2
    link = tools.workspace / "link"
    link.symlink_to(path)
    await call(tools, edit, path="link", old="2", new="3")
    assert link.is_symlink()
    assert path.read_text() == "x = 3\n"
    path.chmod(0o444)
    for tool, arguments in ((edit, {"old": "3", "new": "4"}), (write, {"content": "y"})):
        with pytest.raises(ToolError, match=r"read-only \(mode 0444\)"):
            await call(tools, tool, path="a", **arguments)
    assert path.read_text() == "x = 3\n"


ROWS = st.lists(st.sampled_from("abc"), max_size=25)


@given(ROWS, ROWS, ROWS, ROWS)
def test_a_diff_says_what_changed_and_where(head: list[str], old: list[str], new: list[str], tail: list[str]) -> None:
    before, after = [*head, *old, *tail], [*head, *new, *tail]
    out: list[str] = []
    at = 0
    texts = ["".join(row + "\n" for row in rows) for rows in (before, after)]
    for row in make_diff("f", *texts).split("\n")[2:] if before != after else ():
        if hunk := re.match(r"@@ -(\d+)(?:,(\d+))? \+", row):
            start = int(hunk[1]) - (hunk[2] != "0")
            out += before[at:start]
            at = start
        elif row[0] != "+":
            assert before[at] == row[1:]
            at += 1
        out += [row[1:]] if row[0] in " +" else []
    assert [*out, *before[at:]] == after


async def test_a_new_file_gets_the_usual_rights(tools: ToolState) -> None:
    before = os.umask(0o027)
    try:
        await call(tools, write, path="new", content="x")
    finally:
        os.umask(before)
    assert (tools.workspace / "new").stat().st_mode & 0o7777 == 0o640
    assert list(tools.workspace.iterdir()) == [tools.workspace / "new"]


# --- images and pages -------------------------------------------------------------------------------------------------


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x10\x80\xf0" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


async def test_an_image_that_fits_is_shown_as_it_is(tools: ToolState) -> None:
    data = png(40, 30)
    (tools.workspace / "a.dat").write_bytes(data)
    done = await call(tools, read, path="a.dat")
    (image,) = done.images
    assert (image.media_type, image.width, image.height) == ("image/png", 40, 30)
    assert base64.b64decode(image.data) == data
    assert done.content.startswith("a.dat: image/png, 40 × 30 pixels")


async def test_a_large_image_is_scaled(tools: ToolState) -> None:
    (tools.workspace / "a.png").write_bytes(png(3_000, 1_500))
    done = await call(tools, read, path="a.png")
    (image,) = done.images
    assert (image.width, image.height) == (1568, 784)
    assert core_content.read_image_header(base64.b64decode(image.data)) == (image.media_type, 1568, 784)
    assert "3000 × 1500" in done.content


async def test_pages_of_a_pdf_are_shown_with_their_text(tools: ToolState) -> None:
    (tools.workspace / "a.pdf").write_bytes(pdf(6))
    first = await call(tools, read, path="a.pdf")
    assert [image.name for image in first.images] == [f"a.pdf, page {n}" for n in (1, 2, 3, 4)]
    assert {image.height for image in first.images} == {1568}
    assert "--- page 4 ---\nPage number 4" in first.content
    assert first.content.endswith("[2 more pages: read on with offset=5.]")
    last = await call(tools, read, path="a.pdf", pages="6-6")
    assert len(last.images) == 1
    assert "more page" not in last.content
    with pytest.raises(ToolError, match="has 6 pages; there is no page 7"):
        await call(tools, read, path="a.pdf", offset=7)


async def test_what_cannot_be_drawn_is_a_sentence(tools: ToolState) -> None:
    (tools.workspace / "a.pdf").write_bytes(b"%PDF-1.4\nnothing")
    (tools.workspace / "a.png").write_bytes(png(2_000, 20)[:60])
    for name in ("a.pdf", "a.png"):
        with pytest.raises(ToolError, match=rf"{name} cannot be shown: .*[^.]\.$"):
            await call(tools, read, path=name)


def cuts(form: str) -> list[bytes]:
    """A picture cut at many places, its last bytes among them."""
    out: list[bytes] = []
    for frames in (1, 3) if form in ("GIF", "WEBP") else (1,):
        data = picture(form, 64, 48, frames=frames)
        out += [data[:end] for end in (len(data) // 2, len(data) * 9 // 10, len(data) - 12, len(data) - 2)]
    return out


@pytest.mark.parametrize("form", FORMATS)
async def test_a_cut_image_is_unreadable(tools: ToolState, form: str) -> None:
    for number, data in enumerate(cuts(form)):
        (tools.workspace / "cut").write_bytes(data)
        with pytest.raises(ToolError, match="cut cannot be shown: .*([Tt]runcated|broken)"):
            await call(tools, read, path="cut")
        assert number or core_content.read_image_header(data) is not None, "it looks like an image"


@pytest.mark.parametrize("form", FORMATS)
async def test_a_large_cut_image_is_unreadable(tools: ToolState, form: str) -> None:
    data = picture(form, 1_700, 900)
    (tools.workspace / "cut").write_bytes(data[: len(data) - 8])
    with pytest.raises(ToolError, match="cut cannot be shown"):
        await call(tools, read, path="cut")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("behind", [b"", b"\0\0", b"\r\n", b"bytes of a camera"])
async def test_a_whole_image_is_shown(tools: ToolState, form: str, behind: bytes) -> None:
    data = picture(form, 64, 48) + behind
    (tools.workspace / "a").write_bytes(data)
    (image,) = (await call(tools, read, path="a")).images
    assert base64.b64decode(image.data) == data
