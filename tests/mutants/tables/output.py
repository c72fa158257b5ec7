"""What models' answers become: lines of a log."""

from tests.mutants.apply import Mutant as M

MUTANTS = (
    M(
        "parse-degenerate-never",
        "sakti.memory.log.parse:detect_degenerate_repetition",
        "if size < _SHORTEST:",
        "if True:",
    ),
    M(
        "parse-degenerate-lines",
        "sakti.memory.log.parse:detect_degenerate_repetition",
        "len(long) >= _MIN_LINES and",
        "False and",
    ),
    M(
        "parse-long-line",
        "sakti.memory.log.parse:sanitize_observation_lines",
        "if dates.count_utf16(line) > MAX_LINE else line",
        "if False else line",
    ),
    M("parse-task-lost", "sakti.memory.log.parse:parse_observer_output", "_first(_TASK, text)", "None"),
    M("parse-title-lost", "sakti.memory.log.parse:parse_observer_output", "_first(_TITLE, text)", "None"),
    M(
        "parse-garbage-kept",
        "sakti.memory.log.parse:parse_observer_output",
        'return Parsed("", degenerate=True)',
        "pass",
    ),
    M(
        "parse-reflector-garbage-kept",
        "sakti.memory.log.parse:parse_reflector_output",
        'return Parsed("", degenerate=True)',
        "pass",
    ),
    M("parse-one-block", "sakti.memory.log.parse:_join_observations", "for b in blocks if", "for b in blocks[:1] if"),
    M(
        "parse-lists-lost",
        "sakti.memory.log.parse:_join_observations",
        "if items else otherwise",
        "if False else otherwise",
    ),
    M("parse-section-stays", "sakti.memory.log.parse:take_sections", "rest = section.sub(take, text)", "rest = text"),
    M("parse-anchors-stay", "sakti.memory.log.parse:clean", "text = strip_ephemeral_anchor_ids(text)", "pass"),
    M(
        "parse-tags-stay",
        "sakti.memory.log.parse:clean",
        'while (bare := _OUR_TAGS.sub("", text)) != text:',
        "while (bare := text) != text:",
    ),
    M(
        "parse-control-characters",
        "sakti.memory.log.parse:clean",
        '_HIDDEN.sub("", text.replace("\\r\\n", "\\n"))',
        'text.replace("\\r\\n", "\\n")',
        by="tests/unit/memory/test_answers.py::test_no_hidden_character_is_stored",
    ),
    M("parse-fence-stays", "sakti.memory.log.parse:clean", "while len(lines) >= 2 and", "while False and"),
    M(
        "parse-anchor-nested",
        "sakti.memory.log.parse:inject_anchor_ids",
        "top, nested = max(top, 1), nested + 1",
        "top, nested = max(top, 1), nested",
    ),
    M(
        "lines-nested-depth",
        "sakti.memory.log.lines:_parse_line",
        'len(match["indent"].replace("\\t", "  ")) // 2',
        "0",
    ),
    M("lines-date-lost", "sakti.memory.log.lines:iter_rows", "date = header[1].strip()", "pass"),
    M("lines-number-of-line", "sakti.memory.log.lines:iter_rows", "number += 1", "number += 2"),
    M(
        "lines-corrected-other",
        "sakti.memory.log.lines:apply_corrections",
        "changes.get(number, match",
        "changes.get(number + 1, match",
    ),
    M(
        "lines-corrected-forgets-all",
        "sakti.memory.log.lines:apply_corrections",
        "if content is not None:",
        "if content is not None and not changes:",
    ),
    M(
        "lines-empty-date",
        "sakti.memory.log.lines:apply_corrections",
        "if not _is_header(line) or",
        "if True or",
    ),
    M("lines-section-twice", "sakti.memory.log.lines:with_sections", "if row.content not in have:", "if True:"),
    M("lines-line-numbers", "sakti.memory.log.lines:find_references", "        if first:\n", "        if last:\n"),
    M(
        "faithful-dropped-lines",
        "sakti.memory.observe.faithfulness:find_losses",
        'row.priority == "high"',
        'row.priority == "low"',
    ),
    M(
        "faithful-dropped-paths",
        "sakti.memory.observe.faithfulness:find_losses",
        "if not have.has(str(p))",
        "if have.has(str(p))",
    ),
    M(
        "faithful-reworded",
        "sakti.memory.observe.faithfulness:is_represented",
        "return not weights or",
        "return bool(weights) and",
    ),
)
