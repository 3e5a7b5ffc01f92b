"""TFLite files: written as the schema says, the same every time, and read with every number checked."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from edgewright.backends.nxp.dialect.table import TFLITE
from edgewright.backends.nxp.tables import OPTIONS
from edgewright.backends.nxp.tflite_file import read_tflite, write_tflite
from edgewright.errors import EdgewrightError, FormatError
from tests.backends.nxp.litert import graph, numbers, value


def _file() -> bytes:
    x, y = value("x", (1, 2, 2, 3), 0.5, 4), value("y", (1, 2, 3), 0.5, 4)
    return write_tflite(graph("RESHAPE", [x, numbers([1, 2, 3, 2])], y, new_shape=[1, 2, 3, 2]))


def test_codes_and_options_are_those_of_the_schema() -> None:
    for name, row in TFLITE.items():
        assert getattr(schema.BuiltinOperator, name) == row.code
    for number, cls in OPTIONS.items():
        assert getattr(schema.BuiltinOptions, cls.__name__) == number


def test_the_schema_reads_what_is_written() -> None:
    model = schema.ModelT.InitFromPackedBuf(_file(), 0)
    (subgraph,) = model.subgraphs
    x = subgraph.tensors[subgraph.inputs[0]]
    assert (model.version, x.name, x.shape.tolist(), x.type) == (3, b"x", [1, 2, 2, 3], schema.TensorType.INT8)
    assert (x.quantization.scale.tolist(), x.quantization.zeroPoint.tolist()) == ([0.5], [4])
    assert model.buffers[0].data is None
    assert subgraph.operators[0].builtinOptions.newShape.tolist() == [1, 2, 3, 2]
    assert model.operatorCodes[0].version == 1


def test_round_trip_and_same_bytes() -> None:
    data = _file()
    model = read_tflite(data)
    assert data == _file()
    assert model.subgraphs is not None and model.buffers is not None
    shape = bytes(model.buffers[1].data)
    assert np.frombuffer(shape, np.int32).tolist() == [1, 2, 3, 2]


def test_every_truncation_is_a_typed_error() -> None:
    data = _file()
    for end in range(len(data) - 1):
        with pytest.raises(EdgewrightError):
            read_tflite(data[:end])


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\x10\0\0\0XXXX" + b"\0" * 32])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="TFLite"):
        read_tflite(data)


def test_changed_bytes_give_a_typed_error_or_a_model() -> None:
    data = _file()
    for at in range(8, len(data)):
        for byte in (0, 0x7F, 0xFF):
            try:
                read_tflite(data[:at] + bytes([byte]) + data[at + 1 :])
            except EdgewrightError:
                continue
