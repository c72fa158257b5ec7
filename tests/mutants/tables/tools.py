"""Recall and working memory as tools."""

from tests.mutants.apply import Mutant as M

MUTANTS = (
    M("recall-next", "sakti.memory.recall:recall", "max(indexes) < total - 1", "max(indexes) < total"),
    M("recall-page", "sakti.memory.recall:_read_page", "start = first + page * PAGE_MESSAGES", "start = first"),
    M(
        "recall-back",
        "sakti.memory.recall:_read_page",
        "before = first + (page + 1) * PAGE_MESSAGES",
        "before = first + page * PAGE_MESSAGES",
    ),
    M(
        "recall-limit",
        "sakti.memory.recall:_select_fitting_rows",
        "if shown and tokens + size > request.limit_tokens:",
        "if False:",
    ),
    M(
        "recall-thinking",
        "sakti.memory.recall:_describe_part",
        '        case ThinkingPart() | ContextPart():\n            return "", ""',
        '        case ThinkingPart(text):\n            return "text", text',
    ),
    M("recall-offset", "sakti.memory.recall:_read_part", "rest = text[max(0, offset) :]", "rest = text"),
    M(
        "recall-group-first",
        "sakti.memory.recall:_resolve_place",
        "return (meant.thread_id, meant.first, meant.last), others",
        "return (meant.thread_id, meant.last, meant.last), others",
        by="tests/unit/memory/test_shared.py::test_recall_pages_through_the_thread_that_is_meant",
    ),
    M(
        "page-section-lost",
        "sakti.memory.page_content:merge_sections",
        "out[place] = (out[place][0], body)",
        "del out[place]",
    ),
    M(
        "page-section-new",
        "sakti.memory.page_content:merge_sections",
        "out.insert(0 if not heading else len(out), (heading, body))",
        "pass",
    ),
    M("page-fence", "sakti.memory.page_content:split_sections", "fenced = not fenced", "pass"),
    M(
        "page-null",
        "sakti.memory.page_content:merge_json",
        "            out.pop(key, None)",
        "            out[key] = None",
    ),
    M(
        "page-depth",
        "sakti.memory.page_content:merge_json",
        'cast("Json", old) if isinstance(old, dict) else {}',
        "{}",
    ),
    M("page-limit", "sakti.memory.page_content:check_size", "if tokens > LIMIT_TOKENS:", "if False:"),
    M(
        "page-schema",
        "sakti.memory.pages:WorkingPage.update",
        "            check_schema(page, self.schema)",
        "            pass",
    ),
    M("page-note-lost", "sakti.memory.pages:WorkingPage.add_note", "{body}{chr(10)}{line}", "{line}"),
    M(
        "page-same-written",
        "sakti.memory.pages:WorkingPage.update",
        "if not changed or (replace and page == before):",
        "if False:",
    ),
)
