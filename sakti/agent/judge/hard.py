"""Know the commands that are asked about in every mode and under every rule: what they do cannot be undone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from sakti.agent.judge import git
from sakti.agent.judge.running import as_module
from sakti.agent.judge.shell import SHELLS, Script, Simple, Word, with_nested
from sakti.agent.judge.where import Place
from sakti.core.patterns import lazy_pattern
from sakti.core.text import counted

Reason: TypeAlias = Callable[[Simple, Place], str]

_ROOT = frozenset(("sudo", "doas", "su", "pkexec", "run0", "gosu", "sudoedit"))
_SYSTEM = frozenset(
    "systemctl service init telinit shutdown reboot poweroff halt swapoff mount umount modprobe insmod rmmod iptables"
    " nft ufw crontab at visudo useradd userdel usermod passwd chpasswd fdisk parted wipefs shred".split()
)
_INTERPRETERS = SHELLS | frozenset(
    "python python2 python3 perl ruby node php lua osascript pwsh tclsh deno bun".split()
)
# Words of a command that publish, deploy or remove what is elsewhere, behind the program's own options.
_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "npm": ("publish", "unpublish", "deprecate", "dist-tag", "owner", "access", "token", "adduser", "login"),
    "pnpm": ("publish", "unpublish"),
    "yarn": ("publish", "npm publish"),
    "bun": ("publish",),
    "cargo": ("publish", "yank", "owner", "login"),
    "gem": ("push", "yank"),
    "poetry": ("publish",),
    "uv": ("publish",),
    "hatch": ("publish",),
    "flit": ("publish",),
    "twine": ("upload", "register"),
    "mvn": ("deploy", "release:perform"),
    "terraform": ("apply", "destroy", "import", "taint", "state"),
    "tofu": ("apply", "destroy", "import", "taint", "state"),
    "pulumi": ("up", "destroy", "cancel"),
    "kubectl": ("delete", "apply", "drain", "replace", "scale", "patch", "cordon", "rollout"),
    "helm": ("install", "upgrade", "uninstall", "delete", "rollback"),
    "docker": (
        *("push", "rm", "rmi", "system prune", "volume rm", "volume prune", "image prune", "container prune"),
        *("builder prune", "network prune", "compose down", "stack rm", "login", "kill", "image rm", "container rm"),
    ),
    "podman": ("push", "rm", "rmi", "system prune", "system reset", "volume rm", "volume prune", "kill"),
    "gh": ("repo delete", "release delete", "release create", "pr merge", "pr close", "issue delete", "issue close",
           "secret", "auth", "api", "workflow run", "run delete", "gist delete"),
    "heroku": ("apps:destroy", "pg:reset", "releases:rollback"),
    "fly": ("deploy", "apps destroy", "destroy"),
    "vercel": ("deploy", "remove", "rm", "--prod"),
    "netlify": ("deploy", "sites:delete"),
    "wrangler": ("deploy", "publish", "delete"),
    "firebase": ("deploy",),
    "serverless": ("deploy", "remove"),
    "ansible-playbook": ("",),
    "redis-cli": ("flushall", "flushdb", "FLUSHALL", "FLUSHDB"),
    "dropdb": ("",),
}  # fmt: skip
_CLOUDS = lazy_pattern(
    r"^(?:rm|rb|delete\b.*|terminate\b.*|destroy\b.*|remove\b.*|purge\b.*|stop\b.*)|delete-|terminate-"
)
_SQL = lazy_pattern(r"\b(?:drop|truncate|delete\s+from)\b", re.IGNORECASE)


def reason(script: Script, place: Place) -> str:
    """Return why a script is asked about in every mode, with what it would remove; empty where nothing speaks for it.

    Read from all commands in it, also from those in the text of others and in what is not understood.
    """
    for command in with_nested(script):
        if found := _one(command, place):
            return found
        if command.program == "cd":
            there = command.words[1] if len(command.words) == 2 else Word(str(Path.home()))
            place = replace(place, cwd=place.resolve(there.text if "$" not in there.text else "/"))
    return ""


def _one(command: Simple, place: Place) -> str:
    program = command.program
    if not program:
        return ""
    if program in _ROOT:
        return "Runs as another user"
    if program in _SYSTEM:
        return "Changes the system"
    if program.startswith("mkfs") or program in ("mke2fs", "mkswap"):
        return "Overwrites a disk"
    if program in _INTERPRETERS and command.piped and not _names_script(command):
        return "Runs what another command prints"
    if any(w.text.startswith("/dev/") and not is_harmless_device(w.text) for w in command.writes):
        return "Writes to a device"
    own = _OWN.get(program)
    if own is not None and (found := own(command, place)):
        return found
    argv = as_module((program, *command.argv[1:]))
    return _elsewhere(argv[0], argv)


def is_harmless_device(path: str) -> bool:
    """Return whether writing to a device changes nothing."""
    return path in ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero") or path.startswith("/dev/fd/")


def _names_script(command: Simple) -> bool:
    """Return whether an interpreter runs a file or a text of its own, so that its input is only data."""
    operands = [w.text for w in command.words[1:] if not w.text.startswith("-")]
    return bool(operands) and command.argv[1:2] not in (("-s",), ("-",))


def _elsewhere(program: str, argv: Sequence[str]) -> str:
    operands = " ".join(a for a in argv[1:] if not a.startswith("-"))
    for words in _ELSEWHERE.get(program, ()):
        if words == "" or re.match(rf"{re.escape(words)}(?:\s|$)", operands) or (words[:1] == "-" and words in argv):
            return "Publishes, deploys or removes outside this machine"
        if " " not in words and len(operands.split()) > 1 and operands.split()[1] == words and program != "gh":
            return "Publishes, deploys or removes outside this machine"  # behind the value of an option
    if program in ("aws", "gcloud", "az", "gsutil", "doctl", "s3cmd", "rclone") and any(
        _CLOUDS.match(a) for a in argv[1:]
    ):
        return "Removes outside this machine"
    if program in ("psql", "sqlite3", "mysql", "mariadb", "mongosh", "duckdb") and any(
        _SQL.search(a) for a in argv[1:]
    ):
        return "Removes from a database"
    return ""


# --- removing files -----------------------------------------------------------------------------------------------


def _removal(verb: str, recursive: Callable[[Sequence[str]], bool]) -> Reason:
    def check(command: Simple, place: Place) -> str:
        if not recursive(command.argv[1:]):
            return ""
        operands = _operands(command.words[1:])
        if verb != "Removes":
            operands = operands[1:]  # the mode or the owner
        if not operands and (command.piped or command.inside):
            return f"{verb} what another command prints: cannot be undone"
        risky = [w for w in operands if _is_vital(w, place)]
        return f"{verb} {_targets(risky or operands, place)}: cannot be undone" if risky else ""

    return check


def _operands(words: Sequence[Word]) -> list[Word]:
    ended, found = False, list[Word]()
    for word in words:
        if not ended and word.text == "--":
            ended = True
        elif ended or not word.text.startswith("-"):
            found.append(word)
    return found


def _is_vital(word: Word, place: Place) -> bool:
    """Return whether a whole tree that must not be lost may be meant.

    The root, the home folder, the workspace, a `.git`, anything outside the workspace, and what is not written out.
    """
    if not word.literal:
        return True
    return _is_vital_path(place.resolve(word.text), place)


def _is_vital_path(path: Path, place: Place) -> bool:
    return not place.holds(path) or path in place.roots or ".git" in path.parts or path == Path.home()


def _targets(words: Sequence[Word], place: Place) -> str:
    """Name what words mean, with patterns expanded: at most four, and how many more."""
    found: list[str] = []
    for word in words:
        if not word.literal and re.search(r"[*?\[]", word.text) and "$" not in word.text:
            folder, pattern = ("/", word.text.lstrip("/")) if word.text.startswith("/") else (place.cwd, word.text)
            try:
                found += sorted(str(p) for _, p in zip(range(200), Path(folder).glob(pattern), strict=False))
                continue
            except (ValueError, NotImplementedError, OSError):
                pass
        found.append(word.text)
    shown = ", ".join(place.show(place.resolve(f)) if "$" not in f else f for f in found[:4])
    return shown + (f" and {counted(len(found) - 4, 'more file')}" if len(found) > 4 else "") or "nothing that exists"


def _has(*letters: str, names: Sequence[str] = ()) -> Callable[[Sequence[str]], bool]:
    def check(arguments: Sequence[str]) -> bool:
        for a in arguments:
            if a == "--":
                return False
            if a.startswith("--"):
                if any(n.startswith(a.partition("=")[0]) and len(a) > 3 for n in names):
                    return True
            elif a.startswith("-") and set(letters) & set(a[1:]):
                return True
        return False

    return check


_RECURSIVE = _has("r", "R", names=("--recursive",))


_REMOVERS = frozenset(("rm", "unlink", "shred", "mv", "truncate"))


def _find(command: Simple, place: Place) -> str:
    started = {b.rpartition("/")[2] for a, b in pairwise(command.argv) if a in ("-exec", "-execdir", "-ok", "-okdir")}
    if "-delete" not in command.argv and not started & _REMOVERS:
        return ""
    start = [w for w in command.words[1:] if not w.text.startswith("-")][:1] or [Word(".")]
    return f"Removes files in {_targets(start, place)}: cannot be undone" if _is_vital(start[0], place) else ""


def _rsync(command: Simple, place: Place) -> str:
    deletes = any(a.startswith(("--del", "--remove-source")) for a in command.argv)
    target = _operands(command.words[1:])[-1:]
    return f"Removes files in {_targets(target, place)}" if deletes and target and _is_vital(target[0], place) else ""


def _move(command: Simple, place: Place) -> str:
    from_where = _operands(command.words[1:])[:-1]
    vital = [w for w in from_where if "$" not in w.text and _is_vital_path(place.resolve(w.text), place)]
    return f"Moves {_targets(vital, place)}" if vital else ""


def _dd(command: Simple, _: Place) -> str:
    return "Overwrites a file or a disk" if any(a.startswith("of=") for a in command.argv) else ""


def _kill(command: Simple, _: Place) -> str:
    if "-l" in command.argv:
        return ""
    return "Ends processes that may not be this project's"


# --- git ----------------------------------------------------------------------------------------------------------


def _git(command: Simple, _: Place) -> str:
    words = git.words_of(command.argv)[1:]
    if not words:
        return ""
    name, rest = words[0], words[1:]
    lost = {
        "push": "Publishes commits",
        "clean": "Removes files that git does not keep",
        "filter-branch": "Rewrites history",
        "filter-repo": "Rewrites history",
        "send-email": "Sends mail",
    }
    if name in lost and "--dry-run" not in rest and not (name == "clean" and _has("n")(rest)):
        return lost[name]
    found = {
        "reset": _has(names=("--hard", "--merge", "--keep"))(rest) or "--hard" in rest,
        "checkout": _discards(rest),
        "restore": not _has("S", names=("--staged",))(rest) or _has("W", names=("--worktree",))(rest),
        "switch": _has("f", "C", names=("--force", "--discard-changes", "--force-create"))(rest),
        "stash": rest[:1] in (("drop",), ("clear",)),
        "branch": _has("D", "M", "C", names=("--delete", "--force"))(rest) or _has("d", "f")(rest),
        "tag": _has("d", "f", names=("--delete", "--force"))(rest),
        "reflog": rest[:1] in (("expire",), ("delete",)),
        "gc": any(r.startswith("--prune") for r in rest),
        "prune": True,
        "update-ref": _has("d", names=("--stdin",))(rest),
        "worktree": rest[:1] in (("remove",), ("prune",)),
        "submodule": rest[:1] == ("deinit",),
        "rm": _has("f", "r", names=("--force",))(rest) and not _has(names=("--cached",))(rest),
        "remote": rest[:1] in (("remove",), ("rm",), ("set-url",), ("prune",)),
        "replace": True,
        "symbolic-ref": len(rest) > 1,
    }
    return "Discards work that git keeps nowhere else" if found.get(name) else ""


def _discards(rest: Sequence[str]) -> bool:
    """Return whether `git checkout` would overwrite files: with paths, or with force."""
    operands = [r for r in rest if not r.startswith("-")]
    if "--" in rest or _has("f", "B", names=("--force",))(rest):
        return True
    if _has("b", "t", names=("--track", "--orphan", "--detach"))(rest):
        return False
    return len(operands) > 1 or any(o == "." or o.startswith(("./", "../", ":")) for o in operands)


_OWN: Mapping[str, Reason] = {
    "rm": _removal("Removes", _RECURSIVE),
    "rmdir": _removal("Removes", _has("p", names=("--parents",))),
    "chmod": _removal("Changes the rights of", _RECURSIVE),
    "chown": _removal("Changes the owner of", _RECURSIVE),
    "chgrp": _removal("Changes the group of", _RECURSIVE),
    "find": _find,
    "rsync": _rsync,
    "mv": _move,
    "dd": _dd,
    "kill": _kill,
    "pkill": _kill,
    "killall": _kill,
    "git": _git,
}
