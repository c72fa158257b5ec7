from datetime import date, datetime, timezone

from till import journal, report, stamps


def days(*stamped, zone=0):
    return report.by_day(journal.read([f"{s};100;x" for s in stamped]), zone)


def test_west():
    assert days("2026-03-01T23:30:00-05:00", zone=60) == {date(2026, 3, 2): 100}


def test_east():
    assert days("2026-03-02T00:30:00+02:00", zone=60) == {date(2026, 3, 1): 100}


def test_half_hours():
    assert stamps.parse("2026-03-02T03:15:00+05:30") == datetime(2026, 3, 1, 21, 45, tzinfo=timezone.utc)
    assert stamps.parse("2026-03-02T03:15:00-03:30") == datetime(2026, 3, 2, 6, 45, tzinfo=timezone.utc)


def test_old_tills_write_no_colon():
    assert stamps.parse("2026-03-02T01:00:00+0200") == datetime(2026, 3, 1, 23, 0, tzinfo=timezone.utc)


def test_fractions():
    parsed = stamps.parse("2026-03-02T01:00:00.250+02:00")
    assert parsed.replace(microsecond=0) == datetime(2026, 3, 1, 23, 0, tzinfo=timezone.utc)


def test_utc_and_nothing():
    wanted = datetime(2026, 3, 1, 23, 0, tzinfo=timezone.utc)
    assert stamps.parse("2026-03-01T23:00:00Z") == wanted
    assert stamps.parse("2026-03-01T23:00:00") == wanted


def test_tills_of_two_countries():
    found = days("2026-03-01T23:30:00-05:00", "2026-03-02T05:30:00+01:00", "2026-03-02T04:30:00Z", zone=60)
    assert found == {date(2026, 3, 2): 300}


def test_nonsense_is_still_refused():
    for text in ("yesterday", "12:00", ""):
        try:
            stamps.parse(text)
        except ValueError:
            continue
        raise AssertionError(text)
