"""Reading contacts."""

import csv

from contacts import files
from contacts.model import Contact, ImportFailure

NEEDED = ("name", "email", "address")


def read(path):
    """The contacts of a file. Raises ImportFailure, with the number of the contact where it is about one."""
    rows = [next(csv.reader([line])) for line in files.read_lines(path) if line.strip()]
    if not rows:
        raise ImportFailure("the file is empty")
    header = [name.strip().lower() for name in rows[0]]
    for name in NEEDED:
        if name not in header:
            raise ImportFailure(f'no column "{name}"')
    places = {name: header.index(name) for name in NEEDED}
    contacts = []
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(header):
            raise ImportFailure(f"row {number}: {len(row)} columns, expected {len(header)}")
        contacts.append(Contact(**{name: row[place] for name, place in places.items()}))
    return contacts
