"""Run golden vectors: pure functions with externally fixed results, and scripts of task operations.

A file is `{"cases": [{"id", "fn", "args", "output"}]}`; one whose cases have `ops` holds task scripts. Strings are
JavaScript strings, dates ISO, `{"$undefined": true}` is an absent value, `{"$throws": …}` an error.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, field

from sakti.core.clock import SystemClock
from sakti.core.errors import SaktiError
from sakti.core.tokens import estimate_tokens
from sakti.core.types import Json, Message, Part, TextPart, ToolCallPart, ToolResultPart
from sakti.memory import policy
from sakti.memory.log import dates, parse
from sakti.providers import facts
from sakti.store.database import Store
from tests.bench import golden_tasks, oracles_memory

UNDEFINED: Json = {"$undefined": True}
TASKS = "tasks"
# The vectors write this where a random id stands.
RANDOM_ID = "<random16hex>"
_PARSED = ("observations", "currentTask", "suggestedContinuation", "threadTitle", "degenerate")


class UnknownFunction(Exception):
    """Error for a vector of a function that sakti does not have."""


class FunctionResult(Struct):
    """Results of the vectors of one function in one file; `failed_ids` are their ids."""

    file: str
    fn: str
    passed: int = 0
    total: int = 0
    failed_ids: list[str] = field(default_factory=list[str])


class Report(Struct):
    functions: list[FunctionResult] = field(default_factory=list[FunctionResult])
    unknown: list[str] = field(default_factory=list[str])

    @property
    def passed(self) -> int:
        return sum(f.passed for f in self.functions)

    @property
    def total(self) -> int:
        return sum(f.total for f in self.functions)

    @property
    def ok(self) -> bool:
        return not self.unknown and self.passed == self.total


def files(paths: Iterable[Path]) -> list[Path]:
    """List every JSON file that the paths name or contain, in order."""
    out: dict[Path, None] = {}
    for path in paths:
        found = sorted(path.rglob("*.json")) if path.is_dir() else [path] if path.is_file() else []
        out.update(dict.fromkeys(found))
    return list(out)


def cases(path: Path) -> list[Json]:
    """Return the cases of a file; none where it is not a file of vectors."""
    try:
        data: Any = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError):
        return []
    found: Any = data.get("cases") if isinstance(data, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if not isinstance(found, list):
        return []
    return [c for c in found if isinstance(c, dict) and ("fn" in c or "ops" in c)]  # pyright: ignore[reportUnknownVariableType]


async def check(paths: Sequence[Path]) -> Report:
    """Run every vector of the files. Task scripts run on a temporary database, one workspace a script."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="sakti-golden-") as folder:
        store: Store | None = None
        try:
            for path in paths:
                rows: dict[str, FunctionResult] = {}
                for number, case in enumerate(cases(path)):
                    name = TASKS if "ops" in case else str(case["fn"])
                    row = rows.setdefault(name, FunctionResult(path.name, name))
                    row.total += 1
                    if "ops" in case:
                        store = store or await Store.open(
                            Path(folder) / "tasks.db", clock=SystemClock(), synchronous="NORMAL"
                        )
                        good = await golden_tasks.passes(store, f"/{path}/{number}", case)
                    else:
                        good = _good(case, report)
                    if good:
                        row.passed += 1
                    else:
                        row.failed_ids.append(str(case.get("id", number)))
                report.functions += rows.values()
        finally:
            if store is not None:
                await store.close()
    return report


def _good(case: Json, report: Report) -> bool:
    try:
        return passes(case)
    except UnknownFunction as e:
        if str(e) not in report.unknown:
            report.unknown.append(str(e))
        return False
    except Exception:  # whatever a function raises that the vector does not want is a failed vector
        return False


def passes(case: Json) -> bool:
    """Return whether a function gives what its vector says.

    Raises `UnknownFunction`, and whatever the function raises that is not expected.
    """
    got, want = outcome(case)
    return got == want


def outcome(case: Json) -> tuple[Any, Any]:
    """Return (result, expected result) in a comparable form."""
    fn, args = str(case["fn"]), case["args"]
    fields = _fields(case["output"])
    if "$throws" in fields:
        try:
            return run(fn, args), {"$throws": True}
        except SaktiError:
            return {"$throws": True}, {"$throws": True}
    if fn in ("parseObserverOutput", "parseReflectorOutput"):
        return _parsed(run(fn, args), fields, reflector=fn == "parseReflectorOutput")
    return run(fn, args), case["output"]


