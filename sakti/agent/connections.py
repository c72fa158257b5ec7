"""Edit the configuration of other agents so that they use `sakti mcp`, and revert the edit.

Only sakti's entry is inserted; everything else in a file stays unchanged, byte for byte. Pure, except for `read` and
`write`.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from sakti.core.errors import SaktiError
from sakti.core.text import quote

NAME = "sakti"
INVALID = "The configuration is not valid JSON; nothing was changed."
_COMMAND = re.compile(rf'"([^"\\\n]*{NAME})"')  # where the program was when it was connected
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|[{}\[\],:]', re.DOTALL)


class ConnectError(SaktiError):
    title = "Connect"
    code = "connect"


class ClientProgram(Struct, frozen=True):
    """Configuration of one program: its file below the home folder, and how the entry is inserted.

    `insert` takes the text of the file and the command; `pieces` are all texts that it may insert for a command.
    `remove` finds the entry even if the program has reformatted its file; None if the entry differs.
    """

    name: str
    path: str
    insert: Callable[[str, str], str]
    pieces: Callable[[str], tuple[str, ...]]
    has_entry: Callable[[str], bool]
    remove: Callable[[str, str], str | None] = lambda text, command: None


def read(path: Path) -> str | None:
    """Return the text of a file, None if it is missing. Raises ConnectError."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as e:
        raise ConnectError(f"{path} cannot be read: {e}.") from e


def write(path: Path, text: str | None) -> None:
    """Replace a file at once, or remove it (None); links are followed. Raises ConnectError."""
    target = path.resolve()
    try:
        if text is None:
            target.unlink(missing_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), mode)
        Path(name).replace(target)
    except OSError as e:
        raise ConnectError(f"{path} cannot be written: {e.strerror or e}.") from e


def connect(program: ClientProgram, text: str | None, command: str) -> str | None:
    """Return the text of a configuration with the entry. Raises ConnectError if it cannot be edited."""
    if text is not None and program.has_entry(text):
        return text
    return program.insert(text or "", command)


def disconnect(program: ClientProgram, text: str | None, command: str) -> str | None:
    """Return the text of a configuration before `connect`; None if there was no file.

    Raises ConnectError if the entry was changed since.
    """
    if text is None or not program.has_entry(text):
        return text
    for used in (command, *_COMMAND.findall(text)):
        if text == program.insert("", used):
            return None
        if (before := _remove_pieces(program, text, used) or program.remove(text, used)) is not None:
            return before
    raise ConnectError(f"The entry {quote(NAME)} in ~/{program.path} has changed since: remove it there by hand.")


def _remove_pieces(program: ClientProgram, text: str, command: str) -> str | None:
    """Return the text that `insert` turned into this one, None without such a text."""
    for piece in program.pieces(command):
        at = text.find(piece)
        while at >= 0:
            before = text[:at] + text[at + len(piece) :]
            if not program.has_entry(before) and program.insert(before, command) == text:
                return before
            at = text.find(piece, at + 1)
    return None


# --- JSON, also with comments -------------------------------------------------------------------------------


class _Token(Struct, frozen=True):
    """Punctuation or string of a JSON text.

    `depth` is the number of objects and lists around it, `before` the string before it.
    """

    sign: str
    end: int
    depth: int
    before: str


class _JsonObject(Struct, frozen=True):
    """Object in a text: the offset after its brace, whether it is empty, and whether it has our entry."""

    at: int
    is_empty: bool
    has_entry: bool


def _read_tokens(text: str) -> list[_Token]:
    """Return the tokens of a JSON text without comments. Raises ConnectError if its brackets do not match."""
    tokens: list[_Token] = []
    stack: list[str] = []
    before = ""
    for match in _TOKEN.finditer(text):
        sign = match[0]
        if sign.startswith("/"):
            continue
        if sign in "}]" and (not stack or stack.pop() + sign not in ("{}", "[]")):
            raise ConnectError(INVALID)
        tokens.append(_Token(sign, match.end(), len(stack), before))
        if sign in "{[":
            stack.append(sign)
        before = sign[1:-1] if sign.startswith('"') else before
    if stack or not tokens:
        raise ConnectError(INVALID)
    return tokens


def _find_opening(tokens: Sequence[_Token], key: str) -> int | None:
    """Return the index of the token that opens the object of a top-level key, or the root (`key` empty)."""
    depth = 1 if key else 0
    opened = (i for i, t in enumerate(tokens) if t.sign == "{" and t.depth == depth and (not key or t.before == key))
    return next(opened, None)


def _find_entry(tokens: Sequence[_Token], opening: int) -> int | None:
    """Return the index of sakti's name in the object that opens there, if its value is an object."""
    for i in range(opening + 1, len(tokens) - 2):
        is_name = tokens[i].sign == f'"{NAME}"' and tokens[i].depth == 2
        if is_name and tokens[i + 1].sign == ":" and tokens[i + 2].sign == "{":
            return i
    return None


def _cut_member(text: str, tokens: Sequence[_Token], name: int, last: int) -> str:
    """Return a text without the member between two tokens, and without the comma that it leaves."""
    before, after = tokens[name - 1], tokens[last + 1]
    start = tokens[name].end - len(tokens[name].sign)
    if after.sign == ",":
        rest = text[after.end :]
        return text[:start] + rest.lstrip()
    if before.sign == ",":
        return text[: before.end - 1] + text[tokens[last].end :]
    return text[: before.end] + text[after.end - 1 :]


