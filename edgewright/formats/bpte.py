"""Reader and writer of ``.bpte`` files: a program bundled with test inputs and expected outputs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union, overload

import numpy as np

from edgewright.errors import FormatError, UsageError, VersionError
from edgewright.files import Source, open_source, write_file
from edgewright.formats.checked_int import tensor_bytes
from edgewright.formats.flatbuffer import I8, I32, STRING, U8, U32, Buffer, Bytes, UnionTable, Vector, slot, table
from edgewright.formats.flatbuffer_reader import read_root
from edgewright.formats.flatbuffer_writer import FlatWriter
from edgewright.formats.schema import MAX_RANK, Bool, Double, Int
from edgewright.ir.dtypes import ScalarType, to_numpy, to_scalar_type

IDENTIFIER = b"BP08"
VERSION = 2

Array = np.ndarray[Any, Any]
Data = Union[Array, int, bool, float]


@table
class BundledTensor:
    scalar_type: int = slot(0, I8, default=0, lo=0, hi=max(ScalarType), enum=True)
    sizes: Sequence[int] = slot(1, Vector(I32, MAX_RANK), required=True, lo=0)
    data: Buffer = slot(2, Bytes(align=16), required=True)
    dim_order: Sequence[int] = slot(3, Vector(U8, MAX_RANK), required=True, hi=MAX_RANK - 1)


BUNDLED_VALUE = UnionTable("Value", (BundledTensor, Int, Bool, Double))


@table
class BundledMethodTestCase:
    inputs: list[Any] | None = slot(0, Vector(BUNDLED_VALUE), default=None)
    expected_outputs: list[Any] | None = slot(1, Vector(BUNDLED_VALUE), default=None)


@table
class BundledMethodTestSuite:
    method_name: str = slot(0, STRING, required=True)
    test_cases: list[BundledMethodTestCase] | None = slot(1, Vector(BundledMethodTestCase), default=None)


@table
class BundledProgramTable:
    version: int = slot(0, U32, default=0)
    method_test_suites: list[BundledMethodTestSuite] | None = slot(1, Vector(BundledMethodTestSuite), default=None)
    program: Buffer = slot(2, Bytes(align=32), required=True)


@dataclass(frozen=True)
class TestCase:
    """Inputs of one call and its expected outputs (empty: not checked)."""

    __test__ = False  # not a test of ours

    inputs: Sequence[Data]
    expected: Sequence[Data] = ()


@dataclass(frozen=True)
class BundledProgram:
    """A ``.pte`` and its test cases by method name."""

    program: Buffer
    suites: Mapping[str, Sequence[TestCase]] = field(default_factory=dict)


def is_bundled(view: memoryview) -> bool:
    """Whether a file is a ``.bpte``, by its identifier."""
    return bytes(view[4:8]) == IDENTIFIER


def read_bundled(source: Source) -> BundledProgram:
    """Read and verify a ``.bpte``; the program inside is checked when it is loaded."""
    view, name = open_source(source, "bundled program")
    try:
        if not is_bundled(view):
            raise FormatError("a .bpte file has the identifier 'BP08' at byte 4", value=bytes(view[4:8]), offset=4)
        root = read_root(BundledProgramTable, view)
        if root.version != VERSION:
            raise VersionError(f"this release reads bundle version {VERSION}", where="version", value=root.version)
        return BundledProgram(root.program, _suites(root))
    except FormatError as error:
        error.file = name
        raise


def _suites(root: BundledProgramTable) -> dict[str, list[TestCase]]:
    suites: dict[str, list[TestCase]] = {}
    for index, suite in enumerate(root.method_test_suites or ()):
        where = f"method_test_suites[{index}]"
        if suite.method_name in suites:
            raise FormatError("method names must differ", where=f"{where}.method_name", value=suite.method_name)
        cases = suites[suite.method_name] = []
        for position, case in enumerate(suite.test_cases or ()):
            try:
                inputs = [_value(v, f"inputs[{i}]") for i, v in enumerate(case.inputs or ())]
                expected = [_value(v, f"expected_outputs[{i}]") for i, v in enumerate(case.expected_outputs or ())]
            except FormatError as error:
                raise error.inside(f"{where}.test_cases[{position}]") from None
            cases.append(TestCase(inputs, expected))
    return suites


def _value(value: Any, where: str) -> Data:
    if isinstance(value, Int):
        return value.int_val
    if isinstance(value, Bool):
        return value.bool_val
    if isinstance(value, Double):
        return value.double_val
    order = tuple(value.dim_order)
    if sorted(order) != list(range(len(value.sizes))):
        raise FormatError("must be an order of the dimensions", where=f"{where}.dim_order", value=order)
    try:
        size = tensor_bytes(value.scalar_type, value.sizes)
    except FormatError as error:
        raise error.inside(where) from None
    if size != len(value.data):
        raise FormatError(f"must hold the tensor's {size} bytes", where=f"{where}.data", value=len(value.data))
    stored = np.frombuffer(value.data, to_numpy(value.scalar_type)).reshape([value.sizes[d] for d in order])
    return stored.transpose(np.argsort(order)) if order else stored


@overload
def write_bundled(bundle: BundledProgram, path: None = None) -> bytes: ...
@overload
def write_bundled(bundle: BundledProgram, path: str | os.PathLike[str]) -> int: ...
def write_bundled(bundle: BundledProgram, path: str | os.PathLike[str] | None = None) -> bytes | int:
    """Serialize a ``.bpte``; with ``path``, write it there and return its size."""
    suites = [
        BundledMethodTestSuite(
            method_name=name,
            test_cases=[
                BundledMethodTestCase(
                    inputs=[_record(v) for v in case.inputs], expected_outputs=[_record(v) for v in case.expected]
                )
                for case in cases
            ],
        )
        for name, cases in bundle.suites.items()
    ]
    root = BundledProgramTable(version=VERSION, method_test_suites=suites, program=bundle.program)
    data = FlatWriter().finish(root, IDENTIFIER)
    return data if path is None else write_file(path, [data])


def _record(value: Data) -> Any:
    if isinstance(value, bool):
        return Bool(bool_val=value)
    if isinstance(value, int):
        return Int(int_val=value)
    if isinstance(value, float):
        return Double(double_val=value)
    if isinstance(value, np.ndarray):
        return BundledTensor(
            scalar_type=int(to_scalar_type(value.dtype)),
            sizes=value.shape,
            data=np.ascontiguousarray(value).tobytes(),
            dim_order=tuple(range(value.ndim)),
        )
    raise UsageError("test case", "holds arrays, integers, bools and floats", value=type(value).__name__)
