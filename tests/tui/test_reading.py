"""Reading the conversation: selecting and copying, links, finding words in the thread."""

from __future__ import annotations

from random import Random

import pytest
from rich.segment import Segment

from sakti.agent.threads.export import list_code_blocks
from sakti.core.types import ImagePart, TextPart, ToolCallPart, ToolResultPart
from sakti.store.threads import messages as message_store
from sakti.store.threads import threads
from sakti.tui import desktop
from sakti.tui.palette import make_palette
from sakti.tui.transcript.build import make_message_blocks
from sakti.tui.transcript.code import draw_code, draw_diff
from sakti.tui.transcript.document import Document
from sakti.tui.transcript.links import add_links, get_target, parse_address, parse_place, trim_address
from sakti.tui.transcript.selection import find_word, get_code, get_message_text, get_range_text
from sakti.tui.transcript.wrap import get_source_text, indent, to_row
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import assistant, user

PALETTE = make_palette({}, True)
CODE = "".join(f"def f{n}():\n\treturn {n}\n\n" for n in range(20))
ANSWER = f"""## What I found

A paragraph with **bold** words and a [link](https://example.org/a) that is long enough to be folded more than once.

- first
- second with `code` and a text that does not fit into a narrow line at all
  - nested

```python
{CODE}```

| a | b |
|---|--:|
| one with many words in its cell | 2 |

1. a step

   ```sh
   ls -l
   ```

> quoted words
"""


def document(*messages, width=40):
    found = Document(PALETTE, width)
    found.append(*make_message_blocks(messages))
    return found


def row_of_text(doc, text):
    for y in range(doc.height):
        at = doc.locate(y)
        line = "".join(s.text for s in doc.lines(at[0])[at[1]])
        if text in line:
            return y, line.index(text)
    raise AssertionError(text)


def drawn(doc):
    for index in range(len(doc.blocks)):
        doc.measure(index)
    return doc


@pytest.mark.parametrize("width", [24, 61, 200])
def test_a_message_is_copied_as_it_was_written(width):
    doc = drawn(document(user("m0", "do  it\n\tnow", 0), assistant("m1", ANSWER, 1), width=width))
    assert get_message_text(doc, 0) == "do  it\n\tnow"
    last = len(doc.blocks) - 1
    assert get_message_text(doc, last) == get_message_text(doc, 2) == ANSWER.strip("\n")
    start, end = row_of_text(doc, "What I found")[0], doc.height - 1
    assert get_range_text(doc, (start, 0), (end, 999)) == ANSWER.strip("\n")


@pytest.mark.parametrize("width", [24, 200])
def test_a_block_of_code_is_copied_whole(width):
    doc = document(assistant("m1", ANSWER, 1), width=width)
    codes = {get_code(doc, i) for i in range(len(doc.blocks))}
    assert codes == {None, CODE.strip("\n"), "ls -l"}


def test_a_range_has_no_folds_borders_or_bullets():
    doc = drawn(document(assistant("m1", ANSWER, 1)))
    y, x = row_of_text(doc, "words and")
    until, _ = row_of_text(doc, "folded")
    assert get_range_text(doc, (y, x), (until, 999)).startswith(
        "words and a link (https://example.org/a) that is long enough"
    )
    y, x = row_of_text(doc, "return 3")
    assert get_range_text(doc, (y, 0), (y + 2, 99)) == "\treturn 3\n\ndef f4():"
    y, _ = row_of_text(doc, "nested")
    assert get_range_text(doc, (y, 0), (y, 99)) == "  - nested"
    y, _ = row_of_text(doc, "many words")
    assert "| one with many words in its cell | 2 |" in get_range_text(doc, (y - 1, 0), (y + 1, 99))


def test_a_range_over_tools_is_what_they_show():
    parts = (ToolCallPart("c", "bash", {"command": "make"}), ToolCallPart("d", "edit", {"path": "a.py"}))
    diff = "@@ -1 +1 @@\n-\told = 1\n+\tnew = " + "1 + " * 30 + "\n"
    results = (ToolResultPart("c", "bash", "x" * 90), ToolResultPart("d", "edit", "ok", details={"diff": diff}))
    tool = assistant("t", "", 2)
    doc = document(assistant("m1", "Done.", 1, parts), type(tool)("t", "t1", "r", "tool", results, 0))
    doc.blocks[2].toggle()
    text = get_range_text(drawn(doc), (0, 0), (doc.height - 1, 999))
    assert "\nbash  make\ncommand: make\n" + "x" * 90 in text
    assert "-\told = 1\n+\tnew = " + ("1 + " * 30).rstrip() in text


