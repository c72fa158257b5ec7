"""Report the health of an installation: its settings, its problems, and how to fix them."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Container, Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from sakti.agent.checkpoints import objects, shadow
from sakti.agent.mcp import lifecycle as mcp_lifecycle
from sakti.agent.project import instructions, trust
from sakti.agent.project import skills as skill_files
from sakti.agent.project.files import HOOKS, select_hook_files
from sakti.agent.project.hooks import settings as hook_settings
from sakti.agent.reports import mcp_view
from sakti.agent.sandbox import sandbox as sandboxes
from sakti.agent.subagents import files as agent_files
from sakti.agent.tools.child import find_ripgrep
from sakti.core import network, resources
from sakti.core.config import Config
from sakti.core.errors import ConfigError, SaktiError
from sakti.core.events import ModelChanged
from sakti.core.resources import find_program
from sakti.core.text import format_bytes, format_count
from sakti.core.tokens import load_o200k_tokens
from sakti.memory import modes
from sakti.providers import keys, registry
from sakti.store.maintenance import checks as maintenance_checks
from sakti.store.opening import check_sqlite
from sakti.version import __version__

MOST_NOTES = 20  # notes on custom agents that are listed
MOST_HOOKS = 50  # that are listed


class CheckResult(Struct, frozen=True):
    """One result of a check. `optional`: if it is not `ok`, something is missing but not wrong."""

    name: str
    ok: bool
    detail: str
    mend: str = ""
    optional: bool = False

    @property
    def problem(self) -> bool:
        return not self.ok and not self.optional

    @property
    def sign(self) -> str:
        return "✓" if self.ok else "!" if self.optional else "✗"

    @property
    def text(self) -> str:
        return f"{self.sign} {self.name}: {self.detail}" + (f" {self.mend}" if not self.ok and self.mend else "")


async def examine(
    database: Path,
    env: Mapping[str, str],
    workspace: Path,
    config: Config,
    answers: ModelChanged | None = None,
    *,
    own_commands: Container[str] = (),
) -> list[CheckResult]:
    """Run all checks, in the order in which a person would ask.

    The file `database` may be damaged or missing; `answers` is the model of the asking chat, if any. `own_commands`:
    names that no skill can have.
    """
    path = env.get("PATH")
    lines = [CheckResult("sakti", True, f"{__version__}, Python {platform.python_version()}, {platform.system()}")]
    lines += _check_files(database)
    checks = await asyncio.to_thread(maintenance_checks.inspect, database, deep=False)
    lines += [
        CheckResult(f"database {f.name}", f.ok, f.detail + ":" * bool(f.advice and not f.ok), f.advice) for f in checks
    ]
    lines.append(await asyncio.to_thread(_check_tokenizer))
    lines += await _check_models(env, config, answers)
    found_rg = find_ripgrep()
    slower = "not installed; file search is slower without it"
    lines.append(CheckResult("ripgrep", found_rg is not None, found_rg or slower, optional=True))
    lines.append(await asyncio.to_thread(_check_sandbox, env, workspace, config))
    lines += _check_web(config)
    lines.append(await asyncio.to_thread(_check_checkpoints, workspace))
    review = await asyncio.to_thread(trust.review, workspace)
    lines += await asyncio.to_thread(_check_project_texts, review, own_commands)
    lines += await asyncio.to_thread(_check_modes)
    lines += await asyncio.to_thread(_check_custom_agents, review)
    lines += await asyncio.to_thread(_check_servers, review, config, env)
    bash = find_program("bash", workspace, path)
    lines.append(CheckResult("bash", bash is not None, bash or "not found:", "commands cannot run: install bash."))
    return lines + await asyncio.to_thread(_check_hooks, review, config)


def _check_hooks(review: trust.TrustReview, config: Config) -> list[CheckResult]:
    """Report every hook: its file, and whether it runs."""
    listed = hook_settings.load_hooks(config.hooks, select_hook_files(review.project.files))
    problems = (*listed.problems, *hook_settings.find_problems(review.project.workspace, HOOKS))
    broken = [CheckResult("hooks", False, problem) for problem in problems]
    lines = [_check_hook(hook, review) for hook in listed.hooks[:MOST_HOOKS]]
    if len(listed.hooks) > MOST_HOOKS:
        lines.append(CheckResult("hook", True, f"and {len(listed.hooks) - MOST_HOOKS} more"))
    return [*broken, *lines]


def _check_hook(hook: hook_settings.Hook, review: trust.TrustReview) -> CheckResult:
    """Describe a hook: active with the folders that it cannot write to, else why it does not run."""
    untrusted = hook.project and not review.holds and not hook.why_not
    if untrusted:
        state = "changed since it was trusted" if review.state == "changed" else "not trusted"
        detail, fix = f"{state}.", "`sakti trust` shows and trusts it."
    elif hook.why_not:
        detail, fix = hook.why_not, ""
    else:
        missing = [name for name in hook.write if not Path(name).expanduser().exists()]
        absent = f", but {', '.join(missing)} does not exist, so it cannot write there" if missing else ""
        detail, fix = f"active{absent}", ""
    is_active = not untrusted and not hook.why_not
    return CheckResult("hook", is_active, f"{hook.title} ({hook.source}): {detail}", fix, optional=True)


def _check_servers(review: trust.TrustReview, config: Config, env: Mapping[str, str]) -> list[CheckResult]:
    """Report every file with MCP servers, and each that does not start."""
    listed = mcp_view.load_reviewed(review, config.mcp, env)
    lines = [CheckResult("mcp", False, problem) for problem in listed.problems]
    missing = bool(listed.entries) and find_spec("mcp") is None
    if missing:
        lines.append(CheckResult("mcp", False, mcp_lifecycle.MISSING_PACKAGE))
    for entry in listed.entries:
        why = entry.why_not or ("does not start." if missing else "")
        detail = f"{entry.server.name} ({entry.server.source})"
        lines.append(CheckResult("mcp", not why, f"{detail}: {why}" if why else detail, optional=True))
    return lines


def _check_sandbox(env: Mapping[str, str], workspace: Path, config: Config) -> CheckResult:
    """Report what would hold commands in this workspace."""
    home = Path(env.get("HOME") or Path.home()).resolve()
    off = "switched off by sandbox.enabled" if config.sandbox.enabled == "off" else ""
    level = sandboxes.SystemSandbox(workspace.resolve(), home=home, off=off).level
    return CheckResult("sandbox", level.holds, level.text + "." * (not level.holds), level.remedy, optional=True)


def _check_web(config: Config) -> list[CheckResult]:
    """Report a proxy that resolves the names of web pages, whose addresses cannot be checked then."""
    proxy = network.find_proxy("https://example.org/") if config.web.fetch else ""
    if not proxy:
        return []
    host = urlsplit(proxy).netloc.rpartition("@")[2]
    detail = f"the proxy {host} resolves names; the addresses behind them are not checked"
    return [CheckResult("web", False, detail, optional=True)]


def _check_checkpoints(workspace: Path) -> CheckResult:
    """Report the room that checkpoints of this workspace take, and for how long they are kept."""
    contents = shadow.open_objects(shadow.find_folder(workspace.resolve()))
    history, files = contents.size_of(objects.HISTORY), contents.size_of(objects.FILE)
    parts = f"git's objects {format_bytes(history)}, uncovered files {format_bytes(files)}"
    return CheckResult(
        "checkpoints", True, f"{parts}; kept for {shadow.KEPT_DAYS} days, up to {format_bytes(shadow.LARGEST)}"
    )


def _check_project_texts(review: trust.TrustReview, own_commands: Container[str]) -> list[CheckResult]:
    """Report trust, instructions, skills and commands of the workspace and the user."""
    workspace, problem = review.project.workspace, review.project.problem
    states = {"nothing": "nothing to trust here", "trusted": "this workspace is trusted"}
    state = states.get(review.state, review.left_out)
    out = [CheckResult("trust", not review.asks, problem or state, optional=True)]
    texts = instructions.find(workspace, workspace, project=review.holds, trusts=review.trusts)
    names = ", ".join(source.name for source in texts.sources) or "none"
    out.append(CheckResult("instructions", not texts.notes, ". ".join((names, *texts.notes)), optional=True))
    skills = skill_files.load(workspace, project=review.holds, trusts=review.trusts)
    summary = format_count(len(skills.skills), "skill or command", "skills and commands")
    wrong = len(skills.notes) + len(skills.shadowed) + sum(s.name in own_commands for s in skills.skills)
    if wrong:
        summary += f", {format_count(wrong, 'problem')}:"
    out.append(CheckResult("skills", not wrong, summary, "`sakti skills list` names them.", optional=True))
    return out


def _check_custom_agents(review: trust.TrustReview) -> list[CheckResult]:
    """Report the custom agents, their broken files, and the unused parts of the others."""
    workspace = review.project.workspace
    loaded = agent_files.load(workspace, project=review.holds, trusts=review.trusts)
    all_notes = (*loaded.broken, *loaded.notes)
    notes = [CheckResult("agent", False, note, optional=True) for note in all_notes[:MOST_NOTES]]
    if len(all_notes) > MOST_NOTES:
        notes.append(CheckResult("agent", False, f"and {len(all_notes) - MOST_NOTES} more", optional=True))
    summary = format_count(len(loaded.agents), "custom agent")
    if loaded.agents:
        summary += f": {', '.join(a.name for a in loaded.agents)}"
    if loaded.broken:
        summary += f"; {format_count(len(loaded.broken), 'broken file')}"
    return [CheckResult("agents", not loaded.broken, summary, optional=True), *notes]


def _check_modes() -> list[CheckResult]:
    problems = (modes.find_problem(name) for name in resources.list_modes())
    return [CheckResult("mode", False, problem, optional=True) for problem in problems if problem]


def _check_files(path: Path) -> list[CheckResult]:
    version, wal = check_sqlite()
    out = [
        CheckResult(
            "SQLite", wal, version if wal else f"{version}:", "older than 3.51.3, so no WAL is used; update apsw."
        ),
        CheckResult("database", True, str(path)),
    ]
    for kind in ("prompts", "themes"):
        folders = [str(f) for f in resources.iter_folders(kind)]
        out.append(CheckResult(kind, bool(folders), folders[0] if folders else "not found:", "install sakti again."))
    config = resources.config_home() / "config.toml"
    out.append(CheckResult("config", True, str(config) if config.exists() else f"{config} (missing: defaults apply)"))
    return out


def _check_tokenizer() -> CheckResult:
    try:
        good = bool(load_o200k_tokens())
    except (OSError, ValueError):
        good = False
    return CheckResult("tokenizer", good, "o200k_base, offline", "The rank file is damaged: install sakti again.")


async def _check_models(env: Mapping[str, str], config: Config, answers: ModelChanged | None) -> list[CheckResult]:
    if answers is not None and answers.model:
        model = CheckResult("model", True, f"{answers.model} ({answers.reason})")
    else:
        model = await _check_model(env, config)
    return [model, await asyncio.to_thread(_check_keyring)]


async def _check_model(env: Mapping[str, str], config: Config) -> CheckResult:
    """Report the model that a chat would begin with, chosen as it chooses."""
    try:
        choice = await registry.select_model(flag=None, config_model=config.model, env=env, settings=config.providers)
    except SaktiError as e:  # no provider has the name, or its settings are wrong
        return CheckResult("model", False, e.message)
    if choice is None:
        return CheckResult("model", False, "none:", "set a key, start a local server, or run `sakti local install`.")
    try:
        problem = await asyncio.to_thread(registry.explain_missing, choice.model, config.providers, env)
    except ConfigError as e:
        problem = e.message
    return CheckResult("model", not problem, f"{choice.model} ({choice.reason})", problem)


def _check_keyring() -> CheckResult:
    name = keys.get_keyring_name()
    if not name:
        return CheckResult("keyring", False, "no backend: keys come from the environment only", optional=True)
    return CheckResult("keyring", True, name)
