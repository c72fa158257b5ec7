"""Find changes in a workspace since the last scan, by git with sakti's own index.

git never sees the user's repository: `--git-dir` is a bare one in the state folder, with its own index, no hooks, no
filters and only the configuration given here. It lists files that are new or differ from its index; those that may be
covered are added, which stores their contents.
"""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from sakti.agent.checkpoints.plan import PathEntry
from sakti.core.errors import SaktiError
from sakti.core.resources import build_safe_environment, find_program

LARGEST = 10_000_000  # bytes of a file that is covered
MOST = 100_000  # paths that are added at once
MOST_BYTES = 2_000_000_000
PATIENCE = 60.0  # seconds for one call of git
PACKED = 500  # minimum of files added at once that go into a pack
LOOKED_AT = 20_000  # files whose permissions are read before each command; with more files only once
LEAVES = 1_000  # empty folders that are searched for below an uncovered one

# Attributes of the workspace would convert line ends and encodings, or run filters.
_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding -diff -merge\n"
_CONFIG = """[core]
\trepositoryformatversion = 0
\tbare = true
\tfilemode = true
\tsymlinks = true
\tignorecase = false
\tautocrlf = false
\tsafecrlf = false
\tcompression = 0
\tlooseCompression = 0
\tfsync = none
\tfsmonitor = false
\tuntrackedCache = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tsplitIndex = false
\tprotectHFS = false
\tprotectNTFS = false
[gc]
\tauto = 0
"""


class TooLarge(SaktiError):
    """Error for a workspace with more files than a checkpoint covers."""

    title = "Checkpoints"


class WorkspaceSnapshot(Struct, frozen=True):
    """Snapshot of a workspace: each covered path and empty folder, and the paths not covered."""

    entries: Mapping[str, PathEntry] = field(default_factory=dict[str, PathEntry])
    left_out: frozenset[str] = frozenset()


class Scanner(Protocol):
    """Takes snapshots of a workspace."""

    def scan(self, *, modes: bool = False, rules: bool = True) -> WorkspaceSnapshot:
        """Take a snapshot of the workspace and store the contents; `modes` adds all permissions.

        Raises `SaktiError`, OSError.

        `rules`: read `.git/info/exclude` again, otherwise use its rules from the last scan.
        """
        ...

    def list_ignored(self, paths: Sequence[str], rules: Mapping[str, bytes]) -> set[str]:
        """Return those of `paths` that a set of .gitignore files (path: content) would ignore."""
        ...


def find_git(workspace: Path) -> str | None:
    return find_program("git", workspace)


