"""The price list says what the package says that it is made from."""

import datetime as dt
import runpy
from pathlib import Path

import msgspec
import pytest
from genai_prices import Usage as Theirs
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from sakti.core.types import Usage
from sakti.providers import facts
from sakti.providers.presets import PRESETS

MAKER = Path(__file__).parents[3] / ".github" / "price_list.py"
SNAPSHOT = get_snapshot()
NAMED = [(name, preset.prices) for name, preset in PRESETS.items() if preset.prices]
IDS = [(name, listed, m.id) for name, listed in NAMED for p in SNAPSHOT.providers if p.id == listed for m in p.models]
AT = dt.datetime(2026, 11, 24, 17, 0, tzinfo=dt.UTC)


@pytest.fixture(scope="module", autouse=True)
def newest() -> None:
    """Read the list as the installed package makes it, whatever version the shipped one is from."""
    made = msgspec.json.encode(runpy.run_path(str(MAKER))["price_list"]())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "_load_price_list", lambda: msgspec.json.decode(made, type=facts._File))
        facts._load_provider.cache_clear()
        facts._search_prices.cache_clear()
        yield
    facts._load_provider.cache_clear()
    facts._search_prices.cache_clear()


def _theirs(listed: str, model: str):
    try:
        return SNAPSHOT.find_provider_model(model, None, listed, None)[1]
    except LookupError:
        return None


@pytest.mark.parametrize("change", ["", "-20251211", "-latest", "x", "UPPER"])
def test_a_name_finds_the_same_prices(change: str) -> None:
    assert IDS
    for provider, listed, model in IDS:
        name = model.upper() if change == "UPPER" else model + change
        found, theirs = facts.find_price(provider, name), _theirs(listed, name)
        assert (found is None) == (theirs is None), name
        if found is None or theirs is None:
            continue
        assert found.window == theirs.context_window
        expected = theirs.get_prices(AT)
        for own, key in (("input", "input_mtok"), ("output", "output_mtok"), ("cached", "cache_read_mtok")):
            price = getattr(expected, key)
            rates = getattr(found.price(AT), own)
            assert (rates[0][1] if rates else None) == (
                float(getattr(price, "base", price)) if price is not None else None
            )


@given(
    st.sampled_from(IDS),
    st.integers(0, 2_000_000),
    st.integers(0, 100_000),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_a_cost_is_the_packages(
    which: tuple[str, str, str], size: int, out: int, cached: float, written: float
) -> None:
    provider, listed, model = which
    read = int(size * cached)
    write = int((size - read) * written)
    usage = Usage(input_tokens=size, output_tokens=out, cached_tokens=read, cache_write_tokens=write)
    if _theirs(listed, model) is None:  # some names of the list are not found by its own patterns
        assert facts.compute_cost(usage, provider, model) is None
        return
    theirs = SNAPSHOT.calc(
        Theirs(input_tokens=size, output_tokens=out, cache_read_tokens=read, cache_write_tokens=write),
        model,
        listed,
        None,
        None,
    )
    assert facts.compute_cost(usage, provider, model) == pytest.approx(float(theirs.total_price))


def test_numbers_that_contradict_each_other_have_no_cost() -> None:
    assert facts.compute_cost(Usage(input_tokens=10, cached_tokens=20), "anthropic", "claude-opus-5-5") is None


@pytest.mark.parametrize(
    ("hours", "at", "holds"),
    [
        (("16:30:00", "00:30:00"), "17:00", True),
        (("16:30:00", "00:30:00"), "00:29", True),
        (("16:30:00", "00:30:00"), "00:30", False),
        (("01:00:00", "02:00:00"), "01:00", True),
        (("01:00:00", "02:00:00"), "02:00", False),
    ],
)
def test_hours_may_run_past_midnight(hours: tuple[str, str], at: str, holds: bool) -> None:
    begin, end = (dt.time.fromisoformat(each) for each in hours)
    now = dt.datetime.combine(dt.date(2026, 1, 1), dt.time.fromisoformat(at), dt.UTC)
    assert facts.Price(hours=(begin, end)).holds(now) is holds
