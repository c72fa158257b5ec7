"""Parse a command of bash into the simple commands in it, as far as its text says what will run.

A command is *understood* where nothing in it is left to the shell: each word is written out, each part is a list, a
pipeline or a redirection. What is not understood is never free; what could be read of it still serves rules that deny
and the questions that are always asked.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import tree_sitter_bash
from msgspec import Struct
from msgspec.structs import replace
from tree_sitter import Language, Node, Parser

from sakti.agent.judge.programs import Wrapper, find_program
from sakti.core.patterns import lazy_pattern

MAX_CHARACTERS = 8_000
MAX_COMMANDS = 30
MAX_DEPTH = 4  # of a shell in a shell

# Parts of a command that mean what they say.
_PLAIN = frozenset({"program", "list", "pipeline", "command", "command_name", "redirected_statement", "comment"})
_SIGNS = frozenset({";", "&&", "||", "|", "&", "\n"})
_READS = frozenset({"<"})
_WRITES = frozenset({">", ">>", "&>", "&>>", ">|"})
_COPIES = frozenset({">&", "<&"})
# What the shell replaces, outside of quotes; `~` only where a home folder may stand.
_EXPANDS = lazy_pattern(r"[*?\[\]{}$`!]|(?:^|[=:])~|^=")
_HOME = lazy_pattern(r"^~(?=/|$)|\$HOME\b|\$\{HOME\}")


class Word(Struct, frozen=True):
    """Word as the program gets it; `literal`: the text says what it is, so it is exactly this."""

    text: str
    literal: bool = True


class Simple(Struct, frozen=True):
    """One program with its arguments.

    `assigned`: the variables that are set for it; `reads` and `writes`: the files that it is redirected from and to;
    `piped`: its input is another program's output; `inside`: stands in the text of another command (`sh -c`, `xargs`).
    """

    words: tuple[Word, ...]
    assigned: tuple[str, ...] = ()
    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    piped: bool = False
    inside: bool = False

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(w.text for w in self.words)

    @property
    def program(self) -> str:
        """Return the program's name without its folder; empty where the text does not say it."""
        return self.words[0].text.rpartition("/")[2] if self.words and self.words[0].literal else ""


class Script(Struct, frozen=True):
    """Simple commands of a text, in their order; `unclear` says why it is not understood, empty where it is."""

    commands: tuple[Simple, ...]
    unclear: str = ""

    @property
    def understood(self) -> bool:
        return not self.unclear


@functools.lru_cache(maxsize=256)
def parse(text: str) -> Script:
    """Parse a command; raises nothing."""
    if len(text) > MAX_CHARACTERS:
        return Script((), f"is longer than {MAX_CHARACTERS:,} characters")
    reader = _Reader(text)
    commands = tuple(reader.commands)
    unclear = reader.unclear
    if (odd := _odd_character(text)) and not unclear:
        unclear = f"holds the character {odd}"
    if len(commands) > MAX_COMMANDS and not unclear:
        unclear = f"holds more than {MAX_COMMANDS} commands"
    return Script(commands, unclear)


def with_nested(script: Script, depth: int = 0) -> Iterator[Simple]:
    """Yield the commands of a script and those that they start in turn: of `sh -c`, `env`, `xargs`, `find -exec`."""
    for command in script.commands:
        yield command
        if depth < MAX_DEPTH:
            for inner in _started(command):
                yield from with_nested(inner, depth + 1)


def _started(command: Simple) -> Iterator[Script]:
    """Yield what a command starts by its own arguments."""
    argv, program = command.words, find_program(command.program)
    if program.shell:
        for at, word in enumerate(argv[:-1]):
            if re.fullmatch(r"-[a-z]*c", word.text):
                yield _inside(parse(argv[at + 1].text))
    elif command.program == "eval":
        yield _inside(parse(" ".join(w.text for w in argv[1:])))
    elif program.exec_options:
        for at, word in enumerate(argv):
            if word.text in program.exec_options:
                ends = (n for n, w in enumerate(argv[at + 1 :], at + 1) if w.text in (";", "+"))
                yield _alone(command, argv[at + 1 : next(ends, len(argv))])
    elif program.wrapper is not None:
        yield _alone(command, _behind(program.wrapper, argv[1:]))


def _inside(script: Script) -> Script:
    return replace(script, commands=tuple(replace(c, inside=True) for c in script.commands))


def _alone(outer: Simple, words: tuple[Word, ...]) -> Script:
    return Script((replace(outer, words=words, inside=True),) if words else ())


