"""Threads with a piece that the provider refuses, in three protocols: they go on without it, and only without it."""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sakti.core.events import CompactionFinished, Notice
from sakti.core.types import Json, ModelInfo, TextPart, ThinkingPart, ToolCallPart
from sakti.providers.omissions import MOST_REFUSALS
from sakti.store.database import Store
from sakti.store.threads import threads
from tests.fakes.model_server import APIS, ModelServer, Reply, model_server, provider
from tests.fakes.pictures import picture
from tests.fakes.requests import message, request, result
from tests.fakes.requests import play as played
from tests.fakes.session import Recorded, start
from tests.unit.agent.test_prefix import RENDERS

every = pytest.mark.parametrize("api", APIS)
# A key of one letter stands in every error text, where it must not be masked.
KEYS = list(zip(APIS, ["x", "sk-test-0123456789abcdef", "x"], strict=True))
any_key = pytest.mark.parametrize(("api", "key"), KEYS)
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


KNOWN = ("providers.p.context_window=200000", "providers.p.images=true")


async def session_of(
    api: str, server: ModelServer, store: Store, root: Path, *, key: str = "x", name: str = "m", resume: bool = False
) -> Recorded:
    model = ModelInfo(name, "p", context_window=200_000, images=True)
    made = provider(api, server.url, key)
    return await start(store, root, [], provider=made, model=model, continue_last=resume, overrides=KNOWN)


def text_of(body: Json) -> str:
    return json.dumps(body.get("messages") or body.get("input"), ensure_ascii=False)


def asked(body: Json, words: str) -> bool:
    """Whether the user's last words are `words`."""
    return words in text_of(body).rpartition("ask:")[2]


def counts_images(body: Json) -> int:
    return len(re.findall(r'"type": "(?:image_url|input_image|image)"', text_of(body)))


def paths_of_images(body: Json, key: str) -> list[str]:
    """The paths of a request's images, as servers write them in their errors."""
    out: list[str] = []
    for m, item in enumerate(body[key]):
        content = item.get("content") or item.get("output")
        for n, block in enumerate(content if isinstance(content, list) else []):
            if "image" in block["type"]:
                name = "content" if item.get("content") else "output"
                dots = f"{key}.{m}.{name}.{n}.image.source.base64.data"
                out.append(f"{key}[{m}].{name}[{n}].image_url" if key == "input" else dots)
    return out


REFUSED_IMAGE = ("Could not process image", "invalid_image_format: unsupported image", "The image could not be decoded")


@any_key
@pytest.mark.parametrize(
    ("status", "error"), [*zip([400, 413, 422, 200, 400], itertools.cycle(REFUSED_IMAGE), strict=False)]
)
async def test_a_refused_image_is_left_out_for_good(
    store: Store, tmp_path: Path, api: str, key: str, error: str, status: int
) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "ok.png").write_bytes(picture("PNG", 40, 30))

    def play(body: Json) -> Reply:
        if counts_images(body):
            return Reply(status=status, error={"message": error, "type": "invalid_request_error"})
        if asked(body, "look") and "call_0" not in text_of(body):
            return Reply(calls=(("read", '{"path": "ok.png"}'),))
        return Reply("ALIVE")

    async with model_server(play) as server:
        run = await session_of(api, server, store, root, key=key)
        end = await run.ask("ask: look")
        assert (end.status, end.text) == ("answered", "ALIVE")
        (notice,) = run.of(Notice)
        assert notice.title == "Left out" and "ok.png" in notice.message
        assert len(server.refused) == 1
        assert "[image left out: refused by the provider]" in text_of(server.bodies[-1])
        await run.session.retry()
        await run.session.wait()
        await run.session.close()
        run = await session_of(api, server, store, root, key=key, resume=True)
        for _ in range(2):
            assert (await run.ask("ask: next")).text == "ALIVE"
        await run.session.close()
        assert len(server.refused) == 1, "it is never sent again"
        assert run.of(Notice) == []
        common = [text_of(b) for b in server.bodies[1:]]
        assert all(later.startswith(earlier[:-60]) for earlier, later in itertools.pairwise(common))


