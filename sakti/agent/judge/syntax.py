"""Read the syntax tree of a command of bash into simple commands, each byte of it accounted for."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import tree_sitter_bash
from msgspec.structs import replace
from tree_sitter import Language, Node, Parser

from sakti.agent.judge.programs import find_program
from sakti.agent.judge.words import VARIABLE, Simple, Word, has_output, has_plain_sets, join, read_ansi
from sakti.agent.judge.workspace_view import LISTS
from sakti.core.lazy import lazy_pattern

# Parts that are judged by the commands they contain.
_GROUPS = frozenset(
    {"program", "list", "pipeline", "negated_command", "subshell", "compound_statement", "do_group", "if_statement"}
    | {"elif_clause", "else_clause"}
)
_SYNTAX_TOKENS = frozenset(
    {";", "&&", "||", "|", "&", "\n", "!", "(", ")", "{", "}", "do", "done", "if", "then", "elif", "else", "fi"}
)
_UNSURE = frozenset({"pipeline", "subshell", "do_group", "if_statement", "compound_statement", "negated_command"})
_READS = frozenset({"<"})
_WRITES = frozenset({">", ">>", "&>", "&>>", ">|"})
_COPIES = frozenset({">&", "<&"})
# Bash expands the file after `>&` and `<&` twice, the second time without its quotes.
_EXPANDED_ONCE = lazy_pattern(r"[\w./:,+%@=-]+")
_SPACE = b" \t\n;"
_BEFORE = b" \t\n;&|()<>"  # characters before a comment or a descriptor number
_ENDS_WITH_NUMBER = re.compile(rb"(?:^|[\s;&|()<>])\d+\Z")
# Unquoted text that the shell expands; `~` only where a home folder is possible.
_EXPANDS = lazy_pattern(r"[\[\]*?{}$`!\\]|(?:^|[=:])~|^=")
_HOME = lazy_pattern(r"^~(?=/|$)|\$HOME\b|\$\{HOME\}")
_QUOTED = lazy_pattern(r"'[^'\[\]]*'|\"[^\"\[\]]*\"")
_ESCAPED = frozenset({r"\;", r"\(", r"\)", r"\!"})  # words that programs treat as operators
# Comparisons in `[[ ]]` that evaluate their words, which may run commands.
_COMPUTES = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"})
_PRINTED = (Word("$()", literal=False, output=True),)  # value of a variable: a number, or what a command prints
_SUBJECT = lazy_pattern(r"(\"?)\$(?:\w+|[#?]|\{\w+\})\1")  # a variable that only chooses a branch
_COUNTS = lazy_pattern(
    r"\(\(\s*(?P<name>\w+)\s*=\s*\d+\s*;\s*(?P=name)\s*(?:[<>]=?|!=)\s*\d+\s*;"
    r"\s*(?:(?P=name)\s*(?:\+\+|--|[+-]=\s*\d+)|(?:\+\+|--)\s*(?P=name))\s*\)\)"
)
_NUMBERS = lazy_pattern(r"\$?\(\((?:\d+|[<>=!]=|[-+*/%<>()?:!\s]|&&|\|\|)*\)\)")
_FIELDS = lazy_pattern(r"IFS=(?:''|\"\"|[,:|]|\$'\\[tn]')? +read\b")
_RANGE = lazy_pattern(r"\{(0|[1-9]\d{0,2})\.\.(0|[1-9]\d{0,2})\}")


@functools.cache
def _harmless_variables() -> re.Pattern[str]:
    return re.compile("|".join(LISTS.harmless_variables))


def is_harmless_variable(name: str) -> bool:
    """Return whether a variable of this name names no program and no code."""
    return _harmless_variables().fullmatch(name) is not None


# To a shell, every non-ASCII character is part of a word. The grammar's scanner asks C's `isalpha` about each
# character, which reads beyond its table for others and crashed the program. Offsets in the text do not change.
_ASCII = bytes(range(0x80)) + b"x" * 0x80


class SyntaxReader:
    """Walks the syntax tree once, and accounts for each byte of the text."""

    def __init__(self, text: str) -> None:
        self.commands: list[Simple] = []
        self.unclear = ""
        self._variables: dict[str, tuple[Word, ...]] = {}
        self._is_repeated = self._is_substituted = False
        self._source = text.encode("utf-8", "surrogatepass")
        self._rest = bytearray(self._source)  # bytes not accounted for yet
        tree = _parser().parse(self._source.translate(_ASCII))
        if tree.root_node.has_error:
            self._note("cannot be parsed")
        self._walk(tree.root_node)
        if self._rest.strip(_SPACE):
            self._note("cannot be parsed")

    def _note(self, why: str) -> None:
        self.unclear = self.unclear or why

    def _get_text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _account(self, node: Node) -> None:
        if not node.is_named and self._get_text(node) != node.type:
            return  # an operator that swallowed a word: `-o<<`
        self._rest[node.start_byte : node.end_byte] = b" " * (node.end_byte - node.start_byte)

    def _account_alone(self, node: Node) -> None:
        """Account for a part that bash only recognises after a space or an operator."""
        if node.start_byte and self._source[node.start_byte - 1] not in _BEFORE:
            self._note("cannot be parsed")
        self._account(node)

    def _walk(self, node: Node, *, piped: bool = False, before: int | None = None, sure: bool = True) -> None:
        match node.type:
            case "command" | "test_command":
                command = self._read_command(node) if node.type == "command" else self._read_test(node)
                self.commands.append(
                    replace(
                        command,
                        piped=piped,
                        before=before,
                        sure=sure,
                        repeated=self._is_repeated,
                        substituted=self._is_substituted,
                    )
                )
            case "redirected_statement":
                self._read_redirected(node, piped=piped, before=before, sure=sure)
            case "comment":
                self._account_alone(node)
            case "for_statement":
                self._read_for(node, piped=piped)
            case "while_statement":
                self._read_while(node, piped=piped)
            case "c_style_for_statement":
                self._read_counting_loop(node, piped=piped)
            case "case_statement":
                self._read_case(node, piped=piped)
            case "compound_statement" if node.children[0].type == "((":
                self._read_arithmetic(node)
            case _:
                if node.type not in _GROUPS:
                    self._note(f"contains a {node.type.replace('_', ' ')}")
                self._walk_group(node, piped=piped, sure=sure)

    def _find_single(self, first: int) -> int | None:
        """Return the number of the command at `first` if it is the last one; or None."""
        return first if len(self.commands) == first + 1 else None

    def _walk_group(self, node: Node, *, piped: bool, sure: bool) -> None:
        sign, before, first = "", None, len(self.commands)
        sure = sure and _runs_surely(node)
        repeated, self._is_repeated = self._is_repeated, self._is_repeated and node.type != "subshell"
        for child in node.children:
            if not child.is_named:
                sign = child.type
                self._read_sign(child)
                continue
            if node.type == "pipeline" and sign == "|":
                piped, before = True, self._find_single(first)
            first = len(self.commands)
            self._walk(child, piped=piped, before=before, sure=sure and sign != "||")
            if sign == "&&" and first < len(self.commands):
                self.commands[first] = replace(self.commands[first], chained=True)
        self._is_repeated = repeated

    def _read_sign(self, node: Node) -> None:
        """Account for an operator between commands, or note that it cannot be read."""
        if node.type == "!" and self._source[node.end_byte : node.end_byte + 1] not in (b" ", b"\t"):
            self._note("cannot be parsed")
        elif node.type in _SYNTAX_TOKENS:
            self._account(node)
        else:
            self._note("contains shell syntax")

    # --- loops, branches, variables ----------------------------------------------------------------------------------

    def _read_loop(self, node: Node, variables: Mapping[str, tuple[Word, ...]], *, piped: bool) -> None:
        """Read the body of a loop with its own variables, none of which may be set already."""
        if not all(map(VARIABLE.fullmatch, variables)) or not self._variables.keys().isdisjoint(variables):
            self._note("contains a loop that is not simple")
        outer, repeated = self._variables, self._is_repeated
        self._variables, self._is_repeated = {**outer, **variables}, True
        self._walk(node, piped=piped, sure=False)
        self._variables, self._is_repeated = outer, repeated

    def _read_for(self, node: Node, *, piped: bool) -> None:
        """Read a loop over literal words, or over a command's output."""
        name, words = "", list[Word]()
        for child in node.children:
            if child.type == "do_group":
                self._read_loop(child, {name: _PRINTED if has_output(words) else tuple(words)}, piped=piped)
            elif child.type == "brace_expression" and (ends := _RANGE.fullmatch(self._get_text(child))):
                self._account(child)
                words += _list_numbers(int(ends[1]), int(ends[2]))
            elif child.is_named and name:
                words.append(self._read_argument(child))
            else:
                self._account(child)
                name = self._get_text(child) if child.is_named else name
        if not _loops_over_words(node):
            self._note("contains a loop that is not simple")

    def _read_while(self, node: Node, *, piped: bool) -> None:
        """Read a loop with a condition; variables set by `read` contain a command's output or a file's lines."""
        first = len(self.commands)
        for child in node.children:
            if child.type == "do_group":
                names = _list_read_names(self.commands[first]) if len(self.commands) == first + 1 else []
                self._read_loop(child, dict.fromkeys(names, _PRINTED), piped=piped)
            elif child.is_named:
                self._read_loop(child, {}, piped=piped)
            else:
                self._account(child)

    def _read_counting_loop(self, node: Node, *, piped: bool) -> None:
        """Read `for ((i=0; i<3; i++))`, whose variable is a number."""
        body = node.children[-1]
        start = next((c.start_byte for c in node.children if c.type == "(("), node.start_byte)
        end = next((c.end_byte for c in node.children if c.type == "))"), start)
        counted = _COUNTS.fullmatch(self._source[start:end].decode("utf-8", "replace"))
        if counted is None or body.type != "do_group":
            self._note("contains a loop that is not simple")
            self._read_nested(node)
            return
        self._rest[start:end] = b" " * (end - start)
        for child in node.children[:-1]:
            if child.type in ("for", ";"):
                self._account(child)
        self._read_loop(body, {counted["name"]: _PRINTED}, piped=piped)

    def _read_case(self, node: Node, *, piped: bool) -> None:
        """Read the branches of a `case`: each is judged, whatever selects it."""
        for child in node.children:
            if child.type == "case_item":
                self._read_branch(child, piped=piped)
            elif not child.is_named or _SUBJECT.fullmatch(self._get_text(child)):
                self._account(child)
            else:
                self._read_argument(child)

    def _read_branch(self, node: Node, *, piped: bool) -> None:
        is_pattern = True
        for child in node.children:
            if not child.is_named:
                is_pattern = is_pattern and child.type != ")"
                self._account(child)
            elif not is_pattern:
                self._walk(child, piped=piped, sure=False)
            elif re.search(r"[$`<>\\]", self._get_text(child)):
                self._note("leaves a word to the shell")
                self._read_nested(child)
            else:
                self._account(child)

    def _read_arithmetic(self, node: Node) -> None:
        """Read arithmetic on numbers; with variables, it could run their text."""
        if _NUMBERS.fullmatch(self._get_text(node)):
            self._account(node)
        else:
            self._note("computes a word")
            self._read_nested(node)

    def _read_redirected(self, node: Node, *, piped: bool, before: int | None, sure: bool) -> None:
        """Read a command with its redirections; the input of a compound belongs to all its parts."""
        first, is_compound = len(self.commands), False
        redirects = _Redirects()
        for child in node.children:
            if child.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
                self._read_redirect(child, redirects)
            else:
                self._walk(child, piped=piped, before=before, sure=sure)
                is_compound = child.type.endswith(("_statement", "subshell"))
        if len(self.commands) == first:  # `> file` without a command writes, too
            self.commands.append(Simple((), piped=piped, before=before, sure=sure))
        self.commands[-1] = redirects.add_to(self.commands[-1])
        if redirects.piped or (is_compound and (redirects.reads or redirects.input)):
            self.commands[first:] = [replace(c, piped=True) for c in self.commands[first:]]
        for child in redirects.behind:
            self._walk(child, piped=True, before=len(self.commands) - 1, sure=False)

    def _read_redirect(self, node: Node, redirects: _Redirects) -> None:
        if _ENDS_WITH_NUMBER.search(self._source, 0, node.start_byte):
            self._note("contains a redirection that is not simple")  # a descriptor number that was read as a word
        match node.type:
            case "file_redirect":
                self._redirect_file(node, redirects)
            case "herestring_redirect":
                for child in node.children:
                    if child.is_named:
                        redirects.input = self._read_word(child).text
                    else:
                        self._account(child)
            case _:
                self._redirect_heredoc(node, redirects)

    def _redirect_file(self, node: Node, redirects: _Redirects) -> None:
        sign, targets = "", list[Word]()
        for child in node.children:
            if child.type == "file_descriptor":
                self._account_alone(child)
                sign += "" if self._get_text(child).isdigit() else "?"
            elif child.is_named:
                targets.append(
                    self._read_argument(child) if child.type == "process_substitution" else self._read_word(child)
                )
            else:
                self._account(child)
                sign += child.type
        if len(targets) != 1 or sign not in _READS | _WRITES | _COPIES:
            self._note("contains a redirection that is not simple")
        self._add_targets(sign, targets, redirects)

    def _read_copied(self, targets: Sequence[Word]) -> None:
        """Read the commands in descriptors that are copied."""
        if all(map(_EXPANDED_ONCE.fullmatch, (t.text for t in targets))):
            return
        self._note("leaves a word to the shell")
        for target in targets:
            self.commands += SyntaxReader(f": {target.text}").commands

    def _add_targets(self, sign: str, targets: Sequence[Word], redirects: _Redirects) -> None:
        if sign == "<" and all(t.stream for t in targets):
            redirects.piped = True
            return
        if not all(t.literal for t in targets):
            self._note("leaves a word to the shell")
        if sign in _COPIES:
            self._read_copied(targets)
        if sign not in _COPIES or not all(map(_is_descriptor, targets)):
            (redirects.reads if sign in _READS else redirects.writes).extend(targets)

    def _redirect_heredoc(self, node: Node, redirects: _Redirects) -> None:
        """Read a heredoc: text if its end is quoted, else left to the shell."""
        for child in node.children:
            if child.type == "heredoc_start":
                self._account(child)
                if not re.fullmatch(r"'\w+'|\"\w+\"", self._get_text(child)):
                    self._note("contains a heredoc without quotes")
                    self._read_nested(node)
            elif child.type in ("heredoc_body", "heredoc_end", "<<", "<<-"):
                self._account(child)
                redirects.input += self._get_text(child) if child.type == "heredoc_body" else ""
            elif child.type == "file_redirect":
                self._redirect_file(child, redirects)
            elif child.is_named:
                redirects.behind.append(child)
                self._note("continues after a heredoc")
            else:
                self._note("continues after a heredoc")

    def _read_command(self, node: Node) -> Simple:
        words: list[Word] = []
        assigned: list[str] = []
        ends: list[int] = []
        redirects = _Redirects()
        for child in node.children:
            if child.type == "variable_assignment" and _FIELDS.match(self._get_text(node)):
                self._account(child)  # it applies to `read` only
            elif child.type == "variable_assignment":
                assigned.append(self._read_assignment(child))
            elif child.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
                self._read_redirect(child, redirects)
            elif child.type == "command_name":
                words.append(self._read_name(child))
                ends.append(child.end_byte)
            elif child.is_named:
                words.append(self._read_argument(child))
                ends.append(child.end_byte)
            else:
                self._note("contains shell syntax")
        self._check_call(command := Simple(tuple(words), tuple(assigned), ends=tuple(ends)))
        return redirects.add_to(command)

    def _check_call(self, command: Simple) -> None:
        """Note a command that changes a loop variable, or runs the output of another one."""
        if not all(VARIABLE.fullmatch(n) and n not in self._variables for n in _list_read_names(command)):
            self._note("sets a variable")
        if any(w.stream for w in command.words) and find_program(command.program).reads is None:
            self._note("runs the output of another command")

    def _read_assignment(self, node: Node) -> str:
        """Read a variable set for one command; it is harmless if no program treats it as a command."""
        name = self._get_text(node).partition("=")[0].rstrip("+")
        if is_harmless_variable(name) and re.fullmatch(r"\w+=[\w./:,@%-]*", self._get_text(node)):
            self._account(node)
        else:
            self._note("sets a variable")
            self._read_nested(node)
        return name

    def _read_name(self, node: Node) -> Word:
        word = self._read_word(node.children[0] if node.children else node)
        if not word.literal:
            self._note("leaves a word to the shell")
        return word

    def _read_test(self, node: Node) -> Simple:
        """Read `[ ]` and `[[ ]]` as `test`."""
        words = [Word("test")]
        double = any(c.type == "[[" for c in node.children)
        if (
            re.match(rb"\[\[?[ \t\n]", node.text or b"") is None
            or re.search(rb"[ \t\n]\]\]?\Z", node.text or b"") is None
        ):
            self._note("cannot be parsed")  # a shell word only between spaces: `[1]` is a pattern
        self._read_test_words(node, words)
        if double and (has_output(words) or not _COMPUTES.isdisjoint(w.text for w in words)):
            self._note("computes a word")
        return Simple(tuple(words))

    def _read_test_words(self, node: Node, words: list[Word]) -> None:
        for child in node.children:
            if child.type in ("[", "]", "[[", "]]"):
                self._account(child)
            elif child.type.endswith("_expression"):
                self._read_test_words(child, words)
            elif child.type == "test_operator" or not child.is_named:
                self._account(child)
                words.append(Word(self._get_text(child)))
            else:
                words.append(self._read_argument(child))

    def _read_nested(self, node: Node) -> None:
        """Read the substituted commands below a node that is not understood, because they run, too."""
        for child in node.children:
            if child.type in ("command_substitution", "process_substitution"):
                self._read_substituted(child)
            elif child.type != "command":
                self._read_nested(child)

    def _read_substituted(self, node: Node) -> None:
        outer, self._is_substituted = self._is_substituted, True
        for child in node.children:
            if child.is_named:
                self._walk(child, sure=False)
            elif child.type in ("$(", "`", "<(", ")", *_SYNTAX_TOKENS):
                self._account(child)
        self._is_substituted = outer

    def _read_argument(self, node: Node) -> Word:
        """Read one argument of a command; a variable in it is checked for word splitting."""
        if node.type == "process_substitution" and self._get_text(node).startswith("<("):
            around = (
                self._source[node.start_byte - 1 : node.start_byte] + self._source[node.end_byte : node.end_byte + 1]
            )
            if around.strip(_BEFORE):
                self._note("cannot be parsed")  # a part of a longer word
            self._read_substituted(node)
            return Word(self._get_text(node), literal=False, stream=True)
        return join((self._read_word(node),), self._get_text(node))

    # --- words ----------------------------------------------------------------------------------------------------

    def _read_word(self, node: Node) -> Word:
        """Read a word as the shell would, before expansion."""
        raw = self._get_text(node)
        if node.type not in ("command_substitution", "arithmetic_expansion", "process_substitution"):
            self._account(node)
        match node.type:
            case "word" | "number":
                return self._read_bare(raw)
            case "raw_string":
                return Word(raw[1:-1])
            case "ansi_c_string":
                self._note("leaves a word to the shell")
                return read_ansi(raw)
            case "string":
                return self._read_quoted(node)
            case "concatenation":
                return self._join_parts(node)
            case "simple_expansion" | "expansion":
                return self._read_variable(node)
            case "command_substitution":
                self._read_substituted(node)
                return Word(raw, literal=False, output=True, split=True)
            case "arithmetic_expansion":
                self._read_arithmetic(node)
                return Word(raw, literal=False, output=True)
            case _:
                self._note(f"contains a {node.type.replace('_', ' ')}")
                self._read_nested(node)
                return Word(_expand_home(raw), literal=False)

    def _read_bare(self, raw: str) -> Word:
        """Read a word without quotes."""
        if raw == "{}" or raw in _ESCAPED:
            return Word(raw.removeprefix("\\"))
        if re.search(r"(?<!\\)['\"]", raw):
            self._note("cannot be parsed")  # quotes that the grammar treated as part of the word
        signs = set(_EXPANDS.findall(raw))
        if signs and signs <= set("*?[]"):
            return Word(raw, literal=False, pattern=raw)
        if signs:
            self._note("leaves a word to the shell")
        return Word(re.sub(r"\\(.)", r"\1", _expand_home(raw), flags=re.DOTALL), literal=not (signs - {"\\"}))

    def _read_variable(self, node: Node) -> Word:
        raw = self._get_text(node)
        name = re.fullmatch(r"\$(?:(\w+)|\{(\w+)\})", raw)
        if name is not None and (choices := self._variables.get(name[1] or name[2])):
            if has_output(choices):
                return Word(raw, literal=False, output=True, split=True)
            if len(choices) == 1 and choices[0].literal and re.fullmatch(r"[^\s*?\[\\]+", choices[0].text):
                return Word(choices[0].text)
            return Word(raw, literal=False, choices=choices, split=True)
        self._note("leaves a word to the shell")
        self._read_nested(node)
        return Word(_expand_home(raw), literal=False)

    def _read_quoted(self, node: Node) -> Word:
        """Read a text in double quotes, with the variables and commands in it."""
        parts: list[Word] = []
        at, inner = node.start_byte + 1, [c for c in node.children if c.is_named and c.type != "string_content"]
        for child in inner:
            parts += [self._read_unquoted(at, child.start_byte), replace(self._read_word(child), split=False)]
            at = child.end_byte
        return join([*parts, self._read_unquoted(at, node.end_byte - 1)], _expand_home(self._get_text(node)[1:-1]))

    def _read_unquoted(self, start: int, end: int) -> Word:
        raw = self._source[start:end].decode("utf-8", "replace")
        plain = re.sub(r'\\([$`"\\])|\\\n', r"\1", raw)
        literal = not re.search(r"(?<!\\)(?:\\\\)*[$`!]", raw)
        if not literal:
            self._note("leaves a word to the shell")
        return Word(plain, literal)

    def _join_parts(self, node: Node) -> Word:
        """Read a word of several parts."""
        raw = self._get_text(node)
        if "{}" in raw and re.fullmatch(r"[\w./:,+%@-]*", raw.replace("{}", "")):
            return Word(raw)  # the shell leaves empty braces as they are
        parts = [self._read_word(c) for c in node.children]
        word = join(parts, "".join(p.text for p in parts))
        if any(c.end_byte != d.start_byte for c, d in itertools.pairwise(node.children)):
            self._note("cannot be parsed")
        if re.search(r"(?:^|[=:])~", raw) or (not word.literal and not has_plain_sets(_QUOTED.sub("''", raw))):
            self._note("leaves a word to the shell")
            return Word(word.text, literal=False)
        return word


