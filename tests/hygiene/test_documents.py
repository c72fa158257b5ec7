"""README, help pages, changelog and the files in .github are short enough, and name only what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sakti.actions import registry
from sakti.actions.spec import JSON, Action
from sakti.cli import options, shell
from sakti.core.config import iter_names, load
from sakti.tui.chat.screen import list_chat_parts
from sakti.tui.keys import iter_bindings
from sakti.tui.screens.help import list_parts
from tests.hygiene.documents import FOR_CONTRIBUTORS, FOR_USERS, PAGES, ROOT, read_blocks, read_code_spans, read_links

TOPICS = (
    *(
        "agents",
        "approvals",
        "benchmarks",
        "configuration",
        "data",
        "headless",
        "hooks",
        "import",
        "instructions",
        "keys",
        "mcp",
    ),
    *("memory", "models", "sandbox", "scripting", "search", "secrets", "tasks", "troubleshooting", "trust", "undo"),
    "web",
)
KEPT_SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
each_user_document = pytest.mark.parametrize("path", FOR_USERS, ids=lambda p: p.name)
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)


def test_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1_500


def test_changelog_is_short_and_keeps_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    unreleased, _, first = text.partition("## [Unreleased]")[2].partition("## [0.1.0]")
    assert len(first.splitlines()) <= 60
    assert re.findall(r"^### (.+)$", first, re.MULTILINE) == ["Added"], "nobody had a version before it"
    assert set(re.findall(r"^### (.+)$", unreleased, re.MULTILINE)) <= set(KEPT_SECTIONS)


def test_every_topic_has_a_page() -> None:
    assert tuple(p.stem for p in PAGES) == TOPICS


@each_page
def test_a_page_begins_with_heading_and_summary(path: Path) -> None:
    heading, empty, summary, after = path.read_text("utf-8").splitlines()[:4]
    assert heading.startswith("# ") and not empty and not after
    assert re.fullmatch(r"[A-Z].{10,110}\.|sakti .{10,110}\.", summary)


@pytest.mark.parametrize("path", [*FOR_USERS, *FOR_CONTRIBUTORS, ROOT / "CHANGELOG.md"], ids=lambda p: p.name)
def test_links_lead_to_files(path: Path) -> None:
    assert [link for link in read_links(path) if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", [ROOT / "README.md", *FOR_CONTRIBUTORS], ids=lambda p: p.name)
def test_named_paths_exist(path: Path) -> None:
    named = [span for span in read_code_spans(path) if is_path(span)]
    assert [span for span in named if not exists(span, path)] == []


def test_the_workflow_runs_the_gate() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    commands = re.findall(r"run: (.+)$", text, re.MULTILINE)
    assert commands == [".ci/run"] and (ROOT / commands[0]).is_file()


def is_path(span: str) -> bool:
    """Return whether a code span names a file or folder of this repository."""
    if not re.fullmatch(r"\.?\w[\w./*-]*", span) or re.search(r"\b[A-Z]{4,}\b(?!\.md)", span):
        return False
    top = {path.name for path in ROOT.iterdir()}
    return span.endswith(".py") or ("/" in span and span.split("/")[0] in top)


def exists(span: str, document: Path) -> bool:
    return any(list(base.glob(span.rstrip("/"))) for base in (ROOT, ROOT / "sakti", document.parent))


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ("sakti/agent/loop.py", True),
        ("session/gone.py", True),
        (".ci/run", True),
        ("tests/fakes", True),
        ("sakti/actions/NAME.py", False),
        ("docs.example.org", False),
        ("sakti help", False),
    ],
)
def test_a_path_is_recognised(span: str, expected: bool) -> None:
    assert is_path(span) is expected


@each_user_document
def test_named_commands_of_the_chat_exist(path: Path) -> None:
    commands = set(registry.chat_commands())
    typed = [re.match(r"/([a-z-]+)(?![\w/-])", span) for span in read_code_spans(path)]
    assert {match[1] for match in typed if match} - commands - {"tmp"} == set()


@each_user_document
def test_named_commands_of_the_shell_exist_with_their_options(path: Path) -> None:
    spans = [span for span in read_code_spans(path) if span.startswith("sakti ")]
    lines = [line for block in read_blocks(path, "sh") for line in block.splitlines() if line.startswith("sakti ")]
    assert [text for text in (*spans, *lines) if (problem := problem_of(text)) and print(problem) is None] == []


def problem_of(command: str) -> str:
    """Return what is wrong with a command line of sakti, as far as names of commands and options go."""
    words = re.sub(r'"[^"]*"?', "TEXT", command.partition(" -- ")[0]).split()[1:]
    flags = {word.partition("=")[0] for word in words if word.startswith("-") and len(word) > 1}
    if words[0].startswith("-") or words[0] == "TEXT":
        args = (*options.CHAT, options.PRINT, options.INSTALL, options.SHOW, *shell_run().args)
        usual = {f for arg in args for f in arg.flags}
        return f"unknown options {flags - usual}" if flags - usual else ""
    action = action_of(words)
    if action is None:
        return "" if is_group(words) else f"unknown command {words[0]}"
    known = {f for arg in (*action.args, JSON) for f in arg.flags} | {"--help"}
    return f"unknown options {flags - known}" if flags - known else ""


def shell_run() -> Action:
    subject = shell.find_subject("run")
    assert subject is not None
    return subject.actions[0]


def is_group(words: list[str]) -> bool:
    subject = shell.find_subject(words[0])
    return len(words) == 1 and subject is not None and subject.group(words[0]) is not None


def action_of(words: list[str]) -> Action | None:
    subject = shell.find_subject(words[0])
    if subject is None:
        return None
    actions = {a.shell: a for a in subject.actions}
    return actions.get(" ".join(words[:2])) or actions.get(words[0])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("sakti run --output json", ""),
        ('sakti "PROMPT"', ""),
        ("sakti tasks", ""),
        ("sakti run --outptu json", "unknown options {'--outptu'}"),
        ("sakti task ready", "unknown command task"),
        ("sakti tasks reday", "unknown command tasks"),
        ("sakti --plian", "unknown options {'--plian'}"),
    ],
)
def test_a_wrong_command_line_is_recognised(command: str, expected: str) -> None:
    assert problem_of(command) == expected


@each_user_document
def test_named_settings_exist(path: Path) -> None:
    settings = set(iter_names())
    groups = "|".join(sorted({name.partition(".")[0] for name in settings if "." in name} - {"keys", "providers"}))
    named = [span for span in read_code_spans(path) if re.fullmatch(rf"(?:{groups})\.[a-z_.]+", span)]
    assert [n for n in named if n not in settings and not any(s.startswith(f"{n}.") for s in settings)] == []


@each_user_document
def test_examples_of_settings_are_valid(path: Path, tmp_path: Path) -> None:
    for number, block in enumerate(read_blocks(path, "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        assert load(user_file=file).warnings == ()


def test_ids_of_keys_exist() -> None:
    ids = {binding.id for _, owner in list_parts(list_chat_parts()) for binding in iter_bindings(owner)}
    spans = read_code_spans(ROOT / "sakti/help/keys.md")
    groups = {str(i).partition(".")[0] for i in ids}
    named = {span for span in spans if re.fullmatch(r"[a-z]+\.[a-z-]+", span) and span.partition(".")[0] in groups}
    assert len(named) > 30 and named <= ids