CODE_LINES = [
    "x = 1", "\treturn\t'日本語'", "    " + "word " * 20 + "end", "👨\u200d👩\u200d👧 = e\u0301", "", "a" * 150,
    "\t\tif (a && b) { c(); }", "全角" * 60, "    nested = {",
    "\ttabs\tin\tbetween " + "and wide 文字 " * 9 + "end", "}",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["code", "diff"])
def test_any_lines_of_code_and_diffs_are_copied_exactly(kind):
    """Whatever the width: folded lines are joined, and numbers, signs, indents and filled lines left out."""
    random = Random(7)
    for width in (16, 33, 80, 140):
        source = [random.choice(CODE_LINES) for _ in range(18)]
        if kind == "diff":
            source = [random.choice("+- ") + line for line in source[:-1]] + ["+end"]
            new, old = sum(r[0] in "+ " for r in source), sum(r[0] in "- " for r in source)
            lines = draw_diff("\n".join([f"@@ -95,{old} +95,{new} @@", *source]), width, PALETTE)
        else:
            lines = indent(draw_code("\n".join(source), "python", width, PALETTE), Segment("  "))
        starts = [n for n, line in enumerate(lines) if to_row(line).join is None] + [len(lines)]
        assert len(starts) == len(source) + 1, (width, kind)
        for _ in range(40):
            first = random.randrange(len(source))
            last = random.randrange(first, len(source))
            part = lines[starts[first] : starts[last + 1]]
            wanted = "\n".join(source[first : last + 1])
            gutter = random.randint(0, to_row(part[0]).skip)
            assert get_source_text(part, gutter, random.choice([None, 999])) == wanted, (width, kind, first, last)


def test_words_under_the_mouse():
    lines = document(user("m", "see src/auth/session.py:12, please", 0)).lines(1)
    text = "".join(s.text for s in lines[0])
    left, right = find_word(lines[0], text.index("auth"))
    assert text[left:right] == "src/auth/session.py:12"
    assert get_source_text(lines, left, right) == "src/auth/session.py:12"


def test_only_addresses_of_the_web_and_of_mail_are_links():
    assert parse_address("https://a.b/c?d=e&f=%20#g") == "https://a.b/c?d=e&f=%20#g"
    assert parse_address("mailto:a@b.c") == "mailto:a@b.c"
    assert parse_address("https://a.b/ü") == "https://a.b/%C3%BC"
    for bad in (
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "vscode://x",
        "https://",
        "http:///etc",
        "https://a b",
        "https://a\x1b]8;;x",
        "-x",
        "",
    ):
        assert parse_address(bad) is None
    assert trim_address("https://a.b/c).") == "https://a.b/c"
    assert trim_address("https://en.wikipedia.org/wiki/A_(b)") == "https://en.wikipedia.org/wiki/A_(b)"
    assert [parse_place(t) for t in ("src/a.py", "a.py:12", "a.py", "e.g", "x/y")] == [
        "src/a.py",
        "a.py",
        None,
        None,
        None,
    ]


def test_links_are_found_in_plain_text():
    style = PALETTE.text
    spans = add_links("see https://a.b/c, src/a.py:12 and 12:30", style, PALETTE.link)
    assert "".join(t for t, _ in spans) == "see https://a.b/c, src/a.py:12 and 12:30"
    assert [(t, get_target(s)) for t, s in spans if get_target(s)] == [
        ("https://a.b/c", ("url", "https://a.b/c")),
        ("src/a.py:12", ("file", "src/a.py")),
    ]


def test_what_a_tool_prints_has_links_too():
    call = ToolCallPart("c", "bash", {"command": "pytest"})
    output = "tests/a.py:12: AssertionError\nsee https://a.b/c"
    found = type(user("x", ""))("t", "t1", "r", "tool", (ToolResultPart("c", "bash", output, True),), 0)
    doc = document(assistant("m1", "", 1, (call,)), found, width=60)
    index = next(i for i, b in enumerate(doc.blocks) if b.is_foldable)
    doc.blocks[index].toggle()
    targets = [t for line in doc.lines(index) for s in line if (t := get_target(s.style))]
    assert targets == [("file", "tests/a.py"), ("url", "https://a.b/c")]


def test_nothing_of_a_link_reaches_the_terminal():
    text = "[x](https://a.b/\x1b]8;;https://evil\x07) <https://c.d> [y](javascript:x) [z](https://e.f/%1b%5d52)"
    doc = document(assistant("m1", text, 1), user("m2", "https://a.b/\x1b]8;;q\x1b\\", 2))
    for index in range(len(doc.blocks)):
        for line in doc.lines(index):
            raw = "".join(s.style.render(s.text) if s.style else s.text for s in line)
            assert "\x1b]" not in raw and "\x07" not in raw