def _list_read_names(command: Simple) -> list[str]:
    """Return the variables that a `read` sets, none for another command."""
    words = command.argv[1:] if command.program == "read" else ()
    pairs = zip(("", *words), words, strict=False)
    return [w for before, w in pairs if not w.startswith("-") and before not in ("-d", "-n", "-N", "-t")]


class _Redirects:
    """Files and text that redirections give to a command.

    `piped`: its input is also another command's output; `behind`: the text after a heredoc on its line.
    """

    def __init__(self) -> None:
        self.reads: list[Word] = []
        self.writes: list[Word] = []
        self.input = ""
        self.piped = False
        self.behind: list[Node] = []

    def add_to(self, command: Simple) -> Simple:
        return replace(
            command,
            reads=(*command.reads, *self.reads),
            writes=(*command.writes, *self.writes),
            input=command.input or self.input,
            piped=command.piped or self.piped,
        )


def _expand_home(raw: str) -> str:
    return _HOME.sub(str(Path.home()).replace("\\", r"\\"), raw)


@functools.cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def _runs_surely(node: Node) -> bool:
    """Return whether a group runs in this shell, and before the commands that follow it."""
    return node.type not in _UNSURE and not any(c.type == "&" for c in node.children)


def _loops_over_words(node: Node) -> bool:
    return [c.type for c in node.children[:3]] == ["for", "variable_name", "in"]


def _is_descriptor(word: Word) -> bool:
    return re.fullmatch(r"\d+|-", word.text) is not None


def _list_numbers(first: int, last: int) -> list[Word]:
    """Return the words of `{first..last}`."""
    step = 1 if first <= last else -1
    return [Word(str(n)) for n in range(first, last + step, step)]
