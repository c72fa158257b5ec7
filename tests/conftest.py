"""No test leaves the machine or the temporary folder: sockets reach loopback only, HOME and XDG point into tmp."""

from __future__ import annotations

import gc
import itertools
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import hypothesis
import pytest

from sakti.agent import workspace
from sakti.core.clock import Clock, TimeIds
from sakti.store import migrate, opening
from sakti.store.database import Store
from tests.fakes.clock import FakeClock
from tests.fakes.sandbox import FakeSandbox
from tests.fakes.statements import Product
from tests.fakes.walks import WALKS

# How long an example takes to make says how busy the machine is.
hypothesis.settings.register_profile("sakti", suppress_health_check=[hypothesis.HealthCheck.too_slow], deadline=None)
hypothesis.settings.load_profile("sakti")

_connect = socket.socket.connect
_NUMBERS = itertools.count()


def pytest_xdist_auto_num_workers() -> int | None:
    """One more than there are processors: many tests wait for a program or for a screen that is drawn."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of the garbage collector, and let it run less often.

    A fifth of the run's CPU time went into looking through objects that live to its end.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _loopback_only(self: socket.socket, address: object) -> object:
    host = address[0] if isinstance(address, tuple) else ""
    if self.family in (socket.AF_INET, socket.AF_INET6) and not (
        str(host).startswith("127.") or host in ("::1", "localhost")
    ):
        raise OSError(f"tests do not reach {host}")
    return _connect(self, address)


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", _loopback_only)
        yield


@pytest.fixture(autouse=True)
def _fake_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sessions in this process run commands bare, and quickly; whole programs use the real sandbox."""
    monkeypatch.setattr(workspace, "make_sandbox", lambda made: FakeSandbox(made.root))


@pytest.fixture(autouse=True, scope="session")
def _statements() -> Iterator[Product]:
    """What the package asks of its databases from here on."""
    product = Product()

    def trace(connection: apsw.Connection) -> None:
        connection.exec_trace = product.take

    apsw.connection_hooks.append(trace)
    yield product
    apsw.connection_hooks.remove(trace)


@pytest.fixture(autouse=True, scope="session")
def _empty_databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A new database is a copy of the first one that was made in the same way: its migrations take ten times as long
    as all else at its opening. Whatever a test puts in the place of a migration makes one anew."""
    folder, made = tmp_path_factory.mktemp("empty"), dict[object, Path]()
    build = opening.build

    def copied(path: Path, clock: Clock, *, wal: bool) -> None:
        key = (wal, migrate.LATEST, migrate.upgrade, tuple(sorted(migrate._list_files().items())))
        if key not in made:
            build(folder / f"{len(made)}.db", clock, wal=wal)
            made[key] = folder / f"{len(made)}.db"
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(made[key].read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "build", copied)
        yield


@pytest.fixture(autouse=True)
def _each_statement_has_its_index(_statements: Product) -> Iterator[None]:
    """A statement that goes through a whole table, and is not listed with the reason why it may, fails the test that
    was the first to come to it."""
    yield
    assert _statements.unlisted(WALKS) == []


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the test. pytest's own fixture lists all earlier folders to find a free name."""
    folder = tmp_path_factory.getbasetemp() / f"t{next(_NUMBERS)}"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own; no key of the developer's is seen."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    for name in list(os.environ):
        if name.endswith("_API_KEY") or name.startswith("SAKTI_") or name.endswith("_BASE_URL"):
            monkeypatch.delenv(name)
    return folder


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    """A real SQLite file."""
    opened = await Store.open(tmp_path / "data" / "sakti.db", clock=clock, ids=TimeIds(clock), synchronous="NORMAL")
    yield opened
    await opened.close()
