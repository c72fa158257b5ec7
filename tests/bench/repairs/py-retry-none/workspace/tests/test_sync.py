import unittest

from mirror.sync import sync
from mirror.upstream import Upstream


class Sync(unittest.TestCase):
    def test_a_night(self):
        pages = {"/index": {"tea": "1.0"}, "/packages/tea": {"content": "leaves"}}
        local = {"old": ("0.1", "x")}
        upstream = Upstream(lambda path: (200, pages[path]), log=lambda line: None)
        self.assertEqual(sync(upstream, local), ["tea", "old"])
        self.assertEqual(local, {"tea": ("1.0", "leaves")})

    def test_a_short_failure(self):
        answers = [(503, None), (200, {})]
        upstream = Upstream(lambda path: answers.pop(0), sleep=lambda s: None, log=lambda line: None)
        self.assertEqual(sync(upstream, {}), [])


if __name__ == "__main__":
    unittest.main()