def test_a_link_is_opened_without_a_shell_or_our_keys_by_nothing_of_the_workspace(tmp_path):
    tools, workspace = tmp_path / "tools", tmp_path / "w"
    for folder, name in ((tools, "wslview"), (tools, "open"), (workspace, "xdg-open")):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("")
        (folder / name).chmod(0o700)
    env = {"PATH": f".:{workspace}:{tools}"}

    def command(url: str, platform: str, env: dict[str, str] = env) -> list[str] | None:
        return desktop.find_browser_command(url, env, workspace, platform)

    assert command("https://a.b/;rm", "linux") == [str(tools / "wslview"), "https://a.b/;rm"]
    assert command("https://a.b", "darwin") == [str(tools / "open"), "https://a.b"]
    with pytest.raises(desktop.SaktiError):
        command("file:///etc/passwd", "linux")
    assert command("https://a.b", "linux", {"PATH": str(workspace)}) is None
    env |= {"OPENAI_API_KEY": "k", "DISPLAY": ":0", "XDG_X": "1"}
    assert desktop.make_browser_environment(env, workspace) == {
        "PATH": str(tools),
        "DISPLAY": ":0",
        "XDG_X": "1",
    }


def test_an_image_is_a_line_with_what_is_known():
    image = ImagePart("image/png", "A" * 4_000, "shot.png", 640, 480)
    message = user("m0", "look", 0)
    message = type(message)("m0", "t1", "r", "user", (TextPart("look"), image), 0)
    text = "".join(s.text for line in document(message).lines(2) for s in line)
    assert text.strip(" ·") == "▣ shot.png  640×480  3.0 kB"


async def test_copy_takes_the_last_answer_or_its_last_code_block(running, session):
    session.views.messages["t1"] = [user("m0", "please", 0), assistant("m1", ANSWER, 1), user("m2", "thanks", 2)]
    async with running((80, 40)) as (app, pilot):
        await pilot.press(*"/copy", "enter")
        await settle(app, pilot)
        assert app.clipboard == ANSWER
        await pilot.press(*"/copy code", "enter")
        await settle(app, pilot)
        assert app.clipboard == list_code_blocks(ANSWER)[-1] and app.clipboard in ANSWER
        await pilot.press(*"/copy nonsense", "enter")
        await settle(app, pilot)
        assert "'nonsense' is not one of answer, code" in chat_text(app)


async def test_copying_by_key_and_by_mouse(running, session):
    session.views.messages["t1"] = [
        user("m0", "please", 0),
        assistant("m1", ANSWER, 1),
        user("m2", "thanks\x1b]52;c;x", 2),
    ]
    async with running((80, 40)) as (app, pilot):
        chat = app.chat.transcript
        chat.focus()
        await pilot.press("y")
        assert app.clipboard == ANSWER.strip()
        assert "copied 82 lines" in screen_text(app)
        await pilot.press("[", "y")
        assert app.clipboard == "thanks␛]52;c;x"
        await pilot.press("[", "c")
        assert app.clipboard == CODE.strip("\n")
        await pilot.press("]", "c")  # no code in that message
        assert app.clipboard == CODE.strip("\n")
        await pilot.press("escape")
        assert app.focused is app.chat.prompt, "a chosen message is nothing to leave first"
        await pilot.press("f6", "G")
        await pilot.press("v", "k", "k", "k")
        assert "4 lines · y copies" in screen_text(app)
        await pilot.press("ctrl+c")
        assert app.clipboard.endswith("> quoted words\n\nyou  12:00\nthanks␛]52;c;x")
        await pilot.press("escape")
        assert chat.text_selection is None
        await pilot.press("v", "pageup", "y")
        assert "return 19" in app.clipboard and chat.text_selection is None
        # the mouse
        rows = screen_text(app).split("\n")
        y = next(i for i, row in enumerate(rows) if "sh · copy" in row)
        await pilot.click(offset=(rows[y].index("sh · copy") + 1, y))
        assert app.clipboard == "ls -l"
        y = next(i for i, row in enumerate(rows) if "quoted words" in row)
        x = rows[y].index("words")
        await pilot.click(offset=(x, y), times=2)
        await pilot.press("ctrl+c")
        assert app.clipboard == "words"
        await pilot.click(offset=(x, y), times=3)
        await pilot.press("ctrl+c")
        assert app.clipboard == "> quoted words"


async def test_a_selection_stays_on_its_words_while_what_is_above_gets_its_height(running, session):
    session.views.messages["t1"] = [assistant(f"m{n}", f"answer {n}\n\n{ANSWER}", n) for n in range(400)]
    async with running((60, 20)) as (app, pilot):
        chat = app.chat.transcript
        _, x, y = next((r, r.index("quoted"), i) for i, r in enumerate(screen_text(app).split("\n")) if "quoted" in r)
        await pilot.mouse_down(offset=(x, y))
        await pilot.hover(offset=(x + 5, y))
        await pilot.mouse_up(offset=(x + 5, y))
        for _ in range(40):
            chat.action_page_up()
            await settle(app, pilot)
        assert app.chat.view.oldest < 400
        await pilot.press("ctrl+c")
        assert app.clipboard == "quoted"


