"""Decide what a small model may do next. Pure.

Removing wrong actions from the grammar works better than asking the model not to choose them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sakti.core.lazy import lazy_pattern
from sakti.core.types import FilePart, Json, Message, ToolCallPart, ToolResultPart
from sakti.providers.local import project
from sakti.providers.local.actions import LocalTool

REPEATS = 2
MOST_ERRORS = 2
MOST_STEPS_BEFORE_CHANGE = 5
MOST_PATHS = 40
TEST_COMMANDS = (
    "pytest -q",
    "python -m unittest",
    "npm test",
    "make test",
    "cargo test",
    "go test ./...",
    "mvn test",
    "rake test",
)
_NEEDS_READING = ("edit",)
_CHANGES = ("edit", "write")
_QUESTION = lazy_pattern(r"\W*(what|how|why|when|which|who|explain|describe|tell me|hello|hi|hey|thanks|thank)\b", re.I)
_PROJECT_WORDS = lazy_pattern(
    r"\b(this|these|here|my|our|the (code|file|function|test|project|repo))\b|\w\.\w|[_/(@`]", re.I
)
_FILE_NAME = lazy_pattern(r"\b[\w/-]+\.[a-z]{1,5}\b")
_SOURCE = lazy_pattern(
    r"\.(?:py|js|jsx|ts|tsx|go|rs|c|h|cc|cpp|java|rb|php|sh|lua|kt|swift|cs|toml|yaml|yml|json|md|css|html|sql)$"
)
_VERBS = r"\b(?:fix|change|rename|replace|update|correct|repair|implement|add|remove|delete)\b"
_CHANGE = lazy_pattern(_VERBS, re.I)
_CHANGE_OF = lazy_pattern(_VERBS + r" ([\w/.-]+\.[a-z]{1,5})\b", re.I)
_NEW = lazy_pattern(r"\b(create|write|new|generate|scaffold|add a)\b", re.I)
_RUN = lazy_pattern(r"\b(?:run|rerun|execute|pytest|verify|check that)\b", re.I)
_FAILING = lazy_pattern(r"\bpytest\b|\b(?:failing|broken|red) tests?\b|\btests?\b.{0,20}\bfail", re.I)
_PATH = lazy_pattern(r"[\w./-]*\w\.[a-z]{1,5}\b")
_IMPORT = lazy_pattern(r"^(?: *\d+\t)? *(?:from ([\w.]+) import|import ([\w.]+))", re.M)
_ABOUT_TESTS = lazy_pattern(r"\b(?:add|write|update|extend|rename)\b.{0,40}\btests?\b", re.I)
_TEST_FILE = lazy_pattern(r"(?:^|/)(?:test_[^/]*|[^/]*_test\.\w+|conftest\.py)$|(?:^|/)tests?/")
_NUMBERED = lazy_pattern(r"^ *\d+\t", re.M)


class AllowedActions(Struct, frozen=True):
    """Actions allowed now, and whether the model may answer instead.

    If only one action makes sense, the model is not asked: `call` is a tool with its arguments, `text` an answer.
    `grounded`: the answer may name no file that has not been seen.
    """

    actions: tuple[LocalTool, ...]
    answer: bool = True
    call: tuple[str, Json] | None = None
    text: str = ""
    grounded: bool = False


class _Situation(Struct, frozen=True):
    """Conversation since the user's request, and the available actions.

    `project_text` is what the prompt says about the project.
    """

    messages: Sequence[Message]
    actions: Sequence[LocalTool]
    project_text: str
    request: str
    calls: tuple[ToolCallPart, ...]
    results: tuple[ToolResultPart, ...]

    @classmethod
    def of(cls, messages: Sequence[Message], actions: Sequence[LocalTool], project_text: str) -> _Situation:
        """Read the request, and what the turn has called so far, from the messages."""
        turn = _select_current_turn(messages)
        return cls(
            messages,
            actions,
            project_text,
            next((m.text for m in reversed(messages) if m.role == "user"), ""),
            tuple(c for m in turn for c in m.tool_calls),
            tuple(r for m in turn for r in m.tool_results),
        )

    @property
    def is_question(self) -> bool:
        return bool(_QUESTION.match(self.request))

    @property
    def is_project_question(self) -> bool:
        return self.is_question and bool(self.project_text)

    @property
    def owes_change(self) -> bool:
        """Return whether the user asked for a change that has not been attempted yet."""
        return (
            bool(_CHANGE.search(self.request))
            and not self.is_question
            and not any(c.name in _CHANGES for c in self.calls)
        )

    def find_offered(self, name: str) -> tuple[LocalTool, ...]:
        return tuple(a for a in self.actions if a.name == name)

    def list_fitting(self) -> tuple[LocalTool, ...]:
        """List the actions that fit now, restricted to the files that they may name."""
        return tuple(self._restrict(a) for a in self.actions if _fits(a.name, self.messages, self.request))

    def _restrict(self, action: LocalTool) -> LocalTool:
        if action.name in _NEEDS_READING:
            return _restrict_field(action, _list_editable(self.messages, self.request))
        return _restrict_field(action, _list_unread(self.messages)) if action.name == "read" else action


def choose_actions(messages: Sequence[Message], actions: Sequence[LocalTool], project_text: str = "") -> AllowedActions:
    """Return what may follow `messages`; `project_text` is what the prompt says about the project.

    The first of `_RULES` that returns an answer decides.
    """
    now = _Situation.of(messages, actions, project_text)
    decisions = (rule(now) for rule in _RULES)
    return next((d for d in decisions if d is not None), None) or _continue_turn(now)


def _end_repetition(now: _Situation) -> AllowedActions | None:
    """Require an answer from a model that repeats a call again and again."""
    return AllowedActions((), grounded=now.is_project_question) if _repeats(now.calls) else None


def _choose_lookup(now: _Situation) -> project.ProjectLookup | None:
    """Return the search that the question needs, None if it needs none or the tools for it are missing."""
    lookup = project.find_lookup(now.request, now.project_text)
    if lookup is None or not (now.find_offered("grep") and now.find_offered("read")):
        return None
    return None if project.is_general_question(now.request) and project.is_about_start(lookup) else lookup


def _look_up(now: _Situation) -> AllowedActions | None:
    """Search for the name in a question about the project, then answer from the result."""
    if not now.project_text or _wants_change(now.request):
        return None
    lookup = _choose_lookup(now)
    if lookup is None:
        return AllowedActions((), grounded=True) if project.is_general_question(now.request) else None
    search = next((c for c in now.calls if (c.name, c.arguments) == ("grep", lookup.call)), None)
    if search is None:
        return AllowedActions((), answer=False, call=("grep", lookup.call))
    if any(r.call_id == search.id and r.is_error for r in now.results):
        return None
    return _answer_lookup(now, lookup)


def _answer_lookup(now: _Situation, lookup: project.ProjectLookup) -> AllowedActions:
    """Answer with the places that a search returned, or read the best of them first."""
    places = project.find_places(now.results)
    if lookup.kind == "where":
        return AllowedActions((), text=project.answer_where(lookup, places, now.project_text))
    if not places:
        return AllowedActions((), text=project.describe_missing(lookup)) if lookup.sure else AllowedActions(())
    excerpt = project.make_excerpt_arguments((project.select_definitions(places, lookup) or places)[0])
    if not any(c.name == "read" for c in now.calls):
        return AllowedActions((), answer=False, call=("read", excerpt))
    return AllowedActions((), grounded=True)


def _read_named(now: _Situation) -> AllowedActions | None:
    """Read the source files that the user names before anything else."""
    if not (now.owes_change or now.is_question):
        return None
    unread = _list_named_unread(now.messages, now.request, now.project_text, tests=now.is_question)
    read = now.find_offered("read")
    if now.is_project_question and len(unread) == 1 and read:
        return AllowedActions((), answer=False, call=("read", {"path": unread[0]}))
    return AllowedActions(tuple(_restrict_field(a, unread) for a in read), answer=False) if unread else None


def _run_failing_tests(now: _Situation) -> AllowedActions | None:
    """Run the tests first if some fail and no file is named."""
    if not (now.owes_change and _FAILING.search(now.request)) or any(c.name == "bash" for c in now.calls):
        return None
    tests = tuple(_restrict_field(a, TEST_COMMANDS, "command") for a in now.find_offered("bash"))
    return AllowedActions(tests, answer=False) if tests and not _list_editable(now.messages, now.request) else None


def _start_turn(now: _Situation) -> AllowedActions | None:
    """Answer a general question at once, but not one that names an unread file."""
    if now.results:
        return None
    if now.is_question and not _PROJECT_WORDS.search(now.request):
        return AllowedActions(())
    allowed = now.list_fitting()
    return AllowedActions(allowed, answer=not (allowed and (now.owes_change or _FILE_NAME.search(now.request))))


def _report_unreadable(now: _Situation) -> AllowedActions | None:
    """Say that the file a question names cannot be read."""
    last = now.results[-1]
    path = _get_call_path(last, now.calls) if last.is_error and last.name == "read" else ""
    if now.is_project_question and path and path in now.request:
        return AllowedActions((), text=project.describe_unreadable(path, last.content))
    return None


def _retry_failed(now: _Situation) -> AllowedActions | None:
    """Retry a failed change after reading the file again."""
    last = now.results[-1]
    if not last.is_error or sum(r.is_error for r in now.results) > MOST_ERRORS:
        return None
    allowed = now.list_fitting()
    if last.name not in _CHANGES:
        return AllowedActions(allowed, answer=now.is_question or not allowed)
    again = tuple(_restrict_field(a, _list_read_paths(now.messages)) for a in now.find_offered("read"))
    retry = (*again, *(a for a in allowed if a.name in _NEEDS_READING))
    return AllowedActions(retry or allowed, answer=not retry)


def _run_changed(now: _Situation) -> AllowedActions | None:
    """Run the changed program if the user asked for that; never write it twice."""
    last = now.results[-1]
    if last.name not in _CHANGES or last.is_error:
        return None
    allowed = now.list_fitting()
    run = tuple(a for a in allowed if a.name == "bash") if _RUN.search(now.request) else ()
    return AllowedActions(run, answer=False) if run else AllowedActions(tuple(a for a in allowed if a.name != "write"))


def _continue_turn(now: _Situation) -> AllowedActions:
    """Attempt a requested change before discussing it."""
    allowed = now.list_fitting()
    answer = not (now.owes_change and allowed and len(now.calls) < MOST_STEPS_BEFORE_CHANGE)
    return AllowedActions(allowed, answer, grounded=now.is_project_question)


_RULES: tuple[Callable[[_Situation], AllowedActions | None], ...] = (
    _end_repetition,
    _look_up,
    _read_named,
    _run_failing_tests,
    _start_turn,  # the rules after this one need a result
    _report_unreadable,
    _retry_failed,
    _run_changed,
)


def _wants_change(request: str) -> bool:
    return bool(_CHANGE.search(request)) and not _QUESTION.match(request)


def _get_call_path(result: ToolResultPart, calls: Sequence[ToolCallPart]) -> str:
    """Return the path in a call's arguments."""
    call = next((c for c in calls if c.id == result.call_id), None)
    return str((call.arguments or {}).get("path") or "") if call else ""


