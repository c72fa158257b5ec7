"""Know the files that hold secrets: by name, by folder, and as the same file under another name."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from sakti.agent.judge.where import Place
from sakti.core.lazy import lazy_pattern

_DATA = ("yaml", "yml", "json", "toml", "ini", "txt", "xml", "cfg", "conf", "properties", "csv", "enc")
SECRET_NAMES = (
    *(f"{stem}.{end}" for stem in ("secret", "secrets", "credentials", "*-secrets", "*-secret") for end in _DATA),
    *(
        ".env .env.* *.env .envrc *.pem *.key *.p12 *.pfx *.jks *.keystore *.kdbx *.ppk id_rsa* id_dsa* id_ecdsa*"
        " id_ed25519* .netrc _netrc .pgpass .my.cnf .npmrc .pypirc .git-credentials .htpasswd credentials"
        " *-credentials.json *_credentials.json service-account*.json service_account*.json *.tfstate *.tfstate.*"
        " terraform.tfvars *.auto.tfvars kubeconfig* .vault-token .dockercfg .boto .s3cfg rclone.conf *.agekey"
        " .databrickscfg .bash_history .zsh_history .python_history .psql_history .mysql_history .node_repl_history"
        " shadow gshadow wallet.dat".split()
    ),
)
HARMLESS_NAMES = (".env.example", ".env.sample", ".env.template", ".env.dist", "example.env", "sample.env", "*.pub")
SECRET_FOLDERS = frozenset(
    ".ssh .gnupg .aws .azure .kube .docker .password-store gcloud .mozilla keyrings .oci .terraform.d .chef .bitcoin"
    " .electrum".split()
)
# Folders and files below the home folder that hold what a program signs in with.
_AT_HOME = tuple(
    ".config/gh .config/hub .config/rclone .config/op .config/doctl .config/heroku .config/configstore"
    " .config/git/credentials .config/containers/auth.json .config/google-chrome .config/chromium"
    " .cargo/credentials.toml .cargo/credentials .m2/settings.xml .gem/credentials .subversion/auth".split()
)
# Files of processes that show what a shell was given.
_PROCESS = lazy_pattern(r"/proc/[^/]+/(?:environ|mem|maps|cmdline|fd(?:/.*)?|root(?:/.*)?|cwd(?:/.*)?)$")
WALKED = 20_000  # entries looked at for another name of a file


def secret_reason(path: Path, place: Place) -> str:
    """Return why the agent may not read or write `path`, which is resolved; empty for an ordinary file."""
    if named := _by_name(path, place):
        return named
    other = _same_file(path, place)
    return f"the same file as {place.show(other)}, which holds secrets" if other is not None else ""


def _by_name(path: Path, place: Place) -> str:
    text = str(path)
    if any(text == own or text.startswith(f"{own}/") for own in map(str, place.own)) and not any(
        path.is_relative_to(folder) for folder in place.readable
    ):
        return "sakti's own data"
    if any(part.lower() in SECRET_FOLDERS for part in path.parts):
        return "a folder of credentials"
    if _is_secret_name(path.name):
        return "holds secrets"
    if text.startswith(_at_home(os.path.expanduser("~"))):  # noqa: PTH111 - a path would be parsed each time
        return "holds secrets"
    if _PROCESS.match(text):
        return "shows what programs were given"
    return ""


@functools.lru_cache(maxsize=4)
def _at_home(home: str) -> tuple[str, ...]:
    return tuple(f"{home}/{p}" for p in _AT_HOME)


def _is_secret_name(name: str) -> bool:
    return _names().fullmatch(name.lower()) is not None


@functools.cache
def _names() -> re.Pattern[str]:
    names, harmless = ("|".join(map(_inside, n)) for n in (SECRET_NAMES, HARMLESS_NAMES))
    return re.compile(rf"(?!(?:{harmless})$)(?:{names})")


def _same_file(path: Path, place: Place) -> Path | None:
    """Return the secret file that `path` is another name of, if it has several names."""
    try:
        there = path.stat()
    except OSError:
        return None
    if there.st_nlink < 2 or path.is_dir():
        return None
    for file in itertools.chain.from_iterable(map(list_secret_files, place.roots)):
        with contextlib.suppress(OSError):
            if os.path.samestat(there, file.stat()):
                return file
    return None


def other_name(place: Place) -> Callable[[Path], bool]:
    """Return a test for other names of secret files, which are listed once, on first use."""

    @functools.cache
    def inodes() -> frozenset[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        for file in itertools.chain.from_iterable(map(list_secret_files, place.roots)):
            with contextlib.suppress(OSError):
                seen = file.stat()
                found.add((seen.st_dev, seen.st_ino))
        return frozenset(found)

    def test(path: Path) -> bool:
        try:
            there = path.stat()
        except OSError:
            return False
        return there.st_nlink > 1 and (there.st_dev, there.st_ino) in inodes()

    return test


def list_secret_files(root: Path) -> Iterator[Path]:
    """Walk a folder for files with a secret name."""
    seen = 0
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in ("node_modules", ".venv", "__pycache__") and f != ".git"]
        seen += len(files) + len(folders)
        if seen > WALKED:
            return
        for name in files:
            if _is_secret_name(name):
                yield Path(folder, name)


@functools.cache
def _secret_pattern() -> re.Pattern[str]:
    """Compile a pattern of secret names in lower-case relative paths, as `secret_reason`."""
    folders = "|".join(map(re.escape, sorted(SECRET_FOLDERS)))
    return re.compile(rf"(?:^|/)(?:(?:{folders})(?:/|$)|{_names().pattern}$)")


def secret_filter(root: Path, place: Place) -> Callable[[str], bool]:
    """Return a test whether the file at a path relative to `root` is secret or sakti's."""
    pattern = _secret_pattern()
    own = tuple(o.relative_to(root).as_posix() for o in place.own if o.is_relative_to(root))
    if own:
        inside = tuple(f"{o}/" for o in own)
        return lambda path: bool(pattern.search(path.lower())) or path in own or path.startswith(inside)
    return lambda path: bool(pattern.search(path.lower()))


def _inside(pattern: str) -> str:
    """Convert a glob of a name to a regular expression for a name in a longer path."""
    return "".join("[^/]*" if c == "*" else re.escape(c) for c in pattern)


def list_exclusions(place: Place, for_files: str, for_folders: str) -> list[str]:
    """Return options by which a program that searches folders leaves out secrets, by their names.

    Empty if that does not do: a secret file has another name.
    """
    files = [f for root in place.roots for f in list_secret_files(root)]
    try:
        if any(f.stat().st_nlink > 1 for f in files):
            return []
    except OSError:
        return []
    names = dict.fromkeys((*SECRET_NAMES, *(re.sub(r"([*?\[\\])", r"[\1]", f.name) for f in files)))
    return [*(for_files + n for n in names), *(for_folders + n for n in sorted(SECRET_FOLDERS))]


def holds_secrets(folder: Path, *, hidden: bool = True) -> Path | None:
    """Return the first secret file below `folder`, None without one.

    `hidden`: also those whose name, or a folder's above them, begins with a dot.
    """
    files = list_secret_files(folder)
    seen = (f for f in files if hidden or not any(p.startswith(".") for p in f.relative_to(folder).parts))
    return next(seen, None)
