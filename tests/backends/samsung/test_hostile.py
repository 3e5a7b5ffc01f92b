"""Files of others: a host twin that was tampered with is an error of ours, never a crash or a wrong allocation."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from edgewright.backends.samsung.delegate import EnnDelegate
from edgewright.errors import EdgewrightError, FormatError, LimitError
from edgewright.formats.twin_writer import HEAD, write_twin
from edgewright.runtime.delegates import DelegateBlob
from tests.backends.samsung.networks import device_graphs, mixed, quantized

MEMORY = 1 << 26


@pytest.fixture(scope="module")
def twins() -> list[bytes]:
    model, inputs = mixed()
    graphs = [*device_graphs(model, inputs), *device_graphs(quantized(model, inputs, "A8W8"), inputs)]
    return [write_twin({"": graph}) for graph in graphs]


def attempt(blob: bytes) -> bool:
    """Load and run; True if it ran, and an error of ours if not."""
    try:
        delegate = EnnDelegate(DelegateBlob("EnnBackend", blob, {}, {}, MEMORY))
        delegate.execute([np.zeros((1, 3, 16, 16), np.float32)] * delegate.input_count)
    except EdgewrightError:
        return False
    return True


def changed(twin: bytes, change: Any) -> bytes:
    magic, version, size = HEAD.unpack_from(twin)
    header = json.loads(twin[HEAD.size : HEAD.size + size])
    change(next(iter(header["graphs"].values())))
    raw = json.dumps(header, separators=(",", ":")).encode()
    start, old = HEAD.size + len(raw), HEAD.size + size
    return HEAD.pack(magic, version, len(raw)) + raw + bytes(-start % 16) + twin[old + -old % 16 :]


def test_a_twin_as_it_was_written_runs(twins: list[bytes]) -> None:
    assert all(attempt(twin) and attempt(changed(twin, lambda graph: None)) for twin in twins)


def test_truncated_twins_are_refused(twins: list[bytes]) -> None:
    for size in range(0, len(twins[0]), 97):
        assert not attempt(twins[0][:size])


def test_every_number_of_every_operator_at_its_extremes(twins: list[bytes]) -> None:
    wild = (-1, 0, 1 << 31, 1 << 62, -(1 << 62), 1.5, float(1 << 40), None, "x", [], True, {"float": "nan"})
    ran = 0
    for twin in twins:
        *_, size = HEAD.unpack_from(twin)
        ops = next(iter(json.loads(twin[HEAD.size : HEAD.size + size])["graphs"].values()))["ops"]
        rng = random.Random(0)
        for index, op in enumerate(ops):
            for name, given in op["args"].items():
                for value in rng.sample(wild, 4):
                    spoiled = [value, *given[1:]] if isinstance(given, list) and name != "inputs" else value

                    def change(graph: Any, i: int = index, n: str = name, v: Any = spoiled) -> None:
                        graph["ops"][i]["args"][n] = v

                    ran += attempt(changed(twin, change))
    assert ran > 0  # some values change nothing that counts


def test_every_shape_and_scale_at_its_extremes(twins: list[bytes]) -> None:
    twin = twins[1]
    *_, size = HEAD.unpack_from(twin)
    values = next(iter(json.loads(twin[HEAD.size : HEAD.size + size])["graphs"].values()))["values"]
    for index, value in enumerate(values):
        for shape in ([], [1 << 31], [1 << 20, 1 << 20, 1 << 20], [0], [-1], [*value["shape"], 1]):

            def change(graph: Any, i: int = index, s: Any = shape) -> None:
                graph["values"][i]["shape"] = s

            assert shape == value["shape"] or not attempt(changed(twin, change))
        for scale, zero in ((0.0, 0), (-1.0, 0), (1e300, 0), (1.0, 1 << 20), ([1.0, 2.0], [0, 0]), (1.0, [0])):
            if "q" in value:

                def rescale(graph: Any, i: int = index, s: Any = scale, z: Any = zero) -> None:
                    graph["values"][i]["q"].update(scale=s, zero_point=z)

                assert not attempt(changed(twin, rescale))


def test_operators_of_others_are_refused(twins: list[bytes]) -> None:
    for kind in ("enn.SYSTEM", "conv2d", "tflite.ADD", ""):

        def change(graph: Any, k: str = kind) -> None:
            graph["ops"][0]["kind"] = k

        with pytest.raises(FormatError, match="must be an operator of ENN"):
            EnnDelegate(DelegateBlob("EnnBackend", changed(twins[0], change), {}, {}, MEMORY))


def test_what_cannot_be_afforded_is_refused_before_it_is_made(twins: list[bytes]) -> None:
    with pytest.raises(LimitError):
        EnnDelegate(DelegateBlob("EnnBackend", twins[0], {}, {}, 20_000))
