import pathlib
import tempfile

from contacts import exporting, importing
from contacts.model import Contact, ImportFailure


def imported(data):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "c.csv")
        path.write_bytes(data)
        return importing.read(path)


def back(people):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "c.csv")
        exporting.write(path, people)
        return importing.read(path)


def test_a_byte_order_mark():
    assert imported("\ufeffname,email,address\r\nAda,a@x,y\r\n".encode()) == [Contact("Ada", "a@x", "y")]


def test_a_quoted_header_behind_the_mark():
    assert imported('\ufeff"Name","Email","Address"\nAda,a@x,y\n'.encode()) == [Contact("Ada", "a@x", "y")]


def test_a_line_break_in_a_field():
    data = b'name,email,address\nAda,a@x,"1 Main Street\nLondon"\nBob,b@x,z\n'
    assert imported(data) == [Contact("Ada", "a@x", "1 Main Street\nLondon"), Contact("Bob", "b@x", "z")]


def test_line_breaks_are_kept_as_they_are():
    people = [Contact("Ada", "a@x", "1 Main Street\r\n\r\nLondon"), Contact("Bob", "b@x", "a\nb")]
    assert back(people) == people


def test_signs_that_some_take_for_line_breaks():
    people = [Contact("Ada\u2028Lovelace", "a@x", "a\x0bb\x0cc\x85d")]
    assert back(people) == people


def test_quotes_and_commas():
    people = [Contact('Ada "the first", Countess', "a@x", "")]
    assert back(people) == people


def test_rows_are_counted_by_contact():
    try:
        imported(b'name,email,address\nAda,a@x,"1\n2\n3"\nBob\n')
    except ImportFailure as e:
        assert str(e) == "row 2: 1 columns, expected 3"
    else:
        raise AssertionError


def test_an_empty_file():
    for data in (b"", b"\n\n"):
        try:
            imported(data)
        except ImportFailure as e:
            assert str(e) == "the file is empty"
        else:
            raise AssertionError
