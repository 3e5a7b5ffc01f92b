"""ctypes structures and constants of the QNN C API on 64-bit machines."""

from __future__ import annotations

import ctypes as c
from typing import Any

UNDEFINED = 0x7FFFFFFF
PACKAGE = b"qti.aisw"

# Kinds of tensors.
APP_WRITE, APP_READ, NATIVE, STATIC, NULL = 0, 1, 3, 4, 5

# Element types, by the names numpy has for plain ones; ``s`` and ``u`` with a number are quantized.
DTYPES = {
    "int8": 0x008, "int16": 0x016, "int32": 0x032, "int64": 0x064, "uint8": 0x108, "uint16": 0x116, "uint32": 0x132,
    "uint64": 0x164, "float16": 0x216, "float32": 0x232, "bool": 0x508, "s8": 0x308, "s16": 0x316, "s32": 0x332,
    "u8": 0x408, "u16": 0x416, "u32": 0x432,
}  # fmt: skip
DTYPE_NAMES = {number: name for name, number in DTYPES.items()}
_SIGNS = {"s": "int", "u": "uint"}

# Encodings: one scale, a scale per slice, and both with fewer bits than the storage type.
SCALE_OFFSET, AXIS, BITS, AXIS_BITS, BLOCKS = 0, 1, 2, 3, 5
DEFINED = 1

# Options of the HTP backend.
SOC = 0
OPTIMIZATION, PRECISION, VTCM_MB = 1, 2, 3
FINALIZE_LEVEL, COMPRESSED, COMPRESSED_WEIGHTS, SYSTEM_CACHE = 3, 4, 5, 7
WEIGHT_SHARING = 1
FP16 = 1
HTP = 6
CUSTOM = 0


def numpy_name(dtype: int) -> str:
    """numpy's name of an element type's storage.

    >>> numpy_name(DTYPES["u16"])
    'uint16'
    """
    name = DTYPE_NAMES[dtype]
    return _SIGNS[name[0]] + name[1:] if name[1:].isdigit() else name


class ScaleOffset(c.Structure):
    _fields_ = (("scale", c.c_float), ("offset", c.c_int32))


class BitsScaleOffset(c.Structure):
    _fields_ = (("bits", c.c_uint32), ("scale", c.c_float), ("offset", c.c_int32))


class AxisScaleOffset(c.Structure):
    _fields_ = (("axis", c.c_int32), ("count", c.c_uint32), ("pairs", c.POINTER(ScaleOffset)))


class AxisBits(c.Structure):
    _fields_ = (
        ("bits", c.c_uint32),
        ("axis", c.c_int32),
        ("count", c.c_uint32),
        ("scales", c.POINTER(c.c_float)),
        ("offsets", c.POINTER(c.c_int32)),
    )


class Blocks(c.Structure):
    """Blockwise 4-bit encoding: a scale per channel and an integer multiplier per block."""

    _fields_ = (
        ("axis", c.c_int32),
        ("pairs", c.POINTER(ScaleOffset)),
        ("count", c.c_uint32),
        ("bits", c.c_uint32),
        ("storage", c.c_uint32),
        ("multiples", c.POINTER(c.c_uint8)),
    )


class Encodings(c.Union):
    _fields_ = (
        ("one", ScaleOffset),
        ("axis", AxisScaleOffset),
        ("bits", BitsScaleOffset),
        ("axis_bits", AxisBits),
        ("record", c.c_void_p),
    )


class QuantizeParams(c.Structure):
    _fields_ = (("definition", c.c_uint32), ("encoding", c.c_uint32), ("value", Encodings))


class ClientBuffer(c.Structure):
    _fields_ = (("data", c.c_void_p), ("size", c.c_uint32))


class Memory(c.Union):
    _fields_ = (("buffer", ClientBuffer), ("handle", c.c_void_p))


_BODY: Any = (
    ("id", c.c_uint32),
    ("name", c.c_char_p),
    ("type", c.c_uint32),
    ("format", c.c_uint32),
    ("dtype", c.c_uint32),
    ("quantization", QuantizeParams),
    ("rank", c.c_uint32),
    ("dims", c.POINTER(c.c_uint32)),
    ("memory_type", c.c_uint32),
    ("memory", Memory),
)


class TensorV1(c.Structure):
    _fields_ = _BODY


class Sparse(c.Structure):
    _fields_ = (("layout", c.c_uint32), ("specified", c.c_uint32), ("dimensions", c.c_uint32))


class TensorV2(c.Structure):
    _fields_ = (*_BODY, ("dynamic", c.POINTER(c.c_uint8)), ("sparse", Sparse), ("produced", c.c_uint8))


class TensorBody(c.Union):
    _fields_ = (("v1", TensorV1), ("v2", TensorV2))


class Tensor(c.Structure):
    """``body.v1`` is valid for both versions: the second only appends fields."""

    _fields_ = (("version", c.c_uint32), ("body", TensorBody))


