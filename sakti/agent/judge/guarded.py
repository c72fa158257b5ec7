"""Files whose change runs code later: of shells, editors, git, build tools, sakti itself."""

from __future__ import annotations

from pathlib import Path

from sakti.agent.judge.where import Place

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


def guarded(path: Path) -> str:
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
