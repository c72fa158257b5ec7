"""Find where the cursor stands in a line of the shell: at a command, an option or a value. Pure.

The line is not finished, so nothing in it is an error: what means nothing is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sakti.actions.spec import Action, Arg
from sakti.cli import options, shell
from sakti.cli.help import HELP, VERSION

_TOP = (*options.CHAT, options.PRINT, options.INSTALL, options.SHOW, VERSION, HELP)


class Offer(NamedTuple):
    """A word that the shell may put in, and what it says about it. `known`: the word says nothing without that."""

    word: str
    about: str = ""
    known: bool = True


class Place(NamedTuple):
    """What may stand at the cursor: some of `words`, or a value of `arg` behind `lead` (`--status=`)."""

    words: tuple[Offer, ...] = ()
    arg: Arg | None = None
    lead: str = ""


class _Read(NamedTuple):
    """What the words before the cursor are.

    `plain` are the places of those that belong to no option, `pending` is the option whose value comes next, `given`
    are those that are there; `ended`: behind `--`.
    """

    plain: tuple[int, ...]
    given: frozenset[str]
    pending: Arg | None
    ended: bool


def at(words: Sequence[str], word: str) -> Place:
    """Return the place of `word`, which stands behind `words`; these begin behind the program's name."""
    read = _read(_TOP, words)
    first = read.plain[0] if read.plain else len(words)
    printed = next((i for i, w in enumerate(words[:first]) if w in options.PRINT.flags), None)
    if printed is not None:  # -p PROMPT is run PROMPT
        return _in(_action("run"), [*words[:printed], *words[printed + 1 :]], word)
    if not read.plain:
        return _at_top(read, words, word)
    return _behind_command(words, word) if first == 0 and not read.ended else Place()


def _at_top(read: _Read, words: Sequence[str], word: str) -> Place:
    if read.pending is not None or word.startswith("-"):
        return _value_or_flag(_TOP, read, word) or Place()
    return Place() if words else Place(tuple(Offer(name, about) for name, about in _commands()))


def _commands() -> list[tuple[str, str]]:
    """Return the first words of all commands, and what they are."""
    return [(name, _short(text)) for _, name, text in shell.listed()]


def _behind_command(words: Sequence[str], word: str) -> Place:
    found = shell.subject(words[0])
    if found is None:
        return Place()
    if found.group is None:
        return _in(_action(words[0]), words[1:], word)
    within = {a.shell.partition(" ")[2]: a for a in found.actions if a.shell}
    if len(words) == 1:
        return Place(tuple(Offer(name, _short(a.help)) for name, a in within.items()))
    return _in(within.get(words[1]), words[2:], word)


def _action(word: str) -> Action | None:
    found = shell.subject(word)
    return next((a for a in found.actions if a.shell == word), None) if found else None


def _in(action: Action | None, words: Sequence[str], word: str) -> Place:
    """Return the place in what stands behind a command."""
    if action is None:
        return Place()
    args = (*shell.arguments(action), HELP)
    read = _read(args, words)
    if place := _value_or_flag(args, read, word):
        return place
    positional = [a for a in args if not a.flags]
    n = len(read.plain)
    if n < len(positional):
        return Place(arg=positional[n])
    if positional and positional[-1].many:
        return Place(arg=positional[-1])
    return Place(_flags(args, read.given))


def _value_or_flag(args: Sequence[Arg], read: _Read, word: str) -> Place | None:
    if read.pending is not None and not (read.pending.optional and word.startswith("-")):
        return Place(arg=read.pending)
    if read.ended or not word.startswith("-"):
        return None
    name, sign, _ = word.partition("=")
    option = next((a for a in args if name in a.flags and a.kind != "flag"), None)
    return Place(arg=option, lead=f"{name}=") if sign else Place(_flags(args, read.given))


def _flags(args: Sequence[Arg], given: frozenset[str]) -> tuple[Offer, ...]:
    """Return the options that may still be given, by their long names where they have one."""
    left = [a for a in args if a.flags and (a.many or a.name not in given)]
    return tuple(Offer(max(a.flags, key=len), _short(a.help)) for a in left)


def _read(args: Sequence[Arg], words: Sequence[str]) -> _Read:
    """Return what `words` are, by the rules of `reader.take`."""
    plain: list[int] = []
    given: set[str] = set()
    i = 0
    while i < len(words):
        word = words[i]
        if word == "--":
            return _Read((*plain, *range(i + 1, len(words))), frozenset(given), None, True)
        i += 1
        if not word.startswith("-") or word == "-":
            plain.append(i - 1)
            continue
        option = next((a for a in args if word in a.flags), None)
        if option is None:  # --name=value, -p1, or one that there is not
            given.update(a.name for a in args if word.partition("=")[0] in a.flags)
            continue
        given.add(option.name)
        if option.kind == "flag":
            continue
        if i == len(words):
            return _Read(tuple(plain), frozenset(given), option, False)
        i += not (option.optional and words[i].startswith("-"))
    return _Read(tuple(plain), frozenset(given), None, False)


def _short(text: str) -> str:
    """Return the first sentence, without its full stop."""
    return text.partition("\n")[0].partition(". ")[0].removesuffix(".")


def values(arg: Arg) -> str | tuple[str, ...]:
    """Return what a value of `arg` may be: words, or the name of what is looked up; "files" for a path."""
    return arg.offers or arg.choices or ("files" if arg.kind == "path" else ())
