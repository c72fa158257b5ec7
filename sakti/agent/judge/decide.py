"""Judge each call of a tool by its effects: one decision, in one order.

Deny rules come first, then effects that need a question in every mode (`irreversible`), protected and secret files,
allow rules, and the mode's row in `policy`. Each effect of a call is judged; the strictest verdict applies to the call.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.judge import commands, execution, git
from sakti.agent.judge import policy as rule_texts
from sakti.agent.judge.commands import CommandAnalysis, SimpleCommand
from sakti.agent.judge.execution import explain_guard
from sakti.agent.judge.policy import ALLOWABLE, CONFINED, STRICTNESS, Kind, Rules, Verdict, verdict_for_kind
from sakti.agent.judge.programs import ProgramEntry, find_program, is_met
from sakti.agent.judge.workspace_view import Access, RemoteFacts, ToolFacts, WorkspaceView, explain_secret, is_system
from sakti.core import network
from sakti.core.config import SessionMode
from sakti.core.errors import HttpError
from sakti.core.text import quote, to_one_line
from sakti.core.types import Json, list_arguments
from sakti.store.secrets import find_marks

_VERSION = (["--version"], ["--help"], ["version"])


def needs_network(argv: Sequence[str]) -> bool:
    """Return whether a command downloads or uploads; builds that may fetch dependencies do not count."""
    if not argv:
        return False
    if tuple(argv[1:3]) == ("-m", "pip"):
        argv = argv[2:]
    program, words = _find_entry(argv)
    return is_met(program.network, words) and not (program.network is True and list(words) in _VERSION)


def _find_entry(argv: Sequence[str]) -> tuple[ProgramEntry, Sequence[str]]:
    """Return the entry of a program or a subcommand of git, and its arguments."""
    name = argv[0].rpartition("/")[2]
    return git.find_command(argv) if name == "git" else (find_program(name), argv[1:])


def find_hosts(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return the hosts that a command names as http(s) addresses; None if it may reach others."""
    program, words = _find_entry(argv)
    if program.other_hosts is None or any(w.partition("=")[0] in program.other_hosts for w in words):
        return None
    named = [_parse_host(w) for w in words if "://" in w]
    return None if None in named else tuple(dict.fromkeys(h for h in named if h is not None)) or None


_LOCAL = re.compile(r"(?:https?://)?(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)(?::\d+)?(?:[/?#].*)?", re.I)


def is_local(text: str) -> bool:
    """Return whether a word is an address or a host name of this machine."""
    return _LOCAL.fullmatch(text) is not None


def stays_local(argv: Sequence[str]) -> bool:
    """Return whether a command that names its hosts needs only the loopback interface.

    A wrong guess only causes an error, because the sandbox blocks other hosts.
    """
    program, words = _find_entry(argv)
    if program.other_hosts is None:
        return False
    return any(map(is_local, words)) and not any("://" in w and not is_local(w) for w in words)


def _parse_host(url: str) -> str | None:
    """Return the host of a plain http(s) address, with an unusual port."""
    if not url.startswith(("http://", "https://")):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    host = network.parse_host(parts.hostname or "")
    if host is None or "*" in host.name:
        return None
    return host.name if port in (None, *network.USUAL_PORTS) else f"{host.name}:{port}"


MOST_HOSTS = 20  # that one command may name


class Decision(Struct, frozen=True):
    """Decision on a call.

    `target` is the command or the file to change, `rules` are those that "always" would save, `reason` is a short text
    for display. `diff` shows the changes in files that the call would run. `outside` is why a command would run outside
    of the sandbox, `hosts` are those that it may reach from inside. `command` replaces the command of the call, and
    `note` says so in the result. `redirect_hosts` are those that redirects of a URL may lead to, "*" for any.
    `only_reads`: it is a command that needs to write nothing; `is_edit`: the mode `edits` would allow what is asked;
    `is_alone`: a host was asked about, so no other command may use its network.
    """

    verdict: Verdict
    reason: str
    target: str = ""
    rules: tuple[str, ...] = ()
    diff: str = ""
    outside: str = ""
    hosts: tuple[str, ...] = ()
    redirect_hosts: tuple[str, ...] = ()
    command: str = ""
    note: str = ""
    only_reads: bool = False
    is_edit: bool = False
    is_alone: bool = False

    def warn(self, command: str, loss: str) -> Decision:
        """Ask about a command whose files an undo could not restore; `loss` says why, "" if it can."""
        if not loss or self.verdict == "deny":
            return self
        reason = ". ".join(r for r in (f"Cannot be undone ({loss})", self.reason) if r)
        return replace(self, verdict="ask", reason=reason, target=command, rules=())

    def apply(self, arguments: Json) -> Json:
        """Return the arguments of a call with the decided command, place and hosts."""
        more: Json = {"outside": self.outside} if self.outside else {}
        if self.command:
            more["command"] = self.command
        values = {k: v for k, v in arguments.items() if k != "reach"}
        return {**values, **more, **({"reach": list(self.hosts)} if self.hosts else {})}