def _select_current_turn(messages: Sequence[Message]) -> list[Message]:
    """Return the messages since the user's last one."""
    start = max((i + 1 for i, m in enumerate(messages) if m.role == "user"), default=0)
    return list(messages[start:])


def _repeats(calls: Sequence[ToolCallPart]) -> bool:
    newest = calls[-REPEATS:]
    return len(newest) == REPEATS and all(
        (c.name, c.arguments) == (newest[0].name, newest[0].arguments) for c in newest
    )


def _fits(name: str, messages: Sequence[Message], request: str) -> bool:
    """Return whether an action is allowed: only files that were read are edited, only new ones written."""
    if name in _NEEDS_READING:
        return bool(_list_editable(messages, request))
    if name == "read":
        return bool(_list_unread(messages))
    return name != "write" or bool(_NEW.search(request))


def _restrict_field(action: LocalTool, values: Sequence[str], field: str = "path") -> LocalTool:
    """Restrict one of an action's fields to `values`."""
    if field not in action.required:
        return action
    return replace(action, required={**action.required, field: {"type": "string", "enum": list(values)}})


def _list_attached(message: Message) -> list[str]:
    return [p.path for p in message.parts if isinstance(p, FilePart)]


def _list_read_paths(messages: Sequence[Message]) -> list[str]:
    """Return the paths read, as the model named them, and the files that the user attached."""
    good = {r.call_id for m in messages for r in m.tool_results if not r.is_error}
    out: dict[str, None] = {}
    for message in messages:
        out.update(dict.fromkeys(_list_attached(message)))
        for call in message.tool_calls:
            if call.name == "read" and call.id in good:
                out[str((call.arguments or {}).get("path"))] = None
    return list(out)


