"""Scalar types: ExecuTorch's numbers, numpy's dtypes, and torch's promotion rules between them."""

from __future__ import annotations

import enum
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from edgewright.errors import UsageError
from edgewright.hints import not_among

DType = np.dtype[Any]


class ScalarType(enum.IntEnum):
    """The numbers a ``.pte`` uses for element types (those of torch)."""

    UINT8 = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    FLOAT16 = 5
    FLOAT32 = 6
    FLOAT64 = 7
    COMPLEX32 = 8
    COMPLEX64 = 9
    COMPLEX128 = 10
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    QUINT4X2 = 16
    QUINT2X4 = 17
    BITS1X8 = 18
    BITS2X4 = 19
    BITS4X2 = 20
    BITS8 = 21
    BITS16 = 22
    FLOAT8_E5M2 = 23
    FLOAT8_E4M3FN = 24
    FLOAT8_E5M2FNUZ = 25
    FLOAT8_E4M3FNUZ = 26
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29


bfloat16: DType = np.dtype(ml_dtypes.bfloat16)

# numpy has no half-precision complex type: a pair of float16 has its size and bits.
_COMPLEX32: DType = np.dtype([("re", np.float16), ("im", np.float16)])

_NUMPY: dict[ScalarType, DType] = {
    ScalarType.UINT8: np.dtype(np.uint8),
    ScalarType.INT8: np.dtype(np.int8),
    ScalarType.INT16: np.dtype(np.int16),
    ScalarType.INT32: np.dtype(np.int32),
    ScalarType.INT64: np.dtype(np.int64),
    ScalarType.FLOAT16: np.dtype(np.float16),
    ScalarType.FLOAT32: np.dtype(np.float32),
    ScalarType.FLOAT64: np.dtype(np.float64),
    ScalarType.COMPLEX32: _COMPLEX32,
    ScalarType.COMPLEX64: np.dtype(np.complex64),
    ScalarType.COMPLEX128: np.dtype(np.complex128),
    ScalarType.BOOL: np.dtype(np.bool_),
    ScalarType.QINT8: np.dtype(np.int8),
    ScalarType.QUINT8: np.dtype(np.uint8),
    ScalarType.QINT32: np.dtype(np.int32),
    ScalarType.BFLOAT16: bfloat16,
    ScalarType.QUINT4X2: np.dtype(np.uint8),
    ScalarType.QUINT2X4: np.dtype(np.uint8),
    ScalarType.BITS1X8: np.dtype(np.uint8),
    ScalarType.BITS2X4: np.dtype(np.uint8),
    ScalarType.BITS4X2: np.dtype(np.uint8),
    ScalarType.BITS8: np.dtype(np.uint8),
    ScalarType.BITS16: np.dtype(np.uint16),
    ScalarType.FLOAT8_E5M2: np.dtype(ml_dtypes.float8_e5m2),
    ScalarType.FLOAT8_E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    ScalarType.FLOAT8_E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    ScalarType.FLOAT8_E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    ScalarType.UINT16: np.dtype(np.uint16),
    ScalarType.UINT32: np.dtype(np.uint32),
    ScalarType.UINT64: np.dtype(np.uint64),
}
_SCALAR: dict[DType, ScalarType] = {}
for _number, _dtype in _NUMPY.items():
    _SCALAR.setdefault(_dtype, _number)
_SCALAR[np.dtype(np.uint16)] = ScalarType.UINT16  # not BITS16, an older name that ExecuTorch has no tensors of

ITEMSIZE: dict[int, int] = {int(number): dtype.itemsize for number, dtype in _NUMPY.items()}


def to_numpy(scalar_type: int) -> DType:
    """The numpy dtype that holds elements of ``scalar_type``.

    >>> to_numpy(6)
    dtype('float32')
    """
    try:
        return _NUMPY[ScalarType(scalar_type)]
    except ValueError:
        raise UsageError("scalar type", "must be a number of ScalarType", value=scalar_type) from None


def to_scalar_type(dtype: Any) -> ScalarType:
    """The ``.pte`` number of a numpy dtype.

    >>> to_scalar_type(np.float32).name
    'FLOAT32'
    """
    key = np.dtype(dtype)
    try:
        return _SCALAR[key]
    except KeyError:
        raise not_among("dtype", str(key), sorted({str(d) for d in _SCALAR})) from None


def dtype_name(dtype: DType) -> str:
    """The common name of a dtype; numpy has none for complex32."""
    return "complex32" if dtype == _COMPLEX32 else str(dtype)


def parse_dtype(name: str) -> DType:
    """The inverse of ``dtype_name``.

    >>> parse_dtype("complex32").itemsize
    4
    """
    return _COMPLEX32 if name == "complex32" else np.dtype(name)


def is_floating(dtype: DType) -> bool:
    """True for every real floating type, the 8- and 16-bit ones of ml_dtypes included."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.names is None)


def is_complex(dtype: DType) -> bool:
    return dtype.kind == "c" or dtype == _COMPLEX32


def is_integral(dtype: DType) -> bool:
    """True for integers and bool."""
    return dtype.kind in "iub"


def compute_type(dtype: DType) -> DType:
    """The type arithmetic happens in: 8- and 16-bit floats are computed in float32, as on every device."""
    if is_floating(dtype) and dtype.itemsize < 4:
        return np.dtype(np.float32)
    return dtype


def complex_dtype(dtype: DType) -> DType:
    """The complex type whose parts are as wide as ``dtype``; that of integers and bfloat16 is complex64."""
    if dtype == np.dtype(np.float16):
        return _COMPLEX32
    return np.dtype(np.complex128 if dtype == np.dtype(np.float64) else np.complex64)


@cache
def _promote_pair(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if is_complex(a) or is_complex(b):
        a, b = (complex_dtype(t) if is_floating(t) else t for t in (a, b))
        if not (is_complex(a) and is_complex(b)):
            return a if is_complex(a) else b
        return a if a.itemsize > b.itemsize else b
    if is_floating(a) and is_floating(b):
        if a.itemsize == b.itemsize:  # float16 with bfloat16, or two kinds of float8
            return np.dtype(np.float32)
        return a if a.itemsize > b.itemsize else b
    if is_floating(a) or is_floating(b):
        return a if is_floating(a) else b
    return np.promote_types(a, b)


def promote(*dtypes: Any) -> DType:
    """torch's result type of tensors of these dtypes (an integer never widens a float).

    >>> promote(np.int64, np.float16)
    dtype('float16')
    """
    result = np.dtype(dtypes[0])
    for dtype in dtypes[1:]:
        result = _promote_pair(result, np.dtype(dtype))
    return result


def promote_scalar(dtype: DType, number: bool | int | float | complex) -> DType:
    """torch's result type of a tensor and a Python number: only a higher *kind* of number widens.

    >>> promote_scalar(np.dtype(np.int8), 2.5)
    dtype('float32')
    """
    if isinstance(number, bool) or is_complex(dtype):
        return dtype
    if isinstance(number, int):
        return np.dtype(np.int64) if dtype.kind == "b" else dtype
    if isinstance(number, float):
        return np.dtype(np.float32) if is_integral(dtype) else dtype
    return complex_dtype(dtype)