class Effect(Struct, frozen=True):
    """One effect of a call. `rule` would allow it; empty if no rule may."""

    kind: Kind
    reason: str
    rule: str = ""


def judge(
    tool: ToolFacts, arguments: Mapping[str, Any], *, mode: SessionMode, rules: Rules, place: WorkspaceView
) -> Decision:
    """Decide whether a call is allowed, needs a question or is refused; raises nothing."""
    if tool.effect == "own":
        return Decision("allow", "")
    if tool.effect == "run":
        analysis = commands.analyse(str(arguments.get("command", "")), place)
        decision = _judge_command(tool.rule_name, arguments, mode, rules, place, analysis)
        return replace(decision, command=analysis.rewritten, note=analysis.omission)
    if tool.remote is not None:
        return _judge_remote(tool.rule_name, tool.remote, arguments, mode, rules, place)
    if tool.effect == "fetch":
        return _judge_fetch(tool.rule_name, str(arguments.get("url", "")), mode, rules, place)
    if tool.effect == "search":
        return _judge_search(tool.rule_name, str(arguments.get("query", "")), mode, rules, place)
    return _judge_paths(tool, arguments, mode, rules, place)


def _judge_paths(
    tool: ToolFacts, arguments: Mapping[str, Any], mode: SessionMode, rules: Rules, place: WorkspaceView
) -> Decision:
    """Judge a call by the paths that it names: the strictest decision applies."""
    named = tool.list_paths(arguments)
    if not named:  # nothing is written then, and the tool reports the wrong arguments
        denied = rule_texts.verdict_for_path(rules, tool.rule_name, "") == "deny"
        return Decision("deny", "denied by your rules") if denied else Decision("allow", "")
    judged = [_judge_path(tool, path, mode, rules, place) for path in named]
    worst = max(judged, key=lambda d: STRICTNESS.index(d.verdict))
    target = ", ".join(dict.fromkeys(d.target for d in judged))
    return replace(worst, target=target, rules=worst.rules if len(judged) == 1 else ())


# --- servers ------------------------------------------------------------------------------------------------------


def _judge_remote(
    name: str, tool: RemoteFacts, arguments: Mapping[str, Any], mode: SessionMode, rules: Rules, place: WorkspaceView
) -> Decision:
    """Judge a call of a server's tool by rules, mode, and the facts of the tool."""
    target = list_arguments(dict(arguments)) or name
    if rule_texts.names_tool(rules.deny, name):
        return Decision("deny", "denied by your rules", name)
    if mode == "plan" and not _is_for_plan(tool, arguments):
        only = "calls only read-only tools of the user's own servers"
        return Decision("deny", f"{place.reader} {only}", name)
    if rule_texts.names_tool(rules.ask, name):
        return Decision("ask", "Your rules ask first", target)
    if mode == "full":
        return Decision("allow", "", target)
    rule = f"{name} # {tool.fingerprint}"
    if diff := tool.diff():
        return Decision("ask", "Its description or schema changed since it was approved", target, (rule,), diff)
    if _is_free(tool, mode) or rule_texts.names_tool(rules.allow, name, tool.fingerprint):
        return Decision("allow", "", target)
    return Decision("ask", _explain_remote(tool), target, (rule,))


def _explain_remote(tool: RemoteFacts) -> str:
    return "May destroy something" if tool.is_destructive else "Calls a tool of an MCP server"