def _list_editable(messages: Sequence[Message], request: str) -> list[str]:
    """Return the files that may be edited, of those read.

    Only the one that the user wants changed, if it is among them; tests only if the user asks to change tests.
    """
    read, named = _list_read_paths(messages), _CHANGE_OF.search(request)
    if named:
        targets = [p for p in read if p == named[1] or p.endswith("/" + named[1])]
        if targets or not _TEST_FILE.search(named[1]):
            return targets
    return [p for p in read if _ABOUT_TESTS.search(request) or not _TEST_FILE.search(p)]


def _list_sources(messages: Sequence[Message]) -> list[str]:
    """Return the texts that may name files: tool results before the user's messages, the newest first."""
    texts = [m.text for m in messages if m.role == "user"]
    texts += [r.content for m in messages for r in m.tool_results if not r.is_error or r.name == "bash"]
    return texts[::-1]


def _list_unread(messages: Sequence[Message]) -> list[str]:
    """Return mentioned files that this turn has not tried to read.

    They are mentioned by the user, in results of tools, or by a Python file's imports.
    """
    unread = dict.fromkeys(path for text in _list_sources(messages) for path in _find_mentioned(text))
    tried = _list_tried(messages)
    return [p for p in unread if p not in tried and "site-packages" not in p][:MOST_PATHS]


