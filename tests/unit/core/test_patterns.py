"""A lazy pattern is a pattern, compiled when it is first asked."""

import re

import pytest

from sakti.core import lazy as core_lazy
from sakti.core.lazy import lazy_pattern


def test_it_does_what_a_compiled_one_does() -> None:
    lazy, compiled = lazy_pattern(r"(\w)b", re.IGNORECASE), re.compile(r"(\w)b", re.IGNORECASE)
    text = "ab xB b"
    assert lazy.findall(text) == compiled.findall(text)
    assert lazy.sub("-", text) == compiled.sub("-", text)
    assert lazy.fullmatch("AB") and not lazy.fullmatch("ABC")
    assert (lazy.pattern, lazy.flags) == (compiled.pattern, compiled.flags)


def test_it_is_compiled_at_its_first_use_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = re.compile

    def compile_(source: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append(source)
        return real(source, flags)

    monkeypatch.setattr(core_lazy.re, "compile", compile_)
    lazy = lazy_pattern("a+")
    assert compiled == []
    assert [lazy.search("baa") is not None for _ in range(3)] == [True] * 3
    assert compiled == ["a+"]
