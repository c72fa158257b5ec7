"""Find the code of the workspace that a command runs, and the files that run code later."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

from sakti.agent.judge.call_forms import match_form
from sakti.agent.judge.programs import UNKNOWN, CallForm, find_program, is_met, list_operands
from sakti.agent.judge.where import Place


def is_work(argv: Sequence[str]) -> bool:
    """Return whether a command builds, checks or tests with the project's own tools."""
    words = as_module(argv)
    if not words:
        return False
    program = find_program(words[0])
    if program.targets and isinstance(program.work, tuple):
        targets = list_operands(words[1:])
        return bool(targets) and all(t in program.work for t in targets)
    return is_met(program.work, words[1:])


def is_install(argv: Sequence[str]) -> bool:
    """Return whether a command fetches packages: which ones, its first words do not say."""
    network = find_program(argv[0]).network if argv else False
    return isinstance(network, tuple) and is_met(network, argv[1:])


def builds_inside(argv: Sequence[str], form: CallForm, place: Place) -> bool:
    """Return whether a command runs only code of the workspace, by its options and operands."""
    call = match_form(form, argv[1:])
    return call is not None and all(_is_inside(w, place) for w in call.operands)


def _is_inside(operand: str, place: Place) -> bool:
    """Return whether an operand names a file of the workspace, a test in one, or a target."""
    if operand[:1] in ("-", "@", "+") or "=" in operand or "://" in operand:
        return False
    return place.holds(place.resolve(operand.partition("::")[0]))


def least_words(prefix: Sequence[str]) -> int:
    """Return how many words a rule for a command must have: all that say which code it runs."""
    words = as_module(prefix)
    return len(prefix) if words and find_program(words[0]).builds is not None else 1


def as_module(argv: Sequence[str]) -> tuple[str, ...]:
    """Return `python -m pytest x` as `pytest x`, and `uv run pytest`, `poetry run pytest` too."""
    if len(argv) > 2 and argv[1] and argv[1] == find_program(argv[0]).runner:
        return as_module(argv[2:])
    return tuple(argv)


def files_run(argv: Sequence[str], place: Place) -> tuple[Path, ...]:
    """Return the files of the workspace that decide what a command runs, those that exist."""
    words = as_module(argv)
    program = find_program(words[0]) if words else UNKNOWN
    files: list[Path] = []
    if argv and "/" in argv[0]:
        files.append(place.resolve(argv[0]))
    if program.runs_script:
        files += [place.resolve(w) for w in list_operands(words[1:])[:1]]
    files += [place.cwd / name for name in program.sources]
    files += [place.resolve(b) for a, b in itertools.pairwise(words) if a in program.source_options]
    return tuple(dict.fromkeys(f for f in files if f.is_file() and place.holds(f)))


def hashes(argv: Sequence[str], place: Place) -> dict[str, str]:
    """Return the hash of each file that a command runs, by its path as shown."""
    values: dict[str, str] = {}
    for file in files_run(argv, place):
        try:
            values[place.show(file)] = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        except OSError:
            values[place.show(file)] = "unreadable"
    return values


def runs_code(argv: Sequence[str]) -> bool:
    """Return whether a command runs code of the workspace."""
    words = as_module(argv)
    if not words:
        return False
    program = find_program(words[0])
    return "/" in words[0] or program.runs_script or bool(program.sources or program.work)


def changed_here(argv: Sequence[str], place: Place) -> tuple[Path, ...]:
    """Return files changed in this session that a command would run or load as configuration."""
    if not place.changed or not runs_code(argv):
        return ()
    files = set(files_run(argv, place))
    return tuple(f for f in place.changed if f in files or runs_later(f, place))


_NAMES = frozenset(
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zprofile .zshenv .zlogin .zlogout"
    " .cshrc .kshrc .inputrc .gitconfig .envrc .mcp.json .vimrc .exrc .gvimrc .nvimrc .emacs .tmux.conf .screenrc"
    " .lldbinit .gdbinit .mise.toml .tool-versions .pdbrc .pythonrc .irbrc .pryrc .xinitrc .xprofile .xsession"
    " .curlrc .wgetrc .pam_environment .netrwhist .editorconfig-exec .direnvrc crontab authorized_keys".split()
)
_FOLDERS = frozenset(".git .sakti .vscode .idea .husky .githooks systemd autostart launchagents launchdaemons".split())
# Files that run when something else is run, though no command names them.
RUN_LATER = frozenset(
    "conftest.py Makefile makefile GNUmakefile justfile package.json pyproject.toml setup.py setup.cfg tox.ini"
    " noxfile.py pytest.ini sitecustomize.py usercustomize.py .pre-commit-config.yaml .gitattributes .gitmodules"
    " Dockerfile docker-compose.yml compose.yaml build.rs Cargo.toml build.gradle build.gradle.kts pom.xml"
    " eslint.config.js jest.config.js vitest.config.ts vite.config.ts webpack.config.js tsconfig.json Rakefile"
    " Gemfile CMakeLists.txt BUILD WORKSPACE".split()
)
RUN_LATER_FOLDERS = frozenset((".github", ".devcontainer", ".claude", ".cursor", ".venv", "node_modules", ".cargo"))


def explain_guard(path: Path) -> str:
    """Return why a change of the resolved `path` is always asked about, "" for ordinary files.

    Letters count as small ones: on some systems both are the same file.
    """
    parts = [part.lower() for part in path.parts]
    if path.name.lower() in _NAMES or not _FOLDERS.isdisjoint(parts) or _of_hooks(parts):
        return "Can run code later, without asking"
    return ""


def _of_hooks(parts: list[str]) -> bool:
    """Return whether a path is a claude-code settings file, which holds hooks, or a hook's script."""
    if ".claude" not in parts:
        return False
    below = parts[parts.index(".claude") + 1 :]
    return below[:1] == ["hooks"] or (len(below) == 1 and below[0] in ("settings.json", "settings.local.json"))


def runs_later(path: Path, place: Place) -> bool:
    """Return whether a change of a file takes effect when something else is run."""
    root = next((r for r in place.roots if path.is_relative_to(r)), None)
    inside = path.relative_to(root).parts if root is not None else path.parts
    return path.name in RUN_LATER or bool(RUN_LATER_FOLDERS & set(inside[:-1]))