def _find_mentioned(text: str) -> Iterator[str]:
    """Yield the source files that a text names, and the files of modules that it imports."""
    yield from (p.removeprefix("./") for p in _PATH.findall(text) if _SOURCE.search(p))
    for from_module, module in _IMPORT.findall(text):
        name = from_module or module
        if name.partition(".")[0] not in (*sys.stdlib_module_names, "pytest", ""):
            yield f"{name.replace('.', '/')}.py"


def _list_tried(messages: Sequence[Message]) -> set[str]:
    """List the paths that this turn has tried to read."""
    return {
        str((c.arguments or {}).get("path"))
        for m in _select_current_turn(messages)
        for c in m.tool_calls
        if c.name == "read"
    }


def _list_named_unread(messages: Sequence[Message], request: str, project_text: str, *, tests: bool) -> list[str]:
    """Return source files named by the user that were not read yet; test files with `tests`."""
    tried = _list_tried(messages)
    tried.update(path for m in messages for path in _list_attached(m))
    named = dict.fromkeys(
        project.resolve_name(f, project_text) for f in _FILE_NAME.findall(request) if _SOURCE.search(f)
    )
    tests = tests or bool(_ABOUT_TESTS.search(request))
    return [f for f in named if f not in tried and (tests or not _TEST_FILE.search(f))]


def _find_runs(lines: Sequence[str], loose_lines: Sequence[str]) -> list[int]:
    """Return the starts of runs of `lines` that equal `loose_lines` except for indentation and quotes."""
    loose = [_normalize_line(line) for line in lines]
    size = len(loose_lines)
    return [i for i in range(len(lines) - size + 1) if loose[i : i + size] == loose_lines]


def repair_edit(name: str, fields: Json, messages: Sequence[Message]) -> Json:
    """Repair `old` in the fields of an edit, using the file read last.

    Writing code inside JSON, small models lose indentation and turn " into '. If exactly one run of lines matches, it
    is used as `old`, and `new` is corrected in the same way.
    """
    old, new = fields.get("old"), fields.get("new")
    if name not in _NEEDS_READING or not isinstance(old, str) or not isinstance(new, str) or not old.strip():
        return fields
    text = _last_read_text(messages)
    if text is None or old in text:
        return fields
    lines, old_lines = text.split("\n"), [_normalize_line(line) for line in old.strip("\n").split("\n")]
    places = _find_runs(lines, old_lines)
    if len(places) != 1:
        return fields
    matched = lines[places[0] : places[0] + len(old_lines)]
    return {**fields, "old": "\n".join(matched), "new": _fit_to_lines(new.strip("\n"), old.strip("\n"), matched)}


def _last_read_text(messages: Sequence[Message]) -> str | None:
    for message in reversed(messages):
        for part in reversed(message.parts):
            if isinstance(part, ToolResultPart) and part.name == "read" and not part.is_error:
                return _NUMBERED.sub("", part.content)
            if isinstance(part, FilePart):
                return part.text
    return None


def _normalize_line(line: str) -> str:
    return re.sub(r"\s+", " ", line.replace("'", '"')).strip()


def _fit_to_lines(new: str, old: str, lines: Sequence[str]) -> str:
    """Give `new` the indentation and the quotes of the lines it replaces."""
    text = "\n".join(lines)
    if "'" not in text and '"' in text and '"' not in old:
        new = new.replace("'", '"')
    missing = _get_indent(lines[0])[len(_get_indent(old)) :]
    return "\n".join(missing + line if line.strip() else line for line in new.split("\n"))


def _get_indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" \t"))]
