"""Builds one graph in a context: tensors, nodes, and the compiler's run over them."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.capture import capture_streams
from edgewright.backends.qualcomm.qnn import structs as s
from edgewright.backends.qualcomm.qnn.session import Context, custom, option_list
from edgewright.errors import VendorError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Encoding:
    """How a tensor is quantized: ``real = scale * (stored + offset)``, per slice along ``axis`` if there is one.
    ``bits``: fewer than are stored, or 0. ``multiples``: of a slice's scale, for each of its blocks, slice by slice."""

    scales: tuple[float, ...]
    offsets: tuple[int, ...]
    axis: int | None = None
    bits: int = 0
    multiples: tuple[int, ...] = ()


@dataclass(frozen=True)
class TensorSpec:
    """What a tensor of a graph is. ``dtype`` is a name of ``structs.DTYPES``."""

    name: str
    dims: tuple[int, ...]
    dtype: str
    kind: int = s.NATIVE
    encoding: Encoding | None = None
    data: Array | None = None


class GraphBuilder:
    """A graph being built. ``kept`` holds what the library points into until the graph is finished."""

    def __init__(
        self, context: Context, name: str, *, fp16: bool = False, level: int = 3, vtcm: int = 0,
        flags: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.context, self.session, self.name = context, context.session, name
        self.kept: list[Any] = []
        self.count = 0
        chosen = [_optimization(s.FINALIZE_LEVEL, level), *(_optimization(flag, 1) for flag in flags)]
        if fp16:
            chosen.append(_number(s.PRECISION, s.FP16))
        if vtcm:
            chosen.append(_number(s.VTCM_MB, vtcm))
        options = option_list(*(custom(o) for o in chosen))
        self.handle = c.c_void_p()
        self.session.call("graphCreate", context.handle, name.encode(), options, c.byref(self.handle))

    # -------------------------------------------------------------------------------------------------- tensors

    def tensor(self, spec: TensorSpec, *, create: bool = True) -> s.Tensor:
        """A tensor of the graph; one that is not created can only be asked about."""
        made = s.Tensor(version=1)
        body = made.body.v1
        body.name, body.type, body.dtype = spec.name.encode(), spec.kind, s.DTYPES[spec.dtype]
        self._encode(body.quantization, spec.encoding)
        dims = (c.c_uint32 * max(1, len(spec.dims)))(*spec.dims)
        body.rank, body.dims = len(spec.dims), dims
        self.kept += [dims, made]
        if spec.data is not None:
            data = np.ascontiguousarray(spec.data)
            body.memory.buffer = s.ClientBuffer(data.ctypes.data, data.nbytes)
            self.kept.append(data)
        if create:
            subject = f"tensor {spec.name!r}"
            self.session.call("tensorCreateGraphTensor", self.handle, c.byref(made), subject=subject)
        return made

    def _encode(self, into: s.QuantizeParams, given: Encoding | None) -> None:
        into.definition = s.UNDEFINED if given is None else s.DEFINED
        into.encoding = s.UNDEFINED
        if given is None:
            return
        if given.axis is None:
            scale, offset = given.scales[0], given.offsets[0]
            into.encoding = s.BITS if given.bits else s.SCALE_OFFSET
            if given.bits:
                into.given.bits = s.BitsScaleOffset(given.bits, scale, offset)
            else:
                into.given.one = s.ScaleOffset(scale, offset)
            return
        count = len(given.scales)
        if given.multiples:
            self._in_blocks(into, given)
            return
        if given.bits:
            scales, offsets = (c.c_float * count)(*given.scales), (c.c_int32 * count)(*given.offsets)
            into.encoding = s.AXIS_BITS
            into.given.axis_bits = s.AxisBits(given.bits, given.axis, count, scales, offsets)
            self.kept += [scales, offsets]
            return
        pairs = (s.ScaleOffset * count)(*map(s.ScaleOffset, given.scales, given.offsets))
        into.encoding = s.AXIS
        into.given.axis = s.AxisScaleOffset(given.axis, count, pairs)
        self.kept.append(pairs)

    def _in_blocks(self, into: s.QuantizeParams, given: Encoding) -> None:
        count = len(given.scales)
        pairs = (s.ScaleOffset * count)(*map(s.ScaleOffset, given.scales, given.offsets))
        multiples = (c.c_uint8 * len(given.multiples))(*given.multiples)
        record = s.Blocks(given.axis, pairs, len(given.multiples) // count, given.bits, 0, multiples)
        into.encoding = s.BLOCKS
        into.given.record = c.addressof(record)
        self.kept += [pairs, multiples, record]

    # ---------------------------------------------------------------------------------------------------- nodes

    def param(self, name: str, given: Any, *, create: bool = True) -> s.Param:
        """A parameter of a node: arrays become constants; numbers are bool, unsigned or real by their type, and a
        numpy scalar says which integer it is."""
        made = s.Param(name=name.encode())
        if isinstance(given, np.ndarray):
            self.count += 1
            spec = TensorSpec(f"{name}_{self.count}", given.shape, str(given.dtype), s.STATIC, data=given)
            made.kind = 1
            made.body.tensor = self.tensor(spec, create=create)
            return made
        made.body.scalar = _scalar(given)
        return made

    def node(
        self, kind: str, name: str, inputs: Sequence[s.Tensor], outputs: Sequence[s.Tensor],
        params: Mapping[str, Any], *, add: bool = True,
    ) -> None:  # fmt: skip
        """Ask the backend about a node, then add it."""
        made = [self.param(n, given, create=add) for n, given in params.items()]
        held = [(s.Tensor * max(1, len(side)))(*side) for side in (inputs, outputs)]
        listed = (s.Param * max(1, len(made)))(*made)
        body = s.OpConfigBody(name.encode(), s.PACKAGE, kind.encode(), len(made), listed, len(inputs), held[0],
                              len(outputs), held[1])  # fmt: skip
        config = s.OpConfig(1, body)
        self.kept += [*held, listed, config]
        subject = f"{kind} {name!r}"
        rule = "must be an operator that the HTP takes"
        self.session.call("backendValidateOpConfig", self.session.backend, config, subject=subject, rule=rule)
        if add:
            self.session.call("graphAddNode", self.handle, config, subject=subject)

    def finalize(self, profile: Any = None) -> str:
        """Compile the graph; gives what the compiler printed."""
        failure: VendorError | None = None
        with capture_streams() as said:
            try:
                self.session.call("graphFinalize", self.handle, profile, None, subject=f"graph {self.name!r}")
            except VendorError as error:
                failure = error
        if failure is not None:
            failure.remedy = said.text.strip()[-400:] or "Leave the operators out that it names, with exclude=[...]."
            raise failure
        return said.text


def _optimization(kind: int, value: int) -> s.GraphOption:
    made = s.GraphOption(s.OPTIMIZATION)
    made.given.optimization = s.OptimizationOption(kind, float(value))
    return made


def _number(option: int, number: int) -> s.GraphOption:
    made = s.GraphOption(option)
    made.given.number = number
    return made


def _scalar(given: Any) -> s.Scalar:
    if isinstance(given, bool | np.bool_):
        made = s.Scalar(s.DTYPES["bool"])
        made.value.u8 = int(given)
    elif isinstance(given, float | np.floating):
        made = s.Scalar(s.DTYPES["float32"])
        made.value.f32 = float(given)
    elif isinstance(given, np.int32):
        made = s.Scalar(s.DTYPES["int32"])
        made.value.i32 = int(given)
    else:
        made = s.Scalar(s.DTYPES["uint32"])
        made.value.u32 = int(given)
    return made
