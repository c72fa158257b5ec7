"""Writing contacts."""

import csv
import io

from contacts import files

COLUMNS = ("name", "email", "address")


def write(path, contacts):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for contact in contacts:
        writer.writerow([getattr(contact, column) for column in COLUMNS])
    files.write_text(path, out.getvalue())