def _is_for_plan(tool: RemoteFacts, arguments: Mapping[str, Any]) -> bool:
    """Return whether a call only reads, and sends no stored secret."""
    return tool.reads_only and not find_marks(dict(arguments))


def _is_free(tool: RemoteFacts, mode: SessionMode) -> bool:
    """Return whether a mode allows a server's tool without a rule."""
    return tool.reads_only or (mode == "auto" and tool.is_confined and not tool.is_destructive)


# --- files --------------------------------------------------------------------------------------------------------


def _judge_path(tool: ToolFacts, text: str, mode: SessionMode, rules: Rules, place: WorkspaceView) -> Decision:
    path = place.resolve(text)
    target = place.show(path)
    effect = classify_path(path, place, "read" if tool.effect == "read" else "write")
    if effect.kind == "secret":
        return Decision("deny", effect.reason, target)
    rule_verdict = rule_texts.verdict_for_path(rules, tool.rule_name, target)
    if rule_verdict == "deny":
        return Decision("deny", "denied by your rules", target)
    mode_verdict = verdict_for_kind(effect.kind, mode)
    if mode_verdict == "deny":
        return Decision("deny", f"{place.reader} edits nothing", target)
    if rule_verdict == "ask":
        return Decision("ask", "Your rules ask first", target)
    if mode_verdict == "allow" or (rule_verdict == "allow" and effect.kind in ALLOWABLE):
        return Decision("allow", "", target)
    return Decision("ask", effect.reason, target, _offer_path_rule(tool, target, effect.kind))


def _offer_path_rule(tool: ToolFacts, target: str, kind: Kind) -> tuple[str, ...]:
    """Return the rule that would allow a call on a path; empty if no rule may."""
    return (f"{tool.rule_name}({rule_texts.escape_glob(target)})",) if kind in ALLOWABLE else ()


def classify_path(path: Path, place: WorkspaceView, access: Access) -> Effect:
    """Return the effect of reading, changing or naming the file at the resolved `path`."""
    judged = place if access == "read" else replace(place, readable=())
    if access != "name" and (secret := explain_secret(path, judged)):
        return Effect("secret", secret)
    if access != "write":
        return _classify_reading(path, place)
    if why := explain_guard(path):
        return Effect("guarded", why)
    if place.holds(path):
        return Effect("edit", "Edits a file in this project")
    return Effect("edit_outside", "Outside the project")


def _classify_reading(path: Path, place: WorkspaceView) -> Effect:
    """Return the effect of reading or naming a file that holds no secrets."""
    if place.holds(path) or _is_saved_output(path, place) or any(path.is_relative_to(f) for f in place.readable):
        return Effect("read", "")
    return Effect("system" if is_system(path) else "outside", "Outside the project")


def _is_saved_output(path: Path, place: WorkspaceView) -> bool:
    """Return whether a path is a long output of a tool; their folder is not, so it cannot be listed."""
    return place.outputs is not None and path.parent == place.outputs.resolve() and path.is_file()


# --- the web ------------------------------------------------------------------------------------------------------


def _judge_fetch(name: str, url: str, mode: SessionMode, rules: Rules, place: WorkspaceView) -> Decision:
    """Judge opening a URL by its host: asked about once per workspace, with the rules for commands."""
    try:
        target = network.parse_url(url)
    except HttpError:  # the tool explains why it is not opened
        return Decision("allow", "", url)
    rule_verdict = rule_texts.verdict_for_path(rules, name, target.url)
    is_named = network.parse_host(target.rule_host) is not None  # an IPv6 address is not: no rule covers it
    refused = _refuse_hosts((target.rule_host,), rules) if is_named else ""
    if rule_verdict == "deny" or refused:
        return Decision("deny", refused or "denied by your rules", target.url)
    if mode == "full" or any(r.strip() == name for r in rules.allow):
        decision = Decision("allow", "", target.url, redirect_hosts=("*",))
    else:
        decision = _judge_host(target, rules, place, is_free=rule_verdict == "allow", is_named=is_named)
    return replace(decision, verdict="ask", reason="Your rules ask first") if rule_verdict == "ask" else decision


