"""Files on the disk."""


def read_lines(path):
    """The lines of a text file."""
    with open(path, encoding="utf-8") as f:
        return f.read().splitlines()


def write_text(path, text):
    """Replace a file's text, line ends as they are."""
    with open(path, "w", encoding="utf-8", newline="") as f:
        f.write(text)
