"""Text to tokens: (kind, value, position)."""

import re

from filters.errors import FilterError

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<bracket>[()])
      | (?P<field>[A-Za-z_]\w*):(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s()"]+))
      | (?P<word>[A-Za-z_]\w*)
    )""",
    re.VERBOSE,
)
OPERATORS = ("and", "or", "not")


def tokens(text):
    """The tokens of a filter; raises FilterError at what is none."""
    found, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise FilterError("this is not understood", position)
        start = match.end() - len(match[0].lstrip())
        if match["bracket"]:
            found.append((match["bracket"], None, start))
        elif match["field"]:
            value = match["quoted"] if match["quoted"] is not None else match["plain"]
            found.append(("field", (match["field"].lower(), value), start))
        elif match["word"].lower() in OPERATORS:
            found.append((match["word"].lower(), None, start))
        else:
            found.append(("flag", match["word"].lower(), start))
        position = match.end()
    return found
