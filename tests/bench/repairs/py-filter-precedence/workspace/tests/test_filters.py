import unittest

from filters.errors import FilterError
from filters.tasks import choose, task

TASKS = [task("a", "done", team="core"), task("b", "urgent", team="web"), task("c", team="west wing")]


class Filters(unittest.TestCase):
    def test_flags_and_fields(self):
        self.assertEqual(choose(TASKS, "urgent"), ["b"])
        self.assertEqual(choose(TASKS, "TEAM:Core"), ["a"])
        self.assertEqual(choose(TASKS, 'team:"west wing"'), ["c"])
        self.assertEqual(choose(TASKS, ""), ["a", "b", "c"])

    def test_operators(self):
        self.assertEqual(choose(TASKS, "done or urgent"), ["a", "b"])
        self.assertEqual(choose(TASKS, "done and team:core"), ["a"])
        self.assertEqual(choose(TASKS, "not done"), ["b", "c"])
        self.assertEqual(choose(TASKS, "urgent and (done or team:web)"), ["b"])

    def test_what_is_wrong(self):
        for text, position in (("done and", 8), ("(done", 5), ("done urgent", 5), ("done & x", 4)):
            with self.assertRaises(FilterError) as caught:
                choose(TASKS, text)
            self.assertEqual(caught.exception.position, position, text)


if __name__ == "__main__":
    unittest.main()