@every
async def test_a_path_in_the_error_names_the_image(store: Store, tmp_path: Path, api: str) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "bad.png").write_bytes(picture("PNG", 41, 30))
    for name in ("one.png", "two.png"):
        (root / name).write_bytes(picture("PNG", 40, 30 + len(name)) + name.encode())
    bad: list[str] = []

    def play(body: Json) -> Reply:
        paths = paths_of_images(body, "input" if api == "responses" else "messages")
        if len(paths) == 3:
            bad.append(paths[1])
            return Reply(status=400, error=f"{paths[1]}: could not be used")
        return Reply("ALIVE")

    async with model_server(play) as server:
        run = await session_of(api, server, store, root)
        assert (await run.ask("ask: @one.png @bad.png @two.png")).text == "ALIVE"
        assert counts_images(server.bodies[-1]) == 2
        assert (await run.ask("ask: next")).text == "ALIVE"
        assert counts_images(server.bodies[-1]) == 2 and len(bad) == 1
        assert "bad.png" in run.of(Notice)[0].message
        await run.session.close()


@every
@pytest.mark.parametrize("way", ["mentions", "calls"])
@pytest.mark.parametrize(("bad", "tries"), [(2, 3), (MOST_REFUSALS - 1, MOST_REFUSALS), (12, MOST_REFUSALS + 1)])
async def test_images_that_are_refused_one_at_a_time_are_all_left_out(
    store: Store, tmp_path: Path, api: str, way: str, bad: int, tries: int
) -> None:
    root = tmp_path / "w"
    root.mkdir()
    names = [f"p{n}.png" for n in range(bad + 1)]
    pictures = [picture("PNG", 40 + n, 30) for n in range(bad + 1)]
    for name, content in zip(names, pictures, strict=True):
        (root / name).write_bytes(content)
    good = base64.b64encode(pictures[-1]).decode()
    calls = tuple(("read", json.dumps({"path": name})) for name in names)

    def play(body: Json) -> Reply:
        key = "input" if api == "responses" else "messages"
        images = re.findall(r"[A-Za-z0-9+/=]{40,}", text_of(body))
        refused = [p for p, data in zip(paths_of_images(body, key), images, strict=True) if data != good]
        if refused:
            error = {"message": "Could not process image", "type": "invalid_request_error", "param": refused[0]}
            return Reply(status=400, error=error if key == "input" else f"{refused[0]}: Could not process image")
        return Reply(calls=calls) if asked(body, "look") and "call_0" not in text_of(body) else Reply("ALIVE")

    async with model_server(play) as server:
        run = await session_of(api, server, store, root)
        words = "look" if way == "calls" else " ".join(f"@{name}" for name in names)
        assert (await run.ask(f"ask: {words}")).text == "ALIVE"
        assert len(server.refused) == tries - 1
        assert counts_images(server.bodies[-1]) == (bad < MOST_REFUSALS), "the good one is kept as long as possible"
        (notice,) = run.of(Notice)
        assert "p0.png" in notice.message and "p1.png" in notice.message
        await run.session.close()
        run = await session_of(api, server, store, root, resume=True)
        assert (await run.ask("ask: next")).text == "ALIVE"
        await run.session.close()
        assert len(server.refused) == tries - 1 and run.of(Notice) == []


@every
async def test_accepted_pieces_stay(store: Store, tmp_path: Path, api: str) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "good.png").write_bytes(picture("PNG", 40, 30))
    (root / "bad.png").write_bytes(picture("PNG", 41, 30))

    def play(body: Json) -> Reply:
        return Reply(status=400, error="Could not process image") if counts_images(body) == 2 else Reply("ALIVE")

    async with model_server(play) as server:
        run = await session_of(api, server, store, root)
        await run.ask("ask: see @good.png")
        await run.session.close()
        run = await session_of(api, server, store, root, resume=True)
        assert (await run.ask("ask: see @bad.png")).text == "ALIVE"
        assert counts_images(server.bodies[-1]) == 1
        assert "good.png" in text_of(server.bodies[-1])
        assert "bad.png" in run.of(Notice)[0].message and "good.png" not in run.of(Notice)[0].message
        await run.session.close()


