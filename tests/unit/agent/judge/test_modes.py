"""One table: the judge does what the help page of approvals says."""

from __future__ import annotations

import re
from pathlib import Path

from sakti.agent.judge import policy, programs

PAGE = Path(__file__).parents[4] / "sakti/help/approvals.md"


def test_the_help_page_shows_the_table_of_modes() -> None:
    words = {"allow": "free", "ask": "asks", "deny": "refuses"}
    table = PAGE.read_text("utf-8").partition("| to | `plan` | `ask` | `edits` | `auto` |\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.split("\n")[1:]]
    assert [row[1:] for row in rows] == [[words[v] for v in verdicts] for verdicts in policy.MODE_TABLE.values()]


def listed(lead: str) -> set[str]:
    """The words that the help page lists behind some words."""
    (words,) = re.findall(rf"- {re.escape(lead)}\s+`([^`]+)`", PAGE.read_text("utf-8"))
    return set(words.split())


def test_the_help_page_names_what_runs_free_without_a_sandbox() -> None:
    names = programs._index_tables()
    forms = {n: programs.find_program(n).reads for n in names}
    reading = {n for n, form in forms.items() if form is not None and not form.sandboxed}
    assert listed("Programs that read:") == reading, f"it should be: {' '.join(sorted(reading))}"
    tell = {n for n in names if programs.find_program(n).tells_version}
    assert listed("Only for their version or help:") == tell, f"it should be: {' '.join(sorted(tell))}"
    commands = programs.find_program("git").commands
    entries = {n: c for names, c in commands.items() for n in names.split()}
    reading = {n for n, c in entries.items() if c.reads is not None or any(x.reads for x in c.commands.values())}
    reading |= {"config"}  # judged by its arguments
    assert listed("Commands of git that read or list:") == reading, f"it should be: {' '.join(sorted(reading))}"


def test_the_help_page_names_what_may_edit_without_a_sandbox() -> None:
    page = " ".join(PAGE.read_text("utf-8").split())
    (words,) = re.findall(r"may also write into ordinary files [^`]+`>` and `>>`, and `([^`]+)`", page)
    forms = {n: programs.find_program(n).edits for n in programs._index_tables()}
    editing = {n for n, form in forms.items() if form is not None and not form.sandboxed}
    assert set(words.split()) == editing, f"it should be: {' '.join(sorted(editing))}"
    (inside,) = re.findall(r"inside a sandbox, `(\w+)` may remove single files", page)
    assert {n for n, form in forms.items() if form is not None and form.sandboxed} == {inside}
    (commands,) = re.findall(r"and `git (add`.+?) may change them", page)
    known = {n for names, c in programs.find_program("git").commands.items() if c.edits for n in names.split()}
    assert {w.split()[0] for w in re.findall(r"[\w -]+", commands) if w.strip(" -")} == known


def test_modes_go_from_strict_to_free() -> None:
    for kind, verdicts in policy.MODE_TABLE.items():
        plan, *strict = (policy.STRICTNESS.index(v) for v in verdicts)
        assert strict == sorted(strict, reverse=True)
        assert plan >= strict[0] or kind == "work", "tests are free where they can change nothing"
        assert policy.verdict_for_kind(kind, "plan") == verdicts[0] or policy.verdict_for_kind(kind, "plan") == "deny"
