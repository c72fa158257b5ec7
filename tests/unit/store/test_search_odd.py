"""Odd queries: syntax of FTS5 and SQL, every script, nothing, too much, control characters. None raises."""

from __future__ import annotations

import itertools

import pytest

from sakti.core.types import Message, TextPart, Thread, ToolResultPart
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.search.search import Scope, search
from sakti.store.threads import messages, threads

_SYNTAX = (
    *('"', '""', '"""', '"a', 'a"', '"a" "', "'", "''", "`a`", "(", ")", "()", "((a)", "a)", "[", "]", "{", "}", "{a}"),
    *("*", "**", "a*", "*a", "a**", "a*b", "^", "^a", "a^2", "+", "a + b", "-", "--", "-a", "- a", "a -", "-*"),
    *('-"', '-""'),
    *("NEAR(a b)", "NEAR(a, 2)", "NEAR(", "NEAR", "a NEAR/2 b", "{text}: a", "text:a", "text : a", "-text:a"),
    *("rowid:1"),
    *("AND", "OR", "NOT", "AND a", "a AND", "a OR", "NOT a", "NOT NOT a", "a AND OR b", "a NOT", "a AND NOT b"),
    *("OR OR"),
    *("a AND (b OR c)", 'AND "a"', "and or not", "a AND b OR c AND d NOT e", "AND AND AND", "NOT", "a NOT NOT b"),
    *("path:", "role:", "path:*", "path:[", "path:[a", 'path:"', 'path:""', "path:%", "path:_", "role:nobody"),
    *("kind:x"),
    *("kind:message", "kind:tasks", "before:", "before:x", "after:99999-99-99", "after:2026-13", "before:0d"),
    *("after:99999w"),
    *("after:today before:yesterday", "thread:", "thread:%", "task:", "task:'", 'thread:"a b"'),
    *("role:user role:tool a"),
    *("'; DROP TABLE messages; --", "1=1", "a' OR '1'='1", "a; SELECT 1", "/* a */", "-- a", "%", "_", "%%"),
    *("a%b_c", "\\", "\\%"),
    *("?", "??", "?1", ":a", "@a", "$a", "#a", "#1284", "a?b", "a:b:c", "::", "&&", "||", "!", "!!", "~", "="),
    *("==", "<>"),
    *("C#", "C++", ".NET", "c:\\a\\b", "/", "//", "/a/b", "./a", "../..", "a.b.c", "v1.2.3-rc4", "1e9", "0x1F"),
    *("-1", "1-2"),
)  # fmt: skip
_SIGNS = (
    *("", " ", "\t", "\n", "\r\n", "\0", "a\0b", "\x01\x02", "\x1b[31ma", "\x7f", "\x85", "\ufeff", "\ufffe", "\uffff"),
    *("\ud800", "a\udfffb", "\ud800" * 3, "\u200b", "\u200d", "a\u200bb", "\u202ea", "\u2028", "\u00a0"),
    *("\u00ad", "\u0301"),
    *("é", "e\u0301", "ß", "ẞ", "SS", "ı", "İ", "ﬁ", "ｆｕｌｌ", "Ａ＊"),
    *("①", "½", "²", "Ω", "Ω", "ſ", "Ǆ", "ﷺ", "Straße"),
    *("数", "数据", "数据库", "数据库连接失败", "データベース"),
    *("데이터", "ไทย", "हिन्दी", "עברית", "العربية", "функцыя", "Ελληνικά"),
    *("🚀", "👩‍👩‍👧", "🇩🇪", "a🚀b", "🚀*", '"🚀"', "-🚀", "𝒶𝒷𝒸", "𠀀", "z" + "\u0301" * 300),
)  # fmt: skip
_HUGE = (
    "a" * 100_000, "a " * 50_000, '"' * 10_000, "(" * 10_000, "*" * 10_000, "-a " * 3_000,
    "a* " * 3_000, '"a b" ' * 3_000,
    "a_b" * 5_000, "aB" * 5_000, "AND " * 5_000, "a AND " * 5_000, "NOT a " * 5, "path:" * 2_000, "path:a " * 50,
    "数据库" * 5_000, "🚀" * 5_000, "\n".join(f'  File "x{n}.py", line {n}, in f' for n in range(500)), "ß" * 5_000,
    " ".join(f"w{n}" for n in range(5_000)), " ".join(f'"w{n}"' for n in range(59)),
    " ".join(f"-w{n}x" for n in range(59)),
)  # fmt: skip
ODD = tuple(dict.fromkeys((*_SYNTAX, *_SIGNS, *_HUGE)))


def fill(db: Database) -> None:
    threads.create(db, Thread("t", "/w", "a % thread", 1, 1))
    for n, text in enumerate(
        ("a b c", "die Straße", "数据库连接失败 🚀", "C# and C++ in /a/b", 'he said "a"', "\0 and \x1b", "%_\\")
    ):
        part = TextPart(text) if n % 2 == 0 else ToolResultPart("c", "bash", text, False, {})
        messages.append(db, Message(f"m{n}", "t", "/w", "user" if n % 2 == 0 else "tool", (part,), n))


def test_there_are_enough() -> None:
    assert len(ODD) > 161


@pytest.mark.parametrize("part", range(4))
async def test_none_raises(store: Store, part: int) -> None:
    await store.write(fill)
    for text, scope in itertools.product(ODD[part::4], (Scope("/w"), Scope(None, "t"), Scope("/none"))):
        for first in (True, False):
            page = await store.search(search, text, scope, limit=3, first=first)
            assert len(page.hits) <= 3 and page.total >= len(page.hits), text
            assert all(0 <= h.score <= 1 for h in page.hits) and page.notes is not None
