"""Modules that are imported lazily: executed once, at their first use, whole for every thread."""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import sakti
from sakti.core.lazy import LazyModule, lazy_imports, load


class Package:
    """Files of a package `sakti.trial`, and what their execution noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran: list[str] = []
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.write("__init__", "")

    def write(self, name: str, text: str) -> None:
        path = self.folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import sakti\nsakti.trial_notes.ran.append(__name__)\n{text}\n")
        importlib.invalidate_caches()

    def lazy(self, name: str) -> ModuleType:
        with lazy_imports:
            return importlib.import_module(f"sakti.trial.{name}" if name else "sakti.trial")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    found = Package(tmp_path / "trial")
    monkeypatch.setattr(sakti, "__path__", [*sakti.__path__, str(tmp_path)])
    monkeypatch.setattr(sakti, "trial_notes", found, raising=False)
    yield found
    for name in [n for n in sys.modules if n.startswith("sakti.trial")]:
        del sys.modules[name]
    vars(sakti).pop("trial", None)


def test_it_is_executed_at_the_first_use_of_a_name_and_once(package: Package) -> None:
    package.write("one", "value = 1\nOTHER = 2")
    one = package.lazy("one")
    assert (one.__name__, Path(one.__file__ or "").name, package.ran) == ("sakti.trial.one", "one.py", [])
    assert (one.value, one.OTHER) == (1, 2)
    assert package.ran == ["sakti.trial.one"]
    assert type(one) is ModuleType
    with pytest.raises(AttributeError, match=r"module 'sakti\.trial\.one' has no attribute 'nothing'"):
        _ = one.nothing


def test_a_module_of_a_package_comes_without_either_being_executed(package: Package) -> None:
    package.write("below/__init__", "name = 'package'")
    package.write("below/deep", "value = 3")
    with lazy_imports:
        from sakti.trial.below import deep
    assert package.ran == []
    assert deep.value == 3
    assert package.ran == ["sakti.trial.below.deep"]
    assert sys.modules["sakti.trial.below"].name == "package"


def test_a_file_that_is_missing_is_missed_at_once(package: Package) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'sakti\.trial\.none'"):
        package.lazy("none")
    with pytest.raises(ImportError, match="cannot import name 'none'"), lazy_imports:
        from sakti.trial import none  # noqa: F401
    assert not lazy_imports.active


def test_an_error_of_its_execution_comes_with_each_use_until_it_is_mended(package: Package) -> None:
    package.write("broken", "import no_such_library")
    broken = package.lazy("broken")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_library"):
            _ = broken.value
    package.write("broken", "value = 'as it should be'")
    assert broken.value == "as it should be"


def test_what_an_executed_module_imports_is_executed_with_it(package: Package) -> None:
    package.write("base", "class Base: pass")
    package.write("top", "from sakti.trial import base\nfrom sakti.trial.base import Base\nclass Top(Base): pass")
    with lazy_imports:
        from sakti.trial.top import Top  # a name: nothing to wait with
    assert package.ran == ["sakti.trial.top", "sakti.trial", "sakti.trial.base"]
    assert Top.__mro__[1].__name__ == "Base"


def test_other_libraries_are_executed_in_the_context_too(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_library_of_others.py").write_text("value = 4")
    monkeypatch.syspath_prepend(tmp_path)
    with lazy_imports:
        library = importlib.import_module("a_library_of_others")
    monkeypatch.delitem(sys.modules, "a_library_of_others")
    assert (type(library), vars(library)["value"]) == (ModuleType, 4)


def test_a_name_that_was_set_outlives_the_execution(package: Package) -> None:
    package.write("patched", "value = 1\ndef read(): return value")
    patched = package.lazy("patched")
    patched.value = 2
    assert patched.read() == 2


def test_what_is_pickled_finds_its_class(package: Package) -> None:
    package.write("kind", "class Kind: pass")
    data = pickle.dumps(package.lazy("kind").Kind())
    del sys.modules["sakti.trial.kind"]
    package.lazy("kind")
    assert type(pickle.loads(data)) is sys.modules["sakti.trial.kind"].Kind


HALF = """
first = 1
def both(): return first, second
sakti.trial_notes.entered.set()
assert sakti.trial_notes.go_on.wait(10)
second = 2
"""


@pytest.mark.parametrize("way", ["attribute", "statement", "load"])
def test_a_second_thread_waits_for_the_whole_module(package: Package, way: str) -> None:
    package.write("half", HALF)
    half = package.lazy("half")
    got: list[object] = []

    def second() -> None:
        if way == "statement":
            from sakti.trial.half import both

            got.append(both())
        else:
            if way == "load":
                load(half)
            got.append(half.both())

    preload = threading.Thread(target=load, args=(half,))
    preload.start()
    assert package.entered.wait(10)
    user = threading.Thread(target=second)
    user.start()
    user.join(0.05)
    assert got == []  # `first` and `both` are there already, `second` is not
    package.go_on.set()
    for thread in (preload, user):
        thread.join(10)
    assert got == [(1, 2)]
    assert package.ran == ["sakti.trial.half"]


def test_many_threads_that_load_modules_of_one_another_all_come_through(package: Package) -> None:
    count = 12
    for n in range(count):
        below = "".join(f"from sakti.trial import m{k}\n" for k in range(n))
        package.write(f"m{n}", f"{below}value = 1 + {' + '.join(['0', *(f'm{k}.value' for k in range(n))])}")
    modules = [package.lazy(f"m{n}") for n in range(count)]
    start, got = threading.Barrier(count), dict[int, int]()

    def use(n: int) -> None:
        start.wait(10)
        got[n] = modules[n].value

    threads = [threading.Thread(target=use, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert got == {n: 2**n for n in range(count)}
    assert sorted(package.ran) == sorted(["sakti.trial", *(f"sakti.trial.m{n}" for n in range(count))])


def test_only_the_thread_in_the_context_imports_lazily(package: Package) -> None:
    package.write("eager", "")
    with lazy_imports:
        thread = threading.Thread(target=importlib.import_module, args=("sakti.trial.eager",))
        thread.start()
        thread.join(10)
    assert package.ran == ["sakti.trial", "sakti.trial.eager"]
    assert not isinstance(sys.modules["sakti.trial.eager"], LazyModule)
