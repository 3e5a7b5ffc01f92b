"""Plans kept between processes: used if nothing changed, made again if anything did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack import delegate
from edgewright.engine.graph.digest import graph_digest
from edgewright.engine.jit import plan_cache
from edgewright.engine.jit.cache import Cache, default_cache
from edgewright.ir.graph import Graph, Op, Value
from edgewright.runtime import Runtime
from tests.backends.device import program
from tests.engine.lower.test_conv import conv

X = np.random.default_rng(0).standard_normal((1, 12, 12, 6)).astype(np.float32)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path / "cache"))
    return default_cache()


def file(seed: int = 1) -> bytes:
    made = conv((1, 12, 12, 6), 10, (3, 3), padding=(1, 1, 1, 1))
    made.ops[0].args["weight"].data = np.random.default_rng(seed).standard_normal((10, 3, 3, 6)).astype(np.float32)
    return program(made)


def run(data: bytes, threads: int = 1) -> Any:
    return Runtime(threads=threads).load_program(data).load_method().execute([X])[0]


def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever a blob is read."""
    seen: list[int] = []
    original = delegate.XnnpackDelegate._graph.func  # type: ignore[attr-defined]

    def graph(self: Any) -> Any:
        seen.append(1)
        return original(self)

    monkeypatch.setattr(delegate.XnnpackDelegate, "_graph", property(graph))
    return seen


def test_a_file_seen_before_is_not_read_again(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(file())
    seen = reads(monkeypatch)
    np.testing.assert_array_equal(run(file()), first)
    assert not seen
    run(file(), threads=2)
    assert seen, "other threads, another plan"


def test_other_weights_are_other_plans(cache: Cache) -> None:
    first, second = run(file(1)), run(file(2))
    assert np.abs(first - second).max() > 0.1
    np.testing.assert_array_equal(run(file(1)), first)
    np.testing.assert_array_equal(run(file(2)), second)


def test_data_that_does_not_match_its_name_is_not_taken_for_it(cache: Cache) -> None:
    """The blob is the same to the bit, the weights it names are not."""
    data = file()
    first = run(data)
    weights = np.random.default_rng(1).standard_normal((10, 3, 3, 6)).astype(np.float32).tobytes()
    at = data.index(weights)
    changed = data[:at] + np.zeros(len(weights) // 4, np.float32).tobytes() + data[at + len(weights) :]
    assert np.abs(run(changed) - first).max() > 0.1


def plan_entry(cache: Cache) -> Path:
    """The plan is the one entry that holds numbers as text."""
    assert cache.folder is not None
    (found,) = [path for path in cache.folder.iterdir() if b'"steps"' in path.read_bytes()]
    return found


@pytest.mark.parametrize("spoil", [lambda d: d[:-1], lambda d: b"", lambda d: d[:60] + bytes([d[60] ^ 1]) + d[61:]])
def test_a_damaged_plan_is_made_again(cache: Cache, spoil: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(file())
    path = plan_entry(cache)
    path.write_bytes(spoil(path.read_bytes()))
    seen = reads(monkeypatch)
    np.testing.assert_array_equal(run(file()), first)
    assert seen
    assert plan_entry(cache).stat().st_size > 100


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f["steps"][0].__setitem__(2, -1),
        lambda f: f["steps"][0].__setitem__(2, 1.5),
        lambda f: f["steps"][0].__setitem__(0, "another"),
        lambda f: f["steps"][0].pop(),
        lambda f: f["sizes"].append(3),
        lambda f: f["edges"][0][0].__setitem__(1, "<nonsense"),
        lambda f: f.pop("symbols"),
        lambda f: f["symbols"].update(dict.fromkeys(f["symbols"], f["code"])),
        lambda f: f.__setitem__("code", -1),
        lambda f: f["steps"][0][1].append("x"),
        lambda f: f["steps"][0][1].append([9, 0, 0]),
        lambda f: f["steps"][0][1].append([0, 1 << 50, 0]),
    ],
)
def test_a_plan_that_is_not_one_is_made_again(cache: Cache, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if its digest is right: some other engine may have written it."""
    import json

    first = run(file())
    key = plan_entry(cache).stem
    payload = cache.get(key)
    assert payload is not None
    start = 8 + int.from_bytes(payload[:8], "little")
    facts = json.loads(payload[8:start])
    change(facts)
    text = json.dumps(facts).encode()
    cache.put(key, len(text).to_bytes(8, "little") + text + payload[start:])
    seen = reads(monkeypatch)
    np.testing.assert_array_equal(run(file()), first)
    assert seen


def test_large_plans_are_not_kept(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "_MAX_WEIGHTS", 100)
    run(file())
    with pytest.raises(ValueError, match="unpack"):
        plan_entry(cache)


def test_running_a_known_file_imports_little(cache: Cache, tmp_path: Path) -> None:
    """Neither torch nor the compiler, nor kernels that nothing calls."""
    (tmp_path / "m.pte").write_bytes(file())
    code = (
        "import sys, numpy as np; from edgewright.runtime import Runtime;"
        f"Runtime(threads=1).load_program({str(tmp_path / 'm.pte')!r}).load_method()"
        ".execute([np.zeros((1, 12, 12, 6), np.float32)]); print(*sys.modules)"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    loaded = set(done.stdout.split())
    unwanted = {
        "torch",
        "llvmlite",
        "logging",
        "importlib.metadata",
        "edgewright.engine.graph.schedule",
        "edgewright.runtime.stock_kernels",
        "edgewright.backends.xnnpack.blob_reader",
        "edgewright.formats.etdump",
    }
    assert loaded & unwanted == set()


@pytest.mark.parametrize("change", ["array", "order", "update"])
def test_graphs_that_differ_have_digests_that_do(change: str) -> None:
    """In the middle of a long array, in how an input lies in memory, or in what becomes of a result."""

    def graph(changed: bool) -> Graph:
        x, out = (Value(n, np.dtype(np.float32), (1, 2, 3, 4), (0, 1, 2, 3)) for n in ("x", "out"))
        table = np.zeros(4096, np.float32)
        if changed and change == "array":
            table[2048] = 1
        if changed and change == "order":
            x.dim_order = (0, 2, 3, 1)
        made = Graph("case", [x], [out], [Op("some", {"self": x, "table": table}, [out])])
        if changed and change == "update":
            made.updates = [(x, out)]
        return made

    assert graph_digest(graph(False)) == graph_digest(graph(False)) != graph_digest(graph(True))
