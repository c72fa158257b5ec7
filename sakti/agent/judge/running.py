"""Know the commands that run code of the workspace, and the files of it that decide what they run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from sakti.agent.judge.where import Place

_SHELLS = frozenset("sh bash dash zsh ksh source .".split())
_INTERPRETERS = frozenset("python python3 node ruby perl php deno bun Rscript lua".split())
# Files that decide what a command runs, beside those that it names.
_SOURCES: Mapping[str, tuple[str, ...]] = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "just": ("justfile", "Justfile"),
    "npm": ("package.json",),
    "pnpm": ("package.json",),
    "yarn": ("package.json",),
    "bun": ("package.json",),
    "npx": ("package.json",),
    "pytest": ("conftest.py", "tests/conftest.py", "pyproject.toml", "pytest.ini", "setup.cfg", "tox.ini"),
    "tox": ("tox.ini", "pyproject.toml", "setup.cfg"),
    "nox": ("noxfile.py",),
    "cargo": ("build.rs", "Cargo.toml", ".cargo/config.toml"),
    "go": ("go.mod",),
    "gradle": ("build.gradle", "build.gradle.kts"),
    "mvn": ("pom.xml",),
    "pre-commit": (".pre-commit-config.yaml",),
    "docker": ("Dockerfile", "docker-compose.yml", "compose.yaml"),
    "jest": ("package.json", "jest.config.js"),
    "vitest": ("package.json", "vitest.config.ts"),
    "tsc": ("tsconfig.json",),
    "eslint": ("eslint.config.js", ".eslintrc.js"),
}
# Names of files that run later, though no command names them.
RUN_LATER = frozenset(
    "conftest.py Makefile makefile GNUmakefile justfile package.json pyproject.toml setup.py setup.cfg tox.ini"
    " noxfile.py pytest.ini sitecustomize.py usercustomize.py .pre-commit-config.yaml .gitattributes .gitmodules"
    " Dockerfile docker-compose.yml compose.yaml build.rs Cargo.toml build.gradle build.gradle.kts pom.xml"
    " eslint.config.js jest.config.js vitest.config.ts vite.config.ts webpack.config.js tsconfig.json Rakefile"
    " Gemfile CMakeLists.txt BUILD WORKSPACE".split()
)
RUN_LATER_FOLDERS = frozenset((".github", ".devcontainer", ".claude", ".cursor", ".venv", "node_modules", ".cargo"))
# Words of these that are known to build, check and test, so that they need no question in `auto`.
_WORK: Mapping[str, tuple[str, ...]] = {
    "pytest": ("",),
    "ruff": ("",),
    "mypy": ("",),
    "pyright": ("",),
    "black": ("",),
    "isort": ("",),
    "flake8": ("",),
    "tsc": ("",),
    "eslint": ("",),
    "prettier": ("",),
    "jest": ("",),
    "vitest": ("",),
    "tox": ("",),
    "nox": ("",),
    "make": ("test", "tests", "check", "lint", "build", "all", "format", "fmt", "typecheck"),
    "just": ("test", "check", "lint", "build", "format", "fmt"),
    "npm": ("test", "run test", "run build", "run lint", "run check", "run typecheck", "run format"),
    "pnpm": ("test", "run test", "run build", "run lint", "build", "lint"),
    "yarn": ("test", "build", "lint"),
    "cargo": ("build", "test", "check", "clippy", "fmt", "doc", "bench"),
    "go": ("build", "test", "vet", "fmt"),
    "gofmt": ("",),
    "rustfmt": ("",),
    "mvn": ("test", "compile", "package", "verify"),
    "gradle": ("test", "build", "check"),
}


def is_work(argv: Sequence[str]) -> bool:
    """Return whether a command builds, checks or tests with the project's own tools."""
    words = as_module(argv)
    known = _WORK.get(words[0]) if words else None
    if known is None:
        return False
    operands = [w for w in words[1:] if not w.startswith("-")]
    if known == ("",):
        return True
    if words[0] == "make" or words[0] == "just":
        return bool(operands) and all(o in known for o in operands)
    return any(operands[: len(k.split())] == k.split() for k in known)


def as_module(argv: Sequence[str]) -> tuple[str, ...]:
    """Return `python -m pytest x` as `pytest x`, and `uv run pytest`, `poetry run pytest` too."""
    if len(argv) > 2 and argv[0] in ("python", "python3") and argv[1] == "-m":
        return tuple(argv[2:])
    if len(argv) > 2 and argv[0] in ("uv", "poetry", "pdm", "hatch", "pipenv") and argv[1] == "run":
        return as_module(argv[2:])
    return tuple(argv)


def files_run(argv: Sequence[str], place: Place) -> tuple[Path, ...]:
    """Return the files of the workspace that decide what a command runs, those that exist."""
    words = as_module(argv)
    found: list[Path] = []
    if argv and "/" in argv[0]:
        found.append(place.resolve(argv[0]))
    if words and (words[0] in _SHELLS or words[0] in _INTERPRETERS):
        found += [place.resolve(w) for w in words[1:] if not w.startswith("-")][:1]
    found += [place.cwd / name for name in _SOURCES.get(words[0] if words else "", ())]
    return tuple(dict.fromkeys(f for f in found if f.is_file() and place.holds(f)))


def hashes(argv: Sequence[str], place: Place) -> dict[str, str]:
    """Return the hash of each file that a command runs, by its path as shown."""
    found: dict[str, str] = {}
    for file in files_run(argv, place):
        try:
            found[place.show(file)] = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        except OSError:
            found[place.show(file)] = "unreadable"
    return found


def runs_code(argv: Sequence[str]) -> bool:
    """Return whether a command runs code of the workspace."""
    words = as_module(argv)
    return bool(words) and (
        "/" in words[0] or words[0] in _SHELLS or words[0] in _INTERPRETERS or words[0] in _SOURCES or words[0] in _WORK
    )


def runs_later(path: Path, place: Place) -> bool:
    """Return whether a change of a file takes effect when something else is run."""
    root = next((r for r in place.roots if path.is_relative_to(r)), None)
    inside = path.relative_to(root).parts if root is not None else path.parts
    return path.name in RUN_LATER or bool(RUN_LATER_FOLDERS & set(inside[:-1]))


def changed_here(argv: Sequence[str], place: Place) -> tuple[Path, ...]:
    """Return the files changed in this session that a command would run, or that decide what it runs."""
    if not place.changed or not runs_code(argv):
        return ()
    files = set(files_run(argv, place))
    return tuple(f for f in place.changed if f in files or runs_later(f, place))


# Programs that change only the files that they name, with the options that keep it so. Removing is not among them.
_OPTIONS: Mapping[str, str] = {"mkdir": "pv", "touch": "acm", "cp": "pvnrRa", "mv": "vn", "ln": "sv", "tee": "a"}


def changes_inside(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return the paths that a command of files changes; None where it is not one, or its options say more.

    Each of them is judged as an edit of that file.
    """
    letters = _OPTIONS.get(argv[0]) if argv else None
    if letters is None:
        return None
    options = [a for a in argv[1:] if a.startswith("-") and a != "--"]
    operands = tuple(a for a in argv[1:] if not a.startswith("-"))
    known = all(not o.startswith("--") and set(o[1:]) <= set(letters) for o in options)
    return operands if known and operands else None


_GIT_WORK = frozenset("add commit switch checkout branch tag stash merge rebase cherry-pick revert mv init".split())


def is_git_work(words: Sequence[str]) -> bool:
    """Return whether a git command, without the options before its subcommand, only works in this repository."""
    return words[1:2] != () and words[1] in _GIT_WORK