def _fields(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


# --- values of the vectors as ours ------------------------------------------------------------------------


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def _iso(time: int | None) -> str | None:
    if time is None:
        return None
    return datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{time % 1000:03d}Z"


def _threshold(value: Any) -> policy.Threshold:
    if not isinstance(value, dict):
        return value
    fields = cast("Json", value)
    return policy.SharedThreshold(fields["min"], fields["max"])


def _absent(value: Any) -> Any:
    return None if value == UNDEFINED else value


def _or_undefined(value: Any) -> Any:
    return UNDEFINED if value is None else value


def _messages(values: Sequence[Json]) -> list[Message]:
    out: list[Message] = []
    for value in values:
        parts: list[Part] = []
        for part in value["content"]["parts"]:
            if part["type"] == "text":
                parts.append(TextPart(part["text"]))
            elif part["type"] == "tool-invocation":
                call = part["toolInvocation"]
                parts.append(ToolCallPart(call["toolCallId"], call["toolName"], call["args"]))
                if call["state"] == "result":
                    parts.append(ToolResultPart(call["toolCallId"], call["toolName"], "x"))
        out.append(Message(value["id"], "t", "r", value["role"], tuple(parts), _ms(value["createdAt"])))
    return out


def _parsed(result: parse.Parsed, expected: Json, *, reflector: bool) -> tuple[Json, Json]:
    got: Json = {
        "observations": result.observations,
        "currentTask": result.current_task,
        "suggestedContinuation": result.suggested_response,
        "threadTitle": result.title,
    }
    if result.degenerate:
        got["degenerate"] = True
    want = {k: expected[k] for k in _PARSED if k in expected}
    if reflector:
        got.pop("currentTask")  # they throw it away, we keep it
        want.pop("currentTask", None)
        want["observations"] = re.sub('id="[0-9a-f]{16}"', f'id="{RANDOM_ID}"', want["observations"])
    return {k: v for k, v in got.items() if v is not None}, {k: v for k, v in want.items() if v is not None}


def _auto_ttl(model: Json | None) -> int:
    model = model or {}
    options = model.get("providerOptions", {}).get("openai", {})
    return facts.resolve_auto_activation_ttl(
        model.get("provider"), model.get("modelId"), options.get("promptCacheRetention")
    )


def run(fn: str, args: Sequence[Any]) -> Any:
    """Call the function of that name with a vector's arguments. Raises `UnknownFunction`."""
    match fn:
        case "calculateDynamicThreshold":
            return policy.calculate_dynamic_threshold(_threshold(args[0]), args[1])
        case "getMaxThreshold":
            return policy.get_max_threshold(_threshold(args[0]))
        case "resolveBufferTokens":
            return _or_undefined(policy.resolve_buffer_tokens(_absent(args[0]), _threshold(args[1])))
        case "resolveBlockAfter":
            return _or_undefined(policy.resolve_block_after(_absent(args[0]), _threshold(args[1])))
        case "resolveRetentionFloor":
            return policy.resolve_retention_floor(*args)
        case "resolveActivationRatio":
            return oracles_memory.activation_ratio(*args)
        case "calculateProjectedMessageRemoval":
            chunks = [c.get("messageTokens", 0) for c in args[0]]
            return policy.calculate_projected_message_removal(chunks, *args[1:])
        case "formatRelativeTime":
            return dates.format_relative_time(_ms(args[0]), _ms(args[1]))
        case "formatGapBetweenDates":
            return dates.format_gap_between_dates(_ms(args[0]), _ms(args[1]))
        case "parseDateFromContent":
            return _iso(dates.parse_date_from_content(args[0]))
        case "isFutureIntentObservation":
            return dates.is_future_intent_observation(args[0])
        case "expandInlineEstimatedDates":
            return dates.expand_inline_estimated_dates(args[0], _ms(args[1]))
        case "addRelativeTimeToObservations":
            return dates.add_relative_time_to_observations(args[0], _ms(args[1]))
        case "formatTemporalGap":
            return dates.format_temporal_gap(args[0])
        case "sanitizeObservationLines":
            return parse.sanitize_observation_lines(args[0])
        case "detectDegenerateRepetition":
            return parse.detect_degenerate_repetition(args[0])
        case "injectAnchorIds":
            return parse.inject_anchor_ids(args[0])
        case "stripEphemeralAnchorIds":
            return parse.strip_ephemeral_anchor_ids(args[0])
        case "strip(inject)":
            return parse.strip_ephemeral_anchor_ids(parse.inject_anchor_ids(args[0]))
        case "parseAnchorId":
            return oracles_memory.anchor_id(args[0])
        case "parseObserverOutput":
            return parse.parse_observer_output(args[0])
        case "parseReflectorOutput":
            if len(args) == 1:
                return parse.parse_reflector_output(args[0])
            return oracles_memory.reflector_output(args[0], args[1], RANDOM_ID)
        case "parseActivationTTL":
            return _or_undefined(policy.parse_activation_ttl(_absent(args[0]), args[1]))
        case "resolveAutoActivationTTL":
            return _auto_ttl(args[0])
        case "selectSafeBufferPrefix":
            return [m.id for m in oracles_memory.safe_buffer_prefix(_messages(args[0]))]
        case "estimateTokenCount":
            return estimate_tokens(args[0])
        case _:
            raise UnknownFunction(fn)
