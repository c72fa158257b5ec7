"""What a contact is."""

from dataclasses import dataclass


class ImportFailure(Exception):
    """A file that cannot be imported, in one sentence."""


@dataclass(frozen=True)
class Contact:
    name: str
    email: str
    address: str = ""