def _judge_host(
    target: network.Target, rules: Rules, place: WorkspaceView, *, is_free: bool, is_named: bool
) -> Decision:
    """Judge opening a URL by its host; `is_free`: a rule allows this URL."""
    granted = (
        *place.hosts,
        *(r.removeprefix(rule_texts.HOST_PREFIX) for r in rules.allow if r.startswith(rule_texts.HOST_PREFIX)),
    )
    host = target.rule_host
    if is_free or (is_named and not network.find_uncovered((host,), granted)):
        return Decision("allow", "", target.url, redirect_hosts=(*granted, host))
    offered = (f"{rule_texts.HOST_PREFIX}{host}",) if is_named else ()
    return Decision("ask", f"Opens {host}", target.url, offered, redirect_hosts=(*granted, host))


def _judge_search(name: str, query: str, mode: SessionMode, rules: Rules, place: WorkspaceView) -> Decision:
    """Judge a web search: asked about once per service and workspace."""
    service = place.search_service
    rule_verdict = rule_texts.verdict_for_path(rules, name, service)
    if rule_verdict == "deny":
        return Decision("deny", "denied by your rules", query)
    if rule_verdict == "ask":
        return Decision("ask", "Your rules ask first", query)
    if mode == "full" or rule_verdict == "allow" or not service:
        return Decision("allow", "", query)
    return Decision("ask", f"Sends the query to {service}", query, (f"{name}({rule_texts.escape_glob(service)})",))


# --- commands -----------------------------------------------------------------------------------------------------


def _judge_command(
    name: str,
    arguments: Mapping[str, Any],
    mode: SessionMode,
    rules: Rules,
    place: WorkspaceView,
    analysis: CommandAnalysis,
) -> Decision:
    """Judge a command; outside of the sandbox, the mode `ask` applies, and the command needs a question.

    The exception are commands that need the network: a rule for one also allows running it with a network.
    """
    command = str(arguments.get("command", ""))
    if mode == "full" or place.level == "unsandboxed":
        return _judge_effects(name, command, mode, rules, place, analysis)
    why = to_one_line(str(arguments.get("outside") or ""), 200) or _find_outside(analysis)
    hosts = _list_hosts(arguments, analysis, place)
    if not why and hosts is not None and (place.own_network or not hosts):
        return _judge_inside(name, command, hosts, mode, rules, place, analysis)
    return _judge_outside(name, command, why, mode, rules, place, analysis)


def _judge_outside(
    name: str, command: str, why: str, mode: SessionMode, rules: Rules, place: WorkspaceView, analysis: CommandAnalysis
) -> Decision:
    """Judge a command that would run outside of the sandbox, for the reason `why` or for the network."""
    if mode == "plan":
        refused = "runs every command inside the sandbox" if why else "reaches no network"
        return Decision("deny", f"{place.reader} {refused}", command)
    judged = _judge_effects(name, command, "ask", rules, place, analysis)
    return judged if judged.verdict == "deny" else _ask_outside(judged, command, why)


def _ask_outside(judged: Decision, command: str, why: str) -> Decision:
    """Mark a decision as running outside; an empty reason means that it needs the network."""
    reason = f"Runs outside the sandbox ({why or 'it needs the network'})"
    reason += f". {judged.reason}" if judged.reason else ""
    if not why:
        return replace(judged, reason=reason, target=command, outside="it needs the network")
    return replace(judged, verdict="ask", reason=reason, target=command, rules=(), outside=why)


def _find_outside(analysis: CommandAnalysis) -> str:
    """Return why a command cannot work in the sandbox; empty if it can."""
    if any(git.writes_configuration(argv) for argv in analysis.all_argv):
        return "it writes git's configuration"
    if any(find_program(argv[0].rpartition("/")[2]).desktop for argv in analysis.all_argv):
        return "it opens a window"
    return ""


def _list_hosts(
    arguments: Mapping[str, Any], analysis: CommandAnalysis, place: WorkspaceView
) -> tuple[str, ...] | None:
    """Return the hosts that a command names or requests; None if it needs other hosts, or any."""
    argument: Any = arguments.get("reach")
    asked = [str(h) for h in cast("list[Any]", argument)] if isinstance(argument, list) else []
    fetching = list(filter(needs_network, analysis.all_argv))
    if place.own_network:  # the localhost of the sandbox is no other host
        asked = list(itertools.filterfalse(is_local, asked))
        fetching = list(itertools.filterfalse(stays_local, fetching))
    named = list(map(find_hosts, fetching))
    hosts = tuple(dict.fromkeys((*asked, *itertools.chain.from_iterable(filter(None, named)))))
    return None if None in named and not argument else hosts


