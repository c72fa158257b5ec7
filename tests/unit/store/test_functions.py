"""SQL functions accept every value that a column or JSON can hold."""

from __future__ import annotations

from itertools import product

import apsw
import pytest

from sakti.store import database_file

VALUES = ("NULL", "7", "1.5", "''", "'word'", "X''", "X'616263ff'", "X'0061726361626364'", "'null'", "'[null]'")


@pytest.fixture
def connection() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    database_file.register(connection)
    return connection


def registered(connection: apsw.Connection) -> list[tuple[str, int]]:
    rows = connection.execute("SELECT name, narg FROM pragma_function_list WHERE name GLOB 'sakti_*'").fetchall()
    return sorted({(str(name), int(count)) for name, count in rows})


def test_every_function_accepts_values_of_every_type(connection: apsw.Connection) -> None:
    names = registered(connection)
    assert len(names) >= 6
    for name, count in names:
        for values in product(VALUES, repeat=count):
            connection.execute(f"SELECT {name}({', '.join(values)})").fetchall()


@pytest.mark.parametrize("call", ["sakti_masked(NULL)", "sakti_folded(NULL)", "sakti_identifiers(NULL)"])
def test_null_stays_null(connection: apsw.Connection, call: str) -> None:
    assert connection.execute(f"SELECT {call}").get is None


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("sakti_text(NULL, NULL)", ""),
        ("sakti_text('', NULL)", ""),
        ('sakti_text(NULL, \'[{"t":"text","text":"said"}]\')', "said"),
        ("sakti_unpacked(NULL)", ""),
    ],
)
def test_text_of_a_message_without_values_is_empty(connection: apsw.Connection, call: str, result: str) -> None:
    assert connection.execute(f"SELECT {call}").get == result


def test_path_filter_of_null_is_null(connection: apsw.Connection) -> None:
    rows = connection.execute("SELECT sakti_touched(NULL, 'a*'), sakti_touched('abc', NULL)").fetchall()
    assert rows == [(None, None)]


def test_numbers_and_bytes_are_read_as_text(connection: apsw.Connection) -> None:
    rows = connection.execute("SELECT sakti_masked(5), sakti_folded(X'41'), sakti_touched(X'616263', 'a*')").fetchall()
    assert rows == [("5", "A", 1)]


def test_masking_titles_in_json_passes_rows_without_a_title(connection: apsw.Connection) -> None:
    """The statement of the migration that masks titles, over every kind of event."""
    connection.execute("CREATE TABLE events (after TEXT)")
    events = ('{"title": "a"}', '{"depends_on": "b"}', '{"title": null}', "no json", None)
    connection.executemany("INSERT INTO events VALUES (?)", [(event,) for event in events])
    connection.execute(
        "UPDATE events SET after = json_set(after, '$.title', sakti_masked(after ->> '$.title'))"
        " WHERE json_valid(after) AND after ->> '$.title' != sakti_masked(after ->> '$.title')"
    )
    assert [after for (after,) in connection.execute("SELECT after FROM events ORDER BY rowid")] == list(events)