async def test_links_are_opened_by_click_and_by_key(running, session, monkeypatch, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x")
    text = "See [the docs](https://example.org/a), src/a.py:12 and [bad](vscode://x)."
    session.views.messages["t1"] = [assistant("m1", text, 1)]
    session.workspace.env = {"PATH": "/bin"}
    opened = []
    monkeypatch.setattr(desktop, "open_address", lambda url, env, workspace: opened.append(url) or True)
    async with running((100, 20)) as (app, pilot):
        rows = screen_text(app).split("\n")
        y = next(i for i, row in enumerate(rows) if "the docs" in row)
        await pilot.hover(offset=(rows[y].index("docs"), y))
        assert app.chat.status_line.hint == "https://example.org/a"
        await pilot.hover(offset=(1, 1))
        assert app.chat.status_line.hint == ""
        await pilot.click(offset=(rows[y].index("docs"), y))
        await settle(app, pilot)
        assert opened == ["https://example.org/a"]
        await pilot.click(offset=(rows[y].index("bad"), y))
        app.chat.transcript.focus()
        await pilot.press("l", "l", "enter")
        await settle(app, pilot)
        assert opened == ["https://example.org/a"]
        assert app.chat.prompt.text == "@src/a.py "


async def test_finding_in_the_whole_thread(running, session):
    def said(n):
        if n in (3, 500, 900):
            return "the Needle, twice: nee\u200bdle **needle** and\nNEEDLE"
        return f"some hay {n}"

    parts = (ToolCallPart("c", "bash", {"command": "grep"}),)
    thread = [user(f"m{n}", said(n), n) if n % 2 else assistant(f"m{n}", said(n), n) for n in range(1_000)]
    thread[700] = assistant("m700", "run", 700, parts)
    thread[701] = type(thread[0])(
        "m701", "t1", "r", "tool", (ToolResultPart("c", "bash", "a needle in the output"),), 0, index=701
    )
    session.views.messages["t1"] = thread
    async with running((90, 24)) as (app, pilot):
        chat = app.chat.transcript
        chat.focus()
        await pilot.press("/", *"needle")
        await settle(app, pilot)
        assert "10 in 4 messages" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "message 1 of 4" in screen_text(app) and chat.has_focus
        assert chat.place and chat._current_match[0].shows_message("m900")
        seen = []
        for key in ("n", "n", "enter", "n"):
            await pilot.press(key)
            await settle(app, pilot)
            seen.append(next(m.id for m in thread if chat._current_match[0].shows_message(m.id)))
            y = chat.document.top(chat.document.blocks.index(chat._current_match[0])) + chat._current_match[1]
            assert chat.scroll_offset.y <= y < chat.scroll_offset.y + chat.size.height
        assert seen == ["m700", "m500", "m3", "m3"]
        assert "needle in the output" in chat_text(app)
        styles = [s.style for s in chat.render_line(y - chat.scroll_offset.y) if "eedle" in s.text.lower() and s.style]
        assert any(s.bgcolor == PALETTE.mark.bgcolor or s.bgcolor for s in styles)
        await pilot.press("N")
        await pilot.press("/", "x")
        await settle(app, pilot)
        assert "no match in this thread" in screen_text(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert "find in this thread" not in screen_text(app) and chat._pattern_found is None and chat.has_focus
        await pilot.press("escape")
        assert app.chat.prompt.has_focus


async def test_the_store_finds_words_in_one_thread(store):
    def write(db):
        for thread in ("t1", "t2"):
            threads.create(db, threads.Thread(thread, "r", "", 0, 0))
        for n, (thread, text) in enumerate(
            [("t1", "100% Straße\nund  mehr"), ("t2", "straße"), ("t1", "100 of them"), ("t1", "STRASSE straße Straße")]
        ):
            message_store.append(db, type(user("x", ""))(f"m{n}", thread, "r", "user", (TextPart(text),), 0))

    await store.write(write)

    async def found(text):
        return [(p.message_id, p.index, p.count) for p in await store.read(message_store.find_text, "t1", text)]

    assert await found("straße") == [("m0", 0, 1), ("m3", 2, 2)]
    assert await found("100%") == [("m0", 0, 1)]
    assert await found("und mehr") == [("m0", 0, 1)]
    assert await found("_") == await found(" ") == await found("nowhere") == []