def _judge_inside(
    name: str,
    command: str,
    hosts: Sequence[str],
    mode: SessionMode,
    rules: Rules,
    place: WorkspaceView,
    analysis: CommandAnalysis,
) -> Decision:
    """Judge a command that runs inside, and the hosts that it reaches: asked about once per workspace."""
    if refused := _refuse_hosts(hosts, rules):
        return Decision("deny", refused, command)
    judged = _judge_effects(name, command, mode, rules, place, analysis)
    granted = tuple(r.removeprefix(rule_texts.HOST_PREFIX) for r in rules.allow if r.startswith(rule_texts.HOST_PREFIX))
    all_hosts = tuple(dict.fromkeys((*place.hosts, *granted, *hosts)))
    if judged.verdict == "deny" or not (new_hosts := network.find_uncovered(hosts, (*place.hosts, *granted))):
        return replace(judged, hosts=all_hosts)
    if mode == "plan":
        return Decision("deny", f"{place.reader} reaches no network", command)
    return _ask_about_hosts(judged, command, new_hosts, all_hosts)


def _ask_about_hosts(judged: Decision, command: str, new_hosts: Sequence[str], all_hosts: tuple[str, ...]) -> Decision:
    """Ask about the hosts that a command reaches, and about the command itself if needed."""
    asks = judged.verdict == "ask"
    reason = f"Reaches {', '.join(new_hosts)}" + (f". {judged.reason}" if asks and judged.reason else "")
    offered = () if asks and not judged.rules else (*judged.rules, *(f"{rule_texts.HOST_PREFIX}{h}" for h in new_hosts))
    return Decision("ask", reason, command, offered, judged.diff, hosts=all_hosts, is_alone=True)


def _refuse_hosts(hosts: Sequence[str], rules: Rules) -> str:
    """Return why a command may not reach the hosts that it names, or ""."""
    if len(hosts) > MOST_HOSTS:
        return f"more than {MOST_HOSTS} hosts for one command"
    if wrong := next((h for h in hosts if network.parse_host(h) is None), None):
        return f"{quote(wrong, 60)} is not a host name"
    denied = [r.removeprefix(rule_texts.HOST_PREFIX) for r in rules.deny if r.startswith(rule_texts.HOST_PREFIX)]
    if refused := next((h for h in hosts if not network.find_uncovered((h,), denied)), None):
        return f"your rules deny access to {refused}"
    return ""


def _judge_effects(
    name: str, command: str, mode: SessionMode, rules: Rules, place: WorkspaceView, analysis: CommandAnalysis
) -> Decision:
    inside = place.level == "sandboxed"
    if denied := _find_denial(name, mode, rules, analysis):
        return Decision("deny", denied, command)
    effects = [
        (verdict_for_kind(e.kind, mode, sandboxed=inside), e) for e in _list_effects(name, analysis, rules, place)
    ]
    judged, worst = max(effects, key=lambda pair: (STRICTNESS.index(pair[0]), _WEIGHT.index(pair[1].kind)))
    if judged == "deny":
        return Decision("deny", _explain_denial(worst, place), command)
    if judged == "allow":
        if _must_ask(name, rules, analysis):
            return Decision("ask", "Your rules ask first", command, only_reads=analysis.only_reads)
        return Decision("allow", "", command, only_reads=analysis.only_reads)
    offered = _offer_rules([e for each, e in effects if each == "ask"])
    diff = "\n".join(place.changed[f] for f in analysis.changed if f in place.changed)
    return Decision("ask", worst.reason, command, offered, diff, only_reads=analysis.only_reads)


def _offer_rules(asking: Sequence[Effect]) -> tuple[str, ...]:
    """Return the rules that would allow these effects together; empty if no rule may allow one of them."""
    return tuple(dict.fromkeys(e.rule for e in asking)) if all(e.rule for e in asking) else ()


def _explain_denial(effect: Effect, place: WorkspaceView) -> str:
    if effect.kind == "secret":
        return effect.reason
    where = "" if place.level == "sandboxed" or effect.kind not in CONFINED else "without a full sandbox "
    return f"{where}{place.reader} runs only commands that read"


