"""The delegate on host twins that come from files: checked before they run."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from edgewright.backends.nxp.delegate import NeutronDelegate
from edgewright.errors import EdgewrightError, ExecutionError, FormatError, LimitError
from edgewright.formats.twin_writer import HEAD, write_twin
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.runtime.delegates import DelegateBlob
from tests.backends.nxp.litert import graph, numbers, value

_CONV = {"padding": 1, "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}


def _convolution(**changed: Any) -> Graph:
    wide = np.dtype(np.int32)
    weight = value("w", (2, 3, 3, 3), 0.1, data=np.ones((2, 3, 3, 3), np.int8))
    bias = Value("b", wide, (2,), (0,), np.zeros(2, np.int32), q=QParams(0.05, 0, wide, -(2**31), 2**31 - 1))
    return graph(
        "CONV_2D", [value("x", (1, 6, 6, 3), 0.5), weight, bias], value("y", (1, 4, 4, 2), 1.0), **_CONV | changed
    )


def _delegate(made: Graph, memory: int = 1 << 24) -> NeutronDelegate:
    return NeutronDelegate(DelegateBlob("NeutronBackend", write_twin({"": made}), {}, {}, memory))


def test_a_twin_runs() -> None:
    delegate = _delegate(_convolution())
    (made,) = delegate.execute([np.full((1, 6, 6, 3), 10, np.int8)])
    assert made.shape == (1, 4, 4, 2) and np.all(made == 14)  # 27 * 5 * 0.1 = 13.5
    assert delegate.input_count == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"stride_h": 0}, {"stride_w": -1}, {"dilation_h": 9}, {"dilation_w": 0}, {"stride_h": 2.0}, 
        {"stride_h": 2**40}, {"stride_w": None}, {"stride_w": [1]},
    ],
)  # fmt: skip
def test_windows_outside_their_image_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        _delegate(_convolution(**changed))


def test_memory_is_limited() -> None:
    with pytest.raises(LimitError):
        _delegate(_convolution(), memory=1000)


def test_other_operators_and_operands_are_refused() -> None:
    x, y = value("x", (2, 2), 1.0), value("y", (2, 2), 1.0)
    for made in (
        graph("NOTHING", [x], y),
        graph("RELU", [x, x], y),
        graph("RELU", [], y),
        graph("PADV2", [x, numbers([[0, 1 << 30], [0, 0]]), value("v", (1,), 1.0, data=np.zeros(1, np.int8))], y),
        graph("RESHAPE", [x, x], y, new_shape=[2, 2]),
        graph("ADD", [x, value("z", (5, 2), 1.0)], y),
        graph("RELU", [value("x", (2, 2), 0.0)], y),
        graph("RESIZE_BILINEAR", [value("x", (1, 0, 2, 2), 1.0), numbers([4, 4])], value("y", (1, 4, 4, 2), 1.0),
              align_corners=False, half_pixel_centers=True),
    ):  # fmt: skip
        with pytest.raises(FormatError):
            _delegate(made)
    with pytest.raises(FormatError):
        _delegate(Graph("plain", [x], [y], [Op("relu", {"self": x}, [y])]))


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_graphs_that_give_other_shapes_are_errors(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_ENGINE", engine)
    x, y = value("x", (2, 2), 1.0), value("y", (4,), 1.0)
    with pytest.raises(FormatError, match=r"RESHAPE.inputs\[1\]: must have 4 elements; got \(5,\)"):
        _delegate(graph("RESHAPE", [x, numbers([5])], y, new_shape=[5]))


def test_inputs_are_checked() -> None:
    delegate = _delegate(_convolution())
    for inputs in ([], [np.zeros((1, 6, 6, 3), np.float32)], [np.zeros((1, 6, 6, 4), np.int8)]):
        with pytest.raises(ExecutionError):
            delegate.execute(inputs)


def test_changed_headers_are_typed_errors_or_run() -> None:
    """Every number of the graph's description, at extremes."""
    data = write_twin({"": _convolution()})
    length = HEAD.unpack_from(data)[2]
    header = json.loads(data[HEAD.size : HEAD.size + length])
    tried = 0
    for path in _numbers(header["graphs"], ("graphs",)):
        for extreme in (0, -1, 2**31 - 1, 2**40, 1e300):
            changed = json.loads(json.dumps(header))
            at = changed
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = extreme
            tried += 1
            try:
                _run(changed, data[HEAD.size + length :], data)
            except EdgewrightError:
                continue
    assert tried > 100


def _run(header: Any, rest: bytes, data: bytes) -> None:
    raw = json.dumps(header, separators=(",", ":")).encode()
    magic, version, length = HEAD.unpack_from(data)
    old = -(HEAD.size + length) % 16
    blob = HEAD.pack(magic, version, len(raw)) + raw + bytes(-(HEAD.size + len(raw)) % 16) + rest[old:]
    NeutronDelegate(DelegateBlob("NeutronBackend", blob, {}, {}, 1 << 24)).execute([np.zeros((1, 6, 6, 3), np.int8)])


def _numbers(tree: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    if isinstance(tree, dict):
        return [p for key, item in tree.items() for p in _numbers(item, (*path, key))]
    if isinstance(tree, list):
        return [p for i, item in enumerate(tree) for p in _numbers(item, (*path, i))]
    return [path] if isinstance(tree, int | float) else []
