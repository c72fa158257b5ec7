"""Boundary of a command as values: the paths that it writes, only reads, or does not see.

Nothing here runs anything. `drawn` looks at the file system, so that a boundary is true for one command only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.judge.where import LevelName
from sakti.agent.project.files import TABLE
from sakti.agent.sandbox import repositories
from sakti.core import resources

# What runs code later, or speaks to the agent: read-only where it is, set aside where it appears.
PROTECTED = (
    *(".git/hooks", ".git/config", ".git/info", ".vscode", ".idea", ".husky", ".envrc", ".sakti"),
    ".github/workflows",
    *(location.path.rstrip("/") for location in TABLE if not location.path.startswith(".sakti/")),
)
# Folders of the home folder that hold what the user signs in with, and sakti's own data.
_HIDDEN = (
    ".ssh .gnupg .aws .azure .kube .docker .config/gcloud .config/gh .config/sakti .local/share/sakti"
    " .local/state/sakti .mozilla .local/share/keyrings .password-store .config/op .config/rclone .oci .config/sops"
    " .config/age .config/doctl .config/hcloud .config/heroku .config/glab-cli .config/github-copilot"
    " .config/configstore .config/chromium .config/google-chrome .config/BraveSoftware .config/microsoft-edge"
    " .config/vivaldi .thunderbird .config/Signal .config/Slack .config/discord .config/1Password .config/Bitwarden"
    " .local/share/fish .terraform.d .config/solana .bitcoin .ethereum .electrum .fly .kaggle .config/flyctl"
    " .config/stripe"
).split()
# The same on macOS.
_HIDDEN_IN_LIBRARY = (
    *("Keychains", "Cookies", "Mail", "Messages", "Safari", "Accounts", "IdentityServices"),
    *("Application Support/Google/Chrome", "Application Support/BraveSoftware", "Application Support/Microsoft Edge"),
    *("Application Support/Firefox", "Application Support/1Password", "Application Support/Bitwarden"),
    *("Application Support/Slack", "Application Support/Signal", "Group Containers", "Containers"),
)
# Files there in which programs keep keys.
_EMPTIED = (
    ".netrc .git-credentials .npmrc .yarnrc.yml .pypirc .pgpass .my.cnf .vault-token .boto .s3cfg .databrickscfg"
    " .config/git/credentials .config/containers/auth.json .config/hub .cargo/credentials .cargo/credentials.toml"
    " .claude.json .claude/.credentials.json .codex/auth.json .gemini/oauth_creds.json .local/share/opencode/auth.json"
    " .cache/huggingface/token .huggingface/token .config/pip/pip.conf .pip/pip.conf .config/composer/auth.json"
    " .composer/auth.json .nuget/NuGet/NuGet.Config .wgetrc .curlrc .Xauthority .config/nix/nix.conf .lesshst .viminfo"
    " .m2/settings.xml .gradle/gradle.properties .gem/credentials .bundle/config .subversion/auth .bash_history"
    " .zsh_history .python_history .psql_history .mysql_history .node_repl_history .rediscli_history"
).split()
# Files and folders of the system with keys; root reads them, and inside root is root.
_OF_SYSTEM = (
    "/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/ssl/private /etc/krb5.keytab /etc/wireguard /etc/sudoers"
    " /etc/sudoers.d /etc/NetworkManager/system-connections /etc/kubernetes /var/lib/kubelet /var/lib/sss/secrets"
    " /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key /var/backups /var/spool/cron"
).split()
TEMPORARY = (Path("/tmp"), Path("/run"))
_KERNEL = (Path("/dev"), Path("/proc"), Path("/sys"))


class Level(Struct, frozen=True):
    """What holds the commands of a session. `reason` says why it is not "sandboxed", `mend` what to do.

    `own_network`: commands have a network of their own, in which hosts can be opened to them.
    """

    name: LevelName
    reason: str = ""
    mend: str = ""
    own_network: bool = True

    @property
    def holds(self) -> bool:
        """Return whether commands may run unasked; that takes a complete sandbox."""
        return self.name == "sandboxed"

    @property
    def text(self) -> str:
        return f"{self.name}: {self.reason}" if self.reason else self.name


class Boundary(Struct, frozen=True):
    """What one command may reach. All paths are absolute and resolved.

    `write` are the folders that it may change, `pinned` those of them that must keep their place, `read_only` what is
    kept from changes inside of them or shown although what holds it is temporary, `masked` the files and `hidden` the
    folders whose content it does not see, `emptied` the files that are there without their content, as a program that
    cannot read its own settings fails, `shown` what it reads even there; new, empty folders are in the place of
    `temporary`.
    """

    write: tuple[Path, ...]
    pinned: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    masked: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    temporary: tuple[Path, ...] = TEMPORARY
    shown: tuple[Path, ...] = ()
    emptied: tuple[Path, ...] = ()

    def sees(self, folder: Path) -> bool:
        """Return whether `folder` exists inside."""
        shown = (*self.write, *self.read_only)
        away = (*self.temporary, *self.hidden)
        return not any(folder.is_relative_to(a) for a in away) or any(
            folder.is_relative_to(s) and not any(a.is_relative_to(s) and folder.is_relative_to(a) for a in away)
            for s in shown
        )

    def without_writing(self, kept: Sequence[Path]) -> Boundary:
        """Return the boundary of a command that only reads: it may write the folders `kept`.

        git's filter for large files works in a folder of its own, and gets a new one.
        """
        roots = tuple(root for root in self.write if root not in kept)
        elsewhere = (p for p in self.read_only if not any(p.is_relative_to(root) for root in roots))
        large = (folder for git in self.pinned if (folder := git / "lfs").is_dir())
        return replace(
            self,
            write=tuple(kept),
            pinned=(),
            read_only=(*roots, *elsewhere),
            hidden=(*self.hidden, *large),
        )


def impossible(workspace: Path) -> str:
    """Return why no boundary can be drawn around a workspace, or ""."""
    if workspace == Path(workspace.anchor):
        return "the workspace is the root of the file system"
    if workspace in TEMPORARY or any(workspace.is_relative_to(k) for k in _KERNEL):
        return f"the workspace is {workspace}"
    return ""


def hidden_at(home: Path) -> tuple[Path, ...]:
    """Return the folders of a home folder that no command sees."""
    return tuple(home / name for name in (*_HIDDEN, *(f"Library/{name}" for name in _HIDDEN_IN_LIBRARY)))


def drawn(
    workspace: Path,
    *,
    home: Path,
    own: Iterable[Path] = (),
    write: Iterable[Path] = (),
    added: Sequence[Path] = (),
    masked: Sequence[Path] = (),
    gits: Sequence[Path] = (),
    texts: Sequence[Path] = (),
    temporary: tuple[Path, ...] = TEMPORARY,
    shown: Iterable[Path] = (),
) -> Boundary:
    """Return the boundary of a command that starts now.

    `added` are folders that are treated as the workspace is, `write` others that may be written. `own` are sakti's
    folders and files besides the usual ones, `gits` the folders and files `.git` of nested repositories, `texts` what
    instructs an agent below a workspace, `shown` folders that may be read although what holds them is hidden.
    """
    opened = (workspace, *added)
    roots = (*opened, *filter(Path.exists, write))
    read_only, git_folders = list[Path](), list[Path]()
    for root in opened:
        git_paths = [g for g in (root / ".git", *(g for g in gits if g.is_relative_to(root))) if not g.is_symlink()]
        folders = _git_folders(git_paths, root, workspace)
        read_only += _read_only_below(root, git_paths, folders, texts)
        git_folders += folders
    closed = [*hidden_at(home), *own, *(p for p in map(Path, _OF_SYSTEM) if os.access(p, os.R_OK))]
    protected = tuple(dict.fromkeys(_there(read_only, (*roots, *git_folders))))
    above = _folders_above((*protected, *masked), opened)
    return Boundary(
        write=roots,
        pinned=tuple(sorted({*git_folders, *above}, key=lambda p: len(p.parts))),
        read_only=tuple(dict.fromkeys((*protected, *_of_ours((*roots, *temporary), roots)))),
        masked=(*masked, *filter(Path.is_file, closed)),
        emptied=tuple(f.resolve() for name in _EMPTIED if (f := home / name).is_file()),
        hidden=tuple(dict.fromkeys(f.resolve() for f in closed if f.is_dir())),
        temporary=temporary,
        shown=tuple(filter(Path.exists, shown)),
    )


def _git_folders(git_paths: Sequence[Path], root: Path, workspace: Path) -> list[Path]:
    """Folders that hold the repositories of a root, the common one of a worktree too."""
    folders = list(dict.fromkeys(k for g in git_paths if (k := repositories.find_git_folder(g, root)) is not None))
    if root == workspace and (common := repositories.find_common_folder(workspace)) is not None:
        folders.append(common)
    return folders


def _read_only_below(
    root: Path, git_paths: Sequence[Path], folders: Sequence[Path], texts: Sequence[Path]
) -> Iterator[Path]:
    """Yield the paths below a root that a command only reads."""
    yield from (root / name for name in PROTECTED)
    yield from (g for g in git_paths if g.is_file())  # they name the folder of a worktree or submodule: none else
    yield from (t for t in texts if t.is_relative_to(root))
    for git in folders:
        yield from repositories.list_protected(git, root)


def _folders_above(paths: Sequence[Path], opened: Sequence[Path]) -> list[Path]:
    """Folders between one of the `opened` and a path in it: moving one would move the path."""
    parents = dict.fromkeys(f for path in paths for f in path.parents)
    return [f for f in parents if f not in opened and any(f.is_relative_to(root) for root in opened)]


def _there(paths: Iterable[Path], roots: Sequence[Path]) -> Iterator[Path]:
    """Yield those of the protected paths that are there and lie where a command may write, links followed."""
    for path in paths:
        if os.path.lexists(path):
            resolved = Path(os.path.realpath(path))
            if resolved.exists() and any(resolved.is_relative_to(r) for r in roots):
                yield resolved


def _of_ours(places: Sequence[Path], roots: Sequence[Path]) -> Iterator[Path]:
    """Yield Python, sakti and its data where a command could change or would miss them."""
    ours = (Path(sys.prefix), Path(sys.base_prefix), resources.PACKAGE, *map(Path, _data()))
    for path in dict.fromkeys(Path(os.path.realpath(p)) for p in ours):
        if any(r.is_relative_to(path) for r in roots):
            continue  # it holds the workspace: nothing could be written
        if path.exists() and any(path.is_relative_to(p) for p in places):
            yield path


def _data() -> Iterator[Path]:
    for kind in ("prompts", "themes"):
        yield from (f for f in resources.folders(kind) if not f.is_relative_to(resources.config_home()))
