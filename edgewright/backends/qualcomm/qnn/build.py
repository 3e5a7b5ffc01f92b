"""Builds one graph in a context: tensors, nodes, and the compiler's run over them."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.capture import capture_streams
from edgewright.backends.qualcomm.qnn import structs as s
from edgewright.backends.qualcomm.qnn.session import Context, custom_option, option_list
from edgewright.errors import VendorError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Encoding:
    """Quantization encoding: ``real = scale * (stored + offset)``, per slice along ``axis`` if set. ``bits``: bit width
    if less than the storage's, else 0. ``multiples``: integer multipliers of a slice's scale, one per block."""

    scales: tuple[float, ...]
    offsets: tuple[int, ...]
    axis: int | None = None
    bits: int = 0
    multiples: tuple[int, ...] = ()


@dataclass(frozen=True)
class TensorDef:
    """Definition of a tensor. ``dtype``: a key of ``structs.DTYPES``."""

    name: str
    dims: tuple[int, ...]
    dtype: str
    kind: int = s.NATIVE
    encoding: Encoding | None = None
    data: Array | None = None


class QnnGraphBuilder:
    """A graph being built. ``keep_alive`` holds memory that the library refers to until the graph is finalized."""

    def __init__(
        self, context: Context, name: str, *, fp16: bool = False, level: int = 3, vtcm: int = 0,
        flags: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.context, self.session, self.name = context, context.session, name
        self.keep_alive: list[Any] = []
        self.count = 0
        graph_options = [
            _optimization_option(s.FINALIZE_LEVEL, level),
            *(_optimization_option(flag, 1) for flag in flags),
        ]
        if fp16:
            graph_options.append(_number_option(s.PRECISION, s.FP16))
        if vtcm:
            graph_options.append(_number_option(s.VTCM_MB, vtcm))
        options = option_list(*(custom_option(o) for o in graph_options))
        self.handle = c.c_void_p()
        self.session.call("graphCreate", context.handle, name.encode(), options, c.byref(self.handle))

    # -------------------------------------------------------------------------------------------------- tensors

    def tensor(self, spec: TensorDef, *, create: bool = True) -> s.Tensor:
        """Define a tensor of the graph; with ``create=False`` it can only be used for validation."""
        result = s.Tensor(version=1)
        body = result.body.v1
        body.name, body.type, body.dtype = spec.name.encode(), spec.kind, s.DTYPES[spec.dtype]
        self._encode(body.quantization, spec.encoding)
        dims = (c.c_uint32 * max(1, len(spec.dims)))(*spec.dims)
        body.rank, body.dims = len(spec.dims), dims
        self.keep_alive += [dims, result]
        if spec.data is not None:
            data = np.ascontiguousarray(spec.data)
            body.memory.buffer = s.ClientBuffer(data.ctypes.data, data.nbytes)
            self.keep_alive.append(data)
        if create:
            subject = f"tensor {spec.name!r}"
            self.session.call("tensorCreateGraphTensor", self.handle, c.byref(result), subject=subject)
        return result

    def _encode(self, params: s.QuantizeParams, encoding: Encoding | None) -> None:
        params.definition = s.UNDEFINED if encoding is None else s.DEFINED
        params.encoding = s.UNDEFINED
        if encoding is None:
            return
        if encoding.axis is None:
            scale, offset = encoding.scales[0], encoding.offsets[0]
            params.encoding = s.BITS if encoding.bits else s.SCALE_OFFSET
            if encoding.bits:
                params.value.bits = s.BitsScaleOffset(encoding.bits, scale, offset)
            else:
                params.value.one = s.ScaleOffset(scale, offset)
            return
        count = len(encoding.scales)
        if encoding.multiples:
            self._encode_blocks(params, encoding)
            return
        if encoding.bits:
            scales, offsets = (c.c_float * count)(*encoding.scales), (c.c_int32 * count)(*encoding.offsets)
            params.encoding = s.AXIS_BITS
            params.value.axis_bits = s.AxisBits(encoding.bits, encoding.axis, count, scales, offsets)
            self.keep_alive += [scales, offsets]
            return
        pairs = (s.ScaleOffset * count)(*map(s.ScaleOffset, encoding.scales, encoding.offsets))
        params.encoding = s.AXIS
        params.value.axis = s.AxisScaleOffset(encoding.axis, count, pairs)
        self.keep_alive.append(pairs)

    def _encode_blocks(self, params: s.QuantizeParams, encoding: Encoding) -> None:
        count = len(encoding.scales)
        pairs = (s.ScaleOffset * count)(*map(s.ScaleOffset, encoding.scales, encoding.offsets))
        multiples = (c.c_uint8 * len(encoding.multiples))(*encoding.multiples)
        record = s.Blocks(encoding.axis, pairs, len(encoding.multiples) // count, encoding.bits, 0, multiples)
        params.encoding = s.BLOCKS
        params.value.record = c.addressof(record)
        self.keep_alive += [pairs, multiples, record]

    # ---------------------------------------------------------------------------------------------------- nodes

    def param(self, name: str, value: Any, *, create: bool = True) -> s.Param:
        """A parameter of a node: an array becomes a static tensor, a scalar a bool, float, int32 or uint32 by its
        type."""
        result = s.Param(name=name.encode())
        if isinstance(value, np.ndarray):
            self.count += 1
            spec = TensorDef(f"{name}_{self.count}", value.shape, str(value.dtype), s.STATIC, data=value)
            result.kind = 1
            result.body.tensor = self.tensor(spec, create=create)
            return result
        result.body.scalar = _scalar(value)
        return result

    def node(
        self, kind: str, name: str, inputs: Sequence[s.Tensor], outputs: Sequence[s.Tensor],
        params: Mapping[str, Any], *, add: bool = True,
    ) -> None:  # fmt: skip
        """Validate a node, then add it."""
        param_list = [self.param(n, value, create=add) for n, value in params.items()]
        tensors = [(s.Tensor * max(1, len(side)))(*side) for side in (inputs, outputs)]
        param_array = (s.Param * max(1, len(param_list)))(*param_list)
        body = s.OpConfigBody(name.encode(), s.PACKAGE, kind.encode(), len(param_list), param_array,
                              len(inputs), tensors[0], len(outputs), tensors[1])  # fmt: skip
        config = s.OpConfig(1, body)
        self.keep_alive += [*tensors, param_array, config]
        subject = f"{kind} {name!r}"
        rule = "must be an operator that the HTP supports"
        self.session.call("backendValidateOpConfig", self.session.backend, config, subject=subject, rule=rule)
        if add:
            self.session.call("graphAddNode", self.handle, config, subject=subject)

    def finalize(self, profile: Any = None) -> str:
        """Compile the graph; returns the compiler's output."""
        failure: VendorError | None = None
        with capture_streams() as output:
            try:
                self.session.call("graphFinalize", self.handle, profile, None, subject=f"graph {self.name!r}")
            except VendorError as error:
                failure = error
        if failure is not None:
            failure.remedy = output.text.strip()[-400:] or "Leave the operators out that it names, with exclude=[...]."
            raise failure
        return output.text


def _optimization_option(kind: int, value: int) -> s.GraphOption:
    result = s.GraphOption(s.OPTIMIZATION)
    result.value.optimization = s.OptimizationOption(kind, float(value))
    return result


def _number_option(option: int, number: int) -> s.GraphOption:
    result = s.GraphOption(option)
    result.value.number = number
    return result


def _scalar(value: Any) -> s.Scalar:
    if isinstance(value, bool | np.bool_):
        result = s.Scalar(s.DTYPES["bool"])
        result.value.u8 = int(value)
    elif isinstance(value, float | np.floating):
        result = s.Scalar(s.DTYPES["float32"])
        result.value.f32 = float(value)
    elif isinstance(value, np.int32):
        result = s.Scalar(s.DTYPES["int32"])
        result.value.i32 = int(value)
    else:
        result = s.Scalar(s.DTYPES["uint32"])
        result.value.u32 = int(value)
    return result
