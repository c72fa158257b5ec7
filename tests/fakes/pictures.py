"""Real images in every format that models take."""

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
