"""Draw images and pages of PDFs at the size that models see, as a separate program.

Reads a JSON object on standard input and prints one: `images` (base64), and of a PDF its number of `pages` and the
`texts` of those drawn; of a `check` nothing; `error` if it fails.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps, ImageSequence

MEMORY = 3 << 30  # bytes


def main() -> int:
    task = json.load(sys.stdin)
    limit_memory()
    try:
        done = draw_pdf(task) if "pdf" in task else check(task) if "check" in task else {"images": [draw_image(task)]}
    except ImportError as e:
        done = {"error": f"{e.name} is not installed"}
    except Exception as e:  # the root of a program: errors of damaged files are reported, not raised
        done = {"error": str(e) or type(e).__name__}
    sys.stdout.write(json.dumps(done))
    return 0


def limit_memory() -> None:
    """Limit the memory: a small file can claim to be a large picture."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def check(wanted: dict[str, Any]) -> dict[str, Any]:
    """Decode every frame of an image. Raises an exception if it is damaged or cut."""
    must_be_whole(wanted["check"])
    with Image.open(wanted["check"]) as picture:
        for frame in ImageSequence.Iterator(picture):
            frame.load()
    return {}


def must_be_whole(path: str) -> None:
    """Raise an exception for a file without its end, which decoders accept with missing pixels."""
    if lacks_end(Path(path).read_bytes()):
        raise OSError("image file is truncated")
    with Image.open(path) as picture:
        picture.verify()  # of a PNG every chunk


def lacks_end(data: bytes) -> bool:
    """Return whether the bytes that end an image of this format are missing; bytes after them do no harm."""
    if data.startswith(b"\x89PNG"):
        return b"IEND\xaeB`\x82" not in data
    if data.startswith(b"\xff\xd8"):
        return data.rfind(b"\xff\xd9") < data.rfind(b"\xff\xda")  # end of image, start of the last scan
    if data.startswith(b"RIFF"):
        return len(data) < int.from_bytes(data[4:8], "little") + 8
    return data.startswith(b"GIF8") and b"\x00;" not in data[-64:]


def draw_image(wanted: dict[str, Any]) -> dict[str, Any]:
    must_be_whole(wanted["image"])
    with Image.open(wanted["image"]) as picture:
        if picture.format == "JPEG":
            picture.draft("RGB", (wanted["edge"], wanted["edge"]))
        return encode_picture(ImageOps.exif_transpose(picture), wanted)


def encode_picture(picture: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """Encode a picture scaled to the longest edge, as PNG if it is small enough, else as JPEG."""
    picture = picture.convert(
        "RGBA" if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info else "RGB"
    )
    picture.thumbnail((wanted["edge"], wanted["edge"]), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=False)
    kind = "image/png"
    if out.tell() > min(wanted["bytes"], 1_000_000):
        out = io.BytesIO()
        flat = Image.new("RGB", picture.size, "white")
        flat.paste(picture, mask=picture.getchannel("A") if picture.mode == "RGBA" else None)
        flat.save(out, "JPEG", quality=85)
        kind = "image/jpeg"
    data = base64.b64encode(out.getvalue()).decode("ascii")
    return {"type": kind, "data": data, "width": picture.width, "height": picture.height}


def draw_pdf(wanted: dict[str, Any]) -> dict[str, Any]:
    pypdfium2: Any = importlib.import_module("pypdfium2")  # it has no types
    document = pypdfium2.PdfDocument(wanted["pdf"])
    total = len(document)
    first = wanted["first"] - 1
    drawn: list[dict[str, Any]] = []
    texts: list[str] = []
    for number in range(first, min(total, first + wanted["number"])):
        page = document[number]
        if wanted["edge"]:  # else only the text is needed
            width, height = page.get_size()
            scale = min(4.0, wanted["edge"] / max(width, height, 1.0))
            drawn.append(encode_picture(page.render(scale=scale).to_pil(), wanted))
        texts.append(page.get_textpage().get_text_bounded())
    return {"pages": total, "images": drawn, "texts": texts}


if __name__ == "__main__":
    sys.exit(main())
