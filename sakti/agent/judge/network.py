"""Know the commands that are for nothing without a network, which the sandbox does not have. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from sakti.agent.judge import git
from sakti.agent.sandbox import hosts

_PROGRAMS = frozenset(
    "curl wget http https ssh scp sftp rsync nc ncat socat telnet ftp ping dig nslookup host whois gh glab aws gcloud"
    " az kubectl helm docker podman docker-compose terraform psql mysql redis-cli mongosh npx pnpx bunx uvx pipx"
    " twine apt apt-get dnf yum pacman apk brew snap flatpak flyctl heroku vercel netlify".split()
)
# Subcommands that fetch or send; a program that does so without one has "" among them.
_SUBCOMMANDS: Mapping[str, frozenset[str]] = {
    "pip": frozenset("install download wheel index search".split()),
    "uv": frozenset("pip sync add lock tool python publish".split()),
    "poetry": frozenset("install add update lock publish self".split()),
    "pdm": frozenset("install add update lock sync publish".split()),
    "hatch": frozenset("publish dep".split()),
    "conda": frozenset("install create update search env".split()),
    "npm": frozenset("install i ci add update up outdated audit publish create exec view info init".split()),
    "pnpm": frozenset("install i add update up dlx create publish outdated audit fetch".split()),
    "yarn": frozenset(("", *"install add up upgrade dlx create publish npm outdated audit".split())),
    "bun": frozenset("install i add update x create publish".split()),
    "cargo": frozenset("install add update fetch publish search login vendor".split()),
    "go": frozenset("get install mod".split()),
    "gem": frozenset("install update fetch push search".split()),
    "bundle": frozenset(("", *"install update add outdated".split())),
    "composer": frozenset("install update require create-project".split()),
    "rustup": frozenset("update install toolchain component target".split()),
    "dotnet": frozenset("restore add publish tool nuget".split()),
}
# Options of curl and wget behind which an address is not what is reached, or not all of it.
_ELSEWHERE = frozenset(
    "-x --proxy -K --config --preproxy --socks5 --socks5-hostname --unix-socket -i --input-file".split()
)
_OF_GIT = frozenset("push fetch pull clone ls-remote send-email request-pull".split())


def needs_network(argv: Sequence[str]) -> bool:
    """Return whether a command fetches or sends; what builds and may fetch on the way does not count."""
    if not argv:
        return False
    program = argv[0].rpartition("/")[2]
    program, words = ("pip", argv[3:]) if tuple(argv[1:3]) == ("-m", "pip") else (program, argv[1:])
    if program in _PROGRAMS:
        return list(words) not in (["--version"], ["--help"], ["version"])
    if program == "git":
        command, *rest = [*git.words_of(argv)[1:], "", ""]
        return command in _OF_GIT or (command, rest[0]) in (("remote", "update"), ("submodule", "update"))
    known = _SUBCOMMANDS.get("pip" if program == "pip3" else program)
    return known is not None and next((w for w in words if not w.startswith("-")), "") in known


def hosts_of(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return the hosts that a command with a network names as http(s) addresses; None where it may reach others."""
    program = argv[0].rpartition("/")[2]
    words = list(argv[1:])
    if program == "git":
        command, *words = [*git.words_of(argv)[1:], ""]
        if command not in ("clone", "ls-remote"):
            return None
    elif program not in ("curl", "wget") or any(w.partition("=")[0] in _ELSEWHERE for w in words):
        return None
    urls = [w for w in words if w.startswith(("http://", "https://"))]
    others = [w for w in words if "://" in w and w not in urls]
    found = [host for url in urls if (host := _host(url)) is not None]
    return tuple(dict.fromkeys(found)) if urls and len(found) == len(urls) and not others else None


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    host = hosts.read(parts.hostname or "")
    if host is None or "*" in host.name:
        return None
    return host.name if port in (None, *hosts.USUAL_PORTS) else f"{host.name}:{port}"