def _behind(wrapper: Wrapper, words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the command behind a wrapper's options, variables and operands."""
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "--":
            at += 1
            break
        if text.startswith("-"):
            at += 2 if text in wrapper.values else 1
        elif wrapper.assignments and re.match(r"\w+=", text):
            at += 1
        else:
            break
    return words[at + wrapper.skipped :]


# To a shell all that is not ASCII is a letter of a word. The grammar's scanner asks C's `isalpha` about each character,
# which reads beyond its table for the others: that ended the program. Places in the text stay what they are.
_ASCII = bytes(range(0x80)) + b"x" * 0x80


class _Reader:
    """Walks the syntax tree once."""

    def __init__(self, text: str) -> None:
        self.commands: list[Simple] = []
        self.unclear = ""
        self._source = text.encode("utf-8", "surrogatepass")
        tree = _parser().parse(self._source.translate(_ASCII))
        if tree.root_node.has_error:
            self._note("cannot be parsed")
        self._walk(tree.root_node, piped=False)
        self._gap(0, tree.root_node.start_byte)
        self._gap(tree.root_node.end_byte, len(self._source))

    def _note(self, why: str) -> None:
        self.unclear = self.unclear or why

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _gap(self, start: int, end: int) -> None:
        """Note what stands between two parts and is neither of them."""
        if self._source[start:end].strip(b" \t\n;"):
            self._note("cannot be parsed")

    def _children(self, node: Node) -> Iterator[Node]:
        """Yield the parts of a node, and note what stands between them."""
        last = node.start_byte
        for child in node.children:
            self._gap(last, child.start_byte)
            yield child
            last = child.end_byte

    def _walk(self, node: Node, *, piped: bool) -> None:
        if node.is_named and node.type not in _PLAIN and node.type != "file_redirect":
            self._note(f"holds a {node.type.replace('_', ' ')}")
        if node.type == "command":
            self.commands.append(replace(self._command(node), piped=piped))
            return
        if node.type == "redirected_statement":
            self._redirected(node, piped=piped)
            return
        seen_pipe = False
        for child in self._children(node):
            if not child.is_named and child.type not in _SIGNS:
                self._note("holds shell syntax")
            seen_pipe = seen_pipe or (node.type == "pipeline" and child.type == "|")
            self._walk(child, piped=piped or seen_pipe)

    def _redirected(self, node: Node, *, piped: bool) -> None:
        """Read a command or a pipeline with its redirections: they belong to its last command."""
        first = len(self.commands)
        reads: list[Word] = []
        writes: list[Word] = []
        for child in self._children(node):
            if child.type == "file_redirect":
                self._redirect(child, reads, writes)
            else:
                self._walk(child, piped=piped)
        if len(self.commands) == first:  # `> file` alone writes, too
            self.commands.append(Simple((), piped=piped))
        command = self.commands[-1]
        self.commands[-1] = replace(command, reads=(*command.reads, *reads), writes=(*command.writes, *writes))

    def _redirect(self, node: Node, reads: list[Word], writes: list[Word]) -> None:
        signs = [c.type for c in node.children if not c.is_named]
        targets = [self._word(c) for c in node.children if c.is_named and c.type != "file_descriptor"]
        sign = signs[0] if len(signs) == 1 else ""
        if len(targets) != 1 or sign not in _READS | _WRITES | _COPIES:
            self._note("holds a redirection that is not plain")
            writes += targets
        elif sign in _COPIES and re.fullmatch(r"\d+|-", targets[0].text):
            pass
        else:
            (reads if sign in _READS else writes).append(targets[0])

    def _command(self, node: Node) -> Simple:
        words: list[Word] = []
        assigned: list[str] = []
        reads: list[Word] = []
        writes: list[Word] = []
        for child in self._children(node):
            if child.type == "variable_assignment":
                assigned.append(self._text(child).partition("=")[0].rstrip("+"))
                self._note("sets a variable")
            elif child.type == "file_redirect":
                self._redirect(child, reads, writes)
            elif child.type == "command_name":
                words.append(self._word(child.children[0] if child.children else child))
            elif child.is_named:
                words.append(self._word(child))
            else:
                self._note("holds shell syntax")
        self._nested(node)
        return Simple(tuple(words), tuple(assigned), tuple(reads), tuple(writes))

    def _nested(self, node: Node) -> None:
        """Read the commands of substitutions in a command: each runs, too."""
        for child in node.children:
            if child.type in ("command_substitution", "process_substitution"):
                self._walk(child, piped=False)
            elif child.type != "command":
                self._nested(child)

    def _word(self, node: Node) -> Word:
        """Read a word as the shell would, without what it expands."""
        raw = self._text(node)
        match node.type:
            case "word" | "number":
                literal = not _EXPANDS.search(raw)
                if not literal or "\\" in raw:
                    self._note("leaves a word to the shell")
                return Word(re.sub(r"\\(.)", r"\1", _at_home(raw), flags=re.DOTALL), literal)
            case "raw_string":
                return Word(raw[1:-1])
            case "ansi_c_string":
                self._note("leaves a word to the shell")
                try:
                    return Word(raw[2:-1].encode("latin-1").decode("unicode_escape"))
                except (UnicodeDecodeError, UnicodeEncodeError):
                    return Word(raw, literal=False)
            case "string":
                inner = [c for c in node.children if c.is_named and c.type != "string_content"]
                literal = not inner and not re.search(r"(?<!\\)[$`!]", raw)
                if not literal or "\\" in raw:
                    self._note("leaves a word to the shell")
                return Word(re.sub(r'\\([$`"\\])', r"\1", _at_home(raw[1:-1])), literal)
            case "concatenation":
                parts = [self._word(c) for c in node.children]
                text = "".join(p.text for p in parts)
                home = re.search(r"(?:^|[=:])~", raw) is not None
                literal = all(p.literal for p in parts) and not home
                if any(c.end_byte != d.start_byte for c, d in zip(node.children, node.children[1:], strict=False)):
                    self._note("cannot be parsed")
                return Word(text, literal)
            case _:
                self._note(f"holds a {node.type.replace('_', ' ')}")
                return Word(_at_home(raw), literal=False)


def _at_home(raw: str) -> str:
    return _HOME.sub(str(Path.home()).replace("\\", r"\\"), raw)


def _odd_character(text: str) -> str:
    """Return the first character that may hide what is written, as `U+200B`; empty where there is none."""
    for c in text:
        if c in "\n\t" or " " <= c <= "~":
            continue
        if unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp", "Zs"):
            return f"U+{ord(c):04X}"
    return ""


@functools.cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))