def _find_object(text: str, key: str) -> _JsonObject | None:
    """Find the object of a top-level key, or the root object (`key` empty). Raises ConnectError."""
    tokens, depth = _read_tokens(text), 1 if key else 0
    start = _find_opening(tokens, key)
    if start is None:
        if not key:
            raise ConnectError(INVALID)
        return None
    inside = list(itertools.takewhile(lambda t: t.depth > depth, tokens[start + 1 :]))
    names = [t.before for t in inside if t.sign == ":" and t.depth == depth + 1]
    return _JsonObject(tokens[start].end, not inside, NAME in names)


class _JsonEntry:
    """Entry in the object of a key; the object may be missing."""

    def __init__(self, key: str, make: Callable[[str], object]) -> None:
        self._key, self._make = key, make

    def pieces(self, command: str) -> tuple[str, ...]:
        """Return the pieces for an object with members, an empty one, and two more without the key.

        They differ in their white space, so that the former text can be reconstructed.
        """
        entry = f'"{NAME}": {json.dumps(self._make(command), ensure_ascii=False)}'
        added = f'\n  "{self._key}": {{{entry}}}'
        return f"\n    {entry},", f"\n    {entry}\n  ", f"{added},", f"{added}\n"

    def insert(self, text: str, command: str) -> str:
        member, only_member, with_key, only_key = self.pieces(command)
        if not text.strip():
            return f"{{{only_key.strip()}}}\n"
        place = _find_object(text, self._key)
        pieces = (only_member, member) if place is not None else (only_key, with_key)
        place = place or _find_object(text, "")
        assert place is not None
        return text[: place.at] + pieces[not place.is_empty] + text[place.at :]

    def remove(self, text: str, command: str) -> str | None:
        """Return the text without the entry, whatever its white space; None if its value differs."""
        tokens = _read_tokens(text)
        opening = _find_opening(tokens, self._key)
        if opening is None:
            return None
        name = _find_entry(tokens, opening)
        if name is None:
            return None
        last = next(i for i in range(name + 3, len(tokens)) if tokens[i].sign == "}" and tokens[i].depth == 2)
        try:
            value = json.loads(text[tokens[name + 1].end : tokens[last].end])
        except ValueError:  # it has comments
            return None
        return _cut_member(text, tokens, name, last) if value == self._make(command) else None

    def is_in(self, text: str) -> bool:
        place = _find_object(text, self._key) if text.strip() else None
        return place is not None and place.has_entry


# --- TOML ---------------------------------------------------------------------------------------------------

_EMPTY_LIST = re.compile(r"^mcp_servers\s*=\s*\[\s*\]", re.MULTILINE)


def _format_codex_table(command: str) -> str:
    return f'[mcp_servers.{NAME}]\ncommand = {json.dumps(command)}\nargs = ["mcp"]\n'


def _format_vibe_fields(command: str) -> tuple[str, ...]:
    return f'name = "{NAME}"', 'transport = "stdio"', f"command = {json.dumps(command)}", 'args = ["mcp"]'


def _format_vibe_table(command: str) -> str:
    return "\n".join(("[[mcp_servers]]", *_format_vibe_fields(command), ""))


def _format_vibe_member(command: str) -> str:
    return f"{{ {', '.join(_format_vibe_fields(command))} }}"


def _insert_vibe(text: str, command: str) -> str:
    if match := _EMPTY_LIST.search(text):
        return text[: match.end() - 1] + _format_vibe_member(command) + text[match.end() - 1 :]
    if re.search(r"^mcp_servers\s*=", text, re.MULTILINE):
        raise ConnectError("mcp_servers is written as a list: add the entry there by hand.")
    return _append(text, _format_vibe_table(command))


def _append(text: str, table: str) -> str:
    return f"{text}\n{table}" if text else table


def _list_appended(table: str) -> tuple[str, ...]:
    return f"\n{table}", table


def _has_codex(text: str) -> bool:
    return re.search(rf"^\[mcp_servers\.{NAME}\]", text, re.MULTILINE) is not None


def _has_vibe(text: str) -> bool:
    return re.search(rf'\bname\s*=\s*"{NAME}"', text) is not None


_CLAUDE = _JsonEntry(
    "mcpServers", lambda command: {"type": "stdio", "command": command, "args": ["mcp"], "alwaysLoad": True}
)
_OPENCODE = _JsonEntry("mcp", lambda command: {"type": "local", "command": [command, "mcp"], "enabled": True})

PROGRAMS = {
    program.name: program
    for program in (
        ClientProgram("claude-code", ".claude.json", _CLAUDE.insert, _CLAUDE.pieces, _CLAUDE.is_in, _CLAUDE.remove),
        ClientProgram(
            "codex",
            ".codex/config.toml",
            lambda text, command: _append(text, _format_codex_table(command)),
            lambda command: _list_appended(_format_codex_table(command)),
            _has_codex,
        ),
        ClientProgram(
            "opencode",
            ".config/opencode/opencode.json",
            _OPENCODE.insert,
            _OPENCODE.pieces,
            _OPENCODE.is_in,
            _OPENCODE.remove,
        ),
        ClientProgram(
            "vibe",
            ".vibe/config.toml",
            _insert_vibe,
            lambda command: (_format_vibe_member(command), *_list_appended(_format_vibe_table(command))),
            _has_vibe,
        ),
    )
}
