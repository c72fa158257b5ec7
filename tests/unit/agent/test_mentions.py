"""Files and images that a prompt names."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from sakti.agent.mentions import find_pasted_images, format_mention, replace_images, with_files
from sakti.core import content
from sakti.core.errors import SaktiError
from sakti.core.types import ContextPart, FilePart, ImagePart, TextPart
from sakti.providers.scripted import Answer
from sakti.store.database import Store
from tests.fakes.pictures import FORMATS, picture
from tests.fakes.requests import message
from tests.fakes.session import start

PNG, JPEG = picture("PNG"), picture("JPEG")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "my pictures"
    made.mkdir()
    (made / "cat.png").write_bytes(PNG)
    (made / "named wrongly.txt").write_bytes(JPEG)
    (made / "fake.png").write_text("no image")
    return made


def test_images_are_known_by_their_content(folder: Path) -> None:
    text = "see @cat.png, @cat.png @named\\ wrongly.txt @fake.png and @none.png"
    parts = with_files(text, folder, ())
    assert parts == (
        TextPart(text),
        ImagePart("image/png", base64.b64encode(PNG).decode(), "cat.png", 640, 480),
        ImagePart("image/jpeg", base64.b64encode(JPEG).decode(), "named wrongly.txt", 640, 480),
        FilePart("fake.png", "no image"),
    )


def test_an_image_that_cannot_be_sent_is_refused_before_anything_is(folder: Path) -> None:
    with pytest.raises(SaktiError, match=r"ollama/x takes no images: cat\.png was not sent"):
        with_files("@cat.png", folder, (), blind="ollama/x")
    assert with_files("@fake.png", folder, (), blind="ollama/x")[1:]
    (folder / "large.png").write_bytes(PNG + b"\0" * content.LIMIT)
    with pytest.raises(SaktiError, match=r"large\.png has 3\.9 MB, models take 3\.9 MB at most"):
        with_files("@large.png", folder, ())


@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "'{}'",
        '"{}"',
        "file://{url}",
        "file://localhost{url}",
        "{escaped}",
        "{escaped} {second}",
        "{}\n{second}\n",
    ],
)
def test_what_terminals_write_for_a_dropped_image(folder: Path, form: str) -> None:
    path, second = folder / "cat.png", folder.parent / "second.png"
    second.write_bytes(PNG)
    values = {"url": str(path).replace(" ", "%20"), "escaped": str(path).replace(" ", "\\ "), "second": second}
    found = find_pasted_images(form.format(str(path), **values))
    assert found == ([path, second] if "second" in form else [path])
    assert with_files(format_mention(path), folder.parent, ())[1:]


def test_what_is_pasted_as_text(folder: Path) -> None:
    texts = (
        "", "cat.png", str(folder / "fake.png"), f"look at {folder / 'cat.png'}", str(folder), "'open", "/a\0b",
        f"file://elsewhere{folder}/cat.png", "x" * 5000, "~nobody-of-that-name/cat.png",
    )  # fmt: skip
    for text in texts:
        assert find_pasted_images(text) == [], text


def test_a_model_without_eyes_is_told_that_there_was_an_image() -> None:
    plain, seen = message("user", "hello"), message("user", "see", ImagePart("image/png", "", "cat.png"))
    out = replace_images((plain, seen))
    assert out[0] is plain
    assert out[1].parts == (TextPart("see"), TextPart("(an image that is not shown to you: cat.png)"))


async def test_a_session_sends_images_or_says_why_not(store: Store, tmp_path: Path) -> None:
    recorded = await start(store, tmp_path / "work", [Answer("A cat.")])
    (tmp_path / "work" / "cat.png").write_bytes(PNG)
    with pytest.raises(SaktiError, match="scripted/demo takes no images"):
        await recorded.session.submit("what is @cat.png")
    assert not recorded.session.busy
    info = recorded.session.workspace.models.info
    assert info is not None
    recorded.session.workspace.models.info = type(info)(
        **{f: getattr(info, f) for f in info.__slots__} | {"images": True}
    )
    await recorded.ask("what is @cat.png")
    sent = recorded.provider.requests[-1].messages[-1]
    assert [type(p) for p in sent.parts] == [TextPart, ImagePart, ContextPart]
    stored = (await recorded.session.views.transcript(recorded.session.thread.id))[0]  # type: ignore[union-attr]
    assert stored.parts == sent.parts and stored.tokens > 100


async def test_what_is_longer_than_the_window_is_not_sent(store: Store, tmp_path: Path) -> None:
    recorded = await start(store, tmp_path / "work", [Answer("ok")], window=20_000)
    with pytest.raises(SaktiError, match=r"takes 20\.0k in all: nothing was sent"):
        await recorded.session.submit("word " * 30_000)
    assert recorded.provider.requests == []
    assert recorded.session.thread is not None
    assert await recorded.session.views.transcript(recorded.session.thread.id) == []
    # what fits alone, but not with everything else, is not sent either
    end = await recorded.ask("word " * 19_500)
    assert end.error_code == "context_too_long" and "it was not sent" in end.error
    assert recorded.provider.requests == []
    assert (await recorded.ask("and now")).status == "answered"


@pytest.mark.parametrize("form", FORMATS)
def test_a_damaged_image_is_named_instead_of_sent(tmp_path: Path, form: str) -> None:
    (tmp_path / "cut.png").write_bytes(picture(form)[: len(picture(form)) // 2])
    _, part = with_files("see @cut.png", tmp_path, ())
    assert isinstance(part, FilePart) and part.path == "cut.png"
    assert "is unreadable and was not sent" in part.text
