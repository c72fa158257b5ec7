"""Store everything in SQLite; the only package that speaks SQL."""

from __future__ import annotations


def sqlite_info() -> tuple[str, bool]:
    """Return SQLite's version, and whether its WAL is safe with two connections."""
    import apsw

    from sakti.store.opening import WAL_SAFE_FROM

    version = apsw.sqlite_lib_version()
    return version, tuple(int(n) for n in version.split(".")) >= WAL_SAFE_FROM
