"""Know the files whose change runs code later without anyone asking for it: of shells, editors, git, sakti itself."""

from __future__ import annotations

from pathlib import Path

_NAMES = frozenset(
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zprofile .zshenv .zlogin .zlogout"
    " .cshrc .kshrc .inputrc .gitconfig .envrc .mcp.json .vimrc .exrc .gvimrc .nvimrc .emacs .tmux.conf .screenrc"
    " .lldbinit .gdbinit .mise.toml .tool-versions .pdbrc .pythonrc .irbrc .pryrc .xinitrc .xprofile .xsession"
    " .curlrc .wgetrc .pam_environment .netrwhist .editorconfig-exec .direnvrc crontab authorized_keys".split()
)
_FOLDERS = frozenset(".git .sakti .vscode .idea .husky .githooks systemd autostart launchagents launchdaemons".split())


def guarded(path: Path) -> str:
    """Return why a change of `path`, which is resolved, is asked about in every mode; empty for an ordinary file.

    Letters count as small ones: on some systems both are the same file.
    """
    parts = [part.lower() for part in path.parts]
    if path.name.lower() in _NAMES or not _FOLDERS.isdisjoint(parts) or _of_hooks(parts):
        return "Can run code later, without asking"
    return ""


def _of_hooks(parts: list[str]) -> bool:
    """Return whether a path is a file of claude-code's settings, which hold hooks, or one of its hooks' scripts."""
    if ".claude" not in parts:
        return False
    below = parts[parts.index(".claude") + 1 :]
    return below[:1] == ["hooks"] or (len(below) == 1 and below[0] in ("settings.json", "settings.local.json"))