@every
@pytest.mark.parametrize("error", ["Something is wrong with it", "flagged as inappropriate"])
async def test_a_refused_file_is_left_out_for_good(store: Store, tmp_path: Path, api: str, error: str) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "bad.txt").write_text("BOMB in the file\n")
    (root / "good.txt").write_text("fine words\n")

    def play(body: Json) -> Reply:
        return Reply(status=422, error=error) if "BOMB" in text_of(body) else Reply("ALIVE")

    async with model_server(play) as server:
        run = await session_of(api, server, store, root)
        assert (await run.ask("ask: see @good.txt")).text == "ALIVE"
        assert (await run.ask("ask: see @bad.txt")).text == "ALIVE"
        assert (await run.ask("ask: next")).text == "ALIVE"
        assert "[file left out: refused by the provider]" in text_of(server.bodies[-1])
        assert "fine words" in text_of(server.bodies[-1]) and len(server.refused) == 1
        (notice,) = run.of(Notice)
        assert "the file bad.txt" in notice.message
        await run.session.close()


FILTERS = (
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
    "Output data may contain inappropriate content. DataInspectionFailed",
    "Content Exists Risk",
    "messages: text was flagged as potentially violating our usage policy",
)


@any_key
@pytest.mark.parametrize("error", FILTERS)
async def test_a_filtered_result_is_left_out_for_good(
    store: Store, tmp_path: Path, api: str, key: str, error: str
) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "fine.txt").write_text("fine words\n")
    (root / "bad.txt").write_text("BOMB\n")

    def play(body: Json) -> Reply:
        text = text_of(body)
        if "BOMB" in text:
            return Reply(status=400, error={"message": error, "code": "content_filter"})
        if asked(body, "look") and "call_0" not in text:
            return Reply(calls=(("read", '{"path": "fine.txt"}'),))
        if asked(body, "look") and "call_1" not in text:
            return Reply(calls=(("read", '{"path": "bad.txt"}'),))
        return Reply("ALIVE")

    async with model_server(play) as server:
        run = await session_of(api, server, store, root, key=key)
        assert (await run.ask("ask: look")).text == "ALIVE"
        assert "fine words" in text_of(server.bodies[-1]), "what was accepted stays"
        assert "[result left out: refused by the provider]" in text_of(server.bodies[-1])
        await run.session.close()
        run = await session_of(api, server, store, root, key=key, resume=True)
        assert (await run.ask("ask: next")).text == "ALIVE"
        await run.session.close()
        assert len(server.refused) == 1


