"""Splitting, wrapping, Markdown, diffs and blocks, without a widget."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pygments.lexers import get_all_lexers
from rich.cells import cell_len
from rich.style import Style

from sakti.core.text import describe_paste, sanitize_text
from sakti.core.types import ToolCallPart, ToolResultPart
from sakti.tui.palette import make_palette
from sakti.tui.transcript.blocks import ChunkBlock, TextBlock, describe_size
from sakti.tui.transcript.chunks import CAP, Splitter, split
from sakti.tui.transcript.code import count_changes, draw_code, draw_diff, highlight, parse_diff
from sakti.tui.transcript.document import Document
from sakti.tui.transcript.markdown import draw_markdown
from sakti.tui.transcript.selection import describe_amount
from sakti.tui.transcript.tool import ToolBlock
from sakti.tui.transcript.wrap import draw_plain, fit_width, fold_line, fold_words, measure_line, shorten, wrap

PALETTE = make_palette({}, True)
NULL = Style.null()
MARKDOWN = st.lists(
    st.sampled_from(
        [
            "word ",
            "**bold** ",
            "\n",
            "\n\n",
            "```python\n",
            "```\n",
            "~~~\n",
            "- item\n",
            "  - nested\n",
            "1. one\n",
            "    code\n",
            "| a | b |\n",
            "|---|---|\n",
            "> quote\n",
            "# Head\n",
            "`x`",
            "日本語",
            "👩‍👩‍👧",
            "e\u0301",
            "\t",
            " ",
            "[a](http://b)",
            "<b>",
        ]
    ),
    max_size=60,
).map("".join)


def text_of(lines):
    return ["".join(s.text for s in line) for line in lines]


@given(MARKDOWN, st.integers(1, 7))
@settings(max_examples=150, deadline=None)
def test_chunks_and_tail_are_the_input(text, step):
    splitter = Splitter()
    done = []
    for at in range(0, len(text), step):
        done += splitter.feed(text[at : at + step])
        tail = splitter.tail()
        assert "".join(c.source for c in done) + (tail.source if tail else "") == text[: at + step]
    done += splitter.finish()
    assert "".join(c.source for c in done) == text
    assert splitter.tail() is None


@given(MARKDOWN)
@settings(max_examples=60, deadline=None)
def test_how_a_stream_is_cut_does_not_matter(text):
    whole = split(text)
    splitter = Splitter()
    letters = [c for letter in text for c in splitter.feed(letter)] + splitter.finish()
    assert [c.source for c in letters] == [c.source for c in whole]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 100_000,
        "word " * 20_000,
        "```\n" + "line\n" * 20_000,
        "row\n" * 20_000,
        "\n" * 50_000,
        "- item\n\n  more\n" * 5_000,
        "> " * 20_000,
    ],
)
def test_the_open_end_stays_small(text):
    splitter = Splitter()
    largest = 0
    for at in range(0, len(text), 500):
        splitter.feed(text[at : at + 500])
        tail = splitter.tail()
        largest = max(largest, len(tail.source) if tail else 0)
    assert largest <= CAP + 1_000


def test_blocks_end_at_blank_lines_outside_fences():
    chunks = split("one\n\ntwo\n\n```py\na\n\nb\n```\nthree\n")
    assert [c.source for c in chunks] == ["one\n\n", "two\n\n", "```py\na\n\nb\n```\n", "three\n"]
    assert (chunks[2].language, chunks[2].code) == ("py", "a\n\nb")


def test_a_loose_list_stays_one_block():
    assert len(split("1. one\n\n   more\n\ntext\n")) == 2


@given(st.text(alphabet=st.sampled_from("ab 日本語👩‍👩‍👧e\u0301\u200b\ufe0f🇩🇪\t-"), max_size=120), st.integers(4, 40))
@example("\u200d\u200daaa日", 4)
@example("bb-e🇩 b👩\u200d \u200d👩b", 4)
@settings(max_examples=200, deadline=None)
def test_no_line_is_wider_than_asked(text, width):
    text = sanitize_text(text).expandtabs(4)
    for line in [*wrap([(text, NULL)], width), *fold_line([(text, NULL)], width), *draw_plain(text, NULL, width)]:
        assert measure_line(line) <= width


def test_wrapping_keeps_every_word():
    text = "the quick brown fox jumps over the lazy dog"
    assert " ".join(text_of(wrap([(text, NULL)], 12))) == text


def test_fit_and_shorten_count_cells():
    assert cell_len(fit_width("日本語テスト", 7)) == 7
    assert shorten("short", 9) == "short"
    assert shorten("much too long", 6) == "much …"
    assert fit_width("x", 0) == ""


@given(MARKDOWN, st.integers(8, 60))
@settings(max_examples=150, deadline=None)
def test_markdown_never_breaks_the_layout(text, width):
    for line in draw_markdown(sanitize_text(text), width, PALETTE):
        assert measure_line(line) <= max(width, 8) + 4  # a table of many columns keeps one cell each
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", "".join(s.text for s in line))


def test_markdown_shows_lists_tables_and_quotes():
    lines = text_of(draw_markdown("- a\n  - b\n\n3. c\n\n> q\n\n| x | y |\n|---|--:|\n| 1 | 22 |\n", 40, PALETTE))
    assert lines == ["• a", "  ◦ b", "", "3. c", "", "▌ q", "", "x │  y", "──┼───", "1 │ 22"]


def test_a_link_shows_where_it_leads():
    assert text_of(draw_markdown("[docs](https://a.b/c)", 60, PALETTE)) == ["docs (https://a.b/c)"]


def test_code_keeps_its_lines_and_language_does_not_matter():
    for language in ("python", "nothing-known", ""):
        rows = [t.strip() for t in text_of(draw_code("def f():\n\treturn 1\n\nx", language, 40, PALETTE))]
        assert rows == ["def f():", "return 1", "", "x"]


def test_diff_counts_and_cuts():
    diff = "--- a\n+++ b\n@@ -8,2 +8,3 @@\n same\n-old\n+new\n+more\n"
    assert count_changes(diff) == (2, 1)
    shown = ["8   same", "9 − old", "9 + new", "10 + more"]
    assert [t.strip() for t in text_of(draw_diff(diff, 20, PALETTE))] == shown
    assert text_of(draw_diff(diff, 20, PALETTE, 2, " · ctrl+o"))[-1] == "… 2 more lines · ctrl+o"
    assert text_of(draw_diff(diff, 20, PALETTE, 3))[-1].strip() == "10 + more", "no note that is as long as the rest"
    assert [t.strip() for t in text_of(draw_diff(diff, 14, PALETTE))] == ["same", "− old", "+ new", "+ more"]


def test_a_diff_has_the_colours_of_its_language_and_ends_with_what_changed():
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,3 @@\n a\n-x = 'old'\n+x = 'new'\n \n"
    lines = draw_diff(diff, 60, PALETTE)
    assert len(lines) == 3, "a blank line of context at the end shows nothing"
    colours = {s.text: s.style for s in lines[2] if s.style}
    text, style = next((t, s) for t, s in colours.items() if "new" in t)
    assert style.color == PALETTE.string.color and style.bgcolor == PALETTE.added.bgcolor, text
    plain = draw_diff(diff.replace("x.py", "x.nothing-known"), 60, PALETTE)
    assert not any(s.style and s.style.color == PALETTE.string.color for line in plain for s in line)


def test_lines_of_code_are_broken_at_words_and_nothing_is_lost():
    row = "    return first_name(argument, other) or second_name(argument, other) or third"
    lines = text_of(fold_words([(row, NULL)], 40))
    assert lines == ["    return first_name(argument, other) ", "or second_name(argument, other) or third"]
    assert text_of(fold_words([("x" * 25, NULL)], 10)) == ["x" * 10, "x" * 10, "x" * 5]


_SIGNS = st.sampled_from(["a", "b", ", ", " ", "日", "()", "e\u0301", "👩‍👩‍👧"])


@given(st.lists(_SIGNS, max_size=60), st.integers(2, 30))
@settings(max_examples=100, deadline=None)
def test_broken_lines_together_are_the_line(signs, width):
    text = sanitize_text("".join(signs))
    first = sanitize_text("".join(signs[:9]))  # colours change between signs, never within one
    lines = fold_words([(first, NULL), (text[len(first) :], NULL)], width)
    assert "".join(text_of(lines)) == text
    assert all(measure_line(line) <= width for line in lines)


def test_prose_ends_at_a_column_and_code_may_go_on():
    words, code = "word " * 60, "x" * 130
    block = ChunkBlock(chunk=split(words)[0])
    assert max(len(t) for t in text_of(block.render(160, PALETTE))) <= 100
    code = ChunkBlock(chunk=split(f"```\n{code}\n```\n")[0])
    assert any("x" * 130 in t for t in text_of(code.render(160, PALETTE)))


def test_a_fence_of_a_diff_is_coloured():
    lines = draw_code("-old\n+new\n same", "diff", 30, PALETTE)
    colours = [next(s.style.color for s in line if s.text.strip()) for line in lines]
    assert colours[:2] == [PALETTE.removed.color, PALETTE.added.color]


# Markdown that is easily lost: a text with the words to look for as `{}`
FORMS = [
    "{} ", "\n", "\n\n", "**{}** ", "*{}*", "{}*{}*{} ", "__{}__ ", "_{}_ ", "~~{}~~ ", "`{}` ", "`{}  {}` ", "  {}",
    "# {}\n", "{}\n===\n", "> {}\n", "- {}\n", "  - {}\n", "- [x] {}\n", "3. {}\n", "1. {}\n", "7) {}\n",
    "```console {}\n$ {}\n```\n", "```{}\n", "    ```\n", "~~~\n", "    {}\n", "<!-- {} -->\n", "<b {}='1'>{}</b>",
    "[{}]: https://x.io/{} '{}'\n", "[{}](https://x.io/{} '{}')", "[{}][1] ", "![{}]({}.png '{}')", "<https://{}.io> ",
    "| {} | {} |\n|---|---|\n| {} | {} | {} |\n", "| {}\n|--\n", "日本{}語", "e\u0301{}", "&amp; {}\\\n", "\\[{}\\] ",
    "---\n", "[^1]: {}\n", "{}&#x41;", "\t{}\n", "[{}](/ü{})",
]  # fmt: skip


@given(st.lists(st.sampled_from(FORMS), max_size=25), st.integers(30, 110))
@settings(max_examples=150, deadline=None)
def test_markdown_shows_every_word(forms, width):
    words = (f"w{n}w" for n in itertools.count(10))
    text = re.sub(r"\{\}", lambda _: next(words), "".join(forms))
    wanted = Counter(re.findall(r"w\d+w|[日本語ü]", text))
    for block in (ChunkBlock(chunk=chunk) for chunk in split(sanitize_text(text))):
        above = [block.render_above(width, PALETTE)] if block.gap else []
        lines = text_of([*above, *block.render(width, PALETTE)])
        assert all(cell_len(line) <= max(width, 10) for line in lines)
        wanted.subtract(re.findall(r"w\d+w|[日本語ü]", re.sub(r"[\s▌]", "", "".join(lines))))
    assert not +wanted, text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see [1]\n\n[1]: https://x.io", ["see [1]", "[1]: https://x.io"]),
        ("| a |\n|---|\n| 1 | 2 |", ["| a |", "|---|", "| 1 | 2 |"]),
        ("3. c\n2. b\n1. a", ["3. c", "2. b", "1. a"]),
        ("1) a\n1) b", ["1) a", "2) b"]),
        ("call __init__ or a*b*c or *d*", ["call __init__ or a*b*c or d"]),
        ("`a  b` and  c", ["a  b and  c"]),
        ("![cat](cat.png)", ["▣ cat (cat.png)"]),
        ("```md\n    ```\nx\n```", ["    ```", "x"]),
    ],
)
def test_markdown_shows_what_it_cannot_draw(text, shown):
    chunks = [ChunkBlock(chunk=chunk) for chunk in split(text)]
    lines = [t.rstrip() for chunk in chunks for t in text_of(chunk.render(60, PALETTE))]
    assert [t[2:].removeprefix(" ") if "```" in text else t[2:] for t in lines if "copy" not in t] == shown


def test_no_highlighter_changes_text():
    aliases = [aliases[0] for _, aliases, _, _ in get_all_lexers(plugins=False) if aliases]
    texts = itertools.cycle(
        ["$ pip install 漢字\n\n> x = 'ä'", "\n+ a\n- {{ b }}\n", '<i>&amp; 1 "open', "In [1]: a  \n\n"]
    )
    for alias, text in zip(aliases, texts, strict=False):
        rows = highlight(text, alias, PALETTE)
        assert "\n".join("".join(t for t, _ in row) for row in rows) == text, alias


def test_a_diff_shows_every_line():
    lines = ["-- a comment", "++i;", "-x", "+++ y", "@@ z", "index w", "", "plain", "日本"]
    signs = "-+ "
    hunk = [f"{signs[n % 3]}{line}" for n, line in enumerate(lines * 3)]
    old, new = (sum(row[0] in kinds for row in hunk) for kinds in ("- ", "+ "))
    diff = "\n".join(
        ["--- a.sql", "+++ b.sql", f"@@ -1,{old} +1,{new} @@", *hunk, "@@ -90 +90 @@", "--- c", "+++ d", ""]
    )
    rows = [f"{row.kind}{row.text}" for row in parse_diff(diff) if row.kind != "@"]
    assert rows == [*hunk, "--- c", "+++ d"]
    assert count_changes(diff) == (10, 10)
    drawn = "".join(text_of(draw_diff(diff, 60, PALETTE)))
    assert all(line in drawn for line in lines)


def made(content="", name="bash", error=False, **details):
    tool = ToolBlock(call_id="c")
    tool.start(ToolCallPart("c", name, {"command": "make"} if name == "bash" else {"pattern": "foo.*", "path": "src"}))
    tool.finish(ToolResultPart("c", name, content, error, details), details.get("duration_ms", 0))
    return tool


def shown(tool, width=70):
    return [t.rstrip() for t in text_of(tool.render(width, PALETTE))]


def test_a_tool_line_says_what_ran_and_how_it_went():
    tool = ToolBlock(call_id="c")
    tool.start(ToolCallPart("c", "bash", {"command": "pytest -q"}), 10.0)
    assert shown(tool)[0].startswith("  ● bash  pytest -q") and shown(tool)[0].endswith("  running")
    assert tool.tick(13.4) and not tool.tick(13.9)
    assert shown(tool)[0].endswith("running 3 s")
    tool.set_state("waiting", 14.0)
    assert shown(tool)[0].startswith("  ◌ bash") and shown(tool)[0].endswith("waiting for you")
    tool.finish(ToolResultPart("c", "bash", "boom\n[exit code 2]", True, {"exit_code": 2}), 1_900)
    assert shown(tool)[0].startswith("  ✗ bash  pytest -q") and shown(tool)[0].endswith("exit 2 · 1.9 s")
    assert shown(tool)[1:] == ["      boom"], "what the line says already is not said again"
    assert measure_line(tool.render(300, PALETTE)[0]) == 100


def test_a_command_that_runs_shows_its_last_lines():
    tool = ToolBlock(call_id="c")
    tool.start(ToolCallPart("c", "bash", {"command": "make"}))
    tool.add_output("".join(f"row {n}\n" for n in range(40)))
    assert shown(tool)[1:] == [f"      row {n}" for n in range(35, 40)]


def test_a_failure_shows_its_end_a_short_success_all_and_a_long_one_names_its_key():
    failed = shown(made("".join(f"row {n}\n" for n in range(30)), error=True, exit_code=1))
    assert failed[1] == "      … 18 lines above · ctrl+o" and failed[-1] == "      row 29"
    assert shown(made("one\ntwo"))[1:] == ["      one", "      two"]
    long = made("row\n" * 1_000)
    assert shown(long)[1:] == [] and shown(long)[0].endswith("1,000 lines · ctrl+o ▸")
    long.toggle()
    assert len(shown(long)) > 200 and "ctrl+o" not in shown(long)[0]
    assert shown(made("a", matches=12, name="grep"))[0].endswith("12 matches ▸")
    assert shown(made("x", name="read"))[1:] == [], "only commands print for people"
    assert shown(made("No such folder: src", name="grep", error=True))[1:] == ["      No such folder: src"]
    assert "50.0 MB" in shown(made("head … tail", characters=50_000_000))[0]


def test_what_the_user_ran_is_shown_whole_and_folds_by_hand():
    tool = ToolBlock(own=True, name="bash")
    tool.finish(ToolResultPart("c", "bash", "".join(f"row {n}\n" for n in range(300)), False, {}), 0)
    assert len(shown(tool)) == 301
    tool.toggle()
    assert len(shown(tool)) == 1
    tool.toggle()
    assert shown(tool)[-1] == "      row 299"


ASKED = {"questions": [
    {"question": "Which?", "header": "Db", "options": [{"label": "SQLite"}, {"label": "Redis"}], "multiple": True}
]}  # fmt: skip


def ask_user(content: str, **details: object) -> ToolBlock:
    tool = ToolBlock(call_id="c")
    tool.start(ToolCallPart("c", "ask_user", ASKED))
    tool.finish(ToolResultPart("c", "ask_user", content, details=details), None)
    return tool


def test_a_declined_question_is_not_shown_as_done():
    tool = ask_user("The user declined to answer.", declined=True)
    [head] = shown(tool)
    assert head.startswith("  ⊘ ask_user  Which?") and head.endswith("declined")
    tool.toggle()
    assert [line.strip() for line in shown(tool)[1:]] == ["Which?", "○ SQLite", "○ Redis"]


def test_the_answer_to_a_question_is_in_its_line_and_among_its_options():
    tool = ask_user('{"answers": []}', answers=[{"question": "Which?", "choices": ["Redis"], "text": "and files"}])
    [head] = shown(tool)
    assert head.startswith("  ✓ ask_user  Which?") and head.endswith("Redis, and files")
    tool.toggle()
    assert [line.strip() for line in shown(tool)[1:]] == ["Which?", "○ SQLite", "● Redis", "● and files"]


def test_a_plan_that_was_sent_back_is_not_shown_as_done():
    tool = ToolBlock(call_id="c")
    tool.start(ToolCallPart("c", "present_plan", {"title": "T", "steps": []}))
    tool.finish(ToolResultPart("c", "present_plan", "…", details={"note": "smaller"}), None)
    assert shown(tool)[0].startswith("  ⊘ present_plan  T") and shown(tool)[0].endswith("keep planning: smaller")


def test_a_denied_call_is_no_failure():
    tool = made("The user denied this call.", error=True, denied="use pnpm", duration_ms=9_000)
    assert shown(tool)[0].startswith("  ⊘ bash  make") and shown(tool)[0].endswith("denied: use pnpm")
    assert len(shown(tool)) == 1


def test_a_tool_that_prints_without_end_keeps_the_end():
    tool = ToolBlock(call_id="c", open=True)
    tool.start(ToolCallPart("c", "bash", {"command": "yes"}))
    for number in range(300):
        tool.add_output(f"{number}\n" * 500)
    assert len(tool.output) <= 64_000
    lines = text_of(tool.render(60, PALETTE))
    assert len(lines) < 260
    assert lines[-1].strip() == "299"


def test_unreadable_arguments_are_shown_as_written():
    tool = ToolBlock(call_id="c", open=True)
    tool.start(ToolCallPart("c", "edit", None, '{"path": "a'))
    assert '{"path": "a' in text_of(tool.render(60, PALETTE))[0]


def test_very_long_text_is_folded_with_its_size():
    block = TextBlock(text="word " * 10_000)
    assert "kB in all" in text_of(block.render(80, PALETTE))[-1]
    folded = len(block.render(80, PALETTE))
    block.toggle()
    assert len(block.render(80, PALETTE)) > folded * 3


@given(st.lists(st.integers(0, 400), max_size=30), st.integers(10, 90), st.integers(10, 90))
@settings(max_examples=50, deadline=None)
def test_the_document_finds_every_line(sizes, width, other):
    document = Document(PALETTE, width)
    document.append(*(ChunkBlock(chunk=split("word " * n)[0] if n else split("x")[0]) for n in sizes))
    for w in (width, other):
        document.restyle(width=w)
        for index in range(len(sizes)):
            document.measure(index)
        places = [document.locate(y) for y in range(document.height)]
        assert places == [(i, n) for i in range(len(sizes)) for n in range(document.block_height(i))]
        assert document.locate(document.height) is None
        assert document.locate(-1) is None


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_the_lines_of_an_output_are_counted_alike_wherever_their_number_is_shown(end):
    output = "\n".join(f"row {n}" for n in range(2_502)) + end
    block = ToolBlock(name="bash")
    block.start(ToolCallPart("c", "bash", {"command": "seq 2502"}))
    block.finish(ToolResultPart("c", "bash", output), 20)
    for size in (block.size, describe_amount(output), describe_size(output), describe_paste(output)):
        assert "2,502 lines" in size or size == "pasted 2502 lines"
    block.toggle()
    rest = next(s.text for line in block.render(80, make_palette({}, True)) for s in line if "above" in s.text)
    assert rest.startswith("… 2,302 lines above")
