"""Read a project's Markdown files: frontmatter, imports with `@path`, arguments of commands. Pure."""

from __future__ import annotations

import importlib
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from sakti.agent.judge.workspace_view import WorkspaceView, explain_secret
from sakti.core.config.reading import read_bytes
from sakti.core.errors import ConfigError, SaktiError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import quote

_FRONT = lazy_pattern(r"---[ \t]*\n(.*?)(?:\n|^)---[ \t]*(?:\n|\Z)(.*)", 16 | 8)  # re.DOTALL, re.MULTILINE
_PAIR = lazy_pattern(r"^([\w-]+:|[ \t]*-)[ \t]+(\S.*)$", 8)
LONGEST_FRONTMATTER = 16_000  # characters of it
DEEPEST_NESTING = 20  # lists and tables in one another


def split_frontmatter(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return a text's frontmatter and the rest: {} without a frontmatter, None if it is broken.

    A value that needs quotes is often written without them, as `key: a: b` or `key: [a] [b]`: it is read as if it had
    them. One that is very long is broken.
    """
    match = _FRONT.match(text)
    if match is None:
        return {}, text
    table = _parse_yaml(match[1]) if len(match[1]) <= LONGEST_FRONTMATTER else None
    if table is None and len(match[1]) <= LONGEST_FRONTMATTER:
        table = _parse_yaml(_PAIR.sub(lambda m: m[0] if _is_yaml(m[0]) else f"{m[1]} {_quote(m[2])}", match[1]))
    return table, match[2].strip()


def _quote(value: str) -> str:
    return "'" + value.strip().replace("'", "''") + "'"


def _parse_yaml(text: str) -> dict[str, Any] | None:
    """Return the table that a text is; None for any other."""
    try:
        value = _load(text)
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _is_yaml(text: str) -> bool:
    try:
        _load(text)
    except (ValueError, RecursionError):
        return False
    return True


def _load(text: str) -> Any:
    """Return the value of a YAML text. Raises `ValueError` if it is invalid or too costly to read."""
    yaml: Any = importlib.import_module("yaml")
    try:
        if "*" in text or sum(map(text.count, "[{")) > DEEPEST_NESTING:
            _check(yaml, text)
        return yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise ValueError("not YAML") from e


def _check(yaml: Any, text: str) -> None:
    """Refuse aliases and deeply nested lists.

    A few lines of aliases may expand beyond any memory.
    """
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if isinstance(token, yaml.tokens.AliasToken):
            raise ValueError("it has aliases")
        if isinstance(token, yaml.tokens.FlowSequenceStartToken | yaml.tokens.FlowMappingStartToken):
            depth += 1
            if depth > DEEPEST_NESTING:
                raise ValueError("it is nested too deep")
        if isinstance(token, yaml.tokens.FlowSequenceEndToken | yaml.tokens.FlowMappingEndToken):
            depth -= 1


LONGEST_FILE = 1_000_000  # bytes of a file that is read
DEEPEST_IMPORT = 5  # imports below one another
MOST_IMPORTS = 100  # imports of one file, all in all
# A name that ends like a text is meant as an import; any other word after an @ is one if that file exists.
_IMPORT = lazy_pattern(r"(?<![\w`@/.])@((?:~/|(?:\.{1,2}/)+)?\w(?:[\w./-]*\w)?)(?![\w/])")
TEXT = (".md", ".markdown", ".txt")
_FENCE = lazy_pattern(r"^ {0,3}(`{3,}|~{3,})")
_CODE = lazy_pattern(r"(`+)(?:(?!\1).)*\1(?!`)")


def list_imports(sources: Iterable[Path], root: Path) -> Iterator[Path]:
    """Yield the files in a folder that texts import, and their own imports, each once; links are followed.

    Only existing ones without secrets. The bounds are those of reading them.
    """
    root = Path(os.path.realpath(root))
    place = WorkspaceView(root, root)
    for source in sources:
        seen, waiting = {Path(os.path.realpath(source))}, [(Path(source), 0)]
        while waiting and len(seen) <= MOST_IMPORTS:
            path, depth = waiting.pop()
            for name in _list_imports(path) if depth <= DEEPEST_IMPORT else ():
                target = Path(os.path.realpath(path.parent / name))
                if target not in seen and target.is_relative_to(root) and target.is_file():
                    if explain_secret(target, place):
                        continue
                    seen.add(target)
                    waiting.append((target, depth + 1))
                    yield target


def _list_imports(path: Path) -> tuple[str, ...]:
    """Return the names that a text imports, those of the user's home folder left out."""
    try:
        status = path.stat()
        return _read_names(path, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
    except (OSError, ValueError, RuntimeError):
        return ()


@lru_cache(maxsize=1_000)
def _read_names(path: Path, _changed: int, _at: int, _size: int) -> tuple[str, ...]:
    try:
        data = read_bytes(path, LONGEST_FILE)
    except ConfigError:
        return ()
    names: list[str] = []
    if data and b"@" in data:
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
        replace_imports(text, lambda name, written: names.append(name) or written)
    return tuple(dict.fromkeys(n for n in names if not n.startswith("~")))


def replace_imports(text: str, replaced: Callable[[str, str], str]) -> str:
    """Return text with each import replaced by `replaced(name, as it is written)`, but for those in code."""
    out: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
            out.append(line)
        elif fence or "@" not in line:
            out.append(line)
        else:
            out.append(_line(line, replaced))
    return "\n".join(out)


def _line(line: str, replaced: Callable[[str, str], str]) -> str:
    code = [m.span() for m in _CODE.finditer(line)]
    out, end = "", 0
    for match in _IMPORT.finditer(line):
        if any(a <= match.start() < b for a, b in code):
            continue
        out += line[end : match.start()] + replaced(match[1], match[0])
        end = match.end()
    return out + line[end:]


SECONDS = 10
LONGEST_OUTPUT = 20_000  # characters of an output that are used
_PLACE = lazy_pattern(
    r"(?P<shell>!`(?P<command>[^`\n]+)`)|\$(?:ARGUMENTS(?:\[(?P<at>\d{1,4})\])?|(?P<number>[1-9](?!\d)))"
)
_NAMED = lazy_pattern(r"\$(?:ARGUMENTS(?:\[(\d{1,4})\])?|([1-9](?!\d)))")
_PLAIN = lazy_pattern(r"[\w%+=:,./@-]*")
_QUOTING = lazy_pattern(r"[\"'`\\]|\$[({'\"]|<<")  # places at which a quoted argument could be inside other quotes

Shell = Callable[[str], Awaitable[str]]


def runs_commands(body: str) -> bool:
    """Return whether the text of a command names commands to run."""
    return any(m["shell"] for m in _PLACE.finditer(body))


def lacks_argument(body: str, argument: str) -> bool:
    """Return whether the text has a place for an argument that is not given."""
    count = len(split_arguments(argument))
    places = (_find_argument_index(m[1], m[2]) for m in _NAMED.finditer(body))
    return any(count <= (place or 0) for place in places)


async def fill_template(body: str, argument: str, shell: Shell) -> str:
    """Return the text with its arguments and the outputs of its commands; `shell` runs one.

    Arguments that it has no place for are at its end. Raises `SaktiError` for an argument that a command cannot take,
    and the errors of `shell`.
    """
    values = split_arguments(argument)
    out: list[str] = []
    end, placed = 0, False
    for match in _PLACE.finditer(body):
        out.append(body[end : match.start()])
        end = match.end()
        if match["shell"]:
            placed = placed or _NAMED.search(match["command"]) is not None
            out.append((await shell(_fill_command(match["command"], argument, values)))[:LONGEST_OUTPUT])
        else:
            placed = True
            out.append(_get_argument(match["at"], match["number"], argument, values))
    out.append(body[end:])
    if argument and not placed:
        out.append(f"\n\nARGUMENTS: {argument}")
    return "".join(out)


def split_arguments(argument: str) -> list[str]:
    """Split arguments as a shell does; by blanks if a quote is not closed."""
    try:
        return shlex.split(argument)
    except ValueError:
        return argument.split()


def _get_argument(at: str | None, number: str | None, argument: str, values: Sequence[str]) -> str:
    """Return `$ARGUMENTS`, `$ARGUMENTS[n]` (from 0) or `$n` (from 1); empty for a missing one."""
    place = _find_argument_index(at, number)
    if place is None:
        return argument
    return values[place] if place < len(values) else ""


def _find_argument_index(at: str | None, number: str | None) -> int | None:
    """Return the index of the argument, counted from 0; None for all of them."""
    if at is not None:
        return int(at)
    return int(number) - 1 if number is not None else None


def _fill_command(command: str, argument: str, values: Sequence[str]) -> str:
    """Return a command with its arguments as single words of a shell that nothing in them can leave."""
    quoting = _QUOTING.search(command) is not None

    def put(found: re.Match[str]) -> str:
        all_arguments = found[1] is None and found[2] is None
        inserted = list(values) if all_arguments else [_get_argument(found[1], found[2], argument, values)]
        if all(_PLAIN.fullmatch(value) for value in inserted):
            return " ".join(inserted)
        if quoting:
            words = quote(" ".join(inserted))
            text = f"The command `{command}` cannot take the argument {words}: a shell would act on it."
            raise SaktiError(text, title="Not sent")
        return " ".join(shlex.quote(value) for value in inserted)

    return _NAMED.sub(put, command)
