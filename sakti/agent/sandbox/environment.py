"""Choose the variables that a command gets: those that programs need, never a key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sakti.core.patterns import lazy_pattern

_NAMES = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TERM COLORTERM COLUMNS LINES PAGER GIT_PAGER GIT_TERMINAL_PROMPT"
    " GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_CONFIG_NOSYSTEM"
    " NO_COLOR FORCE_COLOR CLICOLOR CI DEBIAN_FRONTEND SOURCE_DATE_EPOCH HOSTNAME HOSTTYPE OSTYPE"
    " VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV PYENV_ROOT PYENV_VERSION PYTHONPATH PYTHONHOME PYTHONHASHSEED"
    " PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONUTF8 PYTHONIOENCODING PYTHONWARNINGS UV_CACHE_DIR PIP_CACHE_DIR"
    " NODE_PATH NODE_ENV NODE_OPTIONS NVM_DIR NVM_BIN FNM_DIR VOLTA_HOME PNPM_HOME npm_config_cache"
    " GOPATH GOROOT GOBIN GOCACHE GOMODCACHE GOFLAGS GOOS GOARCH CGO_ENABLED CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN"
    " RUSTFLAGS RUST_BACKTRACE RUST_LOG JAVA_HOME JDK_HOME MAVEN_HOME GRADLE_HOME GRADLE_USER_HOME ANDROID_HOME"
    " ANDROID_SDK_ROOT GEM_HOME GEM_PATH RBENV_ROOT RBENV_VERSION BUNDLE_PATH DOTNET_ROOT HOMEBREW_PREFIX NIX_PATH"
    " CC CXX CPP LD AR AS CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS CMAKE_PREFIX_PATH PKG_CONFIG_PATH"
    " LIBRARY_PATH CPATH MANPATH INFOPATH CUDA_HOME CUDA_VISIBLE_DEVICES OMP_NUM_THREADS"
    " SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS"
    " XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_DATA_DIRS XDG_CONFIG_DIRS".split()
)
# What reaches a network; for commands that have one.
_NETWORK = frozenset(("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssh_auth_sock", "pip_no_index"))
# What names code that a program loads as it starts: bubblewrap would, too, before it encloses anything.
_LOADED = ("LD_", "GCONV_PATH", "GLIBC_TUNABLES")
_SECRET = lazy_pattern(r"pass|secret|token|key|credential|auth", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether the value of a variable is likely to be a secret."""
    return _SECRET.search(name) is not None


def given(env: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """Return what a command gets of `env`: known names, locales, and those that the user named in `more`."""
    named = frozenset(more)
    return {
        name: value
        for name, value in env.items()
        if (name in named or name in _NAMES or (name.startswith("LC_") and not is_secret_name(name)))
        and not name.startswith(_LOADED)
    }


def without_loaded(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name no code which a program loads as it starts."""
    return {name: value for name, value in env.items() if not name.startswith(_LOADED)}


def loading(env: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """Return what a command gets besides, but not the program that encloses it: where libraries are."""
    named = {"LD_LIBRARY_PATH", *(name for name in more if name.startswith(_LOADED))}
    return {name: env[name] for name in sorted(named) if env.get(name)}


def networked(env: Mapping[str, str]) -> dict[str, str]:
    """Return the additional variables of a command outside the sandbox: libraries and network access."""
    return {name: value for name, value in env.items() if name.lower() in _NETWORK} | loading(env)


def proxy_variables(port: int) -> dict[str, str]:
    """Return what tells a command in the sandbox that it reaches hosts by a proxy there."""
    at = f"http://127.0.0.1:{port}"
    names = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    return {**dict.fromkeys(names, at), "no_proxy": "localhost,127.0.0.1,::1", "NO_PROXY": "localhost,127.0.0.1,::1"}