def read_packed(git: str, folder: Path, oid: str) -> bytes | None:
    """Return a content from a pack of git, or None if no pack has it."""
    done = subprocess.run(
        [git, f"--git-dir={folder}", "cat-file", "blob", oid],
        env=_make_environment(folder, Path(os.devnull)),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout if done.returncode == 0 else None


def _make_environment(folder: Path, workspace: Path) -> dict[str, str]:
    """Return the environment of our git, which reads none of the user's files."""
    variables = {k: v for k, v in build_safe_environment(os.environ, workspace).items() if k in ("PATH", "TMPDIR")}
    return {
        **variables,
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }


def is_excluded(path: str, secret: Callable[[str], bool]) -> bool:
    """Return whether a path is never covered: secrets, and git's own files."""
    return secret(path) or ".git" in path.split("/")


def write_rules(folder: str, rules: Mapping[str, bytes]) -> None:
    """Write .gitignore files (path: content) into a folder."""
    for path, content in rules.items():
        file = Path(folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


class GitScanner(Struct):
    """`folder` is the shadow repository; `secret` tells whether a relative path is never covered."""

    workspace: Path
    folder: Path
    secret: Callable[[str], bool]
    git: str
    _seen: tuple[int, int, int] | None = None  # the index that `_entries` was read from
    _entries: dict[str, PathEntry] = field(default_factory=dict[str, PathEntry])
    _modes: dict[str, int] = field(default_factory=dict[str, int])
    _looked: bool = False

    def scan(self, *, modes: bool = False, rules: bool = True) -> WorkspaceSnapshot:
        self._prepare()
        if rules:
            self._take_rules()
        left_out: set[str] = set()
        folders: dict[str, PathEntry] = {}
        for _ in range(4):
            listed = self._list_files("--directory")
            plain, below = _split_folders(listed)
            inside = self._list_inside(below)
            add, drop = self._sort_paths([*plain, *inside], left_out)
            folders = self._find_empty_folders(below, {*add, *inside})
            if not add and not drop:
                break
            self._update(add, drop)
            if not below and not drop:
                break  # otherwise their empty folders would only be seen now
        self._load()
        if modes:
            self._look_at_modes()
        return WorkspaceSnapshot({**self._entries, **folders} if folders else self._entries, frozenset(left_out))

    def list_ignored(self, paths: Sequence[str], rules: Mapping[str, bytes]) -> set[str]:
        with tempfile.TemporaryDirectory(prefix="sakti-ignore-") as folder:
            write_rules(folder, rules)
            words = ("check-ignore", "--no-index", "-z", "--stdin")
            out = self._run(
                words, _join_names(f"./{p}" for p in paths), tree=Path(folder), ok=(0, 1)
            )  # no pathspec magic in them
        return {p.removeprefix("./") for p in _split_names(out)}

    # --- git --------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make the repository, by hand: `git init` would copy templates."""
        if not (self.folder / "HEAD").exists():
            for name in ("objects", "refs", "info"):
                (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.folder / "config").write_text(_CONFIG)
            (self.folder / "info" / "attributes").write_text(_ATTRIBUTES)
            (self.folder / "HEAD").write_text("ref: refs/heads/none\n")
        for lock in self.folder.glob("index.lock"):
            lock.unlink(missing_ok=True)  # left by a killed process, since we hold the lock of the folder

    def _take_rules(self) -> None:
        exclude_file = self.workspace / ".git" / "info" / "exclude"
        text = exclude_file.read_bytes() if exclude_file.is_file() and exclude_file.stat().st_size < 1_000_000 else b""
        target = self.folder / "info" / "exclude"
        if not target.exists() or target.read_bytes() != text:
            target.write_bytes(text)

    def _run(
        self,
        words: Sequence[str],
        data: bytes = b"",
        *,
        tree: Path | None = None,
        index: Path | None = None,
        ok: Sequence[int] = (0,),
    ) -> bytes:
        env = _make_environment(self.folder, self.workspace) | (
            {"GIT_INDEX_FILE": str(index)} if index is not None else {}
        )
        where = tree or self.workspace
        command = [self.git, f"--git-dir={self.folder}", f"--work-tree={where}", "-c", "core.bare=false", *words]
        try:
            done = subprocess.run(
                command, cwd=where, env=env, input=data, capture_output=True, timeout=PATIENCE, check=False
            )
        except subprocess.TimeoutExpired as e:
            raise TooLarge(f"The workspace could not be read in {PATIENCE:g} s: /undo does not cover commands.") from e
        if done.returncode not in ok:
            message = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
            raise SaktiError(f"git could not read the workspace: {message}", title="Checkpoints")
        return done.stdout

    def _list_files(self, *more: str) -> list[str]:
        words = ("ls-files", "-o", "-m", "-d", "-z", "--exclude-standard", *more)
        return list(dict.fromkeys(_split_names(self._run(words))))

    def _list_inside(self, below: Sequence[str]) -> list[str]:
        """List the files in folders missing from the index; nested repositories are ordinary folders."""
        if not below:
            return []
        only = ("--", *below) if len(below) <= 200 else ()
        names = _split_names(self._run(("--literal-pathspecs", "ls-files", "-o", "-z", "--exclude-standard", *only)))
        out, nested = _split_folders(names)
        while nested:
            top = nested.pop()
            words = ("ls-files", "-o", "-z", "--exclude-standard")
            for path in _split_names(self._run(words, tree=self.workspace / top, index=self.folder / "no-index")):
                (nested if path.endswith("/") else out).append(top + path)
            if len(out) > MOST:
                raise TooLarge(explain_too_many(len(out)))
        return out

    def _sort_paths(self, paths: Iterable[str], left_out: set[str]) -> tuple[list[str], list[str]]:
        """Sort paths into those to add or refresh, and those to drop; note paths that are not covered."""
        add: list[str] = []
        drop: list[str] = []
        size, top = 0, f"{self.workspace}/"  # a Path for each would take longer than git
        for path in dict.fromkeys(paths):
            try:
                status = os.lstat(top + path)
            except (FileNotFoundError, NotADirectoryError):
                drop.append(path)
                continue
            except PermissionError:
                continue  # in an inaccessible folder: counts as unchanged
            if stat.S_ISDIR(status.st_mode):
                drop.append(path)  # a file was replaced by a folder
            elif not _is_copied(top + path, status) or is_excluded(path, self.secret):
                left_out.add(path)
            else:
                size += status.st_size
                self._modes[path] = status.st_mode
                add.append(path)
        if len(add) > MOST or size > MOST_BYTES:
            raise TooLarge(explain_too_many(len(add)))
        indexed = self._list_indexed() if drop or left_out else set[str]()
        return add, [p for p in (*drop, *left_out) if p in indexed]

    def _list_indexed(self) -> set[str]:
        self._load()
        return set(self._entries)

    def _update(self, add: Sequence[str], drop: Sequence[str]) -> None:
        if drop:
            self._run(("update-index", "--force-remove", "-z", "--stdin"), _join_names(drop))
        if add:
            pack = ("-c", "core.bigFileThreshold=1") if len(add) > PACKED else ()  # one pack, not a file for each
            self._run((*pack, "update-index", "--add", "--remove", "--replace", "-z", "--stdin"), _join_names(add))

    def _find_empty_folders(self, below: Sequence[str], files: set[str]) -> dict[str, PathEntry]:
        """Return the completely empty folders."""
        out: dict[str, PathEntry] = {}
        filled = {f[: at + 1] for f in files for at, sign in enumerate(f) if sign == "/"} if below else set[str]()
        for top in below:
            if top not in filled:
                out |= {
                    os.path.relpath(f, self.workspace): PathEntry(os.lstat(f).st_mode) for f in self._list_leaves(top)
                }
        return out

    def _list_leaves(self, top: str) -> Iterator[str]:
        """Yield the empty folders below a folder, up to a limit."""
        for folder, folders, names in itertools.islice(os.walk(self.workspace / top), LEAVES):
            if ".git" in folders:
                folders.remove(".git")
            elif not folders and not names:
                yield folder

    def _load(self) -> None:
        """Read the index, unless it is the one read before."""
        try:
            status = (self.folder / "index").stat()
        except FileNotFoundError:
            self._seen, self._entries = None, {}
            return
        now = (status.st_ino, status.st_mtime_ns, status.st_size)
        if now == self._seen:
            return
        before, entries = self._entries, dict[str, PathEntry]()
        for row in self._run(("ls-files", "-s", "-z")).decode("utf-8", "surrogateescape").split("\0"):
            if row:
                facts, _, path = row.partition("\t")
                entry = self._make_entry(path, int(facts[:6], 8), facts[7:-2])
                earlier = before.get(path)
                entries[path] = (
                    earlier if earlier is not None and earlier == entry else entry
                )  # one object: compared at once
        self._seen, self._entries = now, entries

    def _look_at_modes(self) -> None:
        """Record the permissions that git does not store, to restore them on files that a command deletes."""
        if self._looked and len(self._entries) > LOOKED_AT:
            return
        self._looked = True
        top, changed = f"{self.workspace}/", dict[str, PathEntry]()
        for path, entry in self._entries.items():
            try:
                mode = os.lstat(top + path).st_mode
            except OSError:
                continue
            if mode != entry.mode and _is_mode_of(mode, entry.mode):
                self._modes[path] = mode
                changed[path] = PathEntry(mode, entry.oid)
        if changed:
            self._entries = {**self._entries, **changed}

    def _make_entry(self, path: str, mode: int, oid: str) -> PathEntry:
        """Make an entry with all permissions of its file: git keeps only whether it is executable."""
        file_mode = self._modes.get(path, mode)
        return PathEntry(file_mode if _is_mode_of(file_mode, mode) else mode, oid)


def _is_mode_of(own: int, mode: int) -> bool:
    """Return whether git stores a file's mode as `mode`."""
    return stat.S_IFMT(own) == stat.S_IFMT(mode) and bool(own & 0o100) == bool(mode & 0o100)


def explain_too_many(number: int) -> str:
    """Explain that a workspace has too many files to be covered."""
    return f"The workspace has {number:,} files that no .gitignore excludes, too many: /undo does not cover commands."


def _split_names(out: bytes) -> list[str]:
    return [os.fsdecode(name) for name in out.split(b"\0") if name]


def _join_names(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(p) + b"\0" for p in paths)


def _is_copied(path: str, status: os.stat_result) -> bool:
    """Return whether a path is a link, or a readable file that is not too large."""
    is_file = stat.S_ISREG(status.st_mode)
    if status.st_size > LARGEST or not (is_file or stat.S_ISLNK(status.st_mode)):
        return False
    return not is_file or os.access(path, os.R_OK)


def _split_folders(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files, and the folders, which end with a slash."""
    return [n for n in names if not n.endswith("/")], [n for n in names if n.endswith("/")]