NO_IMAGES = (
    (400, "This model does not support image input"),
    (404, "No endpoints found that support image input"),
    (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
    (400, "Failed to deserialize the JSON body: messages[1]: unknown variant `image_url`, expected `text`"),
    (400, "m is not a multimodal model"),
    (400, "messages[0].content must be a string"),
)


@every
@pytest.mark.parametrize(("status", "error"), NO_IMAGES)
async def test_a_model_without_images_gets_none_after_its_first_refusal(
    store: Store, tmp_path: Path, api: str, status: int, error: str
) -> None:
    root = tmp_path / "w"
    root.mkdir()
    for n in range(3):
        (root / f"{n}.png").write_bytes(picture("PNG", 40 + n, 30))
    takes = True

    def play(body: Json) -> Reply:
        return Reply(status=status, error=error) if counts_images(body) and not takes else Reply("ALIVE")

    async with model_server(play) as server:
        seeing = await session_of(api, server, store, root, name="seeing")
        for n in (0, 1):
            assert (await seeing.ask(f"ask: @{n}.png")).text == "ALIVE"
        await seeing.session.close()
        takes = False
        run = await session_of(api, server, store, root, resume=True)
        assert (await run.ask("ask: next")).text == "ALIVE"
        assert (await run.ask("ask: more")).text == "ALIVE"
        await run.session.close()
        run = await session_of(api, server, store, root, resume=True)
        assert (await run.ask("ask: again @2.png")).text == "ALIVE"
        await run.session.close()
        assert len(server.refused) == 1 and counts_images(server.bodies[-1]) == 0
        takes = True
        seeing = await session_of(api, server, store, root, name="seeing", resume=True)
        assert (await seeing.ask("ask: look again")).text == "ALIVE"
        assert counts_images(server.bodies[-1]) == 3, "another model gets them"
        await seeing.session.close()


NAMES = ("", "functions.read", "read<|channel|>commentary", "r" * 80, "läs fil", "a/b:c", "\u2603", "..", "read ")


@any_key
async def test_names_of_calls_are_always_valid(store: Store, tmp_path: Path, api: str, key: str) -> None:
    calls = tuple((name, '{"path": "a.txt"}') for name in NAMES)

    def names(body: Json) -> list[str]:
        sent = [c["function"]["name"] for m in body.get("messages", ()) for c in m.get("tool_calls") or ()]
        sent += [b["name"] for m in body.get("messages", ()) if isinstance(m.get("content"), list)
                  for b in m["content"] if b["type"] == "tool_use"]  # fmt: skip
        return sent + [i["name"] for i in body.get("input", ()) if i.get("type") == "function_call"]

    def play(body: Json) -> Reply:
        if any(not NAME.fullmatch(n) for n in names(body)):
            return Reply(status=400, error="Invalid tool name: string does not match pattern")
        return Reply("ALIVE") if names(body) else Reply(calls=(*calls, ("ls", "{}")))

    async with model_server(play) as server:
        run = await session_of(api, server, store, tmp_path / "w", key=key)
        assert (await run.ask("ask: look")).text == "ALIVE"
        await run.session.close()
        run = await session_of(api, server, store, tmp_path / "w", key=key, resume=True)
        assert (await run.ask("ask: next")).text == "ALIVE"
        await run.session.close()
        assert server.refused == []
        assert len(set(map(tuple, map(names, server.bodies[1:])))) == 1, "the same in every request"


@pytest.mark.parametrize("api", ["anthropic", "responses"])  # chat servers get back the ids that they made up
async def test_ids_of_calls_are_valid_where_their_characters_are_limited(api: str) -> None:
    calls = [("functions.read:0", "a"), ("functions.read:1", "b"), ("c" * 90, "c"), ("c" * 91, "d"), ("plain-1_x", "e")]
    asked_ = request(
        message("user", "hi"),
        message("assistant", *(ToolCallPart(i, "read", {"path": p}) for i, p in calls)),
        message("tool", *(result(i, p) for i, p in calls)),
    )
    text = json.dumps(RENDERS[api](asked_))
    ids = re.findall(r'"(?:id|tool_use_id|call_id)": "([^"]+)"', text)
    assert len(ids) == 10 and len(set(ids)) == 5 and all(NAME.fullmatch(i) for i in ids) and "plain-1_x" in ids


@every
async def test_a_thread_that_stays_refused_names_undo(store: Store, tmp_path: Path, api: str) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "a.txt").write_text("words\n")

    def play(body: Json) -> Reply:
        return Reply(status=400, error="Something is wrong with it") if asked(body, "@a.txt") else Reply("ALIVE")

    async with model_server(play) as server:
        run = await session_of(api, server, store, root)
        end = await run.ask("ask: @a.txt")
        assert (end.status, end.error_code) == ("error", "invalid_request")
        assert "Something is wrong with it" in end.error and "/undo" in end.error
        assert len(server.refused) == 2, "one more try, without the file"
        assert await store.read(threads.read_left_out, run.session.thread.id) == {}, "it was not the file"
        assert run.of(Notice) == []
        await run.session.close()


@every
@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=401, error="Incorrect API key"),
        Reply(status=403, error="Missing scopes"),
        Reply(status=404, error="The model does not exist"),
        Reply(status=429, error={"message": "Quota", "code": "insufficient_quota"}),
        Reply(status=400, error="Your credit balance is too low to access the API"),
        Reply(status=200, error={"message": "No.", "code": "cyber_policy"}),
    ],
)
async def test_errors_that_are_not_about_a_piece_are_final(
    store: Store, tmp_path: Path, api: str, reply: Reply
) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "a.png").write_bytes(picture("PNG", 40, 30))
    async with model_server(lambda _body: reply) as server:
        run = await session_of(api, server, store, root)
        end = await run.ask("ask: @a.png")
        assert end.status == "error" and "/undo" not in end.error
        assert len(server.refused) == 1
        await run.session.close()