class ScalarValue(c.Union):
    _fields_ = (("f32", c.c_float), ("u32", c.c_uint32), ("i32", c.c_int32), ("u8", c.c_uint8), ("u64", c.c_uint64))


class Scalar(c.Structure):
    _fields_ = (("dtype", c.c_uint32), ("value", ScalarValue))


class ParamBody(c.Union):
    _fields_ = (("scalar", Scalar), ("tensor", Tensor))


class Param(c.Structure):
    _fields_ = (("kind", c.c_uint32), ("name", c.c_char_p), ("body", ParamBody))


class OpConfigBody(c.Structure):
    _fields_ = (
        ("name", c.c_char_p),
        ("package", c.c_char_p),
        ("type", c.c_char_p),
        ("param_count", c.c_uint32),
        ("params", c.POINTER(Param)),
        ("input_count", c.c_uint32),
        ("inputs", c.POINTER(Tensor)),
        ("output_count", c.c_uint32),
        ("outputs", c.POINTER(Tensor)),
    )


class OpConfig(c.Structure):
    _fields_ = (("version", c.c_uint32), ("body", OpConfigBody))


class Version(c.Structure):
    _fields_ = (("major", c.c_uint32), ("minor", c.c_uint32), ("patch", c.c_uint32))

    def parts(self) -> tuple[int, int, int]:
        return (self.major, self.minor, self.patch)


class Provider(c.Structure):
    """Header of a backend's function table."""

    _fields_ = (("backend", c.c_uint32), ("name", c.c_char_p), ("core", Version), ("api", Version))


class SystemProvider(c.Structure):
    _fields_ = (("backend", c.c_uint32), ("name", c.c_char_p), ("api", Version), ("padding", c.c_uint32))


class Config(c.Structure):
    """An option of a device, a context or a graph. ``keep_alive`` is what ``value`` points to."""

    _fields_ = (("option", c.c_uint32), ("value", c.c_void_p))


class DeviceOption(c.Structure):
    """An HTP device option. Releases read the SoC number at byte 4 or at byte 8, so it is written to both."""

    _fields_ = (("option", c.c_uint32), ("at_4", c.c_uint32), ("at_8", c.c_uint32), ("rest", c.c_uint32 * 5))


class ContextOption(c.Structure):
    """An HTP context option."""

    _fields_ = (("option", c.c_uint32), ("value", c.c_uint64), ("rest", c.c_uint64 * 3))


class OptimizationOption(c.Structure):
    _fields_ = (("type", c.c_uint32), ("value", c.c_float))


class GraphOptions(c.Union):
    _fields_ = (("optimization", OptimizationOption), ("number", c.c_uint32), ("room", c.c_uint64 * 6))


class GraphOption(c.Structure):
    _fields_ = (("option", c.c_uint32), ("value", GraphOptions))


class EventData(c.Structure):
    _fields_ = (("type", c.c_uint32), ("unit", c.c_uint32), ("value", c.c_uint64), ("name", c.c_char_p))


class GraphInfo(c.Structure):
    """A graph of a context, as described by the System library (version 3 and the common part of 1 and 2)."""

    _fields_ = (
        ("version", c.c_uint32),
        ("name", c.c_char_p),
        ("input_count", c.c_uint32),
        ("inputs", c.POINTER(Tensor)),
        ("output_count", c.c_uint32),
        ("outputs", c.POINTER(Tensor)),
        ("updatable_count", c.c_uint32),
        ("updatable", c.POINTER(Tensor)),
        ("blob_size", c.c_uint32),
        ("blob", c.c_void_p),
        ("first", c.c_uint32),
        ("last", c.c_uint32),
    )


class GraphBlob(c.Structure):
    """HTP-specific part (version 1). ``spill``: size of the spill buffer in bytes."""

    _fields_ = (("version", c.c_uint32), ("spill", c.c_uint64), ("vtcm", c.c_uint32), ("level", c.c_uint32))


class BinaryBody(c.Structure):
    _fields_ = (
        ("backend", c.c_uint32),
        ("build", c.c_char_p),
        ("core", Version),
        ("api", Version),
        ("soc", c.c_char_p),
        ("blob_version", Version),
        ("blob_size", c.c_uint64),
        ("tensor_count", c.c_uint32),
        ("tensors", c.POINTER(Tensor)),
        ("graph_count", c.c_uint32),
        ("graphs", c.POINTER(GraphInfo)),
    )


class BinaryInfo(c.Structure):
    _fields_ = (("version", c.c_uint32), ("body", BinaryBody))


SIZES = {
    ScaleOffset: 8, BitsScaleOffset: 12, AxisScaleOffset: 16, AxisBits: 32, Blocks: 40, QuantizeParams: 40,
    ClientBuffer: 16, TensorV1: 112, TensorV2: 136, Tensor: 144, Scalar: 16, Param: 160, OpConfig: 80, Config: 16,
    GraphOption: 56, EventData: 24, Provider: 40, SystemProvider: 32,
}  # fmt: skip
