"""Answer the scripts of `sakti --install-completion` at each Tab: `sakti --complete`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sakti.cli import offers, place
from sakti.cli.options import SHELLS
from sakti.cli.place import Offer
from sakti.core.patterns import lazy_pattern

_LISTED_ONLY = ("37", "42")  # COMP_TYPE of keys that put in one word after the other: nothing but words will do
_TO_QUOTE = lazy_pattern(r"([^\w@%+=:,./~-])")


def answer(asked: Sequence[str]) -> None:
    """Print what completes a line, one word a line, from what a script passes.

    The shell's name, then the words up to the cursor, of bash its COMP_TYPE, the word that it replaces and the line.
    Behind a tab stands what is said about a word; a line that begins with a tab asks for files or for no space behind
    the word.
    """
    shell, *words = asked or [""]
    if shell == "bash" and len(words) == 3:
        lines = _for_bash(*words)
    elif shell in SHELLS and words:
        lines = [f"{o.word}\t{o.about}" for o in found] if (found := _offers(words)) is not None else ["\tfiles"]
    else:
        return
    out = sys.stdout.buffer
    out.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    out.flush()


def _offers(words: Sequence[str]) -> list[Offer] | None:
    return offers.at(place.at(words[:-1], words[-1]), words[-1])


def _for_bash(kind: str, replaced: str, line: str) -> list[str]:
    words, raw = split(line)
    found = _offers(words)
    if found is None:
        return ["\tfiles"]
    replaced = "" if replaced in ("=", ":") else replaced  # where bash ends words, a sign is one of its own
    kept = raw[: len(raw) - len(replaced)] if raw.endswith(replaced) else ""
    explained = len(found) > 1 and kind not in _LISTED_ONLY
    out: list[str] = []
    for o in found:
        word = o.word if raw[:1] in ("'", '"') else _TO_QUOTE.sub(r"\\\1", o.word)
        about = f"  ({o.about})" if explained and not o.known else ""
        out.append(word.removeprefix(kept) + about)
    if len(found) == 1 and found[0].word.endswith(("=", "/")):
        out.append("\tnospace")
    return out


def split(line: str) -> tuple[list[str], str]:
    """Split a line of bash into the words behind the program's name.

    The last one up to the cursor ("" behind a space), and that one as it is written.
    """
    words: list[str] = []
    word, begun, quote, at, i = "", False, "", 0, 0
    while i < len(line):
        sign = line[i]
        if quote:
            if sign == quote:
                quote = ""
            elif sign == "\\" and quote == '"' and line[i + 1 : i + 2] in ('"', "\\", "$", "`"):
                i += 1
                word += line[i]
            else:
                word += sign
        elif sign.isspace():
            if begun:
                words.append(word)
            word, begun, at = "", False, i + 1
            i += 1
            continue
        elif sign in ("'", '"'):
            quote = sign
        elif sign == "\\" and i + 1 < len(line):
            i += 1
            word += line[i]
        else:
            word += sign
        begun = True
        i += 1
    return [*words, word][1:], line[at:]
