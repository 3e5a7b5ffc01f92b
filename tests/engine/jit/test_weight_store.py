"""Packed weights in mapped files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from edgewright.engine.jit import cache as cache_module
from edgewright.engine.jit.cache import Cache, default_cache
from edgewright.engine.jit.threads import address_of
from edgewright.engine.jit.weight_store import WeightStore
from edgewright.engine.plan import ALIGN, SLACK
from tests.support.memory import resident_bytes


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path / "cache"))
    return default_cache()


def arrays(*seeds: int) -> list[np.ndarray]:
    return [np.random.default_rng(s).integers(0, 255, 70_000 + 13 * s).astype(np.uint8) for s in seeds]


def files(cache: Cache) -> list[Path]:
    assert cache.folder is not None
    return sorted(cache.folder.glob("*.weights"))


def test_arrays_become_views_of_a_file(cache: Cache) -> None:
    made = arrays(1, 2, 1)
    WeightStore("program").persist(made)
    for array, expected in zip(made, arrays(1, 2, 1), strict=True):
        np.testing.assert_array_equal(array, expected)
        assert not array.flags.writeable
        assert address_of(array) % ALIGN == 0
    assert address_of(made[0]) == address_of(made[2])
    (file,) = files(cache)
    end = max(address_of(a) + a.nbytes for a in made) + SLACK  # vector loads may overrun
    assert end <= address_of(made[0].base) + made[0].base.nbytes
    assert file.stat().st_size < 200_000


def test_another_process_finds_them(cache: Cache) -> None:
    store, made = WeightStore("program"), arrays(1, 2)
    store.persist(made)
    places = store.places(made)
    assert places is not None
    other = WeightStore("program")
    for place, expected in zip(places, made, strict=True):
        np.testing.assert_array_equal(other.at(place), expected)
    again = arrays(2, 1)
    other.persist(again)
    assert other.places(again) == places[::-1]
    assert len(files(cache)) == 1
    with pytest.raises(LookupError):
        WeightStore("another").at(places[0])
    with pytest.raises(LookupError):
        other.at((0, places[0][1], 1 << 40))


def test_new_arrays_are_added(cache: Cache) -> None:
    store = WeightStore("program")
    store.persist(arrays(1, 2))
    more = arrays(1, 3)
    store.persist(more)
    places = WeightStore("program").places(more)
    assert places is None, "nothing is mapped before it is needed"
    assert [place[0] for place in store.places(more) or ()] == [0, 1]
    assert len(files(cache)) == 2


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_damaged_files_are_not_used(cache: Cache, damage: str) -> None:
    WeightStore("program").persist(arrays(1))
    (file,) = files(cache)
    data = file.read_bytes()
    file.write_bytes({"truncate": data[:-9], "flip": data[:99] + b"!" + data[100:], "empty": b""}[damage])
    made = arrays(1)
    store = WeightStore("program")
    store.persist(made)
    np.testing.assert_array_equal(made[0], arrays(1)[0])
    assert store.places(made) is not None
    assert file.read_bytes() == data


def test_without_a_cache_arrays_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_CACHE", "off")
    store, made = WeightStore("program"), arrays(1)
    kept = list(made)
    store.persist(made)
    assert made[0] is kept[0]
    assert store.places(made) is None


def test_files_of_weights_have_a_limit_of_their_own(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put("0" * 64, b"code")
    monkeypatch.setattr(cache_module, "MAX_WEIGHTS", 150_000)
    for name in "abc":
        WeightStore(name).persist(arrays(1))
    assert len(files(cache)) == 2
    assert cache.get("0" * 64) == b"code"
    assert cache.clear() == 3
    assert files(cache) == []


@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked up in /proc")
def test_weights_are_in_memory_once_they_are_read(cache: Cache) -> None:
    store, made = WeightStore("program"), [np.random.default_rng(0).integers(0, 255, 8 << 20).astype(np.uint8)]
    expected = made[0].copy()
    store.persist(made)
    places = store.places(made)
    assert places is not None
    found = WeightStore("program").at(places[0])
    assert resident_bytes(found) < 1 << 20  # although samples of all parts were compared
    np.testing.assert_array_equal(found, expected)
    assert resident_bytes(found) >= 8 << 20
