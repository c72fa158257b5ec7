import pathlib
import tempfile
import unittest

from contacts import exporting, importing
from contacts.model import Contact, ImportFailure


class Contacts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "contacts.csv")

    def test_there_and_back(self):
        people = [Contact("Ada, Countess", "ada@example.org", "1 Main Street"), Contact("Bob", "bob@example.org")]
        exporting.write(self.path, people)
        self.assertEqual(importing.read(self.path), people)

    def test_a_missing_column(self):
        self.path.write_text("name,address\nAda,x\n")
        with self.assertRaisesRegex(ImportFailure, "email"):
            importing.read(self.path)

    def test_empty_lines_are_skipped(self):
        self.path.write_text("email,name,address\n\nada@example.org,Ada,\n\n")
        self.assertEqual(importing.read(self.path), [Contact("Ada", "ada@example.org")])


if __name__ == "__main__":
    unittest.main()