def _must_ask(name: str, rules: Rules, analysis: CommandAnalysis) -> bool:
    """Return whether a rule asks about a command, or about a file that it may show."""
    return _find_hidden(name, rules.ask, rules, analysis) is not None or any(
        rule_texts.forbids(rules.ask, name, argv) for argv in analysis.all_argv or ((),)
    )


def _find_denial(name: str, mode: SessionMode, rules: Rules, analysis: CommandAnalysis) -> str:
    """Return why rules deny a command, "" if they do not: one matches or, in `full`, may match."""
    if any(rule_texts.forbids(rules.deny, name, argv) for argv in analysis.all_argv or ((),)):
        return "denied by your rules"
    if mode == "full" and (hidden := _find_hidden(name, rules.deny, rules, analysis)) is not None:
        return hidden.reason
    return ""


def _find_hiding(name: str, rules: Rules, analysis: CommandAnalysis) -> Effect | None:
    """Return the effect of the first command that hides others and that no rule allows, or None."""
    offered = {
        p.argv: (rule_texts.format_rule(name, p.argv, p.hashes), p.hashes) for p in reversed(analysis.parts) if p.argv
    }
    for reason, argv in analysis.visibility.hidden:
        rule, hashes = offered.get(argv, ("", {}))
        if not rule or not rule_texts.permits(rules.allow, name, argv, hashes, exact=True):
            return Effect("named", f"Your rules cannot be matched against a command that {reason}", rule)
    return None


def _find_hidden(name: str, about: Sequence[str], rules: Rules, analysis: CommandAnalysis) -> Effect | None:
    """Return the effect of a command that may start what rules are about and not show it, or None.

    A rule that allows all words of a command that hides others covers it: the user saw them.
    """
    named = [rule for rule in (rule_texts.parse_command_rule(text, name) for text in about) if rule is not None]
    if not named:
        return None
    if (hidden := _find_hiding(name, rules, analysis)) is not None:
        return hidden
    if program := execution.find_named_program(
        analysis.visibility.passed, {rule.words[0] for rule in named if rule.words}
    ):
        return Effect("named", f"Your rules cannot be matched against a command that names {program} in its arguments")
    return None


# Of effects with equal verdicts, the last one here gives the reason.
_WEIGHT: Sequence[Kind] = (
    *(
        "read",
        "system",
        "work",
        "unknown",
        "edit",
        "outside",
        "edit_outside",
        "changed",
        "named",
        "guarded",
        "hard",
    ),
    "secret",
)


_OF_A_RULE: frozenset[Kind] = frozenset(("work", "unknown", "edit"))  # effects of a command that a rule for it covers


def _list_effects(name: str, analysis: CommandAnalysis, rules: Rules, place: WorkspaceView) -> Iterator[Effect]:
    """Yield the effects of a command that no rule allows; a bare `bash` allows all that a rule may."""
    everything = any(rule.strip() == name for rule in rules.allow)
    if analysis.harm:
        yield Effect("hard", analysis.harm)
    if (hidden := _find_hidden(name, (*rules.deny, *rules.ask), rules, analysis)) is not None:
        yield hidden
    for part in analysis.parts:
        effects = _list_part_effects(name, part, rules, place)
        yield from (e for e in effects if not (everything and e.kind in ALLOWABLE))
    yield Effect("read", "")


def _list_part_effects(name: str, part: SimpleCommand, rules: Rules, place: WorkspaceView) -> list[Effect]:
    """Return the effects of one part of a command, without those that its own rule allows."""
    named = part.paths[: len(part.paths) - len(part.changes)]
    effects = [classify_path(path, place, access) for path, access in named]
    run = [*(classify_path(path, place, "write") for path in part.changes), Effect(part.kind, part.reason)]
    if part.kind not in _OF_A_RULE or not part.argv:
        return effects + run
    permitted = rule_texts.permits(
        rules.allow, name, part.argv, part.hashes, exact=part.exact, least=execution.count_rule_words(part.prefix)
    )
    rule = rule_texts.format_rule(name, part.prefix, part.hashes)
    effects += (replace(e, rule=rule) if e.kind in _OF_A_RULE else e for e in run)
    return [e for e in effects if not (permitted and e.rule == rule)]
