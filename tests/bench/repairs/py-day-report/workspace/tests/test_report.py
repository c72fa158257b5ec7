import unittest

from till import report


class Report(unittest.TestCase):
    def test_days_of_utc(self):
        lines = ["# till 3", "2026-03-01T10:00:00Z;250;tea", "", "2026-03-01T23:30:00Z;100;cake"]
        self.assertEqual(report.text(lines), "2026-03-01        3.50")
        self.assertEqual(report.text(lines, 60), "2026-03-01        2.50\n2026-03-02        1.00")

    def test_a_broken_line_is_named(self):
        with self.assertRaisesRegex(ValueError, "line 2"):
            report.text(["2026-03-01T10:00:00Z;250;tea", "yesterday;1;x"])


if __name__ == "__main__":
    unittest.main()
