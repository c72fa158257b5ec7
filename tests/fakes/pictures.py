"""Real images in every format that models take, and documents."""

from __future__ import annotations

import io
import random

from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


def picture(form: str, width: int = 640, height: int = 480, *, frames: int = 1) -> bytes:
    """Encode a picture of small random squares, the same for the same arguments."""
    numbers = random.Random(width * height)
    small = [Image.frombytes("RGB", (16, 12), numbers.randbytes(16 * 12 * 3)) for _ in range(frames)]
    first, *rest = [each.resize((width, height), Image.Resampling.NEAREST) for each in small]
    out = io.BytesIO()
    if frames > 1:
        first.save(out, form, save_all=True, append_images=rest)
    else:
        first.save(out, form)
    return out.getvalue()


def pdf(pages: int) -> bytes:
    """A document whose pages say their number."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(pages))
    objects.append(f"<< /Type /Pages /Count {pages} /Kids [{kids}] >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for n in range(pages):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * n} 0 R "
            "/Resources << /Font << /F 3 0 R >> >> >>"
        )
        text = f"BT /F 24 Tf 72 700 Td (Page number {n + 1}) Tj ET"
        objects.append(f"<< /Length {len(text)} >>\nstream\n{text}\nendstream")
    out = b"%PDF-1.4\n"
    places: list[int] = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010d} 00000 n \n".encode() for place in places)
    return out + f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF".encode()
