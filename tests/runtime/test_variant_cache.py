"""Shape specializations kept between processes: used if the file is the same, made again if anything changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack import delegate
from edgewright.engine.jit.cache import Cache, default_cache
from edgewright.errors import ExecutionError
from edgewright.runtime import Runtime
from edgewright.runtime.method import Method
from edgewright.runtime.variant_cache import file_digest
from tests.llm.tiny_model import tiny_model_bytes

CALLS: list[list[Any]] = [
    [np.array([[5, 6, 7]]), np.array([0])], [np.array([[8]]), np.array([3])], [np.array([[9]]), np.array([4])]
]  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path / "cache"))
    return default_cache()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.pte"
    path.write_bytes(tiny_model_bytes())
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever a blob is read."""
    seen: list[int] = []
    original = delegate.XnnpackDelegate._graph.func  # type: ignore[attr-defined]

    def graph(self: Any) -> Any:
        if "graph" not in self.__dict__:
            seen.append(1)
            self.__dict__["graph"] = original(self)
        return self.__dict__["graph"]

    monkeypatch.setattr(delegate.XnnpackDelegate, "_graph", property(graph))
    return seen


def load(path: Path, threads: int = 1) -> Method:
    return Runtime(threads=threads).load_program(path).load_method()


def run(method: Method) -> list[np.ndarray]:
    return [method.execute(call)[0] for call in CALLS]


def test_a_file_seen_before_is_not_parsed(cache: Cache, path: Path, reads: list[int]) -> None:
    first = run(load(path))
    assert reads
    reads.clear()
    method = load(path)
    np.testing.assert_array_equal(run(method), first)
    assert not reads
    method.reset()
    np.testing.assert_array_equal(run(method), first)
    method.close()
    assert not reads


def test_shapes_that_are_new_are_compiled_and_kept(cache: Cache, path: Path, reads: list[int]) -> None:
    expected = run(load(path))
    longer: list[Any] = [np.array([[5, 6, 7, 8, 9]]), np.array([0])]
    reads.clear()
    last = load(path).execute(longer)[0]
    np.testing.assert_allclose(last, expected[-1], 1e-5, 1e-6)
    assert reads
    reads.clear()
    np.testing.assert_array_equal(load(path).execute(longer)[0], last)
    assert not reads


def test_calls_that_the_graph_does_not_serve_load_the_delegates(cache: Cache, path: Path, reads: list[int]) -> None:
    run(load(path))
    reads.clear()
    method = load(path)
    with pytest.raises(ExecutionError, match="context"):
        method.execute([np.array([[5]]), np.array([96])])
    assert reads


def test_other_files_and_threads_have_others(cache: Cache, path: Path, reads: list[int]) -> None:
    first = run(load(path))
    reads.clear()
    run(load(path, threads=2))
    assert reads
    data = bytearray(path.read_bytes())
    status = os.stat(path)
    at = data.rindex(np.float32(1).tobytes() * 8)  # weights of a norm
    data[at : at + 4] = np.float32(3).tobytes()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    reads.clear()
    changed = run(load(path))
    assert reads
    assert not np.array_equal(changed, first)


def test_files_are_known_by_their_contents(cache: Cache, path: Path, tmp_path: Path) -> None:
    digest = file_digest(path)
    assert digest is not None
    assert file_digest(path) == digest
    copy = tmp_path / "copy.pte"
    copy.write_bytes(path.read_bytes())
    assert file_digest(str(copy)) == digest
    copy.write_bytes(path.read_bytes() + b"\0")
    assert file_digest(copy) != digest
    assert file_digest(tmp_path / "none.pte") is None
    assert file_digest(path.read_bytes()) is None


def test_without_a_cache_everything_is_compiled(monkeypatch: pytest.MonkeyPatch, path: Path, reads: list[int]) -> None:
    monkeypatch.setenv("EDGEWRIGHT_CACHE", "off")
    first = run(load(path))
    reads.clear()
    np.testing.assert_array_equal(run(load(path)), first)
    assert reads
