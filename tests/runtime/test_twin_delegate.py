"""Plans of host twins kept between processes: used if nothing changed, made again if anything did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.backends.nxp.delegate import NeutronDelegate
from edgewright.backends.nxp.dialect import DIALECT
from edgewright.backends.nxp.target import ROUNDING
from edgewright.backends.qualcomm.delegate import QnnDelegate
from edgewright.backends.qualcomm.twin import QnnTwinRunner
from edgewright.backends.samsung.delegate import EnnDelegate
from edgewright.engine.jit import plan_cache
from edgewright.engine.jit.cache import Cache, default_cache
from edgewright.errors import EdgewrightError, ExecutionError, FormatError, MissingTwinError
from edgewright.formats import twin_reader
from edgewright.formats.twin_writer import write_twin
from edgewright.ir.graph import Graph, Op
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twin_delegate import HostTwin, Twins, find_twin
from tests.backends.nxp.dialect.test_to_core import convolution
from tests.backends.qualcomm.dialect.test_gather import rows as rows_read
from tests.engine.vendors import anything


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path / "cache"))
    return default_cache()


def graph(bias: int = 0) -> Graph:
    made = convolution(5, 3, 1, 1, False, 1, (0.05, 7))
    held = made.ops[-1].args["inputs"][2]
    held.data = (held.data + bias).astype(np.int32)
    return made


def blob(made: Graph, **options: Any) -> DelegateBlob:
    """A program for this machine only: the twin itself."""
    return DelegateBlob("NeutronBackend", write_twin({"": made}), {}, {}, threads=1, **options)


X = anything(graph().inputs[0])


def run(given: DelegateBlob) -> Any:
    return NeutronDelegate(given).execute([X])[0]


def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever a twin is read."""
    seen: list[int] = []
    original = twin_reader.read_twin

    def read(*args: Any) -> Any:
        seen.append(1)
        return original(*args)

    monkeypatch.setattr(twin_reader, "read_twin", read)
    return seen


def test_a_twin_seen_before_is_not_read_again(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(blob(graph()))
    seen = reads(monkeypatch)
    np.testing.assert_array_equal(run(blob(graph())), first)
    assert not seen
    run(blob(graph(), memory=1 << 30))
    assert seen, "what other memory allows is asked again"


def test_other_constants_are_other_plans(cache: Cache) -> None:
    first, second = run(blob(graph())), run(blob(graph(900)))
    assert (first != second).any()
    np.testing.assert_array_equal(run(blob(graph())), first)


def test_the_other_rounding_is_another_plan(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    run(blob(graph()))
    seen = reads(monkeypatch)
    given = blob(graph())
    NeutronDelegate(DelegateBlob("NeutronBackend", given.blob, {ROUNDING: b"xnnpack"}, {}, threads=1))
    NeutronDelegate(DelegateBlob("NeutronBackend", given.blob, {ROUNDING: b"xnnpack"}, {}, threads=1))
    assert len(seen) == 1, "read once for the other rounding"


def test_what_is_not_in_order_is_made_again(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(blob(graph()))
    seen = reads(monkeypatch)
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file() and path.stat().st_size > 500:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0x55
            path.write_bytes(data)
    np.testing.assert_array_equal(run(blob(graph())), first)
    assert seen


def test_what_is_refused_is_refused_every_time(cache: Cache) -> None:
    made = graph()
    made.ops[-1] = Op(made.ops[-1].kind, {**made.ops[-1].args, "stride_h": 0}, made.ops[-1].outputs)
    for _ in range(2):
        with pytest.raises(EdgewrightError):
            run(blob(made))


def test_inputs_are_checked_without_the_graph(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    run(blob(graph()))
    seen = reads(monkeypatch)
    for _ in range(2):
        delegate = NeutronDelegate(blob(graph()))
        assert delegate.input_count == 1
        with pytest.raises(EdgewrightError, match=r"must be \[2, 9, 10, 6\] of int8"):
            delegate.execute([X[:1]])
        with pytest.raises(EdgewrightError, match="takes 1 inputs"):
            delegate.execute([X, X])
    assert not seen


def test_indices_are_checked_without_the_graph(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    made = rows_read("uint8")
    given = DelegateBlob("QnnBackend", write_twin({"": made}), {}, {}, threads=1)
    table, places = anything(made.inputs[0]), np.array([[0, 5, 1], [2, 6, 0]], np.int32)
    for _ in range(2):
        with pytest.raises(ExecutionError, match="'y': indices must be from 0 to 5; got 6"):
            QnnDelegate(given).execute([table, places])
        seen = reads(monkeypatch)
    QnnDelegate(given).execute([table, places % 6])
    assert not seen


def test_a_twin_beside_its_program_is_known_by_all_its_bytes(cache: Cache, tmp_path: Path) -> None:
    """Another graph in the same file, and the plan is another."""
    digests = set()
    for bias in (0, 1):
        path = tmp_path / "m.twin"
        path.write_bytes(write_twin({"ab": graph(bias)}))
        digests.add(Twins({}, path, 1 << 30).digest)
    assert len(digests) == 2 and "" not in digests
    assert Twins({}, None, 1 << 30).digest == ""


def test_a_blob_without_a_twin_says_so(cache: Cache) -> None:
    for digest, rule in (("", "has no host twin"), ("digest", "in the host twin that was found, which is another")):
        given = DelegateBlob("NeutronBackend", b"blob", {}, {}, twins_digest=lambda digest=digest: digest)
        with pytest.raises(MissingTwinError, match=rule):
            find_twin(given, "Neutron", "why").graph  # noqa: B018


def test_twins_without_a_digest_are_not_kept(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    monkeypatch.setattr(plan_cache, "save_compiled", lambda *args: saved.append(1))
    made = graph()
    HostTwin("", lambda: made).runner(DIALECT, 1 << 30, 1)
    assert not saved


def test_other_backends_reject_what_is_not_their_own(cache: Cache) -> None:
    """A checked graph of another vendor is none of theirs, stored or not."""
    run(blob(graph()))
    with pytest.raises((FormatError, EdgewrightError)):
        EnnDelegate(DelegateBlob("EnnBackend", blob(graph()).blob, {}, {}))
    with pytest.raises((FormatError, EdgewrightError)):
        QnnTwinRunner(graph(), 1 << 30)