OVERFLOWS: tuple[Callable[[], Reply], ...] = (
    lambda: Reply(status=400, error="Your request exceeded model token limit: 100000 (requested: 150000)"),
    lambda: Reply(status=500, error="the input length exceeds the context length"),
    lambda: Reply(status=413, error="too many bytes"),
    lambda: Reply(status=200, error={"message": "Prompt exceeds max length"}),
)


@any_key
@pytest.mark.parametrize("overflow", OVERFLOWS)
async def test_an_overflow_is_compacted_and_sent_once_more(
    store: Store, tmp_path: Path, api: str, key: str, overflow: Callable[[], Reply]
) -> None:
    refuse = False

    def play(body: Json) -> Reply:
        return overflow() if refuse and text_of(body).count("more of it") > 200 else Reply("ALIVE")

    async with model_server(play) as server:
        run = await session_of(api, server, store, tmp_path / "w", key=key)
        for n in range(6):
            await run.ask(f"ask: old words {n}\n```\n" + "and more of it\n" * 60 + "```")
        refuse = True
        end = await run.ask("ask: new")
        assert (end.status, end.text) == ("answered", "ALIVE")
        assert len(server.refused) == 1
        await run.session.close()


async def test_a_piece_that_was_left_out_is_not_observed(store: Store, tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "bad.txt").write_text("BOMB in the file\n")

    def play(body: Json) -> Reply:
        if "BOMB" in text_of(body):
            return Reply(status=400, error="flagged as inappropriate")
        return Reply("ALIVE") if "call_0" in text_of(body) else Reply(calls=(("read", '{"path": "bad.txt"}'),))

    async with model_server(play) as server:
        run = await session_of("chat", server, store, root)
        assert (await run.ask("ask: look")).text == "ALIVE"
        await run.session.compact()
        assert run.of(CompactionFinished)
        assert all("BOMB" not in group.text for group in run.session.current.engine.state.window.active)
        assert (await run.ask("ask: next")).text == "ALIVE"
        await run.session.close()
        assert len(server.refused) == 1


# only chat servers send reasoning in a field of the message
@pytest.mark.parametrize(
    ("field", "error"),
    [
        ("reasoning", "'messages.1' : property 'reasoning' is unsupported"),
        ("reasoning_content", "messages[1]: unknown field `reasoning_content`, please remove it"),
    ],
)
async def test_a_field_of_messages_that_is_refused_is_left_out(field: str, error: str) -> None:

    def answer(body: Json) -> Reply:
        return Reply(status=400, error=error) if field in text_of(body) else Reply("ALIVE")

    async with model_server(answer) as server:
        made = provider("chat", server.url)
        thought = ThinkingPart("Hm.", made.name, {"field": field}, "test-model")
        asked_ = request(
            message("user", "hi"), message("assistant", thought, TextPart("Hi.")), message("user", "go on")
        )
        for _ in range(2):
            _, done = await played(made, asked_)
            assert done.parts == (TextPart("ALIVE"),)
        await made.close()
        assert len(server.refused) == 1


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize(
    ("store_items", "refuses", "error"),
    [
        (True, True, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
        (True, True, "Item 'msg_1' of type 'message' was provided without its required 'reasoning' item: 'rs_1'."),
        (False, False, "Missing required parameter: 'input[1].id'."),
    ],
)
async def test_one_refusal_switches_ids_of_items(status: int, store_items: bool, refuses: bool, error: str) -> None:
    def answer(body: Json) -> Reply:
        return Reply(status=status, error=error) if ('"rs_1"' in text_of(body)) is refuses else Reply("ALIVE")

    async with model_server(answer) as server:
        made = provider("responses", server.url)
        item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
        thought = ThinkingPart("", made.name, {"item": item}, "test-model")
        asked_ = request(
            message("user", "hi"),
            message("assistant", thought, TextPart("Hi.")),
            message("user", "more"),
            extra={"store": store_items},
        )
        for _ in range(2):
            _, done = await played(made, asked_)
            assert done.parts == (TextPart("ALIVE"),)
        await made.close()
        assert len(server.refused) == 1
        assert all("gAAA" in text_of(body) for body in server.bodies)
