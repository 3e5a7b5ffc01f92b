"""Embeddings of quantized tables: packed, and read by row.

torchao and PT2E dequantize a table in front of its lookup, all of it at each call. ExecuTorch's quantized kernels read
the rows that are looked up, from tables of 8, 4 or 2 bits per element. Where the target's runtime lacks them, integer
rows are gathered and dequantized. Both compute ``(element - zero point) * scale``, as the dequantized table has it.

Backends that have embeddings match the dequantized table instead, so only what they leave is rewritten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from edgewright.frontend.decompose.canonical import dtype_of, rule, to_dtype
from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten

# Functional variants of ExecuTorch's kernels. ExecuTorch defines operators of these names, in its own namespace.
NAMESPACE = "edgewright"
KERNELS = {8: "embedding_byte", 4: "embedding_4bit", 2: "embedding_2bit"}
_ARGUMENTS = (
    "Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, "
    "Tensor indices"
)


def _define(name: str, bits: int) -> None:
    def lookup(weight: Any, scales: Any, zeros: Any, low: int, high: int, indices: Any) -> Any:
        rows = unpack(weight[indices], bits).to(scales.dtype)
        groups = scales.shape[1] if scales.dim() == 2 else 1
        rows = rows.reshape(*indices.shape, groups, -1)
        if zeros is not None:
            rows = rows - zeros[indices].reshape(*indices.shape, groups, 1)
        return (rows * scales[indices].reshape(*indices.shape, groups, 1)).reshape(*indices.shape, -1)

    def shape(weight: Any, scales: Any, zeros: Any, low: int, high: int, indices: Any) -> Any:
        return scales.new_empty((*indices.shape, weight.shape[1] * (8 // bits)))

    torch.library.define(f"{NAMESPACE}::{name}", f"({_ARGUMENTS}) -> Tensor")
    torch.library.impl(f"{NAMESPACE}::{name}", "CompositeExplicitAutograd", lookup)
    torch.library.register_fake(f"{NAMESPACE}::{name}", shape)


def pack(data: torch.Tensor, bits: int) -> torch.Tensor:
    """Bytes of signed elements: of 4 bits the first is in the high bits, of 2 bits in the low ones."""
    if bits == 8:
        return data
    parts = (data.to(torch.int16) + (1 << (bits - 1))).reshape(len(data), -1, 8 // bits)
    shifts = torch.tensor([4, 0] if bits == 4 else [0, 2, 4, 6], dtype=torch.int16)
    return (parts << shifts).sum(-1).to(torch.uint8)


def unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """The elements that ``pack`` has packed."""
    if bits == 8:
        return packed
    shifts = torch.tensor([4, 0] if bits == 4 else [0, 2, 4, 6], dtype=torch.int16, device=packed.device)
    parts = (packed.to(torch.int16)[..., None] >> shifts) & ((1 << bits) - 1)
    return parts.flatten(-2) - (1 << (bits - 1))


for _bits, _name in KERNELS.items():
    _define(_name, _bits)


@dataclass(frozen=True)
class Table:
    """A quantized table: ``scales`` and ``zeros`` for each row and group of columns. ``dtype``: that of its rows."""

    data: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    low: int
    high: int
    dtype: torch.dtype

    def narrow(self) -> tuple[Table, int]:
        """The table with signed elements, and the bits that a stored element takes."""
        widths = [bits for bits in (2, 4) if self.high - self.low < 1 << bits and not self.data.shape[1] % (8 // bits)]
        for bits in widths:
            offset = self.low + (1 << (bits - 1)) if self.low >= 0 or self.high >= 1 << (bits - 1) else 0
            if self.low - offset < -(1 << (bits - 1)):
                continue
            zeros = self.zeros if self.zeros is not None else torch.zeros_like(self.scales)
            shifted = replace(self, data=self.data.to(torch.int16) - offset, zeros=zeros - offset,
                              low=self.low - offset, high=self.high - offset)  # fmt: skip
            return (shifted if offset else self), bits
        return self, 8


@rule(aten.embedding.default)
def embedding(rw: Rewriter, weight: fx.Node, indices: fx.Node, *args: Any, **kwargs: Any) -> Any:
    parts = _inner_tensors(rw, weight)
    if parts is not None:
        return rw.call(aten.embedding.default, _dequantized(rw, *parts, dtype_of(weight)), indices, *args, **kwargs)
    if not rw.packs_embeddings or rw.add_constant is None:
        return NotImplemented
    table = _read_table(rw, weight)
    if table is None and is_dequantized(weight) and not rw.is_supported(weight.target):  # it was left for this rule
        weight = rw.call(weight.target, *weight.args, **weight.kwargs)
        return rw.call(aten.embedding.default, weight, indices, *args, **kwargs)
    if table is None:
        return NotImplemented
    narrowed, bits = table.narrow()
    kernel = getattr(getattr(torch.ops, NAMESPACE), KERNELS[bits]).default
    if table.scales.dtype != table.dtype or not rw.is_supported(kernel):
        return _gather_rows(rw, table, indices)
    scales = narrowed.scales if narrowed.scales.shape[1] > 1 else narrowed.scales[:, 0]
    zeros = None if narrowed.zeros is None else narrowed.zeros.to(scales.dtype).reshape(scales.shape)
    constants = [None if c is None else _constant(rw, c) for c in (pack(narrowed.data, bits), scales, zeros)]
    return rw.call(kernel, *constants, narrowed.low, narrowed.high, indices)


def _gather_rows(rw: Rewriter, table: Table, indices: fx.Node) -> Any:
    """Rows gathered as integers, then dequantized."""
    groups, width = table.scales.shape[1], table.data.shape[1]

    def gather(values: torch.Tensor, last: int) -> Any:
        rows = rw.call(aten.embedding.default, _constant(rw, values), indices)
        rows = to_dtype(rw, rows, torch.float32)
        return rows if groups == 1 else rw.call(aten.view_copy.default, rows, [*rw.shape(indices), groups, last])

    rows = gather(table.data, width // groups)
    if table.zeros is not None:
        rows = rw.call(aten.sub.Tensor, rows, gather(table.zeros.float(), 1))
    rows = to_dtype(rw, rw.call(aten.mul.Tensor, rows, gather(table.scales, 1)), table.dtype)
    return rows if groups == 1 else rw.call(aten.view_copy.default, rows, [*rw.shape(indices), width])


def _constant(rw: Rewriter, value: torch.Tensor) -> fx.Node:
    assert rw.add_constant is not None
    return rw.add_constant(value.contiguous())


# ----------------------------------------------------------------------------------------------------- quantized tables


def is_dequantized(node: Any) -> bool:
    """True for a node that dequantizes."""
    op = node.target if isinstance(node, fx.Node) else None
    return isinstance(op, torch._ops.OpOverload) and op._schema.name.partition("::")[2].startswith("dequantize_")


def is_table(node: fx.Node | None) -> bool:
    """True for a node that dequantizes what is then looked up, and nothing else reads."""
    if node is None or not is_dequantized(node):
        return False
    return all(user.target is aten.embedding.default and user.args[1] is not node for user in node.users)


def _read_table(rw: Rewriter, weight: fx.Node) -> Table | None:
    """The table behind a dequantized weight; None if it is not constant, or not quantized by row."""
    if not is_dequantized(weight):
        return None
    op: Any = weight.target
    names = [argument.name for argument in op._schema.arguments]
    bound = {**dict(zip(names, weight.args, strict=False)), **weight.kwargs}
    values = {k: rw.constants.value(v) if isinstance(v, fx.Node) else v for k, v in bound.items()}
    data = values.get("input")
    if data is None or data.dim() != 2 or data.dtype not in (torch.int8, torch.uint8):
        return None
    scales, zeros = (values.get(f"{name}s", values.get(name)) for name in ("scale", "zero_point"))
    if scales is None or not _is_by_row(values, data):
        return None
    info = torch.iinfo(data.dtype)
    low, high = (v if v is not None else i for v, i in zip(_limits(values), (info.min, info.max), strict=True))
    scales = _by_group(scales, data)
    zeros = None if zeros is None else _by_group(zeros, data)
    zeros = None if zeros is None or not bool(zeros.any()) else zeros.expand_as(scales)
    return Table(data, scales, zeros, int(low), int(high), dtype_of(weight))


def _limits(values: dict[str, Any]) -> tuple[Any, Any]:
    return values.get("quant_min"), values.get("quant_max")


def _is_by_row(values: dict[str, Any], data: torch.Tensor) -> bool:
    """True if scales are per tensor, or of rows or parts of them."""
    if "block_size" in values:
        block = list(values["block_size"])
        return (block[0] == 1 and data.shape[1] % block[1] == 0) or block == list(data.shape)
    return bool(values.get("axis", 0) == 0)


def _by_group(parameter: Any, data: torch.Tensor) -> torch.Tensor:
    """Quantization parameters by row and group; one for all rows is repeated."""
    tensor = torch.as_tensor(parameter)
    tensor = tensor.to(torch.float32) if tensor.dtype in (torch.float64, torch.int64) else tensor
    return tensor.reshape(-1).expand(len(data))[:, None] if tensor.numel() == 1 else tensor.reshape(len(data), -1)


# ---------------------------------------------------------------------------------------------------- tensor subclasses


def _inner_tensors(rw: Rewriter, weight: fx.Node) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None] | None:
    """The integers, scales and zero points of a table that is a tensor subclass of torchao; None for any other."""
    tensor = rw.constants.lookup(weight) if weight.op in ("placeholder", "get_attr") else None
    if not isinstance(tensor, torch.Tensor) or not is_traceable_wrapper_subclass(tensor) or rw.add_constant is None:
        return None
    names, _ = tensor.__tensor_flatten__()
    parts = {str(name): getattr(tensor, str(name)) for name in names}
    if not {"qdata", "scale"} <= parts.keys() <= {"qdata", "scale", "zero_point"} or parts["qdata"].dtype != torch.int8:
        return None
    return parts["qdata"], parts["scale"], parts.get("zero_point")


def _dequantized(
    rw: Rewriter, data: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, dtype: torch.dtype
) -> Any:  # fmt: skip
    """The call that dequantizes a table, as torchao's other subclasses export it."""
    constants = [None if c is None else _constant(rw, c.detach()) for c in (data, scale, zero)]
    block = [1, data.shape[1] // (scale.numel() // len(data))]
    op = torch.ops.torchao.dequantize_affine.default
    return rw.call(op, constants[0], block, *constants[1:], torch.int8, -128, 127, output_dtype=dtype)
