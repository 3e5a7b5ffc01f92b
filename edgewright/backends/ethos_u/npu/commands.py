"""Table of the NPU command set: opcode, name, and the fields of the 16-bit parameter and the payload.

A command word holds the opcode in bits 0..9, the payload size in 14..15 and the parameter in 16..31. The decoder, the
register file and the disassembler all read this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

FAMILIES = ("u55", "u65", "u85")
_ALL, _U5, _U8 = frozenset(FAMILIES), frozenset(("u55", "u65")), frozenset(("u85",))


class Field(NamedTuple):
    """A bit field of a parameter: ``width`` bits from bit ``low``; ``names`` maps values to symbols."""

    name: str
    low: int
    width: int
    names: Mapping[int, str] = {}

    def of(self, word: int) -> int:
        return (word >> self.low) & ((1 << self.width) - 1)


@dataclass(frozen=True)
class Command:
    """One command. ``payload`` is the type of the 32-bit payload word, if there is one."""

    code: int
    name: str
    parameter_type: str = "number"  # number, signed, fields or nothing
    payload: str = ""  # "", address (40 bits, the high 8 in the parameter), length, scale
    fields: tuple[Field, ...] = ()
    families: frozenset[str] = _ALL

    @property
    def is_operation(self) -> bool:
        return not self.payload and self.code < 0x100


BITS = {0: "8", 1: "16", 2: "32"}
SIGN = {0: "u", 1: "s"}
LAYOUT = {0: "NHWC", 1: "NHCWB16"}
ROUND = {0: "tfl", 1: "truncate", 2: "natural"}
SCALE_MODE = {0: "both16", 1: "a32", 2: "b32"}
UPSCALE = {0: "none", 1: "nearest", 2: "zeros"}
POOLING = {0: "MAX", 1: "AVERAGE", 2: "REDUCE_SUM"}
ELEMENTWISE = {0: "MUL", 1: "ADD", 2: "SUB", 3: "MIN", 4: "MAX", 5: "LRELU", 6: "ABS", 7: "CLZ", 8: "SHR", 9: "SHL"}
CLIP = {0: "ofm", 2: "u8", 3: "s8", 5: "s16"}
_POOLING_U85 = {**POOLING, 3: "SUM", 4: "NONE", 5: "MIN", 6: "ARGMAX_X", 7: "ARGMAX_Y"}
_COMPARE = {16: "CMP_EQ", 17: "CMP_NE", 18: "CMP_GE", 19: "CMP_GT"}
_BITWISE = {33: "AND", 34: "OR", 35: "XOR", 36: "NOT", 42: "AND_NOT"}
_ELEMENTWISE_U85 = {**ELEMENTWISE, 10: "LSR", 11: "DIV", **_COMPARE, **_BITWISE}
_STORAGE = {0: "tiles2x2", 1: "tiles3x1", 2: "chained", 3: "none"}
_TRANSPOSE = {0: "HWC", 1: "WHC", 2: "HCW", 3: "WCH", 6: "CHW", 7: "CWH"}

_IFM_PRECISION = (
    Field("signed", 0, 1, SIGN),
    Field("bits", 2, 2, BITS),
    Field("layout", 6, 2, LAYOUT),
    Field("scale_mode", 8, 2, SCALE_MODE),
    Field("round", 14, 2, ROUND),
)
_OFM_PRECISION = (
    Field("signed", 0, 1, SIGN),
    Field("bits", 1, 2, BITS),
    Field("layout", 6, 2, LAYOUT),
    Field("global_scale", 8, 1),
    Field("round", 14, 2, ROUND),
)
_STRIDE = (
    Field("x", 0, 1),
    Field("y", 1, 1),
    Field("part_kernel", 2, 1),
    Field("dilation_x", 3, 1),
    Field("dilation_y", 4, 1),
    Field("x_high", 6, 3),
    Field("y_high", 9, 3),
)
_BROADCAST = (
    Field("height", 0, 1),
    Field("width", 1, 1),
    Field("depth", 2, 1),
    Field("reversed", 6, 1),
    Field("scalar", 7, 1),
)
_DMA_REGION = (Field("region", 0, 8), Field("internal", 8, 1), Field("dimensions", 9, 2))
_ACTIVATION = (Field("function", 0, 12), Field("clip", 12, 4, CLIP))


# U85 differs in some fields
_IFM_PRECISION_U85 = (*_IFM_PRECISION[:3], Field("storage", 14, 2, _STORAGE))
_OFM_PRECISION_U85 = (
    *_OFM_PRECISION[:4],
    Field("reverse", 9, 2, {0: "none", 1: "H", 2: "W", 3: "C"}),
    Field("transpose", 11, 3, _TRANSPOSE),
    Field("storage", 14, 2, _STORAGE),
)
_BROADCAST_U85 = (*_BROADCAST[:3], Field("scalar", 3, 1))
_ACTIVATION_U85 = (Field("function", 0, 5), Field("table", 5, 3), Field("clip", 12, 4, {0: "16 bits", 1: "none"}))
_DMA_REGION_U85 = (*_DMA_REGION, Field("indexed", 11, 1))
_ACCUMULATOR_U85 = (Field("kind", 0, 2), Field("input", 4, 2), Field("output", 6, 2), Field("microblock", 8, 4))


def _fields(code: int, name: str, fields: tuple[Field, ...], families: frozenset[str] = _ALL) -> Command:
    return Command(code, name, "fields", fields=fields, families=families)


def _numbers(rows: str, parameter_type: str = "number", families: frozenset[str] = _ALL) -> list[Command]:
    pairs = (row.split(":") for row in rows.split())
    return [Command(int(code, 16), name, parameter_type, families=families) for code, name in pairs]


def _payloads(rows: str, payload: str, families: frozenset[str] = _ALL) -> list[Command]:
    pairs = (row.split(":") for row in rows.split())
    return [Command(int(code, 16), name, "number", payload, families=families) for code, name in pairs]


COMMANDS: tuple[Command, ...] = (
    # Operations
    *_numbers("000:STOP 001:IRQ 010:DMA_START 011:DMA_WAIT 012:KERNEL_WAIT 013:PMU_MASK"),
    *_numbers("002:CONV", families=_U5),
    _fields(0x002, "CONV", (Field("weights_in_ifm2", 0, 1),), _U8),
    *_numbers("003:DEPTHWISE"),
    _fields(0x005, "POOL", (Field("mode", 0, 16, POOLING),), _U5),
    _fields(0x005, "POOL", (Field("mode", 0, 16, _POOLING_U85),), _U8),
    _fields(0x006, "ELEMENTWISE", (Field("mode", 0, 16, ELEMENTWISE),), _U5),
    _fields(0x006, "ELEMENTWISE", (Field("mode", 0, 16, _ELEMENTWISE_U85),), _U8),
    _fields(0x007, "RESIZE", (Field("mode", 0, 16, {0: "BILINEAR", 1: "REPLICATE", 2: "NEAREST"}),), _U8),
    # The input feature map
    *_numbers("100:IFM_PAD_TOP 101:IFM_PAD_LEFT 102:IFM_PAD_RIGHT 103:IFM_PAD_BOTTOM 104:IFM_DEPTH_M1"),
    _fields(0x105, "IFM_PRECISION", _IFM_PRECISION, _U5),
    _fields(0x105, "IFM_PRECISION", _IFM_PRECISION_U85, _U8),
    _fields(0x107, "IFM_UPSCALE", (Field("mode", 0, 2, UPSCALE),)),
    _fields(0x108, "IFM_BROADCAST", _BROADCAST_U85, _U8),
    *_numbers("109:IFM_ZERO_POINT", "signed"),
    *_numbers("10A:IFM_WIDTH0_M1 10B:IFM_HEIGHT0_M1 10C:IFM_HEIGHT1_M1 10F:IFM_REGION"),
    *_numbers("10D:IFM_IB_END", families=_U5),
    # The output feature map
    *_numbers("111:OFM_WIDTH_M1 112:OFM_HEIGHT_M1 113:OFM_DEPTH_M1"),
    _fields(0x114, "OFM_PRECISION", _OFM_PRECISION, _U5),
    _fields(0x114, "OFM_PRECISION", _OFM_PRECISION_U85, _U8),
    *_numbers("115:OFM_BLK_WIDTH_M1 116:OFM_BLK_HEIGHT_M1 117:OFM_BLK_DEPTH_M1"),
    *_numbers("118:OFM_ZERO_POINT", "signed"),
    *_numbers("11A:OFM_WIDTH0_M1 11B:OFM_HEIGHT0_M1 11C:OFM_HEIGHT1_M1 11F:OFM_REGION"),
    # Kernel, activation, constants
    *_numbers("120:KERNEL_WIDTH_M1 121:KERNEL_HEIGHT_M1"),
    _fields(0x122, "KERNEL_STRIDE", _STRIDE),
    *_numbers("123:PARALLEL_MODE", families=_U5),
    *_numbers("124:ACC_FORMAT", families=_U5),
    _fields(0x124, "ACC_FORMAT", _ACCUMULATOR_U85, _U8),
    _fields(0x125, "ACTIVATION", _ACTIVATION, _U5),
    _fields(0x125, "ACTIVATION", _ACTIVATION_U85, _U8),
    *_numbers("126:ACTIVATION_MIN 127:ACTIVATION_MAX", "signed"),
    *_numbers("128:WEIGHT_REGION 129:SCALE_REGION 12F:BLOCKDEP"),
    *_numbers("12D:AB_START", families=_U5),
    *_numbers("12A:RESIZE_X_SCALE_N_M1 12B:RESIZE_Y_SCALE_N_M1 12E:WEIGHT_FORMAT", families=_U8),
    *_numbers("12C:RESIZE_X_OFFSET 12D:RESIZE_Y_OFFSET", "signed", _U8),
    # DMA
    _fields(0x130, "DMA0_SRC_REGION", _DMA_REGION, _U5),
    _fields(0x131, "DMA0_DST_REGION", _DMA_REGION, _U5),
    _fields(0x130, "DMA0_SRC_REGION", _DMA_REGION_U85, _U8),
    _fields(0x131, "DMA0_DST_REGION", _DMA_REGION_U85, _U8),
    *_numbers("134:DMA0_IDX_REGION", families=_U8),
    *_numbers("132:DMA0_SIZE0 133:DMA0_SIZE1"),
    # The second input feature map
    _fields(0x180, "IFM2_BROADCAST", _BROADCAST, _U5),
    _fields(0x180, "IFM2_BROADCAST", _BROADCAST_U85, _U8),
    *_numbers("181:IFM2_SCALAR", "signed", _U5),
    _fields(0x185, "IFM2_PRECISION", _IFM_PRECISION, _U5),
    _fields(0x185, "IFM2_PRECISION", _IFM_PRECISION_U85, _U8),
    *_numbers("189:IFM2_ZERO_POINT", "signed"),
    *_numbers("18A:IFM2_WIDTH0_M1 18B:IFM2_HEIGHT0_M1 18C:IFM2_HEIGHT1_M1 18F:IFM2_REGION"),
    *_numbers("18D:IFM2_IB_START", families=_U5),
    # Commands with a payload
    *_payloads("000:IFM_BASE0 001:IFM_BASE1 002:IFM_BASE2 003:IFM_BASE3", "address"),
    *_payloads("004:IFM_STRIDE_X 005:IFM_STRIDE_Y 006:IFM_STRIDE_C", "address"),
    *_payloads("010:OFM_BASE0 011:OFM_BASE1 012:OFM_BASE2 013:OFM_BASE3", "address"),
    *_payloads("014:OFM_STRIDE_X 015:OFM_STRIDE_Y 016:OFM_STRIDE_C", "address"),
    *_payloads("020:WEIGHT_BASE 022:SCALE_BASE 030:DMA0_SRC 031:DMA0_DST", "address"),
    *_payloads("021:WEIGHT_LENGTH 023:SCALE_LENGTH", "length"),
    *_payloads("024:OFM_SCALE", "scale"),
    *_payloads("025:OPA_SCALE 026:OPB_SCALE", "scale", _U5),
    *_payloads("032:DMA0_LEN", "address"),
    *_payloads("033:DMA0_SKIP0 034:DMA0_SKIP1", "address", _U5),
    *_payloads("025:IFM_SCALE 026:IFM2_SCALE", "scale", _U8),
    *_payloads("027:OP_SCALAR 038:DMA0_IDX_MAX 096:RESIZE_X_STEP 097:RESIZE_Y_STEP", "length", _U8),
    *_payloads("033:DMA0_SRC_STRIDE0 034:DMA0_SRC_STRIDE1 035:DMA0_DST_STRIDE0 036:DMA0_DST_STRIDE1", "address", _U8),
    *_payloads("037:DMA0_IDX 039:DMA0_IDX_SKIP1 092:WEIGHT2_BASE 094:WEIGHT3_BASE", "address", _U8),
    *_payloads("093:WEIGHT2_LENGTH 095:WEIGHT3_LENGTH", "length", _U8),
    *_payloads("080:IFM2_BASE0 081:IFM2_BASE1 082:IFM2_BASE2 083:IFM2_BASE3", "address"),
    *_payloads("084:IFM2_STRIDE_X 085:IFM2_STRIDE_Y 086:IFM2_STRIDE_C", "address"),
    *_payloads("090:WEIGHT1_BASE", "address"),
    *_payloads("091:WEIGHT1_LENGTH", "length"),
    *_payloads("092:SCALE1_BASE", "address", _U5),
    *_payloads("093:SCALE1_LENGTH", "length", _U5),
)

_BY_FAMILY = {
    family: {(row.code, bool(row.payload)): row for row in COMMANDS if family in row.families} for family in FAMILIES
}


def find_command(family: str, code: int, payload: bool) -> Command | None:
    """The command with this opcode on a family of NPUs, or None."""
    return _BY_FAMILY[family].get((code, payload))
